"""Who plays, what is played, and one episode of it."""

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from importlib.metadata import EntryPoint, entry_points
from operator import index
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np

from fintrading_gym import ENV_ID
from fintrading_gym.costs import Costs
from fintrading_gym.env import market_returns
from fintrading_gym.errors import MissingExtra, RunStopped, UnknownName, brief, lookup, one_line
from fintrading_gym.ledger import Ledger
from fintrading_gym.masking import ALIASES
from fintrading_gym.metrics import fintrading_score
from fintrading_gym.replies import ACTIONS, Decision, parse
from fintrading_gym.windows import Floats, Window, find_window
from fintrading_gym.worlds import find_world

GROUP = "fintrading_gym.agents"  # the entry-point group that players are found by

# From the observation to a decision: a Decision, an action's index, or None for no decision.
Agent = Callable[[Any], Decision | int | None]
OnDay = Callable[[Agent, Decision | None], None]
# An agent is strangers' code: whatever it raises, a call of exit() too, ends its own episode and is told.
FAULTS = (Exception, SystemExit)


# Settings of the view that an agent may wish for, in attributes of the same names, and what they are without a wish.
WISHES = {"detail": "full", "identity": "real"}


@dataclass(frozen=True)
class Task:
    """One episode to play: a cell, a persona, a seed, and the environment's keywords."""

    cell: str | Window = "tsla_main"
    persona: str = "adaptive"
    seed: int = 0
    timesteps: int | None = 50
    hold: str = "keep"
    cost_bps: float = 0.0
    fill: str = "close"
    lookback: int = 7
    detail: str | None = None  # None, here and below: see WISHES
    identity: str | None = None
    world: str = "real"

    def __post_init__(self) -> None:
        if not isinstance(self.seed, int | np.integer) or isinstance(self.seed, bool) or self.seed < 0:
            raise ValueError(f"seed={brief(self.seed)} is not a whole number >= 0")
        if isinstance(self.identity, str) and self.identity in ALIASES:
            object.__setattr__(self, "identity", ALIASES[self.identity])
        # A number of another type is the same task, to a policy's recipe and to JSON as to `==`.
        for name in ("seed", "timesteps", "lookback", "cost_bps"):
            if isinstance(value := getattr(self, name), np.number):
                object.__setattr__(self, name, value.item())
        if type(self.cost_bps) is int:
            object.__setattr__(self, "cost_bps", float(self.cost_bps))

    @property
    def window(self) -> Window:
        """The days of the cell, in the task's world."""
        return find_world(find_window(self.cell), self.world)

    @property
    def decisions(self) -> int:
        """How many there are in the episode."""
        possible = self.window.span()[1] - 1
        return possible if self.timesteps is None else min(self.timesteps, possible)

    def make(self, **keywords: Any) -> gym.Env[Any, Any]:
        """The task's environment; `keywords` (observation, action, detail, identity, render_mode) come first."""
        settings = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "seed"}
        open_wishes = {name: usual for name, usual in WISHES.items() if settings[name] is None}
        return gym.make(ENV_ID, **{**settings, **open_wishes, **keywords})

    def market(self) -> tuple[Floats, Floats]:
        """Log returns of the days played, and their part before the fill: the future, for the oracle alone."""
        first = self.window.span()[0]
        prices, inside = self.window.load(), slice(first, first + self.decisions + 1)
        return market_returns(prices.open[inside], prices.close[inside], self.fill)


@dataclass(frozen=True)
class Episode:
    """What an agent did on a task."""

    ledger: Ledger
    decisions: tuple[Decision | None, ...]  # one a ledger entry, as the agent gave them; None: it gave none
    score: float | None  # fintrading_score; None: the agent failed
    failure: str | None = None  # why the episode was broken off; None: played to the end
    log: tuple[dict[str, Any], ...] = ()  # what the agent kept of each day in its attribute `log`, if it has one
    facts: Mapping[str, Any] = field(default_factory=dict)  # columns of its row, from its attribute `facts`
    identity: str | None = None  # how much it was shown, of `masking.IDENTITIES`; None: it was shown nothing


def rollout(
    agent: Agent,
    env: gym.Env[Any, Any],
    seed: int | None = None,
    on_day: OnDay | None = None,
) -> Episode:
    """Play one episode.

    An agent that raises, or answers with what is no decision, ends its episode: `failure` then says
    how, and the ledger holds the days before it.

    Args:
        agent: called once a day with the observation.
        env: of `gym.make("FinMemTrading-v0", ...)`, wrapped or not.
        seed: for `env.reset`.
        on_day: called after each day with the agent and its decision, to show progress.

    Raises:
        RunStopped: by the agent or `on_day`: not the episode's failure, but the end of the run it belongs to.
    """
    game: Any = env.unwrapped
    observation, _ = env.reset(seed=seed)
    decisions: list[Decision | None] = []
    over = False
    while not over:
        try:
            answer = agent(observation)
            observation, _, _, over, _ = env.step(_as_action(answer))
        except RunStopped:
            raise
        except FAULTS as fault:
            failure = f"day {len(decisions) + 1}: {one_line(fault)}"
            return Episode(game.ledger(), tuple(decisions), None, failure, **_kept(agent, game))
        decisions.append(_as_decision(answer))
        if on_day:
            on_day(agent, decisions[-1])
    ledger = game.ledger()  # not of the last info: a TimeLimit ends an episode before there is one
    score = fintrading_score(ledger.log_return, ledger.valid)
    return Episode(ledger, tuple(decisions), score, **_kept(agent, game))


def _kept(agent: Agent, game: Any) -> dict[str, Any]:
    facts = dict(getattr(agent, "facts", {}))
    return {"log": tuple(getattr(agent, "log", ())), "facts": facts, "identity": game.sight.identity}


def _as_action(answer: Any) -> Any:
    if isinstance(answer, Decision):
        return None if answer.action is None else ACTIONS.index(answer.action)
    return answer


def _as_decision(answer: Any) -> Decision | None:
    """What the environment took without complaint: an index, a reply, a decision, or None."""
    if answer is None or isinstance(answer, Decision):
        return answer
    return Decision(ACTIONS[index(answer)]) if hasattr(answer, "__index__") else parse(answer)


# ----------------------------------------------------------------------------------------- the players


@dataclass(frozen=True)
class Traits:
    """What a leaderboard must know of a player; a factory carries it as its attribute `traits`."""

    uses_persona: bool = True  # False: every persona gives the same episode, so one is played
    uses_seed: bool = True  # False: every seed gives the same episode, so one is played
    ranked: bool = True  # False: shown without a rank (it knows the future)
    concurrent: bool = False  # True: its agents wait rather than compute, so episodes may run in threads
    options: tuple[str, ...] = ()  # keywords that the factory takes beside the task and the argument
    indifferent: frozenset[str] = frozenset()  # those of them that change no decision: limits, where replies are kept
    costs: Callable[["Player", Task], Costs] | None = None  # what an episode will cost; None: it asks no model


@dataclass(frozen=True)
class Player:
    """A way to make agents: `factory(task)`, or `factory(task, argument)` for a name like `llm:local/smollm2`."""

    name: str
    factory: Callable[..., Agent]
    argument: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)  # of those that `traits.options` names

    @property
    def traits(self) -> Traits:
        """What the factory says of itself; it may say so by a function of the argument and the options."""
        told: Traits | Callable[[Any, Mapping[str, Any]], Traits] = getattr(self.factory, "traits", Traits())
        return told if isinstance(told, Traits) else told(self.argument, self.options)

    @property
    def settings(self) -> dict[str, Any]:
        """Its options that make it another agent than the same name without them."""
        usual = inspect.signature(self.factory).parameters
        told = {name: value for name, value in self.options.items() if name not in self.traits.indifferent}
        return {name: value for name, value in told.items() if name not in usual or value != usual[name].default}

    @property
    def label(self) -> str:
        """How a board names it: `llm:openai/NAME`, and its settings, as in `llm:openai/NAME [context=full]`."""
        told = " ".join(f"{name}={value}" for name, value in sorted(self.settings.items()))
        return f"{self.name} [{told}]" if told else self.name

    def calls(self, task: Task) -> int | None:
        """Calls to its model in an episode, format nudges aside; None: unknown, or it asks no model.

        A factory that knows has an attribute `calls_per_episode`, a function of the task and the options.
        """
        told: Callable[[Task, Mapping[str, Any]], int] | None = getattr(self.factory, "calls_per_episode", None)
        return None if told is None else told(task, self.options)

    @contextmanager
    def opened(self) -> Iterator["Player"]:
        """The player for the length of a run, with what its episodes share, such as the connections of a model.

        A factory that shares something has an attribute `shared`: a context manager of the argument and the options
        that gives what takes their place. What it raises ends the run before it begins.
        """
        shared = getattr(self.factory, "shared", None)
        if shared is None:
            yield self
            return
        with shared(self.argument, **self.options) as (argument, options):
            yield replace(self, argument=argument, options=options)

    def play(self, task: Task, on_day: OnDay | None = None) -> Episode:
        """One episode by an agent made for it; `on_day` and what is raised as in `rollout`."""
        env = task.make()  # a wrong setting is told before there is an agent
        with self.opened() as player:
            arguments = (task,) if player.argument is None else (task, player.argument)
            try:
                agent = player.factory(*arguments, **player.options)
            except RunStopped:
                raise
            except FAULTS as fault:
                return Episode(Ledger(), (), None, f"before day 1: {one_line(fault)}")
            if not callable(agent):
                told = f"the factory gave {brief(agent)} and not an agent, a callable from observation to decision"
                return Episode(Ledger(), (), None, f"before day 1: {told}")
            wished = {name: getattr(agent, name, None) for name in WISHES if getattr(task, name) is None}
            if any(wished.values()):
                env = task.make(**{name: wish for name, wish in wished.items() if wish is not None})
            return rollout(agent, env, task.seed, on_day)


def registered() -> dict[str, EntryPoint]:
    """Every player that an installed package brings, by name."""
    return {point.name: point for point in sorted(entry_points(group=GROUP), key=lambda point: point.name)}


def find_player(spec: str | Callable[..., Agent]) -> Player:
    """The player a user names: `NAME`, `module:callable`, either with `:ARGUMENT` behind it, or a factory itself.

    Raises:
        UnknownName: nothing of that name is registered or can be imported.
    """
    if callable(spec):
        return Player(getattr(spec, "__name__", repr(spec)), spec)
    name, _, rest = spec.partition(":")
    factory, _, argument = rest.partition(":")
    known = registered()
    if name in known:
        return Player(spec, load(known[name]), rest or None)
    if not rest and not known:
        raise UnknownName(f"No agent {spec!r}; agents come with an installed package: pip install -e .")
    if not rest:
        lookup("agent", spec, known)
    if name.endswith(".py"):
        raise UnknownName(f"No agent {spec!r}; a module is named without its ending: {Path(name).stem}:{rest}")
    try:
        module = importlib.import_module(name)
    except FAULTS as fault:  # a module runs as it is imported
        raise UnknownName(
            f"No agent {spec!r}: {one_line(fault)}; registered are {list(known)}, else module:callable"
        ) from fault
    return Player(spec, lookup(f"callable in {name}", factory, _callables(module)), argument or None)


def load(point: EntryPoint) -> Callable[..., Agent]:
    """The factory behind an entry point.

    Raises:
        MissingExtra: it needs what is not installed.
        UnknownName: it cannot be imported.
    """
    try:
        factory: Callable[..., Agent] = point.load()
    except MissingExtra:
        raise
    except FAULTS as fault:
        raise UnknownName(f"Agent {point.name!r} ({point.value}) cannot be loaded: {one_line(fault)}") from fault
    return factory


def _callables(module: ModuleType) -> dict[str, Callable[..., Agent]]:
    return {name: value for name, value in vars(module).items() if callable(value) and not name.startswith("_")}
