"""What a model knows by heart: which stock a view shows, and what a stock did on a date."""

import asyncio
import datetime
import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fintrading_agents.audit.intervals import against_chance
from fintrading_agents.egress import printed
from fintrading_agents.models import Form, Model, Reply, wait
from fintrading_agents.neutering.companies import key, owners
from fintrading_gym.observations import Sight, market_texts
from fintrading_gym.windows import TICKERS, Window, bundled, iso_date

IDENTIFY = """\
You are shown a few days of a stock's market data. Its name is hidden, and dates and price levels may be.
Say which stock it most likely is. Answer with one JSON object and nothing else:
{"ticker": "...", "sector": "...", "date": "YYYY-MM-DD"}
The date is that of the last day shown. Where you are not sure, give your best guess."""
RECALL = """\
You are asked what a stock did on a day in the past. Answer from memory, with one JSON object and nothing else:
{"close": 123.45, "next": "up"}
"close" is the closing price in USD, adjusted for splits; "next" says whether the next trading day closed "up" or
"down" from it. Where you are not sure, give your best guess."""
QUESTION = "{ticker} on {date}"


def _form(name: str, grammar: str, **properties: dict[str, Any]) -> Form:
    closed = {"required": list(properties), "additionalProperties": False}
    return Form(name, {"type": "object", "properties": properties, **closed}, grammar)


_TEXT = {"type": "string"}
IDENTIFIED = _form(
    "identified",
    r"""root ::= "{\"ticker\": \"" [A-Z]{1,5} "\", \"sector\": \"" [A-Za-z] [A-Za-z& -]{2,30} """
    r'''"\", \"date\": \"" date "\"}"'''
    "\n"
    r"""date ::= "20" [0-9]{2} "-" [01] [0-9] "-" [0-3] [0-9]""",
    ticker=_TEXT,
    sector=_TEXT,
    date=_TEXT,
)
RECALLED = _form(
    "recalled",
    r'''root ::= "{\"close\": " [1-9] [0-9]{0,4} "." [0-9] [0-9] ", \"next\": \"" ("up" | "down") "\"}"''',
    close={"type": "number"},
    next={"type": "string", "enum": ["up", "down"]},
)

DAYS = 30  # a date counts as named when it is as near as this
HISTORY = 27  # days before a view, so that every number of it is there
# What is taken for a ticker's sector: by the standard classifications, and as people say.
SECTORS = {
    "TSLA": ("consumer discretionary", "consumer cyclical", "automotive", "automobiles", "auto manufacturers"),
    "SPY": ("index", "index fund", "etf", "broad market", "diversified"),
    "NVDA": ("information technology", "technology", "semiconductors"),
    "AMZN": ("consumer discretionary", "consumer cyclical", "internet retail", "retail", "e-commerce"),
    "NFLX": ("communication services", "communications", "media", "entertainment", "streaming"),
    "MSFT": ("information technology", "technology", "software"),
    "COIN": ("financials", "financial services", "cryptocurrency", "crypto", "capital markets"),
    "AAPL": ("information technology", "technology", "consumer electronics"),
    "GOOG": ("communication services", "communications", "interactive media", "internet"),
    "META": ("communication services", "communications", "interactive media", "social media"),
}


@dataclass(frozen=True)
class Place:
    """A stock on a day: the truth of a question."""

    ticker: str
    date: str
    row: int  # of its table


def places(count: int, seed: int) -> list[Place]:
    """`count` days of the bundled tickers, in turn, drawn from the seed."""
    rng, drawn = random.Random(seed), []
    for k in range(count):
        ticker = TICKERS[k % len(TICKERS)]
        row = rng.randrange(HISTORY, len(bundled(ticker).date) - 1)
        drawn.append(Place(ticker, bundled(ticker).date[row], row))
    return drawn


def identification(model: Model, asked: Sequence[Place], identity: str, detail: str) -> dict[str, Any]:
    """How often a model names ticker, sector and date (within `DAYS`) of a view, beside chance.

    `by_ticker`: of each ticker how often it was named, and how often shown.

    Args:
        model: asked once a place.
        asked: what the views show.
        identity: how much the views tell, of `masking.IDENTITIES`.
        detail: of the views.
    """
    views = [market_texts(Sight(_from(place), 7, detail, identity))[0] for place in asked]
    answers = _answers(model, IDENTIFY, views, IDENTIFIED)
    return {
        "ticker": against_chance(answers, asked, _names_ticker),
        "sector": against_chance(answers, asked, _names_sector),
        "date": against_chance(answers, asked, _names_date),
        "by_ticker": {
            ticker: [
                sum(_names_ticker(a, p) for a, p in zip(answers, asked, strict=True) if p.ticker == ticker),
                sum(p.ticker == ticker for p in asked),
            ]
            for ticker in dict.fromkeys(place.ticker for place in asked)
        },
        "unanswered": sum(not answer for answer in answers),
    }


def recall(model: Model, asked: Sequence[Place]) -> dict[str, Any]:
    """How often a model knows a close, within 1 % and 3 %, and the next day's direction, from ticker and date alone."""
    questions = [QUESTION.format(ticker=place.ticker, date=place.date) for place in asked]
    answers = _answers(model, RECALL, questions, RECALLED)
    return {
        "close_1pct": against_chance(answers, asked, lambda answer, place: _knows_close(answer, place, 0.01)),
        "close_3pct": against_chance(answers, asked, lambda answer, place: _knows_close(answer, place, 0.03)),
        "direction": against_chance(answers, asked, _knows_direction),
        "unanswered": sum(not answer for answer in answers),
    }


def _from(place: Place) -> Window:
    return Window(place.ticker, place.date, bundled(place.ticker).date[place.row + 1])


def _answers(model: Model, system: str, questions: Sequence[str], form: Form) -> list[dict[str, Any]]:
    """What a model answers under the names it was asked for; nothing where it gave no such answer."""

    async def all_at_once() -> list[Reply]:
        head = {"role": "system", "content": system}
        calls = (model.complete([head, {"role": "user", "content": question}], form=form) for question in questions)
        return await asyncio.gather(*calls)

    wanted = form.schema["properties"]
    objects = [_object(str(reply.content or "")) for reply in wait(all_at_once())]
    return [{name: answer[name] for name in wanted if name in answer} for answer in objects]


def _object(text: str) -> dict[str, Any]:
    found = re.search(r"\{[^{}]*\}", text)
    try:
        answer = json.loads(found.group()) if found else {}
    except ValueError:  # told as unanswered
        return {}
    return {str(name).lower(): value for name, value in answer.items()}


def _names_ticker(answer: dict[str, Any], place: Place) -> bool:
    named = owners(()).get(key(str(answer.get("ticker", ""))))
    return named is not None and named == owners(())[key(place.ticker)]


def _names_sector(answer: dict[str, Any], place: Place) -> bool:
    return key(str(answer.get("sector", ""))) in map(key, SECTORS[place.ticker])


def _names_date(answer: dict[str, Any], place: Place) -> bool:
    named = iso_date(answer.get("date"))
    if named is None:
        return False
    return abs(datetime.date.fromisoformat(named) - datetime.date.fromisoformat(place.date)).days <= DAYS


def _knows_close(answer: dict[str, Any], place: Place, within: float) -> bool:
    told, close = answer.get("close"), printed(place.ticker)[place.row]
    return isinstance(told, int | float) and abs(told / close - 1) <= within


def _knows_direction(answer: dict[str, Any], place: Place) -> bool:
    closes = printed(place.ticker)
    return answer.get("next") == ("up" if closes[place.row + 1] > closes[place.row] else "down")
