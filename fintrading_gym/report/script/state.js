// What is shown, kept in the address behind #, so that a link opens the same day.

const state = {
  world: "real",
  cell: "",
  persona: "",
  identity: "",
  find: "",
  sort: "rank",
  down: "", // the ranking
  agent: "",
  market: "",
  who: "",
  seed: "",
  day: "", // day by day
};
const usual = { ...state };
const hidden = new Set(); // curves that are not drawn: names of agents, keys of references

function readAddress() {
  const told = location.hash.slice(1);
  if (!told.includes("=")) return; // of a section
  Object.assign(state, usual);
  for (const [name, value] of new URLSearchParams(told)) if (name in state) state[name] = value;
}

function change(changes) {
  Object.assign(state, changes);
  const told = Object.entries(state).filter(([name, value]) => value !== usual[name]);
  const address = new URLSearchParams(told).toString();
  history.replaceState(null, "", address ? `#${address}` : location.pathname + location.search);
}

const world = () => board.worlds.find((one) => one.name === state.world) ?? board.worlds[0];
const agentNamed = (name) => board.agents.findIndex((agent) => agent.name === name);
const colour = (index) => `var(--series-${index % 10})`;
const dashes = (index) => ["", "6 3", "2 3"][Math.floor(index / 10) % 3];
