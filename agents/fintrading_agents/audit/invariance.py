"""Whether decisions follow from what is shown: PC, CI and IDS over counterfactual worlds (arXiv 2510.07920)."""

import random
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fintrading_agents.audit.intervals import mean
from fintrading_gym.replies import ACTIONS, Decision
from fintrading_gym.rollout import Episode, Player, Task
from fintrading_gym.windows import Window, find_window
from fintrading_gym.worlds import find_world

WORLDS = ("mirror", "shuffled", "reversed", "renamed")
OUTCOMES = (*ACTIONS, None)
PRIOR = 0.5  # added to the count of each outcome (Krichevsky and Trofimov), so that no divergence is infinite

Play = Callable[[Player, Sequence[Task]], list[Episode]]
Point = tuple[str, int]  # a cell, and a day of its window


def points(cells: Sequence[str], count: int, seed: int) -> list[Point]:
    """`count` days of the cells, in turn, drawn from the seed."""
    rng = random.Random(seed)
    drawn = [(cells[k % len(cells)], rng.random()) for k in range(count)]
    return [(cell, int(part * (find_window(cell).span()[1] - 1))) for cell, part in drawn]


def invariance(player: Player, asked: Sequence[Point], samples: int, identity: str, play: Play) -> dict[str, Any]:
    """PC, CI and IDS of one-day episodes, world by world against the real one.

    * `pc`, prediction consistency: share of decisions that stay the same. Low is good where the prices are
      others; where only the name is ("renamed"), high is.
    * `ci`, confidence invariance: 1 - mean change of the stated confidence where the decision stays; None
      where none is stated.
    * `ids`, input dependency: mean Kullback-Leibler divergence of the decision's distribution in the real
      world from that in the other, in nats. It is that of repeated samples, each counted by its stated
      confidence where it has one, with half a count added to every outcome.

    Args:
        player: opened.
        asked: the days.
        samples: decisions a day and world, by seeds 0, 1, ...
        identity: how much is shown.
        play: plays tasks.
    """
    told = {}
    worlds = ("real", *WORLDS)
    tasks = [
        Task(_from(cell, day, world), seed=seed, timesteps=1, identity=identity)
        for world, (cell, day), seed in product(worlds, asked, range(samples))
    ]
    decisions = iter([episode.decisions[0] for episode in play(player, tasks)])
    by_world = {world: [[next(decisions) for _ in range(samples)] for _ in asked] for world in worlds}
    for world in WORLDS:
        pairs = list(zip(by_world["real"], by_world[world], strict=True))
        told[world] = {
            "pc": mean([_consistency(*pair) for pair in pairs], (0.0, 1.0)),
            "ci": _confidence_invariance(pairs),
            "ids": mean([_divergence(*pair) for pair in pairs], (0.0, np.inf)),
        }
    return told


def _from(cell: str, day: int, world: str) -> Window:
    """A day of the cell and the next, in a world that is made of the whole."""
    window = find_world(find_window(cell), world)
    date, first = window.load().date, window.span()[0] + day
    return Window(window.ticker, date[first], date[first + 1], window.load())


Samples = Sequence[Decision | None]


def _action(decision: Decision | None) -> str | None:
    return decision.action if decision else None


def _consistency(real: Samples, other: Samples) -> float:
    return float(np.mean([_action(a) == _action(b) for a, b in zip(real, other, strict=True)]))


def _confidence_invariance(pairs: Iterable[tuple[Samples, Samples]]) -> float | None:
    changes = [
        abs(a.confidence - b.confidence)
        for real, other in pairs
        for a, b in zip(real, other, strict=True)
        if a and b and a.action == b.action and a.confidence is not None and b.confidence is not None
    ]
    return 1 - float(np.mean(changes)) if changes else None


def _divergence(real: Samples, other: Samples) -> float:
    p, q = _distribution(real), _distribution(other)
    return float((p * np.log(p / q)).sum())


def most_ids(samples: int) -> float:
    """The largest IDS that so many decisions a day can show: all one way in one world, all another in the other."""
    return _divergence([Decision("buy")] * samples, [Decision("sell")] * samples)


def _distribution(samples: Samples) -> NDArray[np.float64]:
    """Over `OUTCOMES`. A decision of stated confidence leaves the rest of its count to the other actions."""
    counts = np.full(len(OUTCOMES), PRIOR)
    for decision in samples:
        outcome = OUTCOMES.index(decision.action if decision else None)
        sure = 1.0
        if decision and decision.action and decision.confidence is not None:
            sure = decision.confidence
            counts[: len(ACTIONS)] += (1 - sure) / (len(ACTIONS) - 1)
            counts[outcome] -= (1 - sure) / (len(ACTIONS) - 1)
        counts[outcome] += sure
    whole: NDArray[np.float64] = counts / counts.sum()
    return whole
