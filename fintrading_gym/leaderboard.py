"""Agents x tasks x seeds, and the table that ranks them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fintrading_gym import __version__
from fintrading_gym.ledger import evaluate
from fintrading_gym.rollout import Player, Task

MIN_COVERAGE = 0.95  # of the days an agent must decide itself, or its score is the environment's holds
AVERAGED = ("score", "cumulative_return", "excess", "regret", "luck", "sharpe_ratio", "max_drawdown", "coverage")

Row = dict[str, Any]


def plan(players: Iterable[Player], tasks: Iterable[Task]) -> list[tuple[Player, Task]]:
    """Every episode to play: tasks that differ only in what a player ignores are played once."""
    episodes = []
    for player in players:
        seen = set()
        for task in tasks:
            key = (task.cell, player.traits.uses_persona and task.persona, player.traits.uses_seed and task.seed)
            if key not in seen:
                seen.add(key)
                episodes.append((player, task))
    return episodes


def run(episodes: Iterable[tuple[Player, Task]]) -> Iterator[Row]:
    """Play the episodes one by one; a row each, as it ends.

    A row holds the agent and the task, `score` and everything `ledger.evaluate` gives, `coverage`
    (share of days on which the agent really decided), `failure`, the table's sha256, the version, and the agent's
    own `facts`. A failed episode has no score.
    """
    for player, task in episodes:
        yield row_of(player, task)


def row_of(player: Player, task: Task) -> Row:
    """One episode as a row; see `run`."""
    episode = player.play(task)
    numbers = evaluate(episode.ledger, task.hold, task.cost_bps) if episode.failure is None else {}
    return {
        "agent": player.name,
        "cell": task.cell if isinstance(task.cell, str) else str(task.cell),
        "persona": task.persona if player.traits.uses_persona else None,
        "seed": task.seed if player.traits.uses_seed else None,
        "timesteps": task.timesteps,
        "hold": task.hold,
        "fill": task.fill,
        "cost_bps": task.cost_bps,
        **numbers,
        "score": episode.score,
        "coverage": numbers.get("discipline", 0.0),
        "failure": episode.failure,
        "data_sha256": task.window.load().sha256,
        "version": __version__,
        **episode.facts,
    }


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


def rank(rows: Iterable[Row], unranked: Iterable[str] = ()) -> list[Standing]:
    """The agents, best mean score first, those without a rank last.

    Args:
        rows: of `run`.
        unranked: agents that know the future.
    """
    by_agent: dict[str, list[Row]] = {}
    for row in rows:
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
    elif means["coverage"] < MIN_COVERAGE:
        why = f"decided only {means['coverage']:.0%} of its days, and {MIN_COVERAGE:.0%} are needed"
    cells = {cell: float(np.mean(scores)) for cell, scores in by_cell.items()}
    return Standing(agent, None, why, len(rows), means, spread, cells)
