"""The committee as a player: a whole analysis on some days, and one plain question on those in between."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fintrading_agents import llm
from fintrading_agents.figures import figures, unsupported
from fintrading_agents.models import Model, ModelFailure, wait
from fintrading_agents.neutering import Ambiguous, EntityMap, for_task
from fintrading_agents.pipeline import WORDS, Analysis, Record, StageFailed, calls_of_one, stage_failed
from fintrading_agents.research import SHAPE, Research, research, told
from fintrading_agents.sources import Item, fingerprint, read_sources
from fintrading_agents.transcript import IDENTITY, Transcript, check_nudges, model_shared, model_traits
from fintrading_agents.verdict import FORMS
from fintrading_gym.errors import DataError, brief, lookup
from fintrading_gym.masking import mask
from fintrading_gym.observations import Sight, market_texts, percent_text
from fintrading_gym.replies import REASONS, Decision
from fintrading_gym.rollout import Task

AUDITED = ("analyst", "bull", "bear")  # whose figures must occur in the research
OPTIONS = ("debate_rounds", "every", "form", "max_nudges", "sources")
# Added to the view of a day without an analysis.
LAST_WORD = """\
the committee's last analysis, {days} decision(s) ago: {action}, confidence {confidence}, target price {target}
"""
PROMPTS = (WORDS, LAST_WORD, SHAPE, llm.PROMPTS)
PROMPT_SHA256 = hashlib.sha256(json.dumps(PROMPTS).encode()).hexdigest()


class Committee:
    """One episode's agent."""

    def __init__(self, task: Task, model: Model, items: Sequence[Item], every: int, **how: Any):
        self._said, self.model = Transcript(task, model, "committee", every, how), model.name
        self.detail, self.identity, self.log = self._said.detail, self._said.identity, self._said.log
        self._sight = Sight(task.window, task.lookback, self.detail, self.identity)
        self._task, self._items, self._every, self._how = task, items, every, how
        self._last: tuple[int, Decision] | None = None  # the day of the last analysis that held, and its decision

    def __call__(self, observation: Any) -> Decision:
        """`decide`, waited for."""
        return wait(self.decide(observation))

    async def decide(self, observation: Any) -> Decision:
        """The committee's decision on the day shown; its action is None if a stage failed or decided nothing.

        Raises:
            ModelFailure: nothing more can be had of the model.
            RunStopped: a limit of the run is reached.
            ValueError: it is shown another day than the one it is at, or at another level of detail or identity.
        """
        view = observation if isinstance(observation, str) else observation["text"]
        day = len(self.log)
        market = market_texts(self._sight)[day]
        if not view.startswith(market):
            raise ValueError(
                f"this is not day {day + 1} of {self._task.window} with detail={self.detail!r}, "
                f"identity={self.identity!r}: a committee is made for one episode, from its first day on"
            )
        if day % self._every:
            return await self._plain_day(day, view)
        found = research(self._sight, day, self._items, self._said.entity_map.neuter)
        decision, _ = await analysed(self._said, self._task, found, view.removeprefix(market), **self._how)
        self._last = (day, decision) if decision.action else None
        return decision

    async def _plain_day(self, day: int, view: str) -> Decision:
        """The evaluation's seat, which is told the last analysis."""
        entry = self._said.new_day()
        system = {"role": "system", "content": llm.system_prompt(self._task)}
        shown = view + (self._last_word(day, *self._last) if self._last else "")
        try:
            decision = await self._said.decide([system], shown, llm.FORM, self._how["max_nudges"], stage="seat")
        except ModelFailure as failure:
            decision = _failed(entry, stage_failed("seat", failure))
        entry["names"] = self._said.names()
        return decision

    def _last_word(self, day: int, then: int, decision: Decision) -> str:
        close = mask(self._task.window, self._task.lookback, self.identity).close[self._task.window.span()[0] + then]
        target, sure = decision.target_price, decision.confidence
        return LAST_WORD.format(
            days=day - then,
            action=decision.action,
            confidence="not stated" if sure is None else f"{sure:.2f}",
            target="not stated" if target is None else f"{percent_text(target / close - 1)} from the close then",
        )

    @property
    def facts(self) -> dict[str, Any]:
        """What the episode's row tells: `Transcript.facts`, the options, and what the audit of figures found.

        `unsupported_figures` of `figures` in the texts of analyst, bull and bear do not occur in the research;
        `failed_stages` decisions were lost to a stage; `items` were told, and `items_excluded` kept out, over all days.
        """
        found = [day["research"] for day in self.log if "research" in day]
        return self._said.facts | {
            "every": self._every,
            **{name: self._how[name] for name in ("debate_rounds", "form")},
            "prompt_sha256": PROMPT_SHA256,
            "sources_sha256": fingerprint(self._items) if self._items else None,
            "items": sum(day["items"] for day in found),
            "items_excluded": sum(day["excluded"] for day in found),
            "figures": sum(day.get("figures", 0) for day in self.log),
            "unsupported_figures": sum(len(texts) for day in self.log for texts in day.get("unsupported", {}).values()),
            "failed_stages": sum("invalid" in day for day in self.log),
        }


async def analysed(
    said: Transcript, task: Task, found: Research, account: str = "", **how: Any
) -> tuple[Decision, Analysis]:
    """One analysis, as a day of the transcript's log.

    Beside its calls the entry tells of the `research` (how much of it there is), of the `figures` in the texts of
    analyst, bull and bear, and which of them are `unsupported`, the `target` price as it was told and in USD, what the
    guard's tokens stand for (`names`), and, if there is no decision, why it is `invalid`.

    Args:
        said: what goes to the model, and what is kept of it.
        task: its rules are told to the last stage.
        found: the research.
        account: the player's own state, in words.
        how: see `Analysis`.

    Raises:
        ModelFailure, RunStopped: as `Analysis.verdict`.
    """
    counts = {name: value for name, value in asdict(found).items() if name != "text"}
    entry = said.new_day(research=counts)
    analysis = Analysis(said, task, Record(found.text, account), **how)
    try:
        decision = await analysis.verdict()
    except StageFailed as fault:
        decision = _failed(entry, fault)
    else:
        if decision.action is None:
            entry["invalid"] = str(StageFailed("risk", f"{decision.reason}: {REASONS[decision.reason]}"))
    texts = {who: "\n".join(analysis.texts.get(who, ())) for who in AUDITED}
    given = entry["calls"][0]["messages"][-1]["content"]  # the research as the analyst was told it
    entry["figures"] = sum(len(figures(text)) for text in texts.values())
    entry["unsupported"] = {who: unsupported(text, given) for who, text in texts.items()}
    if decision.target_price is not None:
        # Where it is a price of the research it is that price, and not a cent beside it.
        entry["target"] = {"told": decision.target_price, "usd": said.entity_map.dollars(decision.target_price)}
    entry["names"] = said.names()
    return decision, analysis


def committee(
    task: Task,
    model: Model,
    *,
    debate_rounds: int = 0,
    every: int = 1,
    form: str = "schema",
    max_nudges: int = 0,
    sources: str | None = None,
) -> Committee:
    """Five stages: analyst, bull and bear, judge, risk committee; by name as committee:provider/model.

    Args:
        task: of the episode.
        model: opened by `fintrading_agents.models.open_model`; a `Player` opens it by its name.
        debate_rounds: how often bull and bear answer each other. With 0 each writes one brief and neither sees the
            other's, which is no debate.
        every: days from one analysis to the next; in between the seat of `llm` plays, and is told the last one.
        form: of the last word, a key of `verdict.FORMS`.
        max_nudges: how often a day it is told that its reply was no decision; each is one more call.
        sources: a JSONL file; see `sources.read_sources`. None: prices alone.
    """
    if sources and task.world != "real":
        raise ValueError(f"sources tell what happened, and world={task.world!r} is another; leave one of them out")
    items = read_sources(sources, task.window.ticker) if sources else []
    if items:
        check_items(items, for_task(task, task.identity or IDENTITY))
    return Committee(task, model, items, every, debate_rounds=debate_rounds, form=form, max_nudges=max_nudges)


def check_items(items: Iterable[Item], entity_map: EntityMap) -> None:
    """Find out before the first call whether all items can be told behind the guard.

    Args:
        items: of the user.
        entity_map: not the episode's: it numbers dates as it meets them, and must not meet those of later items yet.

    Raises:
        DataError: an item holds what looks like one of the guard's tokens.
    """
    for item in items:
        try:
            entity_map.neuter(told(item))
        except Ambiguous as fault:
            raise DataError(f"The item {brief(item.title or item.text)} cannot be masked: {fault}") from None


def calls_per_episode(task: Task, options: Mapping[str, Any]) -> int:
    """Calls to the model in an episode, format nudges aside; fewer where a stage fails.

    Raises:
        ValueError: an option is wrong.
    """
    _check(options)
    whole = len(range(0, task.decisions, options.get("every", 1)))
    return whole * calls_of_one(options.get("debate_rounds", 0)) + task.decisions - whole


def _check(options: Mapping[str, Any]) -> None:
    for name, least in (("debate_rounds", 0), ("every", 1)):
        if name in options and not (isinstance(options[name], int) and options[name] >= least):
            raise ValueError(f"{name}={options[name]!r} is not a whole number >= {least}")
    lookup("form of the last word", options.get("form", "schema"), FORMS)
    check_nudges(options)
    if options.get("form") == "prose" and options.get("max_nudges"):
        raise ValueError("max_nudges ask for JSON, so they go with form='schema' and not with form='prose'")
    if options.get("sources"):
        read_sources(options["sources"])


def _failed(entry: dict[str, Any], fault: Exception) -> Decision:
    """No decision, for a stage that failed; what ends the episode is raised."""
    if not isinstance(fault, StageFailed):
        raise fault
    entry["invalid"] = str(fault)
    return Decision(None, "stage_failed")


def readers(options: Mapping[str, Any]) -> dict[str, Callable[[Any], Decision]]:
    """What reads a decision out of a reply, by stage; of other stages it is `replies.parse`."""
    return {"risk": FORMS[options.get("form", "schema")].read}


committee.readers = readers  # type: ignore[attr-defined]
committee.traits = model_traits(OPTIONS)  # type: ignore[attr-defined]
committee.shared = model_shared("committee", OPTIONS, _check)  # type: ignore[attr-defined]
committee.calls_per_episode = calls_per_episode  # type: ignore[attr-defined]
