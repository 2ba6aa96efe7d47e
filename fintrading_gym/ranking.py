"""Who is ranked beside whom: the tasks of a board, its gates, and the means that the order comes from."""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

import numpy as np

from fintrading_gym.store import Row
from fintrading_gym.windows import iso_date

MIN_COVERAGE = 0.95  # of the days an agent must decide itself, or its score is the environment's holds
COMPONENTS = ("score_cum_return", "score_sharpe", "score_stability", "score_discipline")
MEASURES = ("score", *COMPONENTS, "cumulative_return", "excess", "regret", "luck", "sharpe_ratio", "max_drawdown")
AVERAGED = (*MEASURES, "coverage")
# Facts by which an agent says up to which day its making looked at prices, and what that looking was.
SEEN = {"trained_until": "was trained", "selected_until": "had its hyperparameters selected"}
# What two episodes must share to be played on the same days by the same rules.
GAME = ("cell", "timesteps", "hold", "fill", "cost_bps", "data_sha256")
TIE = 1e-12  # scores that differ by less are equal: they are sums of the same numbers in another order

Place = tuple[Any, ...]  # the values of GAME
BoardTask = tuple[Place, str | None]  # with the persona; None: no agent of the board looks at it


@dataclass(frozen=True)
class Interval:
    """Where a number lies, at 95 %."""

    low: float
    high: float


@dataclass(frozen=True)
class Standing:
    """One agent's line in the table.

    A mean is one over the board's tasks, each of them the mean over its episodes there: over all of its personas and
    seeds, never the best of them. The fields from `intervals` on are filled by `statistics.analyse`.
    """

    agent: str
    rank: int | None  # None: not ranked, `why` says the reason
    why: str
    episodes: int  # on the board's tasks
    means: dict[str, float]  # of AVERAGED; empty when every episode failed
    spread: float | None  # standard deviation of the score over the episodes; None: fewer than two
    cells: dict[str, float]  # mean score by cell
    intervals: dict[str, Interval] = field(default_factory=dict)  # of the means
    over: str = ""  # what the intervals are over: "5 seeds", "days"; or why there are none
    rank_low: int | None = None  # the best and the worst rank that the comparisons leave open
    rank_high: int | None = None
    deflated_sharpe: float | None = None  # probability that its Sharpe ratio is more than the luckiest try's


def by_world(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows of each world: what is scored in a counterfactual one stands on a board of its own."""
    worlds: dict[str, list[Row]] = {}
    for row in rows:
        worlds.setdefault(row["world"], []).append(row)
    return worlds


def by_agent(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows of each agent."""
    agents: dict[str, list[Row]] = {}
    for row in rows:
        agents.setdefault(row["agent"], []).append(row)
    return agents


def place(row: Row) -> Place:
    """Which days were played, and by which rules."""
    return tuple(row[name] for name in GAME)


def board_tasks(rows: Sequence[Row]) -> set[BoardTask]:
    """The tasks of a board: those that more than half of its agents have played.

    So an agent that has played one task more takes nobody's rank, and one that has played a task less, because its run
    was broken off or because it was sent where it does well, has none. An agent that ignores the persona has played
    all personas of a cell.
    """
    agents = by_agent(rows)
    personas: dict[Place, set[str | None]] = {}
    for row in rows:
        personas.setdefault(place(row), set()).add(row["persona"])
    tasks = [(where, name) for where, names in personas.items() for name in (names - {None} or {None})]
    played = [_tasks(its) for its in agents.values()]
    return {task for task in tasks if 2 * sum(_covers(its, task) for its in played) > len(agents)}


def left_out(rows: Sequence[Row]) -> list[str]:
    """The tasks that were played, but by too few agents to be the board's: cell, or cell/persona."""
    board = board_tasks(rows)
    covered = {where for where, _ in board}
    others = {task for task in _tasks(rows) - board if task[1] is not None or task[0] not in covered}
    return [_told(task) for task in sorted(others, key=repr)]


def episodes_by_task(rows: Iterable[Row], tasks: set[BoardTask]) -> dict[BoardTask, list[Row]]:
    """An agent's episodes on each of the tasks that it has played, those of an agent without persona on all of them."""
    found: dict[BoardTask, list[Row]] = {}
    for row in rows:
        where, persona = place(row), row["persona"]
        for task in tasks:
            if task[0] == where and persona in (None, task[1]):
                found.setdefault(task, []).append(row)
    return {task: found[task] for task in sorted(found, key=repr)}


def rank(rows: Iterable[Row]) -> list[Standing]:
    """The agents, best mean score first, those without a rank last.

    Args:
        rows: of `leaderboard.run`, all in one world. In a counterfactual one nobody is ranked.

    Raises:
        ValueError: the rows are of several worlds.
    """
    rows = list(rows)
    if len(worlds := by_world(rows)) > 1:
        raise ValueError(f"Rows of the worlds {list(worlds)} make no one board; rank each of by_world(rows)")
    tasks = board_tasks(rows)
    standings = [_standing(agent, its, tasks) for agent, its in by_agent(rows).items()]
    standings.sort(key=lambda s: (bool(s.why), -s.means.get("score", -1.0), s.agent))
    ranked = [s for s in standings if not s.why]
    # Equal scores share a rank.
    ranks = {s.agent: 1 + sum(o.means["score"] > s.means["score"] + TIE for o in ranked) for s in ranked}
    return [replace(s, rank=ranks.get(s.agent)) for s in standings]


def task_mean(episodes: dict[BoardTask, list[Row]], name: str) -> float:
    """Mean over the tasks of the mean over each task's episodes."""
    return fmean(fmean(row[name] for row in its) for its in episodes.values())


def _standing(agent: str, rows: list[Row], tasks: set[BoardTask]) -> Standing:
    here = episodes_by_task(rows, tasks)
    counted = list({id(row): row for its in here.values() for row in its}.values())
    finished = {task: done for task, its in here.items() if (done := [row for row in its if row["failure"] is None])}
    scores = [row["score"] for row in counted if row["failure"] is None]
    cells: dict[str, dict[BoardTask, list[Row]]] = {}
    for task, its in finished.items():
        cells.setdefault(its[0]["cell"], {})[task] = its
    means = {name: task_mean(finished, name) for name in AVERAGED} if finished else {}
    return Standing(
        agent=agent,
        rank=None,
        why=_why_unranked(counted, means) or _what_is_missing(here.keys(), tasks),
        episodes=len(counted),
        means=means,
        spread=float(np.std(scores, ddof=1)) if len(scores) > 1 else None,
        cells={cell: task_mean(its, "score") for cell, its in cells.items()},
    )


def _why_unranked(rows: list[Row], means: dict[str, float]) -> str:
    """The first gate that an agent's episodes do not pass; empty: they pass all."""
    if not all(row["ranked"] for row in rows):
        return "knows the future"
    if rows and rows[0]["world"] != "real":
        return f"the {rows[0]['world']} world never happened"
    failed = [row["failure"] for row in rows if row["failure"] is not None]
    if failed:
        return f"{len(failed)} of {len(rows)} episodes failed ({failed[0]})"
    if leaky := [row for row in rows if row.get("leaks")]:
        return f"{len(leaky)} of {len(rows)} episodes tell who or when ({leaky[0]['first_leak']})"
    if len(views := sorted({str(row["identity"]) for row in rows})) > 1:
        return f"is several players under one name, shown identity={' and '.join(views)}"
    for row in rows:
        for fact, what in SEEN.items():
            if (day := row.get(fact)) is None:
                continue
            if iso_date(day) is None:
                return f"says {fact}={day!r}, which is no day YYYY-MM-DD"
            if row["first_day"] <= day:
                return f"{what} on days up to {day}, and {row['cell']} begins on {row['first_day']}"
    if rows and means["coverage"] < MIN_COVERAGE:
        return f"decided only {means['coverage']:.0%} of its days, and {MIN_COVERAGE:.0%} are needed"
    return ""


def _what_is_missing(played: Set[BoardTask], tasks: set[BoardTask]) -> str:
    if not tasks:
        return "no task was played by more than half of the agents"
    missing = tasks - played
    if not missing:
        return ""
    return f"has not played {len(missing)} of the board's {len(tasks)} tasks ({_told(min(missing, key=repr))})"


def _told(task: BoardTask) -> str:
    where, persona = task
    return str(where[0]) if persona is None else f"{where[0]}/{persona}"


def _tasks(rows: Iterable[Row]) -> set[BoardTask]:
    return {(place(row), row["persona"]) for row in rows}


def _covers(played: set[BoardTask], task: BoardTask) -> bool:
    return task in played or (task[0], None) in played
