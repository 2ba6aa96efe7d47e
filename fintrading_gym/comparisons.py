"""Two agents of a board against each other, and the ranks that all such comparisons leave open."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fintrading_gym import inference
from fintrading_gym.inference import ALPHA, FEWEST_PAIRS, SAME
from fintrading_gym.ranking import BoardTask, Interval, Place, Standing, episodes_by_task, place
from fintrading_gym.store import Row

Floats = NDArray[np.float64]
Key = tuple[Any, ...]  # a place, then the values of some columns


@dataclass(frozen=True)
class Comparison:
    """Two ranked agents on the tasks that the board has: `better` has the higher mean score, or they are equal.

    What a pair is depends on what varies. On a window where both agents play another episode at another seed, it is two
    episodes of the same seed, and the test says whether the agents differ *on these windows*. Where one of them plays
    the same at every seed (rules do, and a model that was run with one), its other episodes would be copies: a pair
    then is a window, the means over seeds on both sides, and it takes six windows to say anything. Episodes that differ
    in the persona alone are copies, or nearly so: they are one, with the mean of their scores.
    """

    better: str
    worse: str
    pair: str  # "episodes" (on some tasks at least) or "windows"
    pairs: int
    difference: float  # mean of the pairs' differences in score
    interval: Interval | None  # of it, Student's over the pairs within -1..1, not corrected for the others
    improvement: float  # probability that an episode of `better` beats one of `worse` on the same task
    improvement_interval: Interval | None
    windows: int  # that are independent: those of one ticker that share days count once
    windows_ahead: int  # in how many of them `better` has the higher mean
    p: float | None  # Wilcoxon's signed rank, two-sided; None: not tested, `why` says the reason
    p_holm: float | None  # corrected for all comparisons that were tested
    significant: bool  # p_holm <= 0.05, and the ranks agree with the means on who is better
    why: str


def independent_windows(rows: Iterable[Row]) -> dict[Place, int]:
    """The number of each place's window: those of one ticker that share days have one number.

    Windows of different tickers may share days too, and then move together; that is not seen here.
    """
    spans = {(row["ticker"], row["first_day"], row["last_day"], repr(place(row))): place(row) for row in rows}
    numbers: dict[Place, int] = {}
    of, until, number = "", "", -1
    for (ticker, first, last, _), where in sorted(spans.items()):
        if ticker != of or first >= until:  # a last day is only where the last return ends: another may begin on it
            of, until, number = ticker, last, number + 1
        until = max(until, last)
        numbers[where] = number
    return numbers


class Scores:
    """An agent's scores on a task: their mean, and the mean at each seed."""

    def __init__(self, by_seed: dict[Any, list[float]]):
        self.mean = float(np.concatenate(list(by_seed.values())).mean())
        self.at = {seed: float(np.mean(scores)) for seed, scores in by_seed.items()}
        self.each = np.array(list(self.at.values()))
        # Whether a seed makes another episode is seen, not believed: a stored policy plays one at every seed.
        self.vary = float(np.ptp(list(self.at.values()))) > SAME


class Played:
    """What an agent did on the board's tasks: the episodes that did not fail."""

    def __init__(self, agent: str, rows: Sequence[Row], tasks: set[BoardTask], windows: dict[Place, int]):
        self.agent = agent
        self.tasks = episodes_by_task([row for row in rows if row["failure"] is None], tasks)
        self.rows = list({id(row): row for its in self.tasks.values() for row in its}.values())
        self.windows = windows
        self._scores: dict[tuple[str, ...], dict[Key, Scores]] = {}
        self.varies = any(scores.vary for scores in self.scores("persona").values())

    def scores(self, *names: str) -> dict[Key, Scores]:
        """The scores by place and by these columns, and under each by seed, in an order that all agents share."""
        if names not in self._scores:  # it is asked for once by each other agent
            found: dict[Key, dict[Any, list[float]]] = {}
            for row in self.rows:
                key = (place(row), *(row[name] for name in names))
                found.setdefault(key, {}).setdefault(row["seed"], []).append(row["score"])
            self._scores[names] = {key: Scores(found[key]) for key in sorted(found, key=repr)}
        return self._scores[names]


def _compare(a: Played, b: Played, resamples: int) -> Comparison:
    """The two on their common tasks, not yet corrected for the other comparisons."""
    mine, others = (
        a.scores(),
        b.scores(),
    )  # by window: episodes of one seed that differ in the persona are hardly others
    tasks = [(a.windows[task[0]], mine[task], others[task]) for task in mine if task in others]
    episodes = [x.at[seed] - y.at[seed] for _, x, y in tasks if x.vary and y.vary for seed in x.at if seed in y.at]
    copied = [
        (window, x.mean - y.mean) for window, x, y in tasks if not (x.vary and y.vary and x.at.keys() & y.at.keys())
    ]
    differences = np.array([*episodes, *_means_by_window(copied)])
    if differences.mean() < 0:
        return _compare(b, a, resamples)

    wins = [(window, inference.improvement(x.each, y.each)) for window, x, y in tasks]
    wins_by_window = _means_by_window(wins)
    gap_by_window = _means_by_window([(window, x.mean - y.mean) for window, x, y in tasks])
    pair = "episodes" if episodes else "windows"
    p, why, ends = None, "", None
    if len(differences) >= FEWEST_PAIRS:
        p, favours = inference.signed_rank(differences)
        why = "its pairs' ranks do not favour who has the higher mean" if favours < 0 else ""
        if resamples and episodes:
            ends = inference.improvement_over_episodes([(x.each, y.each) for _, x, y in tasks], resamples)
        elif resamples:
            ends = inference.improvement_over_windows(wins_by_window, resamples)
    else:
        once = " and ".join(played.agent for played in (a, b) if not played.varies)
        reason = "" if episodes else f" ({once} played each task once)" if once else " (they have no seed in common)"
        why = f"{len(differences)} {pair}{reason}, and {FEWEST_PAIRS} are needed"
    return Comparison(
        better=a.agent,
        worse=b.agent,
        pair=pair,
        pairs=len(differences),
        difference=float(differences.mean()),
        interval=_interval(_bounded(inference.t_interval(differences))),
        improvement=float(np.mean([share for _, share in wins] if episodes else wins_by_window)),
        improvement_interval=_interval(ends),
        windows=len(gap_by_window),
        windows_ahead=int(np.count_nonzero(gap_by_window > SAME)),
        p=p,
        p_holm=None,
        significant=False,
        why=why,
    )


def compare_all(ranked: Sequence[Played], resamples: int) -> list[Comparison]:
    """Every two of the agents, with the p-values of those that could be tested corrected as one family.

    Args:
        ranked: the agents, best first.
        resamples: for the intervals of the probability of improvement; 0: none.
    """
    comparisons = [_compare(a, b, resamples) for a, b in combinations(ranked, 2)]
    adjusted = iter(inference.holm([c.p for c in comparisons if c.p is not None]))
    corrected = [c if c.p is None else replace(c, p_holm=next(adjusted)) for c in comparisons]
    return [replace(c, significant=c.p_holm is not None and c.p_holm <= ALPHA and not c.why) for c in corrected]


def _means_by_window(values: Iterable[tuple[int, float]]) -> Floats:
    found: dict[int, list[float]] = {}
    for window, value in values:
        found.setdefault(window, []).append(value)
    return np.array([np.mean(found[window]) for window in sorted(found)])


def open_ranks(s: Standing, comparisons: Sequence[Comparison], ranked: int) -> tuple[int | None, int | None]:
    """The ranks that the comparisons leave open: behind all that are significantly better, before all that are worse.

    As the tests hold together at 95 %, so do these intervals of all agents at once (Mogstad, Romano, Shaikh & Wilhelm
    2024, "Inference for Ranks"). A bootstrap of the ranks themselves would not do: of equal agents it shows the order
    of the sample again and again, and calls it certain.
    """
    if s.rank is None:
        return None, None
    better = sum(c.significant and c.worse == s.agent for c in comparisons)
    worse = sum(c.significant and c.better == s.agent for c in comparisons)
    return 1 + better, ranked - worse


def _bounded(ends: tuple[float, float] | None) -> tuple[float, float] | None:
    """Within what a difference of two scores can be: few pairs say nothing, and no more than that."""
    return ends and (max(ends[0], -1.0), min(ends[1], 1.0))


def _interval(ends: tuple[float, float] | None) -> Interval | None:
    return ends and Interval(*ends)
