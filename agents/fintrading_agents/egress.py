"""What got out: names, tickers, dates and raw closes in the texts of a masked episode, and where."""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from math import comb, prod
from typing import Any, NamedTuple

from fintrading_agents.neutering import for_task
from fintrading_agents.neutering.companies import table
from fintrading_agents.neutering.dates import tells_when
from fintrading_gym.masking import SCALED, find_identity
from fintrading_gym.observations import Sight, market_texts
from fintrading_gym.rollout import Task
from fintrading_gym.windows import DATA, find_window

# Where a stock costs about 100, as a scaled price does, some number of a text is some day's raw close now and then.
# Closes count where luck would give so many, of days in a row, in fewer texts than this: three, or more among many.
LUCK = 5e-5
REACHES = (0.01, 0.1)  # how far around a close numbers are counted, relative to it
LINES = 40  # of a file that are searched for closes together
# Parts of a call that come neither from a prompt nor from a model.
OURS = (
    "stage", "outcome", "finish_reason", "sent", "usage", "verdict", "latency", "cost", "price", "cached", "attempts",
    "failure",
)  # fmt: skip
_NUMBER = re.compile(r"(?<![\d.])(?<!(?<!\d)[+-])((?:\d{1,3},(?:\d{3},)*)?)(\d+\.\d+)(?!\d|\s?%)")

Texts = Iterable[tuple[str, str]]  # where a text stands, and the text
Closes = dict[int, str]  # row of a day: its close as it is written


class Leak(NamedTuple):
    """Something in a text that tells who or when."""

    where: str  # "day 3, calls 1, messages 2, content"
    kind: str  # "Company", "Person", "Product", "Date" or "Close"
    text: str  # as it is written

    def __str__(self) -> str:
        return f"{self.where}: {self.kind.lower()} {self.text!r}"


class Egress:
    """Looks for leaks in the texts of one task's episodes, at a level of identity. At "real" nothing is one."""

    def __init__(self, task: Task, identity: str):
        identity = find_identity(identity)
        self._entity_map = for_task(task, identity)
        self._first = task.window.span()[0]  # row of the first day played
        self._closes: list[Closes] = []  # those of the world, those that happened, those that newspapers printed
        if identity in SCALED:
            window, real = task.window, find_window(task.cell)
            first, days = window.span()
            views = market_texts(Sight(window, task.lookback, "full", identity))
            rows = range(max(0, first - task.lookback + 1), first + days)
            told = () if real.prices else printed(real.ticker)
            for closes in (window.load().close, real.load().close, told):
                written = {row: f"{closes[row]:.2f}" for row in rows if row < len(closes)}
                # What the masked view itself shows is no leak: where the first close is 100 it is the real one.
                shown = {close for view in views for close in _in_a_row(view, written)}
                self._closes.append({row: close for row, close in written.items() if close not in shown})

    def search(self, texts: Texts) -> list[Leak]:
        """All leaks of some texts, of whatever was stored or exported."""
        return [leak for where, text in texts for leak in self.leaks(where, text)]

    def leaks(self, where: str, text: str) -> list[Leak]:
        """All of one text. Too little is told by sectors, weekdays, mere months, and names that are mostly words."""
        if self._entity_map.identity == "real":
            return []
        found = [
            Leak(where, kind, written)
            for kind, written, _ in self._entity_map.find(text)
            if (tells_when(written) if kind == "Date" else kind != "Sector" and written not in table().doubtful)
        ]
        return found + [Leak(where, "Close", close) for close in self._closes_of(text)]

    def of_log(self, log: Iterable[Mapping[str, Any]]) -> list[Leak]:
        """All of the prompts and replies in an episode's log, as an agent that asks a model keeps it.

        Beside the texts one by one it is looked at whether prompt after prompt holds the close of its own day.
        """
        log = list(log)
        return self.search(texts_of(log)) or self._day_by_day(log)

    def of_lines(self, text: str) -> list[Leak]:
        """All of a file, by its lines; closes may stand on lines of their own."""
        lines = text.splitlines()
        found = [
            leak for n, line in enumerate(lines, 1) for leak in self.leaks(f"line {n}", line) if leak.kind != "Close"
        ]
        for begin in range(0, len(lines), LINES // 2):
            stretch = lines[begin : begin + LINES]
            closes = self._closes_of("\n".join(stretch))
            where = f"lines {begin + 1} to {begin + len(stretch)}"
            found += [Leak(where, "Close", close) for close in closes if close not in {leak.text for leak in found}]
        return found

    def _closes_of(self, text: str) -> list[str]:
        return max((_in_a_row(text, closes) for closes in self._closes), key=len, default=[])

    def _day_by_day(self, log: Sequence[Mapping[str, Any]]) -> list[Leak]:
        for closes in self._closes:
            days = [(day, closes[row]) for day in range(len(log)) if (row := self._first + day) in closes]
            held: list[Leak] = []
            chance = 0.0
            for day, close in days:
                texts = [(where, _to_the_cent(text)) for where, text in texts_of_day(day + 1, log[day])]
                chance = max(chance, _chance(close, [number for _, numbers in texts for number in numbers]))
                held += [Leak(where, "Close", close) for where, numbers in texts if close in numbers][:1]
            if held and comb(len(days), len(held)) * chance ** len(held) < LUCK:
                return held
        return []


@lru_cache(maxsize=1024)
def _to_the_cent(text: str) -> list[str]:
    """The numbers of a text that may be prices, as closes are written.

    "1,223.07" is one number, or two of a table: both readings count.
    """
    read = [number for before, last in _NUMBER.findall(text) for number in {last, before.replace(",", "") + last}]
    return list(dict.fromkeys(f"{float(number):.2f}" for number in read))


def _in_a_row(text: str, closes: Closes) -> list[str]:
    """The closes of the most days in a row that a text holds, if they are more than luck gives."""
    numbers = _to_the_cent(text)
    held, longest = set(numbers), range(0)
    for row, close in closes.items():
        if close in held and row not in longest:
            end = row + 1
            while closes.get(end) in held:
                end += 1
            longest = max(longest, range(row, end), key=len)
    found = list(dict.fromkeys(closes[row] for row in longest))
    lucky = len(closes) * prod(_chance(close, numbers, used) for used, close in enumerate(found))
    return found if found and lucky < LUCK else []


def _chance(close: str, numbers: Sequence[str], used: int = 0) -> float:
    """That by luck one of the numbers is this close: how many are near it, by the cents that lie there.

    Args:
        close: as it is written.
        numbers: of the text.
        used: how many of them are other closes.
    """
    price = float(close)
    near = [abs(float(number) / price - 1) for number in numbers]
    return max(max(sum(off <= reach for off in near) - used, 1) / (1 + 200 * reach * price) for reach in REACHES)


@cache
def printed(ticker: str) -> tuple[float, ...]:
    """Closes as newspapers printed them, but for splits: what a model may remember.

    The game's are adjusted for dividends too.
    """
    with (DATA / f"{ticker}.csv").open(newline="") as file:
        return tuple(float(row["close"]) for row in csv.DictReader(file))


def texts_of(log: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Every prompt and reply of an episode's log, and where it stands.

    What an agent notes of a day beside its `calls` is left out: no model reads it, and readers may be told names.
    """
    for day, entry in enumerate(log, 1):
        yield from texts_of_day(day, entry)


def texts_of_day(day: int, entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The same of one day."""
    for number, call in enumerate(entry.get("calls", ()), 1):
        yield from texts_of_call(call, f"day {day}, calls {number}")


def texts_of_call(call: Mapping[str, Any], where: str) -> Iterator[tuple[str, str]]:
    """The same of one call: its messages, and all that came from the model."""
    for k, message in enumerate(call.get("messages", ()), 1):
        for name, value in message.items():
            yield f"{where}, messages {k}, {name}", _flat(value)
    for name, value in call.items():
        if name != "messages" and name not in OURS:
            yield f"{where}, {name}", _flat(value)


def _flat(data: Any) -> str:
    """Every text, key and number in nested data, a line each."""
    if isinstance(data, Mapping):
        return "\n".join(f"{name}\n{_flat(value)}" for name, value in data.items())
    if isinstance(data, Sequence) and not isinstance(data, str):
        return "\n".join(map(_flat, data))
    return "" if data is None else str(data)
