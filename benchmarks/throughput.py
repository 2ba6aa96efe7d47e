"""Steps a second on one core, ours beside the other trading environments, in one run.

    pip install -e '.[bench,fast]'
    python benchmarks/throughput.py

Every environment plays the same days (TSLA, the cell `tsla_main`: 126 steps an episode), shows seven days of
bars where it can, and gets the same random actions, drawn beforehand as Python ints; the reset at an episode's
end is part of the time. "gym.make" means as registered: gym-anytrading and CartPole come with Gymnasium's
OrderEnforcing, ours and gym-trading-env register without it and ours refuses a step before reset itself.

In a round the contestants take turns in short slices until each has had its time; ratios are taken inside a
round, and what is printed is the median over the rounds. Seconds are seconds of processor time, so that what
else the machine does counts little; on an idle machine they are those of the clock. All samples are in
`results/throughput.json`. The batched environments, in `batched.py`, have rounds of their own in the same run.
"""

import argparse
import gc
import json
import os
import platform
import sys
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import process_time
from typing import TYPE_CHECKING, Any

import batched
import gymnasium as gym
import in_readme
import numpy as np

from fintrading_gym import ENV_ID
from fintrading_gym import observations as view
from fintrading_gym.errors import MissingExtra
from fintrading_gym.windows import find_window

if TYPE_CHECKING:
    import pandas as pd

RESULTS = Path(__file__).parent / "results" / "throughput.json"
CELL, LOOKBACK, SEED = "tsla_main", 7, 0
ROUNDS, SECONDS = 5, 0.3  # measurements of each contestant, and the least time of one
SLICE = 0.05  # seconds that one plays before it is the next one's turn: what slows the machine slows all alike
# Drawn from 0..5, so that `action % n` is uniform for environments of two and of three actions.
DRAWN: list[int] = np.random.default_rng(SEED).integers(6, size=1_000).tolist()

Env = gym.Env[Any, Any]
Lap = Callable[[], int]  # does some work and says how many steps or texts that was
Row = dict[str, Any]

# ------------------------------------------------------------------------------------ the contestants


def ours(observation: str) -> Env:
    return gym.make(ENV_ID, cell=CELL, timesteps=None, observation=observation, lookback=LOOKBACK)


def ours_raw() -> Env:
    from fintrading_gym.env import FinMemTradingEnv

    return FinMemTradingEnv(cell=CELL, timesteps=None, observation="vector", lookback=LOOKBACK)


def anytrading() -> Env:
    import gym_anytrading  # noqa: F401 - registers stocks-v0

    first, days = find_window(CELL).span()
    prices = bars().rename(columns=str.capitalize)
    return gym.make("stocks-v0", df=prices, window_size=LOOKBACK, frame_bound=(first, first + days))


def trading_env(windows: int | None) -> Env:
    with warnings.catch_warnings():  # the import turns every warning into an error, for the whole process
        import gym_trading_env.environments  # noqa: F401 - registers TradingEnv

    first, days = find_window(CELL).span()
    prices = bars()
    inputs = {
        "feature_close": prices.close.pct_change(),
        "feature_volume": prices.volume / prices.volume.rolling(7).max(),
    }
    inputs |= {f"feature_{name}": prices[name] / prices.close for name in ("open", "high", "low")}
    shown = prices.drop(columns="volume").assign(**inputs).iloc[first + 1 - (windows or 1) : first + days]
    return gym.make("TradingEnv", df=shown, positions=[-1, 0, 1], initial_position=0, windows=windows, verbose=0)


def bars() -> "pd.DataFrame":
    """Our adjusted bars of the ticker, as the peers take them."""
    import pandas as pd

    prices = find_window(CELL).load()
    columns = {name: getattr(prices, name) for name in view.BARS}
    return pd.DataFrame(columns, index=pd.to_datetime(list(prices.date)))


OURS = "ours, vector"  # what the ratios compare with each row
ANYTRADING, TRADING_ENV = "gym-anytrading", "gym-trading-env"

ENVIRONMENTS: dict[str, Callable[[], Env]] = {
    OURS: lambda: ours("vector"),
    ANYTRADING: anytrading,
    TRADING_ENV: lambda: trading_env(LOOKBACK),
    "gym-trading-env, one bar": lambda: trading_env(None),
    "CartPole-v1": lambda: gym.make("CartPole-v1"),
    "ours, vector, without gym.make": ours_raw,
    "ours, text": lambda: ours("text"),
    "ours, both": lambda: ours("both"),
}


def text_views() -> Lap:
    """The text view as the environment renders it: the day's part ready, the player's part new."""
    texts = view.market_texts(view.Sight(find_window(CELL), LOOKBACK, "full", "real"))
    states = _states(len(texts))
    stance = view.PERSONAS["adaptive"]

    def lap() -> int:
        for text, state in zip(texts, states, strict=True):
            view.text_view(text, stance, len(texts) - 1, *state)
        return len(texts)

    return lap


def texts_from_prices() -> Lap:
    """The day's part of the text as well, which the environment renders once a window."""
    sight = view.Sight(find_window(CELL), LOOKBACK, "full", "real")

    def lap() -> int:
        view.market_texts.cache_clear()
        return len(view.market_texts(sight))

    return lap


def rows_copied() -> Lap:
    """The bound of a vector step: nothing but a new array of the observation's size."""
    rows = list(view.market_rows(find_window(CELL), LOOKBACK))

    def lap() -> int:
        for row in rows:
            row.copy()
        return len(rows)

    return lap


TEXTS = "texts, as in a step"
PARTS: dict[str, Callable[[], Lap]] = {
    TEXTS: text_views,
    "texts, the day's part from prices": texts_from_prices,
    "observations copied, no game": rows_copied,
}

# What this project promises: (row, column, at least).
TARGETS: tuple[tuple[str, str, float], ...] = (
    (ANYTRADING, "ratio", 1.5),
    (ANYTRADING, "ratio", 2.0),
    (TRADING_ENV, "ratio", 8.0),
    (TEXTS, "per_second", 50_000.0),
)

# ------------------------------------------------------------------------------------- the measurement


def playing(env: Env) -> Lap:
    """Laps of the drawn actions, warmed up by one."""
    step, reset = env.step, env.reset
    actions = [action % int(env.action_space.n) for action in DRAWN]  # type: ignore[attr-defined]

    def lap() -> int:
        for action in actions:
            _, _, terminated, truncated, _ = step(action)
            if terminated or truncated:
                reset()
        return len(actions)

    reset(seed=SEED)
    lap()
    return lap


def contestants() -> dict[str, Lap]:
    """Every contestant, ready to run."""
    return {name: playing(make()) for name, make in ENVIRONMENTS.items()} | {
        name: make() for name, make in PARTS.items()
    }


def measure(laps: dict[str, Lap], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Steps or texts a second: one rate a contestant and round."""
    samples: dict[str, list[float]] = {name: [] for name in laps}
    gc.freeze()  # thousands of environments, which gc.collect() below need not look through each time
    for _ in range(rounds):
        done, spent = dict.fromkeys(laps, 0), dict.fromkeys(laps, 0.0)
        while min(spent.values()) < seconds:
            for name, lap in laps.items():
                gc.collect()
                count, time = _slice(lap)
                done[name] += count
                spent[name] += time
        for name, rates in samples.items():
            rates.append(done[name] / spent[name])
    return samples


def _slice(lap: Lap) -> tuple[int, float]:
    """Some laps, at least SLICE seconds long, and what they took."""
    done, begin = 0, process_time()
    while (spent := process_time() - begin) < SLICE:
        done += lap()
    return done, spent


# ------------------------------------------------------------------------------------------ the report


def rows(samples: dict[str, list[float]]) -> list[Row]:
    """One row a contestant: the median rate, and for environments how many times faster ours is, round by round."""
    return [
        {"name": name, "per_second": median(rates), "slowest": min(rates), "fastest": max(rates)}
        | (_ratios(samples[OURS], rates) if name in ENVIRONMENTS else {})
        for name, rates in samples.items()
    ]


def _ratios(reference: list[float], rates: list[float]) -> Row:
    each = [mine / theirs for mine, theirs in zip(reference, rates, strict=True)]
    return {"ratio": median(each), "ratio_lowest": min(each), "ratio_highest": max(each)}


def verdicts(table: list[Row], memory: dict[str, float]) -> list[Row]:
    """One row a target: what is asked and what was measured."""
    found = {row["name"]: row for row in table}
    return [
        {"name": name, "column": column, "at_least": least, "measured": found[name][column]}
        for name, column, least in (*TARGETS, *batched.TARGETS)
    ] + [
        {"name": name, "column": "megabytes", "at_most": batched.MEMORY_TARGET, "measured": megabytes}
        for name, megabytes in memory.items()
    ]


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
    packages = ("fintrading-gym", "gymnasium", "numpy", "numba", "pandas", "gym-anytrading", "gym-trading-env")
    sb3 = ("stable-baselines3",) if find_spec("stable_baselines3") else ()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpus": os.cpu_count(),
        "platform": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in (*packages, *sb3)},
    }


def show(facts: dict[str, Any], table: list[Row], batches: list[Row], targets: list[Row]) -> None:
    print(", ".join(f"{name} {fact}" for name, fact in facts.items()))
    print(f"\n{'':44} {'per second':>11} {'slowest .. fastest':>26}   ours, vector / it (lowest .. highest)")
    for row in table:
        ratio = "{ratio:.2f} ({ratio_lowest:.2f} .. {ratio_highest:.2f})".format(**row) if "ratio" in row else ""
        print(_rates(row) + ratio)
    print(f"\n{'':44} {'per second':>11} {'slowest .. fastest':>26}   of the bound, x the best of gym-anytrading's")
    for row in batches:
        ratios = "{of_gather:.2f}, {over_anytrading:,.0f} x".format(**row) if "of_gather" in row else ""
        print(_rates(row) + ratios)
    print()
    for row in targets:
        bound = "at_least" if "at_least" in row else "at_most"
        reached = row["measured"] >= row[bound] if bound == "at_least" else row["measured"] <= row[bound]
        what = {
            "ratio": f"{OURS} / {row['name']}",
            "per_second": f"{row['name']}, a second",
            "of_gather": f"{row['name']}, of the bound",
            "over_anytrading": f"{row['name']} / {ANYTRADING}",
            "megabytes": f"{row['name']}, MB of 8192 environments",
        }[row["column"]]
        print(
            f"{what:48} {bound.replace('_', ' '):8} {row[bound]:>9,.1f}: {row['measured']:>11,.2f}"
            f" {'reached' if reached else 'missed'}"
        )


def _rates(row: Row) -> str:
    spread = f"{row['slowest']:,.0f} .. {row['fastest']:,.0f}"
    return f"{row['name']:44} {row['per_second']:>11,.0f} {spread:>26}   "


def readme(found: dict[str, Any]) -> str:
    """The README's tables, from what `results/throughput.json` holds."""
    single, batches = ({row["name"]: row for row in found[half]} for half in ("rows", "batched"))
    sizes = batched.SIZES
    lines = [
        "| environment | steps/s | ours is faster by |",
        "|---|---|---|",
        f"| ours, vector view | {_rounded(single[OURS])} | |",
        *(
            f"| {name} {found['machine'][name]} | {_rounded(single[name])} | {single[name]['ratio']:.1f} |"
            for name in (ANYTRADING, TRADING_ENV)
        ),
        "",
        "| N environments a step, steps/s |" + "".join(f" N = {n} |" for n in sizes),
        "|---|" + "---|" * len(sizes),
        *(
            f"| {name} |" + "".join(f" {_rounded(batches.get(f'{name}, N={n}'))} |" for n in sizes)
            for name in dict.fromkeys(name.rsplit(",", 1)[0] for name in batches)
        ),
    ]
    return "\n".join(lines) + "\n"


def _rounded(row: Row | None) -> str:
    """The rate to three figures; nothing where none was measured."""
    return f"{float(format(row['per_second'], '.3g')):,.0f}" if row else ""


def _states(count: int) -> list[tuple[int, float, int, bytes]]:
    """Made-up player's states for the text view: position, cumulative return, step, last decisions."""
    random = np.random.default_rng(SEED)
    return [
        (
            int(random.integers(-1, 2)),
            float(random.normal(0, 0.2)),
            step,
            b"".join(view.SIGNS[action] for action in random.integers(0, 3, view.REMEMBERED)),
        )
        for step in range(count)
    ]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=ROUNDS, help="measurements of each contestant")
    options.add_argument("--seconds", type=float, default=SECONDS, help="least time of one measurement")
    options.add_argument("--out", type=Path, default=RESULTS, help="where the samples go, as JSON")
    options.add_argument("--readme", action="store_true", help="write the README's table as well")
    chosen = options.parse_args()
    if chosen.rounds < 1 or not chosen.seconds > 0:
        options.error(f"--rounds {chosen.rounds} --seconds {chosen.seconds}: both must be positive")
    missing = [name for name in (ANYTRADING, TRADING_ENV, "numba") if not find_spec(name.replace("-", "_"))]
    if missing:
        print(MissingExtra(f"The comparison with {' and '.join(missing)}", "bench,fast"), file=sys.stderr)
        return 2
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with warnings.catch_warnings():
        # gym-anytrading's observations are views of one table, and Gymnasium's checker says so on its first steps.
        warnings.filterwarnings("ignore", message=".*share an object", category=UserWarning)
        singles = measure(contestants(), chosen.rounds, chosen.seconds)
        peers = {ANYTRADING: anytrading, TRADING_ENV: lambda: trading_env(LOOKBACK)}
        batches = batched.contestants(peers, cell=CELL, timesteps=None, lookback=LOOKBACK)
        crowds = measure(batches, chosen.rounds, chosen.seconds)
    memory = {batched.NUMPY: batched.megabytes(False), batched.COMPILED: batched.megabytes(True)}
    facts, table, crowd_table = machine(), rows(singles), batched.rows(crowds, ANYTRADING)
    targets = verdicts(table + crowd_table, memory)
    show(facts, table, crowd_table, targets)
    found = {
        "machine": facts,
        "rows": table,
        "batched": crowd_table,
        "targets": targets,
        "samples": singles,
        "batched_samples": crowds,
    }
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(found, indent=2) + "\n")
    if chosen.readme:
        in_readme.show("throughput", readme(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
