"""The sub-commands of `fintrading` that read a board: `export` and `rescore`."""

import hashlib
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fintrading_gym import export as files
from fintrading_gym import store
from fintrading_gym.cli import fail
from fintrading_gym.rescore import rescore as compare
from fintrading_gym.stored import name_of

SHOWN = 3  # of what differs in one episode

Board = Annotated[Path, typer.Argument(help="A board, as `fintrading leaderboard --out` writes it.")]
CsvFile = Annotated[Path | None, typer.Option("--csv", help="A row an episode; its steps in FILE.steps.csv.")]
ParquetFile = Annotated[Path | None, typer.Option("--parquet", help="The same as Parquet (extra parquet).")]
JsonlFile = Annotated[Path | None, typer.Option("--jsonl", help="A line an episode, with all steps and model calls.")]


def export(board: Board, csv: CsvFile = None, parquet: ParquetFile = None, jsonl: JsonlFile = None) -> None:
    """Write a board's tables for other tools, and print the sha256 of what it holds.

    Equal boards give equal files: what tells of one run alone (when, how fast, from the cache or not) is left out.

    Example: [dim]fintrading export board.db --csv rows.csv --jsonl board.jsonl[/]
    """
    if parquet:
        files.need_pyarrow()
    beside_them = [path and files.steps_beside(path) for path in (csv, parquet)]
    files.keep_apart([csv, parquet, jsonl, *beside_them], [board])
    for wanted in filter(None, (csv, parquet, jsonl)):
        wanted.open("a").close()  # one that cannot be written is told before the board is read
    tables = files.as_tables(files.copied(store.episodes(board), jsonl))
    if jsonl:
        print(f"{jsonl}: {len(tables.episodes)} episodes with their steps and model calls")
    for path, write in ((csv, files.write_csv), (parquet, files.write_parquet)):
        if path:
            beside = files.steps_beside(path)
            write(path, tables.episodes)
            write(beside, tables.steps)
            print(f"{path}: {len(tables.episodes)} episodes; {beside}: {len(tables.steps)} steps")
    print(f"sha256 of what {board} holds: {tables.sha256}")


def rescore(board: Board) -> None:
    """Compute a board again: scores from ledgers, ledgers from prices, decisions from replies; exit 1 if one differs.

    Example: [dim]fintrading rescore board.db[/]
    """
    wrong: list[str] = []
    unchecked: Counter[str] = Counter()
    whole, sha256 = 0, hashlib.sha256()
    with Console(stderr=True).status("Computing ..."):
        for stored in store.episodes(board, damaged=wrong.append):
            sha256.update(f"{stored.line}\n".encode())
            differences, why_not = compare(stored)
            whole += not (differences or why_not)
            if differences:
                more = f" (and {len(differences) - SHOWN} more)" if len(differences) > SHOWN else ""
                wrong.append(f"{name_of(stored.row)}: {'; '.join(differences[:SHOWN])}{more}")
            elif why_not:
                unchecked[why_not] += 1
    for line in wrong:
        print(line)
    for why_not, count in unchecked.items():
        print(f"{count} episodes could not be checked: {why_not}")
    print(f"{whole} episodes are what their ledgers, prices and replies make them")
    if wrong:
        fail(f"{len(wrong)} episodes of {board} differ")
    print(f"sha256 of what {board} holds: {sha256.hexdigest()}")
