"""The options of FinMem's agent, and what follows from them."""

from dataclasses import dataclass

import numpy as np

from fintrading_agents.memory import embeddings
from fintrading_agents.memory.constants import CONSTANTS, Constants
from fintrading_agents.memory.prompts import RULES
from fintrading_agents.transcript import check_nudges
from fintrading_gym.errors import lookup
from fintrading_gym.rollout import Task


@dataclass(frozen=True)
class Choices:
    """The agent's options, checked; see `finmem.finmem`."""

    memory_off: bool
    memory_constants: str
    memory_top_k: int | None
    memory_layers: str
    memory_embedding: str
    memory_warmup: int
    memory_warmup_calls: int
    memory_reflect: int
    memory_file: str | None
    memory_start: str | None
    persona_rule: str
    sources: str | None
    max_nudges: int

    def __post_init__(self) -> None:
        lookup("persona rule", self.persona_rule, RULES)
        for name, least in (("top_k", 1), ("warmup", 0), ("warmup_calls", 0), ("reflect", 0)):
            value = getattr(self, f"memory_{name}")
            if value is not None and not (isinstance(value, int) and value >= least):
                raise ValueError(f"memory_{name}={value!r} is not a whole number >= {least}")
        embeddings.check(self.memory_embedding)
        if not self.layers:
            raise ValueError(f"memory_layers={self.memory_layers!r} names none; memory_off leaves all of them out")
        check_nudges({"max_nudges": self.max_nudges})

    @property
    def constants(self) -> Constants:
        """The set that was named."""
        return lookup("set of constants", self.memory_constants, CONSTANTS)

    @property
    def layers(self) -> tuple[str, ...]:
        """Those that are on, in the order of the constants."""
        there = self.constants.layers
        named = [name.strip() for name in self.memory_layers.split(",") if name.strip()]
        for name in named:
            lookup("layer", name, {**there, "all": None})
        return tuple(name for name in there if name in named or "all" in named)

    def studied(self, task: Task) -> list[int]:
        """The rows of the days that the model explains in the warm-up, spread evenly over it.

        The last day before the window is none of them: how it went on is only known in the window.
        """
        first, _ = task.window.span()
        rows = list(range(max(0, first - self.memory_warmup), first - 1))
        if self.memory_off or self.memory_start is not None or not rows:
            return []
        places = np.linspace(0, len(rows) - 1, min(self.memory_warmup_calls, len(rows)) + 1)[1:]
        return [rows[int(place)] for place in places]
