"""The committee's last word: recommendation, confidence and target price, as JSON or as three labelled lines."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from fintrading_agents.models import Form
from fintrading_gym.replies import ACTIONS, WARNINGS, Decision, parse, prose

SCHEMA = """\
Answer with one JSON object and nothing else, of three keys:
"action": your recommendation, "buy", "sell" or "hold"
"confidence": how sure you are of it, a number from 0 to 1
"target_price": the price that you expect in a month, a number in the unit of the research"""
LABELLED = """\
Give your reasons briefly. Then end with these three lines:
FINAL RECOMMENDATION: BUY, SELL or HOLD, one of the three
CONFIDENCE: how sure you are of it, from 0% to 100%
TARGET PRICE: the price that you expect in a month, as $ and a number in the unit of the research"""

VERDICT = Form(
    "verdict",
    {
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": list(ACTIONS)},
            "confidence": {"type": "number"},
            "target_price": {"type": "number"},
        },
        "required": ["action", "confidence", "target_price"],
        "additionalProperties": False,
    },
    # Free of white space, and of numbers that go on until the token limit.
    r'root ::= "{\"action\": \"" ("buy" | "sell" | "hold") "\", \"confidence\": " sure ", \"target_price\": " price "}"'
    "\n"
    r'sure ::= "0." [0-9] [0-9]? | "1.0"'
    "\n"
    r'price ::= ("0" | [1-9] [0-9]? [0-9]? [0-9]? [0-9]?) "." [0-9] [0-9]? [0-9]? [0-9]?',
)
LABELS = {
    "final recommendation": "action",
    "confidence": "confidence",
    "target price": "target_price",
}
_LABEL = re.compile(  # bold, quoted or listed, but at the beginning of a line
    rf"^[ \t>#*_-]{{0,9}}({'|'.join(name.replace(' ', '[ _]') for name in LABELS)})[ *_]{{0,9}}:(.*)$",
    re.IGNORECASE | re.MULTILINE,
)


def read_schema(reply: Any) -> Decision:
    """The verdict of a reply in JSON, read as every decision is; what is missing beside it is None and warned of."""
    return _with_missing(parse(reply))


def read_labelled(reply: Any) -> Decision:
    """The verdict of a reply that ends in labelled lines; what does not stand there is None, with the reason.

    The values are held to the rules for JSON: one word, agreement where a label stands twice, a percentage or a
    number from 0 to 1, a price above zero. No keyword elsewhere in the text counts.
    """
    text, reason = prose(reply)
    if reason:
        return Decision(None, reason)
    found = [(LABELS[label.lower().replace("_", " ")], value.strip(" \t*_`")) for label, value in _LABEL.findall(text)]
    cut = getattr(reply, "outcome", "ok") == "truncated"
    if "action" not in dict(found):
        return Decision(None, "truncated" if cut else "no_decision")
    pairs = ", ".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in found)
    decision = _with_missing(parse(f"{{{pairs}}}"))
    return _warned(decision, "finish_length") if cut and decision.action else decision


@dataclass(frozen=True)
class LastWord:
    """A way to give it."""

    prompt: str
    form: Form | None
    read: Callable[[Any], Decision]


FORMS = {
    "schema": LastWord(SCHEMA, VERDICT, read_schema),
    "prose": LastWord(LABELLED, None, read_labelled),
}


def _with_missing(decision: Decision) -> Decision:
    if decision.action is None:
        return decision
    numbers = ("confidence", "target_price")
    spoken = [name for name in numbers if any(warning.startswith(name) for warning in decision.warnings)]
    missing = [f"{n}_missing" for n in numbers if getattr(decision, n) is None and n not in spoken]
    return _warned(decision, *missing)


def _warned(decision: Decision, *more: str) -> Decision:
    return replace(decision, warnings=tuple(name for name in WARNINGS if name in (*decision.warnings, *more)))
