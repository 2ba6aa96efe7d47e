"""What every agent that asks a model stands on: its model behind the guard, and all that was said in an episode."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from typing import Any

from fintrading_agents.costs import costs
from fintrading_agents.egress import Egress
from fintrading_agents.guard import Guarded
from fintrading_agents.models import Form, Messages, Model, ModelFailure, Reply, Settings, open_model
from fintrading_agents.models.local import SETTINGS as SMALL
from fintrading_agents.models.names import model_name
from fintrading_agents.models.reply import held
from fintrading_agents.models.session import Asker, asker
from fintrading_agents.neutering import for_task
from fintrading_gym.counts import counts
from fintrading_gym.recipes import dumps
from fintrading_gym.replies import REASONS, Decision, parse
from fintrading_gym.rollout import Task, Traits

IDENTITY = "masked"  # a model is not told whom it trades, and when, unless the task says otherwise
# Settings of a model that change its answers; where it is asked matters if somebody else may answer there.
ANSWERING = {"temperature", "max_tokens", "structured"}
# Added to what was asked, once for each reply that was no decision; the reply itself is not sent back.
NUDGE = "\nYour reply was no decision. {reason} Answer with one JSON object and nothing else.\n"


class Transcript:
    """One episode's model, and what was asked and answered."""

    def __init__(self, task: Task, model: Model, *agent: Any):
        """Begin.

        Args:
            task: of the episode.
            model: to be asked.
            agent: its name and options, ready for JSON, where several agents play the same task with the same model:
                what one of them was refused is not told to another.
        """
        self.identity = task.identity or IDENTITY
        self.detail = task.detail or (SMALL["detail"] if model.name.startswith("local/") else "full")
        self.log: list[dict[str, Any]] = []
        """One entry a day: its `calls`, each with its `stage` (a day has several in some agents), its `messages`, all
        of its `Reply`, and the `verdict` if a decision was read from it, or the `failure` that it had instead of a
        reply; beside that what an agent adds to the day. All is ready for JSON."""
        self.entity_map = for_task(task, self.identity)
        """The guard's: what comes from outside, such as news, an agent passes through its `neuter`, and what it tells
        its readers through its `restore`."""
        self._model, self._seed = Guarded(model, self.entity_map), task.seed
        self._egress = Egress(task, self.identity)
        self._days = task.decisions
        self._asker = Asker(dumps([agent, {f.name: getattr(task, f.name) for f in fields(task)}], sort_keys=True))

    def new_day(self, **told: Any) -> dict[str, Any]:
        """Begin a day's entry, with what the agent tells of it."""
        self.log.append({"calls": [], **told})
        return self.log[-1]

    async def ask(self, messages: Messages, form: Form | None = None, stage: str = "decision") -> tuple[Reply, Any]:
        """One answer, and its entry in today's `calls`. What is asked at once stands in the order of the asking.

        Raises:
            ModelFailure: the model did not answer.
            RunStopped: a limit of the run is reached.
        """
        call: dict[str, Any] = {"stage": stage, "messages": self._model.told(messages)}
        self.log[-1]["calls"].append(call)
        before = asker.set(self._asker)
        try:
            reply = await self._model.complete(call["messages"], sample=self._seed, form=form)
        except ModelFailure as failure:
            call["failure"] = str(failure)
            raise
        finally:
            asker.reset(before)
        call |= reply.as_json()
        return reply, call

    async def decide(
        self,
        before: Messages,
        told: str,
        form: Form | None,
        max_nudges: int,
        read: Callable[[Any], Decision] = parse,
        stage: str = "decision",
    ) -> Decision:
        """The model's decision; its action is None if it made none, nudges included.

        Args:
            before: the messages before the last.
            told: the last one, by the user.
            form: of the answer.
            max_nudges: how often it is told that its reply was no decision, and why.
            read: a decision out of a reply; its reason is one of `replies.REASONS`.
            stage: of the calls.

        Raises:
            ModelFailure, RunStopped: as `ask`.
        """
        for _ in range(1 + max_nudges):
            reply, call = await self.ask([*before, {"role": "user", "content": told}], form, stage)
            decision = read(reply)
            call["verdict"] = asdict(decision)
            if decision.action is not None:
                break
            told += NUDGE.format(reason=REASONS[decision.reason])
        if len(self.log) >= self._days:
            self._asker.end()
        return decision

    def names(self) -> dict[str, str]:
        """What the tokens in today's calls stand for, for people: texts are kept as they were sent."""
        told: dict[str, str] = {}
        for call in self.log[-1]["calls"]:
            for text in (*(message["content"] for message in call["messages"]), call.get("content")):
                told |= self.entity_map.names(text) if isinstance(text, str) else {}
        return dict(sorted(told.items()))

    @property
    def facts(self) -> dict[str, Any]:
        """What the episode's row tells of the model; of its calls, see `counts.counts`."""
        leaks = self._egress.of_log(self.log)
        prices = dict.fromkeys(call["price"] for call in self._replies() if call.get("price"))
        return {
            "model": self._model.name,
            "note": self._model.note,
            "structured": self._structured,
            "detail": self.detail,
            "leaks": len(leaks),
            "first_leak": str(leaks[0]) if leaks else None,
            **({"prices": "; ".join(prices)} if prices else {}),
            **counts(self.log),
        }

    @property
    def _structured(self) -> str:
        """How replies that decided were held to a form; all ways, where it was not the same every time."""
        asked = [call["sent"] for call in self._replies() if "verdict" in call and call["sent"] is not None]
        return " and ".join(dict.fromkeys(map(held, asked))) or self._model.structured

    def _replies(self) -> list[dict[str, Any]]:
        return [call for day in self.log for call in day["calls"] if "outcome" in call]


def model_shared(agent: str, own: tuple[str, ...], check: Callable[[Mapping[str, Any]], None]) -> Any:
    """An agent's attribute `shared`: one model for all episodes of a run; see `Player.opened`.

    Args:
        agent: its name, for messages.
        own: its options; the others are settings of the model.
        check: of its options as they were given; raises ValueError.
    """

    @contextmanager
    def shared(model: str | Model | None, **options: Any) -> Iterator[tuple[Model, dict[str, Any]]]:
        name = model_name(agent, model)
        kept = {name: options.pop(name) for name in own if name in options}
        check(kept)
        if model is None or isinstance(model, str):
            with open_model(name, Settings(**options)) as opened:
                yield opened, kept
        else:
            yield model, kept

    return shared


def model_traits(own: tuple[str, ...]) -> Callable[[str | Model | None, Mapping[str, Any]], Traits]:
    """An agent's attribute `traits`, for an agent with these options of its own.

    What runs here computes, and gives every seed the same episode if it draws nothing; an endpoint may not.
    """

    def traits(model: str | Model | None, options: Mapping[str, Any]) -> Traits:
        name = model or "" if isinstance(model, str | None) else model.name
        local, scripted = name.startswith("local/"), name.startswith("scripted/")
        same = {f.name for f in fields(Settings)} - ANSWERING - (set() if local or scripted else {"base_url"})
        return Traits(
            uses_seed=bool(options.get("temperature")) if local else not scripted,
            concurrent=not local,
            options=(*own, *(f.name for f in fields(Settings))),
            indifferent=frozenset(same),
            costs=costs,
        )

    return traits


def check_nudges(options: Mapping[str, Any]) -> None:
    """Raise ValueError if `max_nudges` is no number of nudges."""
    if options.get("max_nudges", 0) < 0:
        raise ValueError(f"max_nudges={options['max_nudges']!r} is not a whole number >= 0")
