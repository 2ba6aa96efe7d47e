"""Memories in one SQLite file, which outlive the process: what each says, and how it stood from day to day.

It holds texts as the model may see them, masked where the episode is, and days counted as in the masked view. Whose
they are stands in no column: a place and an episode are told by a hash.
"""

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fintrading_agents.memory.store import FORGOTTEN, Memory

APPLICATION, SCHEMA = 0x46544D45, 1  # in PRAGMA application_id ("FTME") and user_version
TABLES = """
CREATE TABLE episodes (          -- one memory
  episode TEXT PRIMARY KEY,      -- sha256 of all that makes the episode what it is
  place   TEXT NOT NULL,         -- sha256 of what its warm-up could know: stock, first day, view, items, constants
  warmed  INTEGER,               -- last day of the warm-up; NULL: it is not through
  told    TEXT NOT NULL          -- JSON: model, constants, embedding, ...
) WITHOUT ROWID;
CREATE TABLE memories (          -- what it remembers
  episode TEXT NOT NULL, id INTEGER NOT NULL,
  known   INTEGER NOT NULL,      -- day on which it became known; day 1 is the first that the view shows
  kind    TEXT NOT NULL, text TEXT NOT NULL,
  vector  BLOB NOT NULL,         -- 16-bit integers, little-endian
  PRIMARY KEY (episode, id)
) WITHOUT ROWID;
CREATE TABLE states (            -- each change of one, and when
  episode TEXT NOT NULL, id INTEGER NOT NULL, day INTEGER NOT NULL,
  layer   TEXT,                  -- NULL: forgotten
  since   INTEGER NOT NULL,      -- recency counts from this day
  base    REAL NOT NULL,         -- importance
  based   INTEGER NOT NULL,      -- on this day
  merits  INTEGER NOT NULL,      -- how often it was cited before a profitable decision
  PRIMARY KEY (episode, id, day)
) WITHOUT ROWID;
"""
# In one statement: another process may be about to make the tables.
HEADER = """
SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)
FROM pragma_application_id, pragma_user_version
"""
# A memory as it stood at the end of a day.
AS_OF = """
SELECT id, known, kind, text, vector, layer, since, base, based, merits FROM memories JOIN states USING (episode, id)
WHERE episode = ? AND day = (SELECT max(day) FROM states AS later WHERE later.episode = memories.episode
  AND later.id = memories.id AND later.day <= ?) ORDER BY id
"""


class MemoryFile:
    """One episode's part of the file. What `save` wrote is there whatever happens to the process afterwards."""

    def __init__(self, path: Path, episode: str, place: str, told: Mapping[str, Any]):
        """Begin the episode anew, in the place of an earlier one that was the same.

        Raises:
            ValueError: the file is none of memories, or cannot be written.
        """
        self.path, self._episode = path, episode
        with _opened(path, create=True) as db, db:
            for table in ("episodes", "memories", "states"):
                db.execute(f"DELETE FROM {table} WHERE episode = ?", (episode,))
            db.execute("INSERT INTO episodes VALUES (?, ?, NULL, ?)", (episode, place, json.dumps(told)))

    def save(self, memory: Memory, day: int, warmed: bool = False) -> None:
        """Write what changed in the memory until the end of a day.

        Args:
            memory: whose `changed` is emptied.
            day: that is over.
            warmed: whether the warm-up ends with it.
        """
        names, state = list(memory.constants.layers), memory.state
        texts, states = [], []
        for k in sorted(memory.changed):
            place, known, since, base, based, merits = state[k].item()
            layer = None if place == FORGOTTEN else names[place]
            vector = memory.vector(k).astype("<i2").tobytes()
            texts.append((self._episode, k, known, memory.kinds[k], memory.texts[k], vector))
            states.append((self._episode, k, day, layer, since, base, based, merits))
        with _opened(self.path) as db, db:
            db.executemany("INSERT OR IGNORE INTO memories VALUES (?, ?, ?, ?, ?, ?)", texts)
            db.executemany("INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?, ?, ?, ?, ?)", states)
            if warmed:
                db.execute("UPDATE episodes SET warmed = ? WHERE episode = ?", (day, self._episode))
        memory.changed.clear()


def check(path: Path, create: bool = False) -> None:
    """Raise ValueError if this is no file of memories; with `create` one is made where there is none."""
    with _opened(path, create):
        pass


def warmed(path: Path, place: str) -> tuple[str, int, dict[str, Any]]:
    """The episode in a file whose warm-up knew what is to be known here, the last day of it, and how it was.

    Raises:
        ValueError: the file has none, or several.
    """
    with _opened(path) as db:
        found = db.execute("SELECT episode, warmed, told FROM episodes WHERE place = ? AND warmed NOTNULL", (place,))
        rows = sorted(found.fetchall())
        (there,) = db.execute("SELECT count(*) FROM episodes").fetchone()
    if not rows:
        rule = "the same stock, first day, seed, identity, items, constants, layers and embedding"
        raise ValueError(f"{path} holds {there} memories, and none that was warmed up for {rule}")
    ways = sorted({told for _, _, told in rows})
    if len(ways) > 1:
        raise ValueError(
            f"{path} holds memories that were warmed up in {len(ways)} ways ({', '.join(ways)}): name a file with one"
        )
    episode, day, told = rows[0]
    return episode, day, json.loads(told)


def load(path: Path, episode: str, day: int, into: Memory) -> None:
    """Fill an empty memory with what was remembered at the end of a day.

    Raises:
        ValueError: the file cannot be read.
    """
    names = list(into.constants.layers)
    with _opened(path) as db:
        rows = db.execute(AS_OF, (episode, day)).fetchall()
    for number, known, kind, text, vector, layer, *rest in rows:
        assert number == len(into)
        place = FORGOTTEN if layer is None else names.index(layer)
        since, base, based, merits = rest
        into.restore(kind, text, np.frombuffer(vector, "<i2"), (place, known, since, base, based, merits))
        into.changed.add(number)


def remembered(path: Path, day: int | None = None) -> Iterator[dict[str, Any]]:
    """Every memory of every episode in a file, as it stood at the end of a day, or last.

    Yields:
        episode, told, id, known, kind, text, layer (None: forgotten), since, base, based, merits.

    Raises:
        ValueError: the file cannot be read.
    """
    names = ("id", "known", "kind", "text", "vector", "layer", "since", "base", "based", "merits")
    with _opened(path) as db:
        for episode, told in db.execute("SELECT episode, told FROM episodes ORDER BY episode").fetchall():
            for row in db.execute(AS_OF, (episode, 2**31 if day is None else day)):
                kept = {name: value for name, value in zip(names, row, strict=True) if name != "vector"}
                yield {"episode": episode, "told": json.loads(told), **kept}


@contextmanager
def _opened(path: Path, create: bool = False) -> Iterator[sqlite3.Connection]:
    """A connection for one use: none is held from day to day, so that none is left to a fork or a forgotten agent.

    Raises:
        ValueError: the file is none of memories, or cannot be used.
    """
    try:
        if create:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # it may tell what somebody trades on
        elif not path.is_file():
            raise ValueError(f"There is no file {path} of memories")
        with closing(sqlite3.connect(path, timeout=30)) as db:
            db.execute("PRAGMA synchronous = OFF")  # safe against the end of a process, not of the power
            application, version, tables = db.execute(HEADER).fetchone()
            if create and not application and not tables:
                _make(db)
            elif (application, version) != (APPLICATION, SCHEMA):
                raise ValueError(f"{path} is no file of memories that this version reads; name another")
            yield db
    except (OSError, sqlite3.Error) as fault:
        raise ValueError(f"{path} cannot be used as a file of memories: {fault}") from None


def _make(db: sqlite3.Connection) -> None:
    tables = TABLES.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS")  # another process may be as far as this one
    header = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {SCHEMA};"
    db.executescript(f"BEGIN IMMEDIATE; {tables} {header} COMMIT;")
