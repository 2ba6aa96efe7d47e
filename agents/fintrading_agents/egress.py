"""What got out: names, tickers, dates and raw closes in the prompts and replies of a masked episode."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fintrading_agents.neutering import for_task
from fintrading_gym.masking import SCALED
from fintrading_gym.observations import Sight, market_texts
from fintrading_gym.rollout import Task

# Distinct raw closes in one text that count as a leak. One may be chance: where a stock costs about 100, as a scaled
# price does, a reply that works out a few numbers hits one of its closes now and then.
CLOSES = 2
# Parts of a log that come neither from a prompt nor from a model.
OURS = ("sent", "usage", "verdict", "latency", "cost", "cached", "attempts", "names")
_PRICE = re.compile(r"(?<![\d.,+-])\d{1,6}\.\d{2}(?!\d|\s?%)")


class Leak(NamedTuple):
    """Something in a text that tells who or when."""

    where: str  # "day 3, call 1, message 2"
    kind: str  # "Company", "Person", "Product", "Sector", "Date" or "Close"
    text: str  # as it is written

    def __str__(self) -> str:
        return f"{self.where}: {self.kind.lower()} {self.text!r}"


class Egress:
    """Looks for leaks in the texts of one task's episodes, at a level of identity. At "real" nothing is one."""

    def __init__(self, task: Task, identity: str):
        self._entity_map = for_task(task, identity)
        self._closes: set[str] = set()
        if identity in SCALED:
            window = task.window
            first, days = window.span()
            shown = "".join(market_texts(Sight(window, task.lookback, "full", identity)))
            raw = window.load().close[max(0, first - task.lookback + 1) : first + days]
            # What the masked view itself shows is no leak, be it by chance some day's raw close.
            self._closes = {f"{close:.2f}" for close in raw} - set(_PRICE.findall(shown))

    def shows(self, text: str) -> None:
        """What an agent makes of the masked view is no leak either, be it by chance some day's raw close."""
        self._closes -= set(_PRICE.findall(text))

    def leaks(self, where: str, text: str) -> list[Leak]:
        """All of one text."""
        if self._entity_map.identity == "real":
            return []
        found = [Leak(where, kind, written) for kind, written, _ in self._entity_map.find(text)]
        closes = [price for price in dict.fromkeys(_PRICE.findall(text)) if price in self._closes]
        return found + [Leak(where, "Close", close) for close in closes if len(closes) >= CLOSES]

    def of_log(self, log: Iterable[Mapping[str, Any]]) -> list[Leak]:
        """All of an episode's log, as an agent that asks a model keeps it: a day's `calls`, messages and reply."""
        return [leak for day, entry in enumerate(log, 1) for leak in self.of_day(day, entry)]

    def of_day(self, day: int, entry: Mapping[str, Any]) -> list[Leak]:
        """All of one day's entry."""
        return [leak for where, text in _texts(entry, f"day {day}") for leak in self.leaks(where, text)]


def _texts(data: Any, where: str) -> Iterator[tuple[str, str]]:
    """Every text in nested data, keys too, and the way to it."""
    if isinstance(data, str):
        yield where, data
    elif isinstance(data, Mapping):
        for name, value in data.items():
            if name not in OURS:
                yield where, str(name)
                yield from _texts(value, f"{where}, {name}")
    elif isinstance(data, Sequence):
        for k, value in enumerate(data, 1):
            yield from _texts(value, f"{where} {k}")
