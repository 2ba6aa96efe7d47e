"""FinMem's agent (arXiv 2311.13743): a language model with a layered memory, warmed up on the days before."""

import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fintrading_agents.costs import costs
from fintrading_agents.memory import embeddings, file, prompts
from fintrading_agents.memory.choices import Choices
from fintrading_agents.memory.embeddings import Embedding, open_embedding, total
from fintrading_agents.memory.mind import Habits, Mind
from fintrading_agents.memory.prompts import ago, moved, percent
from fintrading_agents.memory.store import Recalled
from fintrading_agents.models import Form, Model, Settings, wait
from fintrading_agents.sources import read_sources
from fintrading_agents.transcript import Transcript, model_shared, model_traits
from fintrading_gym.costs import Costs
from fintrading_gym.masking import mask
from fintrading_gym.observations import Sight, market_texts
from fintrading_gym.replies import Decision, prose
from fintrading_gym.rollout import Player, Task, Traits

BRIEF_TOP_K = 1  # memories of each layer beside the brief view: more would be more than a small model reads in time
MOMENTUM = 3  # days, the paper's M
_NUMBER = r": ([+-]\d+\.\d\d) %"  # as the text view writes one
_OWN_RETURN, _MOMENTUM = re.compile(f"your return so far{_NUMBER}"), re.compile(f"3-day momentum{_NUMBER}")


class FinMem:
    """One episode's agent."""

    def __init__(self, task: Task, model: Model, choices: Choices, embedding: Embedding):
        self._said, self.model = Transcript(task, model, "finmem", asdict(choices)), model.name
        self.detail, self.identity, self.log = self._said.detail, self._said.identity, self._said.log
        self._task, self._choices, self._name = task, choices, model.name
        self._first, _ = task.window.span()
        self._row = self._first  # of the day that is decided on next
        self._bars = mask(task.window, task.lookback, self.identity)
        self._views = market_texts(
            Sight(task.window, task.lookback, self.detail, self.identity)
        )  # each day's beginning
        if choices.sources is not None and task.world != "real":
            raise ValueError(f"sources tell of what happened; in the world {task.world!r} it did not: leave them out")
        items = [] if choices.sources is None else read_sources(choices.sources, task.window.ticker)
        top_k = choices.memory_top_k or (BRIEF_TOP_K if self.detail == "brief" else choices.constants.top_k)
        self._habits = Habits(choices.constants, choices.layers, top_k, embedding)
        about = (task, self.identity, self._bars, items, self._said.entity_map)
        self._mind = None if choices.memory_off else Mind(*about, self._habits)
        self._trace: list[tuple[str, str, int]] = []  # of each day: what was decided, why, the position from then on
        self._cited: list[int] = []  # by the last decision
        self._returns: list[float] = []  # the player's own so far, in per cent, as each day's view told it
        self._unread = 0  # answers in which no reason could be read

    def __call__(self, observation: Any) -> Decision:
        """The model's decision on the day shown; its action is None if it made none, nudges included.

        Raises:
            ModelFailure: the model, or the endpoint of the embedding, did not answer.
            RunStopped: a limit of the run is reached.
            ValueError: it is shown another day than the one it is at, or at another level of detail or identity.
        """
        view = observation if isinstance(observation, str) else observation["text"]
        if not view.startswith(self._views[self._row - self._first]):
            raise ValueError(
                f"this is not day {self._row - self._first + 1} of {self._task.window} with detail={self.detail!r}, "
                f"identity={self.identity!r}: the agent is made for one episode, from its first day on"
            )
        entry = self._said.new_day()
        view, stance = self._with_stance(view)
        recalled = self._remembered(self._mind, entry, stance) if self._mind else []
        decision, reason, cited = self._decide(view, recalled)
        position = {"buy": 1, "sell": -1}.get(decision.action or "", self._held)
        self._trace.append((decision.action or "no decision", reason, position))
        self._cited = cited
        entry |= {"stance": stance, "reason": reason, "cited": cited}
        if self._mind:
            if reason and not self._choices.memory_reflect:
                entry["reflection"] = self._learned(self._mind, f"{decision.action}: {reason}", self._row)
            self._mind.keep(self._row)
        self._row += 1
        return decision

    # ---------------------------------------------------------------------------------------- a day in the game

    def _remembered(self, mind: Mind, entry: dict[str, Any], stance: str) -> list[Recalled]:
        """Live on to today, and recall what matters today."""
        if self._row == self._first:
            chosen = asdict(replace(self._choices, memory_file=None))
            way = {"model": self._name, "top_k": self._habits.top_k, "prompts": prompts.PROMPT_SHA256}
            way |= {name: chosen[name] for name in ("memory_warmup", "memory_warmup_calls")}
            rest = {"task": {**asdict(self._task), "cell": str(self._task.window)}, **chosen}
            start, warm_up = self._choices.memory_start, partial(self._warm_up, mind)
            mind.begin(self._choices.memory_file, start, way, rest, warm_up)
        else:
            earned = self._trace[-1][2] * self._log_return(self._row - 1)
            rewarded = mind.reward(self._cited, self._row) if earned > 0 else []
            entry["feedback"] = {"earned": round(earned, 6), "rewarded": rewarded}
        moves, today = mind.live(self._row)
        entry |= moves
        every = self._choices.memory_reflect
        if every and self._trace and len(self._trace) % every == 0:
            entry["reflection"] = self._look_back(mind, every)
        recalled = mind.recall(self._query(stance, today, self._row), self._row)
        entry["memory"] = [memory.as_json() for memory in recalled]
        return recalled

    def _decide(self, view: str, recalled: list[Recalled]) -> tuple[Decision, str, list[int]]:
        """The decision, why, and the ids of the memories it cites."""
        system = prompts.system_prompt(self._task, self.detail, self._choices.persona_rule)
        told = (prompts.memories(recalled, self.detail) if self._mind else "") + view
        form = prompts.decision_form(len(recalled))
        before = [{"role": "system", "content": system}]
        decision = wait(self._said.decide(before, told, form, self._choices.max_nudges))
        text, _ = prose(self.log[-1]["calls"][-1]) if decision.action else ("", "")
        return decision, self._hidden(prompts.reason_of(text)), prompts.cited_in(text, recalled)

    def _look_back(self, mind: Mind, days: int) -> dict[str, Any]:
        """What the model learns from its last days."""
        lines = []
        for back in range(days, 0, -1):
            decided, reason, position = self._trace[-back]
            move = self._log_return(self._row - back)
            because = f", because: {reason}" if reason else ""
            did = {"age": ago(back), "decided": decided, "because": because}
            lines.append(prompts.DAY.format(**did, change=percent(move), earned=percent(position * move)))
        said = self._asked(prompts.REFLECT, "".join(lines), prompts.reflect_form(), "reflection")
        return self._learned(mind, prompts.reason_of(said), self._row)

    # ------------------------------------------------------------------------------------------ before the game

    def _warm_up(self, mind: Mind) -> None:
        """Live through the days before the window; on some the model explains what the next day did."""
        rows = range(max(0, self._first - self._choices.memory_warmup), self._first)
        studied = set(self._choices.studied(self._task))
        mind.prepare(rows)
        for row in rows:
            _, today = mind.live(row)
            if row in studied:  # what is learned is known when the next day has shown its move
                learned, cited = self._explained(mind.recall(self._query("", today, row), row), row)
                mind.reward(cited, row + 1)
                self._learned(mind, learned, row + 1)
        mind.lived = len(rows)

    def _explained(self, recalled: list[Recalled], row: int) -> tuple[str, list[int]]:
        """Why the day after this one went as it did, empty if the model did not say, and the memories that told it."""
        change, momentum = float(np.expm1(self._log_return(row))), self._momentum(row)
        told = {"momentum": "n/a" if momentum is None else percent(momentum), "sign": prompts.sign(change)}
        label = prompts.LABEL.format(**told, change=percent(change))
        shown = prompts.memories(recalled, self.detail) + label
        said = self._asked(prompts.STUDY, shown, prompts.study_form(len(recalled)), "warm-up")
        reason = prompts.reason_of(said)
        learned = prompts.LEARNED.format(moved=moved(change), change=percent(change), reason=reason)
        return learned if reason else "", prompts.cited_in(said, recalled)

    # ---------------------------------------------------------------------------------------------- small parts

    def _asked(self, systems: Mapping[str, str], told: str, form: Form, stage: str) -> str:
        """What the model says, where no decision is asked for."""
        system = systems[self.detail].format(cited=prompts.CITED)
        messages = [{"role": "system", "content": system}, {"role": "user", "content": told}]
        reply, _ = wait(self._said.ask(messages, form, stage))
        return prose(reply)[0]

    def _learned(self, mind: Mind, text: str, row: int) -> dict[str, Any]:
        """A reflection is remembered, if there is one."""
        if not text:
            self._unread += 1
            return {"id": None, "text": ""}
        return {"id": mind.learn(text, row), "text": self._hidden(text)}

    def _with_stance(self, view: str) -> tuple[str, str]:
        """The view with the profile of today's persona rule, and that profile."""
        shown, label, profile = view.rpartition(prompts.PROFILE)
        rule = self._choices.persona_rule
        if rule == "cumulative" or self._task.persona != "adaptive":
            return view, profile.strip()
        found = (_MOMENTUM if rule == "momentum" else _OWN_RETURN).search(view)
        number = float(found[1]) if found else 0.0  # on its first days a table has no momentum
        if rule == "recent":
            self._returns.append(number)
            number -= self._returns[-1 - min(MOMENTUM, len(self._returns) - 1)]
        profile = prompts.RULES[rule][1][number < 0]
        return f"{shown}{label}{profile}\n", profile

    def _query(self, stance: str, today: list[str], row: int) -> str:
        """What the memory is asked: the trade, the character, and what is known of today."""
        told = {
            "company": self._bars.ticker,
            "stance": stance and f"{stance}.",
            "moved": moved(self._momentum(row) or 0.0),
        }
        return prompts.QUERY.format(**told, happened="; ".join(today) or prompts.QUIET)

    @property
    def _held(self) -> int:
        """The position that a hold leaves."""
        return self._trace[-1][2] if self._trace and self._task.hold == "keep" else 0

    def _log_return(self, row: int) -> float:
        """What the stock earned from the close of this day to the next."""
        return float(np.log(self._bars.close[row + 1] / self._bars.close[row]))

    def _momentum(self, row: int) -> float | None:
        """What it earned in the 3 days until this one; None: the table has no such days."""
        return float(self._bars.close[row] / self._bars.close[row - MOMENTUM] - 1) if row >= MOMENTUM else None

    def _hidden(self, text: str) -> str:
        """The text without what tells who and when; what was hidden before stays."""
        return self._said.entity_map.neuter(text, keep_tokens=True)

    @property
    def facts(self) -> dict[str, Any]:
        """What the episode's row tells of the model, as `Transcript.facts`, and of the memory."""
        told, choices = self._said.facts, self._choices
        own = {
            "memory_off": choices.memory_off,
            "persona_rule": choices.persona_rule,
            "prompt_sha256": prompts.PROMPT_SHA256,
        }
        if self._mind is None:
            return told | own
        its = self._mind.facts
        told |= {"cost_usd": total([told["cost_usd"], its["embedding_usd"]])}
        told |= {"paid_usd": total([told["paid_usd"], its.pop("embedding_paid_usd")])}
        own |= {
            "memory_constants": choices.memory_constants,
            "memory_layers": ",".join(choices.layers),
            "memory_top_k": self._habits.top_k,
            "memory_embedding": self._habits.embedding.name,
            "memory_warmup_calls": len(choices.studied(self._task)),
            "memory_reflect": choices.memory_reflect,
            "cited": sum(len(day.get("cited", ())) for day in self.log),
            "rewarded": sum(len(day.get("feedback", {}).get("rewarded", ())) for day in self.log),
            "unread": self._unread,
        }
        return told | own | its


@dataclass(frozen=True)
class Equipped:
    """A model, and the embedding that goes with it: what the episodes of a run share."""

    model: Model
    embedding: Embedding

    @property
    def name(self) -> str:
        """Of the model."""
        return self.model.name


def finmem(
    task: Task,
    model: Model | Equipped,
    *,
    memory_off: bool = False,
    memory_constants: str = "paper",
    memory_top_k: int | None = None,
    memory_layers: str = "all",
    memory_embedding: str = "hashing",
    memory_warmup: int = 250,
    memory_warmup_calls: int = 10,
    memory_reflect: int = 5,
    memory_file: str | None = None,
    memory_start: str | None = None,
    persona_rule: str = "cumulative",
    sources: str | None = None,
    max_nudges: int = 2,
) -> FinMem:
    """FinMem: a language model with a layered memory, by name as finmem:provider/model.

    Args:
        task: of the episode.
        model: opened by `fintrading_agents.models.open_model`; a `Player` opens it by its name.
        memory_off: no memory and no warm-up; the prompt is the same but for that.
        memory_constants: `paper` or `code`: how memories fade and move, as the article or the released code has it.
        memory_top_k: memories of each layer that are shown; None: as the constants say (5, code 3), beside the brief
            view 1.
        memory_layers: those that are on, by commas; `all`.
        memory_embedding: `hashing`, `minilm` or `openai/NAME`; see `memory.embeddings`.
        memory_warmup: trading days before the window that are lived through; fewer where the table has fewer.
        memory_warmup_calls: of these days, how many the model explains, with the next day's move before it.
        memory_reflect: after so many days each the model looks back on them. 0: never; its reasons of each day are
            remembered instead, without another call.
        memory_file: SQLite file in which memories are kept; None: `memory.sqlite` in the cache folder.
        memory_start: such a file, whose memory of the same place is gone on with instead of a warm-up.
        persona_rule: what the adaptive persona goes by: the `cumulative` return of the episode, the `recent` return of
            3 days, or the stock's `momentum` of 3 days.
        sources: JSONL of news and filings, see `fintrading_agents.sources`.
        max_nudges: how often a day it is told that its reply was no decision, and why.
    """
    choices = Choices(**{name: value for name, value in locals().items() if name not in ("task", "model")})
    if isinstance(model, Equipped):
        return FinMem(task, model.model, choices, model.embedding)
    if memory_embedding not in embeddings.HERE:
        told = f"memory_embedding={memory_embedding!r} is opened by a Player"
        raise ValueError(f"{told}; by hand: open_embedding(...), and finmem(task, Equipped(model, embedding))")
    return FinMem(task, model, choices, embeddings.HERE[memory_embedding]())


OPTIONS = tuple(field.name for field in fields(Choices))
_USUAL = {name: inspect.signature(finmem).parameters[name].default for name in OPTIONS}


def calls_per_episode(task: Task, options: Mapping[str, Any]) -> int:
    """How often the model is asked in an episode, nudges and the embedding's requests aside."""
    choices = Choices(**{name: options.get(name, usual) for name, usual in _USUAL.items()})
    every = 0 if choices.memory_off else choices.memory_reflect
    return len(choices.studied(task)) + task.decisions + ((task.decisions - 1) // every if every else 0)


def _check(options: Mapping[str, Any]) -> None:
    choices = Choices(**{**_USUAL, **options})
    if choices.sources is not None:
        read_sources(choices.sources)
    if choices.memory_start is not None:
        file.check(Path(choices.memory_start))
    if choices.memory_file is not None:
        file.check(Path(choices.memory_file), create=True)


@contextmanager
def _shared(model: str | Model | Equipped | None, **options: Any) -> Iterator[tuple[Model | Equipped, dict[str, Any]]]:
    """One model and one embedding for all episodes of a run."""
    settings = {name: value for name, value in options.items() if name not in OPTIONS}
    with model_shared("finmem", OPTIONS, _check)(model, **options) as (opened, kept):
        if isinstance(opened, Equipped) or kept.get("memory_off"):
            yield opened, kept
            return
        name = kept.get("memory_embedding", _USUAL["memory_embedding"])
        with open_embedding(name, Settings(**settings)) as embedding:
            yield Equipped(opened, embedding), kept


def _traits(model: Any, options: Mapping[str, Any]) -> Traits:
    """As of every agent that asks a model; but the importance of memories is drawn from the seed."""
    traits = model_traits(OPTIONS)(model, options)
    draws = not options.get("memory_off", False)
    indifferent = traits.indifferent | {"memory_file"}
    return replace(traits, uses_seed=traits.uses_seed or draws, indifferent=indifferent, costs=_costs)


def _costs(player: Player, task: Task) -> Costs:
    """Of one episode, in which nothing is remembered for good, and no endpoint asked for vectors either."""
    with TemporaryDirectory() as folder:
        here = {"memory_embedding": "hashing", "memory_file": f"{folder}/memory.sqlite"}
        told = costs(replace(player, options={**player.options, **here}), task)
    asks = player.options.get("memory_embedding", _USUAL["memory_embedding"]) not in embeddings.HERE
    return replace(told, usd=None) if asks else told  # what vectors cost is not told by the calls


finmem.traits = _traits  # type: ignore[attr-defined]
finmem.shared = _shared  # type: ignore[attr-defined]
finmem.calls_per_episode = calls_per_episode  # type: ignore[attr-defined]
