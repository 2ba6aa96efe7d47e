"""Episodes, and how agents are found."""

import contextlib
import json
import sys
import types
from dataclasses import asdict
from importlib.metadata import EntryPoint

import gymnasium as gym
import numpy as np
import pytest

from fintrading_gym.errors import RunStopped, UnknownName
from fintrading_gym.leaderboard import played
from fintrading_gym.replies import Decision
from fintrading_gym.rollout import Player, Task, Traits, find_player, registered, rollout
from fintrading_gym.windows import CELLS

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


def exiting(task):
    def decide(observation):
        sys.exit(0)

    return decide


def wordy(task):
    def decide(observation):
        raise RuntimeError("one\n  two\nthree")

    return decide


@pytest.mark.parametrize(
    ("factory", "failure"), [(exiting, "day 1: SystemExit: 0"), (wordy, "day 1: RuntimeError: one two three")]
)
def test_whatever_an_agent_raises_is_told_on_one_line(factory, failure):
    assert Player("bad", factory).play(Task()).failure == failure


def test_a_tasks_settings_all_reach_its_environment():
    task = Task("nvda_bull_2023", "risk_averse", 3, 9, "flat", 4.0, "next_open", 5, "brief")
    env = task.make().unwrapped
    assert (str(env.window), env.persona, env.timesteps, env.hold, env.cost_bps) == (
        str(CELLS["nvda_bull_2023"]), "risk_averse", 9, "flat", 4.0,
    )  # fmt: skip
    observation, _ = env.reset()
    assert len(observation["vector"]) == 5 * 5 + 12
    assert "volume" not in observation["text"]
    assert "risk-averse" in observation["text"]
    assert any(env._overnight)
    assert "volume" in Task().make().reset()[0]["text"]


@pytest.mark.parametrize("seed", [-1, 1.5, "0", None, True])
def test_a_tasks_seed_is_a_whole_number(seed):
    with pytest.raises(ValueError, match="is not a whole number >= 0"):
        Task(seed=seed)


def test_numbers_of_numpy_make_the_task_that_pythons_make():
    plain = Task(seed=3, timesteps=20, cost_bps=5.0, lookback=5)
    numpys = Task(seed=np.int64(3), timesteps=np.int32(20), cost_bps=np.float32(5), lookback=np.uint8(5))
    for task in (numpys, Task(seed=3, timesteps=20, cost_bps=5, lookback=5)):
        assert repr(task) == repr(plain)
        assert json.dumps(asdict(task)) == json.dumps(asdict(plain))
    assert played(find_player("random"), numpys) == played(find_player("random"), plain)


def test_the_seed_reaches_the_environment():
    env = gym.make(ID, start="random", timesteps=20)
    dates = {rollout(lambda observation: 1, env, seed).ledger.date[0] for seed in range(5)}
    assert len(dates) > 1
    assert rollout(lambda observation: 1, env, 3).ledger == rollout(lambda observation: 1, env, 3).ledger


def test_a_time_limit_around_the_environment_leaves_the_days_before_it(four_days):
    episode = rollout(lambda observation: 2, gym.make(ID, cell=four_days, max_episode_steps=2))
    assert episode.failure is None
    assert episode.ledger.position == (1, 1)
    assert 0 <= episode.score <= 1


def test_decisions_are_kept_whatever_they_were_given_as(four_days):
    given = iter([np.array(2), np.int64(0), 1])
    episode = rollout(lambda observation: next(given), gym.make(ID, cell=four_days))
    assert episode.decisions == (Decision("buy"), Decision("sell"), Decision("hold"))
    replies = iter(['{"action": "sell"}', "no idea", '{"action": "buy"}'])
    episode = rollout(lambda observation: next(replies), gym.make(ID, cell=four_days, action="text"))
    assert [decision.action for decision in episode.decisions] == ["sell", None, "buy"]
    assert episode.decisions[1].reason == "no_object"


def test_an_interrupt_is_not_an_agents_failure():
    def interrupted(observation):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Player("slow", lambda task: interrupted).play(Task())


def test_what_stops_the_run_is_no_failure_of_the_episode_it_comes_in():
    def stopping(observation):
        raise RunStopped("no more tokens")

    def stop(agent, decision):
        raise RunStopped("the user wants no more")

    with pytest.raises(RunStopped, match="tokens"):
        Player("dear", lambda task: stopping).play(Task())
    with pytest.raises(RunStopped, match="user"):
        Player("flat", lambda task: lambda observation: 1).play(Task(), on_day=stop)


class Noting:
    """Buys, and keeps what `rollout` asks an agent for."""

    detail = "brief"

    def __init__(self, task):
        self.log, self.seen = [], []

    def __call__(self, observation):
        self.log.append({"day": len(self.log)})
        self.seen.append(observation["text"])
        return 2

    @property
    def facts(self):
        return {"days": len(self.log)}


def test_what_an_agent_keeps_is_in_the_episode_and_each_day_is_told():
    days = []
    task = Task(timesteps=3)
    episode = Player("noting", Noting).play(
        task, on_day=lambda agent, decision: days.append((len(agent.log), decision))
    )
    assert episode.log == ({"day": 0}, {"day": 1}, {"day": 2})
    assert episode.facts == {"days": 3}
    assert days == [(1, Decision("buy")), (2, Decision("buy")), (3, Decision("buy"))]


@pytest.mark.parametrize(("asked", "shown"), [(None, "brief"), ("brief", "brief"), ("full", "full")])
def test_an_agent_may_wish_for_the_brief_view_and_the_task_decides(asked, shown):
    agents = []
    Player("noting", lambda task: agents.append(Noting(task)) or agents[0]).play(Task(timesteps=1, detail=asked))
    assert ("volume" in agents[0].seen[0]) == (shown == "full")
    Player("plain", lambda task: lambda observation: agents.append(observation["text"]) or 1).play(Task(timesteps=1))
    assert "volume" in agents[1]


def test_what_a_players_episodes_share_is_opened_once_a_run():
    opened = []

    def sharing(task, argument, more):
        return lambda observation: opened.append((argument, more)) or 1

    @contextlib.contextmanager
    def shared(argument, **options):
        opened.append("open")
        yield (argument, options) if isinstance(argument, list) else ([argument], options)
        opened.append("close")

    sharing.shared = shared
    player = Player("sharing:x", sharing, "x", {"more": 1})
    with player.opened() as ready:
        assert ready == Player("sharing:x", sharing, ["x"], {"more": 1})
        opened.clear()
        ready.play(Task(timesteps=1))
    player.play(Task(timesteps=1))
    assert opened == ["open", (["x"], 1), "close", "close", "open", (["x"], 1), "close"]


def test_the_rule_players_are_found_by_entry_point():
    assert set(RULES) <= set(registered())
    assert find_player("flat").factory.__module__ == "fintrading_agents.rules"


def test_an_agent_is_found_as_module_and_callable(monkeypatch):
    module = types.ModuleType("my_agents")
    module.contrarian = lambda task: lambda observation: 0
    monkeypatch.setitem(sys.modules, "my_agents", module)
    assert find_player("my_agents:contrarian").play(Task(timesteps=2)).ledger.action == (0, 0)
    module.constant = lambda task, argument: lambda observation: len(argument)
    assert find_player("my_agents:constant:ab").argument == "ab"
    assert find_player("my_agents:constant:a:b").argument == "a:b"
    assert find_player("my_agents:constant:ab").play(Task(timesteps=2)).ledger.action == (2, 2)


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


@pytest.mark.parametrize("code", ["import no_such_module_at_all", "raise KeyError('x')", "import sys; sys.exit(3)"])
def test_an_entry_point_that_cannot_be_loaded_is_told_in_one_line(code, tmp_path, monkeypatch):
    (tmp_path / "fintrading_broken_plugin.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "fintrading_broken_plugin", raising=False)
    point = EntryPoint("evil", "fintrading_broken_plugin:agent", "fintrading_gym.agents")
    monkeypatch.setattr("fintrading_gym.rollout.registered", lambda: {"evil": point})
    with pytest.raises(UnknownName, match=r"Agent 'evil'.*cannot be loaded") as fault:
        find_player("evil")
    assert "\n" not in str(fault.value)


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
