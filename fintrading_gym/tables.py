"""What the command line prints: the board, an episode day by day, its numbers."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fintrading_gym.comparisons import Comparison
from fintrading_gym.costs import Expected
from fintrading_gym.errors import MissingExtra
from fintrading_gym.observations import POSITIONS
from fintrading_gym.progress import FEW, known_sum, one_sided
from fintrading_gym.ranking import MIN_COVERAGE, Interval, Standing, by_agent, by_world, left_out, rank
from fintrading_gym.replies import ACTIONS
from fintrading_gym.statistics import Statistics, analyse, in_words
from fintrading_gym.store import Row
from fintrading_gym.worlds import WORLDS

BOARD = {  # column of the table: what it shows, and how it is printed
    "score": ("score", ".3f"),
    "CR": ("cumulative_return", "+.2f"),
    "excess": ("excess", "+.2f"),
    "regret": ("regret", ".2f"),
    "luck": ("luck", ".3f"),
    "Sharpe": ("sharpe_ratio", "+.1f"),
    "MDD": ("max_drawdown", ".2f"),
}
SURE = {"score": ("score", ".2f"), "CR": ("cumulative_return", "+.2f")}  # what an interval is printed of
UNDECIDED = "none"
NO_INTERVALS = "a gap within the sd is no difference in skill"


COSTS_NOTES = (
    "min: every reply is a decision at once, in the fewest words; 5 characters of what is sent make a token",
    "max: no reply is a decision, each is as long as it may be (--max-tokens); 1.7 characters make a token",
    "seconds: by the agent's calls on this board; what the cache of replies holds costs nothing, and is counted here",
)


def print_boards(rows: list[Row]) -> None:
    """A board for each world that the rows were played in."""
    for world, its in by_world(rows).items():
        _print_board(its, world)


def _print_board(rows: list[Row], world: str) -> None:
    """The ranking, the scores by cell, what the models did, and what all that allows to conclude."""
    found, missing = _analysed(rows)
    standings = list(found.standings) if found else rank(rows)
    console = Console()
    console.print(_ranking_table(standings, world, spread=found is None))
    if found:
        console.print(_sure_table(standings))
    console.print(_cells_table(standings, rows))
    if asking := [row for row in rows if "model" in row]:
        console.print(_models_table(asking))
    if found and (differ := [c for c in found.comparisons if c.significant]):
        console.print(_differences_table(differ))
    said = [f"{agent}: {its[0]['note']}" for agent, its in by_agent(asking).items() if its[0]["note"]]
    concluded = [*_about_intervals(found), *in_words(found)] if found else [NO_INTERVALS, missing]
    notes = [*_board_notes(rows), *_told(asking, world), *said, *alerts(asking), *concluded, *_unranked(rows, world)]
    for note in notes:
        console.print(note, markup=False, highlight=False)


def _analysed(rows: list[Row]) -> tuple[Statistics | None, str]:
    """The statistics, or the line that says what installs them."""
    try:
        return analyse(rows), ""
    except MissingExtra as missing:
        return None, str(missing)


def _ranking_table(standings: list[Standing], world: str, spread: bool) -> Table:
    where = "" if world == "real" else f" ({world} world)"
    told = "; sd: of the score over them" if spread else ""
    table = _table(f"Leaderboard{where}: means over n episodes, best first{told}")
    _columns(table, ["#", "agent", *BOARD, *(["sd"] if spread else []), "n"])
    for s in standings:
        numbers = [f"{s.means[what]:{form}}" if s.means else "-" for what, form in BOARD.values()]
        numbers += [_or_dash(s.spread, ".2f")] if spread else []
        table.add_row(_or_dash(s.rank, "d"), escape(s.agent), *numbers, str(s.episodes))
    return table


def _sure_table(standings: Iterable[Standing]) -> Table:
    table = _table("How sure that is: ranks that are left open, and 95 % intervals of means")
    _columns(table, ["#", "ranks", "agent", *SURE, "over", "DSR"])
    for s in standings:
        ranks = "-" if s.rank_low is None else f"{s.rank_low}-{s.rank_high}"
        ends = [_ends(s.intervals.get(what), form) for what, form in SURE.values()]
        over = s.over if s.intervals else f"- ({s.over})"
        table.add_row(_or_dash(s.rank, "d"), ranks, escape(s.agent), *ends, over, _or_dash(s.deflated_sharpe, ".2f"))
    return table


def _cells_table(standings: list[Standing], rows: list[Row]) -> Table:
    cells = [cell for cell in dict.fromkeys(row["cell"] for row in rows) if any(cell in s.cells for s in standings)]
    table = _table("Score by cell")
    _columns(table, ["#", "agent", *cells])
    for s in standings:
        scores = (f"{s.cells[cell]:.3f}" if cell in s.cells else "-" for cell in cells)
        table.add_row(_or_dash(s.rank, "d"), escape(s.agent), *scores)
    return table


def _differences_table(comparisons: list[Comparison]) -> Table:
    table = _table("What differs by more than chance")
    _columns(table, ["agent", "better than", "by", "wins", "95 %", "pairs of", "ahead in", "p"])
    for c in comparisons:
        table.add_row(
            escape(c.better), escape(c.worse), f"{c.difference:.3f}", f"{c.improvement:.2f}",
            _ends(c.improvement_interval, ".2f"), f"{c.pairs} {c.pair}", f"{c.windows_ahead} of {c.windows}",
            f"{c.p_holm:.1g}",
        )  # fmt: skip
    return table


def _table(title: str) -> Table:
    return Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)


def _columns(table: Table, names: Iterable[str]) -> None:
    for name in names:
        is_agent = name in ("agent", "better than")
        table.add_column(escape(name), justify="left" if is_agent else "right", no_wrap=not is_agent, overflow="fold")


def _or_dash(number: float | None, form: str) -> str:
    return "-" if number is None else f"{number:{form}}"


def _ends(interval: Interval | None, form: str) -> str:
    return "-" if interval is None else f"{interval.low:{form}}..{interval.high:{form}}"


def _unranked(rows: list[Row], world: str) -> list[str]:
    """Who has no rank, and why; and what no agent was ranked by."""
    notes = [f"{s.agent} is not ranked: {s.why}" for s in rank(rows) if s.why]
    if world != "real":
        notes = [f"nobody is ranked here: the {world} world never happened"]
    if others := left_out(rows):
        notes.append(f"left out, since most of the agents have not played it: {', '.join(others)}")
    return notes


def _about_intervals(found: Statistics) -> list[str]:
    """What the board's columns mean that come from the statistics."""
    notes = [
        "an interval over seeds tells the agent's own chance, one over days, drawn anew in blocks, the market's",
        f"DSR: deflated Sharpe, how probably its ratio is above that of the luckiest of {found.trials} without skill",
    ]
    if any(c.significant for c in found.comparisons):
        notes.append("by: in mean score; wins: probability that an episode of it is the better one; p: Holm's")
    return notes


def _models_table(rows: list[Row]) -> Table:
    counted = {"tokens": ("tokens_in", "tokens_out"), "USD": ("cost_usd",), "cached": ("cache_hits",)}
    counted |= {"empty": ("empty_replies",), "nudges": ("format_nudges",)}  # narrow: the rest is in --json
    table = _table("What the models did")
    _columns(table, ["agent", *reversed(ACTIONS), UNDECIDED, *counted])
    for agent, its in by_agent(rows).items():
        shares = [f"{share:.0%}" for share in _shares(its).values()] or ["-"] * (len(ACTIONS) + 1)
        sums = [known_sum(its, *names) for names in counted.values()]
        numbers = ["-" if n is None else f"{n:.4f}" if isinstance(n, float) else f"{n:,}" for n in sums]
        table.add_row(escape(agent), *shares, *numbers)
    return table


def _shares(rows: list[Row]) -> dict[str, float]:
    """Mean share of each decision over the episodes that were played to the end, and of the days without one."""
    whole = [row for row in rows if row["failure"] is None]
    if not whole:
        return {}
    shares = {name: float(np.mean([row[f"{name}_share"] for row in whole])) for name in reversed(ACTIONS)}
    undecided = float(np.mean([1 - row["coverage"] for row in whole]))
    # Where there is no decision the environment holds; the agent did not say so.
    return shares | {"hold": max(shares["hold"] - undecided, 0.0), UNDECIDED: undecided}


def _told(rows: list[Row], world: str) -> list[str]:
    """What the world is, and how much of it the models were told."""
    notes = [] if world == "real" else [f"{world} world: {WORLDS[world.partition(':')[0]]}"]
    for agent, its in by_agent(rows).items():
        levels = sorted({row["identity"] or "nothing" for row in its})
        notes.append(f"{agent} was shown identity={', '.join(levels)}")
    return notes


def alerts(rows: list[Row]) -> list[str]:
    """Of the models that decide: which of them decides only one thing."""
    deciding = [row for row in rows if row["coverage"] >= MIN_COVERAGE]
    told = {agent: one_sided(_shares(its), FEW) for agent, its in by_agent(deciding).items()}
    return [f"{agent} decided {told[agent]}: a position, hardly a choice" for agent in told if told[agent]]


def _board_notes(rows: list[Row]) -> list[str]:
    notes = [
        "score: mean of cum_return, sharpe, stability, discipline; doing nothing scores 0.708",
        "CR: log return; excess: over buy and hold; regret: to the best sequence in hindsight",
        "Sharpe: annualised; MDD: deepest fall, as a fraction",
        "luck: share of random policies of the same activity that did at least as well",
    ]
    ignoring = [agent for agent, its in by_agent(rows).items() if its[0]["persona"] is None]
    if ignoring:
        notes.append(f"these ignore the persona and play once for all personas: {', '.join(ignoring)}")
    return notes


def print_costs(expected: list[Expected]) -> None:
    """What is to be played, agent by agent, and what it will cost."""
    console = Console()
    if not expected:
        console.print("There is nothing to be played: the board holds it all.")
        return
    table = _table("To be played, and what it will take: n episodes, tokens in and out")
    _columns(table, ["agent", "n", "", "calls", "in", "out", "USD", "seconds"])
    for of in expected:
        parts = (of.costs.calls, of.costs.tokens_in, of.costs.tokens_out)
        asks = of.costs.calls != (0, 0)
        for bound, word in enumerate(("min", "max") if asks else ("no model",)):
            numbers = [_count(part, bound) for part in parts]
            usd = "?" if of.costs.usd is None else f"{of.costs.usd[bound]:,.2f}"
            told = (*numbers, usd, _count(of.seconds, bound)) if asks else ()
            table.add_row(*(("", "") if bound else (escape(of.agent), str(of.episodes))), word, *told)
    console.print(table)
    for note in COSTS_NOTES if any(of.costs.calls != (0, 0) for of in expected) else ():
        console.print(note, markup=False, highlight=False)


def _count(bounds: tuple[float, float] | None, which: int) -> str:
    """A bound in few characters; `?` where there is none."""
    if bounds is None or bounds[which] == float("inf"):
        return "?"
    number = bounds[which]
    for unit in ("", "k"):
        if number < 9999.5:
            return f"{number:,.0f}{unit}"
        number /= 1e3
    return f"{number:,.0f}M"


def print_days(rows: list[dict[str, Any]]) -> None:
    """A ledger, a line a day."""
    table = Table("day", "date", "price", "decision", "position", "earned", "total")
    total = 0.0
    for day, row in enumerate(rows, 1):
        total += row["log_return"]
        decision = ACTIONS[row["action"]] + ("" if row["valid"] else " (none given)")
        table.add_row(
            str(day), row["date"], f"{row['price']:.2f}", decision, POSITIONS[row["position"]],
            f"{row['log_return']:+.4f}", f"{total:+.4f}",
        )  # fmt: skip
    Console().print(table)


def print_summary(title: str, numbers: dict[str, Any]) -> None:
    """An episode's numbers and facts."""
    table = Table("number", "value", title=escape(title))
    for name, value in numbers.items():
        told = f"{value:.4f}" if isinstance(value, float) else "unknown" if value is None else str(value)
        table.add_row(escape(name), escape(told))
    Console().print(table)
