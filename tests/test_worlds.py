"""Counterfactual worlds: other paths, made of the same days."""

import re
import subprocess
import sys
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest
from conftest import window_of
from hypothesis import given
from hypothesis import strategies as st

from fintrading_gym.errors import DataError, UnknownName
from fintrading_gym.windows import CELLS, TICKERS, read_prices
from fintrading_gym.worlds import DRAWN, WORLDS, find_world, make_world

ID = "fintrading_gym:FinMemTrading-v0"
PRICED = ("open", "high", "low", "close")
CHANGED = ("mirror", "shuffled", "reversed")  # worlds of another path
cells = pytest.mark.parametrize("cell", CELLS)


def played(window, name="close"):
    first, days = window.span()
    return getattr(window.load(), name)[first : first + days]


def returns(window):
    return np.diff(np.log(played(window)))


@cells
@pytest.mark.parametrize("world", WORLDS)
def test_a_world_is_a_table_that_can_be_played(cell, world):
    window = make_world(CELLS[cell], world)
    prices = window.load()
    frame = pd.DataFrame({name: getattr(prices, name) for name in ("date", *PRICED, "volume")})
    assert read_prices(frame.assign(adj_close=prices.close)).close == pytest.approx(prices.close)
    true = CELLS[cell].load()
    for table in (true, prices):
        assert (np.minimum(table.open, table.close) >= table.low).all()
        assert (np.maximum(table.open, table.close) <= table.high).all()
    assert prices.date == true.date[: len(prices.date)]
    assert window.span() == CELLS[cell].span()


@cells
@pytest.mark.parametrize("world", WORLDS)
def test_a_world_is_as_volatile_as_the_real_one_and_begins_where_it_does(cell, world):
    real, other = CELLS[cell], make_world(CELLS[cell], world)
    assert returns(other).std(ddof=1) == pytest.approx(returns(real).std(ddof=1), abs=1e-12)
    assert played(other)[0] == pytest.approx(played(real)[0], rel=1e-12)
    for name in PRICED:  # each day's shape comes along: the range, and the gap from the close before it
        move, true = (np.log(played(w, name)[1:] / played(w)[:-1]) for w in (other, real))
        assert name in ("high", "low") or np.sort(np.abs(move)) == pytest.approx(np.sort(np.abs(true)), abs=1e-12)
    span, true_span = (np.log(played(w, "high") / played(w, "low"))[1:] for w in (other, real))
    assert np.sort(span) == pytest.approx(np.sort(true_span), abs=1e-12)
    assert np.sort(played(other, "volume")[1:]).tolist() == np.sort(played(real, "volume")[1:]).tolist()


@cells
def test_each_world_is_what_its_name_says(cell):
    real = CELLS[cell]
    r = returns(real)
    assert returns(make_world(real, "mirror")) == pytest.approx(-r, abs=1e-12)
    backwards = played(make_world(real, "reversed"))
    assert backwards / backwards[0] == pytest.approx(played(real)[::-1] / played(real)[-1])
    shuffled = returns(make_world(real, "shuffled"))
    assert np.sort(shuffled) == pytest.approx(np.sort(r), abs=1e-12)
    assert np.abs(shuffled - r).max() > 0.01
    blocks = {tuple(r[k : k + 5].round(9)) for k in range(0, len(r), 5)}
    short = len(r) % 5
    found, k = set(), 0
    while k < len(r):  # the last block, a short one, may stand anywhere
        size = 5 if tuple(shuffled[k : k + 5].round(9)) in blocks else short
        found.add(tuple(shuffled[k : k + size].round(9)))
        k += size
    assert found == blocks
    renamed = make_world(real, "renamed")
    assert renamed.load() == real.load()
    assert renamed.ticker != real.ticker
    assert renamed.ticker in TICKERS


def test_the_days_before_the_window_are_changed_among_themselves():
    real = CELLS["nvda_bull_2023"]
    first, _ = real.span()
    before = np.diff(np.log(real.load().close[: first + 1]))
    for world in CHANGED:
        other = np.diff(np.log(make_world(real, world).load().close[: first + 1]))
        assert np.sort(np.abs(other)) == pytest.approx(np.sort(np.abs(before)), abs=1e-12)
        assert np.abs(other - before).max() > 0.01
        assert len(make_world(real, world).load().date) == first + real.span()[1]


def test_a_short_window_by_hand():
    window = window_of([50.0, 100.0, 110.0, 99.0], [50.0, 60.0, 104.0, 108.0], skip=1)
    mirror = make_world(window, "mirror").load()
    assert mirror.close == pytest.approx([200, 100, 100 / 1.1, 100 / 0.99])
    assert mirror.open == pytest.approx([200, 200 / 1.2, 100 / 1.04, 100 / 1.08])
    assert mirror.high == pytest.approx([200, 200 / 1.2, 100 / 1.04, 100 / 0.99])
    assert mirror.low == pytest.approx([200, 100, 100 / 1.1, 100 / 1.08])
    backwards = make_world(window, "reversed").load()
    assert backwards.close == pytest.approx([200, 100, 100 * 110 / 99, 100 * 100 / 99])
    assert backwards.volume.tolist() == [1000, 1010, 1030, 1020]
    with pytest.raises(DataError, match=r"holds 3 days; to be shuffled it needs 7 or more"):
        make_world(window, "shuffled")


@given(
    closes=st.lists(st.floats(1e-3, 1e6), min_size=9, max_size=60),
    skip=st.integers(0, 2),
    seed=st.integers(0, 1000),
    world=st.sampled_from(list(WORLDS)),
)
def test_any_window_of_a_week_or_more_has_every_world(closes, skip, seed, world):
    window = window_of(closes, skip=skip)
    other = make_world(window, world, seed if world in DRAWN else 0)
    assert np.sort(np.abs(returns(other))) == pytest.approx(np.sort(np.abs(returns(window))), abs=1e-9)
    assert played(other)[0] == pytest.approx(closes[skip])
    assert other.load().source == window.load().source or other.load() != window.load()


def test_a_world_is_drawn_from_its_seed():
    real = CELLS["tsla_main"]
    assert {make_world(real, "renamed", seed).ticker for seed in range(60)} == set(TICKERS) - {"SPY", "TSLA"}
    for world in ("shuffled", "renamed"):
        drawn = [make_world(real, world, seed) for seed in range(20)]
        assert len({(w.ticker, w.load().sha256) for w in drawn}) > 5
        assert find_world(real, world) == drawn[0]
        assert find_world(real, f"{world}:7") == drawn[7]
    assert len({make_world(real, "shuffled", seed).load().close.tobytes() for seed in range(20)}) == 20
    assert make_world(CELLS["tsla_ablation"], "shuffled").load() != make_world(real, "shuffled").load()


def test_the_same_seed_gives_the_same_bytes_in_another_process():
    code = (
        "import hashlib; from fintrading_gym.windows import CELLS; from fintrading_gym.worlds import make_world;"
        "p = make_world(CELLS['spy_bear_2022'], 'shuffled', 3).load();"
        "print(p.sha256, hashlib.sha256(p.close.tobytes() + p.open.tobytes()).hexdigest())"
    )
    told = {"capture_output": True, "text": True, "check": True}
    runs = [subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": h}, **told).stdout for h in "12"]
    assert runs[0] == runs[1]
    assert len(runs[0].split()) == 2


@pytest.mark.parametrize("world", WORLDS)
def test_an_episode_earns_the_worlds_returns(world):
    env = gym.make(ID, cell="tsla_main", world=world, timesteps=None, identity="names", observation="text")
    _, info = env.reset(seed=0)
    earned, over = [], False
    while not over:
        _, reward, _, over, info = env.step(2)
        earned.append(reward)
    expected = make_world(CELLS["tsla_main"], world)
    assert earned == pytest.approx(returns(expected), abs=1e-12)
    assert env.unwrapped.window == expected
    assert info["date"] == "2023-04-10"
    assert find_world(CELLS["tsla_main"], "real") is CELLS["tsla_main"]


@pytest.mark.parametrize("world", CHANGED)
def test_nothing_shown_depends_on_a_worlds_later_days(world):
    window = make_world(CELLS["nvda_bull_2023"], world)
    first, days = window.span()
    true = window.load()
    actions = np.random.default_rng(1).integers(0, 3, days - 1).tolist()

    def shown(cell):
        env = gym.make(ID, cell=cell, timesteps=None)
        seen = [env.reset(seed=0)[0]] + [env.step(action)[0] for action in actions]
        return [(o["text"], o["vector"].tobytes()) for o in seen]

    for today in (0, 3, 60):
        later = np.arange(len(true.date)) > first + today
        bars = {name: np.where(later, 1.7 * getattr(true, name), getattr(true, name)) for name in PRICED}
        changed = replace(true, sha256=f"{world} after {today}", volume=true.volume * (1 + later), **bars)
        assert shown(replace(window, prices=changed))[: today + 1] == shown(window)[: today + 1]
        assert shown(replace(window, prices=changed))[today + 1] != shown(window)[today + 1]


@pytest.mark.parametrize(
    ("world", "words"),
    [
        ("mirrored", "No world 'mirrored'; there are ['real', 'mirror', 'shuffled', 'reversed', 'renamed']"),
        ("shufled:3", "Did you mean 'shuffled'?"),
        ("shuffled:x", "'x' is no seed; give a whole number >= 0, as in 'shuffled:1'"),
        ("shuffled:", "'' is no seed"),
        ("mirror:1", "World 'mirror' is not drawn from a seed"),
        (None, "No world 'None'"),
    ],
)
def test_a_wrong_world_is_told_in_one_line(world, words):
    with pytest.raises(ValueError, match=re.escape(words)) as fault:
        gym.make(ID, world=world)
    assert "\n" not in str(fault.value)
    assert isinstance(fault.value, UnknownName) or "seed" in str(fault.value)
