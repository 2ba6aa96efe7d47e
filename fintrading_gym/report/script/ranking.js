// The ranked table, and the one of scores by cell.

const mean = (name) => (s) => s.means[name] ?? null;
// Of a column: what it shows, whether more of it is better, how it is written, and what it says.
const COLUMNS = [
  { id: "rank", label: "#", value: (s) => s.rank, better: "less", cell: (s, part) => rankCell(s, part),
    says: "Rank by mean score over the whole board, and the ranks that the comparisons of agents leave open." },
  { id: "agent", label: "agent", value: (s) => s.agent, better: "less", cell: (s) => agentCell(s),
    says: "Name, and model where there is one. Opens its days." },
  { id: "score", label: "score", value: mean("score"), better: "more", cell: (s, part, scale) => scoreCell(s, scale),
    says: "Mean of four numbers in 0..1: cumulative return, Sharpe, stability (1 − drawdown), discipline. The bar is " +
      "the 95 % interval, over seeds (the agent's own chance) or over days (the market's); the dotted line is doing " +
      "nothing, which scores 0.708." },
  { id: "cr", label: "CR", value: mean("cumulative_return"), better: "more", write: (n) => signed(n, 2),
    says: "Cumulative log return, mean over the episodes." },
  { id: "excess", label: "excess", value: mean("excess"), better: "more", write: (n) => signed(n, 2),
    says: "CR less that of buying and holding the same days." },
  { id: "regret", label: "regret", value: mean("regret"), better: "less", write: (n) => fixed(n, 2),
    says: "CR of the best sequence in hindsight less CR." },
  { id: "luck", label: "luck", value: mean("luck"), better: "less", write: (n) => fixed(n, 3),
    says: "Share of random policies of the same activity that did at least as well, mean over the episodes." },
  { id: "sharpe", label: "Sharpe", value: mean("sharpe_ratio"), better: "more", write: (n) => signed(n, 1),
    says: "Annualised, risk-free rate 0." },
  { id: "dsr", label: "DSR", value: (s) => s.deflated_sharpe ?? null, better: "more", write: (n) => fixed(n, 2),
    says: "Deflated Sharpe ratio: the probability that its Sharpe ratio is more than the luckiest of all tries would " +
      "have by chance." },
  { id: "mdd", label: "MDD", value: mean("max_drawdown"), better: "less", write: (n) => fixed(n, 2),
    says: "Deepest fall from a peak, as a fraction." },
  { id: "coverage", label: "decided", value: mean("coverage"), better: "more", write: (n) => percent(n),
    says: "Days on which the agent really decided. On the others the environment held. Under 95 % is not ranked." },
  { id: "mix", label: "decisions", value: (s) => s.shares?.[2] ?? null, better: "more", cell: (s) => mixCell(s),
    says: "Shares of sell, hold and buy, left to right; sorted by buy. One colour alone is a position, hardly a choice." },
  { id: "tokens", label: "tokens", value: (s) => (s.asks ? s.tokens : null), better: "less",
    write: (n, s) => (s.asks ? whole(n) : ""), says: "Sent and received. A dash: the endpoint did not say." },
  { id: "usd", label: "USD", value: (s) => (s.asks ? s.cost_usd : null), better: "less",
    write: (n, s) => (s.asks ? money(n) : ""), says: "What the calls cost when they were paid for. Unknown is not 0." },
  { id: "guard", label: "shown", value: (s) => s.identities.join(", "), better: "less",
    write: (text) => text || "nothing", says: "Guard level: how much the text view told of whom it showed, and when." },
  { id: "episodes", label: "n", value: (s) => s.episodes, better: "more", write: (n) => String(n), says: "Episodes." },
];
const NOTHING = 0.708; // the score of doing nothing, validly

function partShown() {
  const want = [state.cell || null, state.persona || null, state.identity || null];
  return world().parts.find((part) => [part.cell, part.persona, part.identity].every((name, k) => name === want[k]));
}

function showRanking() {
  const part = partShown();
  const official = world().parts[0];
  const all = part?.standings ?? [];
  const words = state.find.toLowerCase();
  const found = all.filter((s) => `${s.agent} ${facts(s).model ?? ""}`.toLowerCase().includes(words));
  // Nobody is ranked where nothing happened; the page says so once.
  const why = new Map(official.standings.map((s) => [s.agent, s.why.endsWith("never happened") ? "" : s.why]));
  const columns = COLUMNS.filter((column) => column.id !== "dsr" || all.some((s) => s.deflated_sharpe != null));
  const scale = scoreScale(all);
  const groups = [found.filter((s) => !why.get(s.agent)), found.filter((s) => why.get(s.agent))];
  const rows = (group) => sorted(group).map((s) => row(s, columns, part, scale, why.get(s.agent)));
  at("board-table").replaceChildren(
    make("caption", { class: "quiet" }, caption()),
    make("thead", {}, make("tr", {}, columns.map(heading))),
    make("tbody", {}, rows(groups[0])),
    make("tbody", { class: "apart", hidden: groups[1].length === 0 },
      make("tr", {}, make("th", { colspan: columns.length, scope: "rowgroup" }, make("span", {}, "Not ranked"))),
      rows(groups[1])),
  );
  showPart(part, official, found.length);
}

function caption() {
  const column = COLUMNS.find((one) => one.id === state.sort) ?? COLUMNS[0];
  return [`Agents sorted by ${column.label === "#" ? "rank" : column.label}. Headings sort.`,
    make("span", { class: "on-phone" }, " More columns to the right.")];
}

function showPart(part, official, found) {
  const count = (one) => one.standings.reduce((sum, s) => sum + s.episodes, 0);
  let told = "";
  if (!part) told = "No episode is of this kind.";
  else if (part === official) {
    told = [
      state.world !== "real" && "Nobody is ranked in a world that never happened.",
      part.left_out.length && `Left out, since most of the agents have not played it: ${part.left_out.join(", ")}.`,
    ].filter(Boolean).join(" ");
  } else {
    told = `A part of the board: ${count(part)} of ${count(official)} episodes. Ranks and intervals stand on the whole ` +
      "board alone: whoever looks at many parts finds a winner in one of them by luck.";
  }
  if (part && !found) told = `${told} No agent's name has “${state.find}”.`.trim();
  at("part").textContent = told;
}

function facts(standing) {
  return board.agents[agentNamed(standing.agent)].facts;
}

function sorted(standings) {
  const column = COLUMNS.find((one) => one.id === state.sort) ?? COLUMNS[0];
  const turn = (column.better === "less") === (state.down === "") ? 1 : -1;
  // What has no number stands last in either direction; equals stand in the order of the ranking.
  return standings
    .map((s, k) => ({ s, k, value: column.id === "rank" ? k : column.value(s) }))
    .sort((a, b) => {
      if (a.value === null || b.value === null) return (a.value === null) - (b.value === null) || a.k - b.k;
      const order = typeof a.value === "string" ? a.value.localeCompare(b.value, "en") : a.value - b.value;
      return turn * order || a.k - b.k;
    })
    .map((one) => one.s);
}

function heading(column) {
  const chosen = state.sort === column.id;
  const rising = (column.better === "less") === (state.down === "");
  const sort = () => {
    change(chosen ? { down: state.down ? "" : "1" } : { sort: column.id, down: "" });
    showRanking();
    at("board-table").querySelector(`[data-column="${column.id}"]`).focus();
  };
  return make(
    "th",
    { scope: "col", "aria-sort": chosen ? (rising ? "ascending" : "descending") : "none", class: `c-${column.id}` },
    make("button", { type: "button", "data-column": column.id, click: sort, title: column.says }, column.label,
      make("span", { "aria-hidden": "true", class: "arrow" }, chosen ? (rising ? "▲" : "▼") : "")),
  );
}

function row(s, columns, part, scale, why) {
  const cells = columns.map((column) => {
    const content = column.cell ? column.cell(s, part, scale) : written(column, s);
    return make(column.id === "agent" ? "th" : "td",
      { class: `c-${column.id}`, scope: column.id === "agent" ? "row" : null }, content);
  });
  const line = make("tr", { "data-agent": s.agent }, cells);
  if (!why) return line;
  return [line, make("tr", { class: "why" }, make("td", { colspan: columns.length }, make("span", {}, why)))];
}

function written(column, s) {
  const value = column.value(s);
  return value === null && column.id !== "tokens" && column.id !== "usd" ? "\u2013" : column.write(value, s);
}

function rankCell(s, part) {
  if (part !== world().parts[0]) return "\u00b7";
  if (s.rank === null) return "\u2013";
  const range = s.rank_low != null && s.rank_low !== s.rank_high ? `${s.rank_low}–${s.rank_high}` : "";
  return [String(s.rank), range && make("span", { class: "range", title: "ranks that the comparisons leave open" }, range)];
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
  const low = Math.min(...numbers), high = Math.max(...numbers), room = Math.max(0.02, (high - low) * 0.05);
  return (score) => 4 + (112 * (score - (low - room))) / (high - low + 2 * room);
}

function scoreCell(s, x) {
  if (s.means.score === undefined) return "\u2013";
  const { score } = s.means, interval = s.intervals?.score;
  const told = interval ? `95 % interval ${fixed(interval.low)} to ${fixed(interval.high)}` : "no interval";
  const bar = draw("svg", { class: "bar", viewBox: "0 0 120 20", width: 120, height: 20, role: "img", "aria-label": told },
    draw("title", {}, interval && s.over ? `${told}, over ${s.over}` : told),
    draw("line", { class: "nothing", x1: x(NOTHING), x2: x(NOTHING), y1: 1, y2: 19 }),
    interval && draw("line", { class: "interval", x1: x(interval.low), x2: x(interval.high), y1: 10, y2: 10 }),
    draw("circle", { class: "point", cx: x(score), cy: 10, r: 4 }));
  return make("span", { class: "score" }, make("b", {}, fixed(score)), bar);
}

function mixCell(s) {
  if (!s.shares) return "\u2013";
  const told = board.actions.map((name, k) => `${name} ${percent(s.shares[k])}`).join(", ");
  let from = 0;
  const parts = s.shares.map((share, k) => draw("rect",
    { class: `fill-${board.actions[k]}`, x: 60 * (from += share) - 60 * share, y: 3, width: 60 * share, height: 10 }));
  return draw("svg", { class: "mix", viewBox: "0 0 60 16", width: 60, height: 16, role: "img", "aria-label": told },
    draw("title", {}, told), parts);
}

function showFilters() {
  const all = (names, word) => [["", word], ...names.map((name) => [name, name])];
  const set = (name) => (value) => {
    if (name !== "world") {
      change({ [name]: value });
      showRanking();
      return;
    }
    const market = board.markets.findIndex((one) => one.world === value && one.dates.length);
    change({ world: value, cell: "", persona: "", identity: "", market: String(market), day: "" });
    [showFilters, showRanking, showCompare, showCells, showDays, showCost].forEach((show) => show());
    at("filters").querySelector("select").focus();
  };
  const { cells, personas, identities } = world();
  const worlds = board.worlds.map((one) => [one.name, `${one.name}: ${one.told}`]);
  const find = make("input", { type: "search", name: "find", value: state.find, placeholder: "name or model",
    input: (event) => { change({ find: event.target.value }); showRanking(); } });
  at("filters").replaceChildren(
    ...[
      worlds.length > 1 && choice("world", "world", worlds, world().name, set("world")),
      choice("cell", "cell", all(cells, "all cells"), state.cell, set("cell")),
      personas.length > 1 && choice("persona", "persona", all(personas, "all personas"), state.persona, set("persona")),
      choice("guard level", "identity", all(identities, "all levels"), state.identity, set("identity")),
      make("label", {}, make("span", {}, "agent"), find),
    ].filter(Boolean),
  );
  at("filters").onsubmit = (event) => event.preventDefault();
}

function showCells() {
  const { cells, parts } = world();
  const open = (agent, cell) => () => {
    const market = board.markets.findIndex((one) => one.world === world().name && one.cell === cell);
    change({ agent, market: String(market), day: "" });
    showDays();
    at("days").scrollIntoView();
  };
  at("cells-table").replaceChildren(
    make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "agent"), cells.map((cell) => make("th", { scope: "col" }, cell)))),
    make("tbody", {}, parts[0].standings.map((s) => make("tr", {}, make("th", { scope: "row" }, breakable(s.agent)),
      cells.map((cell) => make("td", {}, s.cells[cell] === undefined ? "\u2013"
        : make("button", { type: "button", class: "link",
          "aria-label": `${s.agent} on ${cell}: ${fixed(s.cells[cell])}`, click: open(s.agent, cell) }, fixed(s.cells[cell]))))))),
  );
}
