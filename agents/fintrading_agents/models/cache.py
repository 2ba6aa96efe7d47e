"""Replies that were paid for once, in one SQLite file that several processes may share."""

import hashlib
import json
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fintrading_agents.models.reply import Reply
from fintrading_gym.errors import RunStopped

SCHEMA = 1  # of the tables below, and of what a key is made from

MODES = {
    "readwrite": "a reply that is there is used, another is paid for and kept",
    "refresh": "every reply is paid for again and replaces what is there",
    "replay": "only what is there; what is not is an error, and no request is made",
    "off": "nothing is read or kept",
}

# One row a call. A reply that is not "ok" (empty, cut, refused, filtered) is kept too, so that a board with such days
# comes out the same again; it is replaced by an answer to the same call in the run that bought it.
TABLES = """
CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, outcome TEXT NOT NULL, reply TEXT NOT NULL) WITHOUT ROWID;
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
        self._file = sqlite3.connect(uri, uri=True, timeout=30, isolation_level=None, check_same_thread=False)
        try:
            (schema,) = self._file.execute("PRAGMA user_version").fetchone()
            if schema not in ((0, SCHEMA) if create else (SCHEMA,)):
                raise ValueError(
                    f"{path} is a cache of schema {schema}; this version reads {SCHEMA}: name another file"
                )
            if not create:
                return
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = NORMAL")  # safe against the end of a process, not of the power
            self._file.executescript(TABLES + f"PRAGMA user_version = {SCHEMA};")
        except (sqlite3.DatabaseError, ValueError) as fault:
            self._file.close()
            if isinstance(fault, ValueError):
                raise
            raise ValueError(f"{path} cannot be used as a cache: {fault}") from None

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
        try:
            self._file.execute(PUT, {"key": name, "outcome": reply.outcome, "reply": written, "replace": replace})
        except sqlite3.Error as fault:  # what is paid for from now on would be lost
            raise RunStopped(f"the cache {self.path} cannot be written ({fault})") from None
        (kept,) = self._file.execute("SELECT reply FROM replies WHERE key = ?", (name,)).fetchone()
        return reply if kept == written else Reply.from_json(json.loads(kept), cached=True)

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
