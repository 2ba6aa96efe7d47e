"""Memories in a file: what was written is there, as of every day, and for this version alone."""

import os
import sqlite3
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest

from fintrading_agents.memory import file
from fintrading_agents.memory.constants import CODE, PAPER
from fintrading_agents.memory.embeddings import Hashing
from fintrading_agents.memory.file import MemoryFile
from fintrading_agents.memory.store import Memory

HASHING = Hashing()


def lived(kept=None, days=12, constants=CODE):
    """A memory that lived some days: three new memories a day, one rewarded. With what it recalled each day."""
    memory, recalled = Memory(constants, tuple(constants.layers), HASHING.dimensions), []
    for day in range(days):
        if day:
            memory.reward([day - 1], day)
        memory.pass_to(day)
        for layer, kind in (("shallow", "news"), ("intermediate", "10-q"), ("deep", "10-k")):
            memory.add(kind, text := f"{kind} of day {day}", HASHING([text]).vectors[0], layer, day)
        recalled.append(memory.recall(HASHING(["news of the day"]).vectors[0], day, 3))
        if kept:
            kept.save(memory, day, warmed=day == days // 2)
    return memory, recalled


def reopened(path, day, constants=CODE, episode="episode"):
    memory = Memory(constants, tuple(constants.layers), HASHING.dimensions)
    file.load(path, episode, day, memory)
    return memory


def test_a_memory_stands_in_its_file_as_it_stood_on_each_day(tmp_path):
    path = tmp_path / "memory.sqlite"
    memory, recalled = lived(MemoryFile(path, "episode", "place", {}))
    assert memory.changed == set()
    for day, found in enumerate(recalled):
        again = reopened(path, day)
        assert again.recall(HASHING(["news of the day"]).vectors[0], day, 3) == found
    assert (again.state == memory.state).all()
    assert (again.texts, again.kinds) == (memory.texts, memory.kinds)


def test_a_memory_from_a_file_goes_on_as_if_it_had_never_left(tmp_path):
    path = tmp_path / "memory.sqlite"
    memory, _ = lived(MemoryFile(path, "episode", "place", {}))
    again = reopened(path, 11)
    for one in (memory, again):
        one.reward([30], 12)
        one.pass_to(12)
        one.add("news", "one more", HASHING(["one more"]).vectors[0], "shallow", 12)
    assert (again.state == memory.state).all()  # the importance of what is new is drawn the same


def test_the_file_outlives_the_process(tmp_path):
    path = tmp_path / "memory.sqlite"
    code = (
        "import os, sys; sys.path.insert(0, 'tests'); from test_memory_file import *; from pathlib import Path;"
        f"lived(MemoryFile(Path({str(path)!r}), 'episode', 'place', {{}})); os._exit(9)"  # without a farewell
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=300).returncode == 9
    assert (reopened(path, 11).state == lived()[0].state).all()


def test_the_same_episode_takes_the_place_of_the_one_before_and_others_stay(tmp_path):
    path = tmp_path / "memory.sqlite"
    lived(MemoryFile(path, "other", "place", {}))
    lived(MemoryFile(path, "episode", "place", {}))
    lived(MemoryFile(path, "episode", "place", {}), days=3)
    assert len(reopened(path, 99)) == 9
    assert len(reopened(path, 99, episode="other")) == 36


def test_several_episodes_may_write_at_once(tmp_path):
    path = tmp_path / "memory.sqlite"
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda k: lived(MemoryFile(path, f"episode {k}", "place", {}), days=4), range(8)))
    assert {len(reopened(path, 99, episode=f"episode {k}")) for k in range(8)} == {12}


def test_what_it_holds_can_be_read_by_day(tmp_path):
    path = tmp_path / "memory.sqlite"
    lived(MemoryFile(path, "episode", "place", {"model": "scripted/given"}))
    last = list(file.remembered(path))
    assert len(last) == 36
    assert last[0] == {
        "episode": "episode", "told": {"model": "scripted/given"}, "id": 0, "known": 0, "kind": "news",
        "text": "news of day 0", "layer": None, "since": last[0]["since"], "base": last[0]["base"],
        "based": last[0]["based"], "merits": 1,
    }  # fmt: skip
    assert [row["known"] for row in file.remembered(path, day=1)] == [0] * 3 + [1] * 3
    assert {row["layer"] for row in file.remembered(path, day=0)} == {"shallow", "intermediate", "deep"}


def test_what_was_warmed_up_is_found_by_its_place(tmp_path):
    path = tmp_path / "memory.sqlite"
    lived(MemoryFile(path, "episode", "place", {"top_k": 5}))
    MemoryFile(path, "not through", "place", {"top_k": 6})
    assert file.warmed(path, "place") == ("episode", 6, {"top_k": 5})
    with pytest.raises(ValueError, match="holds 2 memories, and none that was warmed up for the same stock"):
        file.warmed(path, "another place")
    lived(MemoryFile(path, "second", "place", {"top_k": 7}))
    with pytest.raises(ValueError, match=r'warmed up in 2 ways \({"top_k": 5}, {"top_k": 7}\): name a file'):
        file.warmed(path, "place")


def test_it_is_for_its_owner_alone(tmp_path):
    MemoryFile(tmp_path / "new/memory.sqlite", "episode", "place", {})
    assert stat.S_IMODE(os.stat(tmp_path / "new/memory.sqlite").st_mode) == 0o600


def test_another_file_is_refused_and_left_as_it_is(tmp_path):
    text, other, newer = tmp_path / "text", tmp_path / "other.sqlite", tmp_path / "newer.sqlite"
    text.write_text("no database, and long enough to be seen as none" * 9)
    with closing(sqlite3.connect(other)) as db, db:
        db.execute("CREATE TABLE mine (a)")
    MemoryFile(newer, "episode", "place", {})
    with closing(sqlite3.connect(newer)) as db, db:
        db.execute("PRAGMA user_version = 2")
    for path in (text, other, newer):
        before = path.read_bytes()
        with pytest.raises(ValueError, match=r"no file of memories that this|cannot be used as"):
            MemoryFile(path, "episode", "place", {})
        with pytest.raises(ValueError, match=r"no file of memories that this|cannot be used as"):
            file.check(path)
        assert path.read_bytes() == before
    with pytest.raises(ValueError, match=r"There is no file .*absent of memories"):
        file.check(tmp_path / "absent")
    with pytest.raises(ValueError, match="cannot be used as a file of memories"):
        MemoryFile(tmp_path, "episode", "place", {})
    assert not (tmp_path / "absent").exists()


def test_vectors_are_kept_to_the_bit(tmp_path):
    path = tmp_path / "memory.sqlite"
    memory = Memory(PAPER, tuple(PAPER.layers), 5)
    vector = np.array([-4000, 1, 0, -1, 4000], np.int16)
    memory.add("news", "text", vector, "deep", 0)
    MemoryFile(path, "episode", "place", {}).save(memory, 0)
    again = Memory(PAPER, tuple(PAPER.layers), 5)
    file.load(path, "episode", 0, again)
    assert again.vector(0).tolist() == vector.tolist()
