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
    """A part of scipy, when it is used: `scipy.special` costs a tenth of what `scipy.stats` does.

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
    quantile = extra("scipy.special").stdtrit(len(values) - 1, (1 + LEVEL) / 2)
    half = float(quantile * np.std(values, ddof=1) / math.sqrt(len(values)))
    mean = float(np.mean(values))
    return mean - half, mean + half


def percentiles(draws: Floats) -> Ends:
    """The middle `LEVEL` of what was drawn."""
    low, high = np.quantile(draws, ((1 - LEVEL) / 2, (1 + LEVEL) / 2)).tolist()
    return low, high


def resampled_days(series: Floats, count: int, stream: int = 0) -> NDArray[np.int64]:
    """Days of a stationary block bootstrap (Politis & Romano 1994), (count, T) indices.

    Blocks have random lengths around the mean over the series of `block_length`. The draws are those of
    `arch.bootstrap.StationaryBootstrap`, whose import takes longer than a board does.

    Args:
        series: (k, T) of the same T days, at least FEWEST_DAYS.
        count: of resamples.
        stream: another one draws other days.
    """
    days = series.shape[1]
    lengths = [block_length(its) for its in series if np.ptp(its) > SAME] or [1.0]
    block = float(np.clip(np.nan_to_num(lengths, nan=1.0), 1.0, days).mean())
    rng = np.random.default_rng([0, stream])
    drawn = [(rng.integers(days, size=days), rng.random(days)) for _ in range(count)]
    first, chance = np.stack([day for day, _ in drawn]), np.stack([u for _, u in drawn])
    begins = chance <= 1 / block  # a block
    begins[:, 0] = True
    since = np.maximum.accumulate(np.where(begins, np.arange(days), 0), axis=1)  # where its block began
    indices: NDArray[np.int64] = (np.take_along_axis(first, since, axis=1) + np.arange(days) - since) % days
    return indices


def block_length(series: Floats) -> float:
    """The mean length of blocks that keeps a series' memory, (T,) to days; NaN where that cannot be told.

    Formula: (2 G**2 / D)**(1/3) T**(1/3), G = sum lam(k/m) |k| R(k), D = 2 (sum lam(k/m) R(k))**2 over -m <= k <= m,
    R the autocovariance, lam(x) = 1 up to 1/2 and 2 (1 - x) beyond; m is twice the lag after which K autocorrelations
    in a row are none; at most min(3 sqrt(T), T / 3).
    Source: Politis & White (2004), "Automatic Block-Length Selection for the Dependent Bootstrap", with the correction
    of 2009; K and the longest lag as in `arch.bootstrap.optimal_block_length`.
    """
    days = len(series)
    apart, in_a_row = series - series.mean(), max(5, int(math.log10(days)))
    longest = math.ceil(math.sqrt(days)) + in_a_row
    products = np.array([apart[k:] @ apart[: days - k] for k in range(longest + 1)])
    # Of k's correlation both halves lack one more day, which is how Patton's program and arch take it.
    sizes = np.array([apart[k:] @ apart[k:] * (apart[: days - k] @ apart[: days - k]) for k in range(1, longest + 2)])
    with np.errstate(all="ignore"):  # a series that is constant but for a day divides 0 by 0, and has no length
        none = np.abs(products) / np.sqrt(sizes) < 2 * math.sqrt(math.log10(days) / days)
        quiet = (k for k in range(longest + 1 - in_a_row) if none[k : k + in_a_row].all())
        widest = min(2 * max(next(quiet, longest), 1), longest)
        lags = np.arange(1, widest + 1)
        weighted = 2 * np.minimum(1, 2 * (1 - lags / widest)) * products[1 : widest + 1] / days
        spread = products[0] / days + weighted.sum()
        length = np.cbrt((weighted @ lags) ** 2 / spread**2 * days)
    return float(np.minimum(length, math.ceil(min(3 * math.sqrt(days), days / 3))))


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
    _, place, tied = np.unique(np.abs(apart), return_inverse=True, return_counts=True)
    ranks = (2 * np.cumsum(tied) - tied + 1)[place]  # twice the ranks: whole numbers
    gained, whole = int(ranks[apart > 0].sum()), int(ranks.sum())
    if len(apart) > EXACT:
        p = float(extra("scipy.stats").wilcoxon(apart, method="asymptotic", correction=True).pvalue)
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
    mean, deviation = returns.mean(), returns.std()
    apart = (returns - mean) / deviation
    return float(mean / deviation), float(np.mean(apart**3)), float(np.mean(apart**4))


def _wins(x: Floats, y: Floats) -> Floats:
    """(n, m): 1 where an episode of x beats one of y, 0 where it loses, a half where neither does."""
    gap = x[:, None] - y[None, :]
    won: Floats = np.where(np.abs(gap) < SAME, 0.5, gap > 0)
    return won
