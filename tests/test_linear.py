"""The linear baseline against another solver, and what it may not know."""

import numpy as np
import pytest
from conftest import table_of, two_futures

from fintrading_agents.linear import HYPERPARAMETERS, fit
from fintrading_agents.spans import training_days
from fintrading_gym.env import market_returns
from fintrading_gym.errors import DataError
from fintrading_gym.observations import OWN, market_rows
from fintrading_gym.rollout import Task, find_player
from fintrading_gym.windows import CELLS, Window, read_prices


def alternating(days, skip):
    """A market whose moves are known a day ahead: up 2 %, down 2 %, up 2 % ..."""
    closes = 100 * np.cumprod([1.02 if k % 2 else 1 / 1.02 for k in range(days)])
    prices = read_prices(table_of(closes))
    return Window("TEST", prices.date[skip], prices.date[-1], prices)


@pytest.mark.parametrize("fill", ["close", "next_open"])
@pytest.mark.parametrize("penalty", [1e-3, 1.0])
def test_its_coefficients_are_those_of_least_squares_with_a_row_of_penalty_for_each(penalty, fill):
    task = Task("spy_bear_2022", fill=fill)
    (days,) = training_days(task.window)
    first, count = days.span()
    prices, inside = days.load(), slice(first, first + count)
    market, overnight = market_returns(prices.open[inside], prices.close[inside], fill)
    x, y = market_rows(days, 7)[:-1, :-OWN].astype(np.float64), market - overnight
    varies = x.std(axis=0) > 1e-9
    z = (x[:, varies] - x[:, varies].mean(axis=0)) / x[:, varies].std(axis=0)
    penalised = np.vstack([z, np.sqrt(penalty * len(y)) * np.eye(z.shape[1])])
    expected = np.linalg.lstsq(penalised, np.concatenate([y - y.mean(), np.zeros(z.shape[1])]))[0]

    ((weights, bias),) = fit(task, {"penalty": penalty}).layers
    np.testing.assert_allclose(weights[2, :-OWN][varies], expected / x[:, varies].std(axis=0), rtol=2e-4, atol=1e-7)
    predicted = weights[2, :-OWN] @ x.T + bias[2]
    np.testing.assert_allclose(predicted, z @ expected + y.mean(), atol=1e-6)
    np.testing.assert_array_equal(weights[0], -weights[2])
    assert not weights[1].any()
    assert not weights[:, -OWN:].any()
    assert not weights[:, :-OWN][:, ~varies].any()


@pytest.mark.parametrize("cell", CELLS)
def test_it_plays_every_cell_and_always_decides_the_same(cell):
    player = find_player("linear")
    episode = player.play(Task(cell, timesteps=None))
    assert episode.failure is None
    assert all(episode.ledger.valid)
    assert episode.ledger == player.play(Task(cell, persona="risk_averse", seed=3, timesteps=None)).ledger
    assert (player.traits.uses_persona, player.traits.uses_seed) == (False, False)
    assert episode.facts["trained_until"] < CELLS[cell].first


def test_it_learns_what_a_line_can():
    ledger = find_player("linear").play(Task(alternating(150, skip=100), timesteps=None)).ledger
    assert min(ledger.log_return) == pytest.approx(np.log(1.02))  # right every day


def test_prices_from_the_windows_first_day_on_have_no_part_in_it(tmp_path):
    one, other = (fit(Task(cell)).layers for cell in two_futures(tmp_path))
    assert [array.tobytes() for array in one[0]] == [array.tobytes() for array in other[0]]


def test_a_window_with_too_little_before_it_is_refused():
    with pytest.raises(DataError, match="training needs at least"):
        fit(Task("COIN:2021-05-03:2021-08-02"))
    episode = find_player("linear").play(Task("COIN:2021-05-03:2021-08-02"))
    assert episode.failure.startswith("before day 1: DataError")


def test_its_penalty_is_recorded_and_until_when_it_was_chosen():
    assert fit(Task()).recipe["hyperparameters"] == HYPERPARAMETERS
    assert fit(Task()).facts["selected_until"] == HYPERPARAMETERS["selected_until"]
    assert fit(Task(), {"penalty": 1.0}).facts["selected_until"] is None


def test_it_is_not_judged_on_days_that_helped_to_choose_its_penalty():
    told = find_player("linear").play(Task("TSLA:2021-12-31:2022-03-31")).failure
    assert "hyperparameters of this linear policy were chosen on days up to 2021-12-31" in told
    assert find_player("linear").play(Task("TSLA:2022-01-03:2022-03-31")).failure is None
