"""The research context: what is known of a stock at a day's close, as one Markdown block of seven sections."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np

from fintrading_agents.neutering.tokens import numbered
from fintrading_agents.sources import Item, known
from fintrading_agents.technicals import bollinger, macd, rsi
from fintrading_gym.masking import DATED, Mask, mask
from fintrading_gym.observations import TRENDS, Sight, market_texts, percent_text, price_text
from fintrading_gym.windows import Floats

# heading: the kinds of a user's items that it tells; none: it comes from the prices.
SECTIONS: dict[str, tuple[str, ...]] = {
    "Quote": (),
    "Technicals": (),
    "Fundamentals": ("fundamentals", "10-q", "10-k"),
    "News": ("news",),
    "Outlook": ("outlook",),
    "Analyst ratings": ("rating",),
    "Institutional flow": ("flow",),
}
NO_SOURCE = "No source tells of this."
ITEMS = {"News": 8}  # shown of a section at most, the newest first
OTHER_ITEMS = 3
# Tokens of a section, by the detail of the view; the technicals are as long as they are, some 110.
BUDGETS = {
    "Quote": {"full": 800, "brief": 150},
    "Fundamentals": {"full": 600, "brief": 90},
    "News": {"full": 1200, "brief": 160},
    "Outlook": {"full": 400, "brief": 60},
    "Analyst ratings": {"full": 400, "brief": 60},
    "Institutional flow": {"full": 400, "brief": 60},
}
RANGES = {"full": (20, 250), "brief": (20,)}  # days of which the lowest and the highest price are told
SHAPE = (SECTIONS, NO_SOURCE, ITEMS, OTHER_ITEMS, BUDGETS, RANGES)  # all that decides how it looks
_PIECE = re.compile(r"[A-Za-z]+|[0-9]|[^\S ]| {2,}|[^A-Za-z0-9\s]")


@dataclass(frozen=True)
class Research:
    """The block, and what is in it."""

    text: str
    tokens: int  # of the text, as `tokens` counts
    items: int  # told
    left_out: int  # known, and over the budget of their section
    excluded: int  # not known at that close, or without a date


def research(sight: Sight, day: int, items: Sequence[Item], hide: Callable[[str], str]) -> Research:
    """What is known at the close of a day of the window; nothing in it depends on a later price or item.

    Prices are those of the view at its level of identity, and indicators are computed from them.

    Args:
        sight: of the view.
        day: counted from the window's first.
        items: what a user brings.
        hide: takes names and dates out of a text, as much as the view hides.
    """
    bars = mask(sight.window, sight.lookback, sight.identity)
    dates, t = sight.window.load().date, sight.window.span()[0] + day
    seen, excluded = known(items, dates[t])
    texts = dict(zip(("Quote", "Technicals"), from_prices(sight)[day], strict=True))
    count = 0
    for heading, kinds in SECTIONS.items():
        if kinds:
            newest = [item for item in reversed(seen) if item.kind in kinds][: ITEMS.get(heading, OTHER_ITEMS)]
            texts[heading] = _items(newest, BUDGETS[heading][sight.detail], hide, dates[: t + 1])
            count += len(newest)
    sections = (f"## {heading}\n{texts[heading] or NO_SOURCE}" for heading in SECTIONS)
    text = "\n\n".join([f"# Research on {bars.ticker}\n{_date(bars, t, sight, count)}", *sections])
    return Research(text, tokens(text), count, len(seen) - count, excluded)


@lru_cache(maxsize=32)
def from_prices(sight: Sight) -> tuple[tuple[str, str], ...]:
    """Quote and technicals of each day of the window."""
    bars = mask(sight.window, sight.lookback, sight.identity)
    start, days = sight.window.span()
    indicators = _indicators(bars.close)
    return tuple((_quote(sight, bars, start + i, i), _technicals(bars, indicators, start + i)) for i in range(days))


def tokens(text: str) -> int:
    """How many tokens a text is at most, as a rule: a digit or a sign is one, and so are four letters of a word.

    Every model cuts texts in its own way; English takes fewer in most.
    """
    return sum(-(-len(piece.encode()) // 4) if piece[0].isalpha() else 1 for piece in _PIECE.findall(text))


def cut(text: str, budget: int) -> str:
    """As many words of a text as have so many tokens together; "..." shows that there were more."""
    words = text.split()
    sizes = list(accumulate(map(tokens, words)))
    if not words or sizes[-1] <= budget:
        return " ".join(words)
    return " ".join([*words[: bisect_right(sizes, budget - tokens("..."))], "..."])


def _date(bars: Mask, t: int, sight: Sight, count: int) -> str:
    """The date line. Where dates are hidden, texts have another word for a day than the view."""
    if sight.identity in DATED or not count:
        return f"Date: {bars.date[t]}"
    return f"Date: {bars.date[t]} (in texts {numbered('Date', int(bars.date[t].removeprefix('Day ')))})"


def _quote(sight: Sight, bars: Mask, t: int, day: int) -> str:
    """The day's move, the view's table and trends, ranges. Of a table that is too long the oldest days are left out."""
    view = market_texts(sight)[day].splitlines()[1:]  # the first says who and when
    table, trends = view[: -len(TRENDS)], view[-len(TRENDS) :]
    move = f", {percent_text(bars.close[t] / bars.close[t - 1] - 1)} on the day" if t else ""
    ranges = []
    for days in RANGES[sight.detail]:
        last = slice(max(0, t - days + 1), t + 1)
        low, high = price_text(bars.low[last].min()), price_text(bars.high[last].max())
        ranges.append(f"range of {min(days, t + 1)} days: {low} to {high}")
    lines = [f"close {price_text(bars.close[t])}{move}", *table[:1], *trends, *ranges]
    left = BUDGETS["Quote"][sight.detail] - sum(tokens(line) + 1 for line in lines)
    sizes = list(accumulate(tokens(row) + 1 for row in reversed(table[1:])))
    shown = table[len(table) - bisect_right(sizes, left) :] if table else []
    return "\n".join([*lines[: 1 + bool(table)], *shown, *trends, *ranges])


def _indicators(close: Floats) -> dict[str, Floats]:
    line, signal, difference = macd(close)
    upper, middle, lower = bollinger(close)
    return {
        "RSI": rsi(close), "MACD": line, "signal": signal, "difference": difference,
        "upper": upper, "middle": middle, "lower": lower,
    }  # fmt: skip


def _technicals(bars: Mask, indicators: Mapping[str, Floats], t: int) -> str:
    value = {name: float(series[t]) for name, series in indicators.items()}
    digits = len(price_text(bars.close[t]).partition(".")[2])

    def told(name: str, form: str = "+") -> str:
        return "n/a" if np.isnan(value[name]) else f"{value[name] + 0.0:{form}.{digits}f}"

    strength = "n/a" if np.isnan(value["RSI"]) else f"{value['RSI']:.1f}"
    bands = ", ".join(f"{name} {told(name, '')}" for name in ("lower", "middle", "upper"))
    return (
        f"RSI (14 days): {strength}\n"
        f"MACD (12, 26, 9 days): {told('MACD')}, signal {told('signal')}, difference {told('difference')}\n"
        f"Bollinger bands (20 days, 2 deviations): {bands}"
    )


def _items(newest: Sequence[Item], budget: int, hide: Callable[[str], str], dates: Sequence[str]) -> str:
    """A line an item; each has the same share of the budget. Hidden before it is cut: half a name may be nobody's."""
    share = budget // max(len(newest), 1) - 1  # a line break is one
    return "\n".join(cut(f"- {_age(item, dates)}: {hide(told(item))}", share) for item in newest)


def told(item: Item) -> str:
    """An item in one text."""
    return ": ".join(filter(None, (item.title, item.text)))


def _age(item: Item, dates: Sequence[str]) -> str:
    """How long an item has been known, in trading days; calendar days would tell weekends."""
    ago = len(dates) - 1 - bisect_left(dates, item.date or "")
    return "today" if not ago else f"{ago} trading day{'s' * (ago > 1)} ago"
