"""One seat at the table: the environment is the user who tells of the day, the seat's model answers."""

import asyncio
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.dialects.chat import message_to_wire

from fintrading_agents.llm import Seat, llm, system_prompt
from fintrading_agents.models import Form, Messages, Reply
from fintrading_agents.models.faults import read
from fintrading_agents.models.local import MODELS
from fintrading_eval.tasks import FintradingData, FintradingTask, FintradingTaskset
from fintrading_eval.traces import CALLS, LEDGER, SEAT, failed, said, task_of, told
from fintrading_gym.ledger import evaluate
from fintrading_gym.replies import ACTIONS

__all__ = ["ChatHarness", "FintradingEnv", "FintradingTaskset"]


class ChatHarnessConfig(vf.HarnessConfig):
    """How a turn's one request is made, `--env.agent.harness.NAME`."""

    request_timeout: float = 120.0
    """Seconds of one attempt."""
    max_retries: int = 2
    """Of a request that found no connection, a rate limit or a server's error."""


class ChatHarness(vf.Harness[ChatHarnessConfig]):
    """One chat completion a turn, asked for by this process: no program to install, no container, no streaming.

    It sends the system prompt and the turn's messages, and nothing of the turns before: what of them a model should
    see is the seat's to say.
    """

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def session(self, *parts: Any, **more: Any) -> "ChatSession":
        """The connection of one episode."""
        return ChatSession(self, *parts, **more)

    async def launch(self, *parts: Any) -> vf.ProgramResult:
        """The task's own prompt, alone: no task of this package has one."""
        session = await self.session(*parts)
        try:
            return await session._run(None)
        finally:
            await session.close()


class ChatSession(vf.HarnessSession):
    """The connection of one episode to the endpoint that `verifiers` records the calls at."""

    def __init__(self, harness: ChatHarness, *parts: Any, **more: Any):
        import openai

        super().__init__(harness, *parts, **more)
        limits = {"timeout": harness.config.request_timeout, "max_retries": harness.config.max_retries}
        self._sdk = openai.AsyncOpenAI(base_url=self.endpoint, api_key=self.secret, **limits)

    async def _run(self, messages: Any) -> vf.ProgramResult:
        system, prompt = self.harness.resolve_prompt(self.data)
        asked = prompt if messages is None else messages
        asked = [{"role": "user", "content": asked}] if isinstance(asked, str) else [message_to_wire(m) for m in asked]
        if system:
            asked = [{"role": "system", "content": system}, *asked]
        # Sampling is added on the way, by the recording endpoint.
        raw = await self._sdk.chat.completions.with_raw_response.create(model=self.ctx.model, messages=asked)
        self.trace.state.reply = read(raw.http_response.text, self.endpoint)
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")

    async def close(self) -> None:
        """Close the connection."""
        await super().close()
        await self._sdk.close()


class FintradingEnvConfig(vf.EnvConfig):
    """One seat, `--env.agent`; its harness runs on this machine unless told otherwise."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())


class SeatEnded(Exception):  # noqa: N818 - reads as a sentence where it is raised and caught
    """The run under the seat is over before the episode is: by a limit, a timeout or a failure."""


class Exchange:
    """The model at the seat, as `fintrading_agents.llm` asks it: each call is a turn of the exchange."""

    structured = "none"

    def __init__(self, agent: vf.Agent, turns: vf.Interaction):
        self.name = agent.config.model
        self.note = next((model.about for name, model in MODELS.items() if self.name == f"local/{name}"), "")
        self.ours = isinstance(agent.harness, ChatHarness)
        self._turns = turns

    async def complete(self, messages: Messages, *, sample: int = 0, form: Form | None = None) -> Reply:
        """The reply; `sample` and `form` are the run's to say, by its sampling.

        Raises:
            SeatEnded: there is none.
        """
        trace = self._turns.trace
        trace.state.reply = None
        # The system prompt is in the task's row. Another harness remembers the turns itself, and is told the new one.
        segment = await self._turns.turn(list(messages[1:]) if self.ours else messages[-1]["content"])
        if segment.terminated:
            why = [" ".join(f"{error.type}: {error.message}".split()) for error in trace.errors]
            raise SeatEnded(f"the seat's run ended: {'; '.join(why) or trace.stop_condition}")
        if trace.state.reply is not None:
            return trace.state.reply  # type: ignore[no-any-return]
        said = segment.last_reply
        return Reply(said, "ok" if said else "empty")


class FintradingEnv(vf.Env[FintradingEnvConfig]):
    """The seat of `fintrading_agents.llm`, each of whose calls goes through `verifiers`."""

    async def run(self, task: FintradingTask, agents: vf.Agents) -> None:
        """Play the episode, and write it into the trace before its rewards are read.

        Raises:
            SeatEnded: the run under the seat ended early without a failure of its own; as an error of the episode
                this keeps the days that were played from being scored.
            ValueError: a context that the harness does not leave to the seat.
        """
        row, played = task.data, task_of(task.data)
        async with agents.agent.interaction(task) as turns:
            model, info = Exchange(agents.agent, turns), turns.trace.info
            if not model.ours and row.context != "last":
                raise ValueError(f"context={row.context!r} needs this package's harness; another remembers all turns")
            seat = llm(played, model, context=row.context, max_nudges=row.max_nudges)
            env = played.make(observation="text", detail=seat.detail, identity=seat.identity)
            game: Any = env.unwrapped
            observation, _ = env.reset(seed=played.seed)
            over = False
            try:
                while not over:
                    decision = await seat.decide(observation)
                    action = None if decision.action is None else ACTIONS.index(decision.action)
                    observation, _, _, over, _ = env.step(action)
            except Exception as fault:
                info[LEDGER] = failed(played, game.ledger(), fault)
                if isinstance(fault, SeatEnded) and turns.trace.errors:
                    return  # it is told already, by what made it end
                raise
            finally:
                info[SEAT] = _facts(seat, task.data, agents.agent.harness)
                info[CALLS] = said(seat.log, messages=not model.ours)
            raw = await asyncio.to_thread(evaluate, game.ledger(), played.hold, played.cost_bps)
            info[LEDGER] = told(played, game.ledger()) | {"raw": raw}


def _facts(seat: Seat, row: FintradingData, harness: vf.Harness) -> dict[str, Any]:
    """What the seat tells of itself, but for what was not its own."""
    facts = dict(seat.facts)
    if row.system_prompt != system_prompt(task_of(row)):  # --env.taskset.system_prompt
        facts["prompt_sha256"] = None
    if not isinstance(harness, ChatHarness):
        facts["context"] = f"of harness {harness.config.id}"
    return facts
