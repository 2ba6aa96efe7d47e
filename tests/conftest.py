"""What several test files need: small tables whose numbers are in the tests, and quick hypothesis settings."""

import datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import settings

from fintrading_gym.ranking import MEASURES
from fintrading_gym.windows import DATA, Window, read_prices

settings.register_profile("default", deadline=None, max_examples=50)
settings.load_profile("default")


def table_of(closes, opens=None, first="2022-01-03"):
    """A price table of these closes on consecutive calendar days, one unit of room around each bar."""
    closes = np.asarray(closes, np.float64)
    opens = closes if opens is None else np.asarray(opens, np.float64)
    start = datetime.date.fromisoformat(first)
    return pd.DataFrame(
        {
            "date": [str(start + datetime.timedelta(days=k)) for k in range(len(closes))],
            "open": opens,
            "high": np.maximum(opens, closes),
            "low": np.minimum(opens, closes),
            "close": closes,
            "adj_close": closes,
            "volume": np.arange(len(closes)) * 10 + 1000,
        }
    )


def window_of(closes, opens=None, skip=0):
    """The whole of such a table as a window, or all but its first `skip` days."""
    prices = read_prices(table_of(closes, opens))
    return Window("TEST", prices.date[skip], prices.date[-1], prices)


def two_futures(folder):
    """The cell `tsla_main` from two tables that are the same until the day before it, and differ from then on."""
    table = pd.read_csv(DATA / "TSLA.csv")
    table.to_csv(folder / "a.csv", index=False)
    later = table.index[table.date >= "2022-10-06"]
    prices = ["open", "high", "low", "close", "adj_close"]
    table.loc[later, prices] *= np.linspace(0.5, 3, len(later))[:, None]
    table.to_csv(folder / "b.csv", index=False)
    return [f"{folder / name}:2022-10-06:2023-04-10" for name in ("a.csv", "b.csv")]


def board_row(agent, score, cell="a", persona=None, seed=None, **more):
    """A row of a board; each cell is a ticker of its own, so that windows are independent unless `more` says else."""
    return {
        **{"agent": agent, "ranked": True, "world": "real", "persona": persona, "seed": seed},
        **{"cell": cell, "ticker": cell, "first_day": "2022-01-03", "last_day": "2022-03-16", "timesteps": 50},
        **{"hold": "keep", "fill": "close", "cost_bps": 0.0, "data_sha256": cell, "failure": None},
        **dict.fromkeys(MEASURES, 0.0),
        **{"coverage": 1.0, "score": score, "identity": "real"},
        **more,
    }


@pytest.fixture
def four_days():
    """Closes 100, 110, 99, 99 with opens of their own: log returns +0.0953, -0.1054, 0."""
    return window_of([100.0, 110.0, 99.0, 99.0], [100.0, 104.0, 112.0, 98.0])
