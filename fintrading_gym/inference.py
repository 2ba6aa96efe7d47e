"""What numbers allow to conclude: arrays in, numbers out, nothing of a board. Some of it needs the extra `stats`.

A number that cannot be had is None, never NaN. Everything drawn is drawn from a fixed seed.
"""

import math
from collections.abc import Sequence
from importlib import import_module
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fintrading_gym.errors import MissingExtra

Floats = NDArray[np.float64]
Ends = tuple[float, float]

LEVEL = 0.95  # of every interval
ALPHA = 0.05  # of a family of tests
FEWEST_PAIRS = 6  # 2 / 2**5 > ALPHA: five pairs are never significant, whatever they are
EXACT = 200  # pairs; more would take a moment
FEWEST_DAYS = 10  # below it a block's length cannot be told
SAME = 1e-9  # scores that differ by less are equal: they are sums of the same numbers in another order
EULER = 0.5772156649015329


def extra(module: str) -> Any:
    """`scipy.stats` or `arch.bootstrap`, when it is used.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as fault:
        raise MissingExtra("What a board allows to conclude", "stats") from fault


def t_interval(values: Sequence[float] | Floats) -> Ends | None:
    """Student's interval of a mean of independent values; None below two of them, or when all are equal.

    Equal values are no sign of certainty: they come from an agent that ignores what is varied.
    """
    if len(values) < 2 or np.ptp(values) < SAME:
        return None
    half = (
        extra("scipy.stats").t.ppf((1 + LEVEL) / 2, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))
    )
    mean = float(np.mean(values))
    return mean - float(half), mean + float(half)


def percentiles(draws: Floats) -> Ends:
    """The middle `LEVEL` of what was drawn."""
    low, high = np.quantile(draws, ((1 - LEVEL) / 2, (1 + LEVEL) / 2)).tolist()
    return low, high


def resampled_days(series: Floats, count: int, stream: int = 0) -> NDArray[np.int64]:
    """Days of a stationary block bootstrap (Politis & Romano 1994), (count, T) indices.

    Blocks have random lengths around the one of Politis & White (2004, corrected 2009), the mean over the series.

    Args:
        series: (k, T) of the same T days, at least FEWEST_DAYS.
        count: of resamples.
        stream: another one draws other days.
    """
    arch = extra("arch.bootstrap")
    varying = series[np.ptp(series, axis=1) > SAME]
    with np.errstate(all="ignore"):  # a series that is constant but for a day divides 0 by 0, and has no length
        lengths = arch.optimal_block_length(varying.T)["stationary"].to_numpy() if len(varying) else np.ones(1)
    days = series.shape[1]
    block = float(np.clip(np.nan_to_num(lengths, nan=1.0), 1.0, days).mean())
    drawn = arch.StationaryBootstrap(block, np.arange(days), seed=np.random.default_rng([0, stream]))
    return np.stack([drawn.update_indices() for _ in range(count)])


def signed_rank(differences: Floats) -> tuple[float, int]:
    """Wilcoxon's signed-rank test that differences lie symmetrically around 0.

    Differences of 0 are left out, and equal sizes share their mean rank. Exact, with ties too, up to EXACT
    differences (scipy is so without ties only, or by going through all signs); beyond it scipy's approximation.

    Returns:
        The two-sided p, and the sign of the rank sum: 1, -1, or 0.
    """
    apart = np.round(differences / SAME) * SAME  # so that equal differences are ties
    apart = apart[apart != 0]
    if not len(apart):
        return 1.0, 0
    stats = extra("scipy.stats")
    ranks = np.rint(2 * stats.rankdata(np.abs(apart))).astype(int)  # twice the ranks: whole numbers
    gained, whole = int(ranks[apart > 0].sum()), int(ranks.sum())
    if len(apart) > EXACT:
        p = float(stats.wilcoxon(apart, method="asymptotic", correction=True).pvalue)
    else:
        p = 2 * _at_most(min(gained, whole - gained), ranks)
    return min(p, 1.0), int(np.sign(2 * gained - whole))


def _at_most(gained: int, ranks: NDArray[np.int64]) -> float:
    """The probability that fair coins gain that much of the ranks or less."""
    chance = np.zeros(gained + 1)  # of each sum
    chance[0] = 1.0
    for rank in ranks:
        halved = chance / 2
        chance = halved.copy()
        chance[rank:] += halved[:-rank]
    return float(chance.sum())


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of a family as Holm (1979) adjusts them: one of them below 0.05 by chance is a 5 % event."""
    order = sorted(range(len(p_values)), key=lambda k: p_values[k])
    adjusted, largest = [0.0] * len(order), 0.0
    for done, k in enumerate(order):
        largest = max(largest, min((len(order) - done) * p_values[k], 1.0))
        adjusted[k] = largest
    return adjusted


def improvement(x: Floats, y: Floats) -> float:
    """How often an episode of x, (n,) scores of one task, beats one of y, (m,); a draw is half a win.

    The probability of improvement is the mean of it over tasks: Agarwal et al. (2021), "Deep Reinforcement Learning at
    the Edge of the Statistical Precipice".
    """
    return float(_wins(x, y).mean())


def improvement_over_episodes(tasks: Sequence[tuple[Floats, Floats]], count: int) -> Ends:
    """The interval of its mean over tasks where episodes vary: each task's are drawn anew, as that paper does it."""
    draws = np.zeros(count)
    for k, (x, y) in enumerate(tasks):
        rng = np.random.default_rng([1, k])
        mine, others = (rng.multinomial(len(s), [1 / len(s)] * len(s), count) / len(s) for s in (x, y))
        draws += np.einsum("bi,ij,bj->b", mine, _wins(x, y), others, optimize=True)
    return percentiles(draws / len(tasks))


def improvement_over_windows(each: Floats, count: int) -> Ends:
    """The same where an agent plays a window once: it is the windows, (n,) of them, that are drawn anew."""
    rng = np.random.default_rng(2)
    return percentiles(each[rng.integers(len(each), size=(count, len(each)))].mean(axis=1))


def best_of_luck(variance: float, trials: int) -> float:
    """The Sharpe ratio that the best of some tries without any skill is expected to have.

    Formula: sqrt(V) ((1 - g) z(1 - 1/N) + g z(1 - 1/(N e))), g Euler's constant, z the normal quantile; 0 of one try.
    Source: Bailey & Lopez de Prado (2014), "The Deflated Sharpe Ratio", eq. 1.

    Args:
        variance: of the Sharpe ratios over the tries.
        trials: how many there were, N; as many as were independent, or more to be on the safe side.
    """
    if trials < 2:
        return 0.0
    z = NormalDist().inv_cdf
    return math.sqrt(variance) * ((1 - EULER) * z(1 - 1 / trials) + EULER * z(1 - 1 / (trials * math.e)))


def deflated_sharpe(sharpe: float, days: int, skew: float, kurtosis: float, to_beat: float) -> float | None:
    """The probability that a Sharpe ratio is really above `to_beat`; None below two days.

    Formula: Phi((SR - SR0) sqrt(T - 1) / sqrt(1 - skew SR + (kurtosis - 1)/4 SR**2)).
    Source: Bailey & Lopez de Prado (2014), eq. 2, SR0 being `best_of_luck`.

    Args:
        sharpe: a day's, not annualised.
        days: how many it is of, T.
        skew: of the days' returns.
        kurtosis: of the same, 3 for the normal distribution.
        to_beat: SR0, a day's.
    """
    spread = 1 - skew * sharpe + (kurtosis - 1) / 4 * sharpe**2
    if days < 2 or spread <= 0:
        return None
    return NormalDist().cdf((sharpe - to_beat) * math.sqrt((days - 1) / spread))


def moments(returns: Floats) -> tuple[float, float, float] | None:
    """A day's Sharpe ratio, skewness and kurtosis of returns; None where they do not vary.

    All with ddof 0, so that they are the same when all days are counted twice.
    """
    if len(returns) < 2 or np.ptp(returns) < SAME:
        return None
    stats = extra("scipy.stats")
    sharpe = float(returns.mean() / returns.std())
    return sharpe, float(stats.skew(returns)), float(stats.kurtosis(returns, fisher=False))


def _wins(x: Floats, y: Floats) -> Floats:
    """(n, m): 1 where an episode of x beats one of y, 0 where it loses, a half where neither does."""
    gap = x[:, None] - y[None, :]
    won: Floats = np.where(np.abs(gap) < SAME, 0.5, gap > 0)
    return won
