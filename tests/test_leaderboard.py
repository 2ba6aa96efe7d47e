"""Which episodes are played, and the row that each becomes."""

import threading
import time
from typing import ClassVar

import pytest

from fintrading_gym import leaderboard
from fintrading_gym.errors import RunStopped
from fintrading_gym.leaderboard import plan, run
from fintrading_gym.metrics import earned, hindsight, luck
from fintrading_gym.observations import PERSONAS
from fintrading_gym.rollout import Player, Task, Traits, find_player
from fintrading_gym.windows import CELLS

TASKS = [
    Task(cell, persona, seed) for cell in ("tsla_main", "nvda_bull_2023") for persona in PERSONAS for seed in range(2)
]


def test_what_a_player_ignores_is_not_played_again():
    episodes = plan([find_player("flat"), find_player("random"), Player("model", lambda task: None)], TASKS)
    count = {name: sum(player.name == name for player, _ in episodes) for name in ("flat", "random", "model")}
    assert count == {"flat": 2, "random": 4, "model": 12}


def test_tasks_that_differ_in_the_game_are_all_played():
    tasks = [Task(hold="keep"), Task(hold="flat"), Task(timesteps=10), Task(cost_bps=1.0), Task(hold="keep")]
    assert len(plan([find_player("random")], tasks)) == 4
    assert len(plan([find_player("flat")], [Task(seed=1), Task(seed=2)])) == 1


def test_a_row_is_settled_by_its_tasks_own_rules():
    task = Task("tsla_main", hold="flat", cost_bps=25.0, fill="next_open")
    ((_, row, _),) = run([(find_player("momentum"), task)])
    market, overnight = task.market()
    always = earned(market, [2] * len(market), overnight=overnight, hold="flat", cost_bps=25.0)[1]
    assert row["buy_and_hold"] == pytest.approx(always.sum())
    assert row["oracle"] == pytest.approx(hindsight(market, overnight=overnight, hold="flat", cost_bps=25.0)[1])
    ledger = find_player("momentum").play(task).ledger
    shares = [ledger.action.count(action) / len(ledger.action) for action in range(3)]
    rules = {"overnight": overnight, "hold": "flat", "cost_bps": 25.0}
    assert row["luck"] == luck(ledger.log_return, market, shares, **rules)
    assert row["luck"] != luck(ledger.log_return, market, shares)


def test_a_row_tells_the_task_the_numbers_and_where_they_come_from():
    ((_, row, _),) = run([(find_player("momentum"), Task("spy_bear_2022", cost_bps=1.0))])
    assert row["persona"] is None
    assert row["seed"] is None
    assert (row["cell"], row["timesteps"], row["hold"], row["fill"], row["cost_bps"]) == (
        "spy_bear_2022", 50, "keep", "close", 1.0,
    )  # fmt: skip
    assert row["data_sha256"] == CELLS["spy_bear_2022"].load().sha256
    assert (row["ticker"], row["first_day"], row["last_day"]) == ("SPY", "2022-01-03", "2022-03-16")
    assert row["ranked"] is True
    assert sum(row["log_returns"]) == pytest.approx(row["cumulative_return"])
    assert row["coverage"] == 1.0
    assert row["excess"] == pytest.approx(row["cumulative_return"] - row["buy_and_hold"])
    assert row["buy_share"] + row["hold_share"] + row["sell_share"] == pytest.approx(1)


def test_doing_nothing_scores_0708():
    ((_, row, _),) = run([(find_player("flat"), Task())])
    assert row["score"] == pytest.approx((0.5 + 1 / 3 + 1 + 1) / 4)


def test_worlds_and_identity_stand_in_the_rows_and_are_played_apart():
    tasks = [Task(world=world, timesteps=5) for world in ("real", "mirror", "shuffled:1")]
    rows = [row for _, row, _ in run(plan([find_player("buy_and_hold"), find_player("llm:scripted/momentum")], tasks))]
    told = {(row["agent"], row["world"]): row for row in rows}
    assert len(told) == 6
    assert {agent: told[agent, "real"]["identity"] for agent in ("buy_and_hold", "llm:scripted/momentum")} == {
        "buy_and_hold": "real",
        "llm:scripted/momentum": "masked",
    }
    earned = {world: told["buy_and_hold", world]["cumulative_return"] for world in ("real", "mirror", "shuffled:1")}
    assert earned["mirror"] == pytest.approx(-earned["real"])
    assert len({row["data_sha256"] for row in rows}) == 3


def test_what_an_agent_says_of_itself_takes_no_column_of_the_boards():
    def boaster(task):
        class Boast:
            facts: ClassVar = {"score": 0.999, "agent": "gpt", "failure": None, "mood": "fine"}

            def __call__(self, observation):
                return 0

        return Boast()

    ((_, row, _),) = run([(Player("boaster", boaster), Task())])
    assert (row["agent"], row["mood"]) == ("boaster", "fine")
    assert row["score"] == pytest.approx(0.898, abs=1e-3)


def test_a_failed_episode_has_no_score_that_looks_fine():
    ((_, row, _),) = run([(Player("bad", lambda task: lambda observation: 9), Task())])
    assert row["score"] is None
    assert row["coverage"] == 0.0
    assert "cumulative_return" not in row


def test_agents_that_wait_play_at_the_same_time_and_rows_say_whose_they_are():
    together = threading.Barrier(10)

    def waiting(task):
        return lambda observation: 2 if together.wait(60) else 0

    waiting.traits = Traits(concurrent=True)
    episodes = plan([find_player("flat"), Player("waiting", waiting)], [Task(cell, timesteps=4) for cell in CELLS])
    rows = {place: row for place, row, _ in run(episodes, at_once=10)}
    assert [row["failure"] for row in rows.values()] == [None] * 20
    assert sorted(rows) == list(range(20))
    assert all(
        rows[k]["agent"] == player.name and rows[k]["cell"] == task.cell for k, (player, task) in enumerate(episodes)
    )


@pytest.fixture
def finished(monkeypatch):
    """Set when an episode of one day has been played, the moment before the run can know."""
    event, whole = threading.Event(), leaderboard.played

    def played(player, task, *more):
        result = whole(player, task, *more)
        if task.timesteps == 1 and player.traits.concurrent:
            event.set()
        return result

    monkeypatch.setattr(leaderboard, "played", played)
    return event


def test_a_run_that_is_stopped_gives_what_was_finished_before_it_says_so(finished):
    def limited(task):
        def decide(observation):
            if task.cell == "nvda_bull_2023":
                finished.wait(60)
                time.sleep(0.5)
                raise RunStopped("no more tokens")
            if task.timesteps > 1:
                time.sleep(0.3)
            return 2

        return decide

    limited.traits = Traits(concurrent=True)
    tasks = [Task("tsla_main", timesteps=1), Task("nvda_bull_2023"), Task("spy_bear_2022"), Task("tsla_ablation")]
    rows = []
    with pytest.raises(RunStopped, match="no more tokens"):
        rows.extend(run(plan([find_player("flat"), Player("limited", limited)], tasks), at_once=4))
    assert sorted(place for place, *_ in rows) == [0, 1, 2, 3, 4]  # the rule's four, and the one that was a day long


@pytest.mark.parametrize("end", [RunStopped, KeyboardInterrupt])
def test_what_was_finished_beside_a_player_that_stops_the_run_is_given_first(end, finished):
    def beside(task):
        return lambda observation: 2

    def stopping(task):
        def decide(observation):
            finished.wait(60)
            time.sleep(0.5)
            raise end("enough")

        return decide

    beside.traits = Traits(concurrent=True)
    rows = []
    episodes = [(Player("stopping", stopping), Task()), (Player("beside", beside), Task(timesteps=1))]
    with pytest.raises(end, match="enough"):
        rows.extend((place, row["agent"]) for place, row, _ in run(episodes))
    assert rows == [(1, "beside")]


def test_facts_of_an_agent_are_columns_of_its_row():
    class Telling:
        facts = {"model": "m", "tokens_in": 7}  # noqa: RUF012

        def __call__(self, observation):
            return 1

    ((_, row, _),) = run([(Player("telling", lambda task: Telling()), Task())])
    assert (row["model"], row["tokens_in"]) == ("m", 7)
