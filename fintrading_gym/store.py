"""A board in one SQLite file: runs, episodes, steps and model calls, each episode written whole or not at all.

`docs/leaderboard.md` describes the tables for readers with other tools.
"""

import hashlib
import json
import platform
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fintrading_gym import __version__
from fintrading_gym.errors import RunStopped, one_line
from fintrading_gym.recipes import MADE_BY, dumps, key_of
from fintrading_gym.rollout import Episode
from fintrading_gym.schema import APPLICATION, SCHEMA, SCHEMA_VERSION
from fintrading_gym.stored import Damaged, insert, read
from fintrading_gym.stored import Row as Row
from fintrading_gym.stored import Stored as Stored

# What does not depend on when episodes were played.
ORDER = "world <> 'real', world, agent, cell, persona, seed, key"
ON_BOARD = f"FROM episodes WHERE aside IS NULL ORDER BY {ORDER}"
FAULTS = (sqlite3.Error, UnicodeDecodeError)  # of a file, the latter where names in it are damaged
REFUSALS = {
    sqlite3.SQLITE_NOTADB: "is no board",
    sqlite3.SQLITE_CORRUPT: "is damaged",
    sqlite3.SQLITE_READONLY: "cannot be written by this user",
    sqlite3.SQLITE_CANTOPEN: "cannot be written by this user",
    sqlite3.SQLITE_FULL: "cannot be written",
    sqlite3.SQLITE_BUSY: "is being written by another program",
}
PATIENCE = 60.0  # seconds that a writer waits for a reader's copy to be made, and the other way round


class StoreError(ValueError):
    """A file that is no board that can be read or written: the message names it, and says what to do."""


class Store:
    """A board that is being written, by this process alone. Made by `writing`."""

    def __init__(self, path: Path, connection: sqlite3.Connection, settings: Mapping[str, Any]):
        self.path, self._db = path, connection
        machine = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
        with self._changing():
            noted = self._db.execute(
                "INSERT INTO runs (started, version, machine, settings) VALUES (?, ?, ?, ?)",
                (_now(), __version__, machine, dumps(settings)),
            )
        assert noted.lastrowid is not None
        self._run: int = noted.lastrowid

    def claim(self, recipes: Iterable[Mapping[str, Any]]) -> int:
        """Set aside what would stand beside these under one name and is something else; how many episodes that are.

        Episodes of one agent by another code, file or version, or of one cell on other prices, are no repetitions of
        these: to average them would rank an agent that nobody made. They stay in the file, and are on the board again
        when their own recipe is asked for.
        """
        recipes = list(recipes)
        asked = set(map(key_of, recipes))
        made_by = {_agent(recipe): _maker(recipe) for recipe in recipes}
        prices = {_cell(recipe): recipe["data_sha256"] for recipe in recipes}
        moved = 0
        with self._changing(), _readable(self.path):
            found = self._db.execute("SELECT id, key, recipe, aside FROM episodes").fetchall()
            for number, key, text, aside in found:
                recipe = json.loads(text)
                other = _maker(recipe) != made_by.get(_agent(recipe), _maker(recipe))
                other = other or recipe["data_sha256"] != prices.get(_cell(recipe), recipe["data_sha256"])
                if other and aside is None:
                    moved += 1
                    self._db.execute("UPDATE episodes SET aside = ? WHERE id = ?", (self._run, number))
                elif aside is not None and key in asked:
                    self._db.execute("UPDATE episodes SET aside = NULL WHERE id = ?", (number,))
        return moved

    def recipes(self) -> list[dict[str, Any]]:
        """Of all episodes in the file, those set aside too."""
        with _readable(self.path):
            return [json.loads(recipe) for (recipe,) in self._db.execute("SELECT recipe FROM episodes")]

    def finished(self) -> set[str]:
        """The keys of the episodes that were played to their end; those that failed may be played again."""
        with _readable(self.path):
            return _finished(self._db)

    def aside(self) -> set[str]:
        """The keys of the episodes that are in the file, and not on the board."""
        with _readable(self.path):
            return {key for (key,) in self._db.execute("SELECT key FROM episodes WHERE aside IS NOT NULL")}

    def set_aside(self, keys: Iterable[str]) -> None:
        """Take the episodes of these keys off the board; they stay in the file."""
        with self._changing():
            moved = "UPDATE episodes SET aside = ? WHERE key = ? AND aside IS NULL"
            self._db.executemany(moved, [(self._run, key) for key in keys])

    def add(self, recipe: Mapping[str, Any], row: Row, episode: Episode) -> None:
        """Write an episode, in the place of an earlier one of the same recipe.

        Raises:
            RunStopped: the file cannot be written any more; what was written before stays.
        """
        with self._changing():
            insert(self._db, self._run, recipe, row, episode)

    def forget(self, keys: Iterable[str]) -> None:
        """Drop the episodes of these keys, if they are there."""
        with self._changing():
            self._db.executemany("DELETE FROM episodes WHERE key = ?", [(key,) for key in keys])

    def rows(self) -> list[Row]:
        """All that is on the board; see the module's `rows`."""
        return self.contents()[0]

    def contents(self) -> tuple[list[Row], str]:
        """All that is on the board, and its digest, read once; see the module's `rows` and `digest`."""
        found: list[Row] = []
        with _readable(self.path):
            sha256 = digest_of(_noted(_read_all(self._db), found))
        return found, sha256

    def end(self, outcome: str) -> None:
        """Note how the run ended, if the file can still be written: where it cannot, that is what ended it."""
        with suppress(RunStopped), self._changing():
            self._db.execute("UPDATE runs SET ended = ?, outcome = ? WHERE id = ?", (_now(), outcome, self._run))

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """One transaction."""
        try:
            with self._db:
                yield
        except sqlite3.Error as fault:
            raise RunStopped(f"{_named(self.path)} cannot be written ({fault}); what was finished is in it") from None


@contextmanager
def writing(path: Path | None, settings: Mapping[str, Any]) -> Iterator[Store]:
    """The board at `path`, made if there is none, for this process alone.

    Args:
        path: of the file; None: in memory, for as long as the block lasts.
        settings: what the run was asked for, to be noted.

    Raises:
        StoreError: it is no board, or another version's, or another process writes it, or it cannot be written.
    """
    if path is None:
        with closing(sqlite3.connect(":memory:")) as connection:
            _prepare(Path("(in memory)"), connection, make=True)
            yield Store(Path("(in memory)"), connection, settings)
        return
    if not path.parent.is_dir():
        raise StoreError(f"{_named(path)}: there is no folder {_named(path.parent)}")
    if path.is_dir():
        raise StoreError(f"{_named(path)} is a folder; give a file in it")
    one = path.resolve()  # two names of one file are one board
    # Its lock ends with the process, however that ends. A lock on the board itself would keep readers out.
    with _connected(one.with_name(f"{one.name}.lock"), "rwc", 0) as lock:
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as fault:
            if fault.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise _refused(path, fault) from None
            why = "another process writes it; wait for it, or give another file"
            raise StoreError(f"{_named(path)}: {why}") from None
        with _connected(path, "rwc", PATIENCE) as connection:
            _prepare(path, connection, make=True)
            with _readable(path):
                digest_of(_read_all(connection))  # a damaged episode is told before others are played beside it,
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")  # and a file that cannot be written
            yield Store(path, connection, settings)


# -------------------------------------------------------------------------------------- reading it


def is_board(path: Path) -> bool:
    """Whether a file is a database; what is in it is another question."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def rows(path: Path) -> list[Row]:
    """The row of each episode on the board, in an order that does not depend on when they were played.

    Raises:
        StoreError: it is no board that can be read.
    """
    return [one.row for one in episodes(path)]


def episodes(path: Path, damaged: Callable[[str], None] | None = None) -> Iterator[Stored]:
    """Each episode on the board whole, in the order of `rows`.

    Args:
        path: of the board; it is copied first, so that who writes it need not wait.
        damaged: told of each episode that is not as it was written, which is then left out; None: it is an error.

    Raises:
        StoreError: as `rows`.
    """
    with _reading(path) as db:
        yield from _read_all(db, damaged)


def finished(path: Path) -> set[str]:
    """The keys of the episodes that were played to their end.

    Raises:
        StoreError: as `rows`.
    """
    with _reading(path) as db:
        return _finished(db)


def mean_latencies(path: Path) -> dict[str, float]:
    """The mean seconds of a model call of each agent that made some.

    Raises:
        StoreError: as `rows`.
    """
    asked = "SELECT agent, avg(latency) FROM calls JOIN episodes ON id = episode WHERE latency > 0 GROUP BY agent"
    with _reading(path) as db:
        return dict(db.execute(asked).fetchall())


def digest(path: Path) -> str:
    """The sha256 of what `fintrading export --jsonl` writes: equal for two boards that hold the same.

    Raises:
        StoreError: as `rows`.
    """
    return digest_of(episodes(path))


def _finished(db: sqlite3.Connection) -> set[str]:
    return {key for (key,) in db.execute("SELECT key FROM episodes WHERE failure IS NULL")}


def _read_all(db: sqlite3.Connection, damaged: Callable[[str], None] | None = None) -> Iterator[Stored]:
    for (number,) in db.execute(f"SELECT id {ON_BOARD}").fetchall():
        try:
            stored = read(db, number)
        except Damaged as fault:
            if damaged is None:
                raise
            damaged(str(fault))
        else:
            yield stored


def _noted(stored: Iterable[Stored], rows: list[Row]) -> Iterator[Stored]:
    for one in stored:
        rows.append(one.row)
        yield one


def digest_of(stored: Iterable[Stored]) -> str:
    """The `digest` of a board with these episodes, in the order of `episodes`."""
    sha256 = hashlib.sha256()
    for one in stored:
        sha256.update(f"{one.line}\n".encode())
    return sha256.hexdigest()


# ---------------------------------------------------------------------------------------- the file


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A copy of a board, made in one go: whoever writes the board goes on meanwhile."""
    if not path.is_file():
        raise StoreError(f"There is no board {_named(path)}; fintrading leaderboard --out {_named(path)} makes one")
    # To be opened for writing, for a writer that was killed leaves a journal that has to be played back first; where
    # the file is read-only, so is the connection.
    with _connected(path, "rw", PATIENCE) as board, closing(sqlite3.connect("")) as copy, _readable(path):
        board.execute("PRAGMA query_only = ON")
        board.backup(copy)
        _prepare(path, copy, make=False)
        yield copy


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Faults of a file as its users are told them."""
    try:
        yield
    except FAULTS as fault:
        raise _refused(path, fault) from None
    except (Damaged, json.JSONDecodeError) as fault:
        told = f"{_named(path)} is damaged: {one_line(fault) if isinstance(fault, json.JSONDecodeError) else fault}"
        advice = "restore a copy, or play into another file: the cache has what was paid for"
        raise StoreError(f"{told}; {advice}") from None


@contextmanager
def _connected(path: Path, mode: str, patience: float) -> Iterator[sqlite3.Connection]:
    """A connection, closed at the end; `mode` as in SQLite's URIs."""
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=patience)
    except sqlite3.Error as fault:
        raise _refused(path, fault) from None
    with closing(connection):
        yield connection


def _prepare(path: Path, connection: sqlite3.Connection, make: bool) -> None:
    """Look whether it is a whole board of this schema; make one of an empty file."""
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        version, application = (_pragma(connection, name) for name in ("user_version", "application_id"))
        if make and not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            head = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {SCHEMA_VERSION};"
            connection.executescript(f"BEGIN; {head} {SCHEMA} COMMIT;")
        elif application != APPLICATION:
            raise StoreError(f"{_named(path)} is a database, but no board of fintrading; give another file")
        elif version != SCHEMA_VERSION:
            told = f"{_named(path)} is a board of schema {version}, and this version reads {SCHEMA_VERSION}"
            raise StoreError(f"{told}; export it with the version that wrote it, or give another file")
        elif (found := _pragma(connection, "quick_check(1)")) != "ok":
            raise sqlite3.DatabaseError(" ".join(found.split()))
    except FAULTS as fault:
        raise _refused(path, fault) from None


def _refused(path: Path, fault: Exception) -> StoreError:
    """Why a file cannot be used, where SQLite says no."""
    code = getattr(fault, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF  # without one it is a check's
    said = " ".join(str(fault).split())  # it may quote what is damaged
    return StoreError(f"{_named(path)} {REFUSALS.get(code, 'cannot be used')} ({said}); nothing in it was changed")


def _pragma(connection: sqlite3.Connection, name: str) -> Any:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def _named(path: Path) -> str:
    """A path for a message, on one line whatever it is."""
    return str(path) if str(path).isprintable() else repr(str(path))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _agent(recipe: Mapping[str, Any]) -> str:
    return dumps([recipe["agent"], recipe["options"]], sort_keys=True)


def _maker(recipe: Mapping[str, Any]) -> list[Any]:
    return [recipe[name] for name in MADE_BY]


def _cell(recipe: Mapping[str, Any]) -> tuple[str, str]:
    return recipe["task"]["cell"], recipe["task"]["world"]
