"""What the selection wrote is what is trained with, and it looked at no day of any cell."""

import json
import sys
from pathlib import Path

import pytest

from fintrading_agents import linear, rl
from fintrading_gym.windows import CELLS, TICKERS

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
FOUND = json.loads((BENCHMARKS / "results/hyperparameters.json").read_text())
TABLE = rl.HYPERPARAMETERS | {"linear": linear.HYPERPARAMETERS}


@pytest.fixture
def selection(monkeypatch):
    pytest.importorskip("pandas")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import select_hyperparameters

    yield select_hyperparameters
    sys.modules.pop("select_hyperparameters")


@pytest.mark.parametrize("algorithm", TABLE)
def test_what_is_trained_with_is_the_candidate_of_the_best_score_that_learns_a_known_market(algorithm):
    candidates = [row for row in FOUND["candidates"] if row["algorithm"] == algorithm]
    best = max((row for row in candidates if row["known"] >= 0.9), key=lambda row: row["score"])
    assert len(candidates) >= 6
    assert FOUND["chosen"][algorithm] == best["hyperparameters"]
    assert {"selected_until": FOUND["validation"][1]} | best["hyperparameters"] == TABLE[algorithm]


def test_what_was_tried_is_what_the_benchmark_tries(selection):
    tried = [(row["algorithm"], row["hyperparameters"]) for row in FOUND["candidates"]]
    for algorithm, changes in selection.CHANGES.items():
        expected = [selection.changed(selection.START[algorithm], change) for change in changes]
        assert [chosen for name, chosen in tried if name == algorithm] == expected
    assert tuple(FOUND["validation"]) == selection.VALIDATION


def test_no_learner_did_better_than_the_line_as_the_readme_says():
    assert "none of the three did better than `linear`" in " ".join(
        (BENCHMARKS.parent / "README.md").read_text().split()
    )
    scores = {
        name: [r["score"] for r in FOUND["candidates"] if r["hyperparameters"] == chosen and r["algorithm"] == name]
        for name, chosen in FOUND["chosen"].items()
    }
    assert max(scores["ppo"] + scores["a2c"] + scores["dqn"]) <= scores["linear"][0]


def test_the_penalty_is_not_at_the_edge_of_what_was_tried():
    penalties = sorted(row["hyperparameters"]["penalty"] for row in FOUND["candidates"] if row["algorithm"] == "linear")
    assert penalties[0] < linear.HYPERPARAMETERS["penalty"] < penalties[-1]


def test_of_equals_the_first_is_taken_and_who_does_not_learn_is_not(selection):
    rows = [{"known": 0.2, "score": 0.9}, {"known": 1.0, "score": 0.7, "first": True}, {"known": 0.95, "score": 0.7}]
    assert selection.chosen_of(rows) is rows[1]
    with pytest.raises(ValueError, match="empty"):
        selection.chosen_of(rows[:1])


def test_a_known_market_is_one_that_a_line_learns_whole(selection):
    assert selection.known("linear", {"penalty": 1e-3}) == pytest.approx(1)


def test_no_day_of_a_cell_had_a_say():
    first, last = FOUND["validation"]
    assert last < min(window.first for window in CELLS.values())
    for row in FOUND["candidates"]:
        assert {episode["ticker"] for episode in row["episodes"]} == set(TICKERS)
        assert max(episode["last_day"] for episode in row["episodes"]) < first
