"""The indicators agree with TA-Lib, and no value of a day knows a later close."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fintrading_agents.technicals import bollinger, macd, rsi
from fintrading_gym.windows import TICKERS, bundled

INDICATORS = {
    "RSI": lambda close: (rsi(close),),
    "MACD": macd,
    "BBANDS": bollinger,
}
BEGINS = {"RSI": 14, "MACD": 33, "BBANDS": 19}  # the first day that has a value
OURS = {"BBANDS": {"timeperiod": 20}}  # TA-Lib's own default is 5


def theirs(name, close):
    talib = pytest.importorskip("talib")
    given = getattr(talib, name)(close, **OURS.get(name, {}))
    return given if isinstance(given, tuple) else (given,)


@pytest.mark.parametrize("name", INDICATORS)
@pytest.mark.parametrize("ticker", TICKERS)
def test_an_indicator_of_a_bundled_ticker_is_ta_libs(name, ticker):
    close = np.array(bundled(ticker).close)
    for ours, other in zip(INDICATORS[name](close), theirs(name, close), strict=True):
        np.testing.assert_allclose(ours, other, rtol=1e-9, atol=1e-9)
        assert np.flatnonzero(~np.isnan(ours))[0] == BEGINS[name]


closes = st.lists(st.floats(0.01, 1e6), min_size=1, max_size=80).map(np.array)


@pytest.mark.parametrize("name", INDICATORS)
@given(closes)
def test_an_indicator_of_any_closes_is_ta_libs(name, close):
    if name == "RSI" and len(close) > 14 and np.ptp(close[:15]) == 0:
        return  # nothing has moved: the one place where we differ
    for ours, other in zip(INDICATORS[name](close), theirs(name, close), strict=True):
        # TA-Lib sums squares for its deviation, which loses digits where closes hardly differ.
        np.testing.assert_allclose(ours, other, rtol=1e-6, atol=1e-6 * close.max() + 1e-9)


@pytest.mark.parametrize("name", INDICATORS)
@given(closes, st.integers(0, 79))
def test_a_value_is_what_it_was_on_its_own_day(name, close, day):
    for whole, then in zip(INDICATORS[name](close), INDICATORS[name](close[: day + 1]), strict=True):
        np.testing.assert_array_equal(whole[: day + 1], then)


def test_what_never_moved_is_neither_bought_nor_sold_out():
    assert rsi(np.full(20, 7.0))[-1] == 50
    assert rsi(np.arange(1.0, 21))[-1] == 100
    assert rsi(np.arange(21.0, 1, -1))[-1] == 0
    assert [part[-1] for part in bollinger(np.full(20, 7.0))] == [7, 7, 7]
    assert [part[-1] for part in macd(np.full(40, 7.0))] == [0, 0, 0]


@pytest.mark.parametrize("name", INDICATORS)
def test_too_few_days_give_no_value(name):
    for days in (0, 1, BEGINS[name]):
        assert all(np.isnan(part).all() and len(part) == days for part in INDICATORS[name](np.arange(1.0, days + 1)))
