"""The days that may be learned from."""

import pytest
from conftest import window_of

from fintrading_agents.spans import MIN_DAYS, training_days
from fintrading_gym.errors import DataError, UnknownName
from fintrading_gym.windows import CELLS, TICKERS, Window, bundled


@pytest.mark.parametrize("cell", CELLS)
def test_they_go_from_the_tables_first_day_to_the_day_before_the_window(cell):
    window = CELLS[cell]
    start, _ = window.span()
    date = window.load().date
    (days,) = training_days(window)
    assert (days.ticker, days.first, days.last) == (window.ticker, date[0], date[start - 1])
    assert days.last < window.first
    assert days.span() == (0, start)


@pytest.mark.parametrize("cell", CELLS)
def test_other_tickers_have_no_day_that_the_windows_own_has_not(cell):
    own, *others = training_days(CELLS[cell], TICKERS)
    assert [days.ticker for days in others] == [ticker for ticker in TICKERS if ticker != own.ticker]
    for days in others:
        assert own.first <= days.first
        assert days.last <= own.last < CELLS[cell].first
    assert {days.first for days in (own, *others)} <= {"2021-01-04", bundled("COIN").date[0]}


def test_a_users_own_table_is_learned_from_as_it_is():
    window = window_of([100.0 + k for k in range(80)], skip=70)
    (days,) = training_days(window)
    assert days.prices is window.prices
    assert days.span() == (0, 70)


def test_too_few_days_are_told():
    with pytest.raises(DataError, match=f"has 59 days before it in TSLA.csv; training needs at least {MIN_DAYS}"):
        training_days(Window("TSLA", bundled("TSLA").date[59], "2021-12-31"))
    assert len(training_days(Window("TSLA", bundled("TSLA").date[60], "2021-12-31"))) == 1
    with pytest.raises(DataError, match=r"COIN has 33 days in 2021-01-04\.\.2021-05-28"):
        training_days(Window("TSLA", "2021-06-01", "2021-12-31"), ["COIN"])
    with pytest.raises(UnknownName, match="Did you mean 'NVDA'"):
        training_days(CELLS["tsla_main"], ["NVD"])
