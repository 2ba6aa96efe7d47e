"""What becomes known of one stock from day to day, as texts to remember: its price events and a user's items."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fintrading_agents.memory.events import Bars, events
from fintrading_agents.sources import Item, known

LONGEST = 2000  # characters of an item that are remembered


class News(NamedTuple):
    """One thing to remember."""

    kind: str  # of constants.LAYER_OF
    text: str  # masked where the episode is
    row: int  # of the table's day at whose close it became known; below 0: before the table begins


class Feed:
    """Told day by day, forward only."""

    def __init__(self, bars: Bars, dates: Sequence[str], items: Sequence[Item], hide: Callable[[str], str]):
        """Prepare; nothing is read of the bars before a day is asked for.

        Args:
            bars: of the whole table, as the view shows them.
            dates: of the table's days, ISO.
            items: of `sources.read_sources`.
            hide: takes out of a text what tells who and when.
        """
        self._bars, self._dates, self._hide = bars, dates, hide
        self._coming = list(items)

    @property
    def excluded(self) -> int:
        """How many items are not known yet: later ones, and those without a date."""
        return len(self._coming)

    def of_day(self, row: int) -> list[News]:
        """What became known on this day of the table, and before it since the day that was asked for last."""
        found = [News(event.kind, event.text, row) for event in events(self._bars, row)]
        kept, _ = known(self._coming, self._dates[row])
        fresh = set(kept)
        self._coming = [item for item in self._coming if item not in fresh]
        return found + [self._news(item) for item in kept]

    def _news(self, item: Item) -> News:
        told = ". ".join(part.strip().rstrip(".") for part in (item.title, item.text) if part.strip())
        text = shortened(self._hide(f"{item.kind}: {' '.join(told.split())}"), LONGEST)
        day, first = str(item.date), self._dates[0]
        row = bisect_left(self._dates, day) if day >= first else -int(np.busday_count(day, first))
        return News(item.kind, text, row)


def shortened(text: str, longest: int) -> str:
    """The text, cut between two words where it is longer."""
    if len(text) <= longest:
        return text
    return (text[: longest - 2].rpartition(" ")[0] or text[: longest - 3]) + "..."
