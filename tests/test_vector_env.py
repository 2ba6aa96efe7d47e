"""The batched environment against N single ones, bit for bit."""

import inspect
import pickle
import re
import subprocess
import sys
from copy import deepcopy
from importlib.util import find_spec

import gymnasium as gym
import numpy as np
import pytest
from conftest import window_of
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector as wrappers
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import fintrading_gym
from fintrading_gym import ENV_ID
from fintrading_gym.env import FILLS, HOLD_RULES, STARTS, FinMemTradingEnv
from fintrading_gym.errors import MissingExtra, UnknownName
from fintrading_gym.ledger import Ledger
from fintrading_gym.vector_env import DRAWS, FinMemTradingVectorEnv
from fintrading_gym.vector_infos import Ended
from fintrading_gym.windows import CELLS

SELL, HOLD, BUY = 0, 1, 2


def singles(num_envs, cells, mode, **keywords):
    """N single environments in Gymnasium's own loop over them."""

    def make(cell):
        return lambda: gym.make(ENV_ID, cell=cell, observation="vector", disable_env_checker=True, **keywords)

    return SyncVectorEnv([make(cells[k % len(cells)]) for k in range(num_envs)], autoreset_mode=mode)


def plain(value):
    """What two of must be equal for both to be the same: types, signs of zeros and all."""
    if isinstance(value, tuple | list):
        return [plain(part) for part in value]
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [plain(part) for part in value]
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    return repr(value)


COMPILED = [False, pytest.param(True, marks=pytest.mark.skipif(not find_spec("numba"), reason="extra fast"))]

GAMES = {
    "hold": st.sampled_from(list(HOLD_RULES)),
    "fill": st.sampled_from(list(FILLS)),
    "start": st.sampled_from(list(STARTS)),
    "cost_bps": st.sampled_from([0.0, 1.0, 7.5, 3000.0]),
    "timesteps": st.sampled_from([1, 2, 5, 9, 125, None]),
    "lookback": st.sampled_from([1, 7]),
    "identity": st.sampled_from(["real", "masked", "coarse"]),
    "world": st.sampled_from(["real", "reversed", "shuffled:2"]),
}
# Seven days: episodes of many lengths run into its end, and its moves exceed what the view shows unclipped.
WILD, WILD_FROM_DAY_2 = (
    window_of(np.exp([0.0, 1.0, -1.5, 0.0, 3.0, -2.0, 1.0]), np.exp([0.0, 0.7, -2.0, 1.0, 1.0, -1.0, -1.0]), skip)
    for skip in (0, 1)
)
cells = st.lists(st.sampled_from([*CELLS, WILD, WILD_FROM_DAY_2]), min_size=1, max_size=3)
decisions = st.sampled_from([SELL, HOLD, BUY, None])


# Keywords that change nothing in the vector view, or that the batched environment has in its own way.
ELSEWHERE = {"self", "cell", "persona", "observation", "action", "detail", "render_mode"}


def test_every_keyword_of_the_single_environment_is_compared_below():
    compared = set(GAMES) | ELSEWHERE
    assert set(inspect.signature(FinMemTradingEnv.__init__).parameters) == compared


@pytest.mark.parametrize("compiled", COMPILED)
@settings(max_examples=60)
@given(
    data=st.data(),
    game=st.fixed_dictionaries(GAMES),
    cells=cells,
    mode=st.sampled_from(AutoresetMode),
    seed=st.integers(0, 10**6),
)
def test_every_environment_plays_what_a_single_one_plays(compiled, data, game, cells, mode, seed):
    assume(not (game["world"].startswith("shuffled") and WILD_FROM_DAY_2 in cells))  # too short to be shuffled
    num_envs = data.draw(st.integers(len(cells), 5))
    batch = FinMemTradingVectorEnv(num_envs, cells, mode, compiled=compiled, **game)
    loop = singles(num_envs, cells, mode, **game)
    assert plain(batch.reset(seed=seed)) == plain(loop.reset(seed=seed))
    script = data.draw(st.lists(st.lists(decisions, min_size=num_envs, max_size=num_envs), min_size=1, max_size=30))
    played = [*script, *[np.arange(k, k + num_envs) % 3 for k in range(data.draw(st.sampled_from([0, 130, 260])))]]
    for actions in played:
        ours, theirs = batch.step(actions), loop.step(actions)
        assert plain(ours) == plain(theirs)
        over = theirs[3]
        if mode is AutoresetMode.DISABLED and over.any():
            assert plain(batch.reset(options={"reset_mask": over})) == plain(loop.reset(options={"reset_mask": over}))


@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_masked_reset_in_the_middle_begins_those_episodes_alone(mode):
    batch, loop = (
        make(4, ["tsla_main"], mode, timesteps=6, start="random") for make in (FinMemTradingVectorEnv, singles)
    )
    mask = np.array([True, False, True, False])
    assert plain(batch.reset(seed=[5, None, 7, 8])[1]["_date"]) == plain(loop.reset(seed=[5, 6, 7, 8])[1]["_date"])
    batch.reset(seed=3), loop.reset(seed=3)
    for round_ in range(30):
        over = np.zeros(4, np.bool_)
        if mode is not AutoresetMode.DISABLED or round_ % 7 < 4:
            ours, theirs = batch.step([BUY, SELL, None, HOLD]), loop.step([BUY, SELL, None, HOLD])
            assert plain(ours) == plain(theirs)
            over = theirs[3]
        if round_ % 7 == 3 or over.any():
            seed = [round_, None, 1, 2] if round_ % 2 else None
            chosen = mask | over
            ours = batch.reset(seed=seed, options={"reset_mask": chosen})
            assert plain(ours) == plain(loop.reset(seed=seed, options={"reset_mask": chosen}))


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_single_environment_stands_where_its_episode_does_and_moves_on_alone(mode, compiled):
    cells = ["tsla_main", "TSLA:2022-10-06:2022-10-14", "spy_bear_2022"]  # episodes of 8, 6 and 8 decisions
    game = {"timesteps": 8, "start": "random", "hold": "flat", "cost_bps": 3.0}
    envs = FinMemTradingVectorEnv(5, cells, mode, compiled, **game)
    sync = singles(5, cells, mode, **game)
    assert envs.single(1).ledger() == Ledger()
    generator = np.random.default_rng(0)
    for each in (envs, sync):
        each.reset(seed=2)
    for _ in range(30):
        ledgers = [each.unwrapped.ledger() for each in sync.envs]
        assert [envs.single(k).ledger() for k in range(5)] == ledgers
        over = np.array([each.unwrapped._day == each.unwrapped._end for each in sync.envs])
        for k in np.flatnonzero(~over):
            alone = envs.single(k)
            observation = alone.step(BUY)[0]
            assert len(alone.ledger().date) == len(ledgers[k].date) + 1
            assert observation in alone.observation_space
        if mode is AutoresetMode.DISABLED and over.any():
            for each in (envs, sync):
                each.reset(options={"reset_mask": over.copy()})
            continue
        actions = [[None, SELL, HOLD, BUY][k] for k in generator.integers(4, size=5)]
        for each in (envs, sync):
            each.step(actions)
    assert envs.single(-1).ledger() == envs.single(4).ledger()
    with pytest.raises(IndexError):
        envs.single(5)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_an_episode_may_end_in_the_step_after_another_has_ended(mode):
    batch, loop = (make(3, [WILD, WILD_FROM_DAY_2, WILD], mode) for make in (FinMemTradingVectorEnv, singles))
    batch.reset(seed=0), loop.reset(seed=0)
    for _ in range(40):
        assert plain(batch.step([BUY] * 3)) == plain(loop.step([BUY] * 3))


def test_random_starts_follow_the_stream_of_the_single_environment_beyond_one_block_of_draws():
    batch, loop = (
        make(3, ["tsla_main", "nvda_bull_2023"], "SameStep", timesteps=1, start="random")
        for make in (FinMemTradingVectorEnv, singles)
    )
    assert plain(batch.reset(seed=11)) == plain(loop.reset(seed=11))
    for _ in range(2 * DRAWS + 5):
        assert plain(batch.step([BUY] * 3)[0]) == plain(loop.step([BUY] * 3)[0])
    assert plain(batch.reset()) == plain(loop.reset())


def test_starts_without_a_seed_differ():
    envs = gym.make_vec(ENV_ID, 64, start="random")
    assert len(set(envs.reset()[1]["date"])) > 10


# ------------------------------------------------------------------------------------ what it hands out


def test_make_vec_makes_it_by_default_and_remembers_how():
    envs = gym.make_vec(ENV_ID, 3, timesteps=5)
    assert isinstance(envs, FinMemTradingVectorEnv)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert envs.observation_space.shape == (3, 47)
    assert envs.action_space == gym.spaces.MultiDiscrete([3, 3, 3])
    assert gym.make_vec(envs.spec).reset(seed=0)[0].tobytes() == envs.reset(seed=0)[0].tobytes()
    envs.close()


def test_observations_are_new_float32_rows_that_nobody_writes_to_again():
    envs = gym.make_vec(ENV_ID, 5, timesteps=3, autoreset_mode="SameStep")
    given = [envs.reset(seed=0)[0]]
    kept = [given[0].copy()]
    for _ in range(8):
        given.append(envs.step(np.full(5, BUY))[0])
        kept.append(given[-1].copy())
        assert given[-1].dtype == np.float32
        assert given[-1].flags.c_contiguous
        assert given[-1] in envs.observation_space
    assert all((a == b).all() for a, b in zip(given, kept, strict=True))
    assert not any(np.shares_memory(a, b) for i, a in enumerate(given) for b in given[:i])


def test_writing_to_what_a_step_returned_changes_nothing():
    envs, untouched = gym.make_vec(ENV_ID, 3, timesteps=4), gym.make_vec(ENV_ID, 3, timesteps=4)
    returned = envs.reset(seed=0), untouched.reset(seed=0)
    for _ in range(9):
        *arrays, infos = returned[0]
        for array in [*arrays, *(a for a in infos.values() if a.dtype != object)]:
            array.fill(1)
        actions = np.array([BUY, SELL, HOLD])
        returned = envs.step(actions), untouched.step(actions)
        assert (actions == [BUY, SELL, HOLD]).all()
        assert plain(returned[0]) == plain(returned[1])


def test_infos_read_later_tell_of_their_own_step():
    envs = gym.make_vec(ENV_ID, 3, timesteps=4, autoreset_mode="SameStep", start="random")
    again = gym.make_vec(ENV_ID, 3, timesteps=4, autoreset_mode="SameStep", start="random")
    late, at_once = [envs.reset(seed=0)[1]], [plain(again.reset(seed=0)[1])]
    for k in range(13):
        actions = np.arange(k, k + 3) % 3
        *_, rewards, _, _, infos = envs.step(actions)
        rewards.fill(9)
        late.append(infos)
        at_once.append(plain(again.step(actions)[4]))
    envs.reset(seed=1)
    assert [plain(infos) for infos in late] == at_once


def test_infos_are_a_dict_in_every_way_of_reading_one():
    def last():
        envs = gym.make_vec(ENV_ID, 2, timesteps=1)
        envs.reset(seed=0)
        return envs.step([BUY, None])[4]

    told = {key: plain(last()[key]) for key in last()}
    assert set(told) >= {"date", "_date", "ledger", "score", "reason", "_reason"}
    for read in (
        dict,
        deepcopy,
        lambda infos: {**infos},
        lambda infos: infos.copy(),
        lambda infos: infos | {},
        lambda infos: {} | infos,
        lambda infos: dict(infos.items()),
        lambda infos: dict(zip(infos, infos.values(), strict=True)),
        lambda infos: {key: infos.get(key) for key in infos},
        lambda infos: {key: infos.pop(key) for key in list(infos)},
        lambda infos: {key: infos.setdefault(key, None) for key in infos},
        lambda infos: dict(infos.popitem() for _ in list(infos)),
        lambda infos: pickle.loads(pickle.dumps(infos)),
    ):
        assert plain(read(last())) == told
    assert last().get("episode", 5) == last().pop("episode", 5) == 5
    assert repr(last()) == repr(dict(last()))
    assert last() != {}
    infos = last()
    infos["score"] = "mine"
    assert dict(infos)["score"] == "mine"


def test_the_last_infos_hold_ledger_and_score():
    envs = gym.make_vec(ENV_ID, 2, timesteps=3)
    envs.reset(seed=0)
    for action in ([BUY, SELL], [HOLD, None], [SELL, BUY]):
        *_, truncated, infos = envs.step(action)
    assert truncated.all()
    assert isinstance(infos["ledger"][0], Ledger)
    assert infos["ledger"][1].action == (SELL, HOLD, BUY)
    assert infos["ledger"][1].valid == (True, False, True)
    assert 0 < infos["score"][1] < 1


def test_a_pickled_batch_goes_on_where_it_was():
    envs = gym.make_vec(ENV_ID, 4, timesteps=3, start="random")
    envs.reset(seed=2)
    envs.step(np.full(4, BUY))
    copy = pickle.loads(pickle.dumps(envs))
    for _ in range(10):
        assert plain(copy.step(np.full(4, SELL))) == plain(envs.step(np.full(4, SELL)))


# --------------------------------------------------------------------------------- Gymnasium's wrappers

EVERY, NEXT = ("NextStep", "SameStep", "Disabled"), ("NextStep",)
# name: its arguments, and the modes that Gymnasium itself allows under it
WRAPPERS = {
    "RecordEpisodeStatistics": ({}, EVERY),
    "NormalizeReward": ({}, EVERY),
    "ClipReward": ({"min_reward": -0.01, "max_reward": 0.01}, EVERY),
    "DictInfoToList": ({}, EVERY),
    "NormalizeObservation": ({}, NEXT),
    "FlattenObservation": ({}, NEXT),
    "RescaleObservation": ({"min_obs": np.float32(-1), "max_obs": np.float32(1)}, NEXT),
}


@pytest.mark.parametrize(("name", "mode"), [(name, mode) for name, (_, modes) in WRAPPERS.items() for mode in modes])
def test_gymnasiums_vector_wrappers_see_no_difference(name, mode):
    both = [make(3, ["tsla_main"], mode, timesteps=4) for make in (FinMemTradingVectorEnv, singles)]
    ours, theirs = (getattr(wrappers, name)(envs, **WRAPPERS[name][0]) for envs in both)
    assert plain(_timeless(ours.reset(seed=0))) == plain(_timeless(theirs.reset(seed=0)))
    for k in range(13):
        actions = np.arange(k, k + 3) % 3
        returned = ours.step(actions)
        assert plain(_timeless(returned)) == plain(_timeless(theirs.step(actions)))
        if mode == "Disabled" and returned[3].all():
            ours.reset(), theirs.reset()


def _timeless(returned):
    infos = returned[-1]
    if isinstance(infos, dict) and "episode" in infos:
        infos["episode"].pop("t")  # seconds on the clock
    return returned


def test_episode_statistics_are_those_of_the_ledger():
    envs = wrappers.RecordEpisodeStatistics(gym.make_vec(ENV_ID, 3, timesteps=7, cost_bps=5))
    envs.reset(seed=0)
    for k in range(7):
        infos = envs.step(np.arange(k, k + 3) % 3)[4]
    assert infos["episode"]["l"].tolist() == [7, 7, 7]
    assert infos["episode"]["r"] == pytest.approx([sum(ledger.log_return) for ledger in infos["ledger"]])
    assert infos["_episode"].all()


def test_statistics_survive_a_masked_reset():
    envs = wrappers.RecordEpisodeStatistics(
        gym.make_vec(ENV_ID, 2, cell=["tsla_main", WILD], autoreset_mode="Disabled", timesteps=9)
    )
    envs.reset(seed=0)
    for _ in range(6):
        *_, truncated, infos = envs.step([BUY, BUY])
    assert truncated.tolist() == [False, True]
    envs.reset(options={"reset_mask": truncated})
    for _ in range(3):
        *_, truncated, infos = envs.step([BUY, BUY])
    assert truncated.tolist() == [True, False]
    assert infos["episode"]["l"].tolist() == [9, 0]


# --------------------------------------------------------------------------------------- several cells


def test_several_cells_are_taken_in_turn():
    envs = gym.make_vec(ENV_ID, 5, cell=["tsla_main", "nvda_bull_2023", "SPY:2022-03-01:2022-04-01"], timesteps=None)
    dates = envs.reset(seed=0)[1]["date"]
    assert dates.tolist() == ["2022-10-06", "2023-01-03", "2022-03-01", "2022-10-06", "2023-01-03"]


# -------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_step_before_the_first_reset_is_refused(mode):
    envs = gym.make_vec(ENV_ID, 2, autoreset_mode=mode)
    with pytest.raises(ResetNeeded):
        envs.step([BUY, BUY])
    with pytest.raises(ResetNeeded, match="without a reset_mask"):
        envs.reset(options={"reset_mask": np.array([True, False])})


def test_a_step_beyond_the_end_is_refused_where_nothing_resets():
    envs = gym.make_vec(ENV_ID, 3, cell=["tsla_main", WILD, WILD], autoreset_mode="Disabled")
    envs.reset(seed=0)
    for _ in range(6):
        envs.step([BUY] * 3)
    with pytest.raises(ResetNeeded, match="2 episodes, that of environment 1 first"):
        envs.step([BUY] * 3)
    envs.reset(options={"reset_mask": np.array([False, True, True])})
    envs.step([BUY] * 3)


@pytest.mark.parametrize(
    ("actions", "words"),
    [
        ([0, 3], "environment 1: action=.*3.* there are 0 sell, 1 hold, 2 buy, or None for none"),
        ([-1, 0], "environment 0: action=.*-1"),
        (np.array([0, 200], np.uint8), "environment 1: .*200"),
        (np.array([2**63, 0], np.uint64), "environment 0"),
        ([0, 2**70], "environment 1"),
        ([1.0, 2.0], "environment 0: action=.*1.0"),
        ([True, False], "environment 0: action=.*True"),
        (["buy", "sell"], "environment 0: action=.*buy"),
        ([0, "buy"], "environment"),
        ([None, 2.5], "environment 1: action=2.5"),
        ([0, 1, 2], re.escape("actions of shape (3,)")),
        (1, re.escape("actions of shape ()")),
        (None, re.escape("actions of shape ()")),
    ],
)
@pytest.mark.parametrize("compiled", COMPILED)
def test_what_is_no_action_is_refused_and_moves_nothing(compiled, actions, words):
    envs, untouched = (gym.make_vec(ENV_ID, 2, timesteps=3, compiled=compiled) for _ in range(2))
    envs.reset(seed=0), untouched.reset(seed=0)
    for action in ([BUY, SELL], [BUY, BUY], [SELL, SELL]):
        with pytest.raises(ValueError, match=words) as fault:
            envs.step(actions)
        assert "\n" not in str(fault.value)
        assert plain(envs.step(action)) == plain(untouched.step(action))


def test_the_action_of_a_resetting_environment_is_ignored():
    envs = gym.make_vec(ENV_ID, 2, cell=["tsla_main", WILD])
    envs.reset(seed=0)
    for _ in range(6):
        envs.step([BUY, BUY])
    infos = envs.step([BUY, 99])[4]
    assert infos["date"][1] == WILD.first
    assert infos["valid"].all()


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
@pytest.mark.parametrize("compiled", COMPILED)
def test_integers_of_every_kind_are_actions(compiled, kind):
    envs = gym.make_vec(ENV_ID, 3, compiled=compiled)
    envs.reset(seed=0)
    assert envs.step(np.array([0, 1, 2], kind))[4]["position"].tolist() == [-1, 0, 1]


@pytest.mark.parametrize("compiled", COMPILED)
def test_arrays_of_every_layout_are_actions(compiled):
    envs = gym.make_vec(ENV_ID, 3, compiled=compiled)
    envs.reset(seed=0)
    read_only = np.array([0, 1, 2])
    read_only.flags.writeable = False
    unaligned = np.frombuffer(b"." + np.array([0, 1, 2]).tobytes(), np.uint8)[1:].view(np.int64)
    for actions in (read_only, unaligned, np.repeat([0, 1, 2], 2)[::2], np.array([0, 1, 2], ">i8")):
        assert envs.step(actions)[4]["position"].tolist() == [-1, 0, 1]


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        (
            {"observation": "text"},
            "observation='text' is not batched, only 'vector': make_vec(..., vectorization_mode='sync')",
        ),
        ({"observation": "both"}, "observation='both' is not batched"),
        ({"action": "text"}, "action='text' is not batched, only 'index'"),
        ({"observation": ["vector"]}, "No observation ['vector']"),
        ({"render_mode": "ansi"}, "render_mode='ansi' is not batched"),
        ({"identity": "coarser"}, "Did you mean 'coarse'"),
        ({"observation": "vectors"}, "Did you mean 'vector'"),
        ({"render_mode": "rgb"}, "Did you mean 'rgb_array'"),
        ({"cell": "tsla_man"}, "Did you mean 'tsla_main'"),
        ({"cell": ["tsla_main", "tsla_man"]}, "Did you mean 'tsla_main'"),
        ({"cell": []}, "names 0 cells for num_envs=2"),
        ({"cell": ["tsla_main"] * 3}, "names 3 cells for num_envs=2"),
        ({"autoreset_mode": "NextSteps"}, "Did you mean 'NextStep'"),
        ({"hold": "keeps"}, "Did you mean 'keep'"),
        ({"timesteps": 0}, "timesteps=0"),
        ({"num_envs": 0}, "num_envs=0 is not a whole number >= 1"),
    ],
)
def test_a_wrong_keyword_is_told_in_one_line(keywords, words):
    with pytest.raises(ValueError, match=re.escape(words)) as fault:
        FinMemTradingVectorEnv(**{"num_envs": 2} | keywords)
    assert "\n" not in str(fault.value)
    assert isinstance(fault.value, UnknownName) == ("Did you mean" in words or words.startswith("No "))


@pytest.mark.parametrize(
    ("mask", "fault"),
    [
        ([True, False], TypeError),
        (np.array([1, 0]), TypeError),
        (np.array([True]), ValueError),
        (np.array([False, False]), ValueError),
    ],
)
def test_a_wrong_mask_is_refused(mask, fault):
    envs = gym.make_vec(ENV_ID, 2)
    envs.reset(seed=0)
    with pytest.raises(fault, match="reset_mask"):
        envs.reset(options={"reset_mask": mask})


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("seed", [[1, 2], [1, 2, 3, 4], -1, 1.5])
def test_a_wrong_seed_is_refused(seed, start):
    envs = gym.make_vec(ENV_ID, 3, start=start)
    with pytest.raises((ValueError, TypeError, gym.error.Error)):
        envs.reset(seed=seed)


@pytest.mark.parametrize("seed", [np.int64(7), np.array([7, 8, 9]), [7, np.uint8(8), 9]])
def test_seeds_of_numpy_are_those_of_python(seed):
    given, plainly = (gym.make_vec(ENV_ID, np.int64(3), start="random") for _ in range(2))
    assert plain(given.reset(seed=seed)) == plain(plainly.reset(seed=7))


def test_a_copy_of_infos_is_as_late_as_they_are(monkeypatch):
    computed = []
    score = Ended.score
    monkeypatch.setattr(Ended, "score", lambda ended, n: computed.append(n) or score(ended, n))
    envs = gym.make_vec(ENV_ID, 2, timesteps=1)
    envs.reset(seed=0)
    infos = envs.step([BUY, SELL])[4]
    copy = infos.copy()
    copy["mine"] = 1
    assert computed == []
    assert copy["score"].tolist() == infos["score"].tolist()
    assert "mine" not in infos


def test_options_are_left_as_they_were_given():
    envs = gym.make_vec(ENV_ID, 2)
    envs.reset()
    options = {"reset_mask": np.array([True, False])}
    envs.reset(options=options)
    assert list(options) == ["reset_mask"]


# ------------------------------------------------------------------------------------------ the kernel


def test_nothing_compiles_unless_it_is_asked_for():
    code = f"import sys, gymnasium; gymnasium.make_vec('fintrading_gym:{ENV_ID}', 2); print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_without_numba_the_error_is_the_line_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "fintrading_gym.kernel", raising=False)
    monkeypatch.delattr(fintrading_gym, "kernel", raising=False)
    with pytest.raises(MissingExtra, match=re.escape("pip install 'fintrading-gym[fast]'")):
        FinMemTradingVectorEnv(2, compiled=True)


# --------------------------------------------------------------------------------------- no look ahead


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("fill", FILLS)
def test_nothing_that_is_returned_depends_on_a_later_price(fill, compiled):
    days, changed = 30, 18
    closes = 100 * np.exp(np.cumsum(np.random.default_rng(0).normal(0, 0.03, days)))
    other = np.where(np.arange(days) < changed, closes, closes[::-1] * 7)
    both = [
        FinMemTradingVectorEnv(6, window_of(prices, skip=2), timesteps=None, fill=fill, compiled=compiled)
        for prices in (closes, other)
    ]
    returned = [[plain(envs.reset(seed=0))] for envs in both]
    for actions in np.random.default_rng(1).integers(3, size=(days - 3, 6)):
        for envs, steps in zip(both, returned, strict=True):
            steps.append(plain(envs.step(actions)))
    known = changed - 2  # days of the window that stand before the change
    assert returned[0][:known] == returned[1][:known]
    assert returned[0][known] != returned[1][known]
