"""What episodes will ask of a model and cost, before anything is asked."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import repeat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fintrading_gym.rollout import Player, Task

Bounds = tuple[float, float]  # at least, at most


@dataclass(frozen=True)
class Costs:
    """Of one episode or of several; None: unknown, which is not nothing."""

    calls: Bounds | None = None
    tokens_in: Bounds | None = None
    tokens_out: Bounds | None = None
    usd: Bounds | None = None

    def __add__(self, other: "Costs") -> "Costs":
        return Costs(*(_sum(getattr(self, name), getattr(other, name)) for name in PARTS))

    def __mul__(self, count: int) -> "Costs":
        return sum(repeat(self, count), NOTHING)


PARTS = tuple(Costs.__dataclass_fields__)
NOTHING = Costs(*[(0, 0)] * len(PARTS))


@dataclass(frozen=True)
class Expected:
    """What is to be played of one agent."""

    agent: str
    episodes: int
    decisions: int
    costs: Costs
    seconds: Bounds | None  # that its model takes; None: unknown


def expected(
    episodes: Iterable[tuple["Player", "Task"]], latencies: Mapping[str, float], at_once: int
) -> list[Expected]:
    """What the episodes will cost, agent by agent; nothing is asked and nothing trained.

    Args:
        episodes: that are to be played.
        latencies: mean seconds of a model call by agent, where they are known.
        at_once: episodes that are played at a time where agents wait.
    """
    by_agent: dict[str, list[tuple[Player, Task]]] = {}
    for player, task in episodes:
        by_agent.setdefault(player.label, []).append((player, task))
    return [_of_agent(agent, its, latencies.get(agent), at_once) for agent, its in by_agent.items()]


def _of_agent(agent: str, its: list[tuple["Player", "Task"]], latency: float | None, at_once: int) -> Expected:
    # A seed changes what is answered, and hardly what is asked.
    alike = Counter(replace(task, seed=0) for _, task in its)
    costs = sum((costs_of(its[0][0], task) * count for task, count in alike.items()), NOTHING)
    beside = min(at_once, len(its)) if its[0][0].traits.concurrent else 1
    seconds = None
    if costs.calls and costs.calls[1] == 0:
        seconds = (0.0, 0.0)
    elif costs.calls and latency is not None:
        seconds = (costs.calls[0] * latency / beside, costs.calls[1] * latency / beside)
    return Expected(agent, len(its), sum(task.decisions for _, task in its), costs, seconds)


def costs_of(player: "Player", task: "Task") -> Costs:
    """What one episode will cost: as the player's traits say, else by the calls that it counts, else nothing."""
    if player.traits.costs is not None:
        return player.traits.costs(player, task)
    count = player.calls(task)
    return NOTHING if count is None else Costs((count, float("inf")))


def _sum(one: Bounds | None, other: Bounds | None) -> Bounds | None:
    return None if one is None or other is None else (one[0] + other[0], one[1] + other[1])
