"""An episode in a board's tables: whatever an agent keeps of its days, it comes back."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fintrading_gym.leaderboard import as_row
from fintrading_gym.recipes import dumps, recipe_of
from fintrading_gym.replies import REASONS, Decision
from fintrading_gym.rollout import Player, Task, find_player
from fintrading_gym.store import writing
from fintrading_gym.stored import OF_THE_RUN, name_of, read

TASK = Task("tsla_main", timesteps=3)
PLAYER = find_player("llm:scripted/prose")
PLAYED = PLAYER.play(TASK)
ROW = as_row(PLAYER, TASK, PLAYED)

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
calls = st.fixed_dictionaries(
    {"messages": anything},
    optional={"stage": st.text(), "failure": st.text(), "verdict": anything, "content": anything, "usage": anything,
              "latency": anything, "cost": anything, "cached": st.booleans()},
)  # fmt: skip
days = anything | st.fixed_dictionaries({"calls": st.lists(calls, max_size=2)}, optional={"thought": anything})


def kept(episode, row=ROW):
    """The episode after it was in a file."""
    with writing(None, {}) as board:
        board.add(recipe_of(PLAYER, TASK), row, episode)
        return read(board._db, 1)


@given(st.lists(days, max_size=6))
def test_whatever_an_agent_keeps_of_its_days_comes_back(log):
    episode = replace(PLAYED, log=tuple(log))
    stored = kept(episode)
    assert list(stored.episode.log) == json.loads(dumps(log))
    assert replace(stored.episode, log=(), facts={}) == replace(PLAYED, log=(), facts={})


@given(st.dictionaries(st.text(), anything), st.text())
def test_whatever_an_agent_tells_of_itself_is_in_its_row(facts, failure):
    failed = replace(PLAYED, facts=facts, failure=failure, score=None)
    stored = kept(failed, as_row(PLAYER, TASK, failed))
    assert stored.row.items() >= json.loads(dumps({k: v for k, v in facts.items() if k not in stored.row})).items()
    assert stored.row["failure"] == failure


@given(st.builds(Decision, st.sampled_from(["buy", "sell", "hold", None]), st.sampled_from(sorted(REASONS)),
                 st.none() | st.floats(0, 1), st.lists(st.text()).map(tuple)))  # fmt: skip
def test_a_decision_comes_back(decision):
    assert kept(replace(PLAYED, decisions=(None, decision, decision))).episode.decisions == (None, decision, decision)


def test_a_seed_beyond_64_bits_is_kept():
    player = Player("drawing", lambda task: lambda observation: 1)
    task = replace(TASK, seed=2**70)
    with writing(None, {}) as board:
        board.add(recipe_of(player, task), as_row(player, task, player.play(task)), player.play(task))
        assert [row["seed"] for row in board.rows()] == [2**70]


def test_the_line_holds_all_but_what_tells_of_one_run():
    stored = kept(PLAYED)
    line = json.loads(stored.line)
    assert (line["recipe"], line["row"]["score"]) == (stored.recipe, stored.row["score"])
    assert [step["date"] for step in line["steps"]] == list(PLAYED.ledger.date)
    call, played = line["steps"][0]["calls"][0], PLAYED.log[0]["calls"][0]
    assert call == {name: value for name, value in json.loads(dumps(played)).items() if name not in OF_THE_RUN}
    assert not line["row"].keys() & set(OF_THE_RUN)
    assert set(OF_THE_RUN) <= played.keys() | stored.row.keys()  # each of them is somewhere
    assert stored.line.isascii()


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"agent": "a", "cell": "c", "persona": None, "seed": None, "world": "real"}, "a, c"),
        ({"agent": "a", "cell": "c", "persona": "p", "seed": 0, "world": "mirror"}, "a, c, p, seed 0, mirror"),
    ],
)
def test_an_episode_is_named_by_what_tells_it_from_others(row, name):
    assert name_of(row) == name
