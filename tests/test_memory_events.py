"""What a stock's bars tell that is remembered."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fintrading_agents.memory.constants import LAYER_OF
from fintrading_agents.memory.events import events
from fintrading_gym.masking import IDENTITIES, mask
from fintrading_gym.windows import CELLS, TICKERS, bundled

RNG = np.random.default_rng(5)


def bars(close, opened=None):
    close = np.asarray(close, float)
    return SimpleNamespace(close=close, open=close if opened is None else np.asarray(opened, float))


def told(close, opened=None, day=-1):
    """What the last day tells, by kind."""
    made = bars(close, opened)
    return {event.kind: event.text for event in events(made, len(made.close) + day)}


def wobbling(days, size=0.01):
    """Closes that go up and down by turns around 100."""
    return 100 * (1 + size * (np.arange(days) % 2))


def test_a_gap_is_told_with_what_came_of_it():
    close = [*wobbling(40), 104.0]
    opened = [*wobbling(40), 108.0]
    assert told(close, opened)["gap"] == "opened 6.9 % above the last close, fell 3.7 % from there"
    assert "gap" not in told(close, [*wobbling(40), 101.2])
    below = told([*wobbling(40), 97.0], [*wobbling(40), 95.0])["gap"]
    assert below == "opened 5.9 % below the last close, rose 2.1 % from there"


def test_a_large_move_without_a_gap_is_told():
    assert told([*wobbling(40), 105.0], [*wobbling(40), 101.0])["move"].startswith("rose 4.0 % in a day, 3.9 times")
    assert "move" not in told([*wobbling(40), 102.0], [*wobbling(40), 101.0])


@pytest.mark.parametrize(("days", "tells"), [(2, False), (3, True), (4, False), (5, True), (8, True), (9, False)])
def test_a_streak_is_told_at_certain_lengths(days, tells):
    fallen = 100 * 0.99 ** np.arange(days + 1)
    streak = told([99.0, *fallen]).get("streak")
    assert streak == (f"fell {days} days in a row, {(1 - 0.99**days) * 100:.1f} % in all" if tells else None)
    assert "streak" not in told([99.0, *fallen, fallen[-1]])  # a day without a move ends it


def test_a_new_high_is_told_once_and_for_the_longest_span():
    close = [*np.linspace(120, 100, 70), *np.linspace(100, 105, 10), 121.0, 122.0]
    assert told(close, day=-2)["extreme of 60 days"] == "closed at its highest in 60 days"
    assert not [kind for kind in told(close, day=-1) if kind.startswith("extreme")]
    low = [*wobbling(300), 99.0]
    assert told(low)["extreme of 250 days"] == "closed at its lowest in 250 days"


def test_a_change_of_volatility_is_told_when_it_comes():
    calm, wild = 0.002 * RNG.standard_normal(120), 0.03 * RNG.standard_normal(40)
    close = 100 * np.exp(np.cumsum([*calm, *wild]))
    days = [day for day in range(120, 160) if "volatility" in {event.kind for event in events(bars(close), day)}]
    assert len(days) == 1
    assert 120 <= days[0] < 125
    assert "became restless: usual moves of" in told(close[: days[0] + 1])["volatility"]
    back = 100 * np.exp(np.cumsum([*wild, *wild, *wild, *calm]))
    assert any("became calm" in event.text for day in range(120, 150) for event in events(bars(back), day))


def test_a_drawdown_is_told_once_for_each_tenth():
    close = [100, 95, 89, 92, 88, 79, 85, 69, 101, 90]
    found = [told(close[: day + 1]).get("drawdown", "")[6:10] for day in range(len(close))]
    assert found == ["", "", "11 %", "", "", "21 %", "", "31 %", "", "11 %"]


@pytest.mark.parametrize("ticker", TICKERS)
def test_every_bundled_day_tells_only_kinds_with_a_layer(ticker):
    prices = bundled(ticker)
    found = [event for day in range(len(prices.date)) for event in events(prices, day)]
    assert {event.kind for event in found} <= LAYER_OF.keys()
    assert len(prices.date) / 4 < len(found) < len(prices.date)
    assert all(event.text.isascii() and len(event.text) < 80 for event in found)


@given(day=st.integers(0, 119), scale=st.floats(0.01, 100))
def test_nothing_depends_on_a_later_bar_or_on_the_level_of_prices(day, scale):
    close = 100 * np.exp(np.cumsum(0.03 * np.random.default_rng(day).standard_normal(120)))
    opened = close * np.exp(0.02 * np.random.default_rng(day + 500).standard_normal(120))
    later = np.where(np.arange(120) > day, 3.0, 1.0)
    assert events(bars(close, opened), day) == events(bars(close * later, opened * later), day)
    assert events(bars(close, opened), day) == events(bars(close * scale, opened * scale), day)


@pytest.mark.parametrize("identity", IDENTITIES)
def test_the_events_are_those_of_the_bars_that_the_view_shows(identity):
    window = CELLS["tsla_main"]
    shown = mask(window, 7, identity)
    found = [events(shown, day) for day in range(400, 460)]
    assert (found == [events(bundled("TSLA"), day) for day in range(400, 460)]) == (identity != "coarse")
