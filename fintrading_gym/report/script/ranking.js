// The ranked table with its filters, and the one of scores by cell.

function partShown() {
  const want = [state.cell || null, state.persona || null, state.identity || null];
  return world().parts.find((part) => [part.cell, part.persona, part.identity].every((name, k) => name === want[k]));
}

function showRanking() {
  const part = partShown();
  const official = world().parts[0];
  const all = part?.standings ?? [];
  const words = state.find.toLowerCase();
  const found = all.filter((s) => `${s.agent} ${facts(s).model ?? ""}`.toLowerCase().includes(words));
  // Nobody is ranked where nothing happened; the page says so once.
  const why = new Map(official.standings.map((s) => [s.agent, s.why.endsWith("never happened") ? "" : s.why]));
  const columns = COLUMNS.filter((column) => column.id !== "dsr" || all.some((s) => s.deflated_sharpe != null));
  const scale = scoreScale(all);
  const groups = [found.filter((s) => !why.get(s.agent)), found.filter((s) => why.get(s.agent))];
  const rows = (group) => sorted(group).map((s) => row(s, columns, part, scale, why.get(s.agent)));
  at("board-table").replaceChildren(
    make("caption", { class: "quiet" }, caption()),
    make("thead", {}, make("tr", {}, columns.map(heading))),
    make("tbody", {}, rows(groups[0])),
    make(
      "tbody",
      { class: "apart", hidden: groups[1].length === 0 },
      make("tr", {}, make("th", { colspan: columns.length, scope: "rowgroup" }, make("span", {}, "Not ranked"))),
      rows(groups[1]),
    ),
  );
  showPart(part, official, found.length);
}

function caption() {
  const column = COLUMNS.find((one) => one.id === state.sort) ?? COLUMNS[0];
  const order = column.id !== "rank" ? column.label : partShown() === world().parts[0] ? "rank" : "score";
  return make(
    "span",
    {},
    `Agents sorted by ${order}. Headings sort.`,
    make("span", { class: "on-phone" }, " More columns to the right."),
  );
}

function showPart(part, official, found) {
  const count = (one) => one.standings.reduce((sum, s) => sum + s.episodes, 0);
  let told = "";
  if (!part) told = "No episode is of this kind.";
  else if (part === official) {
    told = [
      state.world !== "real" && "Nobody is ranked in a world that never happened.",
      part.left_out.length && `Left out, since most of the agents have not played it: ${part.left_out.join(", ")}.`,
    ]
      .filter(Boolean)
      .join(" ");
  } else {
    told =
      `A part of the board: ${count(part)} of ${count(official)} episodes. Ranks and intervals stand on the whole ` +
      "board alone: whoever looks at many parts finds a winner in one of them by luck.";
  }
  if (part && !found) told = `${told} No agent's name has “${state.find}”.`.trim();
  at("part").textContent = told;
}

function sorted(standings) {
  const column = COLUMNS.find((one) => one.id === state.sort) ?? COLUMNS[0];
  const turn = (column.better === "less") === (state.down === "") ? 1 : -1;
  // What has no number stands last in either direction; equals stand in the order of the ranking.
  return standings
    .map((s, k) => ({ s, k, value: column.id === "rank" ? k : column.value(s) }))
    .sort((a, b) => {
      if (a.value === null || b.value === null) return (a.value === null) - (b.value === null) || a.k - b.k;
      const order = typeof a.value === "string" ? a.value.localeCompare(b.value, "en") : a.value - b.value;
      return turn * order || a.k - b.k;
    })
    .map((one) => one.s);
}

function heading(column) {
  const chosen = state.sort === column.id;
  const rising = (column.better === "less") === (state.down === "");
  const sort = () => {
    change(chosen ? { down: state.down ? "" : "1" } : { sort: column.id, down: "" });
    showRanking();
    at("board-table").querySelector(`[data-column="${column.id}"]`).focus();
  };
  return make(
    "th",
    { scope: "col", "aria-sort": chosen ? (rising ? "ascending" : "descending") : "none", class: `c-${column.id}` },
    make(
      "button",
      { type: "button", "data-column": column.id, click: sort, title: column.says },
      column.label,
      make("span", { "aria-hidden": "true", class: "arrow" }, chosen ? (rising ? "▲" : "▼") : ""),
    ),
  );
}

function row(s, columns, part, scale, why) {
  const cells = columns.map((column) => {
    const content = column.cell ? column.cell(s, part, scale) : written(column, s);
    return make(
      column.id === "agent" ? "th" : "td",
      { class: `c-${column.id}`, scope: column.id === "agent" ? "row" : null },
      content,
    );
  });
  const line = make("tr", { "data-agent": s.agent }, cells);
  if (!why) return line;
  return [line, make("tr", { class: "why" }, make("td", { colspan: columns.length }, make("span", {}, why)))];
}

function written(column, s) {
  const value = column.value(s);
  return value === null && column.id !== "tokens" && column.id !== "usd" ? DASH : column.write(value, s);
}

function showFilters() {
  const all = (names, word) => [["", word], ...names.map((name) => [name, name])];
  const set = (name) => (value) => {
    if (name !== "world") {
      change({ [name]: value });
      showRanking();
      return;
    }
    const market = board.markets.findIndex((one) => one.world === value && one.dates.length);
    change({ world: value, cell: "", persona: "", identity: "", market: String(market), day: "" });
    [showFilters, showRanking, showCompare, showCells, showDays, showCost].forEach((show) => show());
    at("filters").querySelector("select").focus();
  };
  const { cells, personas, identities } = world();
  const worlds = board.worlds.map((one) => [one.name, `${one.name}: ${one.told}`]);
  const find = make("input", {
    type: "search",
    name: "find",
    value: state.find,
    placeholder: "name or model",
    input: (event) => {
      change({ find: event.target.value });
      showRanking();
    },
  });
  at("filters").replaceChildren(
    ...[
      worlds.length > 1 && choice("world", "world", worlds, world().name, set("world")),
      choice("cell", "cell", all(cells, "all cells"), state.cell, set("cell")),
      personas.length > 1 && choice("persona", "persona", all(personas, "all personas"), state.persona, set("persona")),
      choice("guard level", "identity", all(identities, "all levels"), state.identity, set("identity")),
      make("label", {}, make("span", {}, "agent"), find),
    ].filter(Boolean),
  );
  at("filters").onsubmit = (event) => event.preventDefault();
}

function showCells() {
  const { cells, parts } = world();
  const open = (agent, cell) => () => {
    const market = board.markets.findIndex((one) => one.world === world().name && one.cell === cell);
    change({ agent, market: String(market), day: "" });
    showDays();
    at("days").scrollIntoView();
  };
  const number = (s, cell) =>
    s.cells[cell] === undefined
      ? DASH
      : make(
          "button",
          {
            type: "button",
            class: "link",
            "aria-label": `${s.agent} on ${cell}: ${fixed(s.cells[cell])}`,
            click: open(s.agent, cell),
          },
          fixed(s.cells[cell]),
        );
  const rows = parts[0].standings.map((s) => [breakable(s.agent), ...cells.map((cell) => number(s, cell))]);
  fillTable(at("cells-table"), ["agent", ...cells], rows);
}
