"""The tokens that stand for names and dates, and how a model may write them back."""

import re
from functools import cache

# Digits of a token's number. All tokens of a kind are equally long, so none is a prefix of another.
WIDTHS = {"Company": 3, "Person": 3, "Product": 3, "Sector": 3, "Date": 4}
OFFSET = 4  # digits of T-0005
# Where a name, a date or a token may begin: behind no letter or digit, but for those that in JSON stand for a line
# break and the like.
BEGIN = r"(?:(?<![^\W_])|(?<=\\[nrtbf])|(?<=\\u[\da-fA-F]{4}))"
FORM = 3  # digits of the last number in Company-001-002, which tells how the name was written


def any_case(text: str) -> str:
    """A pattern of the text in upper, lower and mixed case, which `re` looks up faster than with its flag."""
    return "".join(map(_any_case, text))


def _any_case(c: str) -> str:
    ways = sorted({c, c.lower(), c.upper()})
    if len(ways) == 1:
        return re.escape(c)
    return f"[{''.join(ways)}]" if all(len(way) == 1 for way in ways) else f"(?:{'|'.join(map(re.escape, ways))})"


_DASH = "[-\u2010-\u2015\u2212]"
_DATED = r"(?:19[5-9]|20[0-4])\d[-./]\d{1,2}(?!\d)"  # "Date-2022-10-07" holds a date, and is no token
# In any case, with any dash, a space, "#" or nothing in its place, in bold, and without its zeros, as long as a dash,
# a zero or a capital still shows that a token is meant.
_NUMBERED = (
    rf"(?:[*_`]{{1,2}}(?=[A-Za-z]+[*_`]))?(?P<kind>{'|'.join(map(any_case, WIDTHS))})[*_`]{{0,2}}"
    rf"(?:(?:{_DASH}|\s?#)(?!{_DATED})(?P<dashed>\d{{1,4}})|\s?(?:{_DASH}|#|:)?\s?(?P<padded>0\d{{2,3}})"
    r"|\s(?P<spaced>[1-9]\d{0,2})(?![^\W_]))"
)
_RELATIVE = rf"[Tt]\s?(?P<sign>{_DASH}|\+)\s?(?P<offset>\d{{1,{OFFSET}}})"


@cache
def pattern(forms: bool, relative: bool) -> str:
    """What may be a token.

    Args:
        forms: tokens tell how a name was written.
        relative: dates are told as days from today.
    """
    written = rf"(?:-(?P<form>\d{{{FORM}}})(?!\d))?" if forms else r"(?P<form>(?!))?"
    return rf"{BEGIN}(?:{_NUMBERED}|{_RELATIVE if relative else '(?P<sign>(?!))(?P<offset>)'})(?!\d){written}"


def read(found: re.Match[str]) -> str | None:
    """The token that a match of `pattern` means, spelt right; None if it means none ("the company 3 years ago")."""
    form = f"-{found['form']}" if found["form"] else ""
    if found["offset"]:
        return relative_day(int(found["offset"]) * (1 if found["sign"] == "+" else -1)) + form
    if found["spaced"] and not found["kind"][0].isupper():
        return None
    digits = found["dashed"] or found["padded"] or found["spaced"]
    kind = found["kind"].title()
    return (numbered(kind, int(digits)) if len(digits) <= WIDTHS[kind] else f"{kind}-{digits}") + form


def numbered(kind: str, number: int) -> str:
    """`Company-001`."""
    return f"{kind}-{_fixed(number, WIDTHS[kind], f'{kind} tokens')}"


def with_form(token: str, number: int) -> str:
    """`Company-001-002`."""
    return f"{token}-{_fixed(number, FORM, f'ways to write {token}')}"


def _fixed(number: int, width: int, what: str) -> str:
    if number >= 10**width:
        raise ValueError(f"There are no more than {10**width - 1} {what}; begin a new map")
    return f"{number:0{width}}"


def relative_day(days: int) -> str:
    """`T-0005` for the fifth day before today."""
    return f"T{'+' if days > 0 else '-'}{abs(days):0{OFFSET}}"
