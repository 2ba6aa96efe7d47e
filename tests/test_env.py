"""The environment's rules, checked by hand, by an independent loop, and by Gymnasium."""

import pickle
import re
import subprocess
import sys
import warnings
from math import log

import gymnasium as gym
import numpy as np
import pytest
from conftest import table_of
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from hypothesis import given
from hypothesis import strategies as st

import fintrading_gym  # noqa: F401 - registers the id
from fintrading_gym.env import ACTION, FILLS, HOLD_RULES, OBSERVATION, FinMemTradingEnv
from fintrading_gym.errors import DataError, UnknownName
from fintrading_gym.observations import columns
from fintrading_gym.windows import CELLS, Window, read_prices

ID = "FinMemTrading-v0"
SELL, HOLD, BUY = 0, 1, 2


def play(env, actions, seed=0):
    """All that an episode returns, as a list of (observation, reward, terminated, truncated, info)."""
    steps = [(*env.reset(seed=seed),)]
    for action in actions:
        steps.append(env.step(action))
        if steps[-1][3]:
            break
    return steps


# ------------------------------------------------------------------------------------------- by hand


@pytest.mark.parametrize(
    ("keywords", "actions", "rewards"),
    [
        ({}, [BUY, BUY, BUY], [log(1.1), log(0.9), 0.0]),
        ({}, [SELL, HOLD, HOLD], [-log(1.1), -log(0.9), 0.0]),
        ({}, [BUY, SELL, HOLD], [log(1.1), -log(0.9), 0.0]),
        ({"hold": "flat"}, [BUY, HOLD, BUY], [log(1.1), 0.0, 0.0]),
        ({"cost_bps": 10}, [BUY, SELL, HOLD], [log(1.1) - 0.001, -log(0.9) - 0.002, 0.0]),
        ({"cost_bps": 10, "hold": "flat"}, [BUY, HOLD, SELL], [log(1.1) - 0.001, -0.001, -0.001]),
        (
            # The old position earns the night, the new one the day: opens are 104, 112, 98.
            {"fill": "next_open"},
            [BUY, SELL, HOLD],
            [log(110 / 104), log(112 / 110) - log(99 / 112), -log(98 / 99) - log(99 / 98)],
        ),
    ],
)
def test_four_days_by_hand(four_days, keywords, actions, rewards):
    env = gym.make(ID, cell=four_days, **keywords)
    assert [step[1] for step in play(env, actions)[1:]] == pytest.approx(rewards, abs=1e-12)


def test_the_info_tells_of_the_day_that_is_shown(four_days):
    steps = play(gym.make(ID, cell=four_days), [BUY, SELL, HOLD])
    assert steps[0][1] == {
        "date": "2022-01-03",
        "position": 0,
        "price": 100.0,
        "log_return": 0.0,
        "cumulative_log_return": 0.0,
        "valid": True,
    }
    first, _, last = (step[4] for step in steps[1:])
    assert (first["date"], first["position"], first["price"]) == ("2022-01-04", 1, 110.0)
    assert first["log_return"] == first["cumulative_log_return"] == pytest.approx(log(1.1))
    assert "ledger" not in first
    assert last["ledger"].date == ("2022-01-03", "2022-01-04", "2022-01-05")
    assert last["ledger"].price == (100.0, 110.0, 99.0)
    assert last["ledger"].action == (BUY, SELL, HOLD)
    assert last["ledger"].position == (1, -1, -1)
    assert sum(last["ledger"].log_return) == pytest.approx(last["cumulative_log_return"])
    assert 0 <= last["score"] <= 1


def test_the_window_end_is_a_truncation_and_a_step_beyond_it_is_refused(four_days):
    env = gym.make(ID, cell=four_days)
    steps = play(env, [BUY] * 9)
    assert len(steps) == 4
    assert [step[2:4] for step in steps[1:]] == [(False, False), (False, False), (False, True)]
    with pytest.raises(ResetNeeded):
        env.step(BUY)
    env.reset()
    env.step(BUY)


def test_a_step_before_the_first_reset_is_refused():
    with pytest.raises(ResetNeeded):
        FinMemTradingEnv().step(BUY)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize(("timesteps", "decisions"), [(50, 50), (None, None), (10_000, None), (1, 1)])
def test_an_episode_lasts_as_long_as_it_says(cell, timesteps, decisions):
    env = gym.make(ID, cell=cell, timesteps=timesteps, observation="vector")
    expected = decisions or CELLS[cell].span()[1] - 1
    assert len(play(env, [HOLD] * 1000)) - 1 == expected == env.unwrapped.timesteps


def test_every_random_start_leaves_room_for_the_whole_episode():
    env = gym.make(ID, cell="tsla_main", start="random", timesteps=120, observation="vector")
    starts = set()
    for seed in range(100):
        steps = play(env, [BUY] * 200, seed)
        starts.add(steps[0][1]["date"])
        assert len(steps) == 121
    assert len(starts) == 7  # 127 days, 126 decisions, 120 of them played


# ------------------------------------------------------------------------- against an independent loop

actions_lists = st.lists(st.sampled_from([SELL, HOLD, BUY, None]), min_size=1, max_size=126)
games = st.fixed_dictionaries(
    {
        "hold": st.sampled_from(list(HOLD_RULES)),
        "fill": st.sampled_from(list(FILLS)),
        "cost_bps": st.sampled_from([0.0, 1.0, 7.5, 100.0]),
    }
)


@given(actions=actions_lists, game=games, cell=st.sampled_from(list(CELLS)))
def test_rewards_are_position_times_log_return_less_costs(actions, game, cell):
    frame = _raw(CELLS[cell])
    adjusted = [float(r["adj_close"]) for r in frame]
    opens = [float(r["open"]) * float(r["adj_close"]) / float(r["close"]) for r in frame]
    env = gym.make(ID, cell=cell, timesteps=None, observation="vector", **game)
    position, total = 0, 0.0
    for i, (_, reward, _, _, info) in enumerate(play(env, actions)[1:]):
        action = HOLD if actions[i] is None else actions[i]
        before = position
        position = {SELL: -1, BUY: 1, HOLD: before if game["hold"] == "keep" else 0}[action]
        if game["fill"] == "close":
            earned = position * log(adjusted[i + 1] / adjusted[i])
        else:
            earned = before * log(opens[i + 1] / adjusted[i]) + position * log(adjusted[i + 1] / opens[i + 1])
        earned -= game["cost_bps"] / 10_000 * abs(position - before)
        total += earned
        assert reward == pytest.approx(earned, abs=1e-12)
        assert info["cumulative_log_return"] == pytest.approx(total, abs=1e-10)
        assert info["position"] == position
        assert info["valid"] is (actions[i] is not None)


def _raw(window):
    import csv

    from fintrading_gym.windows import DATA

    rows = list(csv.DictReader((DATA / f"{window.ticker}.csv").read_text().splitlines()))
    return [r for r in rows if window.first <= r["date"] <= window.last]


# ------------------------------------------------------------------------------ no leak of the future


def _bytes(step):
    observation, info = (step[0], step[1]) if len(step) == 2 else (step[0], step[4])
    parts = observation.values() if isinstance(observation, dict) else [observation]
    seen = b"|".join(p.encode() if isinstance(p, str) else p.tobytes() for p in parts)
    return seen + repr({k: v for k, v in info.items() if k not in ("ledger", "score")}).encode()


@pytest.mark.parametrize("observation", OBSERVATION)
@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("cell", CELLS)
def test_nothing_shown_on_a_day_depends_on_later_prices(cell, fill, observation):
    window = CELLS[cell]
    first, days = window.span()
    rng = np.random.default_rng(days)
    actions = rng.integers(0, 3, days - 1).tolist()
    keywords = {"observation": observation, "fill": fill, "timesteps": None, "cost_bps": 2.0}
    true = play(gym.make(ID, cell=window, **keywords), actions)
    for today in (0, 1, 20, days // 2, days - 2):
        changed = Window(window.ticker, window.first, window.last, _with_another_future(window, first + today, rng))
        other = play(gym.make(ID, cell=changed, **keywords), actions[: today + 1])
        assert [_bytes(s) for s in other[: today + 1]] == [_bytes(s) for s in true[: today + 1]]
        assert _bytes(other[today + 1]) != _bytes(true[today + 1])


def _with_another_future(window, today, rng):
    """The same table up to day `today`; every later number is another one."""
    import pandas as pd

    from fintrading_gym.windows import DATA

    frame = pd.read_csv(DATA / f"{window.ticker}.csv")
    later = frame.index > today
    factor = rng.uniform(0.3, 3.0, later.sum())
    for name in ("open", "high", "low", "close", "adj_close"):
        frame.loc[later, name] = frame.loc[later, name] * factor
    frame.loc[later, "volume"] = frame.loc[later, "volume"] * 3 + 17
    return read_prices(frame)


# -------------------------------------------------------------------------------------- reproducible

EPISODE = """
import hashlib, pickle, gymnasium as gym, fintrading_gym, numpy as np
digest = hashlib.sha256()
env = gym.make("FinMemTrading-v0", cell="nvda_bull_2023", start="random", cost_bps=3.0, fill="next_open")
for seed in (0, 7):
    observation, info = env.reset(seed=seed)
    rng, over = np.random.default_rng(seed), False
    while not over:
        digest.update(observation["text"].encode() + observation["vector"].tobytes() + repr(info).encode())
        observation, reward, _, over, info = env.step(int(rng.integers(3)))
    digest.update(repr((reward, info, info["ledger"].rows())).encode())
print(digest.hexdigest())
"""


def test_the_same_seed_gives_the_same_bytes_in_two_processes():
    runs = [
        subprocess.run(
            [sys.executable, "-c", EPISODE], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": h}
        ).stdout
        for h in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert len(runs[0].strip()) == 64


def test_two_environments_in_one_process_do_not_touch_each_other():
    keywords = {"start": "random", "observation": "vector", "timesteps": 20}
    alone = [_bytes(s) for s in play(gym.make(ID, **keywords), [BUY, SELL] * 10, seed=3)]
    one, other = gym.make(ID, **keywords), gym.make(ID, **keywords)
    other.reset(seed=99)
    steps = [one.reset(seed=3)]
    for action in [BUY, SELL] * 10:
        other.step(action)
        steps.append(one.step(action))
    assert [_bytes(s) for s in steps] == alone


def test_resetting_twice_gives_the_same_first_day():
    env = gym.make(ID)
    first = _bytes(env.reset(seed=1))
    env.step(BUY)
    assert _bytes(env.reset(seed=1)) == first


# ------------------------------------------------------------------------------- Gymnasium's own checks


@pytest.mark.parametrize("action", ACTION)
@pytest.mark.parametrize("observation", OBSERVATION)
@pytest.mark.parametrize("cell", CELLS)
def test_gymnasium_checks_every_cell_and_view_without_a_warning(cell, observation, action):
    env = gym.make(ID, cell=cell, observation=observation, action=action, disable_env_checker=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped, skip_render_check=True)


def test_gymnasium_checks_every_render_mode_without_a_warning():
    pytest.importorskip("matplotlib")
    check_env(gym.make(ID, timesteps=3).unwrapped)


def test_both_forms_of_make_give_the_environment():
    assert isinstance(gym.make(ID).unwrapped, FinMemTradingEnv)
    assert isinstance(gym.make(f"fintrading_gym:{ID}").unwrapped, FinMemTradingEnv)


def test_the_module_form_registers_by_itself():
    code = f"import gymnasium; print(gymnasium.make('fintrading_gym:{ID}').reset(seed=0)[1]['date'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2022-10-06"


@pytest.mark.parametrize("observation", OBSERVATION)
def test_make_vec_sync_agrees_with_single_environments(observation):
    envs = gym.make_vec(ID, 3, vectorization_mode="sync", observation=observation, timesteps=4)
    single = gym.make(ID, observation=observation, timesteps=4)
    observations, _ = envs.reset(seed=0)
    steps = play(single, [BUY, SELL, HOLD, BUY])
    for k in range(4):
        observations, rewards, _, truncated, _ = envs.step(np.full(3, [BUY, SELL, HOLD, BUY][k]))
        assert rewards == pytest.approx([steps[k + 1][1]] * 3)
        vector = observations["vector"] if observation == "both" else observations
        if observation != "text":
            expected = steps[k + 1][0]["vector"] if observation == "both" else steps[k + 1][0]
            assert (np.asarray(vector) == expected).all()
        else:
            assert vector == (steps[k + 1][0],) * 3
    assert truncated.all()
    envs.close()


def test_make_vec_async_works_in_spawned_workers():
    envs = gym.make_vec(
        f"fintrading_gym:{ID}",
        2,
        vectorization_mode="async",
        observation="vector",
        timesteps=3,
        vector_kwargs={"context": "spawn", "autoreset_mode": AutoresetMode.SAME_STEP},
    )
    first, _ = envs.reset(seed=[0, 1])
    for _ in range(3):
        _, rewards, _, truncated, infos = envs.step(np.array([BUY, SELL]))
    assert truncated.all()
    assert rewards[0] == -rewards[1]
    assert [type(info).__name__ for info in infos["final_info"]["ledger"]] == ["Ledger", "Ledger"]
    assert first.shape == (2, 47)
    envs.close()


def test_make_vec_async_carries_text_without_shared_memory():
    envs = gym.make_vec(
        ID, 2, vectorization_mode="async", observation="text", timesteps=3, vector_kwargs={"shared_memory": False}
    )
    envs.reset(seed=0)
    texts, *_ = envs.step(np.array([BUY, SELL]))
    assert "long" in texts[0]
    assert "short" in texts[1]
    envs.close()


@pytest.mark.parametrize("observation", ["text", "both"])
def test_make_vec_async_refuses_to_share_text_and_says_what_to_do(observation):
    with pytest.raises(ValueError, match="shared_memory=False"):
        gym.make_vec(ID, 2, vectorization_mode="async", observation=observation)


def test_a_pickled_environment_goes_on_where_it_was():
    env = FinMemTradingEnv(start="random", timesteps=10)
    env.reset(seed=5)
    env.step(BUY)
    copy = pickle.loads(pickle.dumps(env))
    for action in (SELL, HOLD, BUY):
        assert _bytes(copy.step(action)) == _bytes(env.step(action))
    assert copy.reset()[1] == env.reset()[1]  # the random generator came along


# --------------------------------------------------------------------------------------------- rendering


def test_ansi_tells_the_last_step(four_days):
    env = gym.make(ID, cell=four_days, render_mode="ansi")
    env.reset()
    assert "2022-01-03" in env.render()
    env.step(SELL)
    assert re.search(r"2022-01-04 .*110\.00 .*short .*-0\.0953 .*sell", env.render())
    env.step(None)
    assert "no decision" in env.render()


def test_human_prints_each_day(four_days, capsys):
    env = gym.make(ID, cell=four_days, render_mode="human")
    play(env, [BUY] * 3)
    lines = capsys.readouterr().out.splitlines()
    assert [line[:10] for line in lines] == ["2022-01-03", "2022-01-04", "2022-01-05", "2022-01-06"]


def test_the_picture_marks_buys_and_sells_and_draws_the_equity(four_days, monkeypatch):
    figures = pytest.importorskip("matplotlib.figure")
    drawn = []
    original = figures.Figure.subplots
    monkeypatch.setattr(
        figures.Figure, "subplots", lambda self, *a, **k: drawn.append(original(self, *a, **k)) or drawn[-1]
    )
    env = gym.make(ID, cell=four_days, render_mode="rgb_array")
    play(env, [BUY, HOLD, SELL])
    env.render()
    above, below = drawn[0]
    marks = {marked.get_label(): marked.get_offsets().tolist() for marked in above.collections}
    assert marks == {"buy": [[0.0, 100.0]], "sell": [[2.0, 99.0]]}
    assert above.lines[0].get_ydata().tolist() == pytest.approx([100, 110, 99, 99])
    assert below.lines[0].get_ydata().tolist() == pytest.approx([0, log(1.1), log(0.99), log(0.99)])


def test_rgb_array_changes_with_what_happens(four_days):
    pytest.importorskip("matplotlib")
    env = gym.make(ID, cell=four_days, render_mode="rgb_array")
    env.reset()
    before = env.render()
    assert before.shape == (480, 720, 3)
    assert before.dtype == np.uint8
    env.step(BUY)
    assert (env.render() != before).any()


def test_render_without_a_mode_says_how():
    env = FinMemTradingEnv()
    env.reset()
    with pytest.raises(ValueError, match="render_mode='ansi'"):
        env.render()


# ------------------------------------------------------------------------------------- replies as actions


def test_text_actions_are_read_and_what_is_no_decision_holds(four_days):
    env = gym.make(ID, cell=four_days, action="text")
    replies = ['{"action": "buy"}', "I would rather wait", {"content": '```json\n{"decision": "sell"}\n```'}]
    steps = play(env, replies)
    assert [s[4]["position"] for s in steps[1:]] == [1, 1, -1]
    assert [s[4]["valid"] for s in steps[1:]] == [True, False, True]
    assert steps[2][4]["reason"] == "no_object"
    assert "reason" not in steps[1][4]
    assert steps[3][4]["ledger"].valid == (True, False, True)


@pytest.mark.parametrize("action", [3, -1, 7, 1.0, "buy", [1], np.array([1, 2]), b"1"])
def test_what_is_no_action_is_refused(action):
    env = FinMemTradingEnv()
    env.reset()
    with pytest.raises(ValueError, match="0 sell, 1 hold, 2 buy") as fault:
        env.step(action)
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize("action", [2, np.int64(2), np.int8(2), np.array(2)])
def test_integers_of_every_kind_are_actions(action):
    env = FinMemTradingEnv()
    env.reset()
    assert env.step(action)[4]["position"] == 1


def test_a_whole_api_response_is_refused_and_told_where_its_message_is():
    env = FinMemTradingEnv(action="text")
    env.reset()
    with pytest.raises(ValueError, match=re.escape("choices[0].message")):
        env.step({"choices": [{"message": {"content": '{"action": "buy"}'}}]})


@pytest.mark.parametrize("action", [3, None, 1.5, ["buy"]])
def test_what_is_no_reply_is_refused_in_text_mode(action):
    env = FinMemTradingEnv(action="text")
    env.reset()
    if action is None:
        assert env.step(action)[4]["valid"] is False
    else:
        with pytest.raises(ValueError, match="reply"):
            env.step(action)


# ------------------------------------------------------------------------------------------ wrong keywords


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"cell": "tsla_man"}, "Did you mean 'tsla_main'"),
        ({"persona": "adaptiv"}, "Did you mean 'adaptive'"),
        ({"observation": "vectors"}, "Did you mean 'vector'"),
        ({"action": "idx"}, "there are ['index', 'text']"),
        ({"hold": "keeps"}, "Did you mean 'keep'"),
        ({"fill": "open"}, "Did you mean 'next_open'"),
        ({"start": "rand"}, "Did you mean 'random'"),
        ({"detail": "ful"}, "Did you mean 'full'"),
        ({"render_mode": "rgb"}, "Did you mean 'rgb_array'"),
        ({"timesteps": 0}, "timesteps=0 is not a whole number >= 1 or None"),
        ({"timesteps": 2.5}, "timesteps=2.5"),
        ({"timesteps": True}, "timesteps=True"),
        ({"lookback": 0}, "lookback=0"),
        ({"cost_bps": -1}, "cost_bps=-1"),
        ({"cost_bps": float("nan")}, "cost_bps=nan"),
        ({"cost_bps": "1"}, "cost_bps='1'"),
        ({"cost_bps": True}, "cost_bps=True"),
        ({"cost_bps": 1e5}, "0..10000"),
    ],
)
def test_a_wrong_keyword_is_told_in_one_line(keywords, words):
    with pytest.raises(ValueError, match=re.escape(words)) as fault:
        FinMemTradingEnv(**keywords)
    assert "\n" not in str(fault.value)
    assert isinstance(fault.value, UnknownName) or not isinstance(fault.value, DataError)


def test_a_users_own_table_plays():
    prices = read_prices(table_of(np.linspace(5, 9, 12)))
    env = gym.make(ID, cell=Window("MINE", "2022-01-05", "2022-01-12", prices))
    steps = play(env, [BUY] * 20)
    assert sum(s[1] for s in steps[1:]) == pytest.approx(log(prices.close[9] / prices.close[2]))


# ---------------------------------------------------------------------------------------------- the docs


def test_the_docstring_has_cartpoles_headings_and_every_keyword():
    text = FinMemTradingEnv.__doc__
    headings = re.findall(r"## (.*)", text)
    assert headings[:6] == [
        "Description", "Action Space", "Observation Space", "Rewards", "Starting State", "Episode End",
    ]  # fmt: skip
    assert headings[-2:] == ["Arguments", "Version History"]
    told = re.findall(r"\* `(\w+)`:", text[text.index("## Arguments") :])
    code = FinMemTradingEnv.__init__.__code__
    assert told == list(code.co_varnames[1 : code.co_argcount])


def test_the_docstrings_table_of_columns_is_the_codes():
    names = list(columns(7))
    what = columns(7)
    told = {}
    for where, name, holds in re.findall(r"    \| ([^|]+) \| (`[^|]+) \| ([^|]+) \|", FinMemTradingEnv.__doc__):
        if where.startswith("5 (6 - k)"):
            offset = int(where.partition("+")[2] or 0)
            told |= {5 * (6 - k) + offset: (name.strip("`").replace("_k", f"_{k}"), holds) for k in range(7)}
        elif ".." in where:
            told |= {42 + i: (f"decision_{5 - i}", holds) for i in range(5)}
        else:
            told[int(where)] = (name.strip("`"), holds)
    assert [told[i] for i in range(47)] == [(name, what[name]) for name in names]
