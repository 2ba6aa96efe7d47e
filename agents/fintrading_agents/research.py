"""The research context: what is known of a stock at a day's close, as one Markdown block of seven sections."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np

from fintrading_agents.neutering.tokens import numbered
from fintrading_agents.sources import Item, known
from fintrading_agents.technicals import bollinger, macd, rsi
from fintrading_gym.masking import DATED, Mask, mask
from fintrading_gym.observations import Sight, market_texts, percent_text, price_text
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
# Tokens of a section, by the detail of the view. What comes from prices fits as it is.
BUDGETS = {
    "full": {"Fundamentals": 600, "News": 1200, "Outlook": 400, "Analyst ratings": 400, "Institutional flow": 400},
    "brief": {"Fundamentals": 90, "News": 160, "Outlook": 60, "Analyst ratings": 60, "Institutional flow": 60},
}
RANGES = {"full": (20, 250), "brief": (20,)}  # days of which the lowest and the highest price are told
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
    told = {"Quote": _quote(sight, bars, t, day), "Technicals": _technicals(bars, t)}
    count = 0
    for heading, kinds in SECTIONS.items():
        if kinds:
            newest = [item for item in reversed(seen) if item.kind in kinds][: ITEMS.get(heading, OTHER_ITEMS)]
            told[heading] = _items(newest, BUDGETS[sight.detail][heading], hide, dates[: t + 1])
            count += len(newest)
    text = f"# Research on {bars.ticker}\n{_date(bars, t, sight, count)}\n" + "".join(
        f"\n## {heading}\n{told[heading] or NO_SOURCE}\n" for heading in SECTIONS
    )
    return Research(text, tokens(text), count, len(seen) - count, excluded)


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
    _, _, view = market_texts(sight)[day].partition("\n")  # its first line says who and when
    move = f", {percent_text(bars.close[t] / bars.close[t - 1] - 1)} on the day" if t else ""
    ranges = []
    for days in RANGES[sight.detail]:
        last = slice(max(0, t - days + 1), t + 1)
        low, high = price_text(bars.low[last].min()), price_text(bars.high[last].max())
        ranges.append(f"range of {min(days, t + 1)} days: {low} to {high}")
    return f"close {price_text(bars.close[t])}{move}\n{view}" + "\n".join(ranges)


@lru_cache(maxsize=16)
def _indicators(bars: Mask) -> dict[str, Floats]:
    line, signal, difference = macd(bars.close)
    upper, middle, lower = bollinger(bars.close)
    return {
        "RSI": rsi(bars.close), "MACD": line, "signal": signal, "difference": difference,
        "upper": upper, "middle": middle, "lower": lower,
    }  # fmt: skip


def _technicals(bars: Mask, t: int) -> str:
    value = {name: float(series[t]) for name, series in _indicators(bars).items()}
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
    lines = []
    for item in newest:
        text = hide(": ".join(filter(None, (item.title, item.text))))
        lines.append(cut(f"- {_age(item, dates)}: {text}", budget // len(newest)))
    return "\n".join(lines)


def _age(item: Item, dates: Sequence[str]) -> str:
    """How long an item has been known, in trading days; calendar days would tell weekends."""
    ago = len(dates) - 1 - bisect_left(dates, item.date or "")
    return "today" if not ago else f"{ago} trading day{'s' * (ago > 1)} ago"
