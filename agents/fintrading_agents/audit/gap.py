"""What hiding names, dates and levels costs: the same stretches of days played masked and real, pair by pair."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from fintrading_agents.audit.intervals import mean
from fintrading_agents.audit.invariance import Play
from fintrading_gym.ledger import evaluate
from fintrading_gym.rollout import Episode, Player, Task
from fintrading_gym.windows import Window, find_window

NUMBERS = ("score", "cumulative_return", "excess", "coverage")


@dataclass(frozen=True)
class Pair:
    """A stretch of days, and what was scored on it, means over seeds."""

    window: Window
    real: dict[str, float]  # by NUMBERS
    hidden: dict[str, float]


def stretches(cells: Sequence[str], count: int, steps: int) -> list[Window]:
    """Of each cell `count` stretches of `steps` decisions, spread evenly, or as many as it holds without overlap."""
    found = []
    for cell in cells:
        window = find_window(cell)
        first, days = window.span()
        fitting = max((days - 1) // steps, 1)
        date = window.load().date[first : first + days]
        chosen = np.unique(np.linspace(0, fitting - 1, min(count, fitting)).astype(int)) * steps
        ends = [(date[k], date[min(k + steps, days - 1)]) for k in chosen.tolist()]
        found += [Window(window.ticker, begin, end, window.prices) for begin, end in ends]
    return found


def pairs(player: Player, windows: Sequence[Window], persona: str, seeds: int, identity: str, play: Play) -> list[Pair]:
    """Every stretch with identity="real" and with `identity`, by the same seeds."""
    task = Task(persona=persona, timesteps=None)
    tasks = [
        replace(task, cell=window, seed=seed, identity=level)
        for window, level, seed in product(windows, ("real", identity), range(seeds))
    ]
    episodes = iter(play(player, tasks))
    scored = [[_means([next(episodes) for _ in range(seeds)]) for _ in range(2)] for _ in windows]
    return [Pair(window, real, hidden) for window, (real, hidden) in zip(windows, scored, strict=True)]


def gap(paired: Sequence[Pair]) -> dict[str, Any]:
    """Of each number its mean with everything shown, with it hidden, and the paired difference, hidden - real."""
    return {
        name: {
            "real": mean([pair.real[name] for pair in paired]),
            "hidden": mean([pair.hidden[name] for pair in paired]),
            "difference": mean([pair.hidden[name] - pair.real[name] for pair in paired]),
        }
        for name in NUMBERS
    }


def _means(episodes: Sequence[Episode]) -> dict[str, float]:
    rows = []
    for episode in episodes:
        numbers = evaluate(episode.ledger)
        rows.append({**numbers, "score": episode.score, "coverage": numbers["discipline"]})
    return {name: float(np.mean([row[name] for row in rows])) for name in NUMBERS}
