"""What is shown while episodes are played: how far they are, and what their models use and decide."""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from fintrading_gym.counts import counts
from fintrading_gym.replies import ACTIONS, Decision
from fintrading_gym.rollout import Agent

ONE_SIDED, FEW = 0.95, 10  # a model that decides one thing so often, over so many days, is told
COLUMNS = (TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(), TimeRemainingColumn())


class Watch:
    """The bar, and the line about models under it. Days may be told from any thread."""

    def __init__(self, progress: Progress, days: TaskID):
        self._progress, self._days = progress, days
        self._lock = threading.Lock()
        self._facts: dict[int, Mapping[str, Any]] = {}  # of each episode's agent, as they are now
        self._mixes: dict[str, Counter[str]] = {}  # by model

    def on_day(self, place: int, agent: Agent | None, decision: Decision | None) -> None:
        """Count a day of the episode at this place; without an agent, it was played elsewhere."""
        facts = _so_far(agent)
        with self._lock:
            self._progress.advance(self._days)
            if facts and "model" in facts:
                self._facts[place] = facts
                mix = self._mixes.setdefault(facts["model"], Counter())
                mix[(decision and decision.action) or "none"] += 1
                self._progress.update(self._days, description=told(self._facts.values(), self._mixes))


def _so_far(agent: Agent | None) -> Mapping[str, Any] | None:
    """What an agent tells of itself, in the middle of an episode: of one that asks a model, the sums over its calls.

    All of its `facts` would be dear each day: for them every text is searched for what tells who or when.
    """
    model, log = getattr(agent, "model", None), getattr(agent, "log", None)
    return {"model": model, **counts(log)} if isinstance(model, str) and log else getattr(agent, "facts", None)


def told(facts: Iterable[Mapping[str, Any]], mixes: Mapping[str, Mapping[str, int]]) -> str:
    """The line: tokens, money, cache hits and decisions, with a warning for each model that decides only one thing."""
    facts, mix = list(facts), sum((Counter(its) for its in mixes.values()), Counter())
    tokens, paid = known_sum(facts, "tokens_in", "tokens_out"), known_sum(facts, "paid_usd")
    used = "? tokens" if tokens is None else f"{tokens:,} tokens"
    money = "? USD" if paid is None else f"{paid:.4f} USD"
    decided = " ".join(f"{name} {share:.0%}" for name, share in _shares(mix).items())
    one = {model: one_sided(_shares(its), sum(its.values())) for model, its in mixes.items()}
    alerts = "".join(f" [bold red]{escape(model)}: {words}[/]" for model, words in one.items() if words)
    return f"{used}, {money}, {known_sum(facts, 'cache_hits'):,} cached, {decided}{alerts}"


def _shares(mix: Mapping[str, int]) -> dict[str, float]:
    return {name: mix[name] / sum(mix.values()) for name in (*reversed(ACTIONS), "none") if mix.get(name)}


def one_sided(shares: Mapping[str, float], days: float) -> str:
    """`buy on 98% of its days` where one decision is nearly all there is, else nothing."""
    name = max(shares, key=shares.__getitem__)
    return f"{name} on {shares[name]:.0%} of its days" if days >= FEW and shares[name] > ONE_SIDED else ""


def known_sum(rows: Iterable[Mapping[str, Any]], *names: str) -> Any:
    """The sum of these columns, None where one number is unknown."""
    numbers = [row[name] for row in rows for name in names]
    return None if None in numbers else sum(numbers)


@contextmanager
def watched(days: int) -> Iterator[Watch]:
    """A bar over so many days, on stderr, gone when it is done."""
    with Progress(*COLUMNS, console=Console(stderr=True), transient=True) as progress:
        yield Watch(progress, progress.add_task("playing", total=days))
