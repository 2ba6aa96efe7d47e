"""How the baselines' hyperparameters were chosen: on days before every window of the evaluation.

    pip install -e '.[rl]'
    python benchmarks/select_hyperparameters.py

A candidate must first learn `known_market`, whose moves are known a day ahead: who earns less than QUALIFIED of
what can be earned there does not learn, whatever luck gives it elsewhere. Then it is trained on each bundled
ticker from 2021-01-04 to the day before VALIDATION, once a seed, and plays VALIDATION to its end, greedily. The
best mean score is taken. The last day of VALIDATION comes before the first day of every cell, so no window had
a say; one table serves all cells, and who was chosen so plays no window that begins on or before that day.

Ten scores that share their days are few: most of the differences lie within twice the standard errors that
are shown. The choice is a rule that was followed, no finding about the algorithms.
"""

import argparse
import json
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, stdev
from time import process_time
from typing import Any

import numpy as np
import pandas as pd

from fintrading_agents.linear import fit
from fintrading_agents.policies import Policy
from fintrading_agents.rl import train
from fintrading_gym.errors import lookup
from fintrading_gym.rollout import Task, rollout
from fintrading_gym.windows import CELLS, TICKERS, Window, read_prices

RESULTS = Path(__file__).parent / "results" / "hyperparameters.json"
VALIDATION = ("2021-09-01", "2021-12-31")  # 86 days, the last before any cell begins
SEEDS = 1
QUALIFIED = 0.9  # of what the oracle earns on the known market

Hyperparameters = dict[str, Any]
Row = dict[str, Any]

# What a candidate is a change of: Stable-Baselines3's defaults, but for many environments and what follows from them.
START: dict[str, Hyperparameters] = {
    "ppo": {
        "steps": 100_000,
        "envs": 256,
        "timesteps": 50,
        "net_arch": [64, 64],
        "activation": "tanh",
        "learner": {
            "n_steps": 32,
            "batch_size": 4096,
            "n_epochs": 4,
            "learning_rate": 3e-3,
            "gamma": 0.99,
            "ent_coef": 0.0,
        },
    },
    "a2c": {
        "steps": 100_000,
        "envs": 64,  # 312 updates; with 256, as ppo has, 78
        "timesteps": 50,
        "net_arch": [64, 64],
        "activation": "tanh",
        "learner": {"n_steps": 5, "learning_rate": 3e-3, "gamma": 0.99, "ent_coef": 0.0},
    },
    "dqn": {
        "steps": 100_000,
        "envs": 256,
        "timesteps": 50,
        "net_arch": [64, 64],
        "activation": "relu",
        "learner": {
            "buffer_size": 100_000,
            "learning_starts": 5_000,
            "batch_size": 256,
            "train_freq": 1,
            "gradient_steps": 1,
            "target_update_interval": 5_000,
            "exploration_fraction": 0.1,
            "learning_rate": 1e-3,
            "gamma": 0.99,
        },
    },
    "linear": {"penalty": 1.0},
}
CHANGES: dict[str, list[Hyperparameters]] = {
    # From the largest to what makes no difference to least squares without one: of equals the first is taken.
    "linear": [{"penalty": penalty} for penalty in (1e2, 1e1, 1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)],
    "ppo": [
        {},
        {"steps": 200_000},
        {"learning_rate": 1e-3},
        {"gamma": 0.9},
        {"gamma": 0.0},
        {"ent_coef": 0.01},
        {"timesteps": None},
    ],
    "a2c": [
        {},
        {"steps": 200_000},
        {"learning_rate": 1e-3},
        {"gamma": 0.9},
        {"gamma": 0.0},
        {"ent_coef": 0.01},
        {"envs": 256},
        {"envs": 256, "learning_rate": 7e-4, "ent_coef": 0.01},
    ],
    "dqn": [
        {},
        {"steps": 200_000},
        {"learning_rate": 3e-4},
        {"gamma": 0.9},
        {"gamma": 0.0},
        {"exploration_fraction": 0.5},
    ],
}


def changed(start: Hyperparameters, change: Hyperparameters) -> Hyperparameters:
    """`start` with some values replaced, in its `learner` where they are found there."""
    learner = start.get("learner", {})
    inner = {name: change.get(name, value) for name, value in learner.items()}
    return {name: inner if name == "learner" else change.get(name, value) for name, value in start.items()}


def known_market() -> Window:
    """Up 2 %, down 2 %, in turn; a hundred days to learn from, and a hundred to play."""
    closes = 100 * np.cumprod([1.02 if k % 2 else 1 / 1.02 for k in range(200)])
    bars = dict.fromkeys(("open", "high", "low", "close", "adj_close"), closes)
    dates = pd.date_range("2020-01-01", periods=len(closes)).strftime("%Y-%m-%d")
    prices = read_prices(pd.DataFrame({"date": dates, **bars, "volume": 1000 + np.arange(len(closes))}))
    return Window("KNOWN", dates[100], dates[-1], prices)


def known(algorithm: str, hyperparameters: Hyperparameters) -> float:
    """The share of what can be earned on the known market that one policy does earn there."""
    task = Task(known_market())
    earned = rollout(learned(algorithm, task, hyperparameters), task.make()).ledger.log_return
    return sum(earned) / float(np.abs(task.market()[0]).sum())


def played(ticker: str, seed: int, algorithm: str, hyperparameters: Hyperparameters) -> Row:
    """One policy, trained before VALIDATION and played on it."""
    task = Task(Window(ticker, *VALIDATION), seed=seed, timesteps=None)
    begin = process_time()
    policy = learned(algorithm, task, hyperparameters)
    seconds = process_time() - begin
    episode = rollout(policy, task.make())
    assert episode.score is not None, episode.failure
    ledger = episode.ledger
    return {
        "ticker": ticker,
        "seed": seed,
        "score": episode.score,
        "cumulative_return": sum(ledger.log_return),
        "buy_share": ledger.action.count(2) / len(ledger.action),
        "hold_share": ledger.action.count(1) / len(ledger.action),
        "seconds": seconds,
        "last_day": policy.last_day,
    }


def learned(algorithm: str, task: Task, hyperparameters: Hyperparameters) -> Policy:
    if algorithm == "linear":
        return fit(task, hyperparameters)
    return train(algorithm, task, hyperparameters=hyperparameters)


def standing(algorithm: str, change: Hyperparameters, share: float, rows: list[Row]) -> Row:
    """One candidate's line: means over tickers and seeds, the standard error of its score, and `known`."""
    scores = [row["score"] for row in rows]
    names = ("cumulative_return", "buy_share", "hold_share", "seconds")
    return {
        "algorithm": algorithm,
        "change": change,
        "hyperparameters": changed(START[algorithm], change),
        "known": share,
        "score": mean(scores),
        "standard_error": stdev(scores) / len(scores) ** 0.5,
        **{name: mean(row[name] for row in rows) for name in names},
        "episodes": rows,
    }


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, default=RESULTS, help="where every episode goes, as JSON")
    options.add_argument("--workers", type=int, default=2, help="processes")
    options.add_argument("--algorithms", default=",".join(CHANGES), help="those to try; the file's others stay")
    chosen = options.parse_args()
    assert max(VALIDATION) < min(window.first for window in CELLS.values())
    again = {name: lookup("algorithm", name, CHANGES) for name in chosen.algorithms.split(",")}
    before = json.loads(chosen.out.read_text())["candidates"] if len(again) < len(CHANGES) else []
    table = [row for row in before if row["algorithm"] not in again]
    with ProcessPoolExecutor(chosen.workers, get_context("spawn")) as pool:
        for algorithm, changes in again.items():
            seeds = range(1 if algorithm == "linear" else SEEDS)
            for change in changes:
                each = partial(played, algorithm=algorithm, hyperparameters=changed(START[algorithm], change))
                share = pool.submit(known, algorithm, changed(START[algorithm], change))
                rows = list(pool.map(each, *zip(*product(TICKERS, seeds), strict=True)))
                table.append(standing(algorithm, change, share.result(), rows))
                show(table[-1])
    best = {name: chosen_of(row for row in table if row["algorithm"] == name) for name in CHANGES}
    print("\nchosen:", *(f"{name} {row['change'] or 'as it started'}" for name, row in best.items()), sep="\n  ")
    found = {
        "validation": VALIDATION,
        "chosen": {name: row["hyperparameters"] for name, row in best.items()},
        "candidates": table,
    }
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(found, indent=1) + "\n")
    return 0


def chosen_of(rows: Iterable[Row]) -> Row:
    """The first of the best scores among those that learn the known market."""
    return max((row for row in rows if row["known"] >= QUALIFIED), key=lambda row: row["score"])


def show(row: Row) -> None:
    change = ", ".join(f"{name}={value}" for name, value in row["change"].items()) or "as it starts"
    print(
        f"{row['algorithm']:7} {change:48} known {row['known']:+.2f}"
        f"   score {row['score']:.3f} +- {row['standard_error']:.3f}"
        f"   CR {row['cumulative_return']:+.3f}   buy {row['buy_share']:.2f} hold {row['hold_share']:.2f}"
        f"   {row['seconds']:.1f} s",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
