"""Who plays, what is played, and one episode of it."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np

from fintrading_gym import ENV_ID
from fintrading_gym.env import market_returns
from fintrading_gym.errors import UnknownName, brief, lookup
from fintrading_gym.ledger import Ledger
from fintrading_gym.replies import ACTIONS, Decision
from fintrading_gym.windows import Floats, Window, find_window

GROUP = "fintrading_gym.agents"  # the entry-point group that players are found by

# From the observation to a decision: a Decision, an action's index, or None for no decision.
Agent = Callable[[Any], Decision | int | None]


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
    detail: str = "full"

    @property
    def window(self) -> Window:
        """The days of the cell."""
        return find_window(self.cell)

    def make(self, **keywords: Any) -> gym.Env[Any, Any]:
        """The task's environment; `keywords` (observation, action, render_mode) are passed on."""
        settings = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "seed"}
        return gym.make(ENV_ID, **settings, **keywords)

    def market(self) -> tuple[Floats, Floats]:
        """Log returns of the days played, and their part before the fill: the future, for the oracle alone."""
        first, days = self.window.span()
        days = days if self.timesteps is None else min(days, self.timesteps + 1)
        prices, inside = self.window.load(), slice(first, first + days)
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


def rollout(
    agent: Agent,
    env: gym.Env[Any, Any],
    seed: int | None = None,
    on_day: Callable[[Agent], None] | None = None,
) -> Episode:
    """Play one episode.

    An agent that raises, or answers with what is no decision, ends its episode: `failure` then says
    how, and the ledger holds the days before it.

    Args:
        agent: called once a day with the observation.
        env: of `gym.make("FinMemTrading-v0", ...)`, wrapped or not.
        seed: for `env.reset`.
        on_day: called with the agent after each day, to show progress.
    """
    game: Any = env.unwrapped
    observation, info = env.reset(seed=seed)
    decisions: list[Decision | None] = []
    over = False
    while not over:
        try:
            answer = agent(observation)
            observation, _, _, over, info = env.step(_as_action(answer))
        except Exception as fault:  # strangers' code: whatever it raises ends its own episode, and is told
            failure = f"day {len(decisions) + 1}: {type(fault).__name__}: {fault}"
            return Episode(game.ledger(), tuple(decisions), None, failure, **_kept(agent))
        decisions.append(_as_decision(answer))
        if on_day:
            on_day(agent)
    return Episode(info["ledger"], tuple(decisions), info["score"], **_kept(agent))


def _kept(agent: Agent) -> dict[str, Any]:
    return {"log": tuple(getattr(agent, "log", ())), "facts": dict(getattr(agent, "facts", {}))}


def _as_action(answer: Any) -> Any:
    if isinstance(answer, Decision):
        return None if answer.action is None else ACTIONS.index(answer.action)
    return answer


def _as_decision(answer: Any) -> Decision | None:
    if isinstance(answer, int | np.integer):
        return Decision(ACTIONS[int(answer)])
    return answer if isinstance(answer, Decision) else None


# ----------------------------------------------------------------------------------------- the players


@dataclass(frozen=True)
class Traits:
    """What a leaderboard must know of a player; a factory carries it as its attribute `traits`."""

    uses_persona: bool = True  # False: every persona gives the same episode, so one is played
    uses_seed: bool = True  # False: every seed gives the same episode, so one is played
    ranked: bool = True  # False: shown without a rank (it knows the future)
    concurrent: bool = False  # True: its agents wait rather than compute, so episodes may run in threads
    options: tuple[str, ...] = ()  # keywords that the factory takes beside the task and the argument


@dataclass(frozen=True)
class Player:
    """A way to make agents: `factory(task)`, or `factory(task, argument)` for a name like `llm:local/smollm2`."""

    name: str
    factory: Callable[..., Agent]
    argument: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # of those that `traits.options` names

    @property
    def traits(self) -> Traits:
        """What the factory says of itself."""
        traits: Traits = getattr(self.factory, "traits", Traits())
        return traits

    def play(self, task: Task, on_day: Callable[[Agent], None] | None = None) -> Episode:
        """One episode by an agent made for it; `on_day` as in `rollout`."""
        arguments = (task,) if self.argument is None else (task, self.argument)
        env = task.make()
        try:
            agent = self.factory(*arguments, **self.options)
        except Exception as fault:  # a stranger's factory, as in `rollout`
            return Episode(Ledger(), (), None, f"before day 1: {type(fault).__name__}: {fault}")
        if not callable(agent):
            told = f"the factory gave {brief(agent)} and not an agent, a callable from observation to decision"
            return Episode(Ledger(), (), None, f"before day 1: {told}")
        return rollout(agent, env, task.seed, on_day)


def registered() -> dict[str, EntryPoint]:
    """Every player that an installed package brings, by name."""
    return {point.name: point for point in sorted(entry_points(group=GROUP), key=lambda point: point.name)}


def find_player(spec: str | Callable[..., Agent]) -> Player:
    """The player a user names: `NAME`, `NAME:ARGUMENT`, `module:callable`, or a factory itself.

    Raises:
        UnknownName: nothing of that name is registered or can be imported.
    """
    if callable(spec):
        return Player(getattr(spec, "__name__", repr(spec)), spec)
    name, _, rest = spec.partition(":")
    known = registered()
    if name in known:
        return Player(spec, known[name].load(), rest or None)
    if not rest and not known:
        raise UnknownName(f"No agent {spec!r}; agents come with an installed package: pip install -e .")
    if not rest:
        lookup("agent", spec, known)
    if name.endswith(".py"):
        raise UnknownName(f"No agent {spec!r}; a module is named without its ending: {Path(name).stem}:{rest}")
    try:
        module = importlib.import_module(name)
    except (ImportError, SyntaxError, TypeError) as fault:  # TypeError: a relative name
        raise UnknownName(f"No agent {spec!r}: {fault}; registered are {list(known)}, else module:callable") from fault
    return Player(spec, lookup(f"callable in {name}", rest, _callables(module)))


def _callables(module: ModuleType) -> dict[str, Callable[..., Agent]]:
    return {name: value for name, value in vars(module).items() if callable(value) and not name.startswith("_")}
