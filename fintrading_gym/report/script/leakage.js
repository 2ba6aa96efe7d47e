// What may be memory: how much each model was shown, what its texts let out, and what an audit measured.

const RECALLED = {
  close_1pct: "recalls a close within 1 %",
  close_3pct: "recalls a close within 3 %",
  direction: "recalls the next day's direction",
};
const MEMORY_SAYS =
  "A model that recognises the company and the month may recall the path instead of reading it. Masking reduces that " +
  "and proves nothing; an audit measures what is left.";
const AUDIT_SAYS =
  "p: how often luck alone names or recalls so many; they are not corrected for their number. Foresight: 1 where " +
  "every buy and sell comes true, 0 by luck; more of it in the real world than on paths that never were is memory.";
const WORLDS_SAY =
  "Mean scores. Prices of a counterfactual world never were: what an agent scores only in the real one may be " +
  "memory, or luck.";

function showLeakage() {
  const real = board.worlds[0].parts[0].standings;
  const audited = board.agents.filter((agent) => auditOf(agent));
  const asking = [...audited, ...board.agents.filter((agent) => agent.facts.model && !auditOf(agent))];
  const cards = asking.map((agent) =>
    card(
      agent,
      real.find((s) => s.agent === agent.name),
    ),
  );
  at("leakage-body").replaceChildren(
    make("p", {}, MEMORY_SAYS),
    ...(asking.length ? [] : [hint("No agent of this board asks a model, and rules remember nothing.")]),
    make("div", { class: "cards" }, cards),
    ...otherWorlds(asking.length ? asking : board.agents),
  );
}

const auditOf = (agent) =>
  board.audits.find((one) => one.agent === agent.name || agent.name.startsWith(`${one.agent} [`));

function card(agent, s) {
  const audit = auditOf(agent);
  const list = make("dl", { class: "facts" });
  const { model, note, cutoff, prompt_sha256: prompts } = agent.facts;
  definitions(list, [
    ["guard level", s?.identities.join(", ") || "real"],
    ["leaks found in its texts", s?.leaks == null ? "not looked for" : whole(s.leaks)],
    ...(agent.first_leak ? [["the first", agent.first_leak]] : []),
    ["its knowledge ends", audit?.plan.cutoff ?? cutoff ?? "unknown"],
    ...(prompts ? [["prompts, sha256", make("code", {}, prompts)]] : []),
    ...(note ? [["note", note]] : []),
  ]);
  return make(
    "article",
    { class: "card" },
    make("h3", {}, breakable(agent.name)),
    model && !agent.name.includes(model) && make("p", { class: "model" }, model),
    list,
    ...(audit ? auditParts(audit) : [hint("Not audited: what of its score is memory is unknown.")]),
  );
}

function auditParts(audit) {
  const tables = [
    [
      "What it named and recalled",
      ["named or recalled", "right", "95 % interval", "chance", "p"],
      namedAndRecalled(audit),
    ],
    [
      "Its decisions in other worlds",
      ["in another world", "shown", "same decisions", "same confidence", "distance"],
      invariances(audit),
    ],
    ["What it foresaw", ["foresight, shown", "real world", "other paths", "difference"], foresights(audit)],
    ["Masked and real", ["", "shown", "hidden", "difference"], gaps(audit)],
  ];
  return [
    make(
      "p",
      { class: `verdict verdict-${audit.verdict.replaceAll(" ", "-")}` },
      make("b", {}, `Audit: ${audit.verdict}. `),
      audit.sentence,
    ),
    make(
      "div",
      { class: "audit" },
      tables.map(([label, heads, rows]) => rows.length > 0 && scrollingTable(label, "", heads, rows)),
    ),
    hint(AUDIT_SAYS),
  ];
}

function namedAndRecalled(audit) {
  const named = Object.entries(audit.identification ?? {}).flatMap(([level, part]) =>
    ["ticker", "sector", "date"].map((what) => [`names the ${what} (${level})`, part[what]]),
  );
  const recalled = Object.entries(RECALLED).map(([name, says]) => [says, audit.recall?.[name]]);
  return [...named, ...recalled]
    .filter(([, rate]) => rate)
    .map(([name, rate]) => [
      name,
      percent(rate.share),
      `${percent(rate.low)}..${percent(rate.high)}`,
      rate.chance === null ? "unknown" : percent(rate.chance),
      probability(rate.p),
    ]);
}

function invariances(audit) {
  return Object.entries(audit.invariance).flatMap(([level, worlds]) =>
    Object.entries(worlds).map(([name, one]) => [
      name,
      level,
      measured(one.pc),
      one.ci === null ? "unknown" : measured(one.ci),
      measured(one.ids),
    ]),
  );
}

// An audit made before foresight was measured has none.
function foresights(audit) {
  return Object.entries(audit.foresight ?? {}).map(([level, one]) => [
    level,
    ...["real", "others", "difference"].map((part) => measured(one[part])),
  ]);
}

function gaps(audit) {
  const gap = audit.gap.score;
  return gap ? [["score", measured(gap.real), measured(gap.hidden), measured(gap.difference)]] : [];
}

// A number of an audit, which may be a mean with an interval.
function measured(value) {
  if (value === null || typeof value !== "object") return fixed(value, 2);
  return value.low === null
    ? fixed(value.mean, 2)
    : `${fixed(value.mean, 2)} (${fixed(value.low, 2)}..${fixed(value.high, 2)})`;
}

// The same agents where remembering is worth nothing.
function otherWorlds(agents) {
  if (board.worlds.length < 2) return [];
  const score = (one, name) => one.parts[0].standings.find((s) => s.agent === name)?.means.score;
  const rows = agents.map((agent) => [agent.name, ...board.worlds.map((one) => fixed(score(one, agent.name)))]);
  return [
    make("h3", {}, "The same agents in other worlds"),
    hint(WORLDS_SAY),
    scrollingTable("Scores in other worlds", "", ["agent", ...board.worlds.map((one) => one.name)], rows),
  ];
}
