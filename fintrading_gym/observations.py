"""What an agent sees on a day: the vector view and the text view of one and the same state."""

import math
import struct
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fintrading_gym import masking
from fintrading_gym.masking import Mask
from fintrading_gym.windows import Floats, Window

# What a persona adds to the text view: its stance while the episode's cumulative return is >= 0, and below.
PERSONAS = {
    "risk_seeking": ("risk-seeking: large swings are welcome where the gain may be large",) * 2,
    "risk_averse": ("risk-averse: keeping what you have comes before gaining more",) * 2,
    "adaptive": (
        "self-adaptive, today risk-seeking: large swings are welcome while your return is not below zero",
        "self-adaptive, today risk-averse: keep what you have while your return is below zero",
    ),
}
DETAILS = ("full", "brief")

BARS = ("open", "high", "low", "close", "volume")
TRENDS = {"3-day momentum": 3, "5-day return": 5, "20-day return": 20}  # name: trading days looked back
REMEMBERED = 5  # own decisions shown

# Own decisions as the vector view's columns hold them: -1 sell, 0 hold or none yet, +1 buy. An episode carries the
# last five packed, oldest first, and appends one a day.
SIGN = struct.Struct("f")
SIGNS = (SIGN.pack(-1.0), SIGN.pack(0.0), SIGN.pack(1.0))  # by action: sell, hold, buy
NONE_YET = SIGNS[1] * REMEMBERED
LIMIT = 10.0  # every number of the vector view is clipped to -LIMIT..LIMIT

# Factors that bring a column to the order of 1: a week of a volatile stock moves by some 10 %.
PRICE_SCALE, MONTH_SCALE, RETURN_SCALE = 10.0, 5.0, 5.0


class Sight(NamedTuple):
    """What the views of an environment are made of."""

    window: Window
    lookback: int  # days of bars
    detail: str  # of DETAILS
    identity: str  # of masking.IDENTITIES


# ------------------------------------------------------------------------------------ the vector view


def columns(lookback: int) -> dict[str, str]:
    """The vector view's columns in order: name -> what it holds. `_k` means k trading days ago."""
    ago = range(lookback - 1, -1, -1)
    what = {name: f"{PRICE_SCALE:g} ln({name} / today's close)" for name in BARS[:4]}
    what["volume"] = "ln((1 + volume) / (1 + median volume of the days shown))"
    bars = {f"{name}_{k}": what[name] for k in ago for name in BARS}
    trends = {
        "momentum_3": f"{PRICE_SCALE:g} x log return over 3 days",
        "return_5": f"{PRICE_SCALE:g} x log return over 5 days",
        "return_20": f"{MONTH_SCALE:g} x log return over 20 days",
        "history": "earlier days in the table, at most 20, / 20; what needs more days than there are is 0",
    }
    own = {
        "position": "-1 short, 0 flat, +1 long",
        "cumulative_return": f"{RETURN_SCALE:g} x sum of log returns earned in this episode",
        "decided": "decisions taken so far, at most 5, / 5",
    }
    decisions = {f"decision_{k}": "-1 sell, 0 hold or none yet, +1 buy" for k in range(REMEMBERED, 0, -1)}
    return bars | trends | own | decisions


@cache
def market_rows(window: Window, lookback: int) -> NDArray[np.float32]:
    """The vector view of each day as it is before the first decision: row i from bars up to day i.

    Returns:
        (days, len(columns(lookback))) float32, read-only; the player's own columns, last, are 0.
    """
    prices = window.load()
    start, days = window.span()
    rows = np.zeros((days, len(columns(lookback))))
    last = len(BARS) * lookback + len(TRENDS) + 1
    for i in range(days):
        t = start + i
        shown = slice(max(0, t - lookback + 1), t + 1)
        bars = np.zeros((lookback, len(BARS)))
        have = bars[lookback - (t + 1 - shown.start) :]  # days before the table stay 0
        for c, name in enumerate(BARS[:4]):
            have[:, c] = PRICE_SCALE * np.log(getattr(prices, name)[shown] / prices.close[t])
        have[:, 4] = np.log((1 + prices.volume[shown]) / (1 + np.median(prices.volume[shown])))
        rows[i, : bars.size] = bars.ravel()
        trends = [_log_return(prices.close, t, back) for back in TRENDS.values()]
        rows[i, bars.size : last] = np.array([*trends, min(t, 20) / 20]) * (PRICE_SCALE, PRICE_SCALE, MONTH_SCALE, 1.0)
    table = np.clip(rows, -LIMIT, LIMIT).astype(np.float32)
    table.flags.writeable = False  # shared by every environment on this window
    return table


# What depends on the player stands at the end of a row: position, cumulative return, decided, the five decisions.
OWN = 3 + REMEMBERED  # columns
_OWN = struct.Struct(f"3f{SIGN.size * REMEMBERED}s")
_OWN_AT = -_OWN.size
_pack_own = _OWN.pack_into
_DECIDED = [min(step, REMEMBERED) / REMEMBERED for step in range(REMEMBERED + 1)]


def vector_view(
    market_row: NDArray[np.float32], position: int, cumulative: float, step: int, recent: bytes
) -> NDArray[np.float32]:
    """One day's vector, a new (len(columns(lookback)),) float32 array.

    Args:
        market_row: the day's row of `market_rows`.
        position: held into this day: -1, 0 or +1.
        cumulative: sum of log returns earned so far.
        step: decisions taken so far.
        recent: the last five decisions, packed; see `SIGNS`.
    """
    row = market_row.copy()
    scaled = RETURN_SCALE * cumulative
    if not -LIMIT <= scaled <= LIMIT:
        scaled = LIMIT if scaled > 0 else -LIMIT
    decided = _DECIDED[step] if step < REMEMBERED else 1.0
    _pack_own(row, _OWN_AT, position, scaled, decided, recent)  # type: ignore[arg-type]
    return row


# -------------------------------------------------------------------------------------- the text view

POSITIONS = {-1: "short", 0: "flat", 1: "long"}
WORDS = dict(zip(SIGNS, ("sell", "hold", "buy"), strict=True))


@lru_cache(maxsize=128)
def market_texts(sight: Sight, first: int = 0) -> tuple[str, ...]:
    """The part of the text view that depends on the day alone, one text a day of the window.

    Args:
        sight: what is shown.
        first: the day of the episode's first decision, counted from the window's first. It makes a
            difference where the level of identity counts from it; the days before it have no text.
    """
    bars = masking.mask(sight.window, sight.lookback, sight.identity, first)
    start, days = sight.window.span()
    played = (_market_text(bars, start + i, sight.lookback, sight.detail) for i in range(first, days))
    return ("",) * first + tuple(played)


def _market_text(bars: Mask, t: int, lookback: int, detail: str) -> str:
    shown = range(max(0, t - lookback + 1), t + 1) if detail == "full" else ()
    head = f"{'date':10} {'open':>9} {'high':>9} {'low':>9} {'close':>9} {'volume':>12}\n" if shown else ""
    table = "".join(_bar(bars, d) for d in shown)
    trends = "".join(f"{name}: {_trend(bars.close, t, back)}\n" for name, back in TRENDS.items())
    return f"{bars.ticker} at the close of {bars.date[t]}\n{head}{table}{trends}"


def _trend(close: Floats, t: int, back: int) -> str:
    return percent_text(np.expm1(_log_return(close, t, back))) if t >= back else "n/a"


def _bar(bars: Mask, d: int) -> str:
    numbers = (price_text(getattr(bars, name)[d]) for name in BARS[:4])
    return f"{bars.date[d]:10} {' '.join(f'{n:>9}' for n in numbers)} {_volume(bars.volume[d]):>12}\n"


def text_view(
    market_text: str,
    stance: tuple[str, str],
    steps: int,
    position: int,
    cumulative: float,
    step: int,
    recent: bytes,
) -> str:
    """One day's text; the arguments are those of `vector_view`, with the day's entry of `market_texts`.

    Args:
        market_text: what depends on the day alone.
        stance: the persona's entry of `PERSONAS`.
        steps: decisions in this episode.
    """
    first = SIGN.size * max(REMEMBERED - step, 0)
    words = [WORDS[recent[at : at + SIGN.size]] for at in range(first, len(recent), SIGN.size)]
    return (
        f"{market_text}decisions taken: {step} of {steps}\n"
        f"your position: {POSITIONS[position]}\n"
        f"your return so far: {percent_text(cumulative)} (sum of log returns)\n"
        f"your last decisions, oldest first: {', '.join(words) or 'none yet'}\n"
        f"your profile: {stance[cumulative < 0]}\n"
    )


def price_text(price: float) -> str:
    """A price as the views show it."""
    if price >= 10:
        return f"{price:.2f}"
    return f"{price:.{max(4, 4 - math.floor(math.log10(price)))}f}"  # five digits that say something


def _volume(shares: float) -> str:
    return f"{shares:.0f}" if shares >= 1000 else f"{shares:.6g}"


def percent_text(fraction: float) -> str:
    """A fraction as the views show it."""
    return f"{round(100 * fraction, 2) + 0.0:+.2f} %"  # + 0.0 turns -0.0 into 0.0


def _log_return(close: Floats, t: int, back: int) -> float:
    return float(np.log(close[t] / close[t - back])) if t >= back else 0.0


def text_limit(lookback: int) -> int:
    """Longest text in characters, for the observation space."""
    return 1200 + (10 + 4 * 20 + 21) * lookback  # a date, four prices and a volume, the longest that a table may hold
