// One day: what the agent saw, as it was sent, what it answered, and what it earned.

const narrow = matchMedia("(max-width: 60rem)");
let returnTo = null; // what had the focus before

async function openDay(day) {
  const box = at("day");
  const wasOpen = box.open;
  if (!wasOpen) returnTo = document.activeElement;
  moveTo(day);
  const { number, episode, market, who, seed } = shown;
  const place = {
    agent: board.agents[shown.agent].name,
    market: String(market),
    who: who ?? "",
    seed: String(seed ?? ""),
  };
  change({ ...place, day: String(cursor) });
  const entry = board.texts === "none" ? undefined : await dayEntry(number, cursor);
  if (number !== shown.number || String(cursor) !== state.day) return; // another one was opened meanwhile
  const held = box.contains(document.activeElement) ? document.activeElement.dataset.step : null;
  const body = { class: "day-body", tabindex: "0", role: "region", "aria-label": "The day" };
  box.replaceChildren(dayHead(episode), make("div", body, outcome(episode), said(entry, episode)));
  if (!wasOpen) {
    if (narrow.matches) box.showModal();
    else box.show();
    document.documentElement.classList.add("day-open");
  }
  (box.querySelector(`[data-step="${held}"]:not([disabled])`) ?? at("day-title")).focus();
}

function closeDay() {
  const box = at("day");
  if (!box.open) return;
  box.close();
  document.documentElement.classList.remove("day-open");
  change({ day: "" });
  const back = returnTo?.isConnected ? returnTo : drawn[0]?.host;
  back?.focus();
}

function dayHead(episode) {
  const market = board.markets[shown.market];
  const button = (step, label, sign, click, disabled = false) =>
    make("button", { type: "button", class: "plain", "data-step": step, "aria-label": label, disabled, click }, sign);
  const move = (by) => () => openDay(cursor + by);
  const place = [market.name, episode.persona, episode.seed === null ? null : `seed ${episode.seed}`].filter(Boolean);
  const date = make("span", { class: "quiet nobreak" }, market.dates[cursor - 1] ?? "");
  return make(
    "div",
    { class: "day-head" },
    make(
      "div",
      {},
      make("h2", { id: "day-title", tabindex: "-1" }, `Day ${cursor} of ${episode.days}`, " ", date),
      make("p", {}, make("b", {}, board.agents[shown.agent].name), ` on ${place.join(" · ")}`),
    ),
    make(
      "div",
      { class: "steps" },
      button(-1, "day before", "←", move(-1), cursor === 1),
      button(1, "next day", "→", move(1), cursor === episode.days),
      button("close", "close", "✕", closeDay),
    ),
  );
}

function outcome(episode) {
  const k = cursor - 1;
  const market = board.markets[shown.market];
  if (k >= episode.actions.length)
    return warning(`It failed on this day, and the episode was broken off: ${episode.failure}`);
  const valid = episode.valid[k] === "1";
  const earned = returns(episode.earned)[k];
  const list = make("dl", { class: "numbers" });
  definitions(list, [
    [`${market.ticker} close, USD`, fixed(market.closes[k], 2)],
    ["decision", badge(valid ? board.actions[episode.actions[k]] : "none")],
    ["position", POSITIONS[episode.positions[k]]],
    ["earned until the next close", make("span", { class: earned < 0 ? "loss" : "gain" }, signed(earned, 4))],
    ["the stock moved", signed(Math.log(market.closes[k + 1] / market.closes[k]), 4)],
    ["in all", signed(equity(episode.earned)[cursor], 4)],
    ["buy and hold", signed(equity(market.buy_and_hold)[cursor], 4)],
    ["best in hindsight", POSITIONS[market.oracle_positions[k]]],
  ]);
  return [list, !valid && warning("It gave no decision; the environment held. That lowers its discipline.")];
}

const badge = (kind) => make("span", { class: `badge badge-${kind}` }, kind === "none" ? "none, held" : kind);

// What was said on the day: calls stage by stage, what else was kept, or the view of an agent without a model.
function said(entry, episode) {
  if (board.texts === "none") return hint("The texts of the days were left out of this page.");
  if (!entry) return hint("Nothing was kept of this day.");
  const calls = entry.calls ?? [];
  const level = episode.identity ?? "real";
  const given = Object.entries(entry.decision ?? {}).filter(([name]) => name !== "action");
  const part = (title, ...content) => make("section", {}, make("h3", {}, title), content);
  return [
    calls.length > 0 && level !== "real" && hint(`It was shown the day at the guard level “${level}”.`),
    board.texts === "replies" && hint("What was sent was left out of this page."),
    calls.map((call, k) => callBox(call, k, calls.length)),
    entry.log && part("What else it kept of the day", tree(entry.log)),
    given.length > 0 && part("Its decision, beside the action", tree(Object.fromEntries(given))),
    entry.view &&
      part(
        "What the environment showed",
        hint("The text view; the vector view holds the same in numbers. No model was asked."),
        text(entry.view),
      ),
    entry.no_view && hint(entry.no_view),
  ];
}

// The fields of a call that have a place of their own; whatever else it has is shown as it is.
const CALL = [
  "stage",
  "messages",
  "content",
  "reasoning",
  "refusal",
  "tool_calls",
  "verdict",
  "failure",
  "outcome",
  "usage",
  "cost",
  "latency",
  "attempts",
  "cached",
];

function callBox(call, k, count) {
  const { verdict, messages = [] } = call;
  const alone = count === 1;
  const rest = Object.entries(call).filter(([name]) => !CALL.includes(name));
  const unread = verdict?.reason && `Read as no decision: ${board.reasons[verdict.reason] ?? verdict.reason}`;
  return make(
    "details",
    { class: "call", open: count <= 3 || k === count - 1 },
    make(
      "summary",
      {},
      make("span", { class: "stage" }, `${k + 1}. ${call.stage ?? "question"}`),
      verdict && badge(verdict.action ?? "none"),
      make("span", { class: "quiet" }, counted(call)),
    ),
    messages.length > 0 &&
      make(
        "details",
        { class: "sent", open: alone },
        make("summary", {}, "What it was sent"),
        messages.map(messageBox),
      ),
    make("h4", {}, "What it answered"),
    call.failure && warning(call.failure),
    call.content !== undefined ? asText(call.content) : !call.failure && hint("No text."),
    call.refusal && [make("h4", {}, "Refusal"), text(call.refusal)],
    call.tool_calls && [make("h4", {}, "Tool calls"), tree(call.tool_calls)],
    unread && warning(unread),
    call.reasoning !== undefined && folded("Its reasoning", alone, asText(call.reasoning)),
    verdict && folded("How the answer was read", false, tree(verdict)),
    rest.length > 0 && folded("The request, and the rest of the reply", false, tree(Object.fromEntries(rest))),
  );
}

// What a call used.
function counted({ outcome, usage, cost, latency, attempts, cached }) {
  return [
    outcome !== "ok" && outcome,
    usage && `${whole(usage.input)} tokens in, ${whole(usage.output)} out`,
    outcome && (cost === undefined ? "cost unknown" : `${money(cost)} USD`),
    latency && `${fixed(latency, 1)} s`,
    attempts > 1 && `${attempts} attempts`,
    cached && "from the cache",
  ]
    .filter(Boolean)
    .join(" · ");
}

function messageBox({ role, content, ...more }) {
  const rest = Object.keys(more).length > 0 && tree(more);
  return [make("p", { class: "role" }, role ?? "message"), content !== undefined && asText(content), rest];
}

const asText = (content) => (typeof content === "string" ? text(content) : tree(content));

// A text as it is, to the letter. Lines of a table are not wrapped, so that its columns stay columns.
function text(content) {
  const block = make("pre");
  content.split("\n").forEach((line, k) => {
    if (k) block.append("\n");
    const tabular = /\S {2,}\S/.test(line);
    block.append(tabular ? make("span", { class: "tabular" }, line) : line);
    if (tabular) block.tabIndex = 0; // it may have to be scrolled, by keys too
  });
  return block;
}

// Any JSON: of an object what is short on one line, the rest below it by name.
function tree(data) {
  if (isShort(data)) return make("span", {}, plain(data));
  if (typeof data === "string") return text(data);
  if (Object.keys(data).length === 0) return make("span", { class: "quiet" }, "nothing");
  if (Array.isArray(data)) {
    if (data.every(isShort) && JSON.stringify(data).length < 80) return make("span", {}, data.map(plain).join(", "));
    return make(
      "ol",
      { class: "tree" },
      data.map((item) => make("li", {}, tree(item))),
    );
  }
  const entries = Object.entries(data).map(([name, value]) => [name.replaceAll("_", " "), value]);
  const brief = entries.filter(([, value]) => isShort(value));
  const rest = entries.filter(([, value]) => !isShort(value));
  const list = make("dl", { class: "tree" });
  definitions(
    list,
    rest.map(([name, value]) => [name, tree(value)]),
  );
  const inBrief = ([name, value], k) => [k ? " · " : "", make("span", { class: "quiet" }, `${name} `), plain(value)];
  return make(
    "div",
    { class: "tree" },
    brief.length > 0 && make("p", { class: "brief" }, brief.map(inBrief)),
    rest.length > 0 && list,
  );
}

function isShort(value) {
  if (typeof value === "string") return value.length <= 60 && !value.includes("\n");
  return value === null || typeof value !== "object";
}
