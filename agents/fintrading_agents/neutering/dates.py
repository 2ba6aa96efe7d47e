"""Dates as texts write them: the shapes that are masked, and which day, month, quarter or year each names."""

import datetime
import re
import string
from collections.abc import Callable
from functools import lru_cache

from fintrading_agents.neutering.tokens import any_case

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
ORDINALS = ("first", "second", "third", "fourth")

# Pieces of the shapes. A month's name may be cut to three letters, September's to four.
_YEAR = r"(?P<year>(?:19[5-9]|20[0-4])\d)"
_CUT_YEAR = r"(?P<year>(?:19[5-9]|20[0-4])\d|['\u2019]\d\d)"
_SHORT_YEAR = r"(?P<year>(?:19[5-9]|20[0-4])\d|['\u2019]?\d\d)"
_MONTH, _TWO_DIGIT_MONTH = r"(?P<month>1[0-2]|0?[1-9])", r"(?P<month>1[0-2]|0[1-9])"
_DAY, _TWO_DIGIT_DAY = r"(?P<day>3[01]|[12]\d|0?[1-9])", r"(?P<day>3[01]|[12]\d|0[1-9])"
_NAME = (
    r"(?P<name>(?i:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?))"
)
_CAPITAL_NAME = r"(?=[A-Z])" + _NAME
_CLEAR_NAME = r"(?!ma[ry])" + _NAME  # without a year, "may 5" and "march 3" are no dates
_FULL_NAMES = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_AS_A_WORD = "|".join(
    spelt
    for name in _FULL_NAMES
    for spelt in (name.title(), name.upper(), *([] if name in ("march", "may") else [name]))
)
# Cut to three letters most are no words; those that are, and "may", are months after one of these.
_CUT_WORDS = "Feb|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec"
_AFTER_A_WORD = "|".join(
    rf"(?<=\b{before}\s)"
    for before in ("in", "of", "by", "since", "until", "from", "last", "this", "next", "late", "early")
)  # fmt: skip
_AFTER_A_WORD, _WITH_A_STOP = f"(?:{_AFTER_A_WORD})", r"(?=[.,])"
_ORDINAL_DAY = _DAY + r"(?:st|nd|rd|th)?"
_TO_DAY = r"\s?[-\u2013\u2014]\s?(?:3[01]|[12]\d|0?[1-9])(?:st|nd|rd|th)?"
_CLOCK = r"\d{1,2}:\d\d(?::\d\d(?:[.,]\d{1,9})?)?"
_TIME = rf"{_CLOCK}(?:\s?(?:[AaPp][Mm]|[AaPp]\.[Mm]\.)(?![^\W_]))?(?:\s?(?:Z|UTC|GMT|[+-]\d\d:?\d\d))?"
_FISCAL = r"(?P<fiscal>FY\s?|(?i:fiscal(?:\s{1,2}year)?)\s{1,2})"
_QUARTER_OF = rf"(?:[-/]|,?\s(?:of\s)?)?{_FISCAL}?"
_ORDINAL = r"(?P<ordinal>(?i:first|second|third|fourth)|1st|2nd|3rd|4th)"
_HALF = r"(?:(?i:first|second)|1st|2nd)[-\s](?i:half)"
_WEEKDAY = r"(?P<word>(?i:(?:(?:last|next|this|past)\s{1,2})?(?:mon|tues|wednes|thurs|fri|satur|sun)days?))"
_CUT_WEEKDAY = (
    r"(?P<word>Mon|MON|Tues?|TUES?|Weds?|WEDS?|Thu(?:rs?)?|THU(?:RS?)?|Fri|FRI|(?:Sat|SAT|Sun|SUN)" + _WITH_A_STOP + ")"
)
_HOLIDAY = (
    r"(?P<word>(?i:new\s{1,2}year['\u2019]?s?(?:\s{1,2}(?:day|eve))?|martin\s{1,2}luther\s{1,2}king(?:\s{1,2}jr\.?)?\s{1,2}day"
    r"|presidents?['\u2019]?s?\s{1,2}day|(?:good|black)\s{1,2}friday|cyber\s{1,2}monday|easter|memorial\s{1,2}day|juneteenth"
    r"|independence\s{1,2}day|fourth\s{1,2}of\s{1,2}july|labou?r\s{1,2}day|columbus\s{1,2}day|veterans?['\u2019]?\s{1,2}day"
    r"|thanksgiving(?:\s{1,2}day)?|christmas(?:\s{1,2}(?:eve|day))?|boxing\s{1,2}day|halloween|valentine['\u2019]?s\s{1,2}day"
    r"|super\s{1,2}bowl(?:\s{1,2}(?:sunday|[ivxl]{1,7}))?|(?:lunar|chinese)\s{1,2}new\s{1,2}year|election\s{1,2}day"
    r"|rosh\s{1,2}hashanah|yom\s{1,2}kippur|passover|hanukkah|ramadan|diwali|golden\s{1,2}week"
    r"|singles['\u2019]?\s{1,2}day|(?:triple|quad(?:ruple)?)[-\s]{1,2}witching))"
)

# name: the shape. Where two fit at one place the earlier is taken, so the longer and the narrower stand first. The
# names say what a shape begins with: "2024" a year, another digit any number, a letter or "'" that.
SHAPES: dict[str, str] = {
    "2024-03-14 16:00": rf"{_YEAR}-{_TWO_DIGIT_MONTH}-{_TWO_DIGIT_DAY}(?:T|,?\s){_TIME}",
    "2024-03-14": rf"{_YEAR}-{_MONTH}-{_DAY}",
    "2024/03/14": rf"{_YEAR}/{_MONTH}/{_DAY}",
    "2024.03.14": rf"{_YEAR}\.{_MONTH}\.{_DAY}",
    "2024_03_14": rf"{_YEAR}_{_TWO_DIGIT_MONTH}_{_TWO_DIGIT_DAY}",
    "2024 Mar 14": rf"{_YEAR}(?:[-/\s]|,\s)?{_CAPITAL_NAME}\.?[-/\s]?{_ORDINAL_DAY}",
    "2024 March": rf"{_YEAR}(?:[-/\s]|,\s)?{_CAPITAL_NAME}",
    "20240314T1600": rf"{_YEAR}{_TWO_DIGIT_MONTH}{_TWO_DIGIT_DAY}T?(?:[01]\d|2[0-3])[0-5]\d(?:[0-5]\d)?Z?",
    "20240314": rf"{_YEAR}{_TWO_DIGIT_MONTH}{_TWO_DIGIT_DAY}",
    "2024-W11": rf"(?P<word>{_YEAR}-?W\d\d(?:-\d)?)",
    "2024 Q1": rf"{_YEAR}[-/\s]?Q(?P<quarter>[1-4])",
    "2024H1": rf"(?P<word>{_YEAR}[-/\s]?H[12])",
    "2024-03": rf"{_YEAR}[-/]{_TWO_DIGIT_MONTH}",
    "2023-24": rf"(?P<word>{_YEAR}[-\u2013\u2014/](?:(?:19|20)\d\d|\d\d))",
    "2024E": rf"{_YEAR}[EeAaFf]",
    "2020s": r"(?P<word>(?:19[5-9]|20[0-4])0s)",
    "2024": _YEAR,
    "3/14/2024": rf"(?P<first>\d{{1,2}})/(?P<second>\d{{1,2}})/{_SHORT_YEAR}",
    "14.03.2024": rf"(?P<first>\d{{1,2}})\.(?P<second>\d{{1,2}})\.{_YEAR}",
    "14.03.24": r"(?P<first>3[01]|[12]\d|0?[1-9])\.(?P<second>1[0-2]|0?[1-9])\.(?P<year>\d\d)",
    "14-03-2024": rf"(?P<first>\d{{1,2}})-(?P<second>\d{{1,2}})-{_YEAR}",
    "14-03-24": r"(?P<first>\d\d)-(?P<second>\d\d)-(?P<year>\d\d)",
    "03/2024": rf"{_MONTH}[-/]{_YEAR}",
    "03/14": (  # "11/12" may be a fraction
        r"(?<!\d\s)(?:(?P<month>0[1-9])/(?P<day>0[1-9]|[12]\d|3[01])"
        r"|(?P<late>1[0-2])/(?P<late_day>0[1-9]|1[3-9]|2\d|3[01]))"
    ),
    "14 March 2024": rf"{_ORDINAL_DAY}(?:[-/\s]|\s(?:of\s)?)?{_NAME}\.?,?[-/\s]?{_SHORT_YEAR}(?:[:\s]{_CLOCK})?",
    "14 March": rf"{_ORDINAL_DAY}\s{{1,2}}(?:of\s)?{_CLEAR_NAME}",
    "1Q24": rf"(?P<quarter>[1-4])Q{_QUARTER_OF}{_SHORT_YEAR}",
    "1H24": rf"(?P<word>[12]H{_QUARTER_OF}{_SHORT_YEAR})",
    "1st half of 2024": rf"(?P<word>(?=\d){_HALF}{_QUARTER_OF}{_YEAR})",
    "1st quarter of 2024": rf"(?=\d){_ORDINAL}[-\s](?i:quarter){_QUARTER_OF}{_YEAR}",
    "1st quarter": rf"(?=\d){_ORDINAL}[-\s](?i:quarter)",
    "1Q": r"(?P<quarter>[1-4])Q",
    "1710403200": r"(?P<seconds>1\d{9})(?:\d{3})?",
    "March 14-16, 2024": rf"(?P<word>{_NAME}\.?\s{{0,2}}{_ORDINAL_DAY}{_TO_DAY}(?:,?\s{{1,2}}{_YEAR})?)",
    "March 14, 2024": rf"{_NAME}\.?\s{{0,2}}{_ORDINAL_DAY}(?:,\s{{0,2}}|\s{{1,2}})(?:{_CLOCK}\s)?{_CUT_YEAR}",
    "March to May 2024": (
        rf"(?P<word>{_CAPITAL_NAME}\.?(?:\s?[-\u2013\u2014/]\s?|\s(?:to|through|thru|and|until)\s)"
        rf"{_CAPITAL_NAME.replace('<name>', '<until>')}(?:,?\s{{0,2}}{_YEAR})?)"
    ),
    "March 2024": rf"{_NAME}\.?(?:\s(?:of\s)?|,\s|-|/)?{_YEAR}",
    "Mar '24": rf"{_NAME}\.?\s?(?P<year>['\u2019]\d\d)",
    "Mar-24": rf"{_CAPITAL_NAME}-?(?P<year>\d\d)",
    "March 14": rf"{_CLEAR_NAME}(?:\.\s{{0,2}}|\s{{1,2}}){_ORDINAL_DAY}",
    "Q1 2024": rf"Q(?P<quarter>[1-4]){_QUARTER_OF}{_SHORT_YEAR}",
    "first quarter of 2024": rf"(?=[A-Za-z]){_ORDINAL}[-\s](?i:quarter){_QUARTER_OF}{_YEAR}",
    "H1 2024": rf"(?P<word>H[12]{_QUARTER_OF}{_SHORT_YEAR})",
    "first half of 2024": rf"(?P<word>(?=[A-Za-z]){_HALF}{_QUARTER_OF}{_YEAR})",
    "FY2024 Q1": rf"{_FISCAL}{_SHORT_YEAR}[-\s]?Q(?P<quarter>[1-4])",
    "FY2024": rf"{_FISCAL}{_SHORT_YEAR}(?:[-/]\d\d|[Ee])?",
    "F1Q24": rf"(?P<fiscal>F)(?P<quarter>[1-4])Q{_SHORT_YEAR}",
    "F2024": rf"(?P<fiscal>F){_YEAR}[Ee]?",
    "CY2024": rf"(?:CY|YE)\s?{_SHORT_YEAR}[Ee]?",
    "W11 2024": rf"(?P<word>W\d\d\s{_YEAR})",
    "Q1": r"Q(?P<quarter>[1-4])",
    "first quarter": rf"(?=[A-Za-z]){_ORDINAL}[-\s](?i:quarter)",
    "last Tuesday": _WEEKDAY,
    "Thanksgiving": _HOLIDAY,
    "March": rf"(?P<word>{_AS_A_WORD}|{_CUT_WORDS}|{_AFTER_A_WORD}(?:[Jj]an|[Mm]ar(?:ch)?|may))",
    "Tue": _CUT_WEEKDAY,
    "'24": r"(?P<year>['\u2019]\d\d)(?![-/]|['\u2019](?!s))(?![^'\u2019\n]{1,60}['\u2019](?![^\W_]))",
    "'20s": r"(?P<word>['\u2019]\d0s)",
}

# Before the digits of a date: no number that goes on, as in 1,2024. After a date likewise.
BEFORE = r"(?<!\d[.,:/])(?<![$€£¥#])"
AFTER = r"(?![^\W_]|[.,:/]\d|\s?%)"

# What a shape may begin with, where it is no digit: looked for first, because most words are no dates.
_BEGINNINGS = {
    "a": "pr ug", "b": "la ox", "c": "hi hr ol yb y", "d": "ec iw", "e": "as le", "f": "eb ir is ou ri y 1 2 3 4",
    "g": "oo ol", "h": "1 2 al an", "i": "nd", "j": "an ul un", "l": "ab as un", "m": "ar ay em on", "n": "ew ex ov",
    "o": "ct", "p": "as re", "q": "1 2 3 4 ua", "r": "am os", "s": "at ec ep un up in", "t": "ha hi hu ue ri",
    "v": "al et", "w": "ed 0 1 2 3 4 5", "y": "om e",
}  # fmt: skip
START = r"['\u2019](?=\d[\ds])"  # where a date may begin beside letters and digits


def alternation() -> str:
    """All shapes as one pattern without groups of its own."""
    shapes = {name: re.sub(r"\(\?P<\w+>", "(?:", shape) for name, shape in SHAPES.items()}

    def any_of(belongs: Callable[[str], bool]) -> str:
        return "|".join(shape for name, shape in shapes.items() if belongs(name))

    years = any_of(lambda name: name.startswith("20"))
    numbers = any_of(lambda name: name[0].isdigit() and not name.startswith("20"))
    begun = "|".join(f"{any_case(a)}(?:{'|'.join(map(any_case, rest.split()))})" for a, rest in _BEGINNINGS.items())
    in_digits = rf"(?=\d){BEFORE}(?:(?=(?:19[5-9]|20[0-4])\d)(?:{years})|(?=\d{{1,2}}(?!\d)|1\d{{9}})(?:{numbers}))"
    return (
        rf"(?:{in_digits}|(?={begun})(?:{any_of(lambda name: name[0].isalpha())})"
        rf"|(?={START})(?:{any_of(lambda name: name[0] in chr(39))})){AFTER}"
    )


@lru_cache(maxsize=8192)
def named_by(text: str) -> str:
    """What a date written in one of the shapes names: the same for every way to write it.

    An ISO date, or "2024-03", "Q1 2024", "FY2024", "2024", "March 14" in that form; else the text itself,
    every word with a capital: a weekday, a holiday, a range, an impossible date.

    Numbers with slashes are read month first where that is possible, as in the United States; those
    with dots or hyphens day first.
    """
    for shape, pattern in _COMPILED.items():
        if found := pattern.fullmatch(text):
            return _READ.get(shape, _read)(found) or string.capwords(text)
    raise ValueError(f"{text!r} is written in none of the shapes {list(SHAPES)}")


def tells_when(text: str) -> bool:
    """Whether a date in one of the shapes says more than a season or a weekday: it names a year, or a day of one.

    "10/07" may be a fraction.
    """
    named = named_by(text)
    return bool(re.search(r"\d", named)) and not re.fullmatch(r"Q\d", named) and not re.fullmatch(r"\d\d/\d\d", text)


def _read(found: re.Match[str]) -> str | None:
    part = found.groupdict()
    if part.get("word"):
        return None
    if part.get("seconds"):
        return datetime.datetime.fromtimestamp(int(part["seconds"]), datetime.UTC).date().isoformat()
    year = _full_year(part["year"]) if part.get("year") else None
    told = "" if year is None else f" FY{year}" if part.get("fiscal") else f" {year}"
    if part.get("ordinal"):
        ordinal = part["ordinal"].lower()
        return f"Q{ordinal[0] if ordinal[0].isdigit() else 1 + ORDINALS.index(ordinal)}{told}"
    if part.get("quarter"):
        return f"Q{part['quarter']}{told}"
    month = part.get("month") or part.get("late")
    if part.get("name"):
        month = str(1 + MONTHS.index(part["name"][:3].lower()))
    if month is None:
        return told.strip()
    if day := part.get("day") or part.get("late_day"):
        return _day(year, int(month), int(day))
    return f"{year}-{int(month):02}"


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


# Of a date by itself, so without what must stand around it.
_COMPILED = {
    name: re.compile(shape.replace(_AFTER_A_WORD, "").replace(_WITH_A_STOP, "")) for name, shape in SHAPES.items()
}
_READ: dict[str, Callable[[re.Match[str]], str | None]] = {
    "3/14/2024": _month_first,
    **dict.fromkeys(("14.03.2024", "14.03.24", "14-03-2024", "14-03-24"), _day_first),
}
