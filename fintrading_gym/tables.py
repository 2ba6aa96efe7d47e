"""What the command line prints: the board, an episode day by day, its numbers."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fintrading_gym.costs import Expected
from fintrading_gym.leaderboard import MIN_COVERAGE, by_world, rank
from fintrading_gym.observations import POSITIONS
from fintrading_gym.progress import FEW, known_sum, one_sided
from fintrading_gym.replies import ACTIONS
from fintrading_gym.rollout import Player
from fintrading_gym.store import Row
from fintrading_gym.worlds import WORLDS

NAME_WIDTH = 21  # characters of an agent's name on a line: as many as 80 columns leave
BOARD = {  # column of the table: what it shows, and how it is printed
    "score": ("score", ".3f"),
    "CR": ("cumulative_return", "+.2f"),
    "excess": ("excess", "+.2f"),
    "regret": ("regret", ".2f"),
    "luck": ("luck", ".3f"),
    "Sharpe": ("sharpe_ratio", "+.1f"),
    "MDD": ("max_drawdown", ".2f"),
}


COSTS_NOTES = (
    "min: every reply is a decision at once, in the fewest words; 5 characters of what is sent make a token",
    "max: no reply is a decision, each is as long as it may be (--max-tokens); 1.7 characters make a token",
    "seconds: by the agent's calls on this board; what the cache of replies holds costs nothing, and is counted here",
)


def print_boards(rows: list[Row], players: list[Player]) -> None:
    """A board for each world that the rows were played in."""
    for world, its in by_world(rows).items():
        _print_board(its, players, world)


def _print_board(rows: list[Row], players: list[Player], world: str) -> None:
    """The ranking, the scores by cell, what the models did, and what all that means."""
    standings = rank(rows, {row["agent"] for row in rows if not row["ranked"]})  # players of earlier runs, too
    cells = list(dict.fromkeys(row["cell"] for row in rows))
    where = "" if world == "real" else f" ({world} world)"
    title = f"Leaderboard{where}: means over n episodes, best first; sd: of the score over them"
    whole = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    parts = Table(title="Score by cell", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for table, names in ((whole, ("#", "agent", *BOARD, "sd", "n")), (parts, ("#", "agent", *cells))):
        _add_columns(table, names, [s.agent for s in standings])
    for s in standings:
        place = "-" if s.rank is None else str(s.rank)
        numbers = [f"{s.means[what]:{form}}" if s.means else "-" for what, form in BOARD.values()]
        spread = "-" if s.spread is None else f"{s.spread:.2f}"
        whole.add_row(place, escape(s.agent), *numbers, spread, str(s.episodes))
        parts.add_row(place, escape(s.agent), *(f"{s.cells[cell]:.3f}" if cell in s.cells else "-" for cell in cells))
    console = Console()
    console.print(whole, parts)
    if asking := [row for row in rows if "model" in row]:
        console.print(_models_table(asking))
    why = [f"{s.agent} is not ranked: {s.why}" for s in standings if s.why]
    said = [f"{agent}: {its[0]['note']}" for agent, its in _by_agent(asking).items() if its[0]["note"]]
    for note in [*_board_notes(players), *_told(asking, world), *said, *alerts(asking), *why]:
        console.print(note, markup=False, highlight=False)


def _add_columns(table: Table, names: Iterable[str], agents: Iterable[str]) -> None:
    """Columns of numbers as wide as they need be, and one of agents in which only long names take several lines."""
    width = min(NAME_WIDTH, max(map(len, agents), default=0))
    for name in names:
        if name == "agent":
            table.add_column(name, width=width, overflow="fold")
        else:
            table.add_column(name, justify="right" if name else "left", no_wrap=not name)


def _models_table(rows: list[Row]) -> Table:
    counted = {"tokens": ("tokens_in", "tokens_out"), "USD": ("cost_usd",), "cached": ("cache_hits",)}
    counted |= {"empty": ("empty_replies",), "nudges": ("format_nudges",)}  # narrow: the rest is in --json
    table = Table(title="What the models did", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    by_agent = _by_agent(rows)
    _add_columns(table, ("agent", *reversed(ACTIONS), *counted), by_agent)
    for agent, its in by_agent.items():
        shares = [f"{share:.0%}" for share in _shares(its).values()] or ["-"] * len(ACTIONS)
        sums = [known_sum(its, *names) for names in counted.values()]
        numbers = ["-" if n is None else f"{n:.4f}" if isinstance(n, float) else f"{n:,}" for n in sums]
        table.add_row(escape(agent), *shares, *numbers)
    return table


def _by_agent(rows: list[Row]) -> dict[str, list[Row]]:
    return {agent: [row for row in rows if row["agent"] == agent] for agent in dict.fromkeys(r["agent"] for r in rows)}


def _shares(rows: list[Row]) -> dict[str, float]:
    """Mean share of each decision over the episodes that were played to the end."""
    whole = [row for row in rows if row["failure"] is None]
    return {name: float(np.mean([row[f"{name}_share"] for row in whole])) for name in reversed(ACTIONS) if whole}


def _told(rows: list[Row], world: str) -> list[str]:
    """What the world is, and how much of it the models were told."""
    notes = [] if world == "real" else [f"{world} world: {WORLDS[world.partition(':')[0]]}"]
    for agent, its in _by_agent(rows).items():
        levels = sorted({row["identity"] or "nothing" for row in its})
        notes.append(f"{agent} was shown identity={', '.join(levels)}")
    return notes


def alerts(rows: list[Row]) -> list[str]:
    """Of the models that decide: which of them decides only one thing."""
    deciding = [row for row in rows if row["coverage"] >= MIN_COVERAGE]
    told = {agent: one_sided(_shares(its), FEW) for agent, its in _by_agent(deciding).items()}
    return [f"{agent} decided {told[agent]}: a position, hardly a choice" for agent in told if told[agent]]


def _board_notes(players: list[Player]) -> list[str]:
    notes = [
        "score: mean of cum_return, sharpe, stability, discipline; doing nothing scores 0.708",
        "CR: log return; excess: over buy and hold; regret: to the best sequence in hindsight",
        "Sharpe: annualised; MDD: deepest fall, as a fraction; a gap within the sd is no difference in skill",
        "luck: share of random policies of the same activity that did at least as well",
    ]
    ignoring = [p.name for p in players if not p.traits.uses_persona]
    if ignoring:
        notes.append(f"these ignore the persona and play once for all personas: {', '.join(ignoring)}")
    return notes


def print_costs(expected: list[Expected]) -> None:
    """What is to be played, agent by agent, and what it will cost."""
    console = Console()
    if not expected:
        console.print("There is nothing to be played: the board holds it all.")
        return
    title = "To be played, and what it will take: n episodes, tokens in and out"
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    _add_columns(table, ("agent", "n", "", "calls", "in", "out", "USD", "seconds"), [of.agent for of in expected])
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
        table.add_row(name, f"{value:.4f}" if isinstance(value, float) else "unknown" if value is None else str(value))
    Console().print(table)
