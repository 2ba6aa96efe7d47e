"""The arithmetic of the benchmark of learners, and that the README shows what was measured."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def training(monkeypatch):
    for needed in ("stable_baselines3", "scipy"):
        pytest.importorskip(needed)
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import training

    yield training
    for name in ("training", "select_hyperparameters"):
        sys.modules.pop(name)


def test_the_readme_shows_the_results_that_lie_beside_the_benchmark(training):
    found = json.loads((ROOT / "benchmarks/results/training.json").read_text())
    text = (ROOT / "README.md").read_text()
    table = text[text.index("<!-- training: begin -->\n") : text.index("<!-- training: end -->")]
    assert table == "<!-- training: begin -->\n" + training.readme(found)
    assert found["targets"] == training.verdicts(found["costs"], found["gym-anytrading"])


def test_the_interval_is_welchs(training):
    from scipy.stats import ttest_ind

    ours, theirs = [0.7, 0.8, 0.9, 0.4, 0.72], [0.5, 0.52, 0.9]
    expected = ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    assert training.interval(ours, theirs) == pytest.approx([expected.low, expected.high])
    assert training.interval([0.5, 0.5], [0.25, 0.25]) == [0.25, 0.25]


def test_a_costless_environment_gives_a_learner_what_it_asks_of_one(training):
    envs = training.Costless(4, 3)
    assert envs.reset().shape == (4, 47)
    ends = [envs.step(np.zeros(4)) for _ in range(6)]
    assert [dones.all() for _, _, dones, _ in ends] == [False, False, True] * 2
    assert all({"terminal_observation", "TimeLimit.truncated", "episode"} <= set(info) for info in ends[2][3])
    assert not any(training.Costless(4, 0).step(np.zeros(4))[2])
