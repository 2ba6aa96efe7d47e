"""A board in one SQLite file: runs, episodes, steps and model calls, each episode written whole or not at all.

`docs/leaderboard.md` describes the tables for readers with other tools.
"""

import hashlib
import inspect
import json
import platform
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fintrading_gym import __version__
from fintrading_gym.errors import RunStopped, one_line
from fintrading_gym.ledger import Ledger
from fintrading_gym.replies import Decision
from fintrading_gym.rollout import Episode, Player, Task

Row = dict[str, Any]

SCHEMA_VERSION = 1  # in PRAGMA user_version
APPLICATION = 0x46545247  # in PRAGMA application_id: "FTRG"
SCHEMA = """
CREATE TABLE runs (                 -- one a call of the command
  id       INTEGER PRIMARY KEY,
  started  TEXT NOT NULL,           -- UTC, ISO 8601
  ended    TEXT,                    -- NULL: it was killed, or goes on
  outcome  TEXT,                    -- 'finished', or what ended it before
  version  TEXT NOT NULL,           -- of fintrading-gym
  machine  TEXT NOT NULL,
  settings TEXT NOT NULL            -- JSON: what was asked for
);
CREATE TABLE episodes (             -- one agent on one task
  id      INTEGER PRIMARY KEY,
  key     TEXT NOT NULL UNIQUE,     -- sha256 of recipe
  recipe  TEXT NOT NULL,            -- JSON: all that makes the episode what it is
  run     INTEGER NOT NULL REFERENCES runs,
  agent   TEXT NOT NULL,
  world   TEXT NOT NULL,
  cell    TEXT NOT NULL,
  persona TEXT,                     -- NULL: the agent ignores it
  seed    INTEGER,                  -- NULL: the agent ignores it
  score   REAL,                     -- NULL: it failed
  failure TEXT,                     -- NULL: it was played to its end
  "row"   TEXT NOT NULL             -- JSON: every column of the leaderboard's row
);
CREATE TABLE steps (                -- one a decision
  episode    INTEGER NOT NULL REFERENCES episodes ON DELETE CASCADE,
  day        INTEGER NOT NULL,      -- 1, 2, ...
  date       TEXT,                  -- the day whose close was seen; NULL, here and below: the agent failed on this day
  price      REAL,                  -- its adjusted close, USD
  action     INTEGER,               -- 0 sell, 1 hold, 2 buy: what was carried out
  valid      INTEGER,               -- 0: the agent gave no decision, and the environment held
  position   INTEGER,               -- -1, 0, +1 after the decision
  log_return REAL,                  -- earned until the next close, costs taken off
  market     REAL,                  -- log return of the stock until the next close
  overnight  REAL,                  -- the part of it that the position before the decision earns
  decision   TEXT,                  -- JSON: as the agent gave it; NULL: it gave none
  log        TEXT,                  -- JSON: what the agent kept of the day beside its calls; NULL: nothing
  PRIMARY KEY (episode, day)
) WITHOUT ROWID;
CREATE TABLE calls (                -- one a question to a model
  episode    INTEGER NOT NULL REFERENCES episodes ON DELETE CASCADE,
  day        INTEGER NOT NULL,
  number     INTEGER NOT NULL,      -- of the day, 1, 2, ... in the order of the asking
  stage      TEXT,                  -- which of an agent's questions it is
  messages   TEXT NOT NULL,         -- JSON: as sent
  reply      TEXT,                  -- JSON: all of the reply; NULL: there was none
  verdict    TEXT,                  -- JSON: the decision read from it; NULL: none was looked for
  failure    TEXT,                  -- why there was no reply
  tokens_in  INTEGER,               -- NULL, here and below: unknown
  tokens_out INTEGER,
  cost_usd   REAL,
  latency    REAL,                  -- seconds of the attempt that was answered
  cached     INTEGER,               -- 1: it was paid for before
  PRIMARY KEY (episode, day, number)
) WITHOUT ROWID;
"""
# Parts of rows and calls that tell of one run rather than of the board: with them two runs would never be equal.
OF_THE_RUN = ("paid_usd", "cache_hits", "cached", "latency")
LEDGER = tuple(Ledger.__dataclass_fields__)


class StoreError(ValueError):
    """A file that is no board that can be read or written: the message names it, and says what to do."""


# ------------------------------------------------------------------------------- what an episode is


def recipe_of(player: Player, task: Task) -> dict[str, Any]:
    """All that makes an episode what it is: of two with the same recipe only one is played.

    The agent by name, by the options that change its play, and by the sha256 of the file that defines it and of the
    files that its argument and its options name, if they do; the task without what the agent ignores; the prices;
    the version.
    """
    told = asdict(task) | {"cell": str(task.window) if not isinstance(task.cell, str) else task.cell}
    told |= {} if player.traits.uses_persona else {"persona": None}
    told |= {} if player.traits.uses_seed else {"seed": None}
    return {
        "agent": player.name,
        "options": dict(sorted(player.settings.items())),
        "code": _sha256(inspect.getsourcefile(inspect.unwrap(player.factory))),
        "file": _sha256(player.argument),
        "files": {name: _sha256(value) for name, value in sorted(player.settings.items()) if _sha256(value)},
        "task": told,
        "data_sha256": task.window.load().sha256,
        "version": __version__,
    }


def key_of(recipe: Mapping[str, Any]) -> str:
    """The recipe's sha256."""
    return hashlib.sha256(dumps(recipe).encode()).hexdigest()


def _sha256(path: object) -> str | None:
    """Of a file's content; None if there is no such file."""
    file = Path(path) if isinstance(path, str) else None
    return hashlib.sha256(file.read_bytes()).hexdigest() if file and file.is_file() else None


def dumps(data: Any) -> str:
    """JSON, the same text for the same data."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


# ---------------------------------------------------------------------------------------- the file


class Store:
    """A board that is being written, by this process alone. Made by `writing`."""

    def __init__(self, path: Path, connection: sqlite3.Connection, settings: Mapping[str, Any]):
        self.path, self._db = path, connection
        now, machine = _now(), f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
        with self._changing():
            self._run = self._db.execute(
                "INSERT INTO runs (started, version, machine, settings) VALUES (?, ?, ?, ?)",
                (now, __version__, machine, dumps(settings)),
            ).lastrowid

    def finished(self) -> dict[str, Row]:
        """The rows of the episodes that were played to their end, by key; those that failed may be played again."""
        found = self._db.execute('SELECT key, "row" FROM episodes WHERE failure IS NULL')
        return {key: json.loads(row) for key, row in found}

    def add(self, recipe: Mapping[str, Any], row: Row, episode: Episode) -> None:
        """Write an episode, in the place of an earlier one of the same recipe.

        Raises:
            RunStopped: the file cannot be written any more; what was written before stays.
        """
        with self._changing():
            self._db.execute("DELETE FROM episodes WHERE key = ?", (key_of(recipe),))
            columns = ("agent", "world", "cell", "persona", "seed", "score", "failure")
            number = self._db.execute(
                f'INSERT INTO episodes (key, recipe, run, {", ".join(columns)}, "row") VALUES (?{", ?" * 10})',
                (key_of(recipe), dumps(recipe), self._run, *(row[name] for name in columns), dumps(row)),
            ).lastrowid
            self._db.executemany(f"INSERT INTO steps VALUES (?{', ?' * 11})", _steps(number, episode))
            self._db.executemany(f"INSERT INTO calls VALUES (?{', ?' * 12})", _calls(number, episode))

    def rows(self) -> list[Row]:
        """All that it holds; see the module's `rows`."""
        return _rows(self._db)

    def end(self, outcome: str) -> None:
        """Note how the run ended."""
        with self._changing():
            self._db.execute("UPDATE runs SET ended = ?, outcome = ? WHERE id = ?", (_now(), outcome, self._run))

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """One transaction."""
        try:
            with self._db:
                yield
        except sqlite3.Error as fault:
            raise RunStopped(f"{self.path} cannot be written ({one_line(fault)}); what was finished is in it") from None


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
            _make(connection)
            yield Store(Path(":memory:"), connection, settings)
        return
    lock = sqlite3.connect(f"{path}.lock", timeout=0)  # its lock ends with the process, however that ends
    try:
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as fault:
            why = "another process writes it; wait for it, or give another file" if "locked" in str(fault) else fault
            raise StoreError(f"{path}: {why}") from None
        with _opened(path, "rwc") as connection:
            yield Store(path, connection, settings)
    finally:
        lock.close()


@contextmanager
def _opened(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    """A connection to a board, whose tables are there; `mode` as in SQLite's URIs."""
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True)
    except sqlite3.Error as fault:
        raise StoreError(f"{path} cannot be opened: {one_line(fault)}") from None
    try:
        try:
            _check(path, connection, mode)
        except sqlite3.Error as fault:
            raise StoreError(f"{path} is no board, or cannot be used: {one_line(fault)}") from None
        yield connection
    finally:
        connection.close()


def _check(path: Path, connection: sqlite3.Connection, mode: str) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
    (version,), (application,) = (
        connection.execute(f"PRAGMA {name}").fetchone() for name in ("user_version", "application_id")
    )
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not tables and mode == "rwc":
        _make(connection)
    elif application != APPLICATION:
        raise StoreError(f"{path} is a database, but no board of fintrading; give another file")
    elif version != SCHEMA_VERSION:
        told = f"{path} is a board of schema {version}, and this version reads {SCHEMA_VERSION}"
        raise StoreError(f"{told}; export it with the version that wrote it, or give another file")


def _make(connection: sqlite3.Connection) -> None:
    script = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {SCHEMA_VERSION};"
    connection.executescript(f"BEGIN; {script} {SCHEMA} COMMIT;")


def _steps(number: int | None, episode: Episode) -> Iterator[tuple[Any, ...]]:
    days = max(len(episode.ledger.date), len(episode.log))
    for k in range(days):
        played = k < len(episode.ledger.date)
        entry = [getattr(episode.ledger, name)[k] if played else None for name in LEDGER]
        decision = episode.decisions[k] if k < len(episode.decisions) else None
        noted = episode.log[k] if k < len(episode.log) else {}
        kept = {name: value for name, value in noted.items() if name != "calls"}
        told = dumps(asdict(decision)) if decision else None
        yield (number, k + 1, *entry, told, dumps(kept) if kept else None)


def _calls(number: int | None, episode: Episode) -> Iterator[tuple[Any, ...]]:
    for day, entry in enumerate(episode.log, 1):
        for k, call in enumerate(entry.get("calls", ()), 1):
            apart = ("stage", "messages", "verdict", "failure")
            reply = {name: value for name, value in call.items() if name not in apart}
            usage = reply.get("usage") or {}
            verdict = dumps(call["verdict"]) if "verdict" in call else None
            told = (call.get("stage"), dumps(call["messages"]), dumps(reply) if reply else None, verdict)
            counted = (usage.get("input"), usage.get("output"), reply.get("cost"), reply.get("latency"))
            yield (number, day, k, *told, call.get("failure"), *counted, reply.get("cached"))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


# -------------------------------------------------------------------------------------- reading it


@dataclass(frozen=True)
class Stored:
    """One episode of a board, as it was written."""

    recipe: dict[str, Any]
    row: Row
    episode: Episode


def rows(path: Path) -> list[Row]:
    """The row of each episode, in an order that does not depend on when they were played.

    Raises:
        StoreError: it is no board that can be read.
    """
    with _reading(path) as db:
        return _rows(db)


def episodes(path: Path) -> Iterator[Stored]:
    """Each episode whole, in the order of `rows`.

    Raises:
        StoreError: as `rows`.
    """
    with _reading(path) as db:
        for number, recipe, row in db.execute(f'SELECT id, recipe, "row" FROM episodes ORDER BY {ORDER}'):
            yield Stored(json.loads(recipe), json.loads(row), _episode(db, number, json.loads(row)))


def _rows(db: sqlite3.Connection) -> list[Row]:
    return [json.loads(row) for (row,) in db.execute(f'SELECT "row" FROM episodes ORDER BY {ORDER}')]


ORDER = "world <> 'real', world, agent, cell, persona, seed, key"


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    if not path.is_file():
        raise StoreError(f"There is no board {path}; fintrading leaderboard --out {path} makes one")
    with _opened(path, "ro") as connection:
        try:
            yield connection
        except sqlite3.Error as fault:
            raise StoreError(f"{path} cannot be read: {one_line(fault)}") from None


def _episode(db: sqlite3.Connection, number: int, row: Row) -> Episode:
    """An episode as it was played; its facts are columns of the row."""
    steps = db.execute("SELECT * FROM steps WHERE episode = ? ORDER BY day", (number,)).fetchall()
    played = [step for step in steps if step[2] is not None]
    columns = zip(*(step[2:10] for step in played), strict=True) if played else [()] * len(LEDGER)
    ledger = {name: tuple(column) for name, column in zip(LEDGER, columns, strict=True)}
    ledger["valid"] = tuple(map(bool, ledger["valid"]))
    decisions = tuple(None if step[10] is None else _decision(json.loads(step[10])) for step in played)
    log = [{"calls": [], **json.loads(step[11] or "{}")} for step in steps]
    asked = "SELECT day, stage, messages, reply, verdict, failure FROM calls WHERE episode = ? ORDER BY day, number"
    for day, stage, messages, reply, verdict, failure in db.execute(asked, (number,)):
        call = {"stage": stage, "messages": json.loads(messages), **json.loads(reply or "{}")}
        call |= {"verdict": json.loads(verdict)} if verdict else {}
        log[day - 1]["calls"].append(call | ({"failure": failure} if failure else {}))
    return Episode(Ledger(**ledger), decisions, row["score"], row["failure"], tuple(log), {}, row["identity"])


def _decision(told: dict[str, Any]) -> Decision:
    lists: dict[str, Any] = {name: tuple(value) for name, value in told.items() if isinstance(value, list)}
    return Decision(**told | lists)
