// From the packed data to the page.

let board = null;

function showHead() {
  const many = (count, word) => `${whole(count)} ${word}${count === 1 ? "" : "s"}`;
  const different = (items, name) => new Set(items.map((item) => item[name]).filter((value) => value !== null)).size;
  const { episodes, markets, agents } = board;
  const personas = different(episodes, "persona");
  const decisions = episodes.reduce((sum, one) => sum + one.actions.length, 0);
  const dates = markets.flatMap((market) => market.dates).sort();
  const span = make("span", { class: "nobreak" }, `${dates[0]} to ${dates[dates.length - 1]}`);
  at("lead").replaceChildren(
    `${many(agents.length, "agent")}, ${many(different(markets, "cell"), "cell")}`,
    personas ? `, ${many(personas, "persona")}` : "",
    `: ${many(decisions, "decision")} to buy, sell or hold one stock`,
    ...(dates.length ? [", ", span] : []),
    ".",
  );
  const finding = board.worlds[0].parts[0].words[0];
  at("finding").textContent = finding ? `${finding}.` : "";
  const failed = episodes.filter((episode) => episode.failure !== null).length;
  const chips = [
    many(episodes.length, "episode") + (failed ? `, ${failed} failed` : ""),
    `version ${board.versions.join(", ")}`,
    `shown: ${board.identities.join(", ") || "nothing"}`,
    `sha256 ${board.sha256.slice(0, 12)}`,
  ];
  at("chips").replaceChildren(...chips.map((chip) => make("li", {}, chip)));
  definitions(at("facts"), boardFacts());
  definitions(
    at("columns"),
    COLUMNS.map((column) => [column.label, column.says]),
  );
}

const TEXTS = { all: "as sent and as answered", replies: "as answered; what was sent was left out", none: "left out" };

// What exactly was played.
function boardFacts() {
  const { trials, windows } = board.worlds[0].parts[0];
  const rule = (name) => board.rules[name].map(plain).join(", ");
  const prices = new Map(
    board.markets.map(({ world: its, ticker, data_sha256: sha256 }) => [
      `${sha256} ${its}`,
      [`prices of ${ticker}${its === "real" ? "" : ` (${its})`}, sha256`, make("code", {}, sha256)],
    ]),
  );
  return [
    ["sha256 of what the board holds", make("code", {}, board.sha256)],
    ...prices.values(),
    ["version", board.versions.join(", ")],
    ["agents and settings tried", whole(trials)],
    ["independent windows of days", whole(windows)],
    ["decisions in an episode", rule("timesteps") || "to the window's end"],
    ["hold rule", rule("hold")],
    ["filled at", rule("fill")],
    ["costs, basis points", rule("cost_bps")],
    ["guard levels", board.identities.join(", ") || "nothing was shown"],
    ["texts of the days", TEXTS[board.texts]],
  ];
}

function watch() {
  document.addEventListener("keydown", (event) => {
    if (!at("day").open) return;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const focus = document.activeElement;
    const held = event.altKey || event.ctrlKey || event.metaKey;
    if (event.key === "Escape") closeDay();
    else if (step && !held && at("day").contains(focus) && focus.tagName !== "PRE") openDay(cursor + step);
    else return;
    event.preventDefault();
  });
  at("day").addEventListener("cancel", (event) => {
    event.preventDefault();
    closeDay();
  });
  at("ledger").addEventListener("toggle", () => at("ledger").open && shown && showLedger());
  window.addEventListener("hashchange", () => {
    if (!location.hash.includes("=")) return;
    readAddress();
    showAll();
  });
  let width = 0;
  new ResizeObserver(() => {
    if (at("charts").clientWidth === width) return;
    width = at("charts").clientWidth;
    if (shown?.episode) showCharts();
    showCost();
  }).observe(at("charts"));
}

function showAll() {
  if (!board.worlds.some((one) => one.name === state.world)) state.world = board.worlds[0].name;
  [showFilters, showRanking, showCompare, showCells, showDays, showCost, showLeakage].forEach((show) => show());
  if (state.day !== "" && shown.episode) openDay(Number(state.day));
}

async function start() {
  if (!("DecompressionStream" in window)) throw new Error("it needs a browser of 2023 or later");
  board = await unpack("board");
  readAddress();
  board.agents.slice(SHOWN).forEach((agent) => hidden.add(agent.name));
  showHead();
  showAll();
  watch();
  at("status").remove();
  document.documentElement.dataset.ready = Math.round(performance.now());
}

start().catch((fault) => {
  at("status").textContent = `This page cannot be shown: ${fault.message}.`;
  throw fault;
});
