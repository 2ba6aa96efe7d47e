"""The evaluation's seat: a language model that is shown each day as text and answers with one JSON decision."""

import hashlib
import json
from collections import deque
from collections.abc import Mapping
from itertools import chain
from typing import Any

from fintrading_agents.models import Form, Model, wait
from fintrading_agents.models.local import SETTINGS as SMALL
from fintrading_agents.transcript import NUDGE, Transcript, check_nudges, model_shared, model_traits
from fintrading_gym.replies import ACTIONS, REASONS, Decision
from fintrading_gym.rollout import Task

# What never changes stands first, so that an endpoint can reuse its work on it from day to day.
SYSTEM = """\
You trade one stock. Each day you are shown the market up to that day's close, and you take one decision:
{rules}

Answer with one JSON object and nothing else: {{"action": "buy"}}, {{"action": "sell"}} or {{"action": "hold"}}."""

RULES = """\
buy: be long, whatever you held
sell: be short, whatever you held
hold: {hold}
{fill} Until the next one a long position earns the stock's return, a short one its opposite{costs}.

{persona}"""
HOLDS = {"keep": "keep the position you have", "flat": "have no position until the next decision"}
FILLS = {
    "close": "It is carried out at the close that you are shown.",
    "next_open": "It is carried out at the next day's open.",
}
COSTS = "; changing the position by one costs {:g} basis points"
# The text view of the day repeats the stance that holds on it.
PERSONAS = {
    "risk_seeking": "You are a risk-seeking investor: you look for large gains, and put up with large swings for them.",
    "risk_averse": "You are a risk-averse investor: keeping your capital comes first, and you accept smaller gains.",
    "adaptive": "You adapt to how you are doing: while your return so far is zero or above you are risk-seeking, "
    "while it is below zero you are risk-averse.",
}
FORM = Form(
    "decision",
    {
        "type": "object",
        "properties": {"action": {"type": "string", "enum": list(ACTIONS)}},
        "required": ["action"],
        "additionalProperties": False,
    },
    SMALL["grammar"],
)
PROMPTS = (SYSTEM, RULES, HOLDS, FILLS, COSTS, PERSONAS, NUDGE, REASONS, FORM.schema, FORM.grammar)
PROMPT_SHA256 = hashlib.sha256(json.dumps(PROMPTS).encode()).hexdigest()

OPTIONS = ("context", "max_nudges")


class Seat:
    """One episode's agent."""

    def __init__(self, task: Task, model: Model, context: str, max_nudges: int):
        self._said, self.model = Transcript(task, model, "llm", context, max_nudges), model.name
        self.detail, self.identity, self.log = self._said.detail, self._said.identity, self._said.log
        self._context, self._max_nudges = context, max_nudges
        self._system = {"role": "system", "content": system_prompt(task)}
        # The days still shown: each day's view, and the decision the model took on it.
        self._past: deque[tuple[dict[str, Any], dict[str, Any]]] = deque(maxlen=days_shown(context))

    def __call__(self, observation: Any) -> Decision:
        """`decide`, waited for."""
        return wait(self.decide(observation))

    async def decide(self, observation: Any) -> Decision:
        """The model's decision on the day shown; its action is None if it made none, nudges included.

        Raises:
            ModelFailure: the model did not answer.
            RunStopped: a limit of the run is reached.
        """
        view = observation if isinstance(observation, str) else observation["text"]
        self._said.new_day()
        before = [self._system, *chain.from_iterable(self._past)]
        decision = await self._said.decide(before, view, FORM, self._max_nudges)
        if decision.action is not None:
            answer = json.dumps({"action": decision.action})  # as it was read: no reasoning is sent again
            self._past.append(({"role": "user", "content": view}, {"role": "assistant", "content": answer}))
        return decision

    @property
    def facts(self) -> dict[str, Any]:
        """What the episode's row tells of the model; see `Transcript.facts`."""
        return self._said.facts | {"context": self._context, "prompt_sha256": PROMPT_SHA256}


def llm(task: Task, model: Model, *, context: str = "last", max_nudges: int = 2) -> Seat:
    """A language model: one JSON decision a day, by name as llm:provider/model.

    Args:
        task: of the episode.
        model: opened by `fintrading_agents.models.open_model`; a `Player` opens it by its name.
        context: what is sent beside the rules and today's view: `last` nothing, `window:K` the views and decisions
            of the last K days, `full` those of all days.
        max_nudges: how often a day it is told that its reply was no decision, and why.
    """
    return Seat(task, model, context, max_nudges)


def _check(options: Mapping[str, Any]) -> None:
    days_shown(options.get("context", "last"))
    check_nudges(options)


def calls_per_episode(task: Task, options: Mapping[str, Any]) -> int:
    """How many calls an episode makes if every reply is a decision; each day has at most `max_nudges` more."""
    return task.decisions


llm.calls_per_episode = calls_per_episode  # type: ignore[attr-defined]
llm.traits = model_traits(OPTIONS)  # type: ignore[attr-defined]
llm.shared = model_shared("llm", OPTIONS, _check)  # type: ignore[attr-defined]


def system_prompt(task: Task) -> str:
    """All that does not change from day to day."""
    return SYSTEM.format(rules=rules(task))


def rules(task: Task) -> str:
    """What a decision does on this task, and the persona."""
    costs = COSTS.format(task.cost_bps) if task.cost_bps else ""
    return RULES.format(hold=HOLDS[task.hold], fill=FILLS[task.fill], costs=costs, persona=PERSONAS[task.persona])


def days_shown(context: str) -> int | None:
    """How many earlier days a context shows; None: all.

    Raises:
        ValueError: it is no context.
    """
    kind, _, count = context.partition(":")
    if context in ("last", "full"):
        return 0 if context == "last" else None
    if kind == "window" and count.isdecimal() and int(count) > 0:
        return int(count)
    raise ValueError(f"context={context!r} is none of last, window:K (K days, at least 1) and full")
