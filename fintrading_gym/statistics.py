"""What the rows of a board allow to conclude: intervals, comparisons of two agents, ranks. Needs the extra `stats`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fintrading_gym import inference
from fintrading_gym.comparisons import Comparison, Played, compare_all, independent_windows, open_ranks
from fintrading_gym.inference import FEWEST_DAYS, FEWEST_PAIRS
from fintrading_gym.metrics import NOISE, SQRT_YEAR
from fintrading_gym.ranking import MEASURES, Interval, Standing, board_tasks, by_agent, place, rank, task_mean
from fintrading_gym.store import Row

Floats = NDArray[np.float64]

RESAMPLES = 1000
# Columns in which two tries of one name can differ: what it was shown, and how it was asked.
SETTINGS = ("identity", "detail", "context", "structured", "prompt_sha256")


@dataclass(frozen=True)
class Statistics:
    """A board in numbers, ready for JSON by `dataclasses.asdict`."""

    standings: tuple[Standing, ...]  # of `ranking.rank`, every field filled that can be
    comparisons: tuple[Comparison, ...]  # of every two ranked agents
    trials: int  # agents and settings that were tried, for the deflated Sharpe ratio
    windows: int  # independent windows


def analyse(rows: Iterable[Row], trials: int | None = None, resamples: int = RESAMPLES) -> Statistics:
    """Everything that a board's rows allow to conclude.

    Args:
        rows: of `leaderboard.run`, all in one world. Their `log_returns` may be missing: then an agent with one seed
            has no interval, and nobody a deflated Sharpe ratio.
        trials: how many agents and settings were tried, if more than the rows show.
        resamples: of each bootstrap; 0: no intervals that need one.

    Raises:
        MissingExtra: scipy is not installed.
        ValueError: the rows are of several worlds.
    """
    inference.extra("scipy.special")  # said at once, not after the half
    # In one order whatever the caller's: sums and draws are then the same to the last bit.
    rows = sorted(rows, key=lambda row: (row["agent"], repr(place(row)), row["persona"] or "", row["seed"] or 0))
    standings, tasks = rank(rows), board_tasks(rows)
    windows = independent_windows(row for row in rows if any(place(row) == where for where, _ in tasks))
    played = {agent: Played(agent, its, tasks, windows) for agent, its in by_agent(rows).items()}
    ranked = [played[s.agent] for s in standings if s.rank is not None]
    comparisons = compare_all(ranked, resamples)
    tried = max(trials or 0, count_trials(rows))
    deflated = _deflated(list(played.values()), tried)

    def filled(standing: Standing) -> Standing:
        intervals, over = _intervals(played[standing.agent], resamples)
        low, high = open_ranks(standing, comparisons, len(ranked))
        standing = replace(standing, intervals=intervals, over=over, rank_low=low, rank_high=high)
        return replace(standing, deflated_sharpe=deflated[standing.agent])

    return Statistics(tuple(map(filled, standings)), tuple(comparisons), tried, len(set(windows.values())))


def count_trials(rows: Iterable[Row]) -> int:
    """How many tries a board shows: agents and what they were set to, ranked or not.

    The luckiest of many tries looks skilled, and those that failed or were sorted out were tried too. Only who knows
    the future was no try. What was tried and is not on the board has to be told to `analyse`.
    """
    tries: dict[str, set[str]] = {}
    for row in rows:
        if row["ranked"]:
            told = repr([row.get(name) for name in SETTINGS])
            tries.setdefault(row["agent"], set()).update([told] if row["failure"] is None else [])
    return sum(max(len(its), 1) for its in tries.values())


def in_words(found: Statistics) -> list[str]:
    """What is significant and what is not, in sentences: short, so that each fits on a line or two."""
    tested = [c for c in found.comparisons if c.p is not None]
    untested, differ = len(found.comparisons) - len(tested), [c for c in tested if c.significant]
    said = []
    if tested:
        several = f"{len(differ) or 'None'} of the tested pairs of agents, {len(tested)}, differ"
        said.append(f"{several} by more than chance (Wilcoxon's signed rank, corrected for their number by Holm)")
    elif untested:
        said.append("No agent is shown to be better than another")
    if untested:
        left = f"{untested} pairs of agents are" if untested > 1 else "One pair of agents is"
        said.append(
            f"{left} not tested: it takes {FEWEST_PAIRS} windows, or as many seeds where both play anew at each seed"
        )
    first = [s.agent for s in found.standings if s.rank == 1]
    behind = {c.worse for c in differ if c.better in first}
    level = [s.agent for s in found.standings if s.rank is not None and s.rank > 1 and s.agent not in behind]
    if level:
        said.append(f"Not shown to be worse than the first ({', '.join(first)}): {', '.join(level)}")
    if any(c.pair == "episodes" for c in differ):
        said.append(
            "A difference between episodes is one on these windows; to see whether it shows on others takes many,"
            f" and here there are {found.windows}"
        )
    return said


# ------------------------------------------------------------------------------ intervals of one agent


def _intervals(played: Played, resamples: int) -> tuple[dict[str, Interval], str]:
    """The intervals of the means, and what they are over, or why there are none."""
    if not played.rows:
        return {}, "no episode"
    seeds = set.intersection(*[{row["seed"] for row in its} for its in played.tasks.values()])
    if played.varies and len(seeds) > 1:
        by_seed = [
            {task: [row for row in its if row["seed"] == seed] for task, its in played.tasks.items()}
            for seed in sorted(seeds)
        ]
        ends = {name: inference.t_interval([task_mean(each, name) for each in by_seed]) for name in MEASURES}
        return {name: Interval(*pair) for name, pair in ends.items() if pair}, f"{len(seeds)} seeds"
    if not resamples or not all(row.get("log_returns") for row in played.rows):
        return {}, "one seed, and no daily returns"
    if min(len(row["log_returns"]) for row in played.rows) < FEWEST_DAYS:
        return {}, f"one seed, and fewer than {FEWEST_DAYS} days"
    middle = {name: inference.percentiles(each) for name, each in _resampled(played, resamples).items()}
    over = "the days of one episode" if len(played.rows) == 1 else "days"
    return {name: Interval(*pair) for name, pair in middle.items()}, over


def _resampled(played: Played, count: int) -> dict[str, Floats]:
    """The measures that an agent's days give when they are drawn anew, (count,) of each.

    Days are drawn together for all personas, who lived through the same ones, and for windows of one ticker that
    share days; other windows each for itself.
    """
    together: dict[tuple[int, int], list[Row]] = {}  # by window and length: one seed of each task
    for (where, _), its in played.tasks.items():
        together.setdefault((played.windows[where], len(its[0]["log_returns"])), []).append(its[0])
    sums: dict[str, Floats] = {}
    for (window, _), rows in sorted(together.items()):
        series = np.array([row["log_returns"] for row in rows])
        days = inference.resampled_days(series, count, stream=window)
        for row, returns in zip(rows, series, strict=True):
            for name, values in measured(returns[days], row["score_discipline"]).items():
                sums[name] = sums.get(name, np.zeros(count)) + values
    return {name: total / len(played.tasks) for name, total in sums.items()}


def measured(log_returns: Floats, discipline: float) -> dict[str, Floats]:
    """The measures of `metrics.summary` that days alone give, of many series at once: (n, T) to (n,) of each."""
    total, days = log_returns.sum(axis=1), log_returns.shape[1]
    deviation = log_returns.std(axis=1, ddof=1)
    constant = deviation <= NOISE * np.maximum(1.0, np.abs(log_returns).max(axis=1))
    sharpe = np.where(constant, 0.0, SQRT_YEAR * total / days / np.where(constant, 1.0, deviation))
    level = np.cumsum(log_returns, axis=1)
    peak = np.maximum.accumulate(np.maximum(level, 0.0), axis=1)
    fall = -np.expm1((level - peak).min(axis=1))
    parts = {
        "score_cum_return": np.clip(0.5 + total / 2, 0, 1),
        "score_sharpe": np.clip((sharpe + 1) / 3, 0, 1),
        "score_stability": 1 - np.clip(fall, 0, 1),
    }
    score = (sum(parts.values()) + discipline) / 4
    return {"score": score, **parts, "cumulative_return": total, "sharpe_ratio": sharpe, "max_drawdown": fall}


def _deflated(agents: Sequence[Played], trials: int) -> dict[str, float | None]:
    """The deflated Sharpe ratio of each agent.

    Its days are those of all of its episodes, so that the ratio is that of one of them, taken at random; but seeds and
    personas add no days to the count: they live through the same ones.
    """
    moments, days = {}, {}
    for played in agents:
        lengths: dict[int, int] = {}
        for row in played.rows:
            window = played.windows[place(row)]
            lengths[window] = max(lengths.get(window, 0), len(row.get("log_returns") or ()))
        days[played.agent] = sum(lengths.values())
        told = bool(lengths) and min(lengths.values()) > 0
        returns = np.concatenate([row["log_returns"] for row in played.rows]) if told else np.zeros(0)
        moments[played.agent] = inference.moments(returns)
    tried = [played.agent for played in agents if all(row["ranked"] for row in played.rows)]
    ratios = sorted(known[0] for agent in tried if (known := moments[agent]))
    to_beat = inference.best_of_luck(float(np.var(ratios, ddof=1)), trials) if len(ratios) > 1 else 0.0
    deflated: dict[str, float | None] = dict.fromkeys(moments)
    for agent, known in moments.items():
        if known:
            sharpe, skew, kurtosis = known
            deflated[agent] = inference.deflated_sharpe(sharpe, days[agent], skew, kurtosis, to_beat)
    return deflated
