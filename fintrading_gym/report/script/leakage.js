// What may be memory: how much each model was shown, what its texts let out, and what an audit measured.

function showLeakage() {
  const real = board.worlds[0].parts[0].standings;
  const asking = board.agents.filter((agent) => agent.facts.model || auditOf(agent));
  const told = asking.length ? [] : [make("p", { class: "hint" }, "No agent of this board asks a model, and rules remember nothing.")];
  at("leakage-body").replaceChildren(
    make("p", {}, "A model that recognises the company and the month may recall the path instead of reading it. Masking reduces that and " +
      "proves nothing; an audit measures what is left."),
    ...told, make("div", { class: "cards" }, asking.map((agent) => card(agent, real.find((s) => s.agent === agent.name)))),
    ...otherWorlds(asking));
}

const auditOf = (agent) => board.audits.find((one) => one.agent === agent.name || agent.name.startsWith(`${one.agent} [`));

function card(agent, s) {
  const audit = auditOf(agent), facts = make("dl", { class: "facts" });
  const cutoff = audit?.plan.cutoff ?? agent.facts.cutoff;
  definitions(facts, [
    ["guard level", s?.identities.join(", ") || "real"],
    ["leaks found in its texts", s?.leaks === null || s?.leaks === undefined ? "not looked for" : whole(s.leaks)],
    ...(agent.first_leak ? [["the first", agent.first_leak]] : []),
    ["its knowledge ends", cutoff ?? "unknown"],
    ...(agent.facts.prompt_sha256 ? [["prompts, sha256", make("code", {}, agent.facts.prompt_sha256)]] : []),
    ...(agent.facts.note ? [["note", agent.facts.note]] : []),
  ]);
  return make("article", { class: "card" }, make("h3", {}, agent.name), agent.facts.model && !agent.name.includes(agent.facts.model) && make("p", { class: "model" }, agent.facts.model), facts,
    audit ? auditPart(audit) : make("p", { class: "hint" }, "Not audited: what of its score is memory is unknown."));
}

function auditPart(audit) {
  const numbers = (value) => (value && typeof value === "object" && "mean" in value
    ? `${fixed(value.mean, 2)}${value.low === null ? "" : ` (${fixed(value.low, 2)}..${fixed(value.high, 2)})`}` : fixed(value, 2));
  const rates = [];
  for (const [level, part] of Object.entries(audit.identification ?? {})) {
    for (const name of ["ticker", "sector", "date"]) if (part[name]) rates.push([`names the ${name} (${level})`, part[name]]);
  }
  const recalled = { close_1pct: "recalls a close within 1 %", close_3pct: "recalls a close within 3 %", direction: "recalls the next day's direction" };
  for (const [name, says] of Object.entries(recalled)) if (audit.recall?.[name]) rates.push([says, audit.recall[name]]);
  const worlds = Object.entries(audit.invariance).flatMap(([level, its]) => Object.entries(its).map(([name, one]) => [name, level, one]));
  const gap = audit.gap?.score;
  return [
    make("p", { class: `verdict verdict-${audit.verdict.replaceAll(" ", "-")}` }, make("b", {}, `Audit: ${audit.verdict}. `), audit.sentence),
    rates.length > 0 && table(["named or recalled", "right", "95 % interval", "chance"], rates.map(([name, rate]) => [name, percent(rate.share),
      `${percent(rate.low)}..${percent(rate.high)}`, rate.chance === null ? "unknown" : percent(rate.chance)])),
    worlds.length > 0 && table(["in another world", "shown", "same decisions", "same confidence", "distance"],
      worlds.map(([name, level, one]) => [name, level, numbers(one.pc), one.ci === null ? "not stated" : numbers(one.ci), numbers(one.ids)])),
    gap && table(["", "shown", "hidden", "difference"], [["score", numbers(gap.real), numbers(gap.hidden), numbers(gap.difference)]]),
  ];
}

function table(heads, lines) {
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": heads[0] || "masked and real" }, make("table", {},
    make("thead", {}, make("tr", {}, heads.map((name) => make("th", { scope: "col" }, name)))),
    make("tbody", {}, lines.map(([first, ...rest]) => make("tr", {}, make("th", { scope: "row" }, first), rest.map((cell) => make("td", {}, cell)))))));
}

// The same agents where remembering is worth nothing.
function otherWorlds(asking) {
  if (board.worlds.length < 2) return [];
  const score = (one, name) => one.parts[0].standings.find((s) => s.agent === name)?.means.score;
  return [make("h3", {}, "The same agents in other worlds"),
    make("p", { class: "hint" }, "Mean scores. Prices of a counterfactual world never were; a score that falls there was helped by memory, or by luck."),
    table(["agent", ...board.worlds.map((one) => one.name)], (asking.length ? asking : board.agents).map((agent) => [agent.name, ...board.worlds.map((one) => fixed(score(one, agent.name)))]))];
}
