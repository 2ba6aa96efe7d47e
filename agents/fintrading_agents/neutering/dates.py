"""Dates as texts write them: the shapes that are masked, and which day, month, quarter or year each names."""

import datetime
import re
from collections.abc import Callable
from functools import lru_cache

from fintrading_agents.neutering.tokens import any_case

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
ORDINALS = ("first", "second", "third", "fourth")

# Pieces of the shapes. A month's name may be cut to three letters, September's to four.
_YEAR = r"(?P<year>(?:19[5-9]|20[0-4])\d)"
_SHORT_YEAR = r"(?P<year>(?:19[5-9]|20[0-4])\d|['\u2019]?\d\d)"
_MONTH, _TWO_DIGIT_MONTH = r"(?P<month>1[0-2]|0?[1-9])", r"(?P<month>1[0-2]|0[1-9])"
_DAY, _TWO_DIGIT_DAY = r"(?P<day>3[01]|[12]\d|0?[1-9])", r"(?P<day>3[01]|[12]\d|0[1-9])"
_NAME = (
    r"(?P<name>(?i:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?))"
)
_FULL_NAMES = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_CAPITAL_NAME = r"(?=[A-Z])" + _NAME  # without a year, "may 5" and "march 3" are no dates
_ORDINAL_DAY = _DAY + r"(?:st|nd|rd|th)?"
_TO_DAY = r"\s?[-\u2013\u2014]\s?(?:3[01]|[12]\d|0?[1-9])(?:st|nd|rd|th)?"
_TIME = r"\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:\s?(?:Z|UTC|GMT|[+-]\d\d:?\d\d))?"
_FISCAL = r"(?P<fiscal>FY\s?|(?i:fiscal(?:\s{1,2}year)?)\s{1,2})"
_QUARTER_OF = rf"(?:\s(?:of\s)?)?{_FISCAL}?"
_WEEKDAY = r"(?P<word>(?i:(?:(?:last|next|this|past)\s{1,2})?(?:mon|tues|wednes|thurs|fri|satur|sun)day))"
_HOLIDAY = (
    r"(?P<word>(?i:new\s{1,2}year['\u2019]?s?(?:\s{1,2}(?:day|eve))?|martin\s{1,2}luther\s{1,2}king(?:\s{1,2}jr\.?)?\s{1,2}day"
    r"|presidents?['\u2019]?s?\s{1,2}day|(?:good|black)\s{1,2}friday|cyber\s{1,2}monday|easter|memorial\s{1,2}day|juneteenth"
    r"|independence\s{1,2}day|fourth\s{1,2}of\s{1,2}july|labou?r\s{1,2}day|columbus\s{1,2}day|veterans?['\u2019]?\s{1,2}day"
    r"|thanksgiving(?:\s{1,2}day)?|christmas(?:\s{1,2}(?:eve|day))?|boxing\s{1,2}day|halloween|valentine['\u2019]?s\s{1,2}day"
    r"|super\s{1,2}bowl(?:\s{1,2}sunday)?|(?:lunar|chinese)\s{1,2}new\s{1,2}year))"
)

# name: the shape. Where two fit at one place the earlier is taken, so the longer and the narrower stand first.
SHAPES: dict[str, str] = {
    "2024-03-14 16:00": rf"{_YEAR}-{_TWO_DIGIT_MONTH}-{_TWO_DIGIT_DAY}[T ]{_TIME}",
    "2024-03-14": rf"{_YEAR}-{_MONTH}-{_DAY}",
    "2024/03/14": rf"{_YEAR}/{_MONTH}/{_DAY}",
    "2024.03.14": rf"{_YEAR}\.{_MONTH}\.{_DAY}",
    "20240314": rf"{_YEAR}{_TWO_DIGIT_MONTH}{_TWO_DIGIT_DAY}",
    "2024-W11": rf"(?P<word>{_YEAR}-?W\d\d)",
    "2024 Q1": rf"{_YEAR}[-\s]?Q(?P<quarter>[1-4])",
    "2024-03": rf"{_YEAR}[-/]{_TWO_DIGIT_MONTH}",
    "2023-24": rf"(?P<word>{_YEAR}[-\u2013\u2014/](?:(?:19|20)\d\d|\d\d))",
    "3/14/2024": rf"(?P<first>\d{{1,2}})/(?P<second>\d{{1,2}})/{_SHORT_YEAR}",
    "14.03.2024": rf"(?P<first>\d{{1,2}})\.(?P<second>\d{{1,2}})\.{_YEAR}",
    "14-03-2024": rf"(?P<first>\d{{1,2}})-(?P<second>\d{{1,2}})-{_YEAR}",
    "03/2024": rf"{_MONTH}[-/]{_YEAR}",
    "14 March 2024": rf"{_ORDINAL_DAY}(?:[-\s]|\s(?:of\s)?)?{_NAME}\.?,?[-\s]?{_SHORT_YEAR}",
    "March 14-16, 2024": rf"(?P<word>{_NAME}\.?\s{{0,2}}{_ORDINAL_DAY}{_TO_DAY}(?:,?\s{{1,2}}{_YEAR})?)",
    "March 14, 2024": rf"{_NAME}\.?\s{{0,2}}{_ORDINAL_DAY},?\s{{1,2}}{_YEAR}",
    "March 2024": rf"{_NAME}\.?(?:\s(?:of\s)?|,\s|-)?{_YEAR}",
    "Mar '24": rf"{_NAME}\.?\s?(?P<year>['\u2019]\d\d)",
    "Mar-24": rf"{_CAPITAL_NAME}-(?P<year>\d\d)",
    "14 March": rf"{_ORDINAL_DAY}\s(?:of\s)?{_CAPITAL_NAME}",
    "March 14": rf"{_CAPITAL_NAME}\.?\s{{1,2}}{_ORDINAL_DAY}",
    "Q1 2024": rf"Q(?P<quarter>[1-4]){_QUARTER_OF}{_SHORT_YEAR}",
    "1Q24": rf"(?P<quarter>[1-4])Q{_QUARTER_OF}{_SHORT_YEAR}",
    "first quarter of 2024": rf"(?i:(?P<ordinal>first|second|third|fourth)[-\s]quarter){_QUARTER_OF}{_YEAR}",
    "H1 2024": rf"(?P<word>(?:H[12]|[12]H){_QUARTER_OF}{_SHORT_YEAR})",
    "first half of 2024": rf"(?P<word>(?i:(?:first|second)[-\s]half){_QUARTER_OF}{_YEAR})",
    "FY2024": rf"{_FISCAL}{_SHORT_YEAR}(?:[-/]\d\d)?",
    "2020s": r"(?P<word>(?:19[5-9]|20[0-4])0s)",
    "2024": _YEAR,
    "last Tuesday": _WEEKDAY,
    "Thanksgiving": _HOLIDAY,
    "March": rf"(?P<word>{'|'.join(spelt for name in _FULL_NAMES for spelt in (name, name.upper()))})",
}

# Before the digits of a date: no number that goes on, as in 1,2024. After a date likewise.
BEFORE = r"(?<!\d[.,:/])(?<![$€£¥#])"
AFTER = r"(?![^\W_]|[.,:/]\d|\s?%)"


# What a shape may begin with, where it is no digit: looked for first, because most words are no dates.
_BEGINNINGS = {
    "a": "pr ug", "b": "la ox", "c": "hi hr ol yb", "d": "ec", "e": "as", "f": "eb ir is ou ri y", "g": "oo",
    "h": "1 2 al", "i": "nd", "j": "an ul un", "l": "ab as un", "m": "ar ay em on", "n": "ew ex ov", "o": "ct",
    "p": "as re", "q": "1 2 3 4", "s": "at ec ep un up", "t": "ha hi hu ue", "v": "al et", "w": "ed",
}  # fmt: skip


def alternation() -> str:
    """All shapes as one pattern without groups of its own."""
    shapes = {name: re.sub(r"\(\?P<\w+>", "(?:", shape) for name, shape in SHAPES.items()}
    in_digits = "|".join(shape for name, shape in shapes.items() if name[0].isdigit())
    in_letters = "|".join(shape for name, shape in shapes.items() if name[0].isalpha())
    begun = "|".join(f"{any_case(a)}(?:{'|'.join(map(any_case, rest.split()))})" for a, rest in _BEGINNINGS.items())
    return rf"(?:(?=\d){BEFORE}(?:{in_digits})|(?={begun})(?:{in_letters})){AFTER}"


@lru_cache(maxsize=8192)
def named_by(text: str) -> str:
    """What a date written in one of the shapes names: the same for every way to write it.

    An ISO date, or "2024-03", "Q1 2024", "FY2024", "2024", "March 14" in that form; else the text itself,
    in lower case: a weekday, a holiday, a range, an impossible date.

    Numbers with slashes are read month first where that is possible, as in the United States; those
    with dots or hyphens day first.
    """
    for shape, pattern in _COMPILED.items():
        if found := pattern.fullmatch(text):
            return _READ.get(shape, _read)(found) or " ".join(text.lower().split())
    raise ValueError(f"{text!r} is written in none of the shapes {list(SHAPES)}")


def _read(found: re.Match[str]) -> str | None:
    part = found.groupdict()
    if part.get("word"):
        return None
    year = _full_year(part["year"]) if part.get("year") else None
    told = f"FY{year}" if part.get("fiscal") else str(year)
    if part.get("ordinal"):
        return f"Q{1 + ORDINALS.index(part['ordinal'].lower())} {told}"
    if part.get("quarter"):
        return f"Q{part['quarter']} {told}"
    month = int(part["month"]) if part.get("month") else None
    if part.get("name"):
        month = 1 + MONTHS.index(part["name"][:3].lower())
    if month is None:
        return told
    if part.get("day"):
        return _day(year, month, int(part["day"]))
    return f"{year}-{month:02}"


def _month_first(found: re.Match[str]) -> str | None:
    first, second, year = int(found["first"]), int(found["second"]), _full_year(found["year"])
    return _day(year, first, second) or _day(year, second, first)


def _day_first(found: re.Match[str]) -> str | None:
    first, second, year = int(found["first"]), int(found["second"]), _full_year(found["year"])
    return _day(year, second, first) or _day(year, first, second)


def _day(year: int | None, month: int, day: int) -> str | None:
    """An ISO date, or month and day where there is no year; None for a day that there is not."""
    try:
        date = datetime.date(2024 if year is None else year, month, day)
    except ValueError:
        return None
    return f"{MONTHS[month - 1].title()} {day}" if year is None else date.isoformat()


def _full_year(year: str) -> int:
    digits = int(year.lstrip("'\u2019"))
    return digits if digits >= 100 else 2000 + digits if digits < 50 else 1900 + digits


_COMPILED = {name: re.compile(shape) for name, shape in SHAPES.items()}
_READ: dict[str, Callable[[re.Match[str]], str | None]] = {
    "3/14/2024": _month_first,
    "14.03.2024": _day_first,
    "14-03-2024": _day_first,
}
