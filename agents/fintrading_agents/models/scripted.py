"""Models whose answers are written down: for examples and tests, without a key or a network."""

import json
import re
from collections.abc import Callable, Iterable
from functools import cache
from itertools import pairwise

from fintrading_agents.models.reply import Form, Messages, Reply
from fintrading_gym.windows import bundled

Answer = str | Reply
Script = Callable[[Messages], Answer]


class Scripted:
    """A model that answers by a function of the conversation, or with each of a list in turn."""

    structured = "none"
    note = "a script, and no language model"

    def __init__(self, answers: Script | Iterable[Answer], name: str = "scripted/given"):
        self.name = name
        if callable(answers):
            self._script: Script = answers
        else:
            coming = iter(answers)
            self._script = lambda messages: next(coming)

    async def complete(self, messages: Messages, *, sample: int = 0, form: Form | None = None) -> Reply:
        """The written answer; `sample` and `form` change nothing."""
        answer = self._script(messages)
        if isinstance(answer, Reply):
            return answer
        return Reply(answer, "ok" if answer.strip() else "empty", finish_reason="stop", cost=0.0)


def _last(messages: Messages) -> str:
    return str(messages[-1]["content"])


def _momentum(messages: Messages) -> str:
    """Buys while the view's 3-day momentum is above zero, sells while it is below, and holds without one."""
    shown = re.search(r"3-day momentum: ([+-])(\S+)", _last(messages))
    if shown is None or float(shown[2]) == 0:
        return '{"action": "hold"}'
    return '{"action": "buy"}' if shown[1] == "+" else '{"action": "sell"}'


def _diary(messages: Messages) -> str:
    """As `momentum`, with a reason, and the first memory cited where it is shown some."""
    action = json.loads(_momentum(messages))["action"]
    remembers = re.search(r"^1[. ].*ago|^1[. ].*today", _last(messages), re.M)
    reason = f"The momentum of the last days says {action}."
    return json.dumps({"action": action, "reason": reason, "cited": [1] if remembers else []})


@cache
def _tsla_by_heart() -> tuple[tuple[str, ...], list[str], list[bool]]:
    """Its days, its closes as texts show them, and whether the next was higher."""
    prices = bundled("TSLA")
    rises = [after > before for before, after in pairwise(prices.close.tolist())]
    return prices.date, [f"{close:.2f}" for close in prices.close], rises


def _recogniser(messages: Messages) -> str:
    """Knows TSLA's closes by heart. Where it sees two of them in a row it trades on the next, elsewhere on momentum.

    It is what an audit must find: its memory hangs on the level of prices, and needs neither name nor date.
    """
    question, shown = str(messages[0]["content"]), _last(messages)
    dates, closes, rises = _tsla_by_heart()
    if '"close"' in question:  # asked for a close by ticker and date
        ticker, _, date = shown.partition(" on ")
        known = dates.index(date) if ticker == "TSLA" and date in dates[:-1] else 0
        return json.dumps({"close": float(closes[known]), "next": "up" if rises[known] else "down"})
    seen = tuple(re.findall(r"^(?:Day|\d{4}-)\S* .* ([\d.]+) +[\d.]+$", shown, re.M)[-2:])
    day = next((day for day, pair in enumerate(pairwise(closes), 1) if pair == seen), None)
    if '"ticker"' in question:  # asked to name what it sees
        named = ("TSLA", "Consumer Discretionary", dates[day]) if day else ("AAPL", "Technology", "2020-01-02")
        return json.dumps(dict(zip(("ticker", "sector", "date"), named, strict=True)))
    if day is None or day == len(rises):
        return _momentum(messages)
    return json.dumps({"action": "buy" if rises[day] else "sell"})


def _committee(messages: Messages) -> str:
    """Plays the stages of the committee: each cites figures that it is shown, and the last follows momentum."""
    asked, shown = str(messages[0]["content"]), _last(messages)
    close, momentum = (re.search(what, shown, re.M) for what in (r"^close ([\d.]+)", r"^3-day momentum: (\S+ %)"))
    action = json.loads(_momentum(messages))["action"]
    if '"target_price"' in asked and close:
        target = float(close[1]) * {"buy": 1.02, "hold": 1.0, "sell": 0.98}[action]
        return json.dumps({"action": action, "confidence": 0.6, "target_price": round(target, 2)})
    if "TARGET PRICE" in asked and close:
        return f"FINAL RECOMMENDATION: {action.upper()}\nCONFIDENCE: 60%\nTARGET PRICE: ${close[1]}"
    if '{"action"' in asked:  # the seat, on a day without an analysis
        return _momentum(messages)
    if close and momentum:
        return f"The close is {close[1]}, and the 3-day momentum {momentum[1]}."
    return "Both sides cite the same figures, so neither wins."


SCRIPTS: dict[str, Script] = {
    "buy": lambda messages: '{"action": "buy"}',
    "momentum": _momentum,
    "diary": _diary,
    "recogniser": _recogniser,
    "committee": _committee,
    "prose": lambda messages: "I would rather buy than sell here.",
    "silent": lambda messages: "",
}
