"""The audit of one agent: everything measured, as one object that is ready for JSON."""

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from fintrading_agents.audit import probes
from fintrading_agents.audit.gap import Pair, gap, pairs, stretches
from fintrading_agents.audit.intervals import is_above_chance
from fintrading_agents.audit.invariance import invariance, points
from fintrading_agents.models import Model
from fintrading_agents.models.local import SETTINGS as SMALL
from fintrading_gym import __version__
from fintrading_gym.errors import RunStopped, lookup
from fintrading_gym.leaderboard import AT_ONCE
from fintrading_gym.masking import ALIASES, IDENTITIES
from fintrading_gym.ranking import MIN_COVERAGE
from fintrading_gym.rollout import Episode, Player, Task
from fintrading_gym.windows import EVALUATION, iso_date

MARGIN = 0.05  # points of the score: a loss that is surely smaller is taken for none
PROMPTS_SHA256 = hashlib.sha256(f"{probes.IDENTIFY}{probes.RECALL}{probes.QUESTION}".encode()).hexdigest()


@dataclass(frozen=True)
class Plan:
    """How much is asked and played.

    About 2 x views + recalls + 10 x points calls (12 x points x samples of an agent that draws), and those of
    cells x stretches x steps x 2 decisions.
    """

    cells: tuple[str, ...] = tuple(EVALUATION)
    persona: str = "adaptive"
    identity: str = "masked"  # the level whose worth is measured
    views: int = 40  # shown at each of two levels, to be named
    recalls: int = 40  # asked for by ticker and date
    points: int = 24  # days decided on in every world, at two levels
    samples: int = 3  # decisions on each, of an agent that draws
    stretches: int = 4  # of each cell, played masked and real
    steps: int = 20  # decisions in a stretch
    seeds: int = 1  # episodes of each stretch and level, of an agent that draws
    seed: int = 0  # of all that is drawn
    cutoff: str | None = None  # the day the model's knowledge ends, ISO, where it is known

    def __post_init__(self) -> None:
        object.__setattr__(self, "identity", ALIASES.get(self.identity, self.identity))
        lookup("identity", self.identity, {name: None for name in IDENTITIES if name != "real"})
        if self.cutoff is not None and iso_date(self.cutoff) is None:
            raise ValueError(f"cutoff={self.cutoff!r} is not a date of the form YYYY-MM-DD")
        if not self.cells:
            raise ValueError("cells names nothing; give one or more")
        for name in ("views", "recalls", "points", "samples", "stretches", "steps", "seeds"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)!r} is not a whole number >= 1")


def audit(player: Player, plan: Plan, on_part: Callable[[str], None] = lambda part: None) -> dict[str, Any]:
    """Measure what an agent may owe to memory.

    Args:
        player: any; the probes are put to the model of one that asks a model, and left out otherwise.
        plan: how much is asked.
        on_part: called with what is measured next.

    Raises:
        RunStopped: an episode failed, or a limit of the run is reached.
        ModelFailure: a probe got no answer.
    """
    with player.opened() as opened:
        model: Model | None = opened.argument if hasattr(opened.argument, "complete") else None
        # Asked of the player as it was given: once it is opened, its model's settings are no options any more.
        samples, seeds = (plan.samples, plan.seeds) if player.traits.uses_seed else (1, 1)
        told: dict[str, Any] = {
            "agent": player.name,
            "model": model.name if model else None,
            "version": __version__,
            "prompts_sha256": PROMPTS_SHA256,
            "data_sha256": {cell: Task(cell).window.load().sha256 for cell in plan.cells},
            "plan": {**asdict(plan), "samples": samples, "seeds": seeds},
            "identification": None,
            "recall": None,
        }
        if model:
            detail = SMALL["detail"] if model.name.startswith("local/") else "full"
            on_part("naming stocks by their prices")
            levels = ("names+dates", plan.identity)
            asked = probes.places(plan.views, plan.seed)
            told["identification"] = {level: probes.identification(model, asked, level, detail) for level in levels}
            on_part("recalling closes")
            told["recall"] = probes.recall(model, probes.places(plan.recalls, plan.seed + 1))
        on_part("deciding in other worlds")
        asked_on = points(plan.cells, plan.points, plan.seed)
        levels = ("real", plan.identity)
        decided = {level: invariance(opened, asked_on, samples, level, _play) for level in levels}
        told["invariance"] = {level: decided[level]["worlds"] for level in levels}
        told["foresight"] = {level: decided[level]["foresight"] for level in levels}
        on_part("playing masked and real")
        windows = stretches(plan.cells, plan.stretches, plan.steps)
        paired = pairs(opened, windows, plan.persona, seeds, plan.identity, _play)
    told["gap"] = gap(paired)
    told["cutoff"] = _at_cutoff(paired, plan.cutoff)
    told["verdict"], told["sentence"] = _verdict(told)
    return told


def _play(player: Player, tasks: Sequence[Task]) -> list[Episode]:
    with ThreadPoolExecutor(AT_ONCE if player.traits.concurrent else 1) as threads:
        episodes = list(threads.map(player.play, tasks))
    failed = [episode.failure for episode in episodes if episode.failure]
    if failed:
        raise RunStopped(f"{len(failed)} of {len(episodes)} episodes failed, the first with: {failed[0]}")
    return episodes


def _at_cutoff(paired: Sequence[Pair], cutoff: str | None) -> dict[str, Any] | None:
    """The gap before and after the day the model's knowledge ends, each by stretches that lie wholly there."""
    if cutoff is None:
        return None
    parts = {
        "before": [pair for pair in paired if pair.window.last <= cutoff],
        "after": [pair for pair in paired if pair.window.first > cutoff],
    }
    return {name: gap(part) | {"stretches": len(part)} for name, part in parts.items()}


def _verdict(told: dict[str, Any]) -> tuple[str, str]:
    """`memory`, `none found` or `undecided`, and the sentence that says how much of the score may be memory."""
    real, difference = told["gap"]["score"]["real"]["mean"], told["gap"]["score"]["difference"]
    shown = f"Of its score of {real:.3f} with names, dates and prices shown"
    coverage = min(told["gap"]["coverage"][part]["mean"] for part in ("real", "hidden"))
    if coverage < MIN_COVERAGE:
        return "undecided", f"{shown} nothing can be said: it took only {coverage:.0%} of its decisions itself."
    if difference["low"] is None:
        return "undecided", f"{shown} nothing can be said: one stretch of days makes no interval."
    most, least = -difference["low"], -difference["high"]
    over = f"(95 % interval over {difference['n']} stretches)"
    if least > 0:
        return (
            "memory",
            f"{shown}, {least:.3f} to {most:.3f} may be memory: so much is lost when they are hidden {over}.",
        )
    if through := _through_the_mask(told):
        told_so = f"with identity={told['plan']['identity']} it still {through}"
        return "undecided", f"{shown}, it cannot be said how much is memory: {told_so}."
    if most <= MARGIN:
        found = f"at most {most:.3f}" if most > 0 else "nothing"
        return "none found", f"{shown}, {found} need be memory: no more is lost when they are hidden {over}."
    return "undecided", f"{shown}, anything up to {most:.3f} may be memory: too few stretches to tell {over}."


def _through_the_mask(told: dict[str, Any]) -> str | None:
    """The sign that memory works although names, dates and levels are hidden; None if there is none."""
    level = told["plan"]["identity"]
    named = (told["identification"] or {}).get(level, {})
    for what in ("ticker", "date"):
        if what in named and is_above_chance(named[what]):
            return f"names the {what} ({named[what]['share']:.0%} right, {named[what]['chance']:.0%} by chance)"
    foresight = told["foresight"][level]
    if foresight["difference"]["low"] is not None and foresight["difference"]["low"] > 0:
        real, others = (foresight[part]["mean"] for part in ("real", "others"))
        return f"foresees what happened ({real:+.2f}) better than what did not ({others:+.2f})"
    return None
