// Charts over the days of an episode, drawn by hand: three kinds of mark and one axis need no library of a megabyte,
// and what is drawn here takes its colours from the style, follows the keyboard, and passes a strict content policy.

const ROOM = { left: 54, right: 10, top: 10, bottom: 22 };

// A chart of `spec.days` days: `lines` have a value at the start and after each day; `marks` stand at the close on
// which a day's decision was taken; `strip` colours the days. Returns what is needed to find a day again.
function drawChart(host, spec) {
  const width = Math.max(260, host.clientWidth);
  const height = spec.height;
  const bottom = height - ROOM.bottom - (spec.strip ? 14 : 0);
  const x = (point) => ROOM.left + (point * (width - ROOM.left - ROOM.right)) / spec.days;
  const values = spec.lines.flatMap((line) => line.values);
  let low = Math.min(...values, ...(spec.zero ? [0] : []));
  let high = Math.max(...values, ...(spec.zero ? [0] : []));
  if (high - low < 1e-9) [low, high] = spec.zero === "top" ? [low - 0.01, high] : [low - 0.01, high + 0.01];
  const room = spec.zero === "top" ? 0 : (high - low) * 0.06;
  const y = (value) => ROOM.top + ((high + room - value) * (bottom - ROOM.top)) / (high - low + 2 * room);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true", class: "chart" });
  const band = draw("rect", {
    class: "cursor",
    y: ROOM.top,
    height: bottom - ROOM.top + (spec.strip ? 14 : 0),
    width: Math.max(2, x(1) - x(0)),
  });
  svg.append(
    ...valueAxis(low, high, y, width, spec),
    ...dateAxis(spec, x, height),
    band,
    ...spec.lines.map((line) => path(line, x, y)),
    ...(spec.strip ? strip(spec, x, bottom) : []),
    ...marks(spec, x, y),
  );
  host.replaceChildren(svg);
  return {
    day: (clientX) => {
      const point = clientX - svg.getBoundingClientRect().left;
      return Math.min(spec.days, Math.max(1, Math.floor(((point - x(0)) * spec.days) / (x(spec.days) - x(0))) + 1));
    },
    // The line that runs nearest to a height on a day, if one is near.
    line: (day, clientY) => {
      const pointed = clientY - svg.getBoundingClientRect().top;
      const near = spec.lines
        .filter((line) => line.agent !== undefined && line.values.length >= day)
        .map((line) => ({ line, away: Math.abs(y(line.values[Math.min(day, line.values.length - 1)]) - pointed) }))
        .sort((a, b) => a.away - b.away)[0];
      return near && near.away < 14 ? near.line : undefined;
    },
    mark: (day) => band.setAttribute("x", x(day - 1)),
  };
}

function valueAxis(low, high, y, width, spec) {
  const { values, digits } = ticks(low, high, Math.max(2, spec.height / 52));
  return values.flatMap((value) => [
    draw("line", {
      class: Math.abs(value) < 1e-12 && spec.zero ? "zero" : "grid",
      x1: ROOM.left,
      x2: width - ROOM.right,
      y1: y(value),
      y2: y(value),
    }),
    draw("text", { class: "axis", x: ROOM.left - 6, y: y(value) + 4, "text-anchor": "end" }, spec.write(value, digits)),
  ]);
}

function dateAxis(spec, x, height) {
  const every = Math.max(1, Math.ceil(spec.days / Math.max(1, Math.floor((x(spec.days) - x(0)) / 104))));
  return spec.dates.flatMap((date, k) =>
    k % every || (k && spec.days - k < every * 0.4)
      ? []
      : [draw("text", { class: "axis", x: x(k), y: height - 5, "text-anchor": k ? "middle" : "start" }, date)],
  );
}

function path(line, x, y) {
  const points = line.values.map((value, k) => `${x(k).toFixed(1)},${y(value).toFixed(1)}`);
  return draw("polyline", {
    class: `line ${line.class ?? ""}`,
    points: points.join(" "),
    stroke: line.colour,
    "stroke-dasharray": line.dash || null,
  });
}

function strip(spec, x, bottom) {
  return [...spec.strip].map((position, k) =>
    draw("rect", {
      class: `fill-${{ "+": "buy", 0: "hold", "-": "sell" }[position]}`,
      x: x(k),
      y: bottom + 4,
      width: x(k + 1) - x(k) - (spec.days > 90 ? 0 : 1),
      height: 9,
    }),
  );
}

// Told apart by shape, not by colour alone: up a purchase, down a sale, a dot a hold, a cross no decision.
function marks(spec, x, y) {
  const shapes = {
    buy: (px, py) => draw("path", { class: "mark fill-buy", d: `M${px},${py + 5}l5,9h-10z` }),
    sell: (px, py) => draw("path", { class: "mark fill-sell", d: `M${px},${py - 5}l5,-9h-10z` }),
    hold: (px, py) => draw("circle", { class: "mark fill-hold", cx: px, cy: py, r: 2.5 }),
    none: (px, py) => draw("path", { class: "cross", d: `M${px - 4},${py - 4}l8,8m0,-8l-8,8` }),
  };
  return (spec.marks ?? []).map((mark) => shapes[mark.kind](x(mark.day - 1), y(mark.value)));
}
