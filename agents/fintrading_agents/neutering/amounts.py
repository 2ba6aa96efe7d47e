"""Amounts in texts: prices, which go through the view's scale, and numbers that only look like prices or years."""

import re
from collections.abc import Callable

from fintrading_agents.neutering.tokens import BEGIN, any_case

NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
_DECIMAL = r"\d+(?:,\d{3})*\.\d+"
_RANGE = rf"{NUMBER}(?:\s?[-\u2013\u2014]\s?{NUMBER}(?![-\u2013\u2014]?\d))?"
_CURRENCY = r"(?:USD|EUR|GBP|JPY|CAD|dollars?|euros?|pounds|yen|cents)"
# An amount or a range of them, and the word that makes it another thing than the price of a share.
MONEY = (
    rf"(?P<money>(?=[$€£¥\dUEGJCAH])(?:(?:US|C|A|HK)?[$€£¥]\s?{_RANGE}|(?:USD|EUR|GBP|JPY|CAD)\s?{_RANGE}"
    rf"|(?<![\w.,]){_RANGE}(?=\s?{_CURRENCY}(?![^\W_]))))"
    r"(?P<large>[-\s]?(?:thousand|million|billion|trillion|mln|mn|bn|tn|[KMBTkmb])(?![^\W_]))?"
)
# Words before a price; by their first letters, since most words are none.
_CUES = {
    "a": "sk verage", "b": "id", "c": "lose loses losed losing", "e": "ma nded", "f": "inished", "h": "igh ighs",
    "l": "ow ows", "o": "pen pens pened pening", "p": "t rice rices riced ricing", "r": "esistance",
    "s": "ma trike upport ettled", "t": "arget argets raded rades rading", "v": "wap",
}  # fmt: skip
_CUE = "|".join(f"{any_case(a)}(?:{'|'.join(map(any_case, rest.split()))})" for a, rest in _CUES.items())
# A number with decimals, and no currency, behind a word that says it is a price.
PRICED = (
    rf"(?P<cue>(?:{_CUE})(?![^\W_])[\"']?\s?[:=]?\s?"
    r"(?i:(?:price|level|at|of|to|near|around|above|below|from|is|was|raised|lifted|cut|lowered)\s){0,3})"
    rf"(?P<bare>{_DECIMAL}(?:\s?[-\u2013\u2014]\s?{NUMBER}|\s(?:to|from|and|or|vs\.?)\s{_DECIMAL})?)"
    r"(?![\d-]|[.,]\d|\s?%|\s?(?:per\s?cent|points?|pts|bps|x|times|thousand|million"
    r"|billion|trillion|mln|mn|bn|tn)(?![^\W_]))"
)
# Numbers that may look like a year and count something; and the days of the masked view.
COUNT = (
    rf"(?P<count>(?=[\dD])(?:(?<![\w.,]){NUMBER}\s(?:shares|points|employees|people|workers|jobs|stores|units|basis|bps|percent)"
    r"(?![^\W_])|Day\s\d{1,5}(?!\d)))"
)

# What has highs, closes and averages too: with these words right before or behind it, a number is no share's.
_ELSE = (
    r"(?:RSI|MACD|VIX|P/?E|EPS|EBITDA|CPI|PPI|PMI|GDP|beta|margins?|yields?|rates?|funds?|ratings?|ratios?|multiples?|index"
    r"|indices|inflation|unemployment|volatility|scores?|oil|crude|Brent|WTI|gas|gold|silver|copper|bitcoin|ether)"
)
_BEFORE = re.compile(rf"(?i)(?<![^\W_]){_ELSE}(?:['\u2019]s)?[\s:,(-]{{1,3}}(?:[\w-]{{1,9}}[\s:]{{1,2}}){{0,2}}$")
_BEHIND = re.compile(rf"(?i)\s?(?:(?:out\s)?of\s\d|/\s?\d|(?:on\s(?:the\s)?)?{_ELSE}(?![^\W_]))")
NEAR = (0.25, 6.0)  # times the stock's first price: beyond, a number without a currency is hardly one of its prices

AMOUNTS = re.compile(rf"(?=[$€£¥]|{BEGIN}\w){MONEY}")


def of_something_else(priced: re.Match[str]) -> bool:
    """Whether the words around say that what `PRICED` found is no price of a share."""
    before = priced.string[max(0, priced.start() - 40) : priced.start()]
    return bool(_BEFORE.search(before) or _BEHIND.match(priced.string, priced.end()))


def with_prices(amount: str, change: Callable[[str], str]) -> str:
    """An amount, or a range, with every number in it changed."""
    return re.sub(NUMBER, lambda number: change(number.group()), amount)
