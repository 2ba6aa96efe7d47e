"""The batched environment under Stable-Baselines3: the episodes that its own vector environments give."""

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

import gymnasium as gym
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecCheckNan, VecMonitor, VecNormalize

from fintrading_agents.sb3 import bootstrapping, make_vec_env
from fintrading_gym.errors import UnknownName

ID = "fintrading_gym:FinMemTrading-v0"
GAMES = [
    {},
    {"hold": "flat", "cost_bps": 20.0},
    {"fill": "next_open", "cost_bps": 5.0, "start": "random"},
    {"start": "random", "timesteps": 7, "lookback": 3},
    {"cell": "spy_bear_2022", "timesteps": None},
]


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
            assert info["TimeLimit.truncated"] is other["TimeLimit.truncated"] is True
            np.testing.assert_array_equal(info["terminal_observation"], other["terminal_observation"])
            assert info["episode"]["r"] == pytest.approx(other["episode"]["r"], abs=1e-6)  # Monitor rounds
            assert info["episode"]["l"] == other["episode"]["l"]
            assert info["episode"]["t"] >= 0
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


def test_attributes_are_those_of_the_one_batched_environment():
    envs = make_vec_env(3)
    assert envs.get_attr("num_envs") == [3, 3, 3]
    assert envs.get_attr("num_envs", indices=1) == [3]
    assert envs.render_mode is None
    assert envs.env_is_wrapped(Monitor, indices=[0, 2]) == [True, True]  # the infos say what a Monitor would
    assert envs.env_is_wrapped(gym.wrappers.ClipReward) == [False] * 3
    assert envs.has_attr("autoreset_mode")
    assert not envs.has_attr("no_such_thing")
    with pytest.raises(AttributeError, match="make_vec_env"):
        envs.set_attr("cost_bps", 5.0)
    with pytest.raises(AttributeError, match="one object"):
        envs.env_method("render")
    envs.close()


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
