"""The two views: same state, documented columns, short ASCII texts."""

import re

import gymnasium as gym
import numpy as np
import pytest
from conftest import window_of
from hypothesis import given
from hypothesis import strategies as st

from fintrading_gym import observations as view
from fintrading_gym.windows import CELLS

ID = "fintrading_gym:FinMemTrading-v0"


def parse(text, lookback):
    """A text view read back: the vector's columns as far as the text shows them."""
    bars = re.findall(r"^(\d{4}-\d\d-\d\d) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) +(\d+)$", text, re.M)
    bars = np.array([[float(x) for x in bar[1:]] for bar in bars])
    state = {}
    for row, k in zip(bars, range(len(bars) - 1, -1, -1), strict=True):
        for name, value in zip(("open", "high", "low", "close"), row, strict=False):
            state[f"{name}_{k}"] = 10 * np.log(value / bars[-1, 3])
        state[f"volume_{k}"] = np.log((1 + row[4]) / (1 + np.median(bars[:, 4])))
    trends = re.findall(r"^(\d+)-day \w+: (n/a|[+-][\d.]+ %)$", text, re.M)
    for (back, change), (name, scale) in zip(
        trends, (("momentum_3", 10), ("return_5", 10), ("return_20", 5)), strict=True
    ):
        state[name] = 0.0 if change == "n/a" else scale * np.log1p(float(change[:-2]) / 100)
        if change == "n/a":
            state.setdefault("history_below", int(back) / 20)
    step, steps = map(int, re.search(r"decisions taken: (\d+) of (\d+)", text).groups())
    state["position"] = {"short": -1, "flat": 0, "long": 1}[re.search(r"your position: (\w+)", text)[1]]
    state["cumulative_return"] = 5 * float(re.search(r"your return so far: (\S+) %", text)[1]) / 100
    state["decided"] = min(step, 5) / 5
    words = re.search(r"oldest first: (.*)", text)[1]
    decisions = [] if words == "none yet" else words.split(", ")
    for k, word in enumerate(reversed(decisions), 1):
        state[f"decision_{k}"] = {"sell": -1, "hold": 0, "buy": 1}[word]
    return state, len(decisions), steps


@given(
    cell=st.sampled_from(list(CELLS)),
    lookback=st.integers(1, 30),
    actions=st.lists(st.integers(0, 2), min_size=1, max_size=60),
)
def test_text_and_vector_carry_the_same_state(cell, lookback, actions):
    env = gym.make(ID, cell=cell, lookback=lookback, timesteps=60)
    names = list(view.columns(lookback))
    observation, _ = env.reset(seed=0)
    for i, action in enumerate(actions):
        _same(observation, names, lookback, i)
        observation, *_ = env.step(action)
    _same(observation, names, lookback, len(actions))


def _same(observation, names, lookback, step):
    state, decisions, steps = parse(observation["text"], lookback)
    vector = dict(zip(names, observation["vector"].tolist(), strict=True))
    assert decisions == min(step, 5)
    assert steps == 60
    for name, value in state.items():
        assert np.clip(value, -10, 10) == pytest.approx(vector.pop(name), abs=3e-3), name
    # What the text does not show is what there is not: decisions before the first, and full history.
    assert vector.pop("history") == 1.0
    assert not any(vector.values())


def test_a_young_table_shows_what_it_has_and_says_so(four_days):
    env = gym.make(ID, cell=four_days)
    names = list(view.columns(7))
    observation, _ = env.reset()
    for day in range(4):
        vector = dict(zip(names, observation["vector"].tolist(), strict=True))
        assert vector["history"] == pytest.approx(day / 20)
        assert vector["close_6"] == 0
        assert observation["text"].count("2022-01-0") == day + 2  # the title and one row a day
        assert ("3-day momentum: n/a" in observation["text"]) is (day < 3)
        assert "20-day return: n/a" in observation["text"]
        if day < 3:
            observation, *_ = env.step(2)
    assert "3-day momentum: -1.00 %" in observation["text"]
    assert vector["momentum_3"] == pytest.approx(10 * np.log(0.99))


@pytest.mark.parametrize("persona", view.PERSONAS)
@pytest.mark.parametrize("cell", CELLS)
def test_texts_are_short_ascii_and_inside_their_space(cell, persona):
    window = CELLS[cell]
    for detail, limit in (("full", 2000), ("brief", 600)):
        env = gym.make(ID, cell=cell, persona=persona, detail=detail, timesteps=None, observation="text")
        text, _ = env.reset()
        over = False
        while not over:
            assert len(text) < limit
            assert text.isascii()
            assert text in env.observation_space
            if detail == "brief":
                # The small model's tokenizer splits every digit; words and signs are a token each.
                assert len(re.findall(r"\d|[A-Za-z]+|[^\w\s]|\n", text)) < 150
                assert "volume" not in text
            text, _, _, over, _ = env.step(0)
        assert f"{window.ticker} at the close of {window.last}" in text


@pytest.mark.parametrize("lookback", [1, 7, 60])
def test_the_text_space_has_room_for_every_lookback(lookback):
    env = gym.make(ID, cell="spy_bear_2022", lookback=lookback, timesteps=5)
    observation, _ = env.reset()
    assert observation in env.observation_space
    assert len(observation["vector"]) == 5 * lookback + 12 == len(view.columns(lookback))


@given(price=st.floats(1e-12, 1e15))
def test_a_price_keeps_four_digits_however_small_it_is(price):
    assert float(view.price_text(price)) == pytest.approx(price, rel=6e-4)


def test_personas_say_what_their_names_say():
    words = view.PERSONAS
    assert all("risk-seeking: large swings" in stance for stance in words["risk_seeking"])
    assert all("risk-averse: keeping what you have" in stance for stance in words["risk_averse"])
    assert ["risk-seeking" in stance for stance in words["adaptive"]] == [True, False]
    assert ["risk-averse" in stance for stance in words["adaptive"]] == [False, True]


def test_personas_are_words_in_the_text_and_nothing_else():
    texts, rest = set(), set()
    for persona in view.PERSONAS:
        env = gym.make(ID, persona=persona)
        observation, info = env.reset(seed=0)
        for action in (2, 0, 1):
            observation, reward, *_, info = env.step(action)
        *head, profile = observation["text"].splitlines()
        texts.add(profile)
        rest.add((*head, observation["vector"].tobytes(), reward, repr(info)))
    assert len(texts) == 3
    assert len(rest) == 1


def test_the_adaptive_persona_turns_with_the_cumulative_return():
    env = gym.make(ID, cell=window_of([100.0, 90.0, 99.0, 99.0]), observation="text")
    texts = [env.reset()[0]] + [env.step(2)[0] for _ in range(3)]  # long: total 0, -0.105, -0.010, -0.010
    stances = ["today risk-seeking" in text for text in texts]
    assert stances == [True, False, False, False]
    env.reset()
    assert "today risk-seeking" in env.step(0)[0]  # short: +0.105


@given(
    closes=st.lists(st.floats(1e-11, 1e14), min_size=2, max_size=40),
    lookback=st.integers(1, 10),
    actions=st.lists(st.integers(0, 2), min_size=39, max_size=39),
)
def test_the_vector_is_finite_and_inside_its_space_for_any_prices(closes, lookback, actions):
    env = gym.make(ID, cell=window_of(closes), lookback=lookback, timesteps=None, cost_bps=50.0)
    observation, _ = env.reset()
    over = False
    while not over:
        assert observation in env.observation_space
        observation, _, _, over, _ = env.step(actions.pop())
    assert observation in env.observation_space
