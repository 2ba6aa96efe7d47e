// Who is better than whom: comparisons of one agent with every other that is ranked.

const COMPARED = [
  "against",
  "difference in score",
  "95 % interval",
  "wins",
  "windows",
  "p, corrected",
  "pairs",
  "so it is",
];
const COMPARED_SAYS =
  "Difference: mean over the pairs, positive where the agent is ahead of the other. Wins: the chance that an episode " +
  "of it beats one of the other on the same task. Windows: of days, those that are independent of one another. p: " +
  "Wilcoxon's signed rank, corrected by Holm for all tests of the board.";
let compared = ""; // the agent whose comparisons are shown

function showCompare() {
  const { comparisons, words, standings } = world().parts[0];
  const named = new Set(comparisons.flatMap((one) => [one.better, one.worse]));
  const order = standings.map((s) => s.agent).filter((name) => named.has(name));
  const said = words.length ? words : ["There are no two ranked agents to compare"];
  const list = make(
    "ul",
    { class: "said" },
    said.map((word) => make("li", {}, `${word}.`)),
  );
  if (!order.length) {
    at("compare-body").replaceChildren(list);
    return;
  }
  if (!named.has(compared)) compared = order[0];
  const choose = (name) => {
    compared = name;
    showCompare();
    at("compare-body").querySelector("select").focus();
  };
  const names = order.map((name) => [name, name]);
  const rows = order.filter((name) => name !== compared).map((other) => comparison(other, comparisons));
  at("compare-body").replaceChildren(
    list,
    make(
      "form",
      { class: "filters", submit: (event) => event.preventDefault() },
      choice("agent", "compared", names, compared, choose),
    ),
    scrollingTable("Comparisons of the agent", "compare", COMPARED, rows),
    hint(COMPARED_SAYS),
  );
}

// A row: the numbers as they are from the side of the agent that is compared.
function comparison(other, comparisons) {
  const pair = [compared, other];
  const one = comparisons.find((its) => pair.includes(its.better) && pair.includes(its.worse));
  const ahead = one.better === compared;
  const ends = (interval, turn) =>
    interval && (ahead ? [interval.low, interval.high] : [turn(interval.high), turn(interval.low)]);
  const difference = ends(one.interval, (n) => -n);
  const wins = ends(one.improvement_interval, (n) => 1 - n);
  const verdict = one.significant ? (ahead ? "better" : "worse") : one.why || "not shown to differ";
  return [
    breakable(other),
    signed(ahead ? one.difference : -one.difference),
    difference ? `${signed(difference[0])} .. ${signed(difference[1])}` : DASH,
    percent(ahead ? one.improvement : 1 - one.improvement) +
      (wins ? ` (${percent(wins[0])} .. ${percent(wins[1])})` : ""),
    `${ahead ? "ahead" : "behind"} in ${one.windows_ahead} of ${one.windows}`,
    one.p_holm === null ? DASH : probability(one.p_holm),
    `${one.pairs} ${one.pair}`,
    make("span", { class: one.significant ? "strong" : "quiet" }, verdict),
  ];
}
