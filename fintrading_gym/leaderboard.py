"""Agents x tasks x seeds, and the table that ranks them."""

import threading
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from fintrading_gym import __version__, costs
from fintrading_gym.costs import Expected
from fintrading_gym.errors import RunStopped
from fintrading_gym.ledger import evaluate
from fintrading_gym.recipes import key_of, recipe_of
from fintrading_gym.replies import Decision
from fintrading_gym.rollout import Agent, Episode, OnDay, Player, Task
from fintrading_gym.store import Row, Store, finished, mean_latencies

MIN_COVERAGE = 0.95  # of the days an agent must decide itself, or its score is the environment's holds
AT_ONCE = 12  # episodes of agents that wait, by default: the evaluation's tasks
AVERAGED = ("score", "cumulative_return", "excess", "regret", "luck", "sharpe_ratio", "max_drawdown", "coverage")


def plan(players: Iterable[Player], tasks: Iterable[Task]) -> list[tuple[Player, Task]]:
    """Every episode to play: tasks that differ only in what a player ignores are played once."""
    episodes = []
    for player in players:
        ignored: dict[str, Any] = {} if player.traits.uses_persona else {"persona": ""}
        ignored |= {} if player.traits.uses_seed else {"seed": 0}
        seen = set()
        for task in tasks:
            same = replace(task, **ignored)
            if same not in seen:
                seen.add(same)
                episodes.append((player, task))
    return episodes


def run(
    episodes: Sequence[tuple[Player, Task]],
    at_once: int = AT_ONCE,
    on_day: Callable[[int, Agent, Decision | None], None] | None = None,
) -> Iterator[tuple[int, Row, Episode]]:
    """Play the episodes; of each, as it ends, its place in `episodes`, its row and what was played.

    Players whose agents wait rather than compute (`Traits.concurrent`) play in threads, the others one after the
    other in the caller's. What a player's episodes share is opened once and closed at the end, be it an early one.

    Args:
        episodes: of `plan`.
        at_once: threads.
        on_day: called after each day with the episode's place, the agent and its decision, from any thread.

    Raises:
        RunStopped: nothing more can be played; the episodes so far are good, and those under way are dropped.
    """
    stopped = threading.Event()

    def note(place: int, agent: Agent, decision: Decision | None) -> None:
        if stopped.is_set():
            raise RunStopped("the run was stopped")
        if on_day:
            on_day(place, agent, decision)

    with ThreadPoolExecutor(at_once) as threads, ExitStack() as run_long:
        players = {id(player): player for player, _ in episodes}
        opened = {key: run_long.enter_context(player.opened()) for key, player in players.items()}

        def play(place: int) -> tuple[Row, Episode]:
            if stopped.is_set():
                raise RunStopped("the run was stopped")
            player, task = episodes[place]
            return played(player, task, partial(note, place), opened[id(player)])

        waiting = {threads.submit(play, k): k for k, (player, _) in enumerate(episodes) if player.traits.concurrent}

        def finished() -> Iterator[tuple[int, Row, Episode]]:
            for done in [future for future in waiting if future.done() and not future.exception()]:
                yield waiting.pop(done), *done.result()

        halt: RunStopped | None = None
        try:
            try:
                for place in sorted(set(range(len(episodes))) - set(waiting.values())):
                    yield place, *play(place)
                    yield from finished()
            except RunStopped as stop:
                halt = stop
                stopped.set()
            for done in as_completed(list(waiting)):
                try:
                    result = done.result()
                except RunStopped as stop:  # the others end with the day they are at; what is finished still counts
                    halt = halt or stop
                    stopped.set()
                else:
                    yield waiting.pop(done), *result
            if halt:
                raise halt
        except KeyboardInterrupt:  # nobody waits for the others
            yield from finished()
            raise
        finally:  # after an interrupt too: closing the models, which comes next, ends the calls under way
            stopped.set()
            threads.shutdown(wait=False, cancel_futures=True)


def begin(
    board: Store, episodes: Sequence[tuple[Player, Task]], anew: Iterable[Player] = ()
) -> tuple[int, list[tuple[Player, Task]]]:
    """Make a board ready for these episodes: how many others were set aside for them, and which are to be played.

    Args:
        board: which may hold some of them.
        episodes: of `plan`.
        anew: players whose episodes are forgotten first.
    """
    moved = board.claim([recipe_of(player, task) for player, task in episodes])
    names = {player.name for player in anew}
    board.forget([key_of(recipe_of(player, task)) for player, task in episodes if player.name in names])
    return moved, lacking(board, episodes)


def expected(out: Path | None, episodes: Sequence[tuple[Player, Task]], at_once: int = AT_ONCE) -> list[Expected]:
    """What playing the episodes that a board's file lacks will cost, agent by agent; the file is only read."""
    there, latencies = (finished(out), mean_latencies(out)) if out and out.exists() else (set(), {})
    return costs.expected(_without(there, episodes), latencies, at_once)


def lacking(board: Store, episodes: Iterable[tuple[Player, Task]]) -> list[tuple[Player, Task]]:
    """Those of the episodes that a board does not hold, or holds as failed."""
    return _without(board.finished(), episodes)


def _without(there: Container[str], episodes: Iterable[tuple[Player, Task]]) -> list[tuple[Player, Task]]:
    return [(player, task) for player, task in episodes if key_of(recipe_of(player, task)) not in there]


def fill(
    board: Store,
    episodes: Sequence[tuple[Player, Task]],
    at_once: int = AT_ONCE,
    on_day: Callable[[int, Agent, Decision | None], None] | None = None,
) -> None:
    """Play the episodes, and write each into the board as it ends; arguments and what is raised as in `run`."""
    recipes = [recipe_of(player, task) for player, task in episodes]  # before an agent can change what they are made of
    for place, row, episode in run(episodes, at_once, on_day):
        board.add(recipes[place], row, episode)


def played(
    player: Player, task: Task, on_day: OnDay | None = None, opened: Player | None = None
) -> tuple[Row, Episode]:
    """One episode, played, and its row; `opened` is the player as its method of that name gives it."""
    episode = (opened or player).play(task, on_day)
    return as_row(player, task, episode), episode


def as_row(player: Player, task: Task, episode: Episode) -> Row:
    """An episode that the player has played as a row of the board.

    It holds the agent and the task, `score` and everything `ledger.evaluate` gives, `coverage` (share of days on which
    the agent really decided), `failure`, the table's sha256, the version, and the agent's own `facts`. A failed
    episode has no score.
    """
    numbers = evaluate(episode.ledger, task.hold, task.cost_bps) if episode.failure is None else {}
    row = {
        "agent": player.label,
        "cell": task.cell if isinstance(task.cell, str) else str(task.cell),
        "ranked": player.traits.ranked,
        "persona": task.persona if player.traits.uses_persona else None,
        "seed": task.seed if player.traits.uses_seed else None,
        "timesteps": task.timesteps,
        "hold": task.hold,
        "fill": task.fill,
        "cost_bps": task.cost_bps,
        "world": task.world,
        "identity": episode.identity,
        **numbers,
        "score": episode.score,
        "coverage": numbers.get("discipline", 0.0),
        "failure": episode.failure,
        "data_sha256": task.window.load().sha256,
        "version": __version__,
    }
    # What an agent says of itself has columns of its own, and none of those above.
    return row | {name: fact for name, fact in episode.facts.items() if name not in row}


@dataclass(frozen=True)
class Standing:
    """One agent's line in the table: means over its episodes."""

    agent: str
    rank: int | None  # None: not ranked, `why` says the reason
    why: str
    episodes: int
    means: dict[str, float]  # of AVERAGED; empty when every episode failed
    spread: float | None  # standard deviation of the score over the episodes; None: fewer than two
    cells: dict[str, float]  # mean score by cell


def by_world(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows of each world: what is scored in a counterfactual one stands on a board of its own."""
    worlds: dict[str, list[Row]] = {}
    for row in rows:
        worlds.setdefault(row["world"], []).append(row)
    return worlds


def rank(rows: Iterable[Row], unranked: Iterable[str] = ()) -> list[Standing]:
    """The agents, best mean score first, those without a rank last.

    Args:
        rows: of `run`, all in one world.
        unranked: agents that know the future.

    Raises:
        ValueError: the rows are of several worlds.
    """
    by_agent: dict[str, list[Row]] = {}
    worlds = by_world(rows)
    if len(worlds) > 1:
        raise ValueError(f"Rows of the worlds {list(worlds)} make no one board; rank each of by_world(rows)")
    for row in chain.from_iterable(worlds.values()):
        by_agent.setdefault(row["agent"], []).append(row)
    standings = [_standing(agent, played, agent in set(unranked)) for agent, played in by_agent.items()]
    standings.sort(key=lambda s: (bool(s.why), -s.means.get("score", -1.0), s.agent))
    ranked = [s for s in standings if not s.why]
    # Equal scores share a rank.
    place = {s.agent: 1 + sum(other.means["score"] > s.means["score"] + 1e-12 for other in ranked) for s in ranked}
    return [Standing(s.agent, place.get(s.agent), s.why, s.episodes, s.means, s.spread, s.cells) for s in standings]


def _standing(agent: str, rows: list[Row], knows_future: bool) -> Standing:
    whole = [row for row in rows if row["failure"] is None]
    means = {name: float(np.mean([row[name] for row in whole])) for name in AVERAGED} if whole else {}
    by_cell: dict[str, list[float]] = {}
    for row in whole:
        by_cell.setdefault(row["cell"], []).append(row["score"])
    spread = float(np.std([row["score"] for row in whole], ddof=1)) if len(whole) > 1 else None
    why = ""
    if knows_future:
        why = "knows the future"
    elif len(whole) < len(rows):
        first = next(row["failure"] for row in rows if row["failure"])
        why = f"{len(rows) - len(whole)} of {len(rows)} episodes failed ({first})"
    elif leaky := [row for row in rows if row.get("leaks")]:
        why = f"{len(leaky)} of {len(rows)} episodes tell who or when ({leaky[0]['first_leak']})"
    elif means["coverage"] < MIN_COVERAGE:
        why = f"decided only {means['coverage']:.0%} of its days, and {MIN_COVERAGE:.0%} are needed"
    cells = {cell: float(np.mean(scores)) for cell, scores in by_cell.items()}
    return Standing(agent, None, why, len(rows), means, spread, cells)
