// Who is better than whom: paired comparisons of one agent with every other.

let compared = ""; // the agent whose comparisons are shown

function showCompare() {
  const { comparisons, windows, trials } = world();
  const names = [...new Set((comparisons ?? []).flatMap((one) => [one.better, one.worse]))];
  if (!names.length) {
    at("compare-body").replaceChildren(make("p", { class: "hint" }, "There are no two ranked agents to compare."));
    return;
  }
  const order = world().parts[0].standings.map((s) => s.agent).filter((name) => names.includes(name));
  if (!order.includes(compared)) compared = order[0];
  const found = comparisons.filter((one) => one.significant).length;
  const tested = comparisons.filter((one) => one.p !== null).length;
  const line = (other) => {
    const one = comparisons.find((its) => [its.better, its.worse].includes(other) && [its.better, its.worse].includes(compared));
    const turn = one.better === compared ? 1 : -1;
    const interval = one.interval && (turn > 0 ? [one.interval.low, one.interval.high] : [-one.interval.high, -one.interval.low]);
    const better = turn > 0 ? one.improvement : 1 - one.improvement;
    return make("tr", {},
      make("th", { scope: "row" }, other),
      make("td", {}, signed(turn * one.difference)),
      make("td", {}, interval ? `${signed(interval[0])} .. ${signed(interval[1])}` : "\u2013"),
      make("td", {}, percent(better)),
      make("td", {}, one.p === null ? "\u2013" : fixed(one.p)),
      make("td", {}, one.p_holm === null ? "\u2013" : fixed(one.p_holm)),
      make("td", {}, `${one.pairs} ${one.pair}`),
      make("td", { class: one.significant ? "strong" : "quiet" }, one.significant ? (turn > 0 ? "better" : "worse") : one.why || "no difference shown"));
  };
  const heads = ["against", "difference in score", "95 % interval", "wins", "p", "p, Holm", "pairs", "so it is"];
  at("compare-body").replaceChildren(
    make("p", {}, found
      ? `${found} of ${comparisons.length} pairs of agents differ significantly at 5 %, corrected for all ${tested} tests.`
      : `No pair of agents differs significantly at 5 %: ${tested} of ${comparisons.length} pairs could be tested, and all tests are corrected for one another.`,
    ` ${windows} independent ${windows === 1 ? "window" : "windows"} of days, ${trials} ${trials === 1 ? "try" : "tries"} of agents and settings.`),
    make("form", { class: "filters", submit: (event) => event.preventDefault() }, choice("agent", "compared", order.map((name) => [name, name]), compared, (value) => {
      compared = value;
      showCompare();
      at("compare-body").querySelector("select").focus();
    })),
    make("div", { class: "scroll", tabindex: "0", role: "region", "aria-labelledby": "compare-title" }, make("table", { class: "compare" },
      make("thead", {}, make("tr", {}, heads.map((name) => make("th", { scope: "col" }, name)))),
      make("tbody", {}, order.filter((name) => name !== compared).map(line)))),
    make("p", { class: "hint" }, "Paired Wilcoxon tests on the scores of the same tasks; wins: the chance that an episode of the one " +
      "beats one of the other."),
  );
}
