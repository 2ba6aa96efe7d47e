"""A board in a file: what is written comes back, and what is no board is refused in one line."""

import json
import sqlite3
from dataclasses import asdict, replace

import pytest

from fintrading_gym import leaderboard as board
from fintrading_gym.rollout import Player, Task, find_player
from fintrading_gym.store import StoreError, episodes, key_of, recipe_of, rows, writing

TASKS = [Task("tsla_main", timesteps=5), Task("spy_bear_2022", timesteps=5)]


def filled(path, *names, tasks=TASKS):
    """How many episodes were played."""
    with writing(path, {}) as kept:
        lacking = board.lacking(kept, board.plan([find_player(name) for name in names], tasks))
        board.fill(kept, lacking)
    return len(lacking)


def test_a_board_plays_only_what_it_lacks(tmp_path):
    path = tmp_path / "board.db"
    assert filled(path, "flat", "momentum") == 4
    assert filled(path, "flat", "momentum") == 0
    assert filled(path, "flat", "momentum", "random") == 2
    assert [(row["agent"], row["cell"]) for row in rows(path)] == [
        (agent, cell) for agent in ("flat", "momentum", "random") for cell in ("spy_bear_2022", "tsla_main")
    ]


def test_what_is_read_is_what_was_played(tmp_path):
    path = tmp_path / "board.db"
    filled(path, "llm:scripted/momentum")
    for stored in episodes(path):
        task = Task(**stored.recipe["task"] | {"persona": "adaptive", "seed": 0})
        row, played = board.played(find_player("llm:scripted/momentum"), task)
        assert stored.row == json.loads(json.dumps(row))
        assert replace(played, facts={}) == replace(stored.episode, facts={}, log=played.log)
        assert json.loads(json.dumps(played.log)) == list(stored.episode.log)


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


def test_another_option_file_or_agent_code_is_another_episode(tmp_path):
    (task, *_), llm = TASKS, find_player("llm:scripted/momentum")
    keys = [
        key_of(recipe_of(player, played))
        for player, played in [
            (llm, task),
            (replace(llm, options={"context": "full"}), task),
            (find_player("llm:scripted/buy"), task),
            (llm, replace(task, persona="risk_averse")),
            (llm, replace(task, hold="flat")),
            (find_player("flat"), task),
        ]
    ]
    assert len(set(keys)) == len(keys)
    same = [(replace(llm, options={"context": "last", "in_flight": 3}), task), (llm, replace(task, seed=4))]
    assert {key_of(recipe_of(*one)) for one in same} == {keys[0]}
    rule = find_player("flat")
    assert recipe_of(rule, task) == recipe_of(rule, replace(task, persona="risk_averse", seed=2))


def test_another_content_of_a_file_that_an_option_names_is_another_episode(tmp_path):
    sources, keys = tmp_path / "news.jsonl", []
    for text in ("one", "two"):
        sources.write_text(json.dumps({"date": "2022-10-05", "kind": "news", "text": text}))
        player = replace(find_player("committee:scripted/committee"), options={"sources": str(sources)})
        keys.append(key_of(recipe_of(player, TASKS[0])))
    assert keys[0] != keys[1]


def test_an_agent_with_other_options_is_named_by_them():
    llm = find_player("llm:scripted/momentum")
    assert replace(llm, options={"context": "last", "in_flight": 3}).label == "llm:scripted/momentum"
    assert replace(llm, options={"context": "full"}).label == "llm:scripted/momentum [context=full]"


def test_a_second_writer_is_refused_and_a_reader_is_not(tmp_path):
    path = tmp_path / "board.db"
    filled(path, "flat")
    with writing(path, {}):
        with pytest.raises(StoreError, match=r"board.db: another process writes it; wait for it, or give another"):
            writing(path, {}).__enter__()
        assert len(rows(path)) == 2


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda path: path.write_text("agent,score\nflat,0.7\n" * 100), "is no board, or cannot be used"),
        (lambda path: path.mkdir(), "cannot be opened"),
        (lambda path: sqlite3.connect(path).execute("CREATE TABLE t (x)"), "is a database, but no board"),
        (lambda path: sqlite3.connect(path).execute("PRAGMA user_version = 7"), None),
    ],
    ids=["a text", "a folder", "another database", "another schema"],
)
def test_what_is_no_board_is_refused_in_one_line(tmp_path, make, told):
    path = tmp_path / "board.db"
    if told is None:
        filled(path, "flat")
        told = "is a board of schema 7, and this version reads 1"
    make(path)
    with pytest.raises(StoreError, match=told) as refused:
        writing(path, {}).__enter__()
    assert "\n" not in str(refused.value)


def test_a_board_that_is_not_there_is_no_empty_one(tmp_path):
    with pytest.raises(StoreError, match="There is no board"):
        rows(tmp_path / "board.db")
    assert not (tmp_path / "board.db").exists()


def test_a_run_and_how_it_ended_are_noted(tmp_path):
    with writing(tmp_path / "board.db", {"agents": ["flat"], "tasks": [asdict(TASKS[0])]}) as kept:
        kept.end("finished")
    (run,) = sqlite3.connect(tmp_path / "board.db").execute("SELECT outcome, settings FROM runs").fetchall()
    assert run[0] == "finished"
    assert json.loads(run[1])["agents"] == ["flat"]
