"""Agents x tasks x seeds: every episode of a board, played, as a row."""

import threading
import time
from collections.abc import Callable, Container, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from fintrading_gym import __version__, costs
from fintrading_gym.costs import Expected
from fintrading_gym.errors import RunStopped
from fintrading_gym.ledger import evaluate
from fintrading_gym.recipes import key_of, recipe_of
from fintrading_gym.replies import Decision
from fintrading_gym.rollout import Agent, Episode, OnDay, Player, Task
from fintrading_gym.store import Row, Store, finished, mean_latencies

AT_ONCE = 12  # episodes of agents that wait, by default: the evaluation's tasks

Played = tuple[Row, Episode]
# Called after a day with the episode's place, its agent (None: it played elsewhere) and the decision.
OnPlace = Callable[[int, Agent | None, Decision | None], None]


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


@dataclass(frozen=True)
class Elsewhere:
    """What plays episodes beside the caller's process; see `executors`."""

    opened: Callable[[], AbstractContextManager[Callable[[Player, Task], Future[Played]]]]
    takes: Callable[[Player], bool]  # whether a player can go there
    after: float = 0.0  # seconds for which the caller plays alone before it gives episodes away


def run(
    episodes: Sequence[tuple[Player, Task]],
    at_once: int = AT_ONCE,
    on_day: OnPlace | None = None,
    elsewhere: Elsewhere | None = None,
) -> Generator[tuple[int, Row, Episode], None, None]:
    """Play the episodes; of each, as it ends, its place in `episodes`, its row and what was played.

    Players whose agents wait rather than compute (`Traits.concurrent`) play in threads, the others elsewhere, or one
    after the other in the caller's. What a player's episodes share is opened once and closed at the end, be it an
    early one.

    Args:
        episodes: of `plan`.
        at_once: threads.
        on_day: called after each day, from any thread; of an episode that was played elsewhere after its last one.
        elsewhere: of `executors.find_executor`; None: the caller's process plays all.

    Raises:
        RunStopped: nothing more can be played; the episodes so far are good, and those under way are dropped. Where
            an agent that waits said so, those that compute were played first.
    """
    waits = [player.traits.concurrent for player, _ in episodes]
    here = [k for k in range(len(episodes)) if not waits[k]]  # for the caller to play, unless they are given away
    began, stopped = time.monotonic(), threading.Event()
    under_way: dict[Future[Played], int] = {}
    ended: SimpleQueue[Future[Played]] = SimpleQueue()

    def play(place: int) -> Played:
        player, task = episodes[place]
        check(place)
        return played(player, task, partial(note, place), opened[id(player)])

    def check(place: int) -> None:
        if waits[place] and stopped.is_set():
            raise RunStopped("the run was stopped")

    def note(place: int, agent: Agent, decision: Decision | None) -> None:
        check(place)
        if on_day:
            on_day(place, agent, decision)
        if not waits[place]:
            give_away()

    def begin(place: int, future: Future[Played]) -> None:
        under_way[future] = place
        future.add_done_callback(ended.put)

    def give_away() -> None:
        """Once it is time, all that can be played elsewhere and was not begun."""
        if elsewhere is None or time.monotonic() - began < elsewhere.after:
            return
        if going := {k for k in here if id(episodes[k][0]) in leaving}:
            here[:] = [k for k in here if k not in going]
            submit = away.enter_context(elsewhere.opened())
            for place in sorted(going):
                begin(place, future := submit(*episodes[place]))
                future.add_done_callback(partial(tell, place))

    def tell(place: int, done: Future[Played]) -> None:
        if on_day and not done.exception():
            for decision in done.result()[1].decisions:
                on_day(place, None, decision)

    with ThreadPoolExecutor(at_once) as threads, ExitStack() as run_long:
        players = {id(player): player for player, _ in episodes}
        computing = {key: player for key, player in players.items() if not player.traits.concurrent}
        leaving = {key for key, player in computing.items() if elsewhere and elsewhere.takes(player)}
        opened = {key: run_long.enter_context(player.opened()) for key, player in players.items()}
        away = run_long.enter_context(ExitStack())
        for place in (k for k in range(len(episodes)) if waits[k]):
            begin(place, threads.submit(play, place))
        halt: RunStopped | None = None
        try:
            while here or under_way:
                give_away()
                try:
                    if here and ended.empty():
                        place = here.pop(0)
                        result = play(place)
                    else:
                        done = ended.get()
                        place = under_way.pop(done)
                        result = done.result()
                except RunStopped as stop:  # what is finished still counts, and agents that wait end with their day
                    halt = halt or stop
                    stopped.set()
                    if not waits[place]:
                        here.clear()
                        away.close()
                else:
                    yield place, *result
            if halt:
                raise halt
        except KeyboardInterrupt:  # nobody waits for the others
            for done, place in under_way.items():
                if done.done() and not done.exception():
                    yield place, *done.result()
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
    on_day: OnPlace | None = None,
    elsewhere: Elsewhere | None = None,
) -> None:
    """Play the episodes, and write each into the board as it ends; arguments and what is raised as in `run`."""
    recipes = [recipe_of(player, task) for player, task in episodes]  # before an agent can change what they are made of
    with closing(run(episodes, at_once, on_day, elsewhere)) as ended:  # at once, wherever an interrupt finds us
        for place, row, episode in ended:
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
    the agent really decided), `failure`, `log_returns` (what each day earned: a list, and no column of a CSV), the
    table's sha256, the version, and the agent's own `facts`. A failed episode has no score.
    """
    numbers = evaluate(episode.ledger, task.hold, task.cost_bps) if episode.failure is None else {}
    row = {
        "agent": player.label,
        "cell": task.cell if isinstance(task.cell, str) else str(task.cell),
        **days_of(task),
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
        "log_returns": list(episode.ledger.log_return),
        "data_sha256": task.window.load().sha256,
        "version": __version__,
    }
    # What an agent says of itself has columns of its own, and none of those above.
    return row | {name: fact for name, fact in episode.facts.items() if name not in row}


def days_of(task: Task) -> Row:
    """The days of a task, for its row."""
    window = task.window
    first, date = window.span()[0], window.load().date
    return {
        "ticker": window.ticker,
        "first_day": date[first],  # of the first decision
        "last_day": date[first + task.decisions],  # to whose close the last decision earns
    }
