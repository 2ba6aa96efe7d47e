// Elements and numbers. Texts only ever become text nodes.

function make(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

function draw(tag, properties = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

function filled(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const at = (id) => document.getElementById(id);
const MINUS = "\u2212";
const DASH = "\u2013";

function fixed(number, digits = 3) {
  if (number === null || number === undefined) return DASH;
  const text = Math.abs(number).toFixed(digits);
  return number < 0 && Number(text) !== 0 ? MINUS + text : text;
}

function signed(number, digits = 3) {
  const text = fixed(number, digits);
  return number >= 0 && Number(number.toFixed(digits)) !== 0 ? `+${text}` : text;
}

const percent = (fraction, digits = 0) => `${fixed(100 * fraction, digits)} %`;
const whole = (number) => (number == null ? DASH : Math.round(number).toLocaleString("en"));

const compact = (number) =>
  number === null ? DASH : number.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 3 });

function probability(p) {
  return p == null ? "unknown" : p < 0.001 ? "< 0.001" : fixed(p);
}

function money(usd) {
  if (usd === null || usd === undefined) return "unknown";
  return usd === 0 ? "0" : usd.toLocaleString("en", { maximumSignificantDigits: 3 });
}

// A value of a log or a row, whatever it is, as one line.
function plain(value) {
  if (value === null || value === undefined) return "unknown";
  if (Number.isInteger(value)) return String(value);
  if (typeof value === "number") return fixed(value, Math.abs(value) < 0.01 ? 6 : 4);
  return typeof value === "string" ? value : JSON.stringify(value);
}

// A name that may be broken where its parts meet.
const breakable = (name) => name.split(/(?<=[:/_-])/).flatMap((part, k) => (k ? [make("wbr"), part] : [part]));

function definitions(list, pairs) {
  list.replaceChildren(...pairs.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

const hint = (...told) => make("p", { class: "hint" }, told);
const warning = (...told) => make("p", { class: "alert" }, told);
const folded = (summary, open, ...content) => make("details", { open }, make("summary", {}, summary), content);

// Fill a table: headings, and rows whose first cell names them.
function fillTable(table, heads, rows) {
  table.replaceChildren(
    make(
      "thead",
      {},
      make(
        "tr",
        {},
        heads.map((name) => make("th", { scope: "col" }, name)),
      ),
    ),
    make(
      "tbody",
      {},
      rows.map(([first, ...rest]) => make("tr", {}, make("th", { scope: "row" }, first), cells(rest))),
    ),
  );
}
const cells = (contents) => contents.map((content) => make("td", {}, content));

// A table that scrolls sideways where it is too wide, by keys too.
function scrollingTable(label, kind, heads, rows) {
  const table = make("table", { class: kind });
  fillTable(table, heads, rows);
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table);
}

function choice(label, name, options, value, onchange) {
  const select = make(
    "select",
    { name, change: (event) => onchange(event.target.value) },
    options.map(([key, text]) => make("option", { value: key, selected: key === value }, text)),
  );
  return make("label", {}, make("span", {}, label), select);
}

// Numbers for an axis: about `count` of them, round, inside low..high.
function ticks(low, high, count) {
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= raw) * power;
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) found.push(k * step);
  return { values: found, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
}
