"""What makes an episode what it is, and JSON of whatever an agent keeps."""

import json
from dataclasses import replace
from datetime import date
from functools import partial

import numpy as np
import pytest
from conftest import window_of
from hypothesis import given
from hypothesis import strategies as st

from fintrading_gym.recipes import dumps, key_of, recipe_of, task_of
from fintrading_gym.rollout import Player, Task, find_player

TASK = Task("tsla_main", timesteps=5)


def test_another_option_file_or_task_is_another_episode():
    llm = find_player("llm:scripted/momentum")
    keys = [
        key_of(recipe_of(player, played))
        for player, played in [
            (llm, TASK),
            (replace(llm, options={"context": "full"}), TASK),
            (find_player("llm:scripted/buy"), TASK),
            (llm, replace(TASK, persona="risk_averse")),
            (llm, replace(TASK, hold="flat")),
            (llm, replace(TASK, world="mirror")),
            (find_player("flat"), TASK),
        ]
    ]
    assert len(set(keys)) == len(keys)
    same = [(replace(llm, options={"context": "last", "in_flight": 3}), TASK), (llm, replace(TASK, seed=4))]
    assert {key_of(recipe_of(*one)) for one in same} == {keys[0]}
    rule = find_player("flat")
    assert recipe_of(rule, TASK) == recipe_of(rule, replace(TASK, persona="risk_averse", seed=2))


def test_another_file_behind_an_agent_or_its_argument_is_another_agent(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    file, weights = tmp_path / "recipe_agents.py", tmp_path / "weights.npz"
    file.write_text("def mine(task, path):\n    return lambda observation: 2\n")
    weights.write_text("1")
    player = replace(find_player("recipe_agents:mine"), argument=str(weights))
    before = recipe_of(player, TASK)
    weights.write_text("2")
    between = recipe_of(player, TASK)
    file.write_text(file.read_text() + "# another\n")
    after = recipe_of(player, TASK)
    assert [name for name in before if before[name] != between[name]] == ["file"]
    assert [name for name in before if between[name] != after[name]] == ["code"]


def test_another_content_of_a_file_that_an_option_names_is_another_episode(tmp_path):
    sources, keys = tmp_path / "news.jsonl", []
    for text in ("one", "two"):
        sources.write_text(json.dumps({"date": "2022-10-05", "kind": "news", "text": text}))
        player = replace(find_player("committee:scripted/committee"), options={"sources": str(sources)})
        keys.append(key_of(recipe_of(player, TASK)))
    assert keys[0] != keys[1]


class Factory:
    """A factory need not be a function."""

    def __call__(self, task):
        return lambda observation: 2


@pytest.mark.parametrize(
    "factory",
    [Factory(), Factory().__call__, partial(Factory().__call__), lambda task: Factory()],
    ids=["object", "method", "partial", "lambda"],
)
def test_the_code_of_an_agent_is_found_whatever_kind_of_callable_makes_it(factory):
    code = recipe_of(Player("mine", factory), TASK)["code"]
    assert code == recipe_of(Player("mine", lambda task: None), TASK)["code"]  # this file
    assert len(code) == 64


def test_what_is_not_written_in_python_has_no_code():
    assert recipe_of(Player("built in", len), TASK)["code"] is None


@pytest.mark.parametrize("task", [TASK, Task("TSLA:2022-10-06:2022-11-01", "risk_averse", 3, cost_bps=2.0)])
def test_the_task_of_a_recipe_is_the_one_it_was_made_of(task):
    assert task_of(recipe_of(find_player("ppo"), replace(task, persona="adaptive"))) == replace(
        task, persona="adaptive"
    )
    assert task_of(recipe_of(find_player("llm:openai/x"), task)) == task


def test_a_window_of_ones_own_is_told_by_its_name_and_the_hash_of_its_prices():
    recipe = recipe_of(find_player("flat"), Task(window_of([1.0, 2.0, 3.0])))
    assert recipe["task"]["cell"] == "TEST:2022-01-03:2022-01-05"
    assert json.loads(dumps(recipe)) == recipe


def test_what_json_cannot_say_is_text():
    odd = {
        "nan": float("nan"),
        "infinite": [float("-inf"), np.float64("inf")],
        "numpy": [np.int64(3), np.float32(0.5), np.bool_(True), np.arange(3), np.array(7.0)],
        "day": date(2022, 1, 3),
        1: {(2, 3): {4}},
        "half": "\ud83d",
    }
    assert json.loads(dumps(odd)) == {
        "nan": "nan",
        "infinite": ["-inf", "inf"],
        "numpy": [3, 0.5, True, [0, 1, 2], 7.0],
        "day": "2022-01-03",
        "1": {"(2, 3)": [4]},
        "half": "\ud83d",
    }
    assert dumps("ü\n\u2028").isascii()


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
                    | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))  # fmt: skip
def test_what_json_can_say_is_said_as_it_is(data):
    assert json.loads(dumps(data)) == data
    assert json.loads(dumps(data, sort_keys=True)) == data
