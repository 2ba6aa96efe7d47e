"""The committee's five stages: analyst, bull, bear, judge and risk committee, over one record."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from fintrading_agents import llm
from fintrading_agents.models import ModelFailure
from fintrading_agents.transcript import Transcript
from fintrading_agents.verdict import FORMS, LABELLED, SCHEMA, VERDICT
from fintrading_gym.flags import AGENT_NAMES
from fintrading_gym.replies import REASONS, Decision, prose
from fintrading_gym.rollout import Task

ANALYST = """\
You are the analyst of an investment committee. You are given all that is known of one stock at today's close. Write a
report of five sections under these headings:
## Price and trend
## Technicals
## Business and news
## Sentiment and flows
## What matters most
Cite the figures on which you rely as they stand in the research, and no others. Where there is no source, say so. In
the last section rank the three facts that matter most for the coming days, the strongest first. {length}"""
BULL = """\
You are the bull of an investment committee. Make the strongest case for buying the stock today: put a figure of the
research to every point, invent none, and answer in advance what the bear will say. {length}"""
BEAR = """\
You are the bear of an investment committee. Make the strongest case for selling the stock short today: put a figure of
the research to every point, invent none, and answer in advance what the bull will say. {length}"""
ANSWER = """

Both briefs are there, and this is round {n} of the debate. Answer the {other}'s last word point by point: grant what is
right in it, refute what is wrong with figures of the research, and do not repeat yourself."""
JUDGE = """\
You are the judge of an investment committee. You are given what the bull and the bear say, and none of the evidence.
Score the evidence that each brings forward from 1 to 10, name every fallacy, and rule which of them wins, and how
clearly. {length}"""
RISK = """\
You are the risk committee, and yours is the last word on one stock at today's close. You are given the research, the
analyst's report, both sides and the judge's ruling. Weigh what may go wrong, and decide:
{rules}

{answer}"""
# By the detail of the view. A small model's replies are cut after 64 tokens.
LENGTHS = {"full": "At most 300 words.", "brief": "At most 40 words."}
HEADINGS = {
    "analyst": "# The analyst's report",
    "bull": "# The bull",
    "bear": "# The bear",
    "judge": "# The judge's ruling",
    "account": "# The account",
}
WORDS = (ANALYST, BULL, BEAR, ANSWER, JUDGE, RISK, LENGTHS, HEADINGS, SCHEMA, LABELLED, VERDICT.schema, VERDICT.grammar)

# What each stage sees of the record, and nothing else. "answer" is what bull and bear see in a round of debate.
SEES = {
    "analyst": ("research",),
    "bull": ("research", "analyst"),
    "bear": ("research", "analyst"),
    "answer": ("research", "analyst", "bull", "bear"),
    "judge": ("bull", "bear"),
    "risk": ("research", "analyst", "bull", "bear", "judge", "account"),
}
# Failures after which the model can be asked for nothing more, and those of a replay, which is to be whole or nothing.
FINAL = ("bad_key", "forbidden", "not_found", "quota", "replay")


@dataclass
class Record:
    """What is known in one analysis so far: each stage's text, its reasoning cut, as the model wrote it."""

    research: str
    account: str = ""  # the player's own position and decisions; empty outside an episode
    analyst: str = ""
    bull: str = ""  # its brief, and its answers after it
    bear: str = ""
    judge: str = ""

    def shown(self, stage: str) -> str:
        """What a stage of `SEES` is given."""
        parts = {name: getattr(self, name) for name in SEES[stage]}
        return "\n\n".join(
            f"{HEADINGS[name]}\n{text}" if name in HEADINGS else text for name, text in parts.items() if text
        )


class StageFailed(Exception):  # noqa: N818 - reads as a sentence where it is raised and caught
    """A stage gave nothing to go on with: its decision is none, and no later stage is asked."""

    def __init__(self, stage: str, why: str):
        super().__init__(f"stage {stage} failed ({why})")


def calls_of_one(debate_rounds: int) -> int:
    """Calls of one analysis, format nudges aside."""
    return 5 + 2 * debate_rounds


@dataclass
class Analysis:
    """One analysis under way."""

    said: Transcript
    task: Task
    record: Record
    debate_rounds: int = 0
    form: str = "schema"  # of verdict.FORMS
    max_nudges: int = 0  # of the last stage
    on_stage: Callable[[str], None] = lambda stage: None  # called as a stage begins
    texts: dict[str, list[str]] = field(default_factory=dict)
    """The stages in words, by who speaks: a text, and one more for each answer."""

    async def verdict(self) -> Decision:
        """The whole of it; its action is None where the last stage's reply holds none.

        The day's entry in the log is told its `manner`, which is a debate or none.

        Raises:
            StageFailed: a stage failed.
            ModelFailure: nothing more can be had of the model.
            RunStopped: a limit of the run is reached.
        """
        self.said.log[-1]["manner"] = AGENT_NAMES["debate_rounds"](self.debate_rounds)
        await self.analyst()
        await self.briefs()
        for n in range(1, self.debate_rounds + 1):
            await self.answers(n)
        await self.judge()
        return await self.risk()

    async def analyst(self) -> None:
        """What the research says."""
        self.record.analyst = await self._say("analyst", "analyst", ANALYST)

    async def briefs(self) -> None:
        """The case of either side, both at the same time: neither sees the other."""
        bull, bear = self._say("bull", "bull", BULL), self._say("bear", "bear", BEAR)
        self.record.bull, self.record.bear = await _both(bull, bear)

    async def answers(self, n: int) -> None:
        """A round of debate, again at the same time: each answers what the other has said until then."""
        bull = self._say("bull", "answer", BULL + ANSWER.format(n=n, other="bear"), n)
        bear = self._say("bear", "answer", BEAR + ANSWER.format(n=n, other="bull"), n)
        for side, text in zip(("bull", "bear"), await _both(bull, bear), strict=True):
            setattr(self.record, side, f"{getattr(self.record, side)}\n\nIn round {n}:\n{text}")

    async def judge(self) -> None:
        """Which side argues better."""
        self.record.judge = await self._say("judge", "judge", JUDGE)

    async def risk(self) -> Decision:
        """The last word."""
        word = FORMS[self.form]
        system = RISK.format(rules=llm.rules(self.task), answer=word.prompt)
        before, told = [{"role": "system", "content": system}], self.record.shown("risk")
        self.on_stage("risk")
        try:
            return await self.said.decide(before, told, word.form, self.max_nudges, word.read, "risk")
        except ModelFailure as failure:
            raise stage_failed("risk", failure) from None

    async def _say(self, who: str, sees: str, prompt: str, n: int = 0) -> str:
        """A stage in words."""
        stage = f"{who} {n}" if n else who
        messages = [
            {"role": "system", "content": prompt.format(length=LENGTHS[self.said.detail])},
            {"role": "user", "content": self.record.shown(sees)},
        ]
        self.on_stage(stage)
        try:
            reply, _ = await self.said.ask(messages, stage=stage)
        except ModelFailure as failure:
            raise stage_failed(stage, failure) from None
        text, reason = prose(reply)
        if reason:
            raise StageFailed(stage, f"{reason}: {REASONS[reason]}")
        self.texts.setdefault(who, []).append(text)
        return text


def stage_failed(stage: str, failure: ModelFailure) -> Exception:
    """What a call without an answer means: the end of the decision, or that of the episode."""
    return failure if failure.kind in FINAL else StageFailed(stage, str(failure))


async def _both(bull: Coroutine[None, None, str], bear: Coroutine[None, None, str]) -> list[str]:
    """The texts of two stages that are asked at the same time. Both are waited for, so that a failure is told alike."""
    told = await asyncio.gather(bull, bear, return_exceptions=True)
    for fault in told:
        if isinstance(fault, BaseException):
            raise fault
    return [text for text in told if isinstance(text, str)]
