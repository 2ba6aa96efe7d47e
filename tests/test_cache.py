"""The file of replies: what it keeps, who may read it, and what it survives."""

import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import time

import pytest

from fintrading_agents.models.cache import Cache, key, key_within
from fintrading_agents.models.reply import Reply, Usage
from fintrading_gym.errors import RunStopped

OK = Reply('{"action": "buy"}', "ok", usage=Usage(3, 2, 1), latency=0.25, attempts=2, cost=0.1, sent={"seed": 1})

WRITER = """
import sys
from pathlib import Path
from fintrading_agents.models.cache import Cache
from fintrading_agents.models.reply import Reply

cache, name, count, mark = Cache(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3]), sys.argv[4]
for k in range(count):
    kept = cache.put(f"{name}{k}", Reply("x" * 2000 + mark, "ok"), replace=False)
    print(f"{name}{k}", kept.content[-1], flush=True)
"""


def writer(path, name, count, mark="-"):
    command = [sys.executable, "-c", WRITER, path, name, str(count), mark]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_reply_comes_back_as_it_was_and_marked(tmp_path):
    cache = Cache(tmp_path / "replies.sqlite")
    assert cache.put("a", OK, replace=False) is OK
    assert cache.get("a", any_outcome=False) == Reply.from_json(OK.as_json(), cached=True)
    assert cache.get("b", any_outcome=True) is None
    cache.close()


@pytest.mark.parametrize("outcome", ["empty", "truncated", "refused", "filtered"])
def test_a_reply_that_is_no_answer_is_kept_for_replay_alone_until_there_is_one(outcome, tmp_path):
    cache = Cache(tmp_path / "replies.sqlite")
    bad = Reply(None, outcome)
    cache.put("a", bad, replace=False)
    assert cache.get("a", any_outcome=False) is None
    assert cache.get("a", any_outcome=True).outcome == outcome
    cache.put("a", OK, replace=False)
    assert cache.get("a", any_outcome=False).content == OK.content
    assert cache.put("a", bad, replace=False).content == OK.content  # an answer is not lost again ...
    cache.put("a", bad, replace=True)
    assert cache.get("a", any_outcome=False) is None  # ... but where every reply is to be renewed
    cache.close()


def test_what_an_episode_got_instead_of_an_answer_is_there_until_it_ends_and_then_for_replay_alone(tmp_path):
    cache, bad = Cache(tmp_path / "replies.sqlite"), Reply(None, "refused")
    names = {key_within(name, who, turn) for name in "ab" for who in ("one", "other") for turn in (0, 1)}
    assert len(names) == 8
    own, *others = sorted(names)
    cache.put_unfinished(own, bad)
    assert cache.get_unfinished(own).outcome == "refused"
    assert not any(cache.get(name, any_outcome=True) or cache.get_unfinished(name) for name in (*others, "a", "b"))
    cache.finish([own])
    assert cache.get_unfinished(own) is None
    assert cache.get(own, any_outcome=False) is None
    assert cache.get(own, any_outcome=True).outcome == "refused"
    cache.drop(own)
    cache.drop(own)
    assert cache.get(own, any_outcome=True) is None
    cache.close()


def test_the_first_of_two_answers_stays_and_both_askers_get_it(tmp_path):
    one, two = Cache(tmp_path / "replies.sqlite"), Cache(tmp_path / "replies.sqlite")
    one.put("a", OK, replace=False)
    kept = two.put("a", Reply("other", "ok"), replace=False)
    assert (kept.content, kept.cached) == (OK.content, True)
    one.close()
    two.close()


def test_a_disk_that_is_full_ends_the_run_before_more_is_paid_for(tmp_path):
    cache = Cache(tmp_path / "replies.sqlite")
    cache.put("first", OK, replace=False)
    (pages,) = cache._file.execute("PRAGMA page_count").fetchone()
    cache._file.execute(f"PRAGMA max_page_count = {pages}")
    told = r"the cache .*replies.sqlite cannot be written \(database or disk is full\)"
    with pytest.raises(RunStopped, match=told):  # noqa: PT012 - which of them fills it hangs on the size of a page
        for k in range(1000):
            cache.put(str(k), OK, replace=False)
    assert cache.get("first", any_outcome=False).content == OK.content
    cache.close()


def test_the_file_is_its_owners_alone(tmp_path):
    path = tmp_path / "new" / "replies.sqlite"
    before = os.umask(0)
    try:
        cache = Cache(path)
        cache.put("a", OK, replace=False)
        files = sorted(path.parent.iterdir())
        assert len(files) == 3  # the file, its journal and the journal's index
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        cache.close()
    finally:
        os.umask(before)


def test_a_file_that_others_could_read_is_its_owners_alone_from_now_on(tmp_path):
    path = tmp_path / "replies.sqlite"
    path.touch()
    path.chmod(0o644)
    Cache(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_replay_only_reads_so_that_a_published_file_may_be_read_only(tmp_path):
    path = tmp_path / "a file?.sqlite"
    cache = Cache(path)
    cache.put("a", OK, replace=False)
    cache.close()
    before = path.read_bytes()
    path.chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        published = Cache(path, create=False)
        assert published.get("a", any_outcome=True).content == OK.content
        with pytest.raises(RunStopped, match="readonly"):
            published.put("b", OK, replace=False)
        published.close()
    finally:
        tmp_path.chmod(0o755)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (before, 0o444)
    assert list(tmp_path.iterdir()) == [path]


def test_a_replay_sees_what_a_run_that_is_under_way_has_kept(tmp_path):
    path = tmp_path / "replies.sqlite"
    writing = Cache(path)
    writing.put("a", OK, replace=False)
    reading = Cache(path, create=False)
    assert reading.get("a", any_outcome=True).content == OK.content
    reading.close()
    writing.close()


def test_a_key_does_not_depend_on_the_order_in_which_a_request_is_written():
    assert key("http://x/v1", {"a": 1, "b": {"c": 2, "d": 3}}, 0) == key(
        "http://x/v1", {"b": {"d": 3, "c": 2}, "a": 1}, 0
    )
    assert key("http://x/v1", {"a": 1}, 0) != key("http://x/v1", {"a": 1}, 1)
    assert key("http://x/v1", {"a": 1}, 0) != key("http://y/v1", {"a": 1}, 0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.write_bytes(b"no database" * 200), "file is not a database"),
        (lambda path: path.mkdir(), "directory"),
        (lambda path: sqlite3.connect(path).execute("PRAGMA user_version = 9").connection.close(), "of schema 9"),
    ],
)
def test_a_file_that_is_no_cache_is_told_and_left_alone(make, words, tmp_path):
    path = tmp_path / "replies.sqlite"
    make(path)
    before = path.is_file() and path.read_bytes()
    with pytest.raises((ValueError, OSError), match=words) as fault:
        Cache(path)
    assert str(path) in str(fault.value)
    assert (path.is_file() and path.read_bytes()) == before


def test_no_finished_call_is_lost_when_its_writer_is_killed(tmp_path):
    path, chance, told = tmp_path / "replies.sqlite", random.Random(1), []
    for round_ in range(8):
        process = writer(path, f"{round_}.", 100_000)
        first = [process.stdout.readline() for _ in range(16)]
        time.sleep(chance.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        # What was told before the end; a torn last line was not told.
        lines = [*first, *process.stdout.read().splitlines(keepends=True)]
        told += [line.split()[0] for line in lines if line.endswith("\n")]
        process.wait()
        process.stdout.close()
    assert len(told) >= 8 * 16
    cache = Cache(path)
    assert all(cache.get(name, any_outcome=False).content[:2000] == "x" * 2000 for name in told)
    cache.close()
    check = sqlite3.connect(path)
    assert check.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    check.close()


def test_two_processes_write_to_one_file_and_see_the_same_answers(tmp_path):
    path, count = tmp_path / "replies.sqlite", 300
    both = [writer(path, name, count) for name in "ab"]
    shared = [writer(path, "s", count, mark) for mark in "yz"]
    told = [process.communicate(timeout=600)[0].splitlines() for process in both + shared]
    assert [process.returncode for process in both + shared] == [0] * 4
    assert told[2] == told[3]  # one of the two was first for each call, and both were given its answer
    cache = Cache(path)
    assert all(cache.get(f"{name}{k}", any_outcome=False) for name in "abs" for k in range(count))
    cache.close()
