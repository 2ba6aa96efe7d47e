"""Agents x tasks x seeds: every episode of a board, played, as a row."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from fintrading_gym import __version__
from fintrading_gym.errors import RunStopped
from fintrading_gym.ledger import evaluate
from fintrading_gym.replies import Decision
from fintrading_gym.rollout import Agent, Episode, OnDay, Player, Task
from fintrading_gym.store import Row, Store, key_of, recipe_of

AT_ONCE = 12  # episodes of agents that wait, by default: the evaluation's tasks


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
            return played(opened[id(player)], task, partial(note, place))

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


def lacking(board: Store, episodes: Iterable[tuple[Player, Task]]) -> list[tuple[Player, Task]]:
    """Those of the episodes that a board does not hold, or holds as failed."""
    there = board.finished()
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


def played(player: Player, task: Task, on_day: OnDay | None = None) -> tuple[Row, Episode]:
    """One episode, played, and its row."""
    episode = player.play(task, on_day)
    return as_row(player, task, episode), episode


def as_row(player: Player, task: Task, episode: Episode) -> Row:
    """An episode that the player has played as a row of the board.

    It holds the agent and the task, `score` and everything `ledger.evaluate` gives, `coverage` (share of days on which
    the agent really decided), `failure`, `log_returns` (what each day earned: a list, and no column of a CSV), the
    table's sha256, the version, and the agent's own `facts`. A failed episode has no score.
    """
    numbers = evaluate(episode.ledger, task.hold, task.cost_bps) if episode.failure is None else {}
    window = task.window
    first, prices = window.span()[0], window.load()
    row = {
        "agent": player.label,
        "cell": task.cell if isinstance(task.cell, str) else str(task.cell),
        "ticker": window.ticker,
        "first_day": prices.date[first],  # of the first decision
        "last_day": prices.date[first + task.decisions],  # to whose close the last decision earns
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
        "data_sha256": prices.sha256,
        "version": __version__,
    }
    # What an agent says of itself has columns of its own, and none of those above.
    return row | {name: fact for name, fact in episode.facts.items() if name not in row}
