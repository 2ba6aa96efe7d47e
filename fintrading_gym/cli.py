"""The command line: `fintrading --help`."""

import csv
import json
import os
import sys
from dataclasses import asdict
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from typer.core import TyperGroup

from fintrading_gym import __version__, windows
from fintrading_gym import leaderboard as board
from fintrading_gym.env import FILLS, HOLD_RULES
from fintrading_gym.errors import DataError, MissingExtra, lookup
from fintrading_gym.ledger import evaluate
from fintrading_gym.observations import PERSONAS, POSITIONS
from fintrading_gym.replies import ACTIONS
from fintrading_gym.rollout import Player, Task, find_player, registered

COMMANDS = "fintrading_gym.commands"  # the entry-point group by which other packages' commands are found


class Commands(TyperGroup):
    """The game's commands, and those that installed packages bring: a function each, or a `typer.Typer` of several.

    They are loaded when they are asked for, so that no player is imported to list the cells.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """All names, for the help."""
        return [*super().list_commands(ctx), *sorted(_brought())]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name; None if there is none."""
        point = _brought().get(cmd_name)
        if point is None:
            return super().get_command(ctx, cmd_name)
        loaded = point.load()
        if isinstance(loaded, typer.Typer):
            return typer.main.get_group(loaded)
        alone = typer.Typer(add_completion=False)
        alone.command(cmd_name)(loaded)
        return typer.main.get_command(alone)


def _brought() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=COMMANDS)}


# A failed call's local variables may hold a key, and are not shown.
app = typer.Typer(cls=Commands, add_completion=False, pretty_exceptions_show_locals=False, rich_markup_mode="rich")
data_app = typer.Typer(no_args_is_help=True, help="Check and fetch price tables.")
app.add_typer(data_app, name="data")

Timesteps = Annotated[str, typer.Option(help="Decisions in an episode, or 'all' for the whole window.")]
Hold = Annotated[str, typer.Option(help=f"What hold does: {', '.join(HOLD_RULES)}.")]
Fill = Annotated[str, typer.Option(help=f"When a decision fills: {', '.join(FILLS)}.")]
CostBps = Annotated[float, typer.Option(help="Cost of changing the position by one, in basis points.")]

# Who plays on a board when nobody says: the learners too, where they can be trained.
LEARNERS = "ppo,a2c,dqn," if find_spec("stable_baselines3") else ""
ON_BOARD = f"buy_and_hold,short_and_hold,flat,random,momentum,mean_reversion,sma_cross,linear,{LEARNERS}oracle"


def main() -> None:
    """Run the command line: exit 2 on bad usage, 1 on a failed run, 130 on an interrupt."""
    sys.path.insert(0, os.getcwd())  # so that `module:callable` finds an agent in the folder one stands in
    try:
        app()
    except (ValueError, MissingExtra, OSError) as fault:
        Console(stderr=True).print(f"fintrading: {fault}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)


@app.callback(invoke_without_command=True, no_args_is_help=True)
def version(show: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Can this model trade, or does it only remember? One decision a day on one stock."""
    if show:
        print(__version__)
        raise typer.Exit


@app.command()
def cells() -> None:
    """The named windows, and what buying and holding earned in them."""
    title = "Cells, and what buying and holding earned (log return): in all, and in an episode of 50 decisions"
    table = Table(
        "cell", "ticker", "first", "last", "days", "window", "first 50", title=title, box=SIMPLE_HEAD, pad_edge=False
    )
    for name, window in windows.CELLS.items():
        first, days = window.span()
        close = window.load().close[first : first + days]
        whole, first_50 = (f"{np.log(close[end] / close[0]):+.4f}" for end in (-1, 50))
        table.add_row(name, window.ticker, window.first, window.last, str(days), whole, first_50)
    Console().print(table)


@app.command()
def tasks() -> None:
    """The evaluation's tasks: each of the four cells with each persona."""
    table = Table("task", "cell", "persona", title="Tasks = cells x personas")
    for cell in windows.EVALUATION:
        for persona in PERSONAS:
            table.add_row(f"{cell}/{persona}", cell, persona)
    Console().print(table)


@app.command()
def agents() -> None:
    """The players that installed packages bring."""
    table = Table("agent", "what it does", "from", title="Agents (any module:callable plays too)")
    for name, point in registered().items():
        try:
            told = (point.load().__doc__ or "").strip().split("\n")[0]
        except MissingExtra as fault:
            told = str(fault)
        table.add_row(name, told, point.value)
    Console().print(table)


@app.command()
def play(
    agent: Annotated[str, typer.Argument(help="A registered agent, or module:callable.")],
    cell: Annotated[str, typer.Option(help="A cell, TICKER:FIRST:LAST or FILE.csv:FIRST:LAST.")] = "tsla_main",
    persona: Annotated[str, typer.Option(help=f"One of {', '.join(PERSONAS)}.")] = "adaptive",
    timesteps: Timesteps = "50",
    seed: Annotated[int, typer.Option(min=0, help="Seeds the environment and the agent.")] = 0,
    hold: Hold = "keep",
    fill: Fill = "close",
    cost_bps: CostBps = 0.0,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print every day.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print summary and ledger as JSON.")] = False,
) -> None:
    """One episode of one agent.

    Examples: [dim]fintrading play momentum --cell nvda_bull_2023 --verbose[/],
    [dim]fintrading play my_agents:contrarian --timesteps all[/]
    """
    player = find_player(agent)
    task = Task(cell, _persona(persona), seed, _timesteps(timesteps), hold, cost_bps, fill)
    episode = player.play(task)
    numbers = evaluate(episode.ledger, hold, cost_bps) if episode.score is not None else {}
    if as_json:
        head = {"agent": agent, "failure": episode.failure, "data_sha256": task.window.load().sha256}
        print(json.dumps({**head, **asdict(task), "summary": numbers, "ledger": episode.ledger.rows()}, indent=1))
    else:
        if verbose:
            _print_days(episode.ledger.rows())
        if numbers:
            _print_summary(f"{agent} on {task.window}", numbers)
    if episode.failure is not None:
        _fail(f"{agent} broke off: {episode.failure}")


@app.command()
def leaderboard(
    agents: Annotated[str, typer.Option(help="Agents, by commas; ppo, a2c, dqn need the extra rl.")] = ON_BOARD,
    cells: Annotated[str, typer.Option(help="Cells, by commas.")] = ",".join(windows.EVALUATION),
    personas: Annotated[str, typer.Option(help="Personas, by commas, or 'all'.")] = "adaptive",
    timesteps: Timesteps = "50",
    seeds: Annotated[int, typer.Option(min=1, help="Episodes of each task: seeds 0, 1, ...")] = 5,
    hold: Hold = "keep",
    fill: Fill = "close",
    cost_bps: CostBps = 0.0,
    csv_file: Annotated[str | None, typer.Option("--csv", help="Write a row an episode to this file.")] = None,
    json_file: Annotated[str | None, typer.Option("--json", help="The same as JSON.")] = None,
) -> None:
    """Play agents x tasks x seeds and rank them.

    Examples: [dim]fintrading leaderboard[/],
    [dim]fintrading leaderboard --agents buy_and_hold,my_agents:contrarian --cells tsla_main --csv rows.csv[/]
    """
    for path in filter(None, (csv_file, json_file)):
        Path(path).open("a").close()  # a file that cannot be written is told before the first episode
    players = [find_player(name) for name in _names(agents)]
    played = [
        Task(windows.find_window(cell) and cell, _persona(persona), seed, _timesteps(timesteps), hold, cost_bps, fill)
        for cell in _names(cells)
        for persona in (PERSONAS if personas == "all" else _names(personas))
        for seed in range(seeds)
    ]
    played[0].make(observation="vector").close()  # a wrong setting fails before the first episode
    rows, interrupted = _run(board.plan(players, played))
    if csv_file:
        _write_csv(Path(csv_file), rows)
    if json_file:
        _write_json(Path(json_file), rows)
    _print_board(rows, players)
    if interrupted:
        raise typer.Exit(130)
    if any(row["failure"] for row in rows):
        _fail("some episodes failed; the table says which")


@data_app.command("check")
def data_check(
    files: Annotated[list[Path] | None, typer.Argument(help="CSV tables; none: the bundled ones.")] = None,
) -> None:
    """Validate price tables: the given files, or the bundled ones against their manifest."""
    manifest = json.loads((windows.DATA / "manifest.json").read_text()) if not files else {}
    bad = 0
    for path in files or [windows.DATA / name for name in manifest]:
        try:
            prices = windows.read_prices(path)
            expected = manifest.get(path.name, {}).get("sha256", prices.sha256)
            if prices.sha256 != expected:
                raise DataError(f"{path.name}: sha256 {prices.sha256} is not the manifest's {expected}")
            print(f"ok   {path.name}: {len(prices.date)} days, {prices.date[0]}..{prices.date[-1]}")
            for oddity in windows.oddities(prices):
                print(f"     {path.name}: {oddity}")
        except DataError as fault:
            bad += 1
            print(f"BAD  {fault}")
    if bad:
        _fail(f"{bad} table(s) cannot be played")


@data_app.command("fetch")
def data_fetch(
    ticker: str,
    first: Annotated[str, typer.Argument(help="First day, YYYY-MM-DD.")],
    last: Annotated[str, typer.Argument(help="Last day, YYYY-MM-DD, included.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write; default TICKER.csv.")] = None,
) -> None:
    """Write a price table from Yahoo Finance, for `--cell FILE.csv:FIRST:LAST`."""
    from fintrading_gym.fetch import fetch

    path = out or Path(f"{ticker}.csv")
    prices = fetch(ticker, first, last, path)
    print(f"{path}: {len(prices.date)} days, {prices.date[0]}..{prices.date[-1]}")


# ---------------------------------------------------------------------------------- reading the flags


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ValueError(f"{text!r} names nothing; give names by commas")
    return names


def _persona(name: str) -> str:
    lookup("persona", name, PERSONAS)
    return name


def _timesteps(text: str) -> int | None:
    if text == "all":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"--timesteps {text!r} is neither a whole number >= 1 nor 'all'")
    return int(text)


# ------------------------------------------------------------------------------ running and printing


def _run(episodes: list[tuple[Player, Task]]) -> tuple[list[board.Row], bool]:
    """All rows, or those that were finished when the user interrupted."""
    rows: list[board.Row] = []
    bar = (TextColumn("{task.description:24}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*bar, console=Console(stderr=True), transient=True) as progress:
        shown = progress.add_task("", total=len(episodes))
        try:
            for player, task in episodes:
                progress.update(shown, description=f"{player.name} {task.cell}")
                rows.append(board.row_of(player, task))
                progress.advance(shown)
        except KeyboardInterrupt:
            return rows, True
    return rows, False


BOARD = {  # column of the table: what it shows, and how it is printed
    "score": ("score", ".3f"),
    "CR": ("cumulative_return", "+.2f"),
    "excess": ("excess", "+.2f"),
    "regret": ("regret", ".2f"),
    "luck": ("luck", ".3f"),
    "Sharpe": ("sharpe_ratio", "+.1f"),
    "MDD": ("max_drawdown", ".2f"),
}


def _print_board(rows: list[board.Row], players: list[Player]) -> None:
    standings = board.rank(rows, [p.name for p in players if not p.traits.ranked])
    cells = list(dict.fromkeys(row["cell"] for row in rows))
    title = "Leaderboard: means over n episodes, best first; sd: of the score over them"
    whole = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    parts = Table(title="Score by cell", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for table, names in ((whole, ("#", "agent", *BOARD, "sd", "n")), (parts, ("#", "agent", *cells))):
        for name in names:
            table.add_column(name, justify="left" if name == "agent" else "right", no_wrap=name == "agent")
    for s in standings:
        place = "-" if s.rank is None else str(s.rank)
        numbers = [f"{s.means[what]:{form}}" if s.means else "-" for what, form in BOARD.values()]
        spread = "-" if s.spread is None else f"{s.spread:.2f}"
        whole.add_row(place, escape(s.agent), *numbers, spread, str(s.episodes))
        parts.add_row(place, escape(s.agent), *(f"{s.cells[cell]:.3f}" if cell in s.cells else "-" for cell in cells))
    console = Console()
    console.print(whole, parts)
    for note in _board_notes(players) + [f"{s.agent} is not ranked: {s.why}" for s in standings if s.why]:
        console.print(note, markup=False, highlight=False)


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


def _print_days(rows: list[dict[str, Any]]) -> None:
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


def _print_summary(title: str, numbers: dict[str, float]) -> None:
    table = Table("number", "value", title=escape(title))
    for name, value in numbers.items():
        table.add_row(name, f"{value:.4f}")
    Console().print(table)


def _write_csv(path: Path, rows: list[board.Row]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


def _write_json(path: Path, rows: list[board.Row]) -> None:
    path.write_text(json.dumps(rows, indent=1) + "\n")


def _fail(message: str) -> None:
    Console(stderr=True).print(f"fintrading: {message}", style="red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(1)
