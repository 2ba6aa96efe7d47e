"""What a user brings beside prices: news, filings and the like, each from the day at whose close it was known."""

import datetime
import hashlib
import json
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fintrading_gym.errors import DataError, UnknownName, brief, lookup
from fintrading_gym.windows import iso_date

KINDS = {  # what a line may be; upper and lower case alike
    "news": "an article",
    "fundamentals": "figures of the company's business",
    "10-q": "a quarterly report",
    "10-k": "an annual report",
    "outlook": "what is expected of the stock",
    "rating": "what analysts say of it",
    "flow": "what institutions buy and sell of it",
}
CLOSE, EARLY_CLOSE = datetime.time(16), datetime.time(13)  # in New York, where the bundled stocks trade


class Item(NamedTuple):
    """One line of a user's file."""

    date: str | None
    """The ISO date from whose close on it is known; None: the line does not say, and nobody is to see it."""
    kind: str  # of KINDS
    title: str
    text: str
    ticker: str = ""  # whom it tells of; empty: of whoever is played


def read_sources(path: str | Path, ticker: str | None = None) -> list[Item]:
    """The items of a JSONL file, in its order: an object a line, of `date`, `kind`, `title`, `text`, perhaps `ticker`.

    A date of the form YYYY-MM-DD is the day at whose close the item was known. A time, which needs its offset from
    UTC, counts for the next day if it lies after the close of New York. Other fields are left alone.

    Args:
        path: of the file.
        ticker: leave out what is told of another one ("tsla" and "NASDAQ:TSLA" are TSLA); None: keep all.

    Raises:
        DataError: the file cannot be read, or a line is none; the message names file and line.
    """
    name = Path(path).name if isinstance(path, str | PathLike) else brief(path)
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").split("\n")
    except OSError as fault:
        raise DataError(f"{path}: cannot be read ({fault.strerror})") from None
    except (TypeError, ValueError) as fault:  # no path, no UTF-8
        raise DataError(f"{name} is no JSONL file ({fault})") from None
    items = [_item(line, f"{name}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    return [item for item in items if ticker is None or _bare(item.ticker) in ("", _bare(ticker))]


def _bare(ticker: str) -> str:
    """A ticker without its exchange, in capitals."""
    return ticker.rpartition(":")[2].strip().lstrip("$").upper()


def known(items: Iterable[Item], day: str) -> tuple[list[Item], int]:
    """The items known at the close of a day, oldest first, and how many are not: later ones and those without a date.

    Args:
        items: of `read_sources`.
        day: ISO date.
    """
    items = list(items)
    seen = sorted((item for item in items if item.date and item.date <= day), key=lambda item: item.date or "")
    return seen, len(items) - len(seen)


def fingerprint(items: Iterable[Item]) -> str:
    """The sha256 of items: equal where an agent was given the same."""
    return hashlib.sha256(json.dumps(list(items)).encode()).hexdigest()


def _item(line: str, where: str) -> Item:
    try:
        told = json.loads(line)
    except ValueError as fault:
        raise DataError(f"{where} is no JSON object ({fault})") from None
    if not isinstance(told, dict):
        raise DataError(f"{where}: {brief(told)} is no JSON object with date, kind, title and text")
    texts = {name: _text(told, name, where) for name in ("kind", "title", "text", "ticker")}
    if not (texts["title"] or texts["text"]):
        raise DataError(f"{where} has neither a title nor a text")
    kind = texts.pop("kind").lower()
    try:
        lookup("kind of item", kind, KINDS)
    except UnknownName as fault:
        raise DataError(f"{where}: {fault}") from None
    return Item(_day(told.get("date"), where), kind, **texts)


def _text(told: Mapping[str, Any], name: str, where: str) -> str:
    value = told.get(name)
    if not isinstance(value, str | None):
        raise DataError(f"{where}: {name}={brief(value)} is no text")
    return (value or "").strip()


def _day(written: object, where: str) -> str | None:
    """The day at whose close it was known."""
    if written is None or written == "":
        return None
    if day := iso_date(written):
        return day
    try:
        moment = datetime.datetime.fromisoformat(written) if isinstance(written, str) else None
    except ValueError:
        moment = None
    if moment is None:
        raise DataError(f"{where}: date={brief(written)} is neither YYYY-MM-DD nor a time like 2022-10-06T09:30-04:00")
    if moment.tzinfo is None:
        raise DataError(f"{where}: date={brief(written)} needs its offset from UTC, as in 2022-10-06T09:30-04:00")
    try:
        there = moment.astimezone(ZoneInfo("America/New_York"))
    except ZoneInfoNotFoundError:
        raise DataError(f"{where}: to read a time, this machine needs time zones: pip install tzdata") from None
    closed = there.time() > (EARLY_CLOSE if _closes_early(there.date()) else CLOSE)
    return (there.date() + datetime.timedelta(days=closed)).isoformat()


def _closes_early(day: datetime.date) -> bool:
    """New York trades until 13:00 on the eves of Independence Day and Christmas, and after Thanksgiving."""
    after_thanksgiving = day.month == 11 and 23 <= day.day <= 29 and day.weekday() == 4
    return after_thanksgiving or (day.month, day.day) in ((7, 3), (12, 24))
