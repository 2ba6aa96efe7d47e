"""The evaluation's seat: a language model that is shown each day as text and answers with one JSON decision."""

import hashlib
import json
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from itertools import chain
from typing import Any

from fintrading_agents.egress import Egress, Leak
from fintrading_agents.guard import Guarded
from fintrading_agents.models import Form, Model, ModelFailure, Settings, open_model, wait
from fintrading_agents.models.local import SETTINGS as SMALL
from fintrading_agents.neutering import for_task
from fintrading_gym.replies import ACTIONS, REASONS, Decision, parse
from fintrading_gym.rollout import Task, Traits

# What never changes stands first, so that an endpoint can reuse its work on it from day to day.
SYSTEM = """\
You trade one stock. Each day you are shown the market up to that day's close, and you take one decision:
buy: be long, whatever you held
sell: be short, whatever you held
hold: {hold}
{fill} Until the next one a long position earns the stock's return, a short one its opposite{costs}.

{persona}

Answer with one JSON object and nothing else: {{"action": "buy"}}, {{"action": "sell"}} or {{"action": "hold"}}."""

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
# Added to the day's view, once for each reply that was no decision; the reply itself is not sent back.
NUDGE = "\nYour reply was no decision. {reason} Answer with one JSON object and nothing else.\n"
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
PROMPTS = (SYSTEM, HOLDS, FILLS, COSTS, PERSONAS, NUDGE, REASONS, FORM.schema, FORM.grammar)
PROMPT_SHA256 = hashlib.sha256(json.dumps(PROMPTS).encode()).hexdigest()

SILENT = ("empty", "only_reasoning")  # of replies.REASONS: nothing was said
IDENTITY = "masked"  # a model is not told whom it trades, and when, unless the task says otherwise


class Seat:
    """One episode's agent."""

    def __init__(self, task: Task, model: Model, context: str, max_nudges: int):
        self.detail = task.detail or (SMALL["detail"] if model.name.startswith("local/") else "full")
        self.identity = task.identity or IDENTITY
        self.log: list[dict[str, Any]] = []
        """One entry a day: its `calls`, each with its `messages`, all of its `Reply`, and the `verdict` on it; and
        `failure` if the last had no reply. All is ready for JSON."""
        self._model = Guarded(model, for_task(task, self.identity))
        self._egress, self._leaks = Egress(task, self.identity), list[Leak]()
        self._context, self._max_nudges, self._seed = context, max_nudges, task.seed
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
        before = [self._system, *chain.from_iterable(self._past)]
        calls: list[dict[str, Any]] = []
        day: dict[str, Any] = {"calls": calls}
        self.log.append(day)
        told = view
        for _ in range(1 + self._max_nudges):
            messages = self._model.told([*before, {"role": "user", "content": told}])
            try:
                reply = await self._model.complete(messages, sample=self._seed, form=FORM)
            except ModelFailure as failure:
                day["failure"] = str(failure)
                raise
            decision = parse(reply)
            calls.append({"messages": messages, **reply.as_json(), "verdict": asdict(decision)})
            self._leaks += self._egress.of_day(len(self.log), {"calls": calls[-1:]})
            if decision.action is not None:
                answer = json.dumps({"action": decision.action})  # as it was read: no reasoning is sent again
                self._past.append(({"role": "user", "content": view}, {"role": "assistant", "content": answer}))
                break
            told += NUDGE.format(reason=REASONS[decision.reason])
        return decision

    @property
    def facts(self) -> dict[str, Any]:
        """What the episode's row tells of the model.

        `cost_usd` is what its calls cost when they were paid for; `paid_usd` and `cache_hits` tell of this run alone,
        and all else is the same when the episode is replayed.
        """
        days = [day["calls"] for day in self.log if day["calls"]]
        calls = list(chain.from_iterable(days))
        usages = [call["usage"] or {} for call in calls]
        return {
            "model": self._model.name,
            "note": self._model.note,
            "structured": self._model.structured,
            "context": self._context,
            "detail": self.detail,
            "prompt_sha256": PROMPT_SHA256,
            "leaks": len(self._leaks),
            "first_leak": str(self._leaks[0]) if self._leaks else None,
            "tokens_in": _sum([usage.get("input") for usage in usages]),
            "tokens_out": _sum([usage.get("output") for usage in usages]),
            "cost_usd": _sum([call["cost"] for call in calls]),
            "paid_usd": _sum([call["cost"] for call in calls if not call["cached"]]),
            "cache_hits": sum(call["cached"] for call in calls),
            "empty_replies": sum(call["verdict"]["reason"] in SILENT for call in calls),
            "format_nudges": sum(len(day) - 1 for day in days),
            "self_heals": sum(len(day) > 1 and day[-1]["verdict"]["action"] is not None for day in days),
        }


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


@contextmanager
def _shared(model: str | Model | None, **options: Any) -> Iterator[tuple[Model, dict[str, Any]]]:
    """One model for all episodes of a run; what is no option of the seat is a setting of the model."""
    if model is None:
        raise ValueError("llm needs a model: llm:openai/NAME, llm:local/smollm2 or llm:scripted/momentum")
    seat: dict[str, Any] = {name: options.pop(name) for name in ("context", "max_nudges") if name in options}
    days_shown(seat.get("context", "last"))
    if seat.get("max_nudges", 0) < 0:
        raise ValueError(f"max_nudges={seat['max_nudges']!r} is not a whole number >= 0")
    if isinstance(model, str):
        with open_model(model, Settings(**options)) as opened:
            yield opened, seat
    else:
        yield model, seat


def _traits(model: str | Model | None, options: Mapping[str, Any]) -> Traits:
    """What runs here computes, and gives every seed the same episode if it draws nothing; an endpoint may not."""
    name = model or "" if isinstance(model, str | None) else model.name
    local, scripted = name.startswith("local/"), name.startswith("scripted/")
    return Traits(
        uses_seed=bool(options.get("temperature")) if local else not scripted,
        concurrent=not local,
        options=("context", "max_nudges", *(f.name for f in fields(Settings))),
    )


llm.traits = _traits  # type: ignore[attr-defined]
llm.shared = _shared  # type: ignore[attr-defined]


def system_prompt(task: Task) -> str:
    """The rules of the task and the persona: all that does not change from day to day."""
    costs = COSTS.format(task.cost_bps) if task.cost_bps else ""
    return SYSTEM.format(hold=HOLDS[task.hold], fill=FILLS[task.fill], costs=costs, persona=PERSONAS[task.persona])


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


def _sum(numbers: list[Any]) -> Any:
    """The sum; None where one of them is unknown."""
    return None if None in numbers else sum(numbers)
