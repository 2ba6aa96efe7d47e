// From the packed data to the page.

let board = null;

function showHead() {
  const episodes = board.episodes.length, cells = new Set(board.markets.map((market) => market.cell));
  const failed = board.episodes.filter((episode) => episode.failure !== null).length;
  const personas = new Set(board.episodes.map((episode) => episode.persona).filter(Boolean));
  const dates = board.markets.flatMap((market) => market.dates).sort();
  const many = (count, word) => `${whole(count)} ${word}${count === 1 ? "" : "s"}`;
  const decisions = board.episodes.reduce((sum, one) => sum + one.actions.length, 0);
  at("lead").replaceChildren(`${many(board.agents.length, "agent")}, ${many(cells.size, "cell")}` +
    `${personas.size ? `, ${many(personas.size, "persona")}` : ""}: ${many(decisions, "decision")} to buy, sell or hold one stock`,
    ...(dates.length ? [", ", make("span", { class: "nobreak" }, `${dates[0]} to ${dates[dates.length - 1]}`)] : []), ".");
  const said = board.worlds[0].parts[0].words[0];
  at("finding").textContent = said ? `${said}.` : "";
  const chips = [many(episodes, "episode") + (failed ? `, ${failed} failed` : ""), `version ${board.versions.join(", ")}`,
    `shown: ${board.identities.join(", ") || "nothing"}`, `rows ${board.rows_sha256.slice(0, 12)}`];
  at("chips").replaceChildren(...chips.map((chip) => make("li", {}, chip)));
  const data = [...new Map(board.markets.map((market) => [`${market.world} ${market.ticker} ${market.data_sha256}`, market])).values()];
  const rule = (name, write = plain) => board.rules[name].map(write).join(", ");
  definitions(at("facts"), [
    ["rows, sha256", make("code", {}, board.rows_sha256)],
    ...data.map((market) => [`prices of ${market.ticker}${market.world === "real" ? "" : ` (${market.world})`}, sha256`, make("code", {}, market.data_sha256)]),
    ["version", board.versions.join(", ")],
    ["agents and settings tried", whole(board.worlds[0].parts[0].trials)],
    ["independent windows of days", whole(board.worlds[0].parts[0].windows)],
    ["decisions in an episode", rule("timesteps") || "to the window's end"],
    ["hold rule", rule("hold")], ["filled at", rule("fill")], ["costs, basis points", rule("cost_bps")],
    ["guard levels", board.identities.join(", ") || "nothing was shown"],
    ["texts of the days", { all: "as sent and as answered", replies: "as answered; what was sent was left out", none: "left out" }[board.texts]],
  ]);
  definitions(at("columns"), COLUMNS.map((column) => [column.label, column.says]));
}

function watch() {
  document.addEventListener("keydown", (event) => {
    if (!at("day").open) return;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") closeDay();
    else if (step && at("day").contains(document.activeElement) && document.activeElement.tagName !== "PRE" && !event.altKey && !event.ctrlKey && !event.metaKey) openDay(cursor + step);
    else return;
    event.preventDefault();
  });
  at("day").addEventListener("cancel", (event) => { event.preventDefault(); closeDay(); });
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
