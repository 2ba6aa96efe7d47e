"""The numeric audit: which figures of a text do not occur in what its writer was given.

A figure is a number in digits, with whatever stands around it: `.75%`, `-3.2 %`, `$1,234.50`, `EUR45`, `RSI14.7`,
`12.5x`, `6.9e7`, `16.9bn`, `71.87-144.02` (two of them); or a number in words that measures something: "fifteen
percent", "two hundred", "three point two million", "two weeks". Its sign is the one that is written, or the one that a
word beside it tells: "fell 3.2 %" is -3.2 %, "a 3.2 % gain" is +3.2 %, and "3.2 %" alone is either.

Left out on purpose, since they measure nothing or may be read in more than one way:

* names: "Q2", "B2B", "MA50", "v1.5", "5G", "2Q23", "S&P 500", "10-K", numberings such as "1.2.3", the guard's tokens;
* marks: of items in a list ("2.", "3)"), "point 2", "#1", and ordinals, "3rd" as well as "third";
* "one" to "nine" without a unit ("one of two sides"), "one day", and what is vague or broken: "dozens", "half",
  "a quarter", "twice", "tenfold".

Nor is it asked what a figure is of: a price that is quoted as a percentage passes, and so does the volume as a price.
"""

import re
from decimal import Decimal
from typing import NamedTuple

from fintrading_agents.neutering import tokens

_ONES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
_TEENS = ["ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_NUMBERS = {word: n for n, word in enumerate(_ONES + _TEENS)} | {word: 10 * n for n, word in enumerate(_TENS, 2)}
_POWERS = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}  # of ten
_LARGE = _POWERS | {"mln": 6, "mn": 6, "bn": 9, "tn": 12, "k": 3, "m": 6, "b": 9, "t": 12}

_MARK = re.compile(
    r"^[ \t>#*_-]{0,9}\d{1,2}[.)](?=[\s*_]|$)"
    r"|(?:\b(?:point|fact|reason|argument|section|round)[ \t]|\#)\#?\d{1,2}\b(?![.,]?\d|[ \t]?%)",
    re.MULTILINE | re.IGNORECASE,
)
_TOKEN = re.compile(rf"{tokens.pattern(forms=False, relative=False)}|(?<![^\W_])Day \d+")
_NAME = re.compile(
    r"(?<![^\W_])(?:[vV]\d+(?:\.\d+)*|(?:10-[KQ]|8-K)s?|\d[GDHQ]\d*|\d+(?:st|nd|rd|th))(?![^\W_])"
    r"|\b(?:S&P|Nasdaq|Russell|Dow|FTSE|Stoxx)[ \t-]?\d{2,4}(?!\d|[.,]\d|[ \t]?%)"
    r"|(?<![\w.,])\d+(?:\.\d+){2,}"
)

_GAP = r"(?:-|[ \t]+)"
_AND = rf"(?:{_GAP}and)?{_GAP}"
_ONE, _POWER = "|".join(_ONES), rf"{_GAP}(?:{'|'.join(_POWERS)})"
_SMALL = rf"(?:(?:{'|'.join(_TENS)})(?:{_GAP}(?:{_ONE}))?|{'|'.join(_TEENS)}|{_ONE})"
_HUNDREDS = rf"(?:(?:{_SMALL}|a){_GAP}hundred(?:{_AND}{_SMALL})?|{_SMALL})"
_PIECES = rf"(?:(?:{_HUNDREDS}|an?){_POWER}{_AND}){{1,4}}{_HUNDREDS}(?:{_POWER})?"  # "two thousand and six"
_BROKEN = rf"{_GAP}point(?:{_GAP}(?:{_ONE}))+|[ \t]+and[ \t]+a[ \t]+half"
_WORDS = rf"(?:{_PIECES}|(?:{_HUNDREDS}|an?(?={_POWER}))(?:{_BROKEN})?)(?![^\W_])"
# A price or a percentage makes a figure of any number in words, a stretch of time of all but "one".
_MEASURED = re.compile(
    rf"{_GAP}?(?:%|(?:percent|per cent|percentage points?|basis points?|bps|dollars?|euros?|cents|times|shares)\b)",
    re.I,
)
_LASTED = re.compile(
    rf"{_GAP}(?:(?:trading|straight|consecutive){_GAP})?(?:day|session|week|month|quarter|year)s?\b", re.I
)

_DIGITS = (
    r"(?:\d{1,3}(?:[,\u2009\u202f]\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|(?<![\w.])\.\d+)"
    r"(?:[eE][-+]?\d{1,2}(?!\w))?"
)
_FIGURE = re.compile(
    rf"(?:(?<![^\W_])(?P<words>(?i:{_WORDS}))"
    r"|(?P<sign>(?<![\w%.)\]])[-+\u2212\u2013])?(?P<glued>(?<![^\W\d_])[^\W\d_]+)?(?P<currency>[$€£¥][ \t]?)?"
    rf"(?P<inner>[-+\u2212])?(?P<digits>{_DIGITS}))"
    r"(?P<large>[- \t]?(?i:thousand|million|billion|trillion|mln|mn|bn|tn)(?![^\W_])|[KMBTkmb](?![^\W_]))?"
)
# Letters to which a value is glued. Behind others a whole number is part of a name.
_VALUED = ["USD", "EUR", "GBP", "JPY", "CAD", "AUD", "CHF", "CNY", "HKD", "INR", "KRW", "RSI", "MACD"]

_DOWN = (
    r"f[ae]ll(?:s|en|ing)?|drop(?:s|ped|ping)?|declin(?:es?|ed|ing)|los(?:s|e[sd]?|ses|ing)|lost|slid(?:es?|ing)?|"
    r"slip(?:s|ped|ping)?|sank|plung(?:es?|ed|ing)|tumbl(?:es?|ed|ing)|shed|retreat(?:s|ed|ing)?|decreas(?:es?|ed|ing)|"
    r"dip(?:s|ped|ping)?|down"
)
_UP = (
    r"r(?:ise|ose)s?|ris(?:en|ing)|gain(?:s|ed|ing)?|climb(?:s|ed|ing)?|increas(?:es?|ed|ing)|advanc(?:es?|ed|ing)|"
    r"jump(?:s|ed|ing)?|surg(?:es?|ed|ing)|soar(?:s|ed|ing)?|rall(?:y|ies|ied|ying)|gr[eo]w(?:s|n|ing|th)?|"
    r"rebound(?:s|ed|ing)?|up"
)
_SOME = (
    r"(?:[ \t]+(?:by|of|about|some|nearly|almost|only|just|roughly|around|approximately|an?|another|a[ \t]+further))*"
)
_BEFORE = re.compile(rf"\b(?:(?P<down>{_DOWN}|minus|negative)|(?:{_UP}|plus|positive)){_SOME}[ \t]+\(?\Z", re.I)
_AFTER = re.compile(
    rf"(?:[ \t]?%|{_GAP}(?:percent|per cent|points?|dollars))?{_GAP}"
    rf"(?:(?P<down>{_DOWN}|lower|below)|(?:{_UP}|higher|above))\b",
    re.I,
)
_NEAR = 60  # characters in which a word before a figure is looked for


class Figure(NamedTuple):
    """One number of a text."""

    text: str  # as it is written, with its sign
    number: Decimal  # without sign and magnitude
    power: int  # of ten, that a word for its magnitude tells; 0: none does
    sign: int  # -1, +1; 0: nothing tells it

    def is_told_by(self, other: "Figure") -> bool:
        """Whether the other one is the same; a sign and a magnitude count where both of them tell one."""
        if self.sign * other.sign < 0 and self.number:
            return False
        if self.number == other.number and not (self.power and other.power):
            return True
        return self.readings()[-1] == other.readings()[-1]

    def readings(self) -> tuple[Decimal, Decimal]:
        """The number without its magnitude, and with it."""
        sign, digits, exponent = self.number.as_tuple()
        return self.number, Decimal((sign, digits, int(exponent) + self.power))  # exact, however long it is


def figures(text: str) -> list[Figure]:
    """The figures of a text, in order."""
    text = _NAME.sub(" ", _TOKEN.sub(_without_name, _MARK.sub(" ", text)))
    return [figure for found in _FIGURE.finditer(text) if (figure := _read(found))]


def unsupported(text: str, given: str) -> list[str]:
    """Those figures of a text, as they are written, that do not occur in what was given.

    They are compared by value: "1,234.50" is "1234.5", and "$1.2 billion" is "1,200 million". One that was rounded is
    another one, and so is a rise of what has fallen.
    """
    known: dict[Decimal, set[Figure]] = {}
    for other in figures(given):
        for number in other.readings():
            known.setdefault(number, set()).add(other)
    return [
        figure.text
        for figure in figures(text)
        if not any(figure.is_told_by(other) for number in figure.readings() for other in known.get(number, ()))
    ]


def _read(found: re.Match[str]) -> Figure | None:
    """The figure of a match, None if it is a name or measures nothing."""
    power = _LARGE[found["large"].strip("- \t").lower()] if found["large"] else 0
    if words := found["words"]:
        number = _number(words.lower())
        if number < 10 and number == int(number) and not (power or _measures(found, number)):
            return None
        return Figure(found.group(), number, power, _direction(found))
    glued, digits = found["glued"], found["digits"]
    plain = not glued or found["currency"] or found["inner"] or glued in _VALUED
    if not plain and "." not in digits:
        return None
    written = found["sign"] or (found["inner"] if found["currency"] or glued in _VALUED else "") or ""
    sign = _direction(found) if not written else 1 if written == "+" else -1
    number = Decimal(re.sub("[,\u2009\u202f]", "", digits))
    return Figure(f"{written}{digits}{found['large'] or ''}", number, power, sign)


def _measures(found: re.Match[str], number: Decimal) -> bool:
    return bool(
        _MEASURED.match(found.string, found.end()) or (number != 1 and _LASTED.match(found.string, found.end()))
    )


def _direction(found: re.Match[str]) -> int:
    """The sign that words beside a figure tell, if they agree."""
    text, start = found.string, found.start()
    beside = _BEFORE.search(text[max(0, start - _NEAR) : start]), _AFTER.match(text, found.end())
    signs = {-1 if match["down"] else 1 for match in beside if match}
    return signs.pop() if len(signs) == 1 else 0


def _number(words: str) -> Decimal:
    """The value of a number in words."""
    total, piece = 0, int(words in ("a", "an"))  # as in "a million"; elsewhere they add nothing
    whole, _, decimals = " ".join(words.replace("-", " ").split()).partition(" point ")
    for word in whole.split():
        if word in _POWERS:
            total, piece = total + max(piece, 1) * 10 ** _POWERS[word], 0
        elif word == "hundred":
            piece = max(piece, 1) * 100
        else:
            piece += _NUMBERS.get(word, 0)
    digits = "".join(str(_NUMBERS[word]) for word in decimals.split())
    return Decimal(f"{total + piece}.{digits or ('5' if whole.endswith(' half') else '0')}")


def _without_name(found: re.Match[str]) -> str:
    means_nothing = found["kind"] and tokens.read(found) is None  # "the company 3 years ago"
    return found.group() if means_nothing else " "
