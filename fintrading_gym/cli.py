"""The command line: `fintrading --help`."""

import errno
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from typer.core import TyperGroup

from fintrading_gym import __version__, store, tables, windows
from fintrading_gym import leaderboard as board
from fintrading_gym.env import FILLS, HOLD_RULES
from fintrading_gym.errors import DataError, MissingExtra, RunStopped, UnknownName, lookup, one_line
from fintrading_gym.executors import EXECUTORS, PROCESSES, find_executor
from fintrading_gym.export import keep_apart, write_csv, write_json
from fintrading_gym.flags import called, given, with_model_flags, with_options
from fintrading_gym.ledger import evaluate
from fintrading_gym.masking import IDENTITIES
from fintrading_gym.observations import DETAILS, PERSONAS
from fintrading_gym.progress import FEW, watched
from fintrading_gym.rollout import Player, Task, find_player, load, registered
from fintrading_gym.windows import files_of
from fintrading_gym.worlds import WORLDS

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
            command: Any = typer.main.get_group(loaded)
        else:
            alone = typer.Typer(add_completion=False)
            alone.command()(loaded)
            command = typer.main.get_command(alone)
        command.name = cmd_name
        return command


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
Detail = Annotated[str | None, typer.Option(help=f"Text view: {', '.join(DETAILS)}; else as the player wishes.")]
IdentityFlag = Annotated[
    str | None,
    typer.Option("--identity", help=f"What the text view tells: {', '.join(IDENTITIES)}; else as the player wishes."),
]

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # of the system's faults those that are no bad usage

# Who plays on a board when nobody says: the learners too, where they can be trained.
LEARNERS = "ppo,a2c,dqn," if find_spec("stable_baselines3") else ""
ON_BOARD = f"buy_and_hold,short_and_hold,flat,random,momentum,mean_reversion,sma_cross,linear,{LEARNERS}oracle"


def main() -> None:
    """Run the command line: exit 2 on bad usage, 1 on a failed run, 130 on an interrupt."""
    sys.path.append(os.getcwd())  # so that `module:callable` finds an agent in the folder one stands in
    try:
        app()
    except (ValueError, MissingExtra, OSError) as fault:
        _complain(fault)
        sys.exit(1 if getattr(fault, "errno", None) in NO_ROOM else 2)
    except RunStopped as stop:
        _complain(stop)
        sys.exit(1)


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
            told = (load(point).__doc__ or "").strip().split("\n")[0]
        except (MissingExtra, UnknownName) as fault:
            told = str(fault)
        table.add_row(name, told, point.value)
    Console().print(table)


@app.command()
@with_model_flags
def play(
    agent: Annotated[str, typer.Argument(help="A registered agent, or module:callable.")],
    model: Annotated[
        str | None, typer.Option(help="Of llm and the like: provider/NAME; llm:provider/NAME is the same.")
    ] = None,
    cell: Annotated[str, typer.Option(help="A cell, TICKER:FIRST:LAST or FILE.csv:FIRST:LAST.")] = "tsla_main",
    persona: Annotated[str, typer.Option(help=f"One of {', '.join(PERSONAS)}.")] = "adaptive",
    timesteps: Timesteps = "50",
    seed: Annotated[int, typer.Option(min=0, help="Seeds the environment and the agent.")] = 0,
    hold: Hold = "keep",
    fill: Fill = "close",
    cost_bps: CostBps = 0.0,
    detail: Detail = None,
    identity: IdentityFlag = None,
    world: Annotated[str, typer.Option(help=f"One of {', '.join(WORLDS)}; another draw: shuffled:1.")] = "real",
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print every day.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print summary, ledger and the agent's log as JSON.")] = False,
    **model_flags: Any,
) -> None:
    """One episode of one agent.

    Examples: [dim]fintrading play momentum --cell nvda_bull_2023 --verbose[/],
    [dim]fintrading play my_agents:contrarian --timesteps all[/],
    [dim]fintrading play llm --model openai/gpt-4o-mini --usd-limit 0.10[/]
    """
    agent = f"{agent}:{model}" if model else agent
    (player,) = with_options([find_player(agent)], given(model_flags))
    task = Task(cell, _persona(persona), seed, _timesteps(timesteps), hold, cost_bps, fill, 7, detail, identity, world)
    _tell_calls([(player, task)])
    with watched(task.decisions) as watch:
        episode = player.play(task, partial(watch.on_day, 0))
    numbers = evaluate(episode.ledger, hold, cost_bps) if episode.score is not None else {}
    if as_json:
        head = {"agent": agent, "failure": episode.failure, "data_sha256": task.window.load().sha256}
        tail = {"summary": numbers, "facts": episode.facts, "ledger": episode.ledger.rows(), "log": episode.log}
        print(json.dumps({**head, **asdict(task), "identity": episode.identity, **tail}, indent=1))
    else:
        if verbose:
            tables.print_days(episode.ledger.rows())
        if told := {**numbers, **episode.facts}:
            tables.print_summary(f"{agent} on {task.window}", told)
        if "model" in episode.facts and len(episode.decisions) >= FEW:
            for line in tables.alerts([board.as_row(player, task, episode)]):
                print(line)
    if episode.failure is not None:
        fail(f"{agent} broke off: {episode.failure}")


@app.command()
@with_model_flags
def leaderboard(
    agents: Annotated[str, typer.Option(help="Agents, by commas; ppo, a2c, dqn need the extra rl.")] = ON_BOARD,
    also: Annotated[str | None, typer.Option(help="Agents beside those, by commas.")] = None,
    cells: Annotated[str, typer.Option(help="Cells, by commas.")] = ",".join(windows.EVALUATION),
    personas: Annotated[str, typer.Option(help="Personas, by commas, or 'all'.")] = "adaptive",
    timesteps: Timesteps = "50",
    seeds: Annotated[int, typer.Option(min=1, help="Episodes of each task: seeds 0, 1, ...")] = 5,
    hold: Hold = "keep",
    fill: Fill = "close",
    cost_bps: CostBps = 0.0,
    detail: Detail = None,
    identity: IdentityFlag = None,
    worlds: Annotated[str, typer.Option(help=f"By commas, of {', '.join(WORLDS)}: a board each.")] = "real",
    out: Annotated[Path | None, typer.Option(help="Keep the board in this file, and go on with what it holds.")] = None,
    again: Annotated[str, typer.Option(help="Of these agents, by commas: forget their episodes, play them anew.")] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only tell what there is to play, and what it costs.")
    ] = False,
    executor: Annotated[str, typer.Option(help=f"What plays agents that compute: {', '.join(EXECUTORS)}.")] = PROCESSES,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; else one a core where that pays.")] = None,
    ray_address: Annotated[str | None, typer.Option(help="HOST:PORT of a Ray cluster; else Ray runs here.")] = None,
    csv_file: Annotated[Path | None, typer.Option("--csv", help="Write a row an episode to this file.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="The same as JSON.")] = None,
    **model_flags: Any,
) -> None:
    """Play agents x tasks x seeds and rank them.

    Examples: [dim]fintrading leaderboard[/],
    [dim]fintrading leaderboard --agents buy_and_hold,my_agents:contrarian --cells tsla_main --csv rows.csv[/],
    [dim]fintrading leaderboard --agents buy_and_hold,llm:openai/gpt-4o-mini --seeds 1 --usd-limit 2[/]
    """
    options = given(model_flags)
    elsewhere = find_executor(executor, workers, ray_address)
    names = _names(f"{agents},{also or ''}")
    players = with_options([find_player(name) for name in names], options)
    rules: dict[str, Any] = {"hold": hold, "cost_bps": cost_bps, "fill": fill, "detail": detail, "identity": identity}
    played = [
        Task(windows.find_window(cell) and cell, _persona(persona), seed, _timesteps(timesteps), world=world, **rules)
        for world in _names(worlds)
        for cell in _names(cells)
        for persona in (PERSONAS if personas == "all" else _names(personas))
        for seed in range(seeds)
    ]
    for task in {(task.world, task.cell): task for task in played}.values():
        task.make(observation="vector").close()  # a wrong setting fails before the first episode
    keep_apart([out, csv_file, json_file], files_of(_names(cells)))
    for path in filter(None, (csv_file, json_file)):
        path.open("a").close()  # the same for a file that cannot be written
    episodes = board.plan(players, played)
    if dry_run:
        with Console(stderr=True).status("Counting ..."):
            expected = board.expected(out, episodes, options.get("in_flight", board.AT_ONCE))
        tables.print_costs(expected)
        return
    by_name = {player.name: player for player in players}
    anew = [lookup("agent on this board", name, by_name) for name in (_names(again) if again else ())]
    # Where it is asked is no setting to note: the address may be meant to hold a secret, which it is refused for later.
    asked = {"agents": names, "tasks": [asdict(task) for task in played], **options, "base_url": None}
    ended: KeyboardInterrupt | RunStopped | None = None
    with store.writing(out, asked) as kept:
        moved, lacking = board.begin(kept, episodes, anew)
        _tell_calls(lacking)
        try:
            with watched(sum(task.decisions for _, task in lacking)) as watch:
                board.fill(kept, lacking, options.get("in_flight", board.AT_ONCE), watch.on_day, elsewhere)
        except (KeyboardInterrupt, RunStopped) as end:
            ended = end
        (rows, sha256), missing = kept.contents(), len(board.lacking(kept, episodes))
        kept.end("finished" if ended is None else one_line(ended))
    if isinstance(ended, RunStopped) and not rows:
        raise ended
    if csv_file:
        write_csv(csv_file, rows)
    if json_file:
        write_json(json_file, rows)
    tables.print_boards(rows)
    if moved:
        print(f"{moved} episodes of other code, files, prices or versions under these names are set aside")
    if out:
        now = len(lacking) - missing
        print(f"{out}: {len(rows)} episodes, {now} of them played now; fintrading report {out} shows them")
        print(f"sha256 of what {out} holds: {sha256}")
    if isinstance(ended, KeyboardInterrupt):
        raise typer.Exit(130)
    if ended:
        fail(f"{len(episodes) - missing} of {len(episodes)} episodes are finished: {ended}")
    if missing:
        fail("some episodes failed; the table says which")


@data_app.command("check")
def data_check(
    files: Annotated[list[Path] | None, typer.Argument(help="CSV tables; none: the bundled ones.")] = None,
) -> None:
    """Validate price tables: the given files, or the bundled ones against their manifest.

    Examples: [dim]fintrading data check[/], [dim]fintrading data check mine.csv[/]
    """
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
        fail(f"{bad} table(s) cannot be played")


@data_app.command("fetch")
def data_fetch(
    ticker: Annotated[str, typer.Argument(help="As Yahoo Finance names it, such as IBM.")],
    first: Annotated[str, typer.Argument(help="First day, YYYY-MM-DD.")],
    last: Annotated[str, typer.Argument(help="Last day, YYYY-MM-DD, included.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write; default TICKER.csv.")] = None,
) -> None:
    """Write a price table from Yahoo Finance, for `--cell FILE.csv:FIRST:LAST`.

    Example: [dim]fintrading data fetch IBM 2024-01-02 2024-06-28 --out ibm.csv[/]
    """
    from fintrading_gym.fetch import fetch

    path = out or Path(f"{ticker}.csv")
    prices = fetch(ticker, first, last, path)
    print(f"{path}: {len(prices.date)} days, {prices.date[0]}..{prices.date[-1]}")


# ---------------------------------------------------------------------------------- reading the flags


def _names(text: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
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


# ------------------------------------------------------------------------------ writing and printing


def _tell_calls(episodes: Sequence[tuple[Player, Task]]) -> None:
    """Before a run: how often those players will ask their models that know it, and ask more than once a day."""
    calls: dict[tuple[str, str], list[int]] = {}
    for player, task in episodes:
        if (count := player.calls(task)) is not None and count > task.decisions:
            calls.setdefault((player.name, called(player)), []).append(count)
    for (name, manner), counts in calls.items():
        where = f"{len(counts)} episode{'s' * (len(counts) > 1)}"
        told = f"{name}: {sum(counts):,} calls to its model in {where}, nudges and what the cache holds aside"
        told += f": {manner}" * bool(manner)
        Console(stderr=True).print(told, markup=False, highlight=False, soft_wrap=True)


def _complain(message: object) -> None:
    Console(stderr=True).print(f"fintrading: {message}", style="red", markup=False, highlight=False, soft_wrap=True)


def fail(message: str) -> None:
    """End a command whose work failed: the message, and exit 1."""
    _complain(message)
    raise typer.Exit(1)
