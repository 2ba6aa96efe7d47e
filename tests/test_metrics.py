"""Metrics against two other libraries, the paper's printed figures, hand-made numbers, laws and brute force."""

import csv
import inspect
import itertools
import math
import time
import tracemalloc
from pathlib import Path

import empyrical
import numpy as np
import pandas as pd
import pytest
import quantstats.stats
from conftest import slower
from hypothesis import given, settings
from hypothesis import strategies as st

from fintrading_gym import metrics

DATA = Path(__file__).parents[1] / "data"
YEAR = math.sqrt(252)

OF_RETURNS = [
    "cumulative_return",
    "simple_return",
    "annualized_return",
    "daily_volatility",
    "annualized_volatility",
    "sharpe_ratio",
    "sortino_ratio",
    "calmar_ratio",
    "max_drawdown",
    "hit_rate",
]

relaxed = settings(deadline=None, max_examples=60)
log_return = st.floats(-0.3, 0.3, allow_nan=False).map(lambda x: round(x, 6))
series = st.lists(log_return, max_size=40)
hold_rule = st.sampled_from(["keep", "flat"])


def prices(ticker, first, last):
    with open(DATA / f"{ticker}.csv", newline="") as file:
        return [float(row["adj_close"]) for row in csv.DictReader(file) if first <= row["date"] <= last]


def buy_and_hold(ticker, first, last):
    return np.diff(np.log(prices(ticker, first, last)))


def random_series(seed, days=120):
    rng = np.random.default_rng(seed)
    return rng.normal(rng.uniform(-0.004, 0.004), rng.uniform(0.005, 0.05), days)


def settle_by_hand(market, actions, overnight, hold, cost_bps):
    """The rules of the game in the dumbest words: independent of `metrics.earned`."""
    position, positions, log_returns = 0, [], []
    for day, action in enumerate(actions):
        before = position
        if action == 2:
            position = 1
        elif action == 0:
            position = -1
        elif hold == "flat":
            position = 0
        gap = overnight[day] if overnight is not None else 0.0
        log_returns.append(before * gap + position * (market[day] - gap) - cost_bps / 10_000 * abs(position - before))
        positions.append(position)
    return positions, log_returns


def every_policy(days):
    return itertools.product((0, 1, 2), repeat=days)


@st.composite
def markets(draw, most):
    """(market, overnight or None, hold, cost_bps) of up to `most` days."""
    market = draw(st.lists(log_return, max_size=most))
    gap = draw(st.none() | st.lists(log_return, min_size=len(market), max_size=len(market)))
    return market, gap, draw(hold_rule), draw(st.sampled_from([0.0, 5.0, 100.0, 2000.0]))


# --- against other libraries -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    ("name", "theirs", "takes_simple"),
    [
        # ratios of means and deviations: the same formula on whatever returns it is given, here log returns
        ("annualized_volatility", empyrical.annual_volatility, False),
        ("sharpe_ratio", empyrical.sharpe_ratio, False),
        ("sortino_ratio", empyrical.sortino_ratio, False),
        # whatever compounds: empyrical means simple returns
        ("simple_return", empyrical.cum_returns_final, True),
        ("annualized_return", empyrical.annual_return, True),
        ("calmar_ratio", empyrical.calmar_ratio, True),
        ("max_drawdown", lambda x: -empyrical.max_drawdown(x), True),
    ],
)
def test_agrees_with_empyrical(name, theirs, takes_simple, seed):
    r = random_series(seed)
    assert getattr(metrics, name)(r) == pytest.approx(theirs(np.expm1(r) if takes_simple else r), rel=1e-9)


# Left out, because quantstats means something else: `exposure` (days of non-zero return, rounded up to a per cent),
# `volatility` of a constant series (1e-17 rather than 0, so its Sharpe is 1e16), and any series of values >= 0 with
# one above 1, which it takes for prices.
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("name", "theirs", "takes_simple"),
    [
        ("annualized_volatility", quantstats.stats.volatility, False),
        ("sharpe_ratio", quantstats.stats.sharpe, False),
        ("sortino_ratio", quantstats.stats.sortino, False),
        ("hit_rate", quantstats.stats.win_rate, False),
        ("simple_return", quantstats.stats.comp, True),
        ("annualized_return", quantstats.stats.cagr, True),
        ("calmar_ratio", quantstats.stats.calmar, True),
        ("max_drawdown", lambda x: -quantstats.stats.max_drawdown(x), True),
    ],
)
def test_agrees_with_quantstats(name, theirs, takes_simple, seed):
    r = random_series(100 + seed)
    given_to_them = pd.Series(np.expm1(r) if takes_simple else r, index=pd.bdate_range("2022-01-03", periods=r.size))
    assert getattr(metrics, name)(r) == pytest.approx(theirs(given_to_them), rel=1e-9)


@relaxed
@given(st.lists(log_return, min_size=2, max_size=40))
def test_agrees_with_empyrical_on_any_series_where_that_has_a_value(r):
    r = np.array(r)
    assert metrics.max_drawdown(r) == pytest.approx(-empyrical.max_drawdown(np.expm1(r)), abs=1e-12)
    if (r < 0).any():
        assert metrics.sortino_ratio(r) == pytest.approx(empyrical.sortino_ratio(r), rel=1e-9)
    if np.ptp(r) > 0:
        assert metrics.sharpe_ratio(r) == pytest.approx(empyrical.sharpe_ratio(r), rel=1e-6)


# --- short and degenerate series -------------------------------------------------------------------------------------


def falling(daily, days):
    """(annualised return, Calmar ratio, drawdown) of `days` losses of `daily` on average."""
    annual, drawdown = math.expm1(252 * daily), 1 - math.exp(daily * days)
    return annual, annual / drawdown, drawdown


grown = math.expm1
ONE, STEADY, STEEP = falling(-0.01, 1), falling(-0.1, 3), falling(-0.02, 3)
DROP = 1 - math.exp(-0.01)
MIXED = math.sqrt(7e-4 / 3)  # sample deviation of (0.02, -0.01, 0)
DEGENERATE = {
    # returns: CR, simple, annual; daily and annual volatility; Sharpe, Sortino, Calmar; drawdown, hit rate
    "empty": ([], [0, 0, 0], [0, 0], [0, 0, 0], [0, 0]),
    "one_gain": ([0.01], [0.01, grown(0.01), grown(2.52)], [0, 0], [0, 0, 0], [0, 1]),
    "one_loss": ([-0.01], [-0.01, grown(-0.01), ONE[0]], [0, 0], [0, 0, ONE[1]], [ONE[2], 0]),
    "flat": ([0.0] * 5, [0, 0, 0], [0, 0], [0, 0, 0], [0, 0]),
    "constant": ([0.1] * 3, [0.3, grown(0.3), grown(25.2)], [0, 0], [0, 0, 0], [0, 1]),
    "constant_loss": ([-0.1] * 3, [-0.3, grown(-0.3), STEADY[0]], [0, 0], [0, -YEAR, STEADY[1]], [STEADY[2], 0]),
    "all_losses": (
        [-0.01, -0.02, -0.03],
        [-0.06, grown(-0.06), STEEP[0]],
        [0.01, 0.01 * YEAR],
        [-2 * YEAR, -6 / math.sqrt(42) * YEAR, STEEP[1]],
        [STEEP[2], 0],
    ),
    "all_gains": (
        [0.01, 0.02, 0.03],
        [0.06, grown(0.06), grown(5.04)],
        [0.01, 0.01 * YEAR],
        [2 * YEAR, 0, 0],
        [0, 1],
    ),
    "mixed": (
        [0.02, -0.01, 0.0],
        [0.01, grown(0.01), grown(0.84)],
        [MIXED, MIXED * YEAR],
        [0.01 / 3 / MIXED * YEAR, YEAR / math.sqrt(3), grown(0.84) / DROP],
        [DROP, 0.5],
    ),
}


@pytest.mark.parametrize("name", OF_RETURNS)
@pytest.mark.parametrize("case", DEGENERATE)
def test_degenerate_table(case, name):
    r, *expected = DEGENERATE[case]
    value = getattr(metrics, name)(r)
    assert type(value) is float
    assert value == pytest.approx([*itertools.chain(*expected)][OF_RETURNS.index(name)], rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("constant", [0.1, -0.1, 1e-4, 0.7, 3.3, 98765.4321])
@pytest.mark.parametrize("days", [2, 3, 50, 126])
def test_constant_series_has_exactly_no_volatility(constant, days):
    r = [constant] * days
    assert (metrics.daily_volatility(r), metrics.sharpe_ratio(r)) == (0.0, 0.0)
    assert metrics.paper_summary(r, days + 1)["sharpe_ratio"] == 0.0


def test_steady_growth_in_prices_counts_as_constant_in_spite_of_rounding():
    r = np.diff(np.log(100 * 1.001 ** np.arange(126)))
    assert np.std(r, ddof=1) > 0
    assert metrics.sharpe_ratio(r) == 0.0


def test_smallest_real_volatility_counts():
    assert metrics.sharpe_ratio([1e-7, 2e-7]) == pytest.approx(1.5e-7 / math.sqrt(0.5e-14) * YEAR)


@pytest.mark.parametrize("huge", [[1e6] * 4, [-1e6] * 4, [1e6, -1e6, 1e6], [800.0], [-1e6] + [1e6] * 60])
def test_absurd_returns_still_give_finite_numbers(huge):
    ones = [1] * len(huge)
    assert all(math.isfinite(x) for x in metrics.summary(huge, ones, ones).values())
    assert all(math.isfinite(x) for x in metrics.paper_summary(huge, len(huge) + 1).values())


def test_growth_is_cut_at_e_to_the_600():
    assert metrics.simple_return([700.0, 800.0]) == metrics.annualized_return([800.0]) == pytest.approx(math.exp(600))


EMPTY_OR_FLAT = {
    "exposure": (lambda n: metrics.exposure([0.0] * n, [0] * n), 0.0, 0.0),
    "turnover": (lambda n: metrics.turnover([0.0] * n, [0] * n), 0.0, 0.0),
    "discipline": (lambda n: metrics.discipline([0.0] * n, [True] * n), 0.0, 1.0),
    "fintrading_score": (lambda n: metrics.fintrading_score([0.0] * n, [True] * n), 11 / 24, 17 / 24),
    "luck": (lambda n: metrics.luck([0.0] * n, [0.0] * n, (0.2, 0.3, 0.5), policies=100), 1.0, 1.0),
    "hindsight": (lambda n: metrics.hindsight([0.0] * n)[1], 0.0, 0.0),
    "earned": (lambda n: metrics.earned([0.0] * n, [2] * n)[1].sum(), 0.0, 0.0),
}


@pytest.mark.parametrize("name", EMPTY_OR_FLAT)
def test_empty_and_flat_of_the_rest(name):
    value, empty, flat = EMPTY_OR_FLAT[name]
    assert value(0) == pytest.approx(empty)
    assert value(4) == pytest.approx(flat)


def test_empty_summaries():
    assert metrics.components([], []) == {"cum_return": 0.5, "sharpe": 1 / 3, "stability": 1.0, "discipline": 0.0}
    assert set(metrics.paper_summary([], 1).values()) == {0.0}
    positions, log_returns = metrics.earned([], [])
    assert positions.size == log_returns.size == metrics.hindsight([])[0].size == 0


# --- wrong input -----------------------------------------------------------------------------------------------------


CALLS = {  # each function with one argument left for a bad series, as (argument's name, call)
    **{name: ("log_returns", getattr(metrics, name)) for name in OF_RETURNS},
    "exposure": ("positions", lambda x: metrics.exposure([0.0] * 3, x)),
    "turnover": ("positions", lambda x: metrics.turnover([0.0] * 3, x)),
    "discipline": ("valid", lambda x: metrics.discipline([0.0] * 3, x)),
    "components": ("log_returns", lambda x: metrics.components(x, [1] * 3)),
    "fintrading_score": ("log_returns", lambda x: metrics.fintrading_score(x, [1] * 3)),
    "summary": ("positions", lambda x: metrics.summary([0.0] * 3, x, [1] * 3)),
    "paper_summary": ("log_returns", lambda x: metrics.paper_summary(x, 4)),
    "luck": ("market", lambda x: metrics.luck([0.0] * 3, x, (0.5, 0, 0.5))),
    "earned": ("actions", lambda x: metrics.earned([0.0] * 3, x)),
    "hindsight": ("overnight", lambda x: metrics.hindsight([0.0] * 3, overnight=x)),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e7, None])
def test_bad_number_is_named_with_function_argument_and_first_index(name, bad):
    argument, call = CALLS[name]
    with pytest.raises(ValueError, match=rf"^{name}: {argument}\[1\] is (nan|-?inf|10000000\.0), not .*$"):
        call([0, bad, bad])


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("bad", [0.1, [[0.0] * 3], np.zeros((3, 1))])
def test_anything_but_one_dimension_is_refused(name, bad):
    argument, call = CALLS[name]
    with pytest.raises(ValueError, match=rf"^{name}: {argument} must be 1-D, not of shape \(.*\)$"):
        call(bad)


@pytest.mark.parametrize("bad", ["up", ["up", "down"], [object()], [[0.0], [0.0, 1.0]]])
def test_what_is_no_array_of_numbers_is_refused(bad):
    with pytest.raises(ValueError, match=r"^sharpe_ratio: log_returns must be a 1-D array of numbers$"):
        metrics.sharpe_ratio(bad)


THREE, FOUR = [0.0] * 3, [0] * 4
WRONG = [
    (lambda: metrics.exposure(THREE, FOUR), "exposure: log_returns has 3 days, positions 4"),
    (lambda: metrics.turnover(THREE, FOUR), "turnover: log_returns has 3 days, positions 4"),
    (lambda: metrics.discipline(THREE, FOUR), "discipline: log_returns has 3 days, valid 4"),
    (lambda: metrics.components(THREE, FOUR), "components: log_returns has 3 days, valid 4"),
    (lambda: metrics.fintrading_score(THREE, FOUR), "fintrading_score: log_returns has 3 days, valid 4"),
    (lambda: metrics.summary(THREE, FOUR, [1] * 3), "summary: log_returns has 3 days, positions 4"),
    (lambda: metrics.summary(THREE, [1] * 3, FOUR), "summary: log_returns has 3 days, valid 4"),
    (lambda: metrics.luck(THREE, FOUR, (0, 1, 0)), "luck: log_returns has 3 days, market 4"),
    (lambda: metrics.luck(THREE, THREE, (0, 1, 0), overnight=FOUR), "luck: market has 3 days, overnight 4"),
    (lambda: metrics.earned(THREE, FOUR), "earned: market has 3 days, actions 4"),
    (lambda: metrics.earned(THREE, [2] * 3, overnight=FOUR), "earned: market has 3 days, overnight 4"),
    (lambda: metrics.hindsight(THREE, overnight=FOUR), "hindsight: market has 3 days, overnight 4"),
    (lambda: metrics.earned(THREE, [2, 3, 3]), "earned: actions[1] is 3, not one of (0, 1, 2)"),
    (lambda: metrics.earned(THREE, [2, 2, -1]), "earned: actions[2] is -1, not one of (0, 1, 2)"),
    (lambda: metrics.earned(THREE, [0.5, 2, 2]), "earned: actions[0] is 0.5, not one of (0, 1, 2)"),
    (lambda: metrics.discipline(THREE, [1, 2, 2]), "discipline: valid[1] is 2, not one of (0, 1)"),
    (lambda: metrics.components(THREE, [1, 2, 2]), "components: valid[1] is 2, not one of (0, 1)"),
    (lambda: metrics.fintrading_score(THREE, [1, 2, 2]), "fintrading_score: valid[1] is 2, not one of (0, 1)"),
    (lambda: metrics.summary(THREE, THREE, [1, 2, 2]), "summary: valid[1] is 2, not one of (0, 1)"),
    (lambda: metrics.hindsight(THREE, hold="kep"), "hindsight: hold must be 'keep' or 'flat', not 'kep'"),
    (
        lambda: metrics.earned(THREE, [1] * 3, cost_bps=-1.0),
        "earned: cost_bps must be a number from 0 to 1e+06, not -1.0",
    ),
    (
        lambda: metrics.hindsight(THREE, cost_bps=math.nan),
        "hindsight: cost_bps must be a number from 0 to 1e+06, not nan",
    ),
    (
        lambda: metrics.hindsight(THREE, cost_bps="5"),
        "hindsight: cost_bps must be a number from 0 to 1e+06, not '5'",
    ),
    (
        lambda: metrics.luck(THREE, THREE, (0.5, 0.5)),
        "luck: shares must be (sell, hold, buy), none negative, sum 1, not [0.5, 0.5]",
    ),
    (
        lambda: metrics.luck(THREE, THREE, (0.5, 0.5, 0.5)),
        "luck: shares must be (sell, hold, buy), none negative, sum 1, not [0.5, 0.5, 0.5]",
    ),
    (
        lambda: metrics.luck(THREE, THREE, (-0.5, 1.0, 0.5)),
        "luck: shares must be (sell, hold, buy), none negative, sum 1, not [-0.5, 1.0, 0.5]",
    ),
    (
        lambda: metrics.luck(THREE, THREE, (0, 1, 0), policies=0),
        "luck: policies must be a whole number from 1 up, not 0",
    ),
    (lambda: metrics.paper_summary(THREE, 0), "paper_summary: prices_count must be a whole number from 1 up, not 0"),
    (
        lambda: metrics.paper_summary(THREE, 4.0),
        "paper_summary: prices_count must be a whole number from 1 up, not 4.0",
    ),
]


@pytest.mark.parametrize(("call", "message"), WRONG, ids=[message for _, message in WRONG])
def test_wrong_argument_is_one_line(call, message):
    with pytest.raises(ValueError, match=r"^[^\n]+$") as error:
        call()
    assert str(error.value) == message


# --- laws ------------------------------------------------------------------------------------------------------------


@relaxed
@given(series, series)
def test_concatenated_series_add_up(first, second):
    whole = metrics.cumulative_return(first + second)
    assert whole == pytest.approx(metrics.cumulative_return(first) + metrics.cumulative_return(second), abs=1e-12)
    assert metrics.simple_return(first + second) == pytest.approx(math.expm1(math.fsum(first + second)), abs=1e-9)


@relaxed
@given(series, series)
def test_drawdown_is_a_fraction_and_never_shrinks_as_days_are_added(first, second):
    part, whole = metrics.max_drawdown(first), metrics.max_drawdown(first + second)
    assert 0 <= part <= whole <= 1
    assert metrics.max_drawdown(np.abs(first)) == 0.0


@relaxed
@given(series)
def test_drawdown_by_hand(r):
    worst, equity = 0.0, [1.0]
    for x in r:
        equity.append(equity[-1] * math.exp(x))
        worst = max(worst, 1 - equity[-1] / max(equity))
    assert metrics.max_drawdown(r) == pytest.approx(worst, abs=1e-12)


@relaxed
@given(st.lists(log_return, min_size=2, max_size=40), st.floats(0.1, 10))
def test_scaling_by_a_positive_number(r, k):
    scaled = [k * x for x in r]
    for linear in (metrics.cumulative_return, metrics.daily_volatility, metrics.annualized_volatility):
        assert linear(scaled) == pytest.approx(k * linear(r), rel=1e-9, abs=1e-12)
    if metrics.daily_volatility(r) > 1e-9:
        assert metrics.sharpe_ratio(scaled) == pytest.approx(metrics.sharpe_ratio(r), rel=1e-9, abs=1e-9)
        assert metrics.sortino_ratio(scaled) == pytest.approx(metrics.sortino_ratio(r), rel=1e-9, abs=1e-9)
    assert metrics.hit_rate(scaled) == metrics.hit_rate(r)


@relaxed
@given(st.lists(log_return, max_size=40))
def test_turning_the_sign(r):
    turned = [-x for x in r]
    assert metrics.cumulative_return(turned) == pytest.approx(-metrics.cumulative_return(r), abs=1e-12)
    assert metrics.daily_volatility(turned) == pytest.approx(metrics.daily_volatility(r), abs=1e-12)
    assert metrics.sharpe_ratio(turned) == pytest.approx(-metrics.sharpe_ratio(r), abs=1e-9)
    if any(r):
        assert metrics.hit_rate(turned) == pytest.approx(1 - metrics.hit_rate(r))


@relaxed
@given(st.lists(log_return, min_size=2, max_size=40), st.randoms(use_true_random=False))
def test_order_of_days_matters_to_the_drawdown_alone(r, random):
    shuffled = random.sample(r, len(r))
    for name in set(OF_RETURNS) - {"max_drawdown", "calmar_ratio"}:
        value = getattr(metrics, name)(r)
        assert getattr(metrics, name)(shuffled) == pytest.approx(value, rel=1e-6, abs=1e-9), name


@pytest.mark.parametrize("seed", range(5))
def test_falling_series_has_negative_ratios(seed):
    falling = -np.abs(random_series(seed)) - 1e-4
    assert metrics.sharpe_ratio(falling) < 0
    assert metrics.sortino_ratio(falling) < 0
    assert metrics.calmar_ratio(falling) < 0
    assert metrics.hit_rate(falling) == 0.0
    assert metrics.max_drawdown(falling) == pytest.approx(-metrics.simple_return(falling))


def test_drawdown_counts_a_loss_on_the_first_day_and_a_fall_in_the_middle():
    assert metrics.max_drawdown(np.log([0.8, 1.1])) == pytest.approx(0.2)
    assert metrics.max_drawdown(np.log([1.25, 0.8, 0.5, 4.0])) == pytest.approx(0.6)


def test_inputs_are_not_changed_and_lists_arrays_and_pandas_agree():
    r = random_series(1)
    copy = r.copy()
    assert metrics.summary(list(r), [1] * r.size, [True] * r.size) == metrics.summary(
        pd.Series(r, index=range(5, 5 + r.size)), np.ones(r.size, np.int8), np.ones(r.size, bool)
    )
    metrics.hindsight(r, overnight=r)
    assert np.array_equal(r, copy)


# --- positions, discipline, composite --------------------------------------------------------------------------------


def test_exposure_and_turnover_by_hand():
    r, positions = [0.0] * 5, [1, 1, -1, 0, 0]
    assert metrics.exposure(r, positions) == pytest.approx(3 / 5)
    assert metrics.turnover(r, positions) == pytest.approx((1 + 0 + 2 + 1 + 0) / 5)
    assert metrics.turnover(r, [-1] * 5) == pytest.approx(1 / 5)


@relaxed
@given(st.lists(st.sampled_from([-1, 0, 1]), max_size=30))
def test_costs_are_the_turnover_times_the_rate(positions):
    market = np.zeros(len(positions))
    _, log_returns = metrics.earned(market, np.array(positions, int) + 1, hold="flat", cost_bps=10)
    assert -log_returns.sum() == pytest.approx(1e-3 * metrics.turnover(market, positions) * len(positions))


def test_discipline_by_hand():
    assert metrics.discipline([0.0] * 4, [True, False, True, True]) == 0.75


def test_score_of_doing_nothing():
    assert metrics.fintrading_score([0.0] * 50, [True] * 50) == pytest.approx((0.5 + 1 / 3 + 1 + 1) / 4)
    assert metrics.fintrading_score([0.0] * 50, [True] * 50) == pytest.approx(0.708333, abs=1e-6)


def test_components_by_hand():
    r, valid = [0.02, -0.01, 0.0], [1, 1, 0]
    sharpe = (0.01 / 3) / math.sqrt(7e-4 / 3) * YEAR
    expected = {"cum_return": 0.505, "sharpe": (sharpe + 1) / 3, "stability": math.exp(-0.01), "discipline": 2 / 3}
    assert expected["sharpe"] > 1
    assert metrics.components(r, valid) == pytest.approx(expected | {"sharpe": 1.0})
    assert metrics.fintrading_score(r, valid) == pytest.approx((0.505 + 1 + math.exp(-0.01) + 2 / 3) / 4)


def test_sharpe_component_between_its_ends():
    r = [0.01, -0.0099] * 20
    assert metrics.components(r, [1] * 40)["sharpe"] == pytest.approx((metrics.sharpe_ratio(r) + 1) / 3)
    assert 0 < metrics.components(r, [1] * 40)["sharpe"] < 1


def test_components_are_clipped_at_both_ends():
    up, down = [0.5, 0.6, 0.7], [-0.5, -0.6, -0.7]
    assert metrics.components(up, [1] * 3) == {"cum_return": 1.0, "sharpe": 1.0, "stability": 1.0, "discipline": 1.0}
    worst = metrics.components(down, [0] * 3)
    assert worst == pytest.approx({"cum_return": 0, "sharpe": 0, "stability": math.exp(-1.8), "discipline": 0})


@relaxed
@given(st.lists(st.tuples(log_return, st.booleans()), max_size=40))
def test_composite_lies_in_the_unit_interval_and_is_the_mean_of_its_parts(days):
    r, valid = [x for x, _ in days], [v for _, v in days]
    parts = metrics.components(r, valid)
    assert list(parts) == ["cum_return", "sharpe", "stability", "discipline"]
    assert all(0 <= part <= 1 and type(part) is float for part in parts.values())
    assert metrics.fintrading_score(r, valid) == pytest.approx(sum(parts.values()) / 4)


# Recomputed by another program, which puts the paper's Sharpe and drawdown into the composite,
# which moves a score by up to 0.008 from `fintrading_score`.
@pytest.mark.parametrize(
    ("window", "days", "long", "short"),
    [
        (("TSLA", "2022-10-06", "2023-04-10"), None, 0.4718, 0.6724),
        (("TSLA", "2022-10-06", "2023-04-10"), 50, 0.4688, 0.8967),
        (("TSLA", "2022-06-16", "2022-12-28"), None, 0.3771, 0.8690),
        (("TSLA", "2022-06-16", "2022-12-28"), 50, 0.8893, 0.5064),
        (("NVDA", "2023-01-03", "2023-06-30"), None, 0.9744, 0.3251),
        (("NVDA", "2023-01-03", "2023-06-30"), 50, 0.9218, 0.4372),
    ],
)
def test_composite_of_buying_and_of_shorting_the_evaluation_cells(window, days, long, short):
    market = buy_and_hold(*window)[:days]
    for r, expected in ((market, long), (-market, short)):
        parts, paper = metrics.components(r, np.ones(r.size)), metrics.paper_summary(r, r.size + 1)
        parts["sharpe"] = min(max((paper["sharpe_ratio"] + 1) / 3, 0), 1)
        parts["stability"] = 1 - paper["max_drawdown"] / 100
        assert round(sum(parts.values()) / 4, 4) == expected
        assert metrics.fintrading_score(r, np.ones(r.size)) == pytest.approx(expected, abs=0.008)


def test_summary_holds_every_scalar_metric_by_name():
    r = random_series(3)
    positions, valid = np.where(np.arange(r.size) % 3, 1, -1), np.arange(r.size) % 5 > 0
    found = metrics.summary(r, positions, valid)
    expected = {name: getattr(metrics, name)(r) for name in OF_RETURNS}
    expected |= {name: getattr(metrics, name)(r, positions) for name in ("exposure", "turnover")}
    expected |= {"discipline": metrics.discipline(r, valid), "score": metrics.fintrading_score(r, valid)}
    expected |= {f"score_{name}": part for name, part in metrics.components(r, valid).items()}
    assert found == expected
    assert all(type(value) is float and math.isfinite(value) for value in found.values())


# --- the paper's and the evaluation's figures -------------------------------------------------------------------------

PAPER = {
    "paper_tsla": (("TSLA", "2022-10-10", "2023-04-06"), 124, (-18.6312, -0.5410, 4.4084, 69.9818, 55.3208)),
    "paper_nflx": (("NFLX", "2022-10-06", "2023-04-05"), 125, (35.5111, 1.4109, 3.1964, 50.7410, 20.9263)),
    "paper_amzn": (("AMZN", "2022-10-10", "2023-04-06"), 124, (-10.7739, -0.4980, 2.7697, 43.9674, 33.6828)),
    "paper_msft": (("MSFT", "2022-10-06", "2023-04-05"), 125, (14.6949, 0.8359, 2.2326, 35.4411, 15.0097)),
    "paper_coin": (("COIN", "2022-10-06", "2023-04-24"), 137, (-30.0071, -0.5150, 6.7517, 107.1795, 60.5084)),
    "paper_tsla_ablation": (
        ("TSLA", "2022-06-16", "2022-12-27"),
        134,
        (-66.9497, -2.0845, 3.8050, 60.4020, 67.3269),
    ),
}


@pytest.mark.parametrize("cell", PAPER)
def test_paper_buy_and_hold_comes_out_to_the_printed_digits(cell):
    window, count, printed = PAPER[cell]
    found = metrics.paper_summary(buy_and_hold(*window), count)
    assert len(prices(*window)) == count
    assert list(found) == [
        "cumulative_return",
        "sharpe_ratio",
        "daily_volatility",
        "annualized_volatility",
        "max_drawdown",
    ]
    assert list(found.values()) == pytest.approx(printed, abs=1e-4, rel=0)


def test_paper_summary_by_hand():
    found = metrics.paper_summary([0.5, -0.5, 0.1], 4)
    deviation = math.sqrt((0.51 - 0.01 / 3) / 2)
    assert found["sharpe_ratio"] == pytest.approx(0.1 / (4 / 252) / (deviation * YEAR))
    assert found["max_drawdown"] == pytest.approx(50)  # 1.5 x 0.5, where the equity of log returns loses 39 %
    assert metrics.paper_summary([-0.5, -1.5, 0.1], 4)["max_drawdown"] == pytest.approx(127.5)  # 0.5 x -0.5 x 1.1


@pytest.mark.parametrize(
    ("window", "days", "expected"),
    [
        (("TSLA", "2022-10-06", "2023-04-10"), 127, -0.2551),
        (("TSLA", "2022-06-16", "2022-12-28"), 135, -0.6369),
        (("SPY", "2022-01-03", "2022-10-14"), 198, -0.2780),
        (("NVDA", "2023-01-03", "2023-06-30"), 124, 1.0838),
    ],
)
def test_evaluation_cells_log_returns(window, days, expected):
    assert len(prices(*window)) == days
    assert round(metrics.cumulative_return(buy_and_hold(*window)), 4) == expected


# --- earned ----------------------------------------------------------------------------------------------------------


@relaxed
@given(markets(most=12), st.data())
def test_earned_is_what_the_rules_say(world, data):
    market, gap, hold, cost = world
    actions = data.draw(st.lists(st.sampled_from([0, 1, 2]), min_size=len(market), max_size=len(market)))
    positions, log_returns = metrics.earned(market, actions, overnight=gap, hold=hold, cost_bps=cost)
    expected_positions, expected = settle_by_hand(market, actions, gap, hold, cost)
    assert (positions.dtype, log_returns.dtype) == (np.int8, np.float64)
    assert positions.tolist() == expected_positions
    assert log_returns.tolist() == pytest.approx(expected, abs=1e-15)


def test_earned_on_four_days_by_hand():
    market, gap, actions = [0.01, 0.02, -0.03, 0.04], [0.001, 0.002, 0.003, 0.004], [1, 2, 1, 0]
    positions, log_returns = metrics.earned(market, actions, overnight=gap, cost_bps=10)
    assert positions.tolist() == [0, 1, 1, -1]
    # nothing; bought at the open; held; old long earns the night, new short loses the day, a flip pays twice
    assert log_returns == pytest.approx([0, 0.018 - 0.001, -0.03, 0.004 - 0.036 - 0.002])
    positions, log_returns = metrics.earned(market, actions, hold="flat", cost_bps=10)
    assert positions.tolist() == [0, 1, 0, -1]
    assert log_returns == pytest.approx([0, 0.02 - 0.001, -0.001, -0.04 - 0.001])


def test_earned_without_costs_is_position_times_market_to_the_bit():
    market = random_series(2)
    actions = np.random.default_rng(2).integers(0, 3, market.size)
    positions, log_returns = metrics.earned(market, actions)
    assert np.array_equal(log_returns, positions * market)


# --- hindsight -------------------------------------------------------------------------------------------------------


@relaxed
@given(markets(most=7))
def test_hindsight_is_the_best_of_all_policies(world):
    market, gap, hold, cost = world
    best = max(sum(settle_by_hand(market, policy, gap, hold, cost)[1]) for policy in every_policy(len(market)))
    actions, value = metrics.hindsight(market, overnight=gap, hold=hold, cost_bps=cost)
    assert value == pytest.approx(best, abs=1e-12)
    assert sum(settle_by_hand(market, actions.tolist(), gap, hold, cost)[1]) == pytest.approx(best, abs=1e-12)
    assert (actions.dtype, type(value)) == (np.int8, float)


@pytest.mark.parametrize("hold", ["keep", "flat"])
@pytest.mark.parametrize("cost", [0.0, 20.0])
@pytest.mark.parametrize("seed", range(3))
def test_hindsight_on_seven_random_days_with_the_next_open(hold, cost, seed):
    rng = np.random.default_rng(seed)
    market, gap = rng.normal(0, 0.02, 7), rng.normal(0, 0.01, 7)
    best = max(sum(settle_by_hand(market, policy, gap, hold, cost)[1]) for policy in every_policy(7))
    assert metrics.hindsight(market, overnight=gap, hold=hold, cost_bps=cost)[1] == pytest.approx(best, abs=1e-12)


def test_hindsight_without_costs_earns_every_move_and_repeats_itself():
    market = buy_and_hold("TSLA", "2022-10-06", "2023-04-10")
    actions, value = metrics.hindsight(market)
    assert value == pytest.approx(np.abs(market).sum())
    assert np.array_equal(actions, metrics.hindsight(market)[0])


def test_hindsight_settles_ties_as_hold_buy_sell():
    assert metrics.hindsight([0.0, 0.0])[0].tolist() == [1, 1]
    assert metrics.hindsight([0.01, 0.01, -0.01])[0].tolist() == [2, 1, 0]
    # never better to be flat in the middle, but under "flat" only buying again keeps a position
    assert metrics.hindsight([0.01, 0.01, 0.0], hold="flat")[0].tolist() == [2, 2, 1]


def test_hindsight_stays_flat_until_a_trade_pays_and_then_in_the_market():
    assert metrics.hindsight([-0.0001] * 3, cost_bps=10)[1] == 0.0
    assert metrics.hindsight([0.0001, -0.05, 0.01], cost_bps=100)[0].tolist() == [1, 0, 1]
    assert metrics.hindsight([0.05, -0.03], cost_bps=200)[1] == pytest.approx(0.05 - 0.02 + 0.03 - 0.04)


@relaxed
@given(markets(most=30))
def test_hindsight_earns_the_same_under_both_hold_rules(world):
    # going back to flat is never worth more than the better of staying and flipping, as returns and costs are linear
    market, gap, _, cost = world
    keep, flat = (metrics.hindsight(market, overnight=gap, hold=hold, cost_bps=cost)[1] for hold in ("keep", "flat"))
    assert keep == pytest.approx(flat, abs=1e-12)


# --- luck ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hold", ["keep", "flat"])
@pytest.mark.parametrize("cost", [0.0, 30.0])
@pytest.mark.parametrize("next_open", [False, True])
@pytest.mark.parametrize("days", [1, 4, 6])
def test_luck_is_the_exact_share_of_all_policies(hold, cost, next_open, days):
    rng = np.random.default_rng([days, int(cost), next_open])
    market = rng.normal(0, 0.03, days)
    gap = rng.normal(0, 0.02, days) if next_open else None
    shares = rng.dirichlet([2, 2, 2])
    agent = rng.integers(0, 3, days)
    log_returns = metrics.earned(market, agent, overnight=gap, hold=hold, cost_bps=cost)[1]
    exact = math.fsum(
        math.prod(shares[a] for a in policy)
        for policy in every_policy(days)
        if sum(settle_by_hand(market, policy, gap, hold, cost)[1]) >= log_returns.sum() - 1e-9
    )
    found = metrics.luck(log_returns, market, shares, overnight=gap, hold=hold, cost_bps=cost, seed=days)
    assert abs(found - exact) <= 5 * math.sqrt(exact * (1 - exact) / 100_000) + 1e-12


@pytest.mark.parametrize("hold", ["keep", "flat"])
def test_luck_counts_policies_as_good_as_the_agent_whatever_the_order_of_summation(hold):
    market = random_series(4, days=500)
    for shares, agent in (((0, 0, 1), market), ((1, 0, 0), -market), ((0, 1, 0), 0 * market)):
        assert metrics.luck(agent, market, shares, hold=hold, policies=1000) == 1.0
        assert metrics.luck(agent + 1e-8, market, shares, hold=hold, policies=1000) == 0.0


def test_luck_takes_shares_that_sum_to_one_but_for_rounding():
    market = random_series(4)
    assert metrics.luck(-market, market, (1 - 9e-7, 0, 0)) == 1.0  # unscaled, one draw in a million would buy


def test_luck_with_costs_and_next_open_of_a_policy_identical_to_the_agent():
    market, gap = random_series(5), random_series(6) / 3
    _, bought = metrics.earned(market, [2] * market.size, overnight=gap, cost_bps=25)
    assert metrics.luck(bought, market, (0, 0, 1), overnight=gap, cost_bps=25, policies=100) == 1.0


@relaxed
@given(st.integers(0, 2**32 - 1), hold_rule)
def test_luck_is_a_share_and_falls_as_the_agent_earns_more(seed, hold):
    market = random_series(seed, days=10)
    chances = [
        metrics.luck([cr / 10] * 10, market, (0.3, 0.4, 0.3), hold=hold, policies=2000, seed=seed)
        for cr in (-9.0, -0.1, 0.0, 0.1, 9.0)
    ]
    assert chances == sorted(chances, reverse=True)
    assert (chances[0], chances[-1]) == (1.0, 0.0)


def test_luck_repeats_itself_by_seed():
    market = random_series(7)
    agent = 0.2 * market
    found = [metrics.luck(agent, market, (0.3, 0.3, 0.4), policies=40_000, seed=seed) for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]
    assert found[0] == pytest.approx(found[2], abs=0.02)


# FinMem (arXiv 2311.13743, Table I) is in the market on 45 % of the days (its volatility says so) and holds are flat.
def test_luck_of_finmem_on_tesla():
    market = buy_and_hold("TSLA", "2022-10-10", "2023-04-06")
    agent = np.full(market.size, 0.617758 / market.size)
    assert metrics.luck(agent, market, (0.225, 0.55, 0.225), hold="flat") == pytest.approx(0.030, abs=0.003)


def test_luck_of_dqn_on_tesla():
    market = buy_and_hold("TSLA", "2022-10-10", "2023-04-06")
    agent = np.full(market.size, 0.333393 / market.size)
    assert metrics.luck(agent, market, (0.5, 0.0, 0.5)) == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("shares", [(1, 0, 0), (0, 1, 0), (0, 0, 1)])
@pytest.mark.parametrize("hold", ["keep", "flat"])
def test_of_policies_that_all_do_the_same_one_is_played(shares, hold):
    market, gap = random_series(8, days=20), random_series(9, days=20) / 3
    bounds = (shares[0], shares[0] + shares[1])
    (total,) = set(metrics._random_totals(np.random.default_rng(0), 500, bounds, gap, market - gap, hold, 5e-4))
    for more, expected in ((0.0, 1.0), (-1e-6, 1.0), (1e-6, 0.0)):
        agent = np.full(20, (total + more) / 20)
        assert metrics.luck(agent, market, shares, overnight=gap, hold=hold, cost_bps=5) == expected


def test_luck_is_quick():
    market, gap = random_series(8, days=126), random_series(9, days=126) / 3
    seconds = []
    for _ in range(3):
        start = time.process_time()
        metrics.luck(market, market, (0.3, 0.3, 0.4), overnight=gap, cost_bps=5)
        seconds.append(time.process_time() - start)
    assert min(seconds) < slower()


def test_luck_is_small_however_many_policies():
    tracemalloc.start()
    metrics.luck([0.01] * 5, [0.01, -0.02, 0.03, 0.0, 0.01], (0.3, 0.3, 0.4), cost_bps=5, policies=1_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6


# --- documentation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CALLS)
def test_docstring_says_formula_unit_annualisation_empty_series_and_source(name):
    doc = inspect.getdoc(getattr(metrics, name))
    assert [word for word in ("Formula:", "Unit:", "nnualised", "Empty", "Source:") if word not in doc] == []
