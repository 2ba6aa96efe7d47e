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
  const market = state.market !== "" && playable.includes(Number(state.market)) ? Number(state.market) : playable[0];
  const here = board.episodes
    .map((episode, number) => ({ episode, number }))
    .filter(({ episode }) => episode.market === market && episode.days > 0);
  const each = (name) => [...new Set(here.map((one) => one.episode[name]).filter((value) => value !== null))];
  const personas = each("persona");
  const seeds = each("seed").sort((a, b) => a - b);
  const who = personas.includes(state.who) ? state.who : personas[0];
  const seed = seeds.includes(Number(state.seed)) && state.seed !== "" ? Number(state.seed) : seeds[0];
  const played = new Map();
  for (const one of here) {
    const { agent, persona, seed: its } = one.episode;
    const wanted = (persona === null || persona === who) && (its === null || its === seed);
    if (wanted && !played.has(agent)) played.set(agent, one);
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
  return String(best.includes(shown?.market) ? shown.market : (best[0] ?? ""));
}

function showDays() {
  shown = chosen();
  const nothing = shown.market === undefined || shown.number === undefined;
  for (const part of at("days").children) part.hidden = nothing && !["days-title", "absent"].includes(part.id);
  if (nothing) {
    at("absent").textContent = "No day was played.";
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
  const agents = [...shown.played.keys()].sort((a, b) => a - b).map((k) => board.agents[k].name);
  const same = (values) => values.map((value) => [String(value), String(value)]);
  const markets = shown.playable.map((k) => [String(k), name(board.markets[k])]);
  at("days-filters").replaceChildren(
    ...[
      choice("agent", "agent", same(agents), board.agents[shown.agent].name, moved("agent")),
      choice("cell", "market", markets, String(shown.market), moved("market")),
      shown.personas.length > 1 && choice("persona", "who", same(shown.personas), shown.who, moved("who")),
      shown.seeds.length > 1 && choice("seed", "seed", same(shown.seeds), String(shown.seed), moved("seed")),
      make("button", { type: "button", class: "plain", click: () => openDay(cursor) }, "Open the day"),
    ].filter(Boolean),
  );
  at("days-filters").onsubmit = (event) => event.preventDefault();
}

function showLegend() {
  const market = board.markets[shown.market];
  const agents = [...shown.played]
    .sort(([a], [b]) => a - b)
    .map(([k, { episode }]) => {
      const { name } = board.agents[k];
      const kind = k === shown.agent ? "strong" : "";
      return chip({ key: name, name, values: equity(episode.earned), colour: colour(k), dash: dashes(k), kind });
    });
  const references = REFERENCES.map((one) =>
    chip({ ...one, values: one.values(market), colour: "currentColor", kind: "reference" }),
  );
  const all = (show) => () => {
    for (const k of shown.played.keys()) hide(board.agents[k].name, !show);
    showLegend();
    showCharts();
  };
  const button = (told, show) => make("button", { type: "button", class: "link", click: all(show) }, told);
  at("legend").replaceChildren(
    ...agents,
    ...references,
    make("span", { class: "nobreak" }, button("all", true), " ", button("none", false)),
  );
}

// A curve's name, with its end; a click draws it or leaves it out.
function chip({ key, name, values, colour: ink, dash, kind }) {
  const toggle = () => {
    hide(key, !hidden.has(key));
    showLegend();
    showCharts();
    [...at("legend").children].find((one) => one.dataset.curve === key)?.focus();
  };
  const line = { class: `line ${kind}`, x1: 1, x2: 21, y1: 5, y2: 5, stroke: ink, "stroke-dasharray": dash || null };
  return make(
    "button",
    {
      type: "button",
      class: `chip ${kind}`,
      "aria-pressed": String(!hidden.has(key)),
      "data-curve": key,
      click: toggle,
    },
    draw("svg", { width: 22, height: 10, "aria-hidden": "true" }, draw("line", line)),
    name,
    make("span", { class: "quiet" }, signed(values[values.length - 1], 2)),
  );
}

function hide(key, hiding) {
  if (hiding) hidden.add(key);
  else hidden.delete(key);
}

// The lines of the charts, the agent in focus last and so on top.
function curves() {
  const market = board.markets[shown.market];
  const references = REFERENCES.filter((one) => !hidden.has(one.key)).map((one) => ({
    key: one.key,
    values: one.values(market),
    colour: "currentColor",
    dash: one.dash,
    class: "reference",
  }));
  const drawnOf = ([k]) => k === shown.agent || !hidden.has(board.agents[k].name);
  const agents = [...shown.played].filter(drawnOf).map(([k, { episode }]) => ({
    agent: k,
    values: equity(episode.earned),
    colour: colour(k),
    dash: dashes(k),
    class: k === shown.agent ? "strong" : "",
  }));
  return [...references, ...agents.sort((a, b) => (a.class === "strong") - (b.class === "strong"))];
}

function showCharts() {
  const specs = chartSpecs();
  if (at("charts").childElementCount === 0) at("charts").append(...specs.map(chartBox));
  drawn = [...at("charts").children].map((box, k) => {
    const host = box.querySelector(".plot");
    box.querySelector("h3").firstChild.textContent = specs[k].title;
    host.setAttribute("aria-label", specs[k].title);
    host.setAttribute("aria-valuemax", shown.episode.days);
    return { host, ...drawChart(host, specs[k]) };
  });
  moveTo(cursor);
}

function chartSpecs() {
  const market = board.markets[shown.market];
  const { episode } = shown;
  const lines = curves();
  const base = { days: market.dates.length, dates: market.dates };
  const falls = lines
    .filter((line) => line.key !== "=flat" && line.key !== "=best")
    .map((line) => ({ ...line, values: drawdown(line.values) }));
  return [
    { ...base, title: "Equity: cumulative log return", height: 280, lines, zero: true, write: signed },
    {
      ...base,
      title: "Drawdown: how far below the highest equity so far",
      height: 150,
      lines: falls,
      zero: "top",
      write: (fall, digits) => percent(fall, Math.max(0, digits - 2)),
    },
    {
      ...base,
      title: `${market.ticker}: adjusted close in USD, decisions and positions of ${board.agents[shown.agent].name}`,
      height: 250,
      lines: [{ values: market.closes, colour: "currentColor", class: "price" }],
      write: fixed,
      strip: episode.positions,
      marks: decisionMarks(market, episode),
    },
  ];
}

function decisionMarks(market, episode) {
  const crowded = market.dates.length > 90; // then only what changes the position, and what is no decision
  return [...episode.actions].flatMap((action, k) => {
    const kind = episode.valid[k] === "1" ? board.actions[action] : "none";
    const moved = episode.positions[k] !== (k ? episode.positions[k - 1] : "0");
    return crowded && !moved && kind !== "none" ? [] : [{ day: k + 1, kind, value: market.closes[k] }];
  });
}

const KEYS = {
  ArrowLeft: -1,
  ArrowRight: 1,
  ArrowDown: -1,
  ArrowUp: 1,
  PageUp: 10,
  PageDown: -10,
  Home: -1e6,
  End: 1e6,
};
const SIGNS = { buy: "▲ buy, long", sell: "▼ sell, short", hold: "● hold, flat", none: "✕ no decision" };

// A chart's frame, a slider over the days.
function chartBox(spec, number) {
  const keydown = (event) => {
    if (event.key in KEYS) moveTo(cursor + KEYS[event.key]);
    else if (event.key === "Enter" || event.key === " ") openDay(cursor);
    else return;
    event.preventDefault();
  };
  const pointermove = (event) => moveTo(drawn[number].day(event.clientX));
  const click = (event) => {
    const day = drawn[number].day(event.clientX);
    const line = drawn[number].line(day, event.clientY);
    if (line && line.agent !== shown.agent) {
      change({ agent: board.agents[line.agent].name });
      showDays();
    }
    openDay(Math.min(day, shown.episode.days));
  };
  const slider = { role: "slider", tabindex: "0", "aria-valuemin": 1, "aria-orientation": "horizontal" };
  const signs = Object.entries(SIGNS).map(([name, told]) => make("span", { class: `key-${name}` }, told));
  return make(
    "figure",
    {},
    make("h3", {}, spec.title, spec.marks && make("span", { class: "key" }, signs)),
    make("div", { class: "plot", ...slider, keydown, click, pointermove }),
  );
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
  const market = board.markets[shown.market];
  const { episode } = shown;
  const k = day - 1;
  const date = market.dates[k] ?? "";
  const name = board.agents[shown.agent].name;
  if (k >= episode.actions.length) return `Day ${day}, ${date}: ${name} failed (${episode.failure})`;
  const sums = equity(episode.earned);
  return (
    `Day ${day}, ${date}, close ${fixed(market.closes[k], 2)}: ${name} ${decided(episode, k)}, ` +
    `${POSITIONS[episode.positions[k]]}, earned ${signed(returns(episode.earned)[k], 4)}, ` +
    `in all ${signed(sums[day], 4)}; ` +
    `buy and hold ${signed(equity(market.buy_and_hold)[day], 4)}`
  );
}

const DONE = { sell: "sold", hold: "held", buy: "bought" };
const decided = (episode, k) =>
  episode.valid[k] === "1" ? DONE[board.actions[episode.actions[k]]] : "gave no decision";
const POSITIONS = { "+": "long", 0: "flat", "-": "short" };

function showNumbers() {
  const { row, persona, seed, identity } = shown.episode;
  const told = { persona: persona ?? "ignored", seed: seed ?? "ignored", shown: identity ?? "nothing", ...row };
  definitions(
    at("numbers-list"),
    Object.entries(told).map(([name, value]) => [name, plain(value)]),
  );
}

function showLedger() {
  const market = board.markets[shown.market];
  const { episode } = shown;
  const sums = equity(episode.earned);
  const earned = returns(episode.earned);
  const rows = Array.from({ length: episode.days }, (_, k) => {
    const open = { type: "button", class: "link", "aria-label": `open day ${k + 1}`, click: () => openDay(k + 1) };
    const day = [make("button", open, String(k + 1)), market.dates[k] ?? ""];
    if (k >= episode.actions.length) return [...day, "", "failed", "", "", ""];
    const decision = make("span", { class: episode.valid[k] === "0" ? "loss" : null }, decided(episode, k));
    const numbers = [signed(earned[k], 4), signed(sums[k + 1], 4)];
    return [...day, fixed(market.closes[k], 2), decision, POSITIONS[episode.positions[k]], ...numbers];
  });
  fillTable(at("ledger-table"), ["day", "date", "close", "decision", "position", "earned", "in all"], rows);
}
