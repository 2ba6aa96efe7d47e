// One day: what the agent saw, as it was sent, what it answered, and what it earned.

const narrow = matchMedia("(max-width: 60rem)");
let returnTo = null; // what had the focus before

async function openDay(day) {
  const box = at("day");
  const wasOpen = box.open;
  if (!wasOpen) returnTo = document.activeElement;
  moveTo(day);
  change({ agent: board.agents[shown.agent].name, market: String(shown.market), who: shown.who ?? "", seed: String(shown.seed ?? ""), day: String(cursor) });
  const { number, episode } = shown;
  const entry = board.texts === "none" ? undefined : await dayEntry(number, cursor);
  if (number !== shown.number || String(cursor) !== state.day) return; // another one was opened meanwhile
  const held = box.contains(document.activeElement) ? document.activeElement.dataset.step : null;
  box.replaceChildren(dayHead(episode), make("div", { class: "day-body", tabindex: "0", role: "region", "aria-label": "The day" },
    outcome(episode), ...said(entry, episode)));
  if (!wasOpen) {
    narrow.matches ? box.showModal() : box.show();
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
  const step = (by, label, sign) => make("button", { type: "button", class: "plain", "data-step": by, "aria-label": label,
    disabled: cursor + by < 1 || cursor + by > episode.days, click: () => openDay(cursor + by) }, sign);
  const market = board.markets[shown.market];
  const place = [market.name, episode.persona, episode.seed === null ? null : `seed ${episode.seed}`].filter(Boolean).join(" · ");
  return make("div", { class: "day-head" },
    make("div", {}, make("h2", { id: "day-title", tabindex: "-1" }, `Day ${cursor} of ${episode.days}`, " ", make("span", { class: "quiet nobreak" }, market.dates[cursor - 1] ?? "")),
      make("p", {}, make("b", {}, board.agents[shown.agent].name), ` on ${place}`)),
    make("div", { class: "steps" }, step(-1, "day before", "←"), step(1, "next day", "→"),
      make("button", { type: "button", class: "plain", "data-step": "close", "aria-label": "close", click: closeDay }, "✕")));
}

function outcome(episode) {
  const k = cursor - 1, market = board.markets[shown.market];
  if (k >= episode.actions.length) return make("p", { class: "alert" }, `It failed on this day, and the episode was broken off: ${episode.failure}`);
  const valid = episode.valid[k] === "1", action = board.actions[episode.actions[k]];
  const sums = equity(episode.earned), earned = returns(episode.earned)[k];
  const list = make("dl", { class: "numbers" });
  definitions(list, [
    [`${market.ticker} close, USD`, fixed(market.closes[k], 2)],
    ["decision", badge(valid ? action : "none")],
    ["position", POSITIONS[episode.positions[k]]],
    ["earned until the next close", make("span", { class: earned < 0 ? "loss" : "gain" }, signed(earned, 4))],
    ["the stock moved", signed(Math.log(market.closes[k + 1] / market.closes[k]), 4)],
    ["in all", signed(sums[cursor], 4)],
    ["buy and hold", signed(equity(market.buy_and_hold)[cursor], 4)],
    ["best in hindsight", POSITIONS[market.oracle_positions[k]]],
  ]);
  return make("div", {}, list, !valid && make("p", { class: "alert" }, "It gave no decision; the environment held. That lowers its discipline."));
}

const badge = (kind) => make("span", { class: `badge badge-${kind}` }, kind === "none" ? "none, held" : kind);

// What was said on the day: calls stage by stage, what else was kept, or the view of an agent without a model.
function said(entry, episode) {
  if (board.texts === "none") return [make("p", { class: "hint" }, "The texts of the days were left out of this page.")];
  if (!entry) return [make("p", { class: "hint" }, "Nothing was kept of this day.")];
  const calls = entry.calls ?? [], parts = [];
  const masked = calls.length && episode.identity && episode.identity !== "real";
  if (masked) parts.push(make("p", { class: "hint" }, `It was shown the day at the guard level “${episode.identity}”.`));
  if (board.texts === "replies") parts.push(make("p", { class: "hint" }, "What was sent was left out of this page."));
  calls.forEach((call, k) => parts.push(callBox(call, k, calls.length)));
  if (entry.log) parts.push(make("section", {}, make("h3", {}, "What else it kept of the day"), tree(entry.log)));
  const given = Object.entries(entry.decision ?? {}).filter(([name]) => name !== "action");
  if (given.length) parts.push(make("section", {}, make("h3", {}, "Its decision, beside the action"), tree(Object.fromEntries(given))));
  if (entry.view) {
    parts.push(make("section", {}, make("h3", {}, "What the environment showed"),
      make("p", { class: "hint" }, "The text view; the vector view holds the same in numbers. No model was asked."), text(entry.view)));
  }
  if (entry.no_view) parts.push(make("p", { class: "hint" }, entry.no_view));
  return parts;
}

function callBox(call, k, count) {
  const verdict = call.verdict;
  const facts = [
    call.outcome && call.outcome !== "ok" ? call.outcome : null,
    call.usage ? `${whole(call.usage.input)} tokens in, ${whole(call.usage.output)} out` : null,
    "cost" in call ? `${money(call.cost)} USD` : call.outcome ? "cost unknown" : null,
    call.latency ? `${fixed(call.latency, 1)} s` : null,
    call.attempts > 1 ? `${call.attempts} attempts` : null,
    call.cached ? "from the cache" : null,
  ].filter(Boolean);
  const sent = (call.messages ?? []).map((message) => [make("p", { class: "role" }, String(message.role ?? "message")), ...contentOf(message)]);
  const rest = Object.entries(call).filter(([name]) => !CALL.has(name));
  return make("details", { class: "call", open: count <= 3 || k === count - 1 },
    make("summary", {}, make("span", { class: "stage" }, `${k + 1}. ${call.stage ?? "question"}`),
      verdict && badge(verdict.action ?? "none"), make("span", { class: "quiet" }, facts.join(" · "))),
    sent.length > 0 && make("details", { class: "sent", open: count === 1 }, make("summary", {}, "What it was sent"), sent.flat()),
    make("h4", {}, "What it answered"),
    call.failure && make("p", { class: "alert" }, call.failure),
    ...(call.content === undefined ? [!call.failure && make("p", { class: "hint" }, "No text.")] : asText(call.content)),
    call.refusal && [make("h4", {}, "Refusal"), text(call.refusal)],
    call.tool_calls && [make("h4", {}, "Tool calls"), tree(call.tool_calls)],
    verdict && verdict.reason && make("p", { class: "alert" }, `Read as no decision: ${board.reasons[verdict.reason] ?? verdict.reason}`),
    call.reasoning !== undefined && make("details", { open: count === 1 }, make("summary", {}, "Its reasoning"), ...asText(call.reasoning)),
    verdict && make("details", {}, make("summary", {}, "How the answer was read"), tree(verdict)),
    rest.length > 0 && make("details", {}, make("summary", {}, "The request, and the rest of the reply"), tree(Object.fromEntries(rest))),
  );
}
const CALL = new Set(["stage", "messages", "content", "reasoning", "refusal", "tool_calls", "verdict", "failure", "outcome", "usage", "cost", "latency", "attempts", "cached"]);

function contentOf(message) {
  const more = Object.entries(message).filter(([name]) => name !== "role" && name !== "content");
  return [...(message.content === undefined ? [] : asText(message.content)), ...(more.length ? [tree(Object.fromEntries(more))] : [])];
}

const asText = (content) => [typeof content === "string" ? text(content) : tree(content)];

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
  if (typeof data === "string") return isShort(data) ? make("span", {}, data) : text(data);
  if (isShort(data)) return make("span", {}, plain(data));
  if (Array.isArray(data)) {
    const scalars = data.every(isShort) && JSON.stringify(data).length < 80;
    return scalars ? make("span", {}, data.map(plain).join(", ")) : make("ol", { class: "tree" }, data.map((item) => make("li", {}, tree(item))));
  }
  const entries = Object.entries(data).map(([name, value]) => [name.replaceAll("_", " "), value]);
  const brief = entries.filter(([, value]) => isShort(value)), rest = entries.filter(([, value]) => !isShort(value));
  const list = make("dl", { class: "tree" });
  definitions(list, rest.map(([name, value]) => [name, tree(value)]));
  return make("div", { class: "tree" },
    brief.length > 0 && make("p", { class: "brief" }, brief.map(([name, value], k) => make("span", {}, k ? " · " : "", make("span", { class: "quiet" }, `${name} `), plain(value)))),
    rest.length > 0 && list);
}

const isShort = (value) => value === null || (typeof value === "string" ? value.length <= 60 && !value.includes("\n") : typeof value !== "object");
