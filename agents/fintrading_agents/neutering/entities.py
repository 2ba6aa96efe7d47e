"""The guard for free text: whoever and whenever a text names becomes a token, and a token becomes the name again."""

import hashlib
import re
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fintrading_agents.neutering import dates, tokens
from fintrading_agents.neutering.amounts import (
    AMOUNTS,
    COUNT,
    MONEY,
    NEAR,
    NUMBER,
    PRICED,
    of_something_else,
    with_prices,
)
from fintrading_agents.neutering.companies import (
    GLUED,
    SUFFIX,
    Ambiguous,
    Company,
    Entity,
    alternation,
    entities,
    key,
    owners,
    table,
    ticker_with_a_mark,
    tidied,
)
from fintrading_gym.masking import DATED, FIRST_CLOSE, PRICE_STEP, SCALED, find_identity, mask, on_grid
from fintrading_gym.observations import price_text
from fintrading_gym.rollout import Task
from fintrading_gym.windows import Window, iso_date

YEAR = 250  # days before the window of which research tells the highest and the lowest price
OUTSIDE = 5001  # dates that are no trading day of the calendar are numbered from here on

DAY = r"Day\s?(?P<day>\d{1,4})(?![^\W_])"  # as the masked view writes it


class Found(NamedTuple):
    """Something in a text that tells who or when."""

    kind: str  # of tokens.WIDTHS
    text: str  # as it is written
    at: int  # where it begins


class EntityMap:
    """Names and dates to tokens and back, for one played stock. Threads may share a map.

    The played company is `Company-001`, as in the masked view. Every other company of the table, its
    people and products, and sectors have tokens too, whether a text names them or not; the numbers are
    drawn from the symbol and the seed, so that they tell nothing and do not hang on the order in which
    companies are given. A date's number is its place among `days`, the same as in the view's `Day 37`;
    other dates, months, quarters and years are numbered as they are met.

    As a rule all ways to write a name share a token, which comes back as the first name: "AAPL" and
    "Apple" both as "Apple Inc.", a date in ISO form. With `exact` each way has a token of its own,
    `Company-001-002`, and `restore(neuter(text)) == text`.

    A price that a text quotes ("$242.40", "closed at 242.40", but not "$2 billion") is multiplied by `scale`
    as the view's prices are, and `restore` divides. Other numbers stay, and so do those without a currency that are far
    from the stock's prices, or that their words say are of something else ("RSI high of 70.5").
    """

    def __init__(
        self,
        symbol: str,
        *,
        companies: Iterable[Company] = (),
        identity: str = "masked",
        exact: bool = False,
        days: Sequence[str] = (),
        today: str | None = None,
        scale: float = 1.0,
        prices: Mapping[float, float] = MappingProxyType({}),
        seed: int = 0,
    ):
        """Give everybody who is known a token.

        Args:
            symbol: the ticker played.
            companies: others than those of the table, or more names of those.
            identity: how much is hidden, as `masking.find_identity` takes it: from "names+dates" on dates, from
                "masked" on quoted prices are scaled, with "coarse" rounded too; "real" leaves every text as it is.
            exact: a token for each way to write a name.
            days: the trading days that dates are counted in, ISO, ascending; the first is Day 1.
            today: one of `days`; days are then told from it, as `T-0005`.
            scale: `masking.Mask.scale` of the view.
            prices: those of the view as it prints them, and what each is in USD: they come back as what they were,
                and not a cent beside it. Others are divided by `scale`.
            seed: of the numbers.

        Raises:
            UnknownName: no such level.
            ValueError: `days` are no ascending ISO dates, `today` is none of them, or `scale` is not positive.
            Ambiguous: an alias has two owners.
        """
        identity = find_identity(identity)
        if list(days) != sorted({day for day in days if iso_date(day)}) or len(days) >= OUTSIDE:
            raise ValueError(f"days are not at most {OUTSIDE - 1} ascending dates of the form YYYY-MM-DD")
        if today is not None and today not in days:
            raise ValueError(f"today={today!r} is none of the {len(days)} days")
        if not 0 < scale < float("inf"):
            raise ValueError(f"scale={scale!r} is not a number > 0")
        self.symbol, self.identity, self.exact = symbol, identity, exact
        self.unknown: Counter[str] = Counter()
        """What `restore` met that is written like a token and means nothing, and how often."""
        self._scale = scale if identity in SCALED else 1.0
        self._printed = prices if identity in SCALED else {}
        more = tuple(sorted({tidied(company) for company in companies}, key=repr))
        self._owners = owners(more)
        primary = next((entity for entity in entities(more) if symbol in entity.tickers), None)
        if primary is None:  # a ticker of one's own, which means the company even where somebody's name is written so
            more += (Company(tickers=(symbol,)),)
            primary = entities(more)[-1]
            self._owners = self._owners | {key(symbol): primary}
        self._entities: dict[Entity | str, str] = dict(_drawn(more, primary, seed))
        """An entity, or what a date names: its token."""
        self._names = {
            token: entity.aliases[0] for entity, token in self._entities.items() if isinstance(entity, Entity)
        }
        """A token: what it is restored to."""
        self._number_days(days, today)
        self._forms: dict[tuple[str, str], str] = {}  # a token, and a way to write the name: that way's own token
        self._ways: Counter[str] = Counter()  # a token: how many there are
        self._told: dict[str, str] = {}  # a price as texts quote it: as it is told
        self._left: dict[str, str] = {}  # a number that might be one, and is not: the same number
        self._quoted: dict[str, str] = {}  # and back
        self._heard: set[str] = set()  # amounts that a model wrote, on the view's scale
        self._lock = threading.Lock()
        self._days = () if exact else tuple(days)
        token = tokens.pattern(exact, today is not None)
        prefixed = tuple(ticker for ticker in primary.tickers if ticker in table().prefixed)
        self._hides = more, prefixed, identity not in DATED, token
        labels = [DAY] if self._days and identity not in DATED else []
        amounts = [MONEY, PRICED] if self._scale != 1 else []
        told = "|".join([token, *labels, *amounts])
        self._restoring = re.compile(rf"(?=[$€£¥*_`]|{tokens.BEGIN}[^\W_])(?:{told})")
        for company in more:
            for alias in company.tickers + company.names + company.people + company.products:
                if identity != "real" and not self.find(f"({alias}) ${alias}"):
                    raise Ambiguous(f"Alias {alias!r} is written like a token or an amount, and would never be found")

    def _number_days(self, days: Sequence[str], today: str | None) -> None:
        now = None if today is None else days.index(today)
        for k, day in enumerate(days):
            token = tokens.numbered("Date", k + 1) if now is None else tokens.relative_day(k - now)
            self._entities[day] = token
            self._names[token] = day
        self._next_date = OUTSIDE if days and today is None else 1

    # ------------------------------------------------------------------------------------- there

    def neuter(self, text: str, *, keep_tokens: bool = False) -> str:
        """The text with tokens for names and dates, in one pass over it.

        Args:
            text: what an agent is to read.
            keep_tokens: for texts of which parts have been here before. What looks like a token stays, and so do
                amounts that this map told, or that were `heard`, and numbers that only their words make prices.

        Raises:
            Ambiguous: the text holds what looks like a token, and `keep_tokens` is not set.
            ValueError: there are more dates, or more ways to write a name, than tokens.
        """
        if self.identity == "real":
            return text

        def hidden(match: re.Match[str]) -> str:
            if match["token"] is None:
                return self._hidden(match, keep_tokens)
            if not keep_tokens and tokens.read(match):
                raise Ambiguous(f"The text holds {match.group()!r} at {match.start()}, which looks like a token")
            return match.group()

        with self._lock:
            priced = self._scale != 1 and not keep_tokens
            return _identifying(*self._hides, priced=priced).sub(hidden, text)

    def heard(self, text: str) -> None:
        """Note what a model wrote: an amount in it is on the view's scale, and stays as it is when sent again."""
        if self._scale != 1:
            with self._lock:
                for match in AMOUNTS.finditer(text):
                    self._heard.update(re.findall(NUMBER, match["money"]))

    def find(self, text: str) -> list[Found]:
        """All that tells who or when in a text, tokens aside: what `neuter` would hide."""
        return [
            Found(self._owner(name).kind if name else "Date", match.group(), match.start())
            for match in _identifying(*self._hides, priced=False).finditer(text)
            if (name := _name(match)) or match["date"]
        ]

    def _owner(self, name: str) -> Entity:
        """Whose alias it is, perhaps with something `GLUED` to it."""
        while key(name) not in self._owners and _GLUED_LAST.search(name):
            name = _GLUED_LAST.sub("", name)
        return self._owners[key(name)]

    def _hidden(self, match: re.Match[str], kept: bool) -> str:
        if match["money"]:
            as_it_is = match["large"] or self._scale == 1
            return match.group() if as_it_is else with_prices(match["money"], lambda number: self._price(number, kept))
        if match["bare"]:
            told = self._leave if of_something_else(match) else self._bare_price
            return match["cue"] + with_prices(match["bare"], told)
        if match["count"]:
            return match.group()
        if match["date"]:
            return self._written(self._date(dates.named_by(match["date"])), match["date"])
        return self._named(match, _name(match))

    def _named(self, match: re.Match[str], name: str) -> str:
        owner = self._owner(name)
        token = self._entities[owner]
        told: str = (match["mark"] or match["where"] or "") + self._written(token, name + (match["suffix"] or ""))
        if beside := match["own"]:  # "Ford (F)": the ticker of whom was just named
            told += match["between"] + (self._written(token, beside) if self._owner(beside) == owner else beside)
        return told

    def _date(self, named: str) -> str:
        if named not in self._entities:
            self._entities[named] = token = tokens.numbered("Date", self._next_date)
            self._names[token] = named
            self._next_date += 1
        return self._entities[named]

    def _written(self, token: str, text: str) -> str:
        if not self.exact:
            return token
        if (token, text) not in self._forms:
            self._ways[token] += 1
            self._forms[token, text] = written = tokens.with_form(token, self._ways[token])
            self._names[written] = text
        return self._forms[token, text]

    def _bare_price(self, number: str) -> str:
        low, high = NEAR
        near = low <= float(number.replace(",", "")) * self._scale / FIRST_CLOSE <= high
        return self._price(number, kept=False) if near else self._leave(number)

    def _leave(self, number: str) -> str:
        """A number that stays what it is; with more digits where a price was told that reads like it."""
        if number not in self._left:
            alike = (f"{number}{'.' * (k > 0 and '.' not in number)}{'0' * k}" for k in range(1000))
            self._left[number] = next(text for text in alike if text not in self._quoted)
            self._quoted[self._left[number]] = number
        return self._left[number]

    def _price(self, number: str, kept: bool) -> str:
        if kept and (number in self._quoted or number in self._heard):
            return number
        if number not in self._told:
            price = float(number.replace(",", ""))
            if self.identity == "coarse" and price:
                price = float(on_grid(np.array(price), PRICE_STEP))
            price *= self._scale
            if price == float("inf"):  # nobody's price; it must come back all the same
                return self._quoted.setdefault(number, number)
            # Two prices that would read alike get more digits, so that each comes back as it was.
            told = (f"{price:.{digits}f}" for digits in range(2 if price >= 10 else 4, 1000))
            self._told[number] = next(text for text in told if text not in self._quoted)
            self._quoted[self._told[number]] = number
        return self._told[number]

    # -------------------------------------------------------------------------------------- back

    def restore(self, text: str) -> str:
        """The text with names and dates for tokens, in one pass. Tokens that mean nothing stay, and are counted.

        Where dates are told as the view's days, its "Day 37" comes back too, though not with `exact`: there it
        may have stood in the text.
        """
        return text if self.identity == "real" else self._restoring.sub(self._restored, text)

    def names(self, text: str) -> dict[str, str]:
        """The tokens in a text, spelt right, and what each is restored to."""
        if self.identity == "real":
            return {}
        found = (tokens.read(match) for match in self._restoring.finditer(text) if match["kind"] or match["offset"])
        return {token: self._names[token] for token in found if token in self._names}

    def _restored(self, match: re.Match[str]) -> str:
        part = match.groupdict()
        if part.get("money"):
            return match.group() if part["large"] else with_prices(part["money"], self._true_price)
        if part.get("bare"):
            return part["cue"] + with_prices(part["bare"], self._known_price)
        if part.get("day"):
            number = int(part["day"])
            return self._days[number - 1] if 0 < number <= len(self._days) else match.group()
        token = tokens.read(match)
        if token is None or token in self._names:
            return self._names[token] if token else match.group()
        with self._lock:
            self.unknown[match.group()] += 1
        return match.group()

    def _true_price(self, number: str) -> str:
        price = self.dollars(float(number.replace(",", "")))
        return self._quoted.get(number) or (price_text(price) if 0 < price < float("inf") else number)

    def _known_price(self, number: str) -> str:
        """Without a currency it may be anything: only what the map told, or the view prints, is a price."""
        known = number in self._quoted or float(number.replace(",", "")) in self._printed
        return self._true_price(number) if known else number

    def dollars(self, price: float) -> float:
        """A price on the view's scale, in USD."""
        return self._printed.get(price, price / self._scale)


def for_task(task: Task, identity: str, **keywords: Any) -> EntityMap:
    """The map that goes with a task's view: its dates are the view's days, its prices scaled as the view's are.

    Args:
        task: of the episode.
        identity: as in the view.
        keywords: others of `EntityMap`.
    """
    window, identity = task.window, find_identity(identity)
    start, _ = window.span()
    shown = window.load().date[max(0, start - task.lookback + 1) : start + task.decisions + 1]
    scale = mask(window, task.lookback, identity).scale
    last = start + task.decisions
    printed = _printed(window, task.lookback, identity, last) if identity in SCALED else {}
    return EntityMap(window.ticker, identity=identity, days=shown, scale=scale, prices=printed, **keywords)


@lru_cache(maxsize=64)
def _printed(window: Window, lookback: int, identity: str, last: int) -> Mapping[float, float]:
    """The prices that views and research show until this row, and what they are in USD.

    Scaled to 100 and rounded, two prices of a dear stock may read alike: the latest is meant, and the close of its day.
    """
    bars, true = mask(window, lookback, identity), window.load()
    rows = slice(max(0, window.span()[0] - max(YEAR, lookback)), last + 1)
    told = np.stack([bars.open, bars.high, bars.low, bars.close], axis=1)[rows].ravel().tolist()
    meant = np.stack([true.open, true.high, true.low, true.close], axis=1)[rows].ravel().tolist()
    return MappingProxyType(dict(zip((float(price_text(price)) for price in told), meant, strict=True)))


@lru_cache(maxsize=256)
def _drawn(more: tuple[Company, ...], primary: Entity, seed: int) -> tuple[tuple[Entity, str], ...]:
    """Everybody's token, numbered in an order drawn from the seed; the primary company is the first."""

    def order(entity: Entity) -> tuple[bool, str]:
        return entity != primary, hashlib.sha256(f"{seed} {primary} {entity}".encode()).hexdigest()

    count: Counter[str] = Counter()
    drawn = []
    for entity in sorted(entities(more), key=order):
        count[entity.kind] += 1
        drawn.append((entity, tokens.numbered(entity.kind, count[entity.kind])))
    return tuple(drawn)


@cache
def _identifying(
    more: tuple[Company, ...], played: tuple[str, ...], dated: bool, token: str, priced: bool
) -> re.Pattern[str]:
    """Tokens, and everything that tells who, and with `dated` when, as one alternation.

    Args:
        more: companies beside those of the table.
        played: tickers of the played company that need no mark though others like them do.
        dated: dates are hidden too.
        token: what is taken for a token.
        priced: numbers that words make prices are found too.
    """
    aliases, marked = alternation(more, played)
    amount = rf"{MONEY}|{PRICED if priced else '(?P<cue>(?!))(?P<bare>)'}|{ticker_with_a_mark(marked)}|{COUNT}"
    beside = rf"(?:(?P<between>\s?[(\[<])(?P<own>{marked})(?=[)\]>]))?"
    who = rf"(?P<name>(?:{aliases}){GLUED})(?P<suffix>{SUFFIX})(?=(?:['\u2019]?s)?(?![^\W_])){beside}"
    when = dates.alternation() if dated else "(?!)"
    start = rf"(?=[$€£¥]|{tokens.BEGIN}(?:[^\W_]|{dates.START}))"
    return re.compile(rf"{start}(?:(?P<token>{token})|{amount}|{who}|(?P<date>{when}))")


_GLUED_LAST = re.compile(r"(?:\d+(?:[CP]\d+)?|[A-Z][a-z]+)$")


def _name(match: re.Match[str]) -> str:
    return match["name"] or match["ticker"] or match["cash"] or match["quoted"] or ""
