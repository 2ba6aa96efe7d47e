"""The reference board: its commands, and that the README shows what lies beside the benchmark."""

import csv
import json
import sys
from dataclasses import fields
from pathlib import Path
from statistics import fmean

import pytest

from fintrading_gym.comparisons import Comparison
from fintrading_gym.leaderboard import plan, run
from fintrading_gym.ranking import Interval, Standing
from fintrading_gym.rollout import Task, find_player
from fintrading_gym.statistics import Statistics, analyse
from fintrading_gym.windows import CELLS, EVALUATION

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks/results"


@pytest.fixture
def reference_board(monkeypatch):
    pytest.importorskip("scipy")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import reference_board

    yield reference_board
    sys.modules.pop("reference_board")


def read(figures):
    """The statistics, from their JSON."""

    def made(kind, told):
        told = {field.name: told[field.name] for field in fields(kind)}
        for name in ("interval", "improvement_interval"):
            if told.get(name):
                told[name] = Interval(**told[name])
        if "intervals" in told:
            told["intervals"] = {name: Interval(**ends) for name, ends in told["intervals"].items()}
        return kind(**told)

    standings = tuple(made(Standing, told) for told in figures["standings"])
    comparisons = tuple(made(Comparison, told) for told in figures["comparisons"])
    return Statistics(standings, comparisons, figures["trials"], figures["windows"])


def test_every_cell_that_is_named_is_played(reference_board, tmp_path):
    words = list(reference_board.commands(tmp_path / "board.db"))
    played = {cell for line in words for cell in line[line.index("--cells") + 1].split(",")}
    assert played == set(CELLS)
    assert {line[line.index("--personas") + 1] for line in words if next(iter(EVALUATION)) in str(line)} == {"all"}
    agents = [name for line in words for name in line[line.index("--agents") + 1].split(",")]
    assert {"ppo", "a2c", "dqn", "linear", "oracle"} <= set(agents)
    assert {name.partition(":")[0] for name in agents if ":" in name} == {"llm", "committee", "finmem"}


def test_the_readme_shows_the_board_that_lies_beside_the_benchmark(reference_board):
    found = read(json.loads((RESULTS / "reference_board.json").read_text()))
    text = (ROOT / "README.md").read_text()
    shown = text[text.index("<!-- reference_board: begin -->\n") : text.index("<!-- reference_board: end -->")]
    assert shown == "<!-- reference_board: begin -->\n" + reference_board.readme(found)


def test_the_rows_and_the_statistics_beside_it_are_of_one_board():
    figures = json.loads((RESULTS / "reference_board.json").read_text())
    with (RESULTS / "reference_board.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == figures["episodes"]
    for standing in figures["standings"]:
        rules = [float(row["score"]) for row in rows if row["agent"] == standing["agent"] and row["score"]]
        assert len(rules) == standing["episodes"]
        assert min(rules) <= standing["means"]["score"] <= max(rules)
    oracle = [float(row["luck"]) for row in rows if row["agent"] == "oracle"]
    assert fmean(oracle) < 0.001
    assert (RESULTS / "reference_board.html").read_bytes().startswith(b"<!doctype html>")


def test_the_verdict_tells_what_differs_and_for_whom_the_first_rank_is_open(reference_board):
    tasks = [Task(cell, seed=seed, timesteps=20) for cell in EVALUATION for seed in range(5)]
    players = [find_player(name) for name in ("flat", "random", "oracle")]
    found = analyse(row for _, row, _ in run(plan(players, tasks)))
    said = reference_board.verdict(found)
    assert said.count("\n") == 2
    assert "the first rank is open to 2 agents, `" in said
    lines = reference_board.table(found).splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["1", "2", "-"]
