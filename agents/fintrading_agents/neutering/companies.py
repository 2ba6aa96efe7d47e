"""Whom a text may name: the table of companies, people, products and sectors, and patterns for their aliases."""

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path

from fintrading_agents.neutering.tokens import any_case

# How an alias may be spelt elsewhere. Between words: nothing, a space, a hyphen, a line break.
_SPACE = r"[\s_\-\u2010-\u2015]"
_APOSTROPHE = r"['\u2019]|&#39;|&#x27;|&apos;"
_SPELLINGS = {"'": rf"(?:{_APOSTROPHE})?", ".": r"[.\-/]?", ",": ",?", "&": "(?:&amp;|&|and)"}
SUFFIX = (
    r"(?:,?\s{1,2}(?:Inc|INC|Incorporated|Corp|CORP|Corporation|Co|Company|Companies|Ltd|LTD|Limited|PLC|plc|p\.l\.c|LLC"
    r"|LP|NV|N\.V|SA|S\.A|AG|SE|Group|Holdings?|Class\s[A-C]|Common\sStock)(?![^\W_])\.?){0,3}"
)
# What may be glued to a name of four letters or more: a number, the rest of an option's symbol, words in capitals.
GLUED = r"(?:(?<=[^\W_]{3}[A-Za-z])\d{1,15}(?:[CP]\d{8})?|(?<=[^\W_]{3}[a-z])(?:[A-Z][a-z]+)+\d{0,4})?"
ONE_OF_A_SECTOR = r"(?=[\s-]{1,2}(?:sector|industr|stocks?|shares|compan|names|firms|giants?|makers?|etfs?|funds?))"
EXCHANGES = (
    r"(?:NYSE(?:\s?(?:American|Arca|MKT|ARCA))?|(?:NASDAQ|Nasdaq)(?:[GC][SM])?|NYSEARCA|AMEX|ARCA|BATS|CBOE|OTC|LSE|TSX"
    r"|XNYS|XNAS)"
)


class Ambiguous(ValueError):  # noqa: N818 - reads as a sentence where it is raised and caught
    """A text or a table that could not be restored: an alias of two owners, or a text that already holds a token."""


@dataclass(frozen=True)
class Company:
    """A company as texts name it. Every company needs a ticker or a name."""

    tickers: tuple[str, ...] = ()  # of all its share classes
    names: tuple[str, ...] = ()  # the one to restore to first; then short and former ones
    people: tuple[str, ...] = ()  # "Elon Musk", and "Musk" where the surname alone tells
    products: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entity:
    """Somebody or something with a token of its own."""

    kind: str  # of tokens.WIDTHS
    aliases: tuple[str, ...]  # the one to restore to first
    tickers: tuple[str, ...] = ()  # those of the aliases that are tickers


@dataclass(frozen=True)
class Table:
    """The file of companies."""

    companies: tuple[Company, ...]
    sectors: tuple[tuple[str, ...], ...]
    words: frozenset[str]  # aliases that are words too
    doubtful: frozenset[str]  # those of them that are mostly words
    prefixed: frozenset[str]  # tickers that stay unless marked as tickers


@cache
def table() -> Table:
    """The table that ships: over a hundred companies, all bundled tickers among them."""
    content = tomllib.loads(Path(__file__).with_name("companies.toml").read_text(encoding="utf-8"))
    companies = [Company(**{name: tuple(values) for name, values in entry.items()}) for entry in content["company"]]
    sectors = tuple(tuple(entry["names"]) for entry in content["sector"])
    lists = (frozenset(content[name]) for name in ("words", "doubtful", "prefixed"))
    return Table(tuple(companies), sectors, *lists)


@cache
def entities(more: tuple[Company, ...]) -> tuple[Entity, ...]:
    """Everybody of the table and of `more`; who shares a ticker with a company of the table belongs to it."""
    known = list(table().companies)
    for company in more:
        if not (company.tickers or company.names):
            raise ValueError(f"{company} needs a ticker or a name")
        at = next((k for k, other in enumerate(known) if set(other.tickers) & set(company.tickers)), None)
        if at is None:
            known.append(company)
        else:
            known[at] = Company(
                *(tuple(dict.fromkeys(a + b)) for a, b in zip(_fields(known[at]), _fields(company), strict=True))
            )
    found = [Entity("Sector", names) for names in table().sectors]
    for company in known:
        found.append(Entity("Company", company.names + company.tickers, company.tickers))
        found += [Entity("Product", (product,)) for product in company.products]
        found += _people(company.people)
    return tuple(found)


def _people(names: Sequence[str]) -> list[Entity]:
    """A person each; a surname belongs to the first full name that ends with it."""
    people: dict[str, tuple[str, ...]] = {name: (name,) for name in names if " " in name}
    for name in names:
        if " " not in name:
            whose = next((full for full in people if full.endswith(f" {name}")), name)
            people[whose] = (*people.get(whose, ()), name)
    return [Entity("Person", aliases) for aliases in people.values()]


def tidied(company: Company) -> Company:
    """The company with single spaces in its aliases, as they are looked for.

    Raises:
        ValueError: an alias begins with what no name begins with, so that no text would be searched for it.
    """
    fields = [tuple(" ".join(alias.split()) for alias in field) for field in _fields(company)]
    for alias in chain.from_iterable(fields):
        if not alias[:1].isalnum():
            raise ValueError(f"{company}: {alias!r} begins with neither a letter nor a digit, as an alias must")
    return Company(*fields)


def _fields(company: Company) -> tuple[tuple[str, ...], ...]:
    return company.tickers, company.names, company.people, company.products


@lru_cache(maxsize=8192)
def key(alias: str) -> str:
    """An alias without its spelling: case, spaces, hyphens, dots and "&"."""
    plain = re.sub(_APOSTROPHE, "", alias).replace("&amp;", "&").replace("&", "and")
    return re.sub(r"[\W_]+", "", plain.casefold())


@cache
def owners(more: tuple[Company, ...]) -> dict[str, Entity]:
    """Who is meant by an alias, by its `key`.

    Raises:
        Ambiguous: two are.
    """
    owner: dict[str, Entity] = {}
    for entity in entities(more):
        for alias in entity.aliases:
            if owner.setdefault(key(alias), entity) != entity:
                others = owner[key(alias)].aliases[0], entity.aliases[0]
                raise Ambiguous(f"Alias {alias!r} has two owners, {others[0]!r} and {others[1]!r}; leave it out of one")
    return owner


@cache
def alternation(more: tuple[Company, ...], played: tuple[str, ...]) -> tuple[str, str]:
    """Two patterns: every alias, the longest first; and the tickers that need a mark before them.

    The aliases stand behind their first two characters, so that at most places of a text few are tried.

    Args:
        more: companies beside those of the table.
        played: tickers that need no mark, of two letters or more, whatever words they are.
    """
    groups: dict[str, dict[str, list[tuple[str, str]]]] = {}  # patterns of the first character and of the second
    marked = []
    for entity in entities(more):
        for alias in entity.aliases:
            if len(alias) == 1 or (alias in entity.tickers and alias in table().prefixed):
                marked.append(re.escape(alias))
                if len(alias) == 1 or alias not in played:
                    continue
            # Behind the first two, or behind the first where the second may be left out ("J.P. Morgan", "F-150").
            begun = 2 if alias[1].isalnum() else 1
            first, second = any_case(alias[0]), any_case(alias[1:begun])
            for pattern in _spellings(alias, entity, begun):
                groups.setdefault(first, {}).setdefault(second, []).append((alias, pattern))
    tried = []
    for first, behind in sorted(groups.items()):
        inner = []
        for second, patterns in sorted(behind.items(), reverse=True):
            longest_first = sorted(set(patterns), key=lambda pair: (-len(pair[0]), pair))
            inner.append(f"{second}(?:{'|'.join(pattern for _, pattern in longest_first)})")
        tried.append(f"{first}(?:{'|'.join(inner)})")
    return "|".join(tried), "|".join(sorted(marked, key=len, reverse=True))


def ticker_with_a_mark(tickers: str) -> str:
    """Tickers behind "$" or an exchange, or before one as news agencies write it: "(F.N)", "F US Equity", "F:US"."""
    agency = r"(?<=[(\[<])(?:TICKERS)(?=\.(?:N|O|OQ|K|A|P|L|DE|PA|T|HK|TO|SW)[)\]>,])"
    terminal = r"(?:TICKERS)(?=\sU[SNQW]\sEquity|:US(?![^\W_])|\sUS\))"
    ways = rf"(?P<mark>\$)(?P<cash>(?i:TICKERS))|(?P<where>{EXCHANGES}\s?:\s?)(?P<ticker>TICKERS)"
    return rf"(?=[$A-Z])(?:{ways}|(?P<quoted>{agency}|{terminal}))(?![^\W_])".replace("TICKERS", tickers)


def _spellings(alias: str, entity: Entity, begun: int) -> Iterable[str]:
    one_word = " " not in alias
    if alias in entity.tickers and (len(alias) <= 3 or alias in table().prefixed) and alias not in table().words:
        yield _pattern(alias, begun, as_written=True)
    elif alias in table().words or (entity.kind == "Sector" and one_word):
        only_before = ONE_OF_A_SECTOR if entity.kind == "Sector" else r"(?=\.com)"
        yield _pattern(alias, begun, as_written=True)
        yield _pattern(alias.upper(), begun, as_written=True)
        yield _pattern(alias.lower(), begun, as_written=True) + only_before
    else:
        yield _pattern(alias, begun, as_written=False)


def _pattern(alias: str, begun: int, as_written: bool) -> str:
    """The alias from its character `begun` on; with `as_written` a look back at those before it."""
    words = alias.split(" ")
    spelt = ["".join(_character(c, as_written) for c in word) for word in [words[0][begun:], *words[1:]]]
    pattern = f"(?<={re.escape(alias[:begun])}){spelt[0]}" if as_written else spelt[0]
    for before, word, piece in zip(words, words[1:], spelt[1:], strict=False):
        # "Model S" may be written "Model-S" or "ModelS", and "models" is another word.
        if len(word) == 1 and word.isupper():
            pattern += f"(?:{_SPACE}{{1,2}}{piece}|(?<=[a-z]){word})"
        else:
            pattern += _SPACE + ("{1,2}" if len(before) == 1 or not word[0].isalnum() else "{0,2}") + piece
    return pattern


def _character(c: str, as_written: bool) -> str:
    if c == "-":
        return _SPACE + "{0,2}"
    return _SPELLINGS.get(c) or (re.escape(c) if as_written else any_case(c))
