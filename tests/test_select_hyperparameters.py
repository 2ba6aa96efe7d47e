"""What the selection wrote is what is trained with, and it looked at no day of any cell."""

import json
from pathlib import Path

import pytest

from fintrading_agents.linear import PENALTY
from fintrading_agents.rl import HYPERPARAMETERS
from fintrading_gym.windows import CELLS, TICKERS

FOUND = json.loads((Path(__file__).parent.parent / "benchmarks/results/hyperparameters.json").read_text())
ALGORITHMS = [*HYPERPARAMETERS, "linear"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_is_trained_with_is_the_candidate_of_the_best_score(algorithm):
    candidates = [row for row in FOUND["candidates"] if row["algorithm"] == algorithm]
    best = max(candidates, key=lambda row: row["score"])
    assert len(candidates) >= 6
    assert FOUND["chosen"][algorithm] == best["hyperparameters"]
    assert best["hyperparameters"] == HYPERPARAMETERS.get(algorithm, {"penalty": PENALTY})


def test_no_day_of_a_cell_had_a_say():
    first, last = FOUND["validation"]
    assert last < min(window.first for window in CELLS.values())
    for row in FOUND["candidates"]:
        assert {episode["ticker"] for episode in row["episodes"]} == set(TICKERS)
        assert max(episode["last_day"] for episode in row["episodes"]) < first
