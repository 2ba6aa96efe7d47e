"""Counterfactual worlds: the days of a real window told as another path, so that remembering it is worth nothing."""

import hashlib
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fintrading_gym.errors import DataError, lookup
from fintrading_gym.windows import TICKERS, Floats, Prices, Window

WORLDS = {
    "real": "what happened",
    "mirror": "every move of a price with its sign flipped",
    "shuffled": "the days in another order, five at a time",
    "reversed": "the path from its last day to its first",
    "renamed": "what happened, under another famous ticker",
}
DRAWN = ("shuffled", "renamed")  # from a seed; the others have one version
BLOCK = 5  # days that stay together when days are shuffled: a week's rhythm survives, its place does not
FAMOUS = tuple(ticker for ticker in TICKERS if ticker != "SPY")


def find_world(window: Window, world: str) -> Window:
    """The window in the world a user names: `NAME`, or `NAME:SEED` for another draw than that of seed 0.

    Raises:
        UnknownName: no such world.
        ValueError: the seed is no whole number >= 0, or the world has none.
        DataError: the window is too short to be shuffled.
    """
    name, colon, seed = str(world).partition(":")
    if colon and not (seed.isascii() and seed.isdecimal()):
        raise ValueError(f"World {world!r}: {seed!r} is no seed; give a whole number >= 0, as in '{name}:1'")
    return make_world(window, name, int(seed or 0))


@lru_cache(maxsize=256)
def make_world(window: Window, world: str, seed: int = 0) -> Window:
    """The same days in another world: same dates, same volatility, valid bars, and the window's first close as it was.

    The days before the window, which are shown but not played, are changed in the same manner among
    themselves; days after it are left out. Each day's volume goes where the day goes.

    Args:
        window: a real window.
        world: of `WORLDS`.
        seed: of the order ("shuffled") or the name ("renamed").

    Returns:
        A window with its own `Prices`; `window` itself for "real". Prices are given by their recipe: their
        sha256 is that of the real table's sha256, the window, the world and the seed.

    Raises:
        UnknownName: no such world.
        ValueError: a seed for a world that has none.
        DataError: the window is too short to be shuffled.
    """
    lookup("world", world, WORLDS)
    if seed and world not in DRAWN:
        raise ValueError(f"World {world!r} is not drawn from a seed; {' and '.join(DRAWN)} are")
    if world == "real":
        return window
    if world == "renamed":
        others = [ticker for ticker in FAMOUS if ticker != window.ticker]
        name = min(others, key=lambda ticker: _draw(window, seed, ticker))
        return Window(name, window.first, window.last, window.load())

    start, days = window.span()
    moves = _moves(window.load(), start + days)
    first, history, played = np.split(np.arange(start + days), (1, start + 1))
    if world == "shuffled":
        if days <= BLOCK + 1:
            raise DataError(f"Window {window} holds {days} days; to be shuffled it needs {BLOCK + 2} or more")
        history, played = (_shuffled(part, (window, seed)) for part in (history, played))
    if world == "reversed":
        history, played = history[::-1], played[::-1]
    if world in ("mirror", "reversed"):  # run backwards, a rise is a fall
        moves = -moves[:, [0, 2, 1, 3]]  # and the day's low is its high
    return _told(window, moves, np.concatenate([first, history, played]), f"{world}:{seed}")


def _moves(prices: Prices, days: int) -> Floats:
    """(days, 4) log open, high, low, close of each day less the log close before it (on the first day: its own)."""
    log = np.log(np.column_stack([getattr(prices, name)[:days] for name in ("open", "high", "low", "close")]))
    moves: Floats = log - np.concatenate([log[:1, 3], log[:-1, 3]])[:, None]
    return moves


def _shuffled(days: NDArray[np.intp], salt: tuple[object, ...]) -> NDArray[np.intp]:
    blocks = np.split(days, range(BLOCK, len(days), BLOCK))
    order = sorted(range(len(blocks)), key=lambda k: _draw(*salt, *days[:1], k))
    if order == sorted(order):  # the draw left everything where it was
        order = order[1:] + order[:1]
    return np.concatenate([blocks[k] for k in order])


def _told(window: Window, moves: Floats, order: NDArray[np.intp], recipe: str) -> Window:
    """The window whose day j makes the move of day `order[j]`."""
    true, start = window.load(), window.span()[0]
    path = np.cumsum(moves[order, 3])
    log = moves[order] + np.concatenate([path[:1], path[:-1]])[:, None]
    bars = true.close[start] * np.exp(log - path[start])
    prices = Prices(
        date=true.date[: len(order)],
        open=bars[:, 0],
        high=bars[:, 1],
        low=bars[:, 2],
        close=bars[:, 3],
        volume=true.volume[order],
        sha256=_draw(true.sha256, window, recipe),
        source=f"{true.source} in the world {recipe}",
    )
    return Window(window.ticker, window.first, window.last, prices)


def _draw(*what: object) -> str:
    """Something to sort by that looks random, and is the same on every machine and with every version of numpy."""
    return hashlib.sha256(" ".join(map(str, what)).encode()).hexdigest()
