"""The numeric audit: which figures of a text do not occur in what its writer was given."""

import re
from decimal import Decimal

from fintrading_agents.neutering import tokens

# A number, signs and units aside. What a letter touches from the left is a name: "Q2", "RSI14".
_FIGURE = re.compile(r"(?<![A-Za-z\d.])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")
# Digits that count nothing: the mark of an item in a list, and the tokens and days of the guard.
_MARK = re.compile(r"^[ \t>#*_-]{0,9}\d{1,2}[.)](?=[\s*_]|$)", re.MULTILINE)
_NAMED = re.compile(rf"{tokens.pattern(forms=False, relative=False)}|(?<![^\W_])Day \d+")


def figures(text: str) -> list[str]:
    """The figures of a text, in order, as they are written."""
    return _FIGURE.findall(_NAMED.sub(_without_name, _MARK.sub(" ", text)))


def unsupported(text: str, given: str) -> list[str]:
    """Those figures of a text that do not occur in what was given.

    They are compared by value and without a sign: "1,234.50" is "1234.5", and a fall of 3.1 % is "-3.10 %". A
    figure that was rounded is another one.
    """
    known = {_value(figure) for figure in figures(given)}
    return [figure for figure in figures(text) if _value(figure) not in known]


def _without_name(found: re.Match[str]) -> str:
    means_nothing = found["kind"] and tokens.read(found) is None  # "the company 3 years ago"
    return found.group() if means_nothing else " "


def _value(figure: str) -> Decimal:
    return Decimal(figure.replace(",", ""))
