"""The evaluation's tasks as `verifiers` knows them: knobs, rows, rewards."""

from typing import Any

import verifiers.v1 as vf
from pydantic import Field, field_validator, model_validator

from fintrading_agents.llm import days_shown, system_prompt
from fintrading_eval.traces import LEDGER, components, task_of
from fintrading_gym.env import HOLD_RULES
from fintrading_gym.errors import lookup
from fintrading_gym.masking import find_identity
from fintrading_gym.observations import PERSONAS
from fintrading_gym.windows import EVALUATION, find_window

KNOBS = ("timesteps", "max_nudges", "hold", "identity", "context")  # of the taskset that each of its rows holds


class FintradingConfig(vf.TasksetConfig):
    """The knobs, `--env.taskset.NAME`: which tasks there are, and how they are played."""

    cells: list[str] = Field(list(EVALUATION), min_length=1)
    """Cells by name, or TICKER:FIRST:LAST; several with spaces between them."""
    personas: list[str] = Field(list(PERSONAS), min_length=1)
    """risk_seeking, risk_averse, adaptive."""
    timesteps: int = Field(50, ge=1)
    """Decisions in an episode, at most the days of the shortest cell less one."""
    max_nudges: int = Field(2, ge=0)
    """How often a day the model is told that its reply was no decision."""
    hold: str = "keep"
    """What hold does: keep (keeps the position), flat (closes it for the day, the paper's rule)."""
    identity: str = "real"
    """What the model is told of who is traded, and when: real, names, names+dates, full, coarse."""
    context: str = "last"
    """Days the model sees: last (today's view), window:K (and the last K days), full (and all of them)."""

    @field_validator("cells", "personas")
    @classmethod
    def _known(cls, names: list[str], field: Any) -> list[str]:
        for name in names:
            if field.field_name == "cells":
                find_window(name)
            else:
                lookup("persona", name, PERSONAS)
        return list(dict.fromkeys(names))  # a task has one row

    @field_validator("hold")
    @classmethod
    def _known_rule(cls, hold: str) -> str:
        lookup("hold rule", hold, HOLD_RULES)
        return hold

    @field_validator("identity")
    @classmethod
    def _known_identity(cls, identity: str) -> str:
        return find_identity(identity)

    @field_validator("context")
    @classmethod
    def _known_context(cls, context: str) -> str:
        days_shown(context)
        return context

    @model_validator(mode="after")
    def _fits(self) -> "FintradingConfig":
        for cell in self.cells:
            possible = find_window(cell).span()[1] - 1
            if self.timesteps > possible:
                raise ValueError(f"timesteps={self.timesteps}: {cell} has only {possible} decisions")
        return self


class FintradingData(vf.TaskData):
    """A task as it is kept in its trace: all that is needed to play it again."""

    cell: str
    persona: str
    timesteps: int
    max_nudges: int
    hold: str
    identity: str
    context: str


class SeatState(vf.State):
    """What the harness tells the environment beside the trace, which keeps no refusal and not every finish reason."""

    reply: Any = None
    """The last turn's `fintrading_agents.models.Reply`; None where another harness plays."""


class FintradingTask(vf.Task[FintradingData, SeatState]):
    """One cell with one persona. Its rewards are read from what the environment has written into the trace."""

    @property
    def key(self) -> str:
        """The task's name, whatever else is played beside it."""
        row = self.data
        return f"{row.cell}/{row.persona}/{row.timesteps}/{row.hold}/{row.identity}"

    @vf.reward(weight=1.0)
    async def fintrading_score(self, trace: vf.Trace) -> float:
        """Mean of the four components."""
        return float(trace.info[LEDGER]["raw"]["score"])

    @vf.reward(weight=0.0)
    async def fintrading_components(self, trace: vf.Trace) -> dict[str, float]:
        """The four components, each a reward without weight."""
        return components(trace.info[LEDGER]["raw"])


class FintradingTaskset(vf.Taskset[FintradingTask, FintradingConfig]):
    """Cells x personas."""

    def load(self) -> list[FintradingTask]:
        """The tasks in the order of the knobs."""
        knobs = {name: getattr(self.config, name) for name in KNOBS}
        return [self._task(cell, persona, knobs) for cell in self.config.cells for persona in self.config.personas]

    def _task(self, cell: str, persona: str, knobs: dict[str, Any]) -> FintradingTask:
        row = {"cell": cell, "persona": persona, **knobs}
        data = FintradingData(name=f"{cell}/{persona}", system_prompt=system_prompt(task_of(row)), **row)
        return FintradingTask(data, self.config.task)
