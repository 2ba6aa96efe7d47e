"""A board's tables for other tools. Equal boards give equal files, however often their runs were interrupted."""

import csv
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fintrading_gym.errors import MissingExtra
from fintrading_gym.recipes import dumps, key_of
from fintrading_gym.stored import OF_THE_RUN, Row, Stored

OF_EPISODE = ("agent", "world", "cell", "persona", "seed")  # repeated on each step, beside the episode's key
DAYS = "log_returns"  # of a row: a list, and each step has its own
OF_DECISION = ("confidence", "reason", "repaired")  # what a decision says beside its action


def keep_apart(wanted: Iterable[Path | None], read: Iterable[Path | None]) -> None:
    """See to it that no file that is to be written is one that is read, or another one that is written.

    Raises:
        ValueError: it is, under whatever name.
    """
    taken = {path.resolve() for path in read if path}
    for path in filter(None, wanted):
        if path.resolve() in taken:
            raise ValueError(f"{path} is read or written here already, and would be overwritten; give another file")
        taken.add(path.resolve())


@dataclass(frozen=True)
class Tables:
    """A board's episodes and their steps, a row each; a step's `key` says whose it is."""

    episodes: list[Row]
    steps: list[Row]
    sha256: str  # of all that the board holds, model calls too: see store.digest


def as_tables(stored: Iterable[Stored]) -> Tables:
    """All of a board's episodes as tables."""
    episodes: list[Row] = []
    steps: list[Row] = []
    sha256 = hashlib.sha256()
    for one in stored:
        sha256.update(f"{one.line}\n".encode())
        key = {"key": key_of(one.recipe)}
        episodes.append(key | {name: value for name, value in one.row.items() if name not in (*OF_THE_RUN, DAYS)})
        whose = key | {name: one.row[name] for name in OF_EPISODE}
        for day, (entry, decision) in enumerate(zip(one.episode.ledger.rows(), one.episode.decisions, strict=True), 1):
            steps.append(
                {**whose, "day": day, **entry, **{name: getattr(decision, name, None) for name in OF_DECISION}}
            )
    return Tables(episodes, steps, sha256.hexdigest())


def copied(stored: Iterable[Stored], path: Path | None) -> Iterator[Stored]:
    """The same episodes, each written on its way as a line of a JSONL file; None: of none."""
    if path is None:
        yield from stored
        return
    part = path.with_name(f"{path.name}.part")  # whole or not at all
    with part.open("w", encoding="ascii", newline="") as file:
        for one in stored:
            file.write(f"{one.line}\n")
            yield one
    part.replace(path)


def write_csv(path: Path, rows: list[Row]) -> None:
    """A row each, with each column that any of them has, but for the days' returns; what is no single value is JSON."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, _names(rows))
        writer.writeheader()
        writer.writerows({name: _single(value) for name, value in row.items() if name != DAYS} for row in rows)


def write_json(path: Path, rows: list[Row]) -> None:
    """The same as one JSON array, with the days' returns."""
    path.write_text(json.dumps(rows, indent=1) + "\n")


def write_parquet(path: Path, rows: list[Row]) -> None:
    """The same as Parquet. A column whose values are not all of one kind is text."""
    pyarrow = need_pyarrow()
    columns = {}
    for name in _names(rows):
        values = [_single(row.get(name)) for row in rows]
        kinds = {type(value) for value in values if value is not None}
        if kinds <= {int, float} and len(kinds) == 2:
            values = [None if value is None else float(value) for value in values]
        elif len(kinds) > 1:
            values = [None if value is None else str(value) for value in values]
        columns[name] = pyarrow.array(values)
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def need_pyarrow() -> Any:
    """The library that writes Parquet.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import pyarrow.parquet
    except ModuleNotFoundError as fault:
        raise MissingExtra("--parquet", "parquet") from fault
    return pyarrow


def steps_beside(path: Path) -> Path:
    """Where the steps are written when the episodes are written to `path`: rows.csv, rows.steps.csv."""
    return path.with_name(f"{path.stem}.steps{path.suffix}")


def _names(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row if name != DAYS))


def _single(value: Any) -> Any:
    """A value as a field may hold it."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()  # half a surrogate pair is no UTF-8
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value)
    return dumps(value) if isinstance(value, dict | list | tuple) else value
