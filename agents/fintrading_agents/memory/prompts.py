"""What FinMem's agent says to its model, and how the model is to answer."""

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

from fintrading_agents import llm
from fintrading_agents.memory.feed import shortened
from fintrading_agents.memory.store import Recalled
from fintrading_agents.models import Form
from fintrading_agents.transcript import NUDGE
from fintrading_gym.observations import PERSONAS as STANCES
from fintrading_gym.replies import ACTIONS, REASONS
from fintrading_gym.rollout import Task

# By the detail of the view: a small model reads the brief one.
SYSTEM = {
    "full": """\
You trade one stock, and you remember. Each day you are shown the market up to that day's close and what you remember \
that matters today, and you take one decision:
buy: be long, whatever you held
sell: be short, whatever you held
hold: {hold}
{fill} Until the next one a long position earns the stock's return, a short one its opposite{costs}.

{persona}

Answer with one JSON object and nothing else, such as
{{"action": "buy", "reason": "why, in one sentence", "cited": [1, 3]}}
where the action is buy, sell or hold, and cited are the numbers of the memories that decided it, at most {cited}.""",
    "brief": """\
You trade one stock. Each day decide: buy (be long), sell (be short) or hold ({hold}){costs}.
Answer in JSON: the action, why in a few words, and the numbers of the memories that decided it.""",
}
STUDY = {
    "full": """\
You study one stock before you trade it. You are shown what you remember on one day, and how the price moved on the \
next. Explain that move in one sentence that will help you on other days, and cite the memories that foretold it.

Answer with one JSON object and nothing else, such as {{"reason": "one sentence", "cited": [1, 3]}}
where cited are the numbers of those memories, at most {cited}; none: [].""",
    "brief": """\
You study one stock. You see what you remember on one day, and the move of the next day.
Answer in JSON: why it moved so, in a few words, and the numbers of the memories that foretold it.""",
}
REFLECT = {
    "full": """\
You look back on your last days of trading one stock: what you decided and why, and what came of it. Say in one \
sentence what you learn from them for the next days.

Answer with one JSON object and nothing else, such as {{"reason": "one sentence"}}.""",
    "brief": """\
You look back on your last days of trading one stock.
Answer in JSON what you learn from them, in a few words.""",
}
LINES = {"full": "{number}. [{layer}, {age}] {text}", "brief": "{number} ({age}): {text}"}
LONGEST = {"full": 400, "brief": 80}  # characters of a memory that are shown
MEMORIES, NOTHING = "You remember:\n", "You remember nothing that matters today.\n"
CITED = 3  # memories that one answer may cite
LABEL = "3-day momentum: {momentum}\nThe next day's close minus this day's: {sign} ({change})\n"
DAY = "{age}: {decided}{because}. The stock then moved by {change}, you earned {earned}.\n"
LEARNED = "the next day it {moved} ({change}): {reason}"
QUERY = "{company}: buy, sell or hold? {stance} It {moved} over 3 days; {happened}."
QUIET = "nothing stood out"

# When the adaptive persona changes, in the three readings that were published: what its prompt says, and the end of the
# profile that the view shows while it is risk-seeking and while it is risk-averse.
PROFILE = "your profile: "
RULES = {
    "cumulative": (llm.PERSONAS["adaptive"], STANCES["adaptive"]),
    "recent": (
        "You adapt to how you have been doing lately: while your return of the last 3 days is zero or above you are "
        "risk-seeking, while it is below zero you are risk-averse.",
        (
            "self-adaptive, today risk-seeking: large swings are welcome while your return of 3 days is not below zero",
            "self-adaptive, today risk-averse: keep what you have while your return of 3 days is below zero",
        ),
    ),
    "momentum": (
        "You adapt to the market: while the stock's 3-day momentum is zero or above you are risk-seeking, while it is "
        "below zero you are risk-averse.",
        (
            "self-adaptive, today risk-seeking: large swings are welcome while the momentum is not below zero",
            "self-adaptive, today risk-averse: keep what you have while the momentum is below zero",
        ),
    ),
}

# What a small model is held to: few words and numbers, for each costs it time, and no mark that JSON would escape.
_WORDS = r'words ::= [A-Z] [a-z]{1,11} (" " [a-z]{1,11}){2,4}'


def decision_form(shown: int) -> Form:
    """The answer on a day that shows so many memories; 0: without a memory there is nothing to cite."""
    action = r'"{\"action\": \"" ("buy" | "sell" | "hold") "\", \"reason\": \"" words'
    properties: dict[str, Any] = {"action": {"type": "string", "enum": list(ACTIONS)}, "reason": {"type": "string"}}
    if not shown:
        return _form("decision", properties, rf'root ::= {action} "\"}}"')
    properties["cited"] = {"type": "array", "items": {"type": "integer"}}
    return _form("decision", properties, rf'root ::= {action} "\", \"cited\": [" cited "]}}"', shown)


def study_form(shown: int) -> Form:
    """The explanation of a day in the warm-up."""
    properties: dict[str, Any] = {
        "reason": {"type": "string"},
        "cited": {"type": "array", "items": {"type": "integer"}},
    }
    return _form("study", properties, r'root ::= "{\"reason\": \"" words "\", \"cited\": [" cited "]}"', shown)


def reflect_form() -> Form:
    """What is learned from the last days."""
    return _form("reflection", {"reason": {"type": "string"}}, r'root ::= "{\"reason\": \"" words "\"}"')


def _form(name: str, properties: dict[str, Any], root: str, shown: int = 0) -> Form:
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    rules = [root, _WORDS, 'cited ::= ""']
    if shown:
        numbers = " | ".join(f'"{number}"' for number in range(1, shown + 1))
        rules[2:] = ['cited ::= (number (", " number)?)?', f"number ::= {numbers}"]
    return Form(name, schema, "\n".join(rules))


PROMPTS = (
    SYSTEM, STUDY, REFLECT, LINES, LONGEST, MEMORIES, NOTHING, CITED, LABEL, DAY, LEARNED, QUERY, QUIET, PROFILE,
    RULES, llm.HOLDS, llm.FILLS, llm.COSTS, llm.PERSONAS, STANCES, NUDGE, REASONS,
    *((form.schema, form.grammar) for form in (decision_form(0), decision_form(2), study_form(2), reflect_form())),
)  # fmt: skip
PROMPT_SHA256 = hashlib.sha256(json.dumps(PROMPTS).encode()).hexdigest()


def system_prompt(task: Task, detail: str, rule: str) -> str:
    """The rules of the task and the persona: all that does not change from day to day."""
    persona = RULES[rule][0] if task.persona == "adaptive" else llm.PERSONAS[task.persona]
    costs = llm.COSTS.format(task.cost_bps) if task.cost_bps else ""
    fill = llm.FILLS[task.fill]
    return SYSTEM[detail].format(hold=llm.HOLDS[task.hold], fill=fill, costs=costs, persona=persona, cited=CITED)


def memories(recalled: Sequence[Recalled], detail: str) -> str:
    """What is remembered, numbered from 1 on."""
    lines = [
        LINES[detail].format(
            number=number, layer=memory.layer, age=ago(memory.age), text=shortened(memory.text, LONGEST[detail])
        )
        for number, memory in enumerate(recalled, 1)
    ]
    return MEMORIES + "".join(f"{line}\n" for line in lines) if lines else NOTHING


def ago(days: int) -> str:
    """An age in words."""
    return "today" if days == 0 else "1 day ago" if days == 1 else f"{days} days ago"


def moved(fraction: float) -> str:
    """A direction in words; nothing is left out where there is none."""
    return "rose" if fraction > 0 else "fell" if fraction < 0 else "stayed the same"


def percent(fraction: float) -> str:
    """A move as the view writes it."""
    return f"{round(100 * fraction, 2) + 0.0:+.2f} %"


def sign(fraction: float) -> str:
    """The label of a day in the warm-up, in words."""
    return "positive" if fraction > 0 else "negative" if fraction < 0 else "zero"


# ---------------------------------------------------------------------------------------- what is answered

_REASON = re.compile(r'"reason"\s*:\s*("(?:[^"\\]|\\.)*+")', re.DOTALL)
_CITED = re.compile(r'"cited"\s*:\s*\[([\d\s,]{0,200})\]')


def reason_of(text: str) -> str:
    """The reason that an answer gives, on one line; empty where it gives none that can be read."""
    found = _REASON.findall(text)
    try:
        return " ".join(str(json.loads(found[-1], strict=False)).split()) if found else ""
    except ValueError:
        return ""


def cited_in(text: str, shown: Sequence[Recalled]) -> list[int]:
    """The ids of the memories that an answer cites by their numbers; a number that was not shown cites nothing."""
    found = _CITED.findall(text)
    numbers = [int(number) for number in re.findall(r"\d{1,6}", found[-1])] if found else []
    good = dict.fromkeys(number for number in numbers if 1 <= number <= len(shown))
    return [shown[number - 1].id for number in list(good)[:CITED]]
