// Cost against score. What asks no model, what is free and what has an unknown price stand apart: none of them has a
// place on a logarithmic scale, and the last is not even known to be little.

const APART = ["no model", "free", "price unknown"];

function showCost() {
  const standings = world().parts[0].standings.filter((s) => s.means.score !== undefined);
  if (!standings.some((s) => s.asks)) {
    at("cost-body").replaceChildren(hint("No agent of this board asks a model, so none costs anything per decision."));
    return;
  }
  const points = standings.map((s) => ({ s, cost: costOf(s) }));
  at("cost-body").replaceChildren(
    hint("USD for 1000 decisions, on a logarithmic scale, with the 95 % interval of the score where there is one."),
    costChart(points, Math.max(300, at("cost-body").clientWidth)),
  );
}

// USD for 1000 decisions, or why there is no such number: one of APART.
function costOf(s) {
  if (!s.asks || s.cost_usd === null || s.cost_usd === 0) return APART[!s.asks ? 0 : s.cost_usd === 0 ? 1 : 2];
  const its = (one) => board.agents[one.agent].name === s.agent && board.markets[one.market].world === world().name;
  const days = board.episodes.filter(its).reduce((sum, one) => sum + one.days, 0);
  return (1000 * s.cost_usd) / days;
}

function costChart(points, width) {
  const scales = costScales(points, width, 320);
  const { x, y, left, bottom, bands, band, powers } = scales;
  const svg = draw("svg", {
    class: "chart",
    viewBox: `0 0 ${width} 320`,
    width,
    height: 320,
    role: "img",
    "aria-label": "Score against cost; the numbers are in the ranking's columns score and USD",
  });
  const across = (kind, at) => draw("line", { class: kind, x1: left, x2: width, y1: at, y2: at });
  const down = (kind, at) => draw("line", { class: kind, x1: at, x2: at, y1: 10, y2: bottom });
  const below = (at, told) => draw("text", { class: "axis", x: at, y: 310, "text-anchor": "middle" }, told);
  for (const value of scales.ticks.values) {
    const told = fixed(value, scales.ticks.digits);
    svg.append(
      across("grid", y(value)),
      draw("text", { class: "axis", x: left - 6, y: y(value) + 4, "text-anchor": "end" }, told),
    );
  }
  svg.append(across("nothing", y(NOTHING)));
  bands.forEach((name, k) => svg.append(below(left + band * (k + 0.5), name), down("zero", left + band * (k + 1))));
  for (const power of powers)
    svg.append(below(x(10 ** power), `${money(10 ** power)} USD`), down("grid", x(10 ** power)));
  svg.append(...points.flatMap((point) => costPoint(point, scales)), ...costNames(points, scales, width));
  return svg;
}

function costScales(points, width, height) {
  const left = 50;
  const bottom = height - 34;
  const bands = APART.filter((name) => points.some((point) => point.cost === name));
  const paid = points.filter((point) => typeof point.cost === "number").map((point) => Math.log10(point.cost));
  const band = paid.length ? Math.min(190, width / 4) : (width - left) / bands.length;
  const start = left + bands.length * band + 20;
  const low = Math.floor(Math.min(...paid) - 0.2);
  const high = Math.ceil(Math.max(...paid) + 0.2);
  const ends = points.flatMap(({ s }) => [
    s.means.score,
    s.intervals.score?.low ?? NOTHING,
    s.intervals.score?.high ?? NOTHING,
  ]);
  const least = Math.min(...ends, NOTHING) - 0.02;
  const most = Math.max(...ends, NOTHING) + 0.02;
  return {
    left,
    bottom,
    bands,
    band,
    powers: paid.length ? Array.from({ length: high - low + 1 }, (_, k) => low + k) : [],
    ticks: ticks(least, most, 5),
    x: (cost) =>
      typeof cost === "number"
        ? start + ((width - start - 20) * (Math.log10(cost) - low)) / (high - low)
        : left + band * (bands.indexOf(cost) + 0.5),
    y: (score) => 10 + ((most - score) * (bottom - 10)) / (most - least),
  };
}

function costPoint({ s, cost }, { x, y }) {
  const ink = colour(agentNamed(s.agent));
  const interval = s.intervals.score;
  const px = x(cost);
  const told = `${s.agent}: score ${fixed(s.means.score)}, ${typeof cost === "number" ? `${money(cost)} USD` : cost}`;
  const point = {
    cx: px,
    cy: y(s.means.score),
    r: 5,
    fill: s.rank === null ? "var(--page)" : ink,
    stroke: ink,
    "stroke-width": 2,
  };
  return [
    ...(interval
      ? [
          draw("line", {
            class: "interval thin",
            color: ink,
            x1: px,
            x2: px,
            y1: y(interval.low),
            y2: y(interval.high),
          }),
        ]
      : []),
    draw("circle", point, draw("title", {}, told)),
  ];
}

// The names, moved up or down, with a leader, where one would lie on another or on a point.
function costNames(points, { x, y, bottom }, width) {
  const taken = points.map(({ s, cost }) => ({ line: y(s.means.score) + 4, from: x(cost) - 6, to: x(cost) + 6 }));
  return [...points]
    .sort((a, b) => b.s.means.score - a.s.means.score)
    .flatMap(({ s, cost }) => {
      const px = x(cost);
      const py = y(s.means.score);
      const name = s.agent.length > 24 ? `${s.agent.slice(0, 23)}…` : s.agent;
      const wide = name.length * 6.6 + 14;
      const turned = px + wide > width;
      const [from, to] = turned ? [px - wide, px - 12] : [px + 12, px + wide];
      const meets = (other, line) => Math.abs(other.line - line) < 14 && other.from < to && other.to > from;
      const free = (line) => line > 12 && line < bottom && !taken.some((other) => meets(other, line));
      const tried = Array.from({ length: 60 }, (_, k) => py + 4 + (k % 2 ? -7 : 7) * Math.ceil(k / 2));
      const line = tried.find(free) ?? py + 4;
      taken.push({ line, from, to });
      const leader = draw("line", { class: "grid", x1: px, y1: py, x2: turned ? px - 12 : px + 12, y2: line - 4 });
      const place = { x: turned ? px - 14 : px + 14, y: line, "text-anchor": turned ? "end" : "start" };
      return [...(Math.abs(line - py - 4) > 5 ? [leader] : []), draw("text", { class: "label", ...place }, name)];
    });
}
