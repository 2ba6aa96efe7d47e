// Day by day: curves of all agents on one market, and the decisions of one of them.

const REFERENCES = [
  { key: "=buy", name: "bought and held", values: (market) => equity(market.buy_and_hold), dash: "" },
  { key: "=flat", name: "nothing done", values: (market) => market.closes.map(() => 0), dash: "5 4" },
  { key: "=best", name: "best in hindsight", values: (market) => equity(market.oracle), dash: "1 4" },
];
const SHOWN = 6; // agents whose curves are drawn at first
let cursor = 1; // the day under the cursor
let shown = null; // what is shown now: see `chosen`
let drawn = []; // of each chart: host, and what `drawChart` gave

// The market, each agent's episode on it, and the agent in focus with its episode.
function chosen() {
  const playable = board.markets.map((market, k) => k).filter((k) => board.markets[k].dates.length);
  const wanted = Number(state.market);
  const market = state.market !== "" && playable.includes(wanted) ? wanted : playable[0];
  const here = board.episodes.map((episode, number) => ({ episode, number }))
    .filter(({ episode }) => episode.market === market && episode.days > 0);
  const each = (name) => [...new Set(here.map((one) => one.episode[name]).filter((value) => value !== null))];
  const personas = each("persona"), seeds = each("seed").sort((a, b) => a - b);
  const who = personas.includes(state.who) ? state.who : personas[0];
  const seed = seeds.includes(Number(state.seed)) && state.seed !== "" ? Number(state.seed) : seeds[0];
  const played = new Map();
  for (const one of here) {
    const { agent, persona, seed: its } = one.episode;
    if ((persona === null || persona === who) && (its === null || its === seed) && !played.has(agent)) played.set(agent, one);
  }
  const named = agentNamed(state.agent);
  const agent = played.has(named) ? named : Math.min(...played.keys());
  return { market, personas, seeds, who, seed, played, agent, playable, ...played.get(agent) };
}

// The market to open for an agent: the present one if it has played there.
function marketOf(name) {
  const k = agentNamed(name);
  const played = board.episodes.filter((one) => one.agent === k && one.days > 0).map((one) => one.market);
  const here = played.filter((market) => board.markets[market].world === world().name);
  const best = here.length ? here : played;
  return String(best.includes(shown?.market) ? shown.market : best[0] ?? "");
}

function showDays() {
  shown = chosen();
  if (shown.market === undefined || shown.number === undefined) {
    at("days").replaceChildren(at("days-title"), make("p", { class: "hint" }, "No day was played."));
    return;
  }
  cursor = Math.min(cursor, shown.episode.days);
  const other = state.agent && board.agents[shown.agent].name !== state.agent;
  at("absent").textContent = other ? `${state.agent} has no day here; this is ${board.agents[shown.agent].name}.` : "";
  showChoices();
  showLegend();
  showCharts();
  showNumbers();
  if (at("ledger").open) showLedger();
}

function showChoices() {
  const moved = (name) => (value) => {
    change({ [name]: value, day: "" });
    showDays();
    at("days-filters").querySelector(`[name="${name}"]`)?.focus();
  };
  const name = (market) => (market.world === "real" ? market.name : `${market.world}: ${market.name}`);
  const agents = [...shown.played.keys()].sort((a, b) => a - b).map((k) => [board.agents[k].name, board.agents[k].name]);
  at("days-filters").replaceChildren(
    ...[
      choice("agent", "agent", agents, board.agents[shown.agent].name, moved("agent")),
      choice("cell", "market", shown.playable.map((k) => [String(k), name(board.markets[k])]), String(shown.market), moved("market")),
      shown.personas.length > 1 && choice("persona", "who", shown.personas.map((one) => [one, one]), shown.who, moved("who")),
      shown.seeds.length > 1 && choice("seed", "seed", shown.seeds.map((one) => [String(one), String(one)]), String(shown.seed), moved("seed")),
      make("button", { type: "button", class: "plain", click: () => openDay(cursor) }, "Open the day"),
    ].filter(Boolean),
  );
  at("days-filters").onsubmit = (event) => event.preventDefault();
}

function showLegend() {
  const total = (values) => signed(values[values.length - 1] ?? 0, 2);
  const chip = (key, name, values, colour, dash, extra) => make("button",
    { type: "button", class: `chip ${extra}`, "aria-pressed": String(!hidden.has(key)),
      click: () => { hidden.has(key) ? hidden.delete(key) : hidden.add(key); showLegend(); showCharts(); focusOn(key); },
      "data-curve": key },
    draw("svg", { width: 22, height: 10, "aria-hidden": "true" },
      draw("line", { x1: 1, x2: 21, y1: 5, y2: 5, stroke: colour, class: `line ${extra}`, "stroke-dasharray": dash || null })),
    name, make("span", { class: "quiet" }, total(values)));
  const focusOn = (key) => [...at("legend").children].find((one) => one.dataset.curve === key)?.focus();
  const all = (show) => () => {
    for (const [k] of shown.played) show ? hidden.delete(board.agents[k].name) : hidden.add(board.agents[k].name);
    showLegend();
    showCharts();
  };
  const market = board.markets[shown.market];
  at("legend").replaceChildren(
    ...[...shown.played].sort(([a], [b]) => a - b).map(([k, { episode }]) => chip(board.agents[k].name, board.agents[k].name,
      equity(episode.earned), colour(k), dashes(k), k === shown.agent ? "strong" : "")),
    ...REFERENCES.map((one) => chip(one.key, one.name, one.values(market), "currentColor", one.dash, "reference")),
    make("span", { class: "nobreak" },
      make("button", { type: "button", class: "link", click: all(true) }, "all"), " ",
      make("button", { type: "button", class: "link", click: all(false) }, "none")),
  );
}

function curves() {
  const market = board.markets[shown.market];
  const references = REFERENCES.filter((one) => !hidden.has(one.key)).map((one) => (
    { key: one.key, values: one.values(market), colour: "currentColor", dash: one.dash, class: "reference" }));
  const agents = [...shown.played].filter(([k]) => k === shown.agent || !hidden.has(board.agents[k].name)).map(([k, { episode }]) => (
    { agent: k, values: equity(episode.earned), colour: colour(k), dash: dashes(k),
      class: k === shown.agent ? "strong" : "" }));
  return [...references, ...agents.sort((a, b) => (a.class === "strong") - (b.class === "strong"))];
}

function showCharts() {
  const market = board.markets[shown.market], { episode } = shown;
  const days = market.dates.length, lines = curves();
  const base = { days, dates: market.dates };
  const below = lines.filter((line) => line.key !== "=flat" && line.key !== "=best");
  const specs = [
    { ...base, title: "Equity: cumulative log return", height: 280, lines, zero: true, write: (n, d) => signed(n, d) },
    { ...base, title: "Drawdown: how far below the highest equity so far", height: 150, zero: "top",
      lines: below.map((line) => ({ ...line, values: drawdown(line.values) })), write: (n, d) => percent(n, Math.max(0, d - 2)) },
    { ...base, title: `${market.ticker}: adjusted close in USD, decisions of ${board.agents[shown.agent].name}, and its position`,
      height: 250, lines: [{ values: market.closes, colour: "currentColor", class: "price" }], write: (n, d) => fixed(n, d),
      strip: episode.positions, marks: decisionMarks(market, episode) },
  ];
  if (at("charts").childElementCount === 0) at("charts").append(...specs.map(chartBox));
  drawn = [...at("charts").children].map((box, k) => {
    const host = box.querySelector(".plot");
    box.querySelector("h3").firstChild.textContent = specs[k].title;
    host.setAttribute("aria-label", specs[k].title);
    host.setAttribute("aria-valuemax", episode.days);
    return { host, ...drawChart(host, specs[k]) };
  });
  moveTo(cursor);
}

function decisionMarks(market, episode) {
  const crowded = market.dates.length > 90; // then only what changes the position, and what is no decision
  return [...episode.actions].flatMap((action, k) => {
    const kind = episode.valid[k] === "1" ? board.actions[action] : "none";
    const moved = episode.positions[k] !== (k ? episode.positions[k - 1] : "0");
    return crowded && !moved && kind !== "none" ? [] : [{ day: k + 1, kind, value: market.closes[k] }];
  });
}

function chartBox(spec, k) {
  const pointed = (event) => drawn[k].day(event.clientX);
  const keys = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1, PageUp: 10, PageDown: -10, Home: -1e6, End: 1e6 };
  const press = (event) => {
    if (event.key in keys) moveTo(cursor + keys[event.key]);
    else if (event.key === "Enter" || event.key === " ") openDay(cursor);
    else return;
    event.preventDefault();
  };
  const click = (event) => {
    const day = pointed(event), line = k < 2 ? drawn[k].line(day, event.clientY) : undefined;
    if (line && line.agent !== shown.agent) {
      change({ agent: board.agents[line.agent].name });
      showDays();
    }
    openDay(Math.min(day, shown.episode.days));
  };
  const key = k === 2 && make("span", { class: "key" }, ...["buy", "sell", "hold"].map((name) => make("span", { class: `key-${name}` },
    { buy: "▲ buy, long", sell: "▼ sell, short", hold: "● hold, flat" }[name])), make("span", {}, "✕ no decision"));
  return make("figure", {}, make("h3", {}, spec.title, key), make("div", { class: "plot", tabindex: "0", role: "slider",
    "aria-valuemin": 1, "aria-orientation": "horizontal", keydown: press, click, pointermove: (event) => moveTo(pointed(event)) }));
}

// Put the cursor on a day of the episode in focus.
function moveTo(day) {
  cursor = Math.min(Math.max(1, day), shown.episode.days);
  const told = dayTold(cursor);
  at("readout").textContent = told;
  for (const chart of drawn) {
    chart.mark(Math.min(cursor, board.markets[shown.market].dates.length));
    chart.host.setAttribute("aria-valuenow", cursor);
    chart.host.setAttribute("aria-valuetext", told);
  }
}

function dayTold(day) {
  const market = board.markets[shown.market], { episode } = shown, k = day - 1;
  const date = market.dates[k] ?? "", name = board.agents[shown.agent].name;
  if (k >= episode.actions.length) return `Day ${day}, ${date}: ${name} failed (${episode.failure})`;
  const sums = equity(episode.earned);
  return `Day ${day}, ${date}, close ${fixed(market.closes[k], 2)}: ${name} ${decided(episode, k)}, ${POSITIONS[episode.positions[k]]}, ` +
    `earned ${signed(returns(episode.earned)[k], 4)}, in all ${signed(sums[day], 4)}; ` +
    `buy and hold ${signed(equity(market.buy_and_hold)[day], 4)}`;
}

const decided = (episode, k) => (episode.valid[k] === "1" ? { sell: "sold", hold: "held", buy: "bought" }[board.actions[episode.actions[k]]] : "gave no decision");
const POSITIONS = { "+": "long", 0: "flat", "-": "short" };

function showNumbers() {
  const { row, persona, seed, identity } = shown.episode;
  const told = { persona: persona ?? "ignored", seed: seed ?? "ignored", shown: identity ?? "nothing", ...row };
  definitions(at("numbers-list"), Object.entries(told).map(([name, value]) => [name, plain(value)]));
}

function showLedger() {
  const market = board.markets[shown.market], { episode } = shown;
  const sums = equity(episode.earned), earned = returns(episode.earned);
  const lines = Array.from({ length: episode.days }, (_, k) => make("tr", { class: episode.valid[k] === "0" ? "invalid" : null },
    make("td", {}, make("button", { type: "button", class: "link", "aria-label": `open day ${k + 1}`, click: () => openDay(k + 1) }, String(k + 1))),
    ...(k < episode.actions.length
      ? [market.dates[k], fixed(market.closes[k], 2), decided(episode, k), POSITIONS[episode.positions[k]], signed(earned[k], 4), signed(sums[k + 1], 4)]
      : [market.dates[k] ?? "", "", "failed", "", "", ""]).map((text) => make("td", {}, text))));
  at("ledger-table").replaceChildren(
    make("thead", {}, make("tr", {}, ["day", "date", "close", "decision", "position", "earned", "in all"].map((name) => make("th", { scope: "col" }, name)))),
    make("tbody", {}, lines));
}
