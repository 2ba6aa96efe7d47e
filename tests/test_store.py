"""A board in a file: what is written comes back, and what is no board, or no whole one, is refused in one line."""

import ctypes
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from fintrading_gym import leaderboard as board
from fintrading_gym import store
from fintrading_gym.errors import RunStopped
from fintrading_gym.recipes import key_of
from fintrading_gym.rollout import Player, Task, find_player
from fintrading_gym.schema import SCHEMA
from fintrading_gym.store import StoreError, digest, episodes, rows, writing

TASKS = [Task("tsla_main", timesteps=5), Task("spy_bear_2022", timesteps=5)]
LLM = "llm:scripted/momentum"


def filled(path, *names, tasks=TASKS):
    """How many episodes were played."""
    players = [find_player(name) if isinstance(name, str) else name for name in names]
    with writing(path, {}) as kept:
        _, lacking = board.begin(kept, board.plan(players, tasks))
        board.fill(kept, lacking)
    return len(lacking)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A board's file, to be copied."""
    path = tmp_path_factory.mktemp("made") / "board.db"
    filled(path, "flat", LLM)
    return path


@pytest.fixture
def path(made, tmp_path):
    """A copy of it."""
    (tmp_path / "board.db").write_bytes(made.read_bytes())
    return tmp_path / "board.db"


def changed(path, statement, *values):
    """The file, changed behind our back."""
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement, values)
    connection.close()


# ---------------------------------------------------------------------------------- what is played


def test_a_board_plays_only_what_it_lacks(tmp_path):
    path = tmp_path / "board.db"
    assert filled(path, "flat", "momentum") == 4
    assert filled(path, "flat", "momentum") == 0
    assert filled(path, "flat", "momentum", "random") == 2
    assert [(row["agent"], row["cell"]) for row in rows(path)] == [
        (agent, cell) for agent in ("flat", "momentum", "random") for cell in ("spy_bear_2022", "tsla_main")
    ]


def test_an_agent_played_anew_has_its_episodes_of_these_tasks_forgotten_first(path):
    flat = find_player("flat")
    with writing(path, {}) as kept:
        _, lacking = board.begin(kept, board.plan([flat, find_player(LLM)], TASKS[:1]), [flat])
        assert lacking == [(flat, TASKS[0])]
        assert [(row["agent"], row["cell"]) for row in kept.rows()] == [
            ("flat", "spy_bear_2022"),
            (LLM, "spy_bear_2022"),
            (LLM, "tsla_main"),
        ]


def test_what_is_read_is_what_was_played(path):
    for stored in list(episodes(path))[2:]:
        task = Task(**stored.recipe["task"] | {"persona": "adaptive", "seed": 0})
        row, played = board.played(find_player(LLM), task)
        assert stored.row == json.loads(json.dumps(row))
        assert replace(played, facts={}, log=()) == replace(stored.episode, log=())
        assert json.loads(json.dumps(played.log)) == list(stored.episode.log)
    assert next(episodes(path)).episode.log == ()  # a rule keeps none


def test_an_episode_that_failed_keeps_its_days_and_is_played_again(tmp_path):
    def breaks(task):
        class Breaking:
            log = []  # noqa: RUF012

            def __call__(self, observation):
                self.log.append({"calls": [], "thought": len(self.log)})
                if len(self.log) == 3:
                    raise RuntimeError("no more")
                return 2

        return Breaking()

    path, player = tmp_path / "board.db", Player("breaks", breaks)
    with writing(path, {}) as kept:
        board.fill(kept, [(player, TASKS[0])])
        assert board.lacking(kept, [(player, TASKS[0])]) == [(player, TASKS[0])]
    (stored,) = episodes(path)
    assert (stored.episode.failure, stored.row["score"]) == ("day 3: RuntimeError: no more", None)
    assert stored.episode.ledger.action == (2, 2)
    assert [day["thought"] for day in stored.episode.log] == [0, 1, 2]
    assert filled(path, Player("breaks", find_player("flat").factory), tasks=TASKS[:1]) == 1
    assert [row["failure"] for row in rows(path)] == [None]


def test_an_agent_of_other_code_takes_the_place_of_the_one_of_its_name(tmp_path, monkeypatch):
    path = tmp_path / "board.db"
    monkeypatch.syspath_prepend(tmp_path)
    agents = []
    for action in (0, 2):
        (tmp_path / f"version{action}.py").write_text(f"def mine(task):\n    return lambda observation: {action}\n")
        agents.append(replace(find_player(f"version{action}:mine"), name="mine:agent"))
    first, second = agents
    filled(path, first, "flat")
    before = digest(path)
    with writing(path, {}) as kept:
        moved, lacking = board.begin(kept, board.plan([second], TASKS[:1]))
        assert (moved, lacking) == (2, [(second, TASKS[0])])  # of the other task, too: it was another agent
        board.fill(kept, lacking)
    assert [(row["agent"], row["buy_share"]) for row in rows(path)] == [("flat", 0), ("flat", 0), ("mine:agent", 1)]
    assert filled(path, first) == 0  # it is still there
    assert digest(path) == before
    (tried,) = sqlite3.connect(path).execute("SELECT count(DISTINCT recipe ->> 'code') FROM episodes").fetchone()
    assert tried == 3


def test_what_is_set_aside_is_in_the_file_and_not_on_the_board(path):
    with writing(path, {}) as board:
        first, *others = map(key_of, board.recipes())
        board.set_aside([first])
        assert board.aside() == {first}
        assert {key_of(recipe) for recipe in board.recipes()} == {first, *others}
    assert len(rows(path)) == len(others)
    with writing(path, {}) as board:
        board.set_aside([first])  # again: the run that did it first is kept
    noted = sqlite3.connect(path).execute("SELECT DISTINCT aside FROM episodes WHERE aside IS NOT NULL").fetchall()
    assert noted == [(2,)]


def test_other_prices_of_a_cell_take_the_place_of_those_before(tmp_path):
    from conftest import two_futures

    path, (one, other) = tmp_path / "board.db", two_futures(tmp_path)
    filled(path, "flat", "momentum", tasks=[Task(one, timesteps=5)])
    Path(one.partition(":")[0]).write_bytes(Path(other.partition(":")[0]).read_bytes())
    filled(path, "flat", tasks=[Task(one, timesteps=5)])
    assert [(row["agent"], row["data_sha256"]) for row in rows(path)] == [
        ("flat", Task(one).window.load().sha256)
    ]  # momentum was played on another market


def test_an_agent_with_other_options_is_named_by_them():
    llm = find_player(LLM)
    assert replace(llm, options={"context": "last", "in_flight": 3}).label == LLM
    assert replace(llm, options={"context": "full"}).label == f"{LLM} [context=full]"


def test_a_run_and_how_it_ended_are_noted(tmp_path):
    with writing(tmp_path / "board.db", {"agents": ["flat"], "tasks": [asdict(TASKS[0])]}) as kept:
        kept.end("finished")
    (run,) = sqlite3.connect(tmp_path / "board.db").execute("SELECT outcome, settings FROM runs").fetchall()
    assert run[0] == "finished"
    assert json.loads(run[1])["agents"] == ["flat"]


# ------------------------------------------------------------------------------- who else is there


def test_a_second_writer_is_refused_and_a_reader_is_not(path):
    with writing(path, {}):
        with pytest.raises(StoreError, match=r"board.db: another process writes it; wait for it, or give another"):
            writing(path, {}).__enter__()
        assert len(rows(path)) == 4


def test_a_reader_does_not_hold_up_the_writer(path, monkeypatch):
    monkeypatch.setattr(store, "PATIENCE", 0.0)
    reading = episodes(path)
    next(reading)
    assert filled(path, "momentum") == 2
    assert len(list(reading)) == 3  # of the board as it was


def test_what_is_being_written_is_not_seen_by_a_reader_before_it_is_whole(path):
    with writing(path, {}) as kept:
        kept._db.execute("DELETE FROM episodes")
        assert len(rows(path)) == 4
        kept._db.rollback()


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_a_writer_killed_while_it_writes_leaves_the_board_as_it_was(path):
    code = (
        "import os, signal, sqlite3, sys; db = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "db.execute('PRAGMA cache_size = 1'); db.execute('BEGIN'); db.execute('DELETE FROM steps');"
        'db.execute("UPDATE episodes SET recipe = hex(zeroblob(200000))"); os.kill(os.getpid(), signal.SIGKILL)'
    )
    before, size = digest(path), path.stat().st_size
    done = subprocess.run([sys.executable, "-c", code, path])
    assert done.returncode == -signal.SIGKILL
    assert path.stat().st_size > size  # half of it is in the file already
    assert path.with_name("board.db-journal").exists()
    assert digest(path) == before
    assert filled(path, "flat", LLM) == 0


# --------------------------------------------------------------------------------- what is no board


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda path: path.write_text("agent,score\nflat,0.7\n" * 100), r"is no board \(file is not a database\)"),
        (lambda path: path.unlink() or path.mkdir(), "is a folder; give a file in it"),
        (lambda path: path.unlink() or changed(path, "CREATE TABLE t (x)"), "is a database, but no board"),
        (lambda path: changed(path, "PRAGMA user_version = 7"), "is a board of schema 7, and this version reads 1"),
        (lambda path: changed(path, "PRAGMA user_version = 0"), "is a board of schema 0, and this version reads 1"),
        (lambda path: os.truncate(path, path.stat().st_size // 2), "is damaged"),
        (lambda path: os.truncate(path, 50), "is damaged"),
    ],
    ids=["a text", "a folder", "another database", "a newer schema", "an older one", "half of it", "its first bytes"],
)
def test_what_is_no_board_is_refused_in_one_line_and_left_as_it_is(path, make, told):
    make(path)
    before = path.is_file() and path.read_bytes()
    with pytest.raises(StoreError, match=told) as refused:
        writing(path, {}).__enter__()
    assert "\n" not in str(refused.value)
    assert before == (path.is_file() and path.read_bytes())
    with pytest.raises(StoreError):
        rows(path)


def test_a_board_that_is_not_there_is_no_empty_one(tmp_path):
    with pytest.raises(StoreError, match="There is no board"):
        rows(tmp_path / "board.db")
    assert not (tmp_path / "board.db").exists()
    with pytest.raises(StoreError, match="there is no folder"):
        writing(tmp_path / "nowhere" / "board.db", {}).__enter__()


def test_a_file_with_flipped_bytes_is_refused_or_is_the_same_board(path):
    """Never another board, and never anything but one line."""
    whole, right = path.read_bytes(), digest(path)
    chance, refused = random.Random(0), []
    for _ in range(60):
        damaged = bytearray(whole)
        for place in chance.sample(range(100, len(whole)), 3):
            damaged[place] ^= chance.randrange(1, 256)
        path.write_bytes(damaged)
        try:
            found = digest(path)
        except StoreError as fault:
            refused.append(str(fault))
            with pytest.raises(StoreError):
                writing(path, {}).__enter__()
            assert path.read_bytes() == damaged
        else:
            assert found == right  # in a place where nothing is written
    assert len(refused) > 30
    assert [line for line in refused if "\n" in line] == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE episodes SET score = score + 1e-9 WHERE id = 3",
        "UPDATE episodes SET agent = 'better' WHERE id = 3",
        "UPDATE episodes SET key = 'k' WHERE id = 3",
        "UPDATE episodes SET recipe = json_set(recipe, '$.version', '9') WHERE id = 3",
        'UPDATE episodes SET "row" = json_set("row", \'$.luck\', 0.0) WHERE id = 3',
        "UPDATE episodes SET \"row\" = '{' WHERE id = 3",
        "UPDATE steps SET action = 2 - action WHERE episode = 3 AND day = 1",
        "UPDATE steps SET decision = NULL WHERE episode = 3 AND day = 1",
        "DELETE FROM steps WHERE episode = 3 AND day = 5",
        "DELETE FROM steps WHERE episode = 3 AND day = 1",
        "UPDATE calls SET messages = '[]' WHERE episode = 3 AND day = 1",
        "UPDATE calls SET reply = json_set(reply, '$.content', 'sell') WHERE episode = 3 AND day = 1",
        "DELETE FROM calls WHERE episode = 3 AND day = 5",
    ],
)
def test_an_episode_that_was_changed_in_its_place_is_told_by_name_and_the_others_can_be_read(path, statement):
    changed(path, statement)
    with pytest.raises(StoreError, match=r"is damaged: (llm:scripted/momentum, |episode 3: )"):
        rows(path)
    damaged = []
    assert len(list(episodes(path, damaged.append))) == 3
    assert len(damaged) == 1


def test_what_tells_of_one_run_alone_is_no_part_of_the_digest(path):
    before = digest(path)
    changed(path, "UPDATE calls SET latency = 9, cached = 1, reply = json_set(reply, '$.latency', 9, '$.cached', 1)")
    changed(path, "UPDATE episodes SET \"row\" = json_set(\"row\", '$.cache_hits', 9, '$.paid_usd', 9), run = 1")
    changed(path, "UPDATE runs SET started = '', settings = '{}', machine = ''")
    assert digest(path) == before


def test_the_digest_does_not_depend_on_the_order_of_playing(path, tmp_path):
    for order in (("flat", LLM), (LLM, "flat")):
        again = tmp_path / f"{order[0][0]}.db"
        for name in order:
            for task in TASKS[:: -1 if name == "flat" else 1]:
                filled(again, name, tasks=[task])
        assert digest(again) == digest(path)


# ------------------------------------------------------------------------------ where it is written


@pytest.mark.parametrize(
    "name", ["bo?ard #1 100%.db", "bücher.db", "a'b\"c.db", "file:x.db", ":memory:", "-x.db", "two\nlines.db", "%20.db"]
)
def test_a_file_may_have_any_name(tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert filled(Path(name), "flat") == 2
    assert filled(tmp_path / name, "flat") == 0
    assert len(rows(Path(name))) == 2
    assert {entry.name for entry in tmp_path.iterdir()} == {name, f"{name}.lock"}
    Path(name).write_text("no board")
    with pytest.raises(StoreError) as refused:
        rows(Path(name))
    assert "\n" not in str(refused.value)


def test_a_disk_that_is_full_ends_the_run_and_what_was_written_stays(path):
    before = digest(path)
    with writing(path, {}) as kept:
        (pages,) = kept._db.execute("PRAGMA page_count").fetchone()
        kept._db.execute(f"PRAGMA max_page_count = {pages}")
        tasks = [Task(cell, timesteps=None) for cell in ("tsla_main", "nvda_bull_2023")]
        lacking = board.lacking(kept, board.plan([find_player("momentum")], tasks))
        with pytest.raises(RunStopped, match=r"cannot be written \(database or disk is full\); what was finished is"):
            board.fill(kept, lacking)
        kept.end("the disk is full")  # what cannot be noted is no second fault
        assert kept.contents() == (rows(path), before)
    assert digest(path) == before
    assert filled(path, "momentum", tasks=tasks) == 2


def as_a_user(code, *words):
    """A script's run, without root's right to write what is read-only."""

    def without_rights():
        if os.geteuid() == 0:
            dropped = ctypes.CDLL(None, use_errno=True).prctl(24, 1)  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE
            assert dropped == 0

    words = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(words, capture_output=True, text=True, preexec_fn=without_rights, cwd="/")


@pytest.mark.skipif(sys.platform != "linux", reason="rights as Linux has them")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_is_read_only_is_read_and_refused_to_writers_in_one_line(path, what):
    target = path if what == "file" else path.parent
    target.chmod(target.stat().st_mode & ~0o222)
    code = (
        "import sys; from pathlib import Path; from fintrading_gym.store import *; path = Path(sys.argv[1])\n"
        "print(len(rows(path)))\n"
        "try:\n    writing(path, {}).__enter__()\nexcept StoreError as fault:\n    print(fault)"
    )
    done = as_a_user(code, path)
    target.chmod(target.stat().st_mode | 0o200)
    count, line = done.stdout.splitlines()
    assert (count, done.stderr) == ("4", "")
    assert "cannot be written by this user" in line


def test_the_schema_is_the_one_that_files_have(path):
    found = sqlite3.connect(path).execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    assert [text.split() for (text,) in found] == [f"CREATE TABLE {part}".split() for part in _tables(SCHEMA)]


def _tables(script):
    return [part.strip().rstrip(";") for part in script.split("CREATE TABLE ")[1:]]
