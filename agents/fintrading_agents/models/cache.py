"""Replies that were paid for once, in one SQLite file that several processes may share."""

import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fintrading_agents.models.reply import Reply
from fintrading_gym.errors import RunStopped

PATIENCE = 30.0  # seconds for which another process may hold the file
SCHEMA = 1  # of the tables below, and of what a key is made from

MODES = {
    "readwrite": "an answer that is there is used, another is paid for and kept; see `TABLES` for what is no answer",
    "refresh": "every reply is paid for again and replaces what is there",
    "replay": "only what is there; what is not is an error, and no request is made",
    "off": "nothing is read or kept",
}

# One row a call. A reply that is not "ok" (empty, cut, refused, filtered) is no answer to its call, and never given as
# one. It is kept under a name of its own, which only the episode that got it asks for: in a replay; and while
# `unfinished` names it, for then the episode was interrupted, and is to go on as it began.
TABLES = """
CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, outcome TEXT NOT NULL, reply TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS unfinished (key TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS endpoints (key TEXT PRIMARY KEY, quirks TEXT NOT NULL) WITHOUT ROWID;
"""
PUT = """
INSERT INTO replies VALUES (:key, :outcome, :reply) ON CONFLICT (key) DO UPDATE
SET outcome = :outcome, reply = :reply WHERE :replace OR replies.outcome <> 'ok'
"""


def key(endpoint: str, body: Mapping[str, Any], sample: int) -> str:
    """The name of a call: sha256 of all that can change its answer, and nothing else.

    Args:
        endpoint: who answers; the URL, without what an account is known by.
        body: the request as it is wished: model, messages, sampling, shape.
        sample: the number of this answer among those to the same request.
    """
    named = {"schema": SCHEMA, "endpoint": endpoint, "body": body, "sample": sample}
    return hashlib.sha256(json.dumps(named, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def key_within(name: str, episode: str, turn: int) -> str:
    """The name under which an episode's reply is kept that is no answer.

    Args:
        name: of the call, as `key` gives it.
        episode: which one it is, whoever plays it and whenever.
        turn: how often it got a reply to the same call before.
    """
    return hashlib.sha256(json.dumps([name, episode, turn]).encode()).hexdigest()


class Cache:
    """The file. What `put` has returned is there whatever happens to the process afterwards."""

    def __init__(self, path: Path, create: bool = True):
        """Open the file, or make it, readable by its owner alone; without `create` it is read and never written.

        Raises:
            ValueError: the file is no cache, or of another schema, or missing and not to be made.
        """
        self.path = path
        if create:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            path.chmod(0o600)  # if it was there, too
        elif not path.is_file():
            raise ValueError(f"There is no cache {path}; name the file that the run was recorded in")
        # In autocommit each call is safe at once. Threads take turns on the model's event loop.
        uri = path.absolute().as_uri() + ("" if create else "?mode=ro")
        # SQLite wants to write beside a file with a journal, even to read it; without a journal it need not.
        if not create and not path.with_name(path.name + "-wal").exists():
            uri += "&immutable=1"
        self._file = sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
        try:
            (schema,) = self._file.execute("PRAGMA user_version").fetchone()
            if schema not in ((0, SCHEMA) if create else (SCHEMA,)):
                raise ValueError(
                    f"{path} is a cache of schema {schema}; this version reads {SCHEMA}: name another file"
                )
            if not create:
                return
            self._go_wal()
            self._file.execute("PRAGMA synchronous = NORMAL")  # safe against the end of a process, not of the power
            self._file.executescript(TABLES + f"PRAGMA user_version = {SCHEMA};")
        except (sqlite3.DatabaseError, ValueError) as fault:
            self._file.close()
            if isinstance(fault, ValueError):
                raise
            raise ValueError(f"{path} cannot be used as a cache: {fault}") from None

    def _go_wal(self) -> None:
        """SQLite itself does not wait for another process that does the same to a new file."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                self._file.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as fault:
                if fault.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
                time.sleep(0.01)

    def get(self, name: str, *, any_outcome: bool) -> Reply | None:
        """The reply kept under a key; of one that is not "ok" only with `any_outcome`."""
        row = self._file.execute("SELECT outcome, reply FROM replies WHERE key = ?", (name,)).fetchone()
        if row is None or (row[0] != "ok" and not any_outcome):
            return None
        return Reply.from_json(json.loads(row[1]), cached=True)

    def put(self, name: str, reply: Reply, *, replace: bool) -> Reply:
        """Keep a reply, and return what is kept: another process's, where that was first and `replace` is not set.

        Raises:
            RunStopped: the file cannot be written any more.
        """
        written = json.dumps(reply.as_json())
        self._write(PUT, {"key": name, "outcome": reply.outcome, "reply": written, "replace": replace})
        (kept,) = self._file.execute("SELECT reply FROM replies WHERE key = ?", (name,)).fetchone()
        return reply if kept == written else Reply.from_json(json.loads(kept), cached=True)

    def put_unfinished(self, name: str, reply: Reply) -> None:
        """Keep a reply that is no answer, under a name of `key_within`.

        Raises:
            RunStopped: the file cannot be written any more.
        """
        self._write("INSERT OR IGNORE INTO unfinished VALUES (?)", (name,))  # without a reply it names nothing
        self.put(name, reply, replace=True)

    def get_unfinished(self, name: str) -> Reply | None:
        """The reply kept under a name of `key_within`, if its episode did not come to its end."""
        found = self._file.execute("SELECT 1 FROM unfinished WHERE key = ?", (name,)).fetchone()
        return self.get(name, any_outcome=True) if found else None

    def finish(self, names: Iterable[str]) -> None:
        """What is kept under these names is for replays from now on: the episode, or the run, came to its end."""
        for name in names:
            self._write("DELETE FROM unfinished WHERE key = ?", (name,))

    def drop(self, name: str) -> None:
        """Forget what is kept under a name, if anything is: it was asked for again, and answered."""
        if self._file.execute("SELECT 1 FROM replies WHERE key = ?", (name,)).fetchone():
            self._write("DELETE FROM replies WHERE key = ?", (name,))

    def _write(self, statement: str, row: Any) -> None:
        try:
            self._file.execute(statement, row)
        except sqlite3.Error as fault:  # what is paid for from now on would be lost
            raise RunStopped(f"the cache {self.path} cannot be written ({fault})") from None

    def quirks(self, endpoint: str, model: str) -> dict[str, Any] | None:
        """What was learnt of a model at an endpoint, or None where it was never asked."""
        named = json.dumps([endpoint, model])
        row = self._file.execute("SELECT quirks FROM endpoints WHERE key = ?", (named,)).fetchone()
        return None if row is None else dict(json.loads(row[0]))

    def put_quirks(self, endpoint: str, model: str, quirks: Mapping[str, Any]) -> None:
        """Remember it."""
        row = (json.dumps([endpoint, model]), json.dumps(quirks))
        self._file.execute("INSERT OR REPLACE INTO endpoints VALUES (?, ?)", row)

    def close(self) -> None:
        """Close the file; SQLite folds its journal into it."""
        self._file.close()
