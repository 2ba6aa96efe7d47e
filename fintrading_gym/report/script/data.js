// The packed data: unpacked once, and the texts of a market when one of its days is opened.

async function unpack(id) {
  const packed = document.getElementById(id).textContent;
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

const blocks = new Map();

// The entry of a day, or undefined: see texts.py, of which this is the inverse.
async function dayEntry(episode, day) {
  const market = board.episodes[episode].market;
  if (!blocks.has(market)) blocks.set(market, unpack(`texts-${market}`));
  const block = await blocks.get(market);
  const packed = block.days[episode]?.[day - 1];
  return packed && opened(packed, block);
}

function opened(packed, block) {
  if (typeof packed === "number") return block.texts[packed].map((line) => block.lines[line]).join("\n");
  if (typeof packed === "string") return Number(packed);
  if (Array.isArray(packed)) return packed.map((part) => opened(part, block));
  if (packed === null || typeof packed === "boolean") return packed;
  return Object.fromEntries(Object.entries(packed).map(([name, part]) => [name, opened(part, block)]));
}

// An episode's log returns, and their running sum with the start, 0, in front.
const returns = (whole) => whole.map((units) => units / 1e8);
function equity(whole) {
  let sum = 0;
  return [0, ...whole.map((units) => (sum += units) / 1e8)];
}

// How far below its highest value so far an equity stands, as a fraction: 0, -0.12, ...
function drawdown(logEquity) {
  let peak = -Infinity;
  return logEquity.map((value) => Math.expm1(value - (peak = Math.max(peak, value))));
}
