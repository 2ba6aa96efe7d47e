"""The rule players: each decides what its one sentence says."""

import numpy as np
import pytest
from conftest import window_of

from fintrading_gym.ledger import evaluate
from fintrading_gym.rollout import Task, find_player, registered
from fintrading_gym.windows import CELLS

RULES = [name for name, point in registered().items() if point.value.startswith("fintrading_agents.rules:")]
RISING = [100.0 * 1.01**k for k in range(40)]
GAMES = [{}, {"hold": "flat"}, {"cost_bps": 20.0}, {"fill": "next_open", "cost_bps": 5.0}]


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("name", RULES)
def test_every_rule_plays_every_cell_to_the_end(name, cell):
    episode = find_player(name).play(Task(cell, timesteps=None))
    assert episode.failure is None
    assert len(episode.ledger.date) == CELLS[cell].span()[1] - 1
    assert all(episode.ledger.valid)


@pytest.mark.parametrize("name", RULES)
def test_the_same_task_gives_the_same_episode(name):
    task = Task("nvda_bull_2023", seed=3)
    assert find_player(name).play(task) == find_player(name).play(task)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_that_ignores_persona_and_seed_does(name):
    traits = find_player(name).traits
    assert traits.uses_persona is False
    ledgers = {
        str(find_player(name).play(Task(persona=p, seed=s)).ledger.rows())
        for p in ("adaptive", "risk_averse")
        for s in (0, 1)
    }
    assert len(ledgers) == (2 if traits.uses_seed else 1)


@pytest.mark.parametrize(
    ("name", "position"),
    [
        ("buy_and_hold", 1),
        ("short_and_hold", -1),
        ("flat", 0),
        ("momentum", 1),
        ("mean_reversion", -1),
        ("sma_cross", 1),
    ],
)
def test_what_a_rule_does_while_prices_rise(name, position):
    ledger = find_player(name).play(Task(window_of(RISING, skip=25))).ledger
    assert set(ledger.position) == {position}


@pytest.mark.parametrize(
    ("name", "actions"),
    [
        ("momentum", [2, 2, 2, 2, 0, 0]),  # down against three days ago from the fifth day on
        ("mean_reversion", [0, 0, 0, 0, 2, 2]),  # below five days ago from then on
        ("sma_cross", [2, 2, 2, 2, 0, 0]),  # mean of three days below that of seven
    ],
)
def test_a_rule_turns_with_the_prices(name, actions):
    closes = [100.0 + k for k in range(30)] + [131.0, 131.5, 131.2, 131.1, 127.0, 124.0, 120.0]
    ledger = find_player(name).play(Task(window_of(closes, skip=30))).ledger
    assert list(ledger.action) == actions


def test_random_draws_evenly():
    actions = [a for seed in range(40) for a in find_player("random").play(Task(seed=seed)).ledger.action]
    assert np.bincount(actions, minlength=3) / len(actions) == pytest.approx([1 / 3] * 3, abs=0.04)


@pytest.mark.parametrize("name", ["momentum", "mean_reversion", "sma_cross"])
def test_a_rule_holds_while_prices_stand_still(name):
    assert set(find_player(name).play(Task(window_of([100.0] * 30))).ledger.action) == {1}


def test_random_draws_all_three_and_differs_between_cells():
    one = find_player("random").play(Task("tsla_main", seed=1)).ledger.action
    other = find_player("random").play(Task("spy_bear_2022", seed=1)).ledger.action
    assert set(one) == {0, 1, 2}
    assert one != other


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("cell", ["tsla_main", "spy_bear_2022"])
def test_nobody_beats_the_oracle_and_it_earns_what_the_dynamic_programme_says(cell, game):
    task = Task(cell, **game)
    oracle = evaluate(find_player("oracle").play(task).ledger, task.hold, task.cost_bps)
    assert oracle["regret"] == pytest.approx(0, abs=1e-9)
    for name in RULES:
        numbers = evaluate(find_player(name).play(task).ledger, task.hold, task.cost_bps)
        assert numbers["cumulative_return"] <= oracle["cumulative_return"] + 1e-9
        assert numbers["regret"] >= -1e-9


def test_only_the_oracle_is_not_ranked():
    assert [name for name in RULES if not find_player(name).traits.ranked] == ["oracle"]


def test_buy_and_hold_has_no_excess_over_itself():
    numbers = evaluate(find_player("buy_and_hold").play(Task("tsla_main", timesteps=None)).ledger)
    assert numbers["excess"] == 0
    assert numbers["cumulative_return"] == pytest.approx(-0.2551, abs=5e-5)
    assert numbers["luck"] == 1.0
    assert np.isclose(numbers["buy_share"], 1.0)
