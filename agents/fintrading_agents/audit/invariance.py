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
from fintrading_gym.windows import Floats, Window, find_window
from fintrading_gym.worlds import find_world

WORLDS = ("mirror", "shuffled", "reversed", "renamed")
OTHER_PATHS = WORLDS[:3]
AGAIN = "again"  # the real world once more, with other draws
OUTCOMES = (*ACTIONS, None)
BETS: dict[str | None, float] = {"buy": 1.0, "sell": -1.0}
PRIOR = 0.5  # added to the count of each outcome (Krichevsky and Trofimov), so that no divergence is infinite

Play = Callable[[Player, Sequence[Task]], list[Episode]]
Point = tuple[str, int]  # a cell, and a day of its window
Samples = Sequence[Decision | None]  # decisions on one day


def points(cells: Sequence[str], count: int, seed: int) -> list[Point]:
    """`count` days of the cells, in turn, drawn from the seed."""
    rng = random.Random(seed)
    drawn = [(cells[k % len(cells)], rng.random()) for k in range(count)]
    return [(cell, int(part * (find_window(cell).span()[1] - 1))) for cell, part in drawn]


def invariance(player: Player, asked: Sequence[Point], samples: int, identity: str, play: Play) -> dict[str, Any]:
    """One-day episodes, world by world against the real one.

    Of each of `worlds`:

    * `pc`, prediction consistency: share of decisions that stay the same. Low is good where the prices are
      others; where only the name is ("renamed"), high is.
    * `ci`, confidence invariance: 1 - mean change of the confidence where the decision stays. It is the stated
      one, or the share of the samples that decide so; None where there is neither, and where no decision stays.
    * `ids`, input dependency: mean Kullback-Leibler divergence of the decision's distribution in the real
      world from that in the other, in nats. It is that of repeated samples, each counted by its stated
      confidence where it has one, with half a count added to every outcome.

    Where there are several samples, the world "again" is the real one with other draws: what luck alone changes.

    And `foresight`, the covariance of decisions (buy +1, sell -1) with the sign of the next day's move: 1 where all
    come true, 0 by luck and for always the same; in the real world, in those of other paths, and the difference by
    day. An agent that reads has as much of it in the one as in the others.

    Args:
        player: opened.
        asked: the days.
        samples: decisions a day and world, by seeds 0, 1, ...
        identity: how much is shown.
        play: plays tasks.
    """
    others = (*((AGAIN,) if samples > 1 else ()), *WORLDS)
    tasks = [
        Task(_from(cell, day, world), seed=draw + samples * (world == AGAIN), timesteps=1, identity=identity)
        for world, (cell, day), draw in product(("real", *others), asked, range(samples))
    ]
    played = iter(list(zip(tasks, play(player, tasks), strict=True)))
    decided: dict[str, list[Samples]] = {}
    foresaw: dict[str, Floats] = {}
    for world in ("real", *others):
        days = [[next(played) for _ in range(samples)] for _ in asked]
        decided[world] = [[episode.decisions[0] for _, episode in day] for day in days]
        foresaw[world] = _foresight(decided[world], [day[0][0] for day in days])
    told = {}
    for world in others:
        pairs = list(zip(decided["real"], decided[world], strict=True))
        told[world] = {
            "pc": mean([_consistency(*pair) for pair in pairs], (0.0, 1.0)),
            "ci": _confidence_invariance(pairs),
            "ids": mean([_divergence(*pair) for pair in pairs], (0.0, np.inf)),
        }
    real, elsewhere = foresaw["real"], np.mean([foresaw[world] for world in OTHER_PATHS], axis=0)
    parts = {"real": real, "others": elsewhere, "difference": real - elsewhere}
    foresight = {name: mean(values.tolist()) for name, values in parts.items()}
    return {"worlds": told, "foresight": foresight}


def _from(cell: str, day: int, world: str) -> Window:
    """A day of the cell and the next, in a world that is made of the whole."""
    window = find_world(find_window(cell), "real" if world == AGAIN else world)
    date, first = window.load().date, window.span()[0] + day
    return Window(window.ticker, date[first], date[first + 1], window.load())


def _action(decision: Decision | None) -> str | None:
    return decision.action if decision else None


def _consistency(real: Samples, other: Samples) -> float:
    return float(np.mean([_action(a) == _action(b) for a, b in zip(real, other, strict=True)]))


def _foresight(decided: Sequence[Samples], tasks: Sequence[Task]) -> Floats:
    """Each day's part of the covariance between what was bet and which way the price then went."""
    bets = np.array([np.mean([BETS.get(_action(decision), 0.0) for decision in samples]) for samples in decided])
    went = np.array([np.sign(task.market()[0][0]) for task in tasks])
    parts: Floats = (bets - bets.mean()) * (went - went.mean())
    return parts


def _confidence_invariance(pairs: Iterable[tuple[Samples, Samples]]) -> dict[str, Any] | None:
    sure = [(_confidence(real), _confidence(other)) for real, other in pairs]
    stays = [1 - abs(a[1] - b[1]) for a, b in sure if a and b and a[0] == b[0]]
    return mean(stays, (0.0, 1.0)) if stays else None


def _confidence(samples: Samples) -> tuple[str, float] | None:
    """What most samples decide (of equally many, the first), and how sure they are of it; None: that is not known."""
    actions = [_action(decision) for decision in samples]
    most = max(actions, key=actions.count)
    if most is None:
        return None
    stated = [d.confidence for d in samples if d and d.action == most and d.confidence is not None]
    if stated:
        return most, float(np.mean(stated))
    return (most, actions.count(most) / len(actions)) if len(actions) > 1 else None


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
