"""Episodes, and how agents are found."""

import sys
import types

import gymnasium as gym
import pytest

from fintrading_gym.errors import UnknownName
from fintrading_gym.replies import Decision
from fintrading_gym.rollout import Player, Task, Traits, find_player, registered, rollout

ID = "fintrading_gym:FinMemTrading-v0"
RULES = ("buy_and_hold", "short_and_hold", "flat", "random", "momentum", "mean_reversion", "sma_cross", "oracle")


def test_an_agent_may_answer_with_indices_decisions_or_nothing(four_days):
    answers = iter([2, Decision("sell"), None])
    episode = rollout(lambda observation: next(answers), gym.make(ID, cell=four_days), seed=0)
    assert episode.failure is None
    assert episode.ledger.action == (2, 0, 1)
    assert episode.ledger.valid == (True, True, False)
    assert episode.decisions == (Decision("buy"), Decision("sell"), None)
    assert episode.score is not None


def test_a_decision_that_was_not_made_is_held_by_the_environment_alone(four_days):
    unread = Decision(None, reason="empty")
    episode = rollout(lambda observation: unread, gym.make(ID, cell=four_days))
    assert episode.ledger.action == (1, 1, 1)
    assert episode.ledger.valid == (False,) * 3
    assert episode.decisions == (unread,) * 3


def test_a_wrapped_environment_plays_too(four_days):
    env = gym.wrappers.RecordEpisodeStatistics(gym.make(ID, cell=four_days))
    assert rollout(lambda observation: 2, env).ledger.position == (1, 1, 1)


def raising(task):
    def decide(observation):
        if "decisions taken: 2" in observation["text"]:
            raise RuntimeError("the model is gone")
        return 2

    return decide


def broken_factory(task):
    raise OSError("no weights")


@pytest.mark.parametrize(
    ("factory", "days", "words"),
    [
        (raising, 2, "day 3: RuntimeError: the model is gone"),
        (lambda task: lambda observation: 7, 0, "day 1: ValueError: action=7 is no decision"),
        (lambda task: lambda observation: "buy", 0, "day 1: ValueError: action='buy'"),
        (lambda task: 2, 0, "before day 1: the factory gave 2 and not an agent"),
        (broken_factory, 0, "before day 1: OSError: no weights"),
    ],
)
def test_a_bad_agent_ends_its_own_episode_with_a_recorded_failure(factory, days, words):
    episode = Player("bad", factory).play(Task())
    assert episode.failure.startswith(words)
    assert episode.score is None
    assert len(episode.ledger.date) == len(episode.decisions) == days


def test_an_interrupt_is_not_an_agents_failure():
    def interrupted(observation):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Player("slow", lambda task: interrupted).play(Task())


def test_the_rule_players_are_found_by_entry_point():
    assert set(RULES) <= set(registered())
    assert find_player("flat").factory.__module__ == "fintrading_agents.rules"


def test_an_agent_is_found_as_module_and_callable(monkeypatch):
    module = types.ModuleType("my_agents")
    module.contrarian = lambda task: lambda observation: 0
    monkeypatch.setitem(sys.modules, "my_agents", module)
    assert find_player("my_agents:contrarian").play(Task(timesteps=2)).ledger.action == (0, 0)


def test_a_factory_itself_is_a_player():
    player = find_player(raising)
    assert (player.name, player.traits) == ("raising", Traits())


def test_an_argument_reaches_the_factory(monkeypatch):
    module = types.ModuleType("fintrading_test_module")
    module.make = lambda task, argument: lambda observation: int(argument)
    player = Player("constant:2", module.make, "2")
    assert player.play(Task(timesteps=2)).ledger.action == (2, 2)


def test_an_argument_a_rule_does_not_take_is_a_recorded_failure():
    assert "before day 1: TypeError" in find_player("flat:now").play(Task()).failure


def test_a_module_that_does_not_parse_is_told_in_one_line(tmp_path, monkeypatch):
    (tmp_path / "fintrading_bad_syntax.py").write_text("def agent(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnknownName, match="invalid syntax") as fault:
        find_player("fintrading_bad_syntax:agent")
    assert "\n" not in str(fault.value)


def test_without_any_installed_agent_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr("fintrading_gym.rollout.registered", dict)
    with pytest.raises(UnknownName, match="pip install -e"):
        find_player("flat")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("buy_and_hld", "Did you mean 'buy_and_hold'"),
        ("no_such_module:agent", "No agent 'no_such_module:agent'"),
        ("json:dump_", "No callable in json 'dump_'.*Did you mean 'dump"),
        ("my_agents.py:agent", "named without its ending: my_agents:agent"),
        ("./my_agents.py:agent", "named without its ending: my_agents:agent"),
        (".relative:agent", "No agent '.relative:agent'"),
    ],
)
def test_an_unknown_agent_is_told_in_one_line(spec, words):
    with pytest.raises(UnknownName, match=words) as fault:
        find_player(spec)
    assert "\n" not in str(fault.value)
