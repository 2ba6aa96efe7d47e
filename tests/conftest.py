"""What several test files need: small tables whose numbers are in the tests, and quick hypothesis settings."""

import contextlib
import datetime
import io
import os
import sys
import time
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from hypothesis import settings

from fintrading_gym import cli
from fintrading_gym.ranking import MEASURES
from fintrading_gym.windows import DATA, Window, read_prices

KEY = "sk-planted-0123456789abcdef"  # of an endpoint

LOOP = 0.02  # seconds that `slower` counts to where the bounds in seconds were set

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


def slower(clock=time.process_time):
    """How many times slower this machine is now than the one whose seconds the bounds are, at least 1.

    A bound times this is the same claim on a machine that is old or busy: the code is as quick as it was beside a
    plain loop.
    """
    took = []
    for _ in range(5):
        began = clock()
        sum(k * k % 7 for k in range(250_000))
        took.append(clock() - began)
    return max(1.0, median(took) / LOOP)


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


def fintrading(*words, cwd=".", code=0):
    """`fintrading WORDS` in that folder, in this process: its stdout and stderr, after the exit code was compared.

    What a process of its own would add is a second of imports; what it imports from that folder is forgotten again.
    """
    out, err, folder, before = io.StringIO(), io.StringIO(), Path(cwd).resolve(), set(sys.modules)
    with (
        patch.object(sys, "argv", ["fintrading", *map(str, words)]),
        patch.object(sys, "path", [*sys.path]),
        patch.dict(os.environ, COLUMNS="120"),
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as end,
    ):
        cli.main()
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == folder:
            del sys.modules[name]
    said = SimpleNamespace(stdout=out.getvalue(), stderr=err.getvalue())
    assert (end.value.code or 0) == code, said.stdout + said.stderr
    return said


@pytest.fixture
def four_days():
    """Closes 100, 110, 99, 99 with opens of their own: log returns +0.0953, -0.1054, 0."""
    return window_of([100.0, 110.0, 99.0, 99.0], [100.0, 104.0, 112.0, 98.0])


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """`fintrading WORDS` in this process: what it printed, after the exit code was compared. The key is never told."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("FINTRADING_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def run(*words, code=0):
        monkeypatch.setattr(sys, "argv", ["fintrading", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        out = capsys.readouterr()
        assert (end.value.code or 0) == code, out.out + out.err
        assert KEY not in out.out + out.err
        return out

    yield run
    assert not any(KEY.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
