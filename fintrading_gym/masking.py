"""How much the text view tells of whom it shows, and when: the levels of identity."""

import hashlib
from dataclasses import dataclass, replace
from functools import cache, lru_cache

import numpy as np

from fintrading_gym.errors import lookup
from fintrading_gym.windows import Floats, Prices, Window

# Each level hides what the one before it hides, and more.
IDENTITIES = {
    "real": "ticker, dates, prices and volumes as they are",
    "names": "the ticker is Company-001",
    "names+dates": "and a date is Day N, counted in trading days from the first one shown",
    "masked": "and the first close shown is 100, the median of the first volumes shown 1",
    "coarse": "and prices are rounded to 0.5 %, volumes to 5 %, the agent's own return to 0.5 points",
}
ALIASES = {"off": "real", "full": "masked"}  # how papers on guards call two of them
DATED = ("real", "names")
SCALED = ("masked", "coarse")

COMPANY = "Company-001"  # whoever is traded; the free-text guard gives its primary company the same token
FIRST_CLOSE = 100.0
# Steps of the natural logarithm. Log volumes swing about ten times as far from day to day as log closes, so a
# step ten times as wide leaves about as much of them.
PRICE_STEP, VOLUME_STEP = 0.005, 0.05
RETURN_STEP = 0.005


@dataclass(frozen=True, eq=False)
class Mask:
    """A table of T bars as the text view may print it."""

    ticker: str
    date: tuple[str, ...]  # T labels
    open: Floats  # (T,) float64: USD, or multiples of `scale` USD
    high: Floats  # (T,)
    low: Floats  # (T,)
    close: Floats  # (T,)
    volume: Floats  # (T,) float64: shares, or multiples of the first median shown
    scale: float  # what a price in USD was multiplied by; a price that a text quotes goes through the same


def find_identity(name: str) -> str:
    """The level of `IDENTITIES` that a user names, by its name or its other name in `ALIASES`.

    Raises:
        UnknownName: no such level.
    """
    known = ALIASES.get(name, name) if isinstance(name, str) else name
    lookup("identity", known, IDENTITIES)
    return known


@lru_cache(maxsize=128)
def mask(window: Window, lookback: int, identity: str, first: int = 0) -> Mask:
    """The bars of an episode at a level of identity. They are scaled once, by what its first day shows.

    Where the first bars shown had no volume at all there is nothing to scale by, and every volume is shown as 0.

    Args:
        window: what is played.
        lookback: days of bars shown.
        identity: of `IDENTITIES`.
        first: the day of the episode's first decision, counted from the window's first.
    """
    prices, today = bars(window, identity).load(), window.span()[0] + first
    oldest = max(0, today - lookback + 1)
    ticker = window.ticker if identity == "real" else COMPANY
    date = prices.date if identity in DATED else tuple(f"Day {t - oldest + 1}" for t in range(len(prices.date)))
    scale, unit = 1.0, 1.0
    if identity in SCALED:
        traded = prices.volume[oldest : today + 1]
        scale = FIRST_CLOSE / float(prices.close[oldest])
        unit = float(np.median(traded[traded > 0])) if traded.any() else np.inf
    scaled = {name: getattr(prices, name) * scale for name in ("open", "high", "low", "close")}
    return Mask(ticker, date, **scaled, volume=prices.volume / unit, scale=scale)


def bars(window: Window, identity: str) -> Window:
    """The window of which the views show the bars: `window`, or with identity="coarse" the same on a grid.

    The grid, of `PRICE_STEP` and `VOLUME_STEP`, is absolute: what a day shows does not hang on where an
    episode began. The ratio of two prices on it lies on it too, so scaling to 100 keeps it.
    """
    return replace(window, prices=_coarse(window.load())) if identity == "coarse" else window


@cache
def _coarse(prices: Prices) -> Prices:
    return replace(
        prices,
        open=on_grid(prices.open, PRICE_STEP),
        high=on_grid(prices.high, PRICE_STEP),
        low=on_grid(prices.low, PRICE_STEP),
        close=on_grid(prices.close, PRICE_STEP),
        volume=np.where(prices.volume > 0, on_grid(np.maximum(prices.volume, 1.0), VOLUME_STEP), 0.0),
        sha256=hashlib.sha256(f"coarse {prices.sha256}".encode()).hexdigest(),
    )


def on_grid(positive: Floats, step: float) -> Floats:
    """Positive numbers moved to the nearest whole multiple of `step` in their logarithm."""
    grid: Floats = np.exp(np.round(np.log(positive) / step) * step)
    return grid


def own_return(cumulative: float, identity: str) -> float:
    """The agent's own return as the views show it: exact, it would tell each day's price change."""
    return round(cumulative / RETURN_STEP) * RETURN_STEP if identity == "coarse" else cumulative


def own_returns(cumulative: Floats, identity: str) -> Floats:
    """`own_return` of many agents."""
    if identity != "coarse":
        return cumulative
    rounded: Floats = np.round(cumulative / RETURN_STEP) * RETURN_STEP + 0.0  # which turns -0.0 into 0.0
    return rounded
