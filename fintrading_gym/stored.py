"""An episode as rows of a board's tables, and back; and as the one line of text that two boards are compared by."""

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from fintrading_gym.errors import one_line
from fintrading_gym.ledger import Ledger
from fintrading_gym.recipes import dumps, key_of
from fintrading_gym.replies import Decision
from fintrading_gym.rollout import Episode

Row = dict[str, Any]

# Parts of rows, calls and days that tell of one run rather than of the board: two runs would never agree on them.
OF_THE_RUN = ("paid_usd", "cache_hits", "cached", "latency", "attempts")
# Columns of `episodes` that repeat the row, for readers in SQL.
REPEATED = ("agent", "world", "cell", "persona", "seed", "score", "failure")
LEDGER = tuple(f.name for f in fields(Ledger))
STEPS = f"day, {', '.join(LEDGER)}, decision, log"
OF_A_CALL = ("stage", "messages", "verdict", "failure")  # what is no part of the reply
EPISODE = f'INSERT INTO episodes (key, recipe, run, {", ".join(REPEATED)}, "row") VALUES (?{", ?" * 10})'
STEP, CALL = f"INSERT INTO steps VALUES (?{', ?' * 11})", f"INSERT INTO calls VALUES (?{', ?' * 12})"


class Damaged(ValueError):  # noqa: N818 - reads as a sentence where it is raised and caught
    """An episode that is not in the file as it was written."""


@dataclass(frozen=True)
class Stored:
    """One episode of a board, as it was written."""

    recipe: dict[str, Any]
    row: Row
    episode: Episode
    line: str  # all of it that does not tell of one run: JSON, a line of `fintrading export --jsonl`


# ------------------------------------------------------------------------------------------ writing


def insert(db: sqlite3.Connection, run: int, recipe: Mapping[str, Any], row: Row, episode: Episode) -> None:
    """Write an episode's rows, in the place of those of an earlier one with the same recipe."""
    key = key_of(recipe)
    db.execute("DELETE FROM episodes WHERE key = ?", (key,))
    told = [_sound(row[name]) for name in REPEATED]
    number = db.execute(EPISODE, (key, dumps(recipe), run, *told, dumps(row))).lastrowid
    assert number is not None
    db.executemany(STEP, _steps(number, episode))
    db.executemany(CALL, _calls(number, episode))
    # Of what is in the file, not of what was given: SQLite keeps -0.0 as 0.0, and JSON a tuple as a list.
    written = sha256_of(_line(*_parts(db, number)))
    db.execute("UPDATE episodes SET sha256 = ? WHERE id = ?", (written, number))


def _steps(number: int, episode: Episode) -> Iterator[tuple[Any, ...]]:
    for k in range(max(len(episode.ledger.date), len(episode.log))):
        played = k < len(episode.ledger.date)
        entry = [getattr(episode.ledger, name)[k] if played else None for name in LEDGER]
        decision = episode.decisions[k] if k < len(episode.decisions) else None
        log = None if k >= len(episode.log) else dumps(_apart(episode.log[k])[0])
        yield (number, k + 1, *entry, dumps(asdict(decision)) if decision else None, log)


def _calls(number: int, episode: Episode) -> Iterator[tuple[Any, ...]]:
    for day, entry in enumerate(episode.log, 1):
        for k, call in enumerate(_apart(entry)[1], 1):
            reply = {name: value for name, value in call.items() if name not in OF_A_CALL}
            usage: Any = reply.get("usage") if isinstance(reply.get("usage"), Mapping) else {}
            told = [None if name not in call else dumps(call[name]) for name in ("messages", "verdict")]
            counted = (usage.get("input"), usage.get("output"), *(reply.get(n) for n in ("cost", "latency", "cached")))
            yield (
                number, day, k, _sound(call.get("stage")), told[0], dumps(reply) if reply else None, told[1],
                _sound(call.get("failure")), *map(_sound, counted),
            )  # fmt: skip


def _apart(entry: Any) -> tuple[Any, Sequence[Mapping[str, Any]]]:
    """A day's entry without its calls, and these. An agent may keep anything of a day: then all of it is the entry."""
    calls = entry.get("calls") if isinstance(entry, Mapping) else None
    if not isinstance(calls, list | tuple) or not calls or not all(map(_is_call, calls)):
        return entry, ()
    return {name: value for name, value in entry.items() if name != "calls"}, calls


def _is_call(call: Any) -> bool:
    if not isinstance(call, Mapping) or "messages" not in call:
        return False
    return all(isinstance(call.get(name), str | None) for name in ("stage", "failure"))


def _sound(value: Any) -> Any:
    """A value as a column may hold it."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()  # half a surrogate pair is no UTF-8
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return float(value)
    return value if value is None or isinstance(value, bool | int | float) else dumps(value)


# ------------------------------------------------------------------------------------------ reading


def read(db: sqlite3.Connection, number: int) -> Stored:
    """An episode as it was written; its facts are columns of its row.

    Raises:
        Damaged: the file does not hold it as it was written.
    """
    try:
        recipe, row, days = _parts(db, number)
        line = _line(recipe, row, days)
        columns = f"SELECT sha256, key, {', '.join(REPEATED)} FROM episodes WHERE id = ?"
        written = [sha256_of(line), key_of(recipe), *(_sound(row[name]) for name in REPEATED)]
        if list(db.execute(columns, (number,)).fetchone()) != written:
            raise Damaged(f"{name_of(row)}: it is not what was written")
        return Stored(recipe, row, _episode(row, days), line)
    except Damaged:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, sqlite3.OperationalError) as fault:
        raise Damaged(f"episode {number}: it cannot be read ({one_line(fault)})") from None


def _parts(db: sqlite3.Connection, number: int) -> tuple[dict[str, Any], Row, list[dict[str, Any]]]:
    """The recipe, the row and the days."""
    recipe, row = db.execute('SELECT recipe, "row" FROM episodes WHERE id = ?', (number,)).fetchone()
    return json.loads(recipe), json.loads(row), _days(db, number)


def _days(db: sqlite3.Connection, number: int) -> list[dict[str, Any]]:
    """Each day: the ledger's entry, the decision, what the agent kept (no `log`: nothing), and its calls."""
    days = []
    for day, *entry, decision, log in db.execute(
        f"SELECT {STEPS} FROM steps WHERE episode = ? ORDER BY day", (number,)
    ):
        told = {"day": day, **dict(zip(LEDGER, entry, strict=True)), "decision": decision and json.loads(decision)}
        told["valid"] = None if told["valid"] is None else bool(told["valid"])
        days.append(told | ({} if log is None else {"log": json.loads(log)}) | {"calls": []})
    asked = f"SELECT day, {', '.join(OF_A_CALL)}, reply FROM calls WHERE episode = ? ORDER BY day, number"
    for day, stage, messages, verdict, failure, reply in db.execute(asked, (number,)):
        call = {} if stage is None else {"stage": stage}
        call |= {"messages": json.loads(messages), **json.loads(reply or "{}")}
        call |= {} if verdict is None else {"verdict": json.loads(verdict)}
        days[day - 1]["calls"].append(call | ({} if failure is None else {"failure": failure}))
    return days


def _line(recipe: Mapping[str, Any], row: Row, days: Sequence[Mapping[str, Any]]) -> str:
    told = []
    for day in days:
        kept = {name: _of_the_board(day[name]) for name in ("log",) if name in day}
        told.append({**day, **kept, "calls": [_of_the_board(call) for call in day["calls"]]})
    return dumps({"recipe": recipe, "row": _of_the_board(row), "steps": told}, sort_keys=True)


def _of_the_board(data: Any) -> Any:
    if not isinstance(data, Mapping):
        return data
    return {name: value for name, value in data.items() if name not in OF_THE_RUN}


def _episode(row: Row, days: Sequence[dict[str, Any]]) -> Episode:
    played = [day for day in days if day["date"] is not None]
    ledger = Ledger(**{name: tuple(day[name] for day in played) for name in LEDGER})
    decisions = tuple(None if day["decision"] is None else decision_of(day["decision"]) for day in played)
    log = [{"calls": day["calls"], **day["log"]} if day["calls"] else day["log"] for day in days if "log" in day]
    return Episode(ledger, decisions, row["score"], row["failure"], tuple(log), {}, row["identity"])


def decision_of(told: Mapping[str, Any]) -> Decision:
    """A decision as it was written."""
    lists: dict[str, Any] = {name: tuple(value) for name, value in told.items() if isinstance(value, list)}
    return Decision(**{**told, **lists})


def name_of(row: Mapping[str, Any]) -> str:
    """An episode for a message: agent, cell, and what else tells it from others."""
    told = [row["agent"], row["cell"], row["persona"], None if row["seed"] is None else f"seed {row['seed']}"]
    return ", ".join([part for part in told if part] + ([row["world"]] if row["world"] != "real" else []))


def sha256_of(line: str) -> str:
    """Of a line, as it is written to a file."""
    return hashlib.sha256(f"{line}\n".encode()).hexdigest()
