"""A board's tables as CSV, Parquet and JSONL: the same for the same board, and readable by other tools."""

import csv
import hashlib
import json

import pandas as pd
import pytest

from fintrading_gym import export
from fintrading_gym.errors import MissingExtra
from fintrading_gym.export import as_tables, copied, steps_beside, write_csv, write_parquet
from fintrading_gym.leaderboard import fill, plan
from fintrading_gym.rollout import Player, Task, find_player
from fintrading_gym.store import digest, episodes, writing
from fintrading_gym.stored import OF_THE_RUN


def odd(task):
    """An agent that keeps facts of all kinds, and fails on its third day."""

    class Odd:
        facts = {"mixed": 3, "nested": {"a": [1, 2]}, "text": 'a "b", \n c\ud83d'}  # noqa: RUF012
        days = 0

        def __call__(self, observation):
            self.days += 1
            return 2 if self.days < 3 else 1 / 0

    return Odd()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("board") / "board.db"
    tasks = [Task("tsla_main", timesteps=4), Task("spy_bear_2022", timesteps=4)]
    players = [find_player("flat"), find_player("llm:scripted/prose"), Player("odd", odd)]
    with writing(path, {}) as kept:
        fill(kept, plan(players, tasks))
    return path


def test_the_lines_of_the_file_have_the_digest_of_the_board(path, tmp_path):
    tables = as_tables(copied(episodes(path), tmp_path / "board.jsonl"))
    content = (tmp_path / "board.jsonl").read_bytes()
    assert hashlib.sha256(content).hexdigest() == tables.sha256 == digest(path)
    lines = [json.loads(line) for line in content.splitlines()]
    assert [line["row"]["agent"] for line in lines] == [row["agent"] for row in tables.episodes]
    assert [len(line["steps"]) for line in lines] == [4, 4, 4, 4, 2, 2]
    assert lines[2]["steps"][0]["calls"][0]["messages"][1]["content"].startswith("Company-001")
    assert [entry.name for entry in tmp_path.iterdir()] == ["board.jsonl"]


def test_the_tables_hold_every_episode_and_every_step(path):
    tables = as_tables(episodes(path))
    assert [len(tables.episodes), len(tables.steps)] == [6, 4 * 4 + 2 * 2]
    assert {row["key"] for row in tables.episodes} == {step["key"] for step in tables.steps}
    assert not {name for row in tables.episodes for name in row} & set(OF_THE_RUN)
    for row in tables.episodes:
        its = [step for step in tables.steps if step["key"] == row["key"]]
        assert [step["day"] for step in its] == list(range(1, len(its) + 1))
        if row["failure"] is None:
            assert sum(step["log_return"] for step in its) == pytest.approx(row["cumulative_return"])
    assert {step["reason"] for step in tables.steps if step["agent"].startswith("llm")} == {"no_object"}


def test_csv_is_read_again_by_pandas(path, tmp_path):
    tables = as_tables(episodes(path))
    write_csv(tmp_path / "rows.csv", tables.episodes)
    read = pd.read_csv(tmp_path / "rows.csv")
    assert list(read["score"].round(9).fillna(-1)) == [round(row["score"] or -1, 9) for row in tables.episodes]
    with (tmp_path / "rows.csv").open(newline="", encoding="utf-8") as file:
        last = list(csv.DictReader(file))[-1]
    assert (last["nested"], last["text"], last["score"]) == ('{"a":[1,2]}', 'a "b", \n c\\ud83d', "")


def test_parquet_is_read_again_by_pandas_with_numbers_as_numbers(path, tmp_path):
    pytest.importorskip("pyarrow")
    tables = as_tables(episodes(path))
    for name, rows in (("rows.parquet", tables.episodes), ("rows.steps.parquet", tables.steps)):
        write_parquet(tmp_path / name, rows)
        read = pd.read_parquet(tmp_path / name)
        assert len(read) == len(rows)
        for column in read:
            for told, row in zip(read[column], rows, strict=True):
                value = export._single(row.get(column))
                assert (
                    (value is None and pd.isna(told))
                    or told == value
                    or str(told) == str(value).replace("\ud83d", "\\ud83d")
                )
    assert str(pd.read_parquet(tmp_path / "rows.parquet")["score"].dtype) == "float64"


def test_columns_of_several_kinds_are_text_and_those_of_numbers_numbers(tmp_path):
    pytest.importorskip("pyarrow")
    rows = [{"a": 1, "b": 1, "c": None, "d": True}, {"a": 0.5, "b": "x", "d": None}, {"a": None, "b": 2**70}]
    write_parquet(tmp_path / "t.parquet", rows)
    read = pd.read_parquet(tmp_path / "t.parquet")
    assert list(read["a"])[:2] == [1.0, 0.5]
    assert list(read["b"]) == ["1", "x", str(2**70)]
    assert read["c"].isna().all()
    assert list(read["d"])[:1] == [True]


def test_equal_boards_give_equal_bytes(path, tmp_path):
    pytest.importorskip("pyarrow")
    for name in ("one", "other"):
        tables = as_tables(copied(episodes(path), tmp_path / f"{name}.jsonl"))
        write_csv(tmp_path / f"{name}.csv", tables.steps)
        write_parquet(tmp_path / f"{name}.parquet", tables.episodes)
    for kind in ("jsonl", "csv", "parquet"):
        assert (tmp_path / f"one.{kind}").read_bytes() == (tmp_path / f"other.{kind}").read_bytes()


def test_a_board_that_breaks_off_leaves_no_half_of_a_file(tmp_path):
    def breaks():
        raise RuntimeError
        yield

    (tmp_path / "board.jsonl").write_text("the one before")
    with pytest.raises(RuntimeError):
        as_tables(copied(breaks(), tmp_path / "board.jsonl"))
    assert (tmp_path / "board.jsonl").read_text() == "the one before"


def test_steps_have_a_file_beside_that_of_the_episodes(tmp_path):
    assert steps_beside(tmp_path / "rows.csv") == tmp_path / "rows.steps.csv"
    assert steps_beside(tmp_path / "rows") == tmp_path / "rows.steps"


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"--parquet needs .* pip install 'fintrading-gym\[parquet\]'"):
        export.need_pyarrow()
