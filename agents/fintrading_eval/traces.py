"""What a trace holds of an episode: written by the environment, and read back by `fintrading import`."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from fintrading_agents.llm import llm
from fintrading_gym import ENV_ID, __version__, cli, tables
from fintrading_gym import leaderboard as board
from fintrading_gym.ledger import Ledger, evaluate
from fintrading_gym.rollout import Episode, Player, Task
from fintrading_gym.store import Row

LEDGER, SEAT = "fintrading", "fintrading_seat"  # of trace.info
TOLERANCE = 1e-9  # between scores of one ledger on two machines


def task_of(row: Any) -> Task:
    """The game's task of a row, be it the taskset's or a trace's."""
    named = row if isinstance(row, dict) else row.model_dump()
    return Task(**{name: named[name] for name in ("cell", "persona", "timesteps", "hold", "identity")})


def told(task: Task, ledger: Ledger) -> dict[str, Any]:
    """What was played, on which data, and the ledger, column by column."""
    return {"env": ENV_ID, "version": __version__, "data_sha256": task.window.load().sha256, "ledger": asdict(ledger)}


def failed(task: Task, ledger: Ledger, fault: Exception) -> dict[str, Any]:
    """The same of an episode that broke off: its days are kept, and no number is made of them."""
    return told(task, ledger) | {"failure": f"day {len(ledger.date) + 1}: {type(fault).__name__}: {fault}"}


def components(raw: Mapping[str, float]) -> dict[str, float]:
    """The rewards without weight of an episode's numbers."""
    return {f"fintrading_{name[6:]}": value for name, value in raw.items() if name.startswith("score_")}


def rows(path: Path) -> list[Row]:
    """The leaderboard's row of each episode in a `traces.jsonl`, its score computed anew from the ledger.

    Episodes of one task and model are numbered as seeds 0, 1, ... in the order of the file.

    Raises:
        ValueError: a line is no episode of this environment, or its rewards are not what its ledger gives.
    """
    made: list[Row] = []
    # Lines end with a newline alone: a reply may hold other separators, and they are written as they are.
    for number, line in enumerate(path.read_bytes().rstrip(b"\n").split(b"\n"), 1):
        if not line:
            continue
        try:
            made.append(_row(json.loads(line)))
        except (KeyError, TypeError, IndexError, json.JSONDecodeError) as fault:
            problem = f"{path}:{number} is no episode of fintrading-eval ({type(fault).__name__}: {fault})"
            raise ValueError(f"{problem}; a line that was cut off is played again by vf-eval ... --resume") from None
        except ValueError as fault:
            raise ValueError(f"{path}:{number}: {fault}") from None
    if not made:
        raise ValueError(f"{path} holds no episode")
    models = {row["agent"] for row in made if row["agent"]}
    for row in made:  # an episode that ended before its seat was taken does not tell the model; the run has one
        row["agent"] = row["agent"] or (models.pop() if len(models) == 1 else "verifiers:unknown")
        models.add(row["agent"])
    played: dict[tuple[str, ...], int] = {}
    for row in made:
        same = (row["agent"], row["cell"], row["persona"])
        row["seed"] = played[same] = played.get(same, -1) + 1
    return made


def _row(episode: dict[str, Any]) -> Row:
    if not episode["ok"] and not episode["traces"]:
        lost = Episode(Ledger(), (), None, _errors(episode))
        return board.as_row(Player("", llm), task_of(episode["task"]["data"]), lost)
    trace = episode["traces"][0]  # of the one seat
    info, task = trace["info"], task_of(trace["task"]["data"])
    player = Player(f"verifiers:{trace['agent']['config']['model']}", llm)
    written = info.get(LEDGER, {})
    ledger = Ledger(**{name: tuple(column) for name, column in written.get("ledger", {}).items()})
    if written.get("data_sha256", task.window.load().sha256) != task.window.load().sha256:
        raise ValueError(f"it was played on another table of {task.window.ticker} than this one")
    if episode["ok"] and trace.get("ok", True):
        score, failure = _checked(ledger, task, trace["rewards"]), None
    else:
        score, failure = None, written.get("failure") or _errors(episode)
    return board.as_row(
        player, task, Episode(ledger, (), score, failure, facts=info.get(SEAT, {}), identity=task.identity)
    )


def _checked(ledger: Ledger, task: Task, rewards: Mapping[str, Mapping[str, float]]) -> float:
    raw = evaluate(ledger, task.hold, task.cost_bps)
    for name, value in {"fintrading_score": raw["score"], **components(raw)}.items():
        given = rewards[name]["score"]
        if not math.isclose(given, value, rel_tol=0, abs_tol=TOLERANCE):
            raise ValueError(f"{name} is {given}, but its ledger gives {value}")
    if len(ledger.date) != task.decisions:
        raise ValueError(f"the ledger has {len(ledger.date)} decisions, its task {task.decisions}")
    for told, true in zip(ledger.rows(), _played_again(ledger, task).rows(), strict=True):
        for name, value in true.items():
            same = (
                math.isclose(told[name], value, abs_tol=TOLERANCE) if isinstance(value, float) else told[name] == value
            )
            if not same:
                raise ValueError(f"{name} of {true['date']} is {told[name]}, but its decisions give {value}")
    return raw["score"]


def _played_again(ledger: Ledger, task: Task) -> Ledger:
    """The ledger that the same decisions give here: a trace is not taken at its word."""
    game: Any = task.make(observation="vector").unwrapped
    game.reset(seed=task.seed)
    for action, valid in zip(ledger.action, ledger.valid, strict=True):
        game.step(action if valid else None)
    played: Ledger = game.ledger()
    return played


def _errors(episode: dict[str, Any]) -> str:
    errors = [*(error for trace in episode["traces"] for error in trace.get("errors", [])), *episode.get("errors", [])]
    return "; ".join(dict.fromkeys(f"{e['type']}: {e['message']}" for e in errors)) or "not finished"


def import_traces(
    traces: Annotated[Path, typer.Argument(help="A run's traces.jsonl.")],
    csv_file: Annotated[Path | None, typer.Option("--csv", help="Write a row an episode to this file.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="The same as JSON.")] = None,
) -> None:
    """Rank the episodes of a `vf-eval` run, their scores computed anew from their ledgers.

    Example: [dim]fintrading import outputs/my-run/traces.jsonl --csv rows.csv[/]
    """
    played = rows(traces)
    if csv_file:
        cli.write_csv(csv_file, played)
    if json_file:
        cli.write_json(json_file, played)
    tables.print_boards(played)
    if any(row["failure"] for row in played):
        cli.fail("some episodes failed; the table says which")
