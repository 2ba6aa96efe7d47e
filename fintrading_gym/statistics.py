"""What the rows of a board allow to conclude: intervals, comparisons of two agents, ranks. Needs the extra `stats`."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fintrading_gym.leaderboard import Row
from fintrading_gym.ranking import (
    MEASURES,
    Interval,
    Place,
    Standing,
    board_tasks,
    by_agent,
    episodes_by_task,
    place,
    rank,
    task_mean,
)

Floats = NDArray[np.float64]

RESAMPLES = 2000
# Columns, beside the agent, in which two tries of one agent can differ: what it was shown, and how it was asked.
SETTINGS = ("identity", "detail", "context", "structured", "temperature", "prompt_sha256", "options")


@dataclass(frozen=True)
class Comparison:
    """Two ranked agents on the tasks that the board has: `better` has the higher mean score, or they are equal.

    What a pair is depends on what varies. Where both agents play another episode at another seed, it is two episodes
    of the same task and seed, and the test says whether the agents differ *on these windows*. Where one of them plays
    a task once (rules do; so does a model that was run with one seed), its other episodes would be copies: a pair then
    is a window, the means over seeds and personas on both sides, and it takes six windows to say anything. An agent
    that ignores the persona is compared with the mean over the other's personas.
    """

    better: str
    worse: str
    pair: str  # "episodes" or "windows"
    pairs: int
    difference: float  # mean of the pairs' differences in score
    interval: Interval | None  # of it, Student's over the pairs, not corrected for the other comparisons
    improvement: float  # probability that an episode of `better` beats one of `worse` on the same task
    improvement_interval: Interval | None
    windows: int  # that are independent: those of one ticker that share days count once
    windows_ahead: int  # in how many of them `better` has the higher mean
    p: float | None  # Wilcoxon's signed rank, two-sided; None: not tested, `why` says the reason
    p_holm: float | None  # corrected for all comparisons that were tested
    significant: bool  # p_holm <= 0.05, and the ranks agree with the means on who is better
    why: str


@dataclass(frozen=True)
class Statistics:
    """A board in numbers, ready for JSON by `dataclasses.asdict`."""

    standings: tuple[Standing, ...]  # of `ranking.rank`, every field filled that can be
    comparisons: tuple[Comparison, ...]  # of every two ranked agents
    trials: int  # agents and settings that were tried, for the deflated Sharpe ratio
    windows: int  # independent windows


def analyse(rows: Iterable[Row], trials: int | None = None, resamples: int = RESAMPLES) -> Statistics:
    """Everything that a board's rows allow to conclude.

    Args:
        rows: of `leaderboard.run`, all in one world. Their `log_returns` may be missing: then an agent with one seed
            has no interval, and nobody a deflated Sharpe ratio.
        trials: how many agents and settings were tried, if more than the rows show.
        resamples: of each bootstrap; 0: no intervals that need one.

    Raises:
        MissingExtra: scipy or arch is not installed.
        ValueError: the rows are of several worlds.
    """
    raise NotImplementedError
