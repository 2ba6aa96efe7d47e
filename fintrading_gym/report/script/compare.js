// Who is better than whom: paired comparisons of one agent with every other.

let compared = ""; // the agent whose comparisons are shown

function showCompare() {
  const { comparisons, words } = world().parts[0];
  const names = new Set(comparisons.flatMap((one) => [one.better, one.worse]));
  const order = world().parts[0].standings.map((s) => s.agent).filter((name) => names.has(name));
  const said = words.length ? words : ["There are no two ranked agents to compare"];
  const list = make("ul", { class: "said" }, said.map((word) => make("li", {}, `${word}.`)));
  if (!order.length) {
    at("compare-body").replaceChildren(list);
    return;
  }
  if (!names.has(compared)) compared = order[0];
  const chosen = (name) => {
    compared = name;
    showCompare();
    at("compare-body").querySelector("select").focus();
  };
  const heads = ["against", "difference in score", "95 % interval", "wins", "windows", "p, corrected", "pairs", "so it is"];
  at("compare-body").replaceChildren(
    list,
    make("form", { class: "filters", submit: (event) => event.preventDefault() },
      choice("agent", "compared", order.map((name) => [name, name]), compared, chosen)),
    make("div", { class: "scroll", tabindex: "0", role: "region", "aria-labelledby": "compare-title" }, make("table", { class: "compare" },
      make("thead", {}, make("tr", {}, heads.map((name) => make("th", { scope: "col" }, name)))),
      make("tbody", {}, order.filter((name) => name !== compared).map((other) => comparison(other, comparisons))))),
    make("p", { class: "hint" }, "Difference: mean over the pairs, positive where the agent is ahead of the other. Wins: the " +
      "chance that an episode of it beats one of the other on the same task. Windows: of days, those that are independent of one another. p: " +
      "Wilcoxon's signed rank, corrected by Holm for all tests of the board."),
  );
}

function comparison(other, comparisons) {
  const one = comparisons.find((its) => [its.better, its.worse].includes(other) && [its.better, its.worse].includes(compared));
  const ahead = one.better === compared;
  const turned = (interval, turn) => interval && (ahead ? [interval.low, interval.high] : [turn(interval.high), turn(interval.low)]);
  const difference = turned(one.interval, (n) => -n), wins = turned(one.improvement_interval, (n) => 1 - n);
  const cells = [
    signed(ahead ? one.difference : -one.difference),
    difference ? `${signed(difference[0])} .. ${signed(difference[1])}` : "\u2013",
    percent(ahead ? one.improvement : 1 - one.improvement) + (wins ? ` (${percent(wins[0])} .. ${percent(wins[1])})` : ""),
    `${ahead ? "ahead" : "behind"} in ${one.windows_ahead} of ${one.windows}`,
    one.p_holm === null ? "\u2013" : one.p_holm < 0.001 ? "< 0.001" : fixed(one.p_holm),
    `${one.pairs} ${one.pair}`,
  ];
  const verdict = one.significant ? (ahead ? "better" : "worse") : one.why || "not shown to differ";
  return make("tr", {}, make("th", { scope: "row" }, breakable(other)), cells.map((cell) => make("td", {}, cell)),
    make("td", { class: one.significant ? "strong" : "quiet" }, verdict));
}
