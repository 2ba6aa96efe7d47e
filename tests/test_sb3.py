"""The batched environment under Stable-Baselines3: the episodes that its own vector environments give."""

import re

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

import gymnasium as gym
import torch
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.callbacks import EvalCallback, StopTrainingOnNoModelImprovement
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor, load_results
from stable_baselines3.common.vec_env import DummyVecEnv, VecCheckNan, VecFrameStack, VecMonitor, VecNormalize

from fintrading_agents.sb3 import bootstrapping, make_vec_env
from fintrading_gym.errors import UnknownName
from fintrading_gym.ledger import evaluate
from fintrading_gym.vector_infos import Ended

ID = "fintrading_gym:FinMemTrading-v0"
GAMES = [
    {},
    {"hold": "flat", "cost_bps": 20.0},
    {"fill": "next_open", "cost_bps": 5.0, "start": "random"},
    {"start": "random", "timesteps": 7, "lookback": 3},
    {"cell": "spy_bear_2022", "timesteps": None},
]


@pytest.fixture(autouse=True)
def one_thread():
    """Networks of this size wait for each other's threads longer than they compute."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def dummy(num_envs, **game):
    """Stable-Baselines3's own vector environment of N single ones, each in its `Monitor`."""
    return DummyVecEnv([lambda: Monitor(gym.make(ID, observation="vector", **game)) for _ in range(num_envs)])


@pytest.mark.parametrize("game", GAMES)
def test_it_is_step_for_step_what_a_dummy_vec_env_of_single_environments_is(game):
    ours, theirs = make_vec_env(4, **game), dummy(4, **game)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    ours.seed(11)
    theirs.seed(11)
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    generator, ends = np.random.default_rng(0), 0
    for _ in range(250):
        actions = generator.integers(3, size=4)
        observations, rewards, dones, infos = ours.step(actions)
        expected, earned, over, told = theirs.step(actions)
        for mine, other in ((observations, expected), (rewards, earned), (dones, over)):
            assert mine.dtype == other.dtype
            np.testing.assert_array_equal(mine, other)
        for info, other, done in zip(infos, told, dones, strict=True):
            if not done:
                assert info == {}
                continue
            ends += 1
            assert set(info) == set(other)
            np.testing.assert_array_equal(info.pop("terminal_observation"), other.pop("terminal_observation"))
            episode, expected = info.pop("episode"), other.pop("episode")
            assert episode["r"] == pytest.approx(expected["r"], abs=1e-6)  # Monitor rounds
            assert (episode["l"], episode["t"] >= 0) == (expected["l"], True)
            assert info == other
            assert [type(info[name]) for name in other] == [type(value) for value in other.values()]
        assert ours.reset_infos == theirs.reset_infos
    assert ends >= 4


def test_several_cells_are_played_in_turn():
    envs = make_vec_env(4, cell=["tsla_main", "nvda_bull_2023"], timesteps=None)
    envs.reset()
    lengths = {}
    for _ in range(130):
        _, _, dones, infos = envs.step(np.full(4, 2))
        lengths |= {k: infos[k]["episode"]["l"] for k in np.flatnonzero(dones)}
    assert lengths == {0: 126, 1: 123, 2: 126, 3: 123}


def test_a_reset_in_the_middle_of_an_episode_begins_the_count_anew():
    envs = make_vec_env(2, timesteps=5)
    envs.reset()
    envs.step(np.array([2, 2]))
    envs.reset()
    infos = [envs.step(np.array([2, 0]))[3] for _ in range(5)]
    assert [info.get("episode", {}).get("l") for info in infos[-1]] == [5, 5]


def test_the_single_environment_passes_stable_baselines3s_check():
    check_env(gym.make(ID, observation="vector").unwrapped, warn=True)


@pytest.mark.filterwarnings("ignore:The environment is already wrapped with a `Monitor`")
@pytest.mark.parametrize("wrap", [VecMonitor, VecNormalize, VecCheckNan])
def test_stable_baselines3s_wrappers_work_over_it(wrap):
    envs = wrap(make_vec_env(8, start="random", timesteps=10))
    envs.seed(0)
    envs.reset()
    for _ in range(25):
        observations, _, dones, infos = envs.step(np.full(8, 2))
    assert observations.shape == (8, 47)
    assert not dones.any()
    _, _, dones, infos = [envs.step(np.full(8, 2)) for _ in range(5)][-1]
    assert dones.all()
    assert all(info["episode"]["l"] == 10 and "terminal_observation" in info for info in infos)


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [(PPO, {"n_steps": 16, "batch_size": 64}), (A2C, {"n_steps": 8}), (DQN, {"learning_starts": 32, "batch_size": 32})],
)
def test_every_baseline_learns_from_it_and_is_evaluated_on_it(algorithm, settings):
    envs = make_vec_env(8, start="random", timesteps=12)
    learner = algorithm("MlpPolicy", envs, seed=0, device="cpu", **settings)
    learner.learn(512)
    assert learner.num_timesteps == 512
    assert {episode["l"] for episode in learner.ep_info_buffer} == {12}
    mean, spread = evaluate_policy(learner, make_vec_env(4, timesteps=12), n_eval_episodes=8)
    assert np.isfinite(mean)
    assert spread == pytest.approx(0, abs=1e-6)  # the first day of the window, and a greedy policy


def test_an_evaluation_over_vec_normalize_tells_true_returns():
    learner = PPO("MlpPolicy", make_vec_env(2), n_steps=4, batch_size=8, seed=0, device="cpu")
    true, _ = evaluate_policy(learner, make_vec_env(2, timesteps=9), n_eval_episodes=2)
    scaled = VecNormalize(make_vec_env(2, timesteps=9), norm_obs=False, training=False)
    assert evaluate_policy(learner, scaled, n_eval_episodes=2)[0] == pytest.approx(true)


@pytest.mark.parametrize("observation", ["text", "both"])
def test_texts_are_refused_with_what_to_do(observation):
    with pytest.raises(ValueError, match=f"observation='{observation}'.*'vector'"):
        make_vec_env(2, observation=observation)


def test_what_stable_baselines3_fixes_is_not_free():
    with pytest.raises(ValueError, match="autoreset_mode"):
        make_vec_env(2, autoreset_mode="NextStep")
    with pytest.raises(UnknownName, match="Did you mean 'tsla_main'"):
        make_vec_env(2, cell="tsla_man")


CELLS = ["tsla_main", "nvda_bull_2023", "TSLA:2023-01-03:2023-01-20"]  # the last has 13 decisions


def of_cells(**game):
    """Five environments over three cells, ours and Stable-Baselines3's."""
    cells = [CELLS[k % 3] for k in range(5)]
    singles = [lambda cell=cell: Monitor(gym.make(ID, observation="vector", cell=cell, **game)) for cell in cells]
    return make_vec_env(5, cell=CELLS, **game), DummyVecEnv(singles)


@pytest.mark.parametrize("indices", [None, 1, -1, [4, 0], range(2)])
@pytest.mark.parametrize("name", ["timesteps", "window", "observation_space", "action_space", "hold", "render_mode"])
def test_attributes_are_those_of_single_environments(name, indices):
    ours, theirs = of_cells(hold="flat", timesteps=40)
    assert ours.get_attr(name, indices) == theirs.get_attr(name, indices)
    assert ours.has_attr(name)
    read = ours.env_method("get_wrapper_attr", name, indices=indices)
    assert read == theirs.env_method("get_wrapper_attr", name, indices=indices)


def test_ledgers_of_episodes_under_way_are_those_of_single_environments():
    ours, theirs = of_cells(start="random", timesteps=12)
    assert [len(ledger.date) for ledger in ours.env_method("ledger")] == [0] * 5  # nothing has begun
    assert ours.reset_infos == theirs.reset_infos == [{}] * 5
    for envs in (ours, theirs):
        envs.seed(7)
        envs.reset()
    generator = np.random.default_rng(0)
    for _ in range(30):
        actions = generator.integers(3, size=5)
        for envs in (ours, theirs):
            envs.step(actions)
        assert ours.env_method("ledger") == theirs.env_method("ledger")
        assert ours.env_method("ledger", indices=[3]) == theirs.env_method("ledger", indices=[3])
        assert [ledger() for ledger in ours.get_attr("ledger")] == theirs.env_method("ledger")
        assert [game.ledger() for game in ours.get_attr("unwrapped")] == theirs.env_method("ledger")
    assert ours.env_method("close") == [None] * 5


def test_what_one_of_many_episodes_cannot_be_asked_is_told_in_a_line():
    envs = make_vec_env(3)
    envs.reset()
    for asked, words in (
        (lambda: envs.set_attr("cost_bps", 5.0), "'cost_bps' cannot be set.*make_vec_env"),
        (lambda: envs.env_method("reset", seed=1), "'reset' cannot be called.*'ledger'"),
        (lambda: envs.env_method("step", 2), "'step' cannot be called"),
        (lambda: envs.env_method("set_wrapper_attr", "hold", "flat"), "cannot be called"),
        (lambda: envs.env_method("no_such_thing"), "cannot be called"),
        (lambda: envs.get_attr("no_such_thing"), "no_such_thing"),
        (lambda: envs.get_attr("_day"), "'_day' belongs to no single one"),
        (lambda: envs.get_attr("np_random"), "'np_random' belongs to no single one"),
        (lambda: envs.get_attr("reset"), "'reset' cannot be called"),
        (lambda: envs.get_images(), "has no pictures.*DummyVecEnv"),
        (lambda: envs.env_method("render"), "render() needs a render mode"),
    ):
        with pytest.raises((AttributeError, NotImplementedError, ValueError)) as fault:
            asked()
        assert re.search(words.replace("()", r"\(\)"), str(fault.value))
        assert "\n" not in str(fault.value)
    assert not any(envs.has_attr(name) for name in ("no_such_thing", "_day", "np_random", "reset"))
    for wrong in (3, -4, [0, 3]):
        with pytest.raises(IndexError):
            envs.get_attr("hold", wrong)
    with pytest.warns(UserWarning, match="no `render_mode` was passed"):
        assert envs.render() is None
    assert envs.env_method("ledger")[0].date == ()  # nothing of it moved an episode
    envs.close()


def test_it_is_wrapped_by_what_a_monitor_is():
    ours, theirs = of_cells()
    for wrapper in (Monitor, gym.Wrapper, gym.wrappers.ClipReward):
        assert ours.env_is_wrapped(wrapper) == theirs.env_is_wrapped(wrapper)
        assert ours.env_is_wrapped(wrapper, [0, 2]) == theirs.env_is_wrapped(wrapper, [0, 2])


def test_seeds_and_options_hold_for_one_reset():
    ours, theirs = of_cells(start="random", timesteps=5)
    for envs in (ours, theirs):
        envs.seed(3)
        envs.set_options({"any": "thing"})
    first = ours.reset()
    np.testing.assert_array_equal(first, theirs.reset())
    assert ours._seeds == theirs._seeds == [None] * 5
    assert ours._options == theirs._options == [{}] * 5
    np.testing.assert_array_equal(ours.reset(), theirs.reset())  # the generators go on
    ours.seed(np.int64(3))
    np.testing.assert_array_equal(ours.reset(), first)
    assert len(ours.seed()) == 5


@pytest.mark.filterwarnings("ignore:The environment is already wrapped with a `Monitor`")
def test_a_monitor_writes_the_score_of_each_episode(tmp_path):
    envs = VecMonitor(make_vec_env(4, start="random", timesteps=6), str(tmp_path / "log"), info_keywords=("score",))
    envs.seed(0)
    envs.reset()
    *_, infos = [envs.step(np.full(4, 2)) for _ in range(6)][-1]
    envs.close()
    scores = load_results(str(tmp_path))["score"]
    assert scores.tolist() == pytest.approx([info["score"] for info in infos])
    assert scores.tolist() == pytest.approx([evaluate(info["ledger"])["score"] for info in infos])
    assert all(info["episode"]["score"] == info["score"] for info in infos)


@pytest.mark.filterwarnings("ignore:The environment is already wrapped with a `Monitor`")
def test_ledgers_and_scores_are_not_computed_for_a_learner(monkeypatch):
    computed = []
    monkeypatch.setattr(Ended, "ledger", lambda *_: computed.append("ledger"))
    monkeypatch.setattr(Ended, "score", lambda *_: computed.append("score") or 0.0)
    envs = make_vec_env(4, timesteps=3)
    for algorithm, settings in ((PPO, {"n_steps": 8, "batch_size": 16}), (DQN, {"learning_starts": 8})):
        algorithm("MlpPolicy", VecNormalize(VecMonitor(envs)), device="cpu", **settings).learn(64)
    assert computed == []
    envs.reset()
    *_, infos = [envs.step(np.full(4, 1)) for _ in range(3)][-1]
    assert infos[0]["score"] == 0.0
    assert "score" in computed
    assert "ledger" not in computed


def test_the_batch_tells_of_the_last_step_what_empty_infos_do_not():
    envs = make_vec_env(4, cell=["tsla_main", "nvda_bull_2023"])
    assert envs.told == {}
    envs.reset()
    assert envs.told["date"].tolist() == ["2022-10-06", "2023-01-03"] * 2
    envs.step(np.array([0, 1, 2, 2]))
    assert envs.told["position"].tolist() == [-1, 0, 1, 1]


def test_callbacks_that_evaluate_stop_and_save_work_on_it(tmp_path):
    learner = PPO("MlpPolicy", make_vec_env(8, start="random", timesteps=10), n_steps=16, batch_size=64, device="cpu")
    evaluation = make_vec_env(2, timesteps=10)
    stop = StopTrainingOnNoModelImprovement(max_no_improvement_evals=1)
    kept = {"best_model_save_path": str(tmp_path), "log_path": str(tmp_path), "verbose": 0}
    learner.learn(512, EvalCallback(evaluation, eval_freq=16, n_eval_episodes=4, callback_after_eval=stop, **kept))
    assert np.load(tmp_path / "evaluations.npz")["ep_lengths"].tolist()[0] == [10] * 4
    learner.save(tmp_path / "learner")
    again = PPO.load(tmp_path / "learner", env=make_vec_env(8, start="random", timesteps=10), device="cpu")
    again.learn(128)
    assert again.num_timesteps == 128


def test_frames_are_stacked_and_statistics_come_back_from_a_file(tmp_path):
    envs = VecNormalize(VecFrameStack(make_vec_env(3, start="random", timesteps=4), 2))
    envs.seed(0)
    assert envs.reset().shape == (3, 94)
    for _ in range(9):
        observations, *_ = envs.step(np.full(3, 2))
    assert observations.shape == (3, 94)
    envs.save(str(tmp_path / "statistics.pkl"))
    again = VecNormalize.load(
        str(tmp_path / "statistics.pkl"), VecFrameStack(make_vec_env(3, start="random", timesteps=4), 2)
    )
    np.testing.assert_array_equal(again.obs_rms.mean, envs.obs_rms.mean)
    assert again.get_attr("timesteps") == envs.get_attr("timesteps") == [4] * 3


@pytest.mark.parametrize("algorithm", [PPO, A2C])
def test_bootstrapping_all_ends_at_once_is_what_the_learner_does_one_by_one(algorithm):
    def learned(prepare):
        envs = make_vec_env(8, start="random", timesteps=5)
        learner = algorithm("MlpPolicy", envs, n_steps=16, seed=0, device="cpu", gamma=0.9)
        prepare(learner)
        return learner.learn(256)

    one_by_one, at_once = learned(lambda learner: None), learned(bootstrapping)
    np.testing.assert_allclose(at_once.rollout_buffer.rewards, one_by_one.rollout_buffer.rewards, rtol=1e-4, atol=1e-6)
    for name, weights in one_by_one.policy.state_dict().items():
        np.testing.assert_allclose(at_once.policy.state_dict()[name], weights, rtol=1e-4, atol=1e-5, err_msg=name)
    assert [episode["l"] for episode in at_once.ep_info_buffer] == [
        episode["l"] for episode in one_by_one.ep_info_buffer
    ]
