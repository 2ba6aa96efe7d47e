"""Intervals and tests against other people's numbers, and what each says where there is nothing to say."""

from importlib import import_module
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fintrading_gym import inference
from fintrading_gym.errors import MissingExtra
from fintrading_gym.inference import (
    best_of_luck,
    block_length,
    deflated_sharpe,
    holm,
    improvement,
    improvement_over_episodes,
    improvement_over_windows,
    moments,
    percentiles,
    resampled_days,
    signed_rank,
    t_interval,
)

# arch and statsmodels are imported where they are used: it takes seconds, and each worker of pytest reads this file.
SCORES = st.lists(st.integers(0, 20), min_size=1, max_size=6).map(lambda whole: np.array(whole) / 20)


def test_students_interval_is_scipys():
    values = [0.61, 0.70, 0.64, 0.72, 0.66]
    theirs = stats.t.interval(0.95, 4, np.mean(values), stats.sem(values))
    assert t_interval(values) == pytest.approx(theirs)


@pytest.mark.parametrize("values", [[], [0.5], [0.5, 0.5, 0.5], [0.1 + 0.2, 0.3]])
def test_values_that_do_not_vary_have_no_interval(values):
    assert t_interval(values) is None


@pytest.mark.parametrize("seed", range(4))
def test_holms_correction_is_that_of_statsmodels(seed):
    from statsmodels.stats.multitest import multipletests

    rng = np.random.default_rng(seed)
    p_values = [*rng.random(10 + seed), *rng.choice([0, 1e-4, 0.01, 0.02, 1], 10)]  # with ties, and out of order
    assert holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1])


def test_holms_correction_of_nothing_is_nothing():
    assert holm([]) == []


def test_the_published_example_of_the_deflated_sharpe_ratio():
    # Bailey & Lopez de Prado (2014): an annual ratio of 2.5 over 5 years of 250 days, skewness -3, kurtosis 10, the
    # best of 100 tries whose annual ratios have the variance 1/2.
    sharpe, variance = 2.5 / 250**0.5, 1 / 2 / 250
    assert best_of_luck(variance, 100) == pytest.approx(0.1132, abs=5e-5)
    assert deflated_sharpe(sharpe, 1250, -3, 10, best_of_luck(variance, 100)) == pytest.approx(0.9004, abs=5e-5)
    # The same confidence of 95 % is left after 46 tries, and would be after 88 if the returns were normal.
    assert deflated_sharpe(sharpe, 1250, -3, 10, best_of_luck(variance, 46)) == pytest.approx(0.9505, abs=5e-5)
    assert deflated_sharpe(sharpe, 1250, 0, 3, best_of_luck(variance, 88)) == pytest.approx(0.9505, abs=5e-5)


def test_the_best_of_many_tries_without_skill_has_the_ratio_that_it_is_deflated_by():
    tries = np.random.default_rng(0).normal(0, 0.1, (20_000, 20)).max(axis=1)
    assert best_of_luck(0.01, 20) == pytest.approx(tries.mean(), rel=0.02)
    assert best_of_luck(0.01, 1) == 0.0


def test_a_sharpe_ratio_of_one_day_or_of_constant_returns_is_none():
    assert deflated_sharpe(0.1, 1, 0, 3, 0) is None
    assert moments(np.full(10, 0.01)) is None
    assert moments(np.array([0.01])) is None
    r = np.random.default_rng(1).normal(0.001, 0.02, 100)
    assert moments(r) == pytest.approx((r.mean() / r.std(), stats.skew(r), stats.kurtosis(r) + 3))
    assert moments(np.tile(r, 3)) == pytest.approx(moments(r))


def test_five_pairs_are_never_significant_and_six_can_be():
    assert signed_rank(np.array([1.0, 2, 3, 4, 5]))[0] == 2 / 2**5 > inference.ALPHA
    assert signed_rank(np.array([1.0, 2, 3, 4, 5, 6])) == (2 / 2**6, 1)
    assert signed_rank(-np.array([1.0, 2, 3, 4, 5, 6])) == (2 / 2**6, -1)


def test_the_signed_rank_is_exact_with_ties_and_leaves_out_zeros():
    # By hand, of all 2**6 signs: |d| = 1 twice (ranks 1.5), 2, 3, 4, 5; the rank sum of the one loss is 1.5, and 4 of
    # the 64 have a sum of 1.5 or less (none, either of the two, ...), as many on the other side.
    p, favours = signed_rank(np.array([1.0, -1, 2, 3, 4, 5, 0, 1e-12]))
    assert (p, favours) == (2 * 3 / 64, 1)
    assert signed_rank(np.zeros(8)) == (1.0, 0)


def test_differences_that_only_rounding_sets_apart_are_ties():
    differences = np.array([0.3, 0.1 + 0.2, -0.3, 0.3, 0.3, 0.3, 0.3])
    assert signed_rank(differences) == signed_rank(np.array([1.0, 1, -1, 1, 1, 1, 1]))


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=40, unique_by=lambda d: round(abs(d), 6)))
def test_the_signed_rank_is_scipys_where_that_is_exact(differences):
    apart = np.array([d for d in differences if abs(d) > 1e-6] or [0.5])
    assert signed_rank(apart)[0] == pytest.approx(stats.wilcoxon(apart, method="exact").pvalue)


@pytest.mark.parametrize("seed", range(3))
def test_with_ties_it_is_what_going_through_all_signs_gives(seed):
    apart = np.random.default_rng(seed).choice([-3.0, -2, -1, 1, 2, 3, 4], 9)
    ranks = stats.rankdata(abs(apart))
    signs = np.array(list(product((-1, 1), repeat=9)))
    as_far = abs(signs @ ranks) >= abs(np.sign(apart) @ ranks) - 1e-9
    assert signed_rank(apart)[0] == pytest.approx(as_far.mean())


def test_beyond_the_exact_test_the_approximation_is_near_it(monkeypatch):
    differences = np.random.default_rng(3).normal(0.1, 1, 250)
    exact = signed_rank(differences)
    monkeypatch.setattr(inference, "EXACT", 200)
    assert signed_rank(differences) == (pytest.approx(exact[0], rel=0.02), exact[1])


def test_the_probability_of_improvement_by_hand():
    # Agarwal et al. (2021): of 3 x 2 meetings x wins 3, and draws 1.
    assert improvement(np.array([0.1, 0.5, 0.9]), np.array([0.5, 0.4])) == pytest.approx((3 + 0.5) / 6)


@given(SCORES, SCORES)
def test_the_probability_of_improvement_is_that_of_mann_and_whitney(x, y):
    u = stats.mannwhitneyu(x, y, method="asymptotic").statistic if np.ptp([*x, *y]) else len(x) * len(y) / 2
    assert improvement(x, y) == pytest.approx(u / (len(x) * len(y)))
    assert improvement(x, y) + improvement(y, x) == pytest.approx(1)


def test_the_interval_of_the_probability_of_improvement_draws_episodes_within_their_tasks():
    rng = np.random.default_rng(0)
    tasks = [(rng.normal(0.5 + task, 0.1, 5), rng.normal(0.5 + task, 0.1, 5)) for task in range(3)]
    low, high = improvement_over_episodes(tasks, 2000)
    assert low < np.mean([improvement(x, y) for x, y in tasks]) < high
    # The same, slowly and with other draws.
    slow = [np.mean([improvement(rng.choice(x, len(x)), rng.choice(y, len(y))) for x, y in tasks]) for _ in range(1000)]
    assert (low, high) == pytest.approx(percentiles(np.array(slow)), abs=0.04)
    certain = [(np.full(4, 1.0 + task), np.full(3, 0.5 + task)) for task in range(3)]
    assert improvement_over_episodes(certain, 100) == (1.0, 1.0)


def test_the_interval_over_windows_draws_windows():
    assert improvement_over_windows(np.array([1.0] * 6), 100) == (1.0, 1.0)
    low, high = improvement_over_windows(np.array([1.0] * 5 + [0.0] * 5), 2000)
    assert (low, high) == pytest.approx((0.2, 0.8), abs=0.11)


def test_days_are_drawn_in_blocks_as_long_as_their_memory_and_the_same_each_time():
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 0.02, (1, 400))
    memory = np.convolve(noise[0], np.ones(10), "same")[None]

    def mean_block(series):
        days = resampled_days(series, 50)
        return 1 / np.mean(np.diff(days, axis=1) % 400 != 1)

    assert mean_block(noise) < 5 < mean_block(memory)
    assert (resampled_days(noise, 50) == resampled_days(noise, 50)).all()
    assert (resampled_days(noise, 50) != resampled_days(noise, 50, stream=1)).any()


@pytest.mark.parametrize("days", [10, 11, 16, 49, 50, 126, 400])
@pytest.mark.parametrize("memory", [1, 3, 12])  # days
def test_the_days_are_those_that_arch_draws(days, memory):
    from arch.bootstrap import StationaryBootstrap, optimal_block_length

    rng = np.random.default_rng([days, memory])
    series = np.stack([np.convolve(rng.normal(0, 0.02, days), np.ones(memory), "full")[:days] for _ in range(3)])
    with np.errstate(all="ignore"):  # of ten days none are left at the longest lag
        lengths = optimal_block_length(series.T)["stationary"].to_numpy()
    assert [block_length(its) for its in series] == pytest.approx(lengths, rel=1e-9)
    block = lengths.clip(1).mean()
    theirs = StationaryBootstrap(block, np.arange(days), seed=np.random.default_rng([0, 7]))
    expected = [theirs.update_indices() for _ in range(40)]
    assert (resampled_days(series, 40, stream=7) == expected).all()


@given(st.lists(st.sampled_from([-0.02, 0.0, 0.01, 0.05]), min_size=10, max_size=60))
def test_a_block_is_as_long_as_arch_has_it_whatever_the_series(returns):
    from arch.bootstrap import optimal_block_length

    series = np.array(returns)
    with np.errstate(all="ignore"):
        theirs = optimal_block_length(series)["stationary"][0]
    if np.ptp(series) > 0 and np.isfinite(theirs):
        assert block_length(series) == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize(
    "series", [np.zeros((1, 20)), np.full((2, 20), 0.01), np.eye(20)[:2], np.ones((1, 10)) * [[0] * 9 + [1]]]
)
def test_returns_of_no_variance_or_of_one_day_can_be_drawn_too(series):
    days = resampled_days(series, 30)
    assert days.shape == (30, series.shape[1])
    assert days.min() >= 0
    assert days.max() < series.shape[1]


def test_without_the_extra_the_line_that_installs_it_is_told(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(inference, "import_module", missing)
    with pytest.raises(MissingExtra, match=r"pip install 'fintrading-gym\[stats\]'"):
        t_interval([0.1, 0.2])
    assert import_module("scipy")
