"""What a trace holds of an episode: written by the environment, and read back by `fintrading import`."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer

from fintrading_agents.llm import llm
from fintrading_gym import ENV_ID, __version__, cli, store, tables
from fintrading_gym import leaderboard as board
from fintrading_gym.export import keep_apart, write_csv, write_json
from fintrading_gym.ledger import Ledger, evaluate
from fintrading_gym.recipes import dumps, key_of, recipe_of
from fintrading_gym.replies import Decision
from fintrading_gym.rescore import differences, same
from fintrading_gym.rollout import Episode, Player, Task
from fintrading_gym.store import Row, Store
from fintrading_gym.stored import decision_of

LEDGER, SEAT, CALLS = "fintrading", "fintrading_seat", "fintrading_calls"  # of trace.info
PACKAGE = "fintrading-eval"  # and its harness
UNKNOWN = "verifiers:unknown"  # the agent of a run of which no episode tells the model


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


def said(log: Iterable[Mapping[str, Any]], messages: bool) -> list[list[dict[str, Any]]]:
    """A seat's calls, day by day; without the messages they were made with, where the trace holds these anyway."""
    left_out = () if messages else ("messages",)
    return [[{name: call[name] for name in call if name not in left_out} for call in day["calls"]] for day in log]


def components(raw: Mapping[str, float]) -> dict[str, float]:
    """The rewards without weight of an episode's numbers."""
    return {f"fintrading_{name[6:]}": value for name, value in raw.items() if name.startswith("score_")}


@dataclass(frozen=True)
class Imported:
    """An episode of a run, its score computed anew from its ledger."""

    recipe: dict[str, Any]
    row: Row
    episode: Episode


def rows(path: Path) -> list[Row]:
    """The leaderboard's row of each episode in a `traces.jsonl`; see `read`."""
    return [one.row for one in numbered(read(path), [])]


def read(path: Path) -> list[Imported]:
    """Each episode in a `traces.jsonl`; none has a seed yet.

    Raises:
        ValueError: a line is no episode of this environment, or its rewards are not what its ledger gives.
    """
    made: list[Imported] = []
    # Lines end with a newline alone: a reply may hold other separators, and they are written as they are.
    for number, line in enumerate(path.read_bytes().rstrip(b"\n").split(b"\n"), 1):
        if not line:
            continue
        try:
            made.append(_imported(json.loads(line)))
        except (KeyError, TypeError, IndexError, json.JSONDecodeError) as fault:
            problem = f"{path}:{number} is no episode of fintrading-eval ({type(fault).__name__}: {fault})"
            raise ValueError(f"{problem}; a line that was cut off is played again by vf-eval ... --resume") from None
        except ValueError as fault:
            raise ValueError(f"{path}:{number}: {fault}") from None
    if not made:
        raise ValueError(f"{path} holds no episode")
    # An episode that ended before its seat was taken does not tell the model; the run has one.
    seated = {one.row["agent"]: one.recipe for one in made if one.recipe["agent"]}
    agent, told = next(iter(seated.items())) if len(seated) == 1 else (UNKNOWN, {})
    for one in made:
        if not one.recipe["agent"]:
            one.row["agent"] = agent
            one.recipe.update(agent=told.get("agent", agent), options=told.get("options", {}))
    return made


def numbered(imported: Sequence[Imported], there: Iterable[Mapping[str, Any]]) -> Sequence[Imported]:
    """The episodes, each with the first seed that its model and task have free.

    Args:
        imported: of `read`.
        there: recipes whose seeds are taken.
    """
    taken: dict[str, set[int]] = {}
    for recipe in there:
        taken.setdefault(_same_task(recipe), set()).add(recipe["task"]["seed"])
    for one in imported:
        seeds = taken.setdefault(_same_task(one.recipe), set())
        seed = next(seed for seed in count() if seed not in seeds)
        seeds.add(seed)
        one.row["seed"] = one.recipe["task"]["seed"] = seed
    return imported


def keep(board: Store, imported: Sequence[Imported]) -> tuple[int, list[str]]:
    """Write the episodes into a board: how many it did not hold, and which failed ones have made way for them.

    What failed is set aside once it was played again: a failed episode for a new one of the same model and task, if
    that did not fail, or is of the same run (`vf-eval ... --resume`). One for one, so that none is passed over, and
    never one that is among the imported. It stays in the file, where a second import finds it.
    """
    recipes, ids = board.recipes(), {one.recipe["episode"] for one in imported}
    known, aside = {recipe.get("episode") for recipe in recipes}, board.aside()
    new = [one for one in imported if one.recipe["episode"] not in known]
    there = [recipe for recipe in recipes if key_of(recipe) not in aside]
    finished = board.finished()
    failed = [one for one in there if one.get("episode") not in ids | {None} and key_of(one) not in finished]
    gone = []
    for one in new:
        again = [recipe for recipe in failed if _plays_again(one, recipe)]
        if again:
            gone.append(max(again, key=lambda recipe: _same_run(one, recipe)))
            failed.remove(gone[-1])
    board.set_aside(map(key_of, gone))
    for one in numbered(new, [recipe for recipe in there if recipe not in gone]):
        board.add(one.recipe, one.row, one.episode)
    return len(new), [f"{recipe['agent']} on {recipe['task']['cell']}/{recipe['task']['persona']}" for recipe in gone]


def _plays_again(one: Imported, failed: Mapping[str, Any]) -> bool:
    """Whether an episode is another attempt at what failed."""
    if failed["agent"] == UNKNOWN:  # it ended before its seat was taken: its run and its task are all that is known
        return _same_run(one, failed) and one.recipe["task"] | {"seed": None} == failed["task"] | {"seed": None}
    return _same_task(one.recipe) == _same_task(failed) and (one.row["failure"] is None or _same_run(one, failed))


def _same_run(one: Imported, recipe: Mapping[str, Any]) -> bool:
    """By name: `--resume` keeps that, and gives the run another id."""
    return one.recipe["run"] is not None and one.recipe["run"] == recipe["run"]


def _same_task(recipe: Mapping[str, Any]) -> str:
    return dumps([recipe["agent"], recipe["options"], recipe["task"] | {"seed": None}], sort_keys=True)


def _imported(episode: dict[str, Any]) -> Imported:
    trace = episode["traces"][0] if episode["traces"] else None  # of the one seat
    if trace is None and episode["ok"]:
        raise IndexError("no trace")
    named = (trace or episode)["task"]["data"]
    task, info = task_of(named), trace["info"] if trace else {}
    player = _player(trace, named)
    written = info.get(LEDGER, {})
    ledger = Ledger(**{name: tuple(column) for name, column in written.get("ledger", {}).items()})
    if written.get("data_sha256", task.window.load().sha256) != task.window.load().sha256:
        raise ValueError(f"it was played on another table of {task.window.ticker} than this one")
    if trace and episode["ok"] and trace.get("ok", True):
        score, failure = _checked(ledger, task, trace["rewards"]), None
    else:
        score, failure = None, written.get("failure") or _errors(episode)
    log = _log(trace) if trace else ()
    played = Episode(ledger, _decisions(ledger, log), score, failure, log, info.get(SEAT, {}), task.identity)
    version = {"version": written.get("version", __version__)}
    run = (episode.get("run") or {}).get("name")
    recipe = recipe_of(player, task) | version | {"code": None, "episode": episode["id"], "run": run}
    return Imported(recipe, board.as_row(player, task, played) | version, played)


def _player(trace: dict[str, Any] | None, row: Mapping[str, Any]) -> Player:
    """Who played: the model, by what a board must tell of it beside its name."""
    options = {name: row[name] for name in ("context", "max_nudges") if name in row}
    if trace is None:
        return Player("", llm, options=options)
    config = trace["agent"]["config"]
    options |= {name: value for name, value in (config.get("sampling") or {}).items() if value is not None}
    # The package answers to both spellings, as verifiers reads an id.
    harness = (config.get("harness") or {}).get("id", PACKAGE).replace("_", "-").lower()
    return Player(
        f"verifiers:{config['model']}", llm, options=options | ({} if harness == PACKAGE else {"harness": harness})
    )


def _log(trace: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """The seat's log: its calls as the environment wrote them, with the messages that the trace holds once for all."""
    nodes, answered = trace["nodes"], iter([call["node"] for call in trace["calls"] if call.get("node") is not None])

    def sent(call: Mapping[str, Any]) -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = []
        node = nodes[next(answered, None)].get("parent") if "outcome" in call else None
        while node is not None:
            told.append({name: nodes[node]["message"][name] for name in ("role", "content")})
            node = nodes[node].get("parent")
        return told[::-1]

    return tuple(
        {"calls": [call if "messages" in call else {**call, "messages": sent(call)} for call in day]}
        for day in trace["info"].get(CALLS, ())
    )


def _decisions(ledger: Ledger, log: Sequence[Mapping[str, Any]]) -> tuple[Decision | None, ...]:
    """Each day's, as the seat read it."""
    return tuple(decision_of(log[day]["calls"][-1]["verdict"]) for day in range(len(ledger.date)))


def _checked(ledger: Ledger, task: Task, rewards: Mapping[str, Mapping[str, float]]) -> float:
    raw = evaluate(ledger, task.hold, task.cost_bps)
    for name, value in {"fintrading_score": raw["score"], **components(raw)}.items():
        if not same(float(rewards[name]["score"]), value):
            raise ValueError(f"{name} is {rewards[name]['score']}, but its ledger gives {value}")
    if len(ledger.date) != task.decisions:
        raise ValueError(f"the ledger has {len(ledger.date)} decisions, its task {task.decisions}")
    for difference in differences(ledger, task):
        raise ValueError(difference)
    return raw["score"]


def _errors(episode: dict[str, Any]) -> str:
    errors = [*(error for trace in episode["traces"] for error in trace.get("errors", [])), *episode.get("errors", [])]
    return "; ".join(dict.fromkeys(f"{e['type']}: {e['message']}" for e in errors)) or "not finished"


def import_traces(
    files: Annotated[list[Path], typer.Argument(metavar="[BOARD] TRACES", help="A run's traces.jsonl.")],
    csv_file: Annotated[Path | None, typer.Option("--csv", help="Write a row an episode to this file.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="The same as JSON.")] = None,
) -> None:
    """Rank the episodes of a `vf-eval` run, their scores computed anew from their ledgers; alone, or on a board.

    Examples: [dim]fintrading import outputs/my-run/traces.jsonl --csv rows.csv[/],
    [dim]fintrading import board.db outputs/my-run/traces.jsonl[/]
    """
    if len(files) > 2:
        raise ValueError(f"import takes a board and a run's traces.jsonl, or these alone, and not {len(files)} files")
    keep_apart([csv_file, json_file], files)
    *boards, traces = files
    imported = read(traces)
    if boards:
        with store.writing(boards[0], {"import": str(traces)}) as kept:
            new, gone = keep(kept, imported)
            played, sha256 = kept.contents()
            kept.end("finished")
    else:
        played = [one.row for one in numbered(imported, [])]
    if csv_file:
        write_csv(csv_file, played)
    if json_file:
        write_json(json_file, played)
    tables.print_boards(played)
    if boards:
        print(f"{boards[0]}: {len(played)} episodes, {new} of them new")
        if gone:
            print(f"{len(gone)} failed before, played again now, and set aside: {', '.join(dict.fromkeys(gone))}")
        print(f"sha256 of what {boards[0]} holds: {sha256}")
    if any(one.row["failure"] for one in imported):
        cli.fail("some episodes failed; the table says which")
