"""Indicators of a series of closes, as charts show them: the value of a day comes from closes up to that day alone.

Each function takes closes (T,) and gives arrays (T,) in which a day with too few days before it is NaN. They agree
with TA-Lib to rounding.
"""

from collections.abc import Iterator

import numpy as np

from fintrading_gym.windows import Floats


def rsi(close: Floats, period: int = 14) -> Floats:
    """Relative strength index, 0..100: mean rise as a share of mean rise and mean fall, by Wilder's smoothing.

    The first value is the plain mean of `period` changes, and stands at day `period`. Where nothing has moved it is
    50: neither rise nor fall (TA-Lib gives 0 there, which would read as oversold).

    Source: Wilder, New Concepts in Technical Trading Systems (1978).
    """
    change = np.diff(close)
    rise, fall = (_smoothed(np.maximum(part, 0), period, 1 / period) for part in (change, -change))
    moved = rise + fall
    share = np.divide(rise, moved, out=np.where(np.isnan(moved), np.nan, 0.5), where=moved > 0)
    return np.concatenate([np.full(min(1, len(close)), np.nan), 100 * share])


def macd(close: Floats, fast: int = 12, slow: int = 26, signal: int = 9) -> tuple[Floats, Floats, Floats]:
    """Moving average convergence/divergence, in the unit of the closes: MACD, its signal line, their difference.

    Exponential means of weight 2 / (period + 1), each begun with a plain mean; the fast one begins where the slow one
    does. All three begin with the signal line, at day `slow + signal - 2`.

    Source: Appel, The Moving Average Convergence-Divergence Method (1979).
    """
    line = np.full(len(close), np.nan)
    line[slow - fast :] = _smoothed(close[slow - fast :], fast, 2 / (fast + 1))
    line -= _smoothed(close, slow, 2 / (slow + 1))
    lagging = np.full(len(close), np.nan)
    lagging[slow - 1 :] = _smoothed(line[slow - 1 :], signal, 2 / (signal + 1))
    line[np.isnan(lagging)] = np.nan
    return line, lagging, line - lagging


def bollinger(close: Floats, period: int = 20, width: float = 2.0) -> tuple[Floats, Floats, Floats]:
    """Bollinger bands, in the unit of the closes: upper, middle, lower.

    The middle is the mean of `period` closes, the others lie `width` of their standard deviations (ddof 0) from it.

    Source: Bollinger, Bollinger on Bollinger Bands (2001).
    """
    middle, spread = np.full(len(close), np.nan), np.full(len(close), np.nan)
    if len(close) >= period:
        last = np.lib.stride_tricks.sliding_window_view(close, period)
        middle[period - 1 :], spread[period - 1 :] = last.mean(axis=1), last.std(axis=1)
    return middle + width * spread, middle, middle - width * spread


def _smoothed(values: Floats, period: int, weight: float) -> Floats:
    """Exponential mean of this weight, begun with the plain mean of the first `period` values."""

    def means() -> Iterator[float]:
        mean = float(np.mean(values[:period]))
        yield mean
        for value in values[period:].tolist():
            mean += weight * (value - mean)
            yield mean

    smoothed = np.full(len(values), np.nan)
    if len(values) >= period:
        smoothed[period - 1 :] = np.fromiter(means(), np.float64)
    return smoothed
