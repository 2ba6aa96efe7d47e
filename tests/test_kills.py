"""A board that is killed at any moment: what was finished is there, and what was answered is not asked again."""

import json
import os
import random
import re
import resource
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from conftest import KEY
from stub_endpoint import Stub, says

from fintrading_gym.export import as_tables, copied, write_csv
from fintrading_gym.store import digest, episodes, rows

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals")

FINTRADING = Path(sys.executable).with_name("fintrading")
BOARD = ("leaderboard", "--agents", "flat,momentum,llm:openai/stub", "--cells", "tsla_main,spy_bear_2022")
BOARD += ("--seeds", 1, "--timesteps", 12, "--structured", "none", "--out", "board.db")
# One writer after the other, each adding episodes until it is killed: what it said was written must be there, whole.
WRITERS = """
import itertools, os, random, select, signal, sys, time
from pathlib import Path
from fintrading_gym.leaderboard import as_row
from fintrading_gym.recipes import recipe_of
from fintrading_gym.rollout import Task, find_player
from fintrading_gym.store import digest, rows, writing

path, player, chance = Path(sys.argv[1]), find_player("random"), random.Random(int(sys.argv[2]))
task = Task(timesteps=40)
episode = player.play(task)
row = as_row(player, task, episode)
written = set()
for k in range(int(sys.argv[3])):
    reading, writing_end = os.pipe()
    child = os.fork()
    if not child:
        with writing(path, {}) as kept:
            for seed in itertools.count(1000 * k):
                kept.add(recipe_of(player, Task(timesteps=40, seed=seed)), row | {"seed": seed}, episode)
                os.write(writing_end, b"%d\\n" % seed)
    os.close(writing_end)
    with os.fdopen(reading, "rb") as told:
        written.add(int(told.readline()))  # it has begun
        time.sleep(chance.uniform(0, 0.05))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        written |= {int(line) for line in told.read().splitlines()}
    found = {row["seed"] for row in rows(path)}
    assert written <= found, written - found
print(len(found), "episodes,", digest(path))
"""


def environment(folder):
    return {**os.environ, "OPENAI_API_KEY": KEY, "FINTRADING_CACHE": str(folder / "cache"), "COLUMNS": "200"}


def started(folder, url, *more, **how):
    """The command, under way."""
    folder.mkdir(exist_ok=True)
    words = [FINTRADING, *map(str, BOARD), "--base-url", url, *map(str, more)]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, cwd=folder, env=environment(folder), stdout=pipe, stderr=pipe, text=True, **how)


def finished(folder, url, *more, code=0, **how):
    """What it printed."""
    process = started(folder, url, *more, **how)
    out, err = process.communicate(timeout=600)
    assert process.returncode == code, out + err
    assert KEY not in out + err
    return out, err


def exported(folder):
    """The board's canonical files."""
    tables = as_tables(copied(episodes(folder / "board.db"), folder / "board.jsonl"))
    write_csv(folder / "rows.csv", tables.episodes)
    write_csv(folder / "rows.steps.csv", tables.steps)
    return [(folder / name).read_bytes() for name in ("board.jsonl", "rows.csv", "rows.steps.csv")]


def answer(body):
    """By what is shown; now and then no decision at first."""
    length = sum(len(message["content"]) for message in body["messages"])
    return says(("Well.", '{"action": "buy"}', '{"action": "sell"}', '{"action": "hold"}')[length % 4])


def asked(stub):
    return [json.dumps(body, sort_keys=True) for body in stub.requests]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An undisturbed run: its endpoint, which serves on, what it was asked, and the run's folder."""
    pytest.importorskip("openai")
    folder = tmp_path_factory.mktemp("whole")
    with Stub(answer, latency=0.02) as stub:
        finished(folder, stub.url)
        yield stub, asked(stub), folder


def killed_and_resumed(folder, whole, moments, in_flight):
    """A board that is killed at these moments: after so many requests, and so many seconds then."""
    stub, undisturbed, elsewhere = whole
    stub.requests.clear()
    flight, under_way = ("--in-flight", in_flight), Counter()
    for requests, seconds in moments:
        process = started(folder, stub.url, *flight)
        before = len(stub.requests)
        while process.poll() is None and len(stub.requests) < before + requests:
            time.sleep(0.002)
        time.sleep(seconds)
        process.kill()
        process.communicate()
        stub.left()
        # What was under way may have been answered to nobody.
        under_way.update(asked(stub)[-in_flight:] if len(stub.requests) > before else ())
    out, _ = finished(folder, stub.url, *flight)
    assert Counter(asked(stub)) - Counter(undisturbed) <= under_way
    assert set(asked(stub)) == set(undisturbed)
    assert len(undisturbed) == len(set(undisturbed))
    assert exported(folder) == exported(elsewhere)
    assert f"sha256 of what board.db holds: {digest(elsewhere / 'board.db')}" in out
    assert not any(KEY.encode() in path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_board_that_is_killed_and_resumed_is_the_undisturbed_one_and_pays_for_nothing_twice(whole, tmp_path):
    killed_and_resumed(tmp_path, whole, [(random.randrange(2, 20), random.uniform(0, 0.03))], in_flight=1)


@pytest.mark.slow
def test_the_same_at_many_moments_and_with_requests_side_by_side(whole, tmp_path):
    moments = [(0, random.uniform(0, 2)), *((random.randrange(1, 9), random.uniform(0, 0.1)) for _ in range(8))]
    killed_and_resumed(tmp_path, whole, moments, in_flight=2)


@pytest.mark.slow
def test_a_day_that_was_cut_off_is_the_same_after_a_kill_and_in_a_replay(tmp_path):
    """At an endpoint that never answers the same twice: a day that is asked again would lead to other days."""
    pytest.importorskip("openai")
    told = Counter()

    def moody(body):
        call = json.dumps(body, sort_keys=True)
        told[call] += 1
        mood = sum(call.encode()) + told[call]
        action = ("buy", "sell", "hold")[mood % 3]
        return says("", finish_reason="length") if mood % 4 == 0 else says(f'{{"action": "{action}"}}')

    with Stub(moody, latency=0.02) as stub:
        process = started(tmp_path, stub.url, "--in-flight", 1)
        while process.poll() is None and len(stub.requests) < 16:
            time.sleep(0.002)
        process.kill()
        process.communicate()
        under_way = asked(stub)[-1]
        _, err = finished(tmp_path, stub.url, "--in-flight", 1)
        assert set(told.values()) <= {1, 2}
        assert {call for call, times in told.items() if times == 2} <= {under_way}
        assert re.search(r"replies that were no answers: \d+ truncated; a later run asks again", err)
        requests = len(stub.requests)
        finished(tmp_path, stub.url, "--out", "again.db", "--cache", "replay")
        assert len(stub.requests) == requests
    assert digest(tmp_path / "again.db") == digest(tmp_path / "board.db")
    assert any(row.get("self_heals") for row in rows(tmp_path / "board.db"))


def test_writers_killed_in_a_loop_lose_nothing_that_was_written(tmp_path):
    words = [sys.executable, "-c", WRITERS, tmp_path / "board.db", "0", "8"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) >= 8  # each had begun


@pytest.mark.slow
def test_a_second_process_is_refused_and_the_first_goes_on(tmp_path):
    refused = threading.Event()

    def later(body):
        if (tmp_path / "board.db").exists():  # no preflight
            refused.wait(100)
        return answer(body)

    with Stub(later) as stub:
        first = started(tmp_path, stub.url)
        while not (tmp_path / "board.db").exists():
            assert first.poll() is None
            time.sleep(0.01)
        _, err = finished(tmp_path, stub.url, code=2)
        assert err.strip() == "fintrading: board.db: another process writes it; wait for it, or give another file"
        refused.set()
        out, err = first.communicate(timeout=600)
        assert first.returncode == 0, out + err
    assert len(rows(tmp_path / "board.db")) == 6


@pytest.mark.slow
def test_a_disk_that_fills_up_ends_the_run_in_one_line_and_it_goes_on_when_there_is_room(whole, tmp_path):
    def little_room():  # the whole board takes 196,608 bytes, the longest episode alone 98,304
        resource.setrlimit(resource.RLIMIT_FSIZE, (140_000, 140_000))

    stub, _, folder = whole
    cache = ("--cache-file", folder / "cache/replies.sqlite", "--cache", "replay")
    out, err = finished(tmp_path, stub.url, *cache, code=1, preexec_fn=little_room)
    assert len(err.strip().splitlines()) == 1
    assert "of 6 episodes are finished: board.db cannot be written (disk I/O error); what was finished is in it" in err
    finished_first = rows(tmp_path / "board.db")  # which they are depends on the threads
    assert 0 < len(finished_first) < 6
    assert all(row["agent"] in out for row in finished_first)
    finished(tmp_path, stub.url, *cache)
    assert exported(tmp_path) == exported(folder)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounts a file system of its own")
def test_a_file_system_without_room_ends_the_run_in_one_line(whole, tmp_path):
    stub, _, folder = whole
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=150k", "none", tmp_path], capture_output=True).returncode:
        pytest.skip("this machine mounts nothing")
    try:
        _, err = finished(tmp_path, stub.url, "--cache-file", folder / "cache/replies.sqlite", code=1)
        assert len(err.strip().splitlines()) == 1
        assert "board.db cannot be written (database or disk is full); what was finished is in it" in err
        assert 0 < len(rows(tmp_path / "board.db")) < 6
    finally:
        subprocess.run(["umount", tmp_path], check=True)
