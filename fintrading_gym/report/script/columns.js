// The columns of the ranked table.

const mean = (name) => (s) => s.means[name] ?? null;
// Of a column: what it shows, whether more of it is better, how it is written, and what it says.
const COLUMNS = [
  {
    id: "rank",
    label: "#",
    value: (s) => s.rank,
    better: "less",
    cell: (s, part) => rankCell(s, part),
    says: "Rank by mean score over the whole board, and the ranks that the comparisons of agents leave open.",
  },
  {
    id: "agent",
    label: "agent",
    value: (s) => s.agent,
    better: "less",
    cell: (s) => agentCell(s),
    says: "Name, and model where there is one. Opens its days.",
  },
  {
    id: "score",
    label: "score",
    value: mean("score"),
    better: "more",
    cell: (s, part, scale) => scoreCell(s, scale),
    says:
      "Mean of four numbers in 0..1: cumulative return, Sharpe, stability (1 − drawdown), discipline. The bar is " +
      "the 95 % interval, over seeds (the agent's own chance) or over days (the market's); the dotted line is doing " +
      "nothing, which scores 0.708.",
  },
  {
    id: "cr",
    label: "CR",
    value: mean("cumulative_return"),
    better: "more",
    write: (n) => signed(n, 2),
    says: "Cumulative log return, mean over the episodes.",
  },
  {
    id: "excess",
    label: "excess",
    value: mean("excess"),
    better: "more",
    write: (n) => signed(n, 2),
    says: "CR less that of buying and holding the same days.",
  },
  {
    id: "regret",
    label: "regret",
    value: mean("regret"),
    better: "less",
    write: (n) => fixed(n, 2),
    says: "CR of the best sequence in hindsight less CR.",
  },
  {
    id: "luck",
    label: "luck",
    value: mean("luck"),
    better: "less",
    write: (n) => fixed(n, 3),
    says: "Share of random policies of the same activity that did at least as well, mean over the episodes.",
  },
  {
    id: "sharpe",
    label: "Sharpe",
    value: mean("sharpe_ratio"),
    better: "more",
    write: (n) => signed(n, 1),
    says: "Annualised, risk-free rate 0.",
  },
  {
    id: "dsr",
    label: "DSR",
    value: (s) => s.deflated_sharpe ?? null,
    better: "more",
    write: (n) => fixed(n, 2),
    says:
      "Deflated Sharpe ratio: the probability that its Sharpe ratio is more than the luckiest of all tries would " +
      "have by chance.",
  },
  {
    id: "mdd",
    label: "MDD",
    value: mean("max_drawdown"),
    better: "less",
    write: (n) => fixed(n, 2),
    says: "Deepest fall from a peak, as a fraction.",
  },
  {
    id: "coverage",
    label: "decided",
    value: mean("coverage"),
    better: "more",
    write: (n) => percent(n),
    says: "Days on which the agent really decided. On the others the environment held. Under 95 % is not ranked.",
  },
  {
    id: "mix",
    label: "decisions",
    value: (s) => s.shares?.[2] ?? null,
    better: "more",
    cell: (s) => mixCell(s),
    says: "Shares of sell, hold and buy, left to right; sorted by buy. One colour alone is hardly a choice.",
  },
  {
    id: "tokens",
    label: "tokens",
    value: (s) => (s.asks ? s.tokens : null),
    better: "less",
    write: (n, s) => (s.asks ? compact(n) : ""),
    says: "Sent and received. A dash: the endpoint did not say.",
  },
  {
    id: "usd",
    label: "USD",
    value: (s) => (s.asks ? s.cost_usd : null),
    better: "less",
    write: (n, s) => (s.asks ? money(n) : ""),
    says: "What the calls cost when they were paid for. Unknown is not 0.",
  },
  {
    id: "guard",
    label: "shown",
    value: (s) => s.identities.join(", "),
    better: "less",
    write: (text) => text || "nothing",
    says: "Guard level: how much the text view told of whom it showed, and when.",
  },
  { id: "episodes", label: "n", value: (s) => s.episodes, better: "more", write: (n) => String(n), says: "Episodes." },
];
const NOTHING = 0.708; // the score of doing nothing, validly

function rankCell(s, part) {
  if (part !== world().parts[0]) return "\u00b7";
  if (s.rank === null) return DASH;
  const range = s.rank_low != null && s.rank_low !== s.rank_high ? `${s.rank_low}–${s.rank_high}` : "";
  return [
    String(s.rank),
    range && make("span", { class: "range", title: "ranks that the comparisons leave open" }, range),
  ];
}

function agentCell(s) {
  const model = facts(s).model;
  const open = () => {
    change({ agent: s.agent, market: marketOf(s.agent), day: "" });
    showDays();
    at("days").scrollIntoView();
    at("days-filters").querySelector("select").focus({ preventScroll: true });
  };
  return [
    make("button", { type: "button", class: "link", click: open }, breakable(s.agent)),
    model && !s.agent.includes(model) && make("span", { class: "model" }, breakable(model)),
  ];
}

function scoreScale(standings) {
  const ends = standings.flatMap((s) => [s.means.score, s.intervals?.score?.low, s.intervals?.score?.high]);
  const numbers = [...ends.filter((n) => n !== null && n !== undefined), NOTHING];
  const low = Math.min(...numbers);
  const high = Math.max(...numbers);
  const room = Math.max(0.02, (high - low) * 0.05);
  return (score) => 4 + (112 * (score - (low - room))) / (high - low + 2 * room);
}

function scoreCell(s, x) {
  if (s.means.score === undefined) return DASH;
  const { score } = s.means;
  const interval = s.intervals?.score;
  const told = interval ? `95 % interval ${fixed(interval.low)} to ${fixed(interval.high)}` : "no interval";
  const bar = draw(
    "svg",
    { class: "bar", viewBox: "0 0 120 20", width: 120, height: 20, role: "img", "aria-label": told },
    draw("title", {}, interval && s.over ? `${told}, over ${s.over}` : told),
    draw("line", { class: "nothing", x1: x(NOTHING), x2: x(NOTHING), y1: 1, y2: 19 }),
    interval && draw("line", { class: "interval", x1: x(interval.low), x2: x(interval.high), y1: 10, y2: 10 }),
    draw("circle", { class: "point", cx: x(score), cy: 10, r: 4 }),
  );
  return make("span", { class: "score" }, make("b", {}, fixed(score)), bar);
}

function mixCell(s) {
  if (!s.shares) return DASH;
  const told = board.actions.map((name, k) => `${name} ${percent(s.shares[k])}`).join(", ");
  let from = 0;
  const parts = s.shares.map((share, k) =>
    draw("rect", {
      class: `fill-${board.actions[k]}`,
      x: 60 * (from += share) - 60 * share,
      y: 3,
      width: 60 * share,
      height: 10,
    }),
  );
  return draw(
    "svg",
    { class: "mix", viewBox: "0 0 60 16", width: 60, height: 16, role: "img", "aria-label": told },
    draw("title", {}, told),
    parts,
  );
}

function facts(standing) {
  return board.agents[agentNamed(standing.agent)].facts;
}
