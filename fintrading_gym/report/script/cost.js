// Cost against score. What asks no model and what has an unknown price stand apart: neither costs 0.

function showCost() {
  const body = at("cost-body");
  const standings = world().parts[0].standings.filter((s) => s.means.score !== undefined);
  if (!standings.some((s) => s.asks)) {
    body.replaceChildren(make("p", { class: "hint" }, "No agent of this board asks a model, so none costs anything per decision."));
    return;
  }
  const days = (name) => board.episodes.filter((one) => board.markets[one.market].world === world().name && board.agents[one.agent].name === name)
    .reduce((sum, one) => sum + one.days, 0);
  const points = standings.map((s) => ({ s, cost: !s.asks ? "no model" : s.cost_usd === null ? "price unknown" : s.cost_usd === 0 ? "free" : (1000 * s.cost_usd) / days(s.agent) }));
  const bands = ["no model", "free", "price unknown"].filter((name) => points.some((point) => point.cost === name));
  body.replaceChildren(
    make("p", { class: "hint" }, "USD for 1000 decisions, on a logarithmic scale, with the 95 % interval of the score where there is one."),
    costChart(points, bands, Math.max(300, body.clientWidth)));
}

function costChart(points, bands, width) {
  const height = 320, left = 50, bottom = height - 34, bare = !points.some((point) => typeof point.cost === "number");
  const band = bare ? (width - left) / bands.length : Math.min(190, width / 4);
  const paid = points.filter((point) => typeof point.cost === "number").map((point) => Math.log10(point.cost));
  const low = Math.floor(Math.min(...paid) - 0.2), high = Math.ceil(Math.max(...paid) + 0.2);
  const start = left + bands.length * band;
  const x = (point) => (typeof point.cost === "number"
    ? start + 20 + ((width - start - 40) * (Math.log10(point.cost) - low)) / Math.max(1, high - low)
    : left + band * (bands.indexOf(point.cost) + 0.5));
  const ends = points.flatMap(({ s }) => [s.means.score, s.intervals?.score?.low ?? s.means.score, s.intervals?.score?.high ?? s.means.score]);
  const least = Math.min(...ends, NOTHING) - 0.02, most = Math.max(...ends, NOTHING) + 0.02;
  const y = (score) => 10 + ((most - score) * (bottom - 10)) / (most - least);
  const axis = ticks(least, most, 5);
  const svg = draw("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
    "aria-label": "Score against cost; the numbers are in the ranking's columns score and USD" });
  for (const value of axis.values) {
    svg.append(draw("line", { class: "grid", x1: left, x2: width, y1: y(value), y2: y(value) }),
      draw("text", { class: "axis", x: left - 6, y: y(value) + 4, "text-anchor": "end" }, fixed(value, axis.digits)));
  }
  svg.append(draw("line", { class: "nothing", x1: left, x2: width, y1: y(NOTHING), y2: y(NOTHING) }));
  bands.forEach((name, k) => svg.append(
    draw("text", { class: "axis", x: left + band * (k + 0.5), y: height - 10, "text-anchor": "middle" }, name),
    draw("line", { class: "zero", x1: left + band * (k + 1), x2: left + band * (k + 1), y1: 10, y2: bottom })));
  if (!bare) {
    for (let power = low; power <= high; power++) {
      const place = x({ cost: 10 ** power });
      svg.append(draw("text", { class: "axis", x: place, y: height - 10, "text-anchor": "middle" }, `${money(10 ** power)} USD`),
        draw("line", { class: "grid", x1: place, x2: place, y1: 10, y2: bottom }));
    }
  }
  svg.append(...labelled(points, x, y, width, bottom));
  return svg;
}

// The points with their names, moved up or down, with a leader, where two names would lie on one another.
function labelled(points, x, y, width, bottom) {
  // A name may lie on no other, and on no point.
  const taken = points.map((point) => ({ line: y(point.s.means.score) + 4, from: x(point) - 6, to: x(point) + 6 }));
  return [...points].sort((a, b) => b.s.means.score - a.s.means.score).flatMap((point) => {
    const { s } = point, k = agentNamed(s.agent), px = x(point), py = y(s.means.score), interval = s.intervals?.score;
    const name = s.agent.length > 24 ? `${s.agent.slice(0, 23)}…` : s.agent;
    const wide = name.length * 6.6 + 14, turned = px + wide > width;
    const from = turned ? px - wide : px + 12, to = turned ? px - 12 : px + wide;
    const free = (line) => line > 12 && line < bottom && !taken.some((other) => Math.abs(other.line - line) < 14 && other.from < to && other.to > from);
    const line = [...Array(60).keys()].map((step) => py + 4 + (step % 2 ? -7 : 7) * Math.ceil(step / 2)).find(free) ?? py + 4;
    taken.push({ line, from, to });
    return [
      interval && draw("line", { class: "interval thin", color: colour(k), x1: px, x2: px, y1: y(interval.low), y2: y(interval.high) }),
      draw("circle", { cx: px, cy: py, r: 5, fill: s.rank === null ? "var(--page)" : colour(k), stroke: colour(k), "stroke-width": 2 },
        draw("title", {}, `${s.agent}: score ${fixed(s.means.score)}, ${typeof point.cost === "number" ? `${money(point.cost)} USD` : point.cost}`)),
      Math.abs(line - py - 4) > 5 && draw("line", { class: "grid", x1: px, y1: py, x2: turned ? px - 12 : px + 12, y2: line - 4 }),
      draw("text", { class: "label", x: turned ? px - 14 : px + 14, y: line, "text-anchor": turned ? "end" : "start" }, name),
    ].filter(Boolean);
  });
}
