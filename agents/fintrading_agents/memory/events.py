"""What a stock's own bars tell that is worth remembering: gaps, streaks, new highs and lows, volatility, drawdowns.

All is told in per cent, so that nothing hangs on the level of prices, which a masked view changes.
"""

from typing import NamedTuple, Protocol

import numpy as np

from fintrading_gym.windows import Floats

USUAL = 20  # days whose returns say what a usual move is
GAP, MOVE = 1.0, 2.0  # in such moves: the least gap at the open, and the least move of a day
STREAKS = (3, 5, 8, 13)  # days in a row
SPANS = (250, 60, 20)  # days of which a close may be the highest or lowest
RESTLESS = 1.5  # ratio of the last USUAL days' moves to those of the BEFORE days before
BEFORE = 60
STEP = 0.1  # of a drawdown
YEAR = 250  # days in which the peak is looked for


class Bars(Protocol):
    """Adjusted bars of T days at one level of identity, such as a `masking.Mask`."""

    @property
    def open(self) -> Floats:
        """(T,)."""

    @property
    def close(self) -> Floats:
        """(T,)."""


class Event(NamedTuple):
    """One thing that was known at a day's close."""

    kind: str  # of constants.LAYER_OF
    text: str


def events(bars: Bars, t: int) -> list[Event]:
    """What happened on day t, from the bars up to it; nothing on most days."""
    if t < 1:
        return []
    close, opened = bars.close[: t + 1], float(bars.open[t])
    moves = np.diff(np.log(close))  # (t,), the last is today's
    found = [_day(moves, float(np.log(opened / close[-2]))), _streak(moves), _extreme(close), _volatility(moves)]
    return [event for event in (*found, _drawdown(close)) if event]


def _day(moves: Floats, gap: float) -> Event | None:
    """A gap at the open, or a day of a large move."""
    if len(moves) <= USUAL:
        return None
    usual, today = float(np.std(moves[-USUAL - 1 : -1])), float(moves[-1])
    if usual > 0 and abs(gap) >= GAP * usual:
        then = f"{_rose(today - gap)} {_percent(today - gap)} from there"
        return Event("gap", f"opened {_percent(gap)} {'above' if gap > 0 else 'below'} the last close, {then}")
    if usual > 0 and abs(today) >= MOVE * usual:
        return Event("move", f"{_rose(today)} {_percent(today)} in a day, {abs(today) / usual:.1f} times a usual move")
    return None


def _streak(moves: Floats) -> Event | None:
    signs = np.sign(moves)
    other = np.flatnonzero(signs != signs[-1])
    days = len(signs) - 1 - int(other[-1]) if len(other) else len(signs)
    if not signs[-1] or days not in STREAKS:
        return None
    total = float(moves[-days:].sum())
    return Event("streak", f"{_rose(total)} {days} days in a row, {_percent(total)} in all")


def _extreme(close: Floats) -> Event | None:
    """A new high or low, of the longest span of which yesterday's close was none."""
    for days in SPANS:
        for word, place in (("highest", np.argmax), ("lowest", np.argmin)):
            if len(close) > days and place(close[-days:]) == days - 1 and place(close[-days - 1 : -1]) < days - 1:
                return Event(f"extreme of {days} days", f"closed at its {word} in {days} days")
    return None


def _volatility(moves: Floats) -> Event | None:
    """The moves of a month became much larger or smaller than those before, for the first time in a month."""
    if len(moves) < BEFORE + 2 * USUAL:
        return None
    now = _ratio(moves)
    if 1 / RESTLESS < now < RESTLESS:
        return None
    restless = now >= RESTLESS
    earlier = (_ratio(moves[:-back]) for back in range(1, USUAL))
    if any(ratio >= RESTLESS if restless else ratio <= 1 / RESTLESS for ratio in earlier):
        return None
    usual, word = _percent(float(np.std(moves[-USUAL:]))), "restless" if restless else "calm"
    return Event("volatility", f"became {word}: usual moves of {usual}, {now:.1f} times those before")


def _ratio(moves: Floats) -> float:
    before = float(np.std(moves[-USUAL - BEFORE : -USUAL]))
    return float(np.std(moves[-USUAL:])) / before if before else 1.0


def _drawdown(close: Floats) -> Event | None:
    """The fall from the peak passes a further STEP for the first time since that peak."""
    year = close[-YEAR:]
    since = year[int(np.argmax(year)) :]  # the peak and the days after it
    depth = 1 - since / since[0]
    steps = np.floor(depth / STEP)
    if len(steps) < 2 or steps[-1] <= steps[:-1].max():
        return None
    return Event("drawdown", f"stood {depth[-1] * 100:.0f} % below its highest close of the year")


def _rose(log_return: float) -> str:
    return "rose" if log_return >= 0 else "fell"


def _percent(log_return: float) -> str:
    return f"{abs(float(np.expm1(log_return))) * 100:.1f} %"
