"""The guard for free text: whoever and whenever a text names becomes a token, and a token becomes the name again."""

import hashlib
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from fintrading_agents.neutering import dates, tokens
from fintrading_agents.neutering.companies import SUFFIX, Ambiguous, Company, Entity, alternation, entities, key, owners
from fintrading_gym.errors import lookup
from fintrading_gym.masking import DATED, IDENTITIES, PRICE_STEP, SCALED, mask, on_grid
from fintrading_gym.rollout import Task
from fintrading_gym.windows import iso_date

OUTSIDE = 5001  # dates that are no trading day of the calendar are numbered from here on

NUMBER = r"\d{1,12}(?:,\d{3}){0,4}(?:\.\d{1,12})?"
_CURRENCY = r"(?:USD|EUR|GBP|JPY|CAD|dollars?|euros?|pounds|yen|cents)"
# An amount, and the word that makes it another thing than the price of a share.
MONEY = (
    rf"(?P<money>(?=[$€£¥\dUEGJCAH])(?:(?:US|C|A|HK)?[$€£¥]\s?{NUMBER}|(?:USD|EUR|GBP|JPY|CAD)\s?{NUMBER}"
    rf"|(?<![\w.,]){NUMBER}(?=\s?{_CURRENCY}(?![^\W_]))))"
    r"(?P<large>[-\s]?(?:thousand|million|billion|trillion|mln|mn|bn|tn|[KMBTkmb])(?![^\W_]))?"
)
# Numbers that may look like a year and count something; and the days of the masked view.
COUNT = (
    rf"(?P<count>(?<![\w.,]){NUMBER}\s(?:shares|points|employees|people|workers|jobs|stores|units|basis|bps|percent)"
    r"(?![^\W_])|Day\s\d{1,5}(?!\d))"
)
EXCHANGE = r"(?P<mark>\$|(?:NYSE|NASDAQ|Nasdaq|NYSEARCA|AMEX|ARCA|BATS|OTC|LSE|TSX)\s?:\s?)"


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

    A price that a text quotes ("$242.40", but not "$2 billion") is multiplied by `scale` as the view's
    prices are, and `restore` divides. Other numbers stay.
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
        seed: int = 0,
    ):
        """Give everybody who is known a token.

        Args:
            symbol: the ticker played.
            companies: others than those of the table, or more names of those.
            identity: how much is hidden, of `masking.IDENTITIES`: from "names+dates" on dates, from "masked"
                on quoted prices are scaled, with "coarse" rounded too; "real" leaves every text as it is.
            exact: a token for each way to write a name.
            days: the trading days that dates are counted in, ISO, ascending; the first is Day 1.
            today: one of `days`; days are then told from it, as `T-0005`.
            scale: `masking.Mask.scale` of the view.
            seed: of the numbers.

        Raises:
            UnknownName: no such level.
            ValueError: `days` are no ascending ISO dates, `today` is none of them, or `scale` is not positive.
            Ambiguous: an alias has two owners.
        """
        lookup("identity", identity, IDENTITIES)
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
        more = tuple(sorted(set(companies), key=repr))
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
        self._quoted: dict[str, str] = {}  # and back
        self._lock = threading.Lock()
        token = tokens.pattern(exact, today is not None)
        self._identifying = _identifying(more, identity not in DATED, token)
        self._restoring = re.compile(token if self._scale == 1 else f"{token}|{MONEY}")

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
            keep_tokens: leave what already looks like a token: for texts of which parts have been here before.

        Raises:
            Ambiguous: the text holds what looks like a token, and `keep_tokens` is not set.
            ValueError: there are more dates, or more ways to write a name, than tokens.
        """
        if self.identity == "real":
            return text

        def hidden(match: re.Match[str]) -> str:
            if match["token"] is None:
                return self._hidden(match)
            if not keep_tokens and tokens.read(match):
                raise Ambiguous(f"The text holds {match.group()!r} at {match.start()}, which looks like a token")
            return match.group()

        with self._lock:
            return self._identifying.sub(hidden, text)

    def find(self, text: str) -> list[Found]:
        """All that tells who or when in a text, tokens aside: what `neuter` would hide."""
        found = []
        for match in self._identifying.finditer(text):
            name = match["name"] or match["ticker"]
            if name or match["date"]:
                found.append(Found(self._owners[key(name)].kind if name else "Date", match.group(), match.start()))
        return found

    def _hidden(self, match: re.Match[str]) -> str:
        if match["money"]:
            return match.group() if match["large"] or self._scale == 1 else _with_price(match["money"], self._price)
        if match["count"]:
            return match.group()
        if match["date"]:
            return self._written(self._date(dates.named_by(match["date"])), match["date"])
        name = match["name"] or match["ticker"]
        token = self._entities[self._owners[key(name)]]
        return (match["mark"] or "") + self._written(token, name + (match["suffix"] or ""))

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

    def _price(self, number: str) -> str:
        if number not in self._told:
            price = float(number.replace(",", ""))
            if self.identity == "coarse" and price:
                price = float(on_grid(np.array(price), PRICE_STEP))
            price *= self._scale
            # Two prices that would read alike get more digits, so that each comes back as it was.
            told = (f"{price:.{digits}f}" for digits in range(2 if price >= 10 else 4, 1000))
            self._told[number] = next(text for text in told if text not in self._quoted)
            self._quoted[self._told[number]] = number
        return self._told[number]

    # -------------------------------------------------------------------------------------- back

    def restore(self, text: str) -> str:
        """The text with names and dates for tokens, in one pass. Tokens that mean nothing stay, and are counted."""
        return text if self.identity == "real" else self._restoring.sub(self._restored, text)

    def names(self, text: str) -> dict[str, str]:
        """The tokens in a text, spelt right, and what each is restored to."""
        if self.identity == "real":
            return {}
        found = (tokens.read(match) for match in self._restoring.finditer(text) if match["kind"] or match["offset"])
        return {token: self._names[token] for token in found if token in self._names}

    def _restored(self, match: re.Match[str]) -> str:
        if self._scale != 1 and match["money"]:
            return match.group() if match["large"] else _with_price(match["money"], self._true_price)
        token = tokens.read(match)
        if token is None or token in self._names:
            return self._names[token] if token else match.group()
        with self._lock:
            self.unknown[match.group()] += 1
        return match.group()

    def _true_price(self, number: str) -> str:
        return self._quoted.get(number) or f"{float(number.replace(',', '')) / self._scale:.2f}"


def for_task(task: Task, identity: str, **keywords: Any) -> EntityMap:
    """The map that goes with a task's view: its dates are the view's days, its prices scaled as the view's are.

    Args:
        task: of the episode.
        identity: as in the view.
        keywords: others of `EntityMap`.
    """
    window = task.window
    start, _ = window.span()
    shown = window.load().date[max(0, start - task.lookback + 1) : start + task.decisions + 1]
    scale = mask(window, task.lookback, identity).scale
    return EntityMap(window.ticker, identity=identity, days=shown, scale=scale, **keywords)


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
def _identifying(more: tuple[Company, ...], dated: bool, token: str) -> re.Pattern[str]:
    """Tokens, and everything that tells who, and with `dated` when, as one alternation."""
    aliases, marked = alternation(more)
    amount = rf"{MONEY}|{EXCHANGE}(?P<ticker>{marked})(?![^\W_])|{COUNT}"
    who = rf"(?P<name>{aliases})(?P<suffix>{SUFFIX})(?=(?:['\u2019]?s)?(?![^\W_]))"
    when = dates.alternation() if dated else "(?!)"
    return re.compile(rf"(?=[$€£¥]|(?<![^\W_])\w)(?:(?P<token>{token})|{amount}|{who}|(?P<date>{when}))")


def _with_price(money: str, change: Callable[[str], str]) -> str:
    return re.sub(NUMBER, lambda number: change(number.group()), money, count=1)
