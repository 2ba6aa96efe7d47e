"""The learned baselines: what they learn from, that they learn the same twice, and how they are kept and played."""

import copy
import json
import os
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from conftest import two_futures
from test_linear import alternating

from fintrading_agents import rl
from fintrading_agents.policies import PolicyError, cached, load, save
from fintrading_agents.spans import training_days
from fintrading_gym.errors import DataError, MissingExtra, UnknownName
from fintrading_gym.leaderboard import plan, played
from fintrading_gym.observations import market_rows
from fintrading_gym.rollout import Task, find_player, rollout
from fintrading_gym.windows import CELLS

LEARNS = pytest.mark.skipif(not find_spec("stable_baselines3"), reason="needs the extra rl")
ALGORITHMS = list(rl.HYPERPARAMETERS)


@pytest.fixture(autouse=True)
def brief(monkeypatch, tmp_path):
    """Trainings of a second, and a cache of the test's own."""
    small = copy.deepcopy(rl.HYPERPARAMETERS)
    for chosen in small.values():
        chosen |= {"steps": 512, "envs": 16, "net_arch": [8]}
        chosen["learner"] |= {"n_steps": 8} if "n_steps" in chosen["learner"] else {"learning_starts": 64}
        chosen["learner"] |= {"batch_size": 64} if "batch_size" in chosen["learner"] else {}
    monkeypatch.setattr(rl, "HYPERPARAMETERS", small)
    monkeypatch.setenv("FINTRADING_CACHE", str(tmp_path / "cache"))


def bytes_of(policy):
    return b"".join(array.tobytes() for layer in policy.layers for array in layer)


@LEARNS
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_policy_decides_what_its_learner_would(algorithm, monkeypatch):
    seen = []
    layers = rl._layers
    monkeypatch.setattr(rl, "_layers", lambda learner: seen.append(learner) or layers(learner))
    policy = rl.train(algorithm, Task("spy_bear_2022"))
    rows = market_rows(training_days(CELLS["spy_bear_2022"])[0], 7)
    expected = seen[0].predict(rows, deterministic=True)[0]
    assert np.mean(policy.outputs(rows).argmax(axis=-1) == expected) == 1
    assert [policy({"vector": row}) for row in rows[:20]] == expected[:20].tolist()


IN_ANOTHER_PROCESS = """
import json, sys
from pathlib import Path
from fintrading_agents import rl
from fintrading_agents.policies import save
from fintrading_gym.rollout import Task

table, folder = json.loads(sys.argv[1]), Path(sys.argv[2])
for algorithm, chosen in table.items():
    save(rl.train(algorithm, Task(seed=3), hyperparameters=chosen), folder / f"{algorithm}.npz")
"""


@LEARNS
def test_the_same_seed_gives_the_same_bytes_in_another_process_and_another_seed_others(tmp_path):
    there = [sys.executable, "-c", IN_ANOTHER_PROCESS, json.dumps(rl.HYPERPARAMETERS), str(tmp_path)]
    subprocess.run(there, check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    for algorithm in ALGORITHMS:
        save(rl.train(algorithm, Task(seed=3)), tmp_path / "here.npz")
        assert (tmp_path / "here.npz").read_bytes() == (tmp_path / f"{algorithm}.npz").read_bytes()
        assert bytes_of(rl.train(algorithm, Task(seed=4))) != bytes_of(load(tmp_path / "here.npz"))


@LEARNS
def test_prices_from_the_windows_first_day_on_have_no_part_in_it(tmp_path):
    one, other = (rl.train("ppo", Task(cell)) for cell in two_futures(tmp_path))
    assert bytes_of(one) == bytes_of(other)
    assert one.recipe["days"][0]["sha256"] != other.recipe["days"][0]["sha256"]


@LEARNS
def test_other_tickers_days_are_learned_from_and_told():
    policy = rl.train("ppo", Task("tsla_main"), tickers=["NVDA", "COIN"])
    assert [span["ticker"] for span in policy.recipe["days"]] == ["TSLA", "NVDA", "COIN"]
    assert policy.last_day == "2022-10-05"
    assert bytes_of(policy) != bytes_of(rl.train("ppo", Task("tsla_main")))


@LEARNS
def test_a_training_reports_how_it_goes_and_writes_a_log_where_it_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(rl, "REPORT_EVERY", 0.0)
    told = []
    rl.HYPERPARAMETERS["ppo"] |= {"steps": 2048}
    rl.train("ppo", Task(), report=lambda *numbers: told.append(numbers), tensorboard=tmp_path / "logs")
    steps, rates, returns = zip(*told, strict=True)
    assert list(steps) == sorted(steps)
    assert steps[-1] == 2048
    assert min(rates) > 0
    assert np.isnan(returns[0])  # no episode has ended yet
    assert np.isfinite(returns[-1])
    assert list((tmp_path / "logs/ppo-seed0_1").glob("events.out.tfevents.*"))


@LEARNS
def test_without_tensorboard_the_error_is_the_line_that_installs_it(monkeypatch, tmp_path):
    monkeypatch.setattr(rl, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"TensorBoard's log needs .*fintrading-gym\[rl\]"):
        rl.train("ppo", Task(), tensorboard=tmp_path)


@LEARNS
def test_a_board_trains_what_it_lacks_once_and_its_row_tells_of_it(monkeypatch, tmp_path):
    task = Task("nvda_bull_2023", seed=1)
    row, _ = played(find_player("ppo"), task)
    assert row["failure"] is None
    assert (row["seed"], row["policy_seed"], row["trained_until"]) == (1, 1, "2022-12-30")
    assert row["selected_until"] == "2021-12-31"
    assert row["trained_on_sha256"] == task.window.load().sha256
    assert list((tmp_path / "cache/policies").glob("*.npz")) == [cached(rl.recipe_for("ppo", task))]

    monkeypatch.setattr(rl, "train", lambda *_: pytest.fail("it was trained again"))
    assert played(find_player("ppo"), task)[0] == row
    with pytest.raises(pytest.fail.Exception):
        rl.trained("ppo", Task("nvda_bull_2023", seed=2))
    assert rl.trained("ppo", Task("nvda_bull_2023", seed=np.int64(1))).recipe["seed"] == 1


@LEARNS
def test_a_policy_is_played_from_its_file_by_its_own_algorithm_alone(tmp_path):
    path = tmp_path / "mine.npz"
    save(rl.train("ppo", Task(seed=5)), path)
    episode = find_player(f"ppo:{path}").play(Task("nvda_bull_2023"))
    assert episode.failure is None
    assert episode.facts["policy_seed"] == 5
    assert (
        find_player(f"ppo:{path}")
        .play(Task("tsla_ablation"))
        .failure.startswith("before day 1: PolicyError: This ppo policy was trained on days up to 2022-10-05")
    )
    assert f"play ppo:{path}" in find_player(f"dqn:{path}").play(Task()).failure
    assert "There is no file" in find_player("ppo:none.npz").play(Task()).failure


@LEARNS
def test_a_file_of_the_cache_that_holds_something_else_is_told():
    path = cached(rl.recipe_for("ppo", Task()))
    save(rl.train("ppo", Task(seed=1)), path)
    with pytest.raises(PolicyError, match="holds another policy than its name says; delete it"):
        rl.trained("ppo", Task())
    path.write_bytes(b"half")
    with pytest.raises(PolicyError, match="is no stored policy"):
        rl.trained("ppo", Task())


def test_every_algorithm_is_a_player_that_looks_at_the_seed_and_not_at_the_persona():
    for algorithm in ALGORITHMS:
        player = find_player(algorithm)
        assert (player.traits.uses_persona, player.traits.uses_seed, player.traits.ranked) == (False, True, True)


def test_a_stored_policy_is_played_once_for_all_seeds_and_a_trained_one_for_each():
    tasks = [Task(persona=persona, seed=seed) for persona in ("adaptive", "risk_averse") for seed in range(5)]
    for algorithm in ALGORITHMS:
        assert len(plan([find_player(f"{algorithm}:policies/mine.npz")], tasks)) == 1
        assert len(plan([find_player(algorithm)], tasks)) == 5
    assert len(plan([find_player("linear")], tasks)) == 1


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_days_that_helped_to_choose_hyperparameters_are_not_played_and_nothing_is_trained_for_them(
    algorithm, monkeypatch
):
    monkeypatch.setattr(rl, "train", lambda *_: pytest.fail("it was trained"))
    told = find_player(algorithm).play(Task("TSLA:2021-12-31:2022-03-31")).failure
    words = f"PolicyError: The hyperparameters of this {algorithm} policy were chosen on days up to 2021-12-31; window"
    assert told.startswith(f"before day 1: {words}")


@LEARNS
def test_hyperparameters_of_ones_own_are_not_held_to_the_days_of_the_tables(tmp_path):
    own = {name: value for name, value in rl.HYPERPARAMETERS["ppo"].items() if name != "selected_until"}
    task = Task("TSLA:2021-12-31:2022-03-31")
    save(rl.train("ppo", task, hyperparameters=own), tmp_path / "mine.npz")
    episode = find_player(f"ppo:{tmp_path / 'mine.npz'}").play(task)
    assert episode.failure is None
    assert episode.facts["selected_until"] is None


def test_what_cannot_be_trained_is_told_before_anything_is_loaded(monkeypatch):
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    with pytest.raises(UnknownName, match="Did you mean 'ppo'"):
        rl.train("pp0", Task())
    with pytest.raises(UnknownName, match="No ticker"):
        rl.train("ppo", Task(), tickers=["IBM"])
    with pytest.raises(DataError, match="training needs at least"):
        rl.train("ppo", Task("TSLA:2021-02-01:2021-06-01"))
    with pytest.raises(MissingExtra, match=r"Training ppo needs .*fintrading-gym\[rl\]"):
        rl.train("ppo", Task())
    assert "MissingExtra" in find_player("ppo").play(Task()).failure


@LEARNS
def test_a_stored_policy_plays_where_nothing_was_installed_to_train_it(tmp_path):
    path = tmp_path / "mine.npz"
    save(rl.train("ppo", Task()), path)
    code = (
        "import sys; sys.modules.update(torch=None, stable_baselines3=None);"
        "from fintrading_gym.rollout import Task, find_player;"
        f"print(find_player('ppo:{path}').play(Task()).failure)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "None"
    assert load(path).libraries.keys() == {"stable-baselines3", "torch", "numpy"}


def test_the_numbers_of_torchs_threads_are_left_as_they_were():
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    with rl._one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


@pytest.mark.slow
@LEARNS
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_policy_learns_a_market_whose_moves_are_known_a_day_ahead(algorithm, monkeypatch):
    monkeypatch.undo()  # the real hyperparameters
    task = Task(alternating(200, skip=100))
    ledger = rollout(rl.train(algorithm, task), task.make()).ledger
    assert sum(ledger.log_return) > 0.9 * 50 * np.log(1.02)
