"""The batched half of `throughput.py`: N environments a step, ours beside the peers', and the bound of a gather.

Ours is what `gym.make_vec` makes, in plain numpy and compiled (extra `fast`). The peers come in Gymnasium's
SyncVectorEnv and, where it is installed, in Stable-Baselines3's DummyVecEnv; more processes are no help on one
core. Resets are part of the time, as the vector environments do them; infos are returned and not read.

The bound is `np.take` of the rows that our environments show into a buffer that is already there. It gets
`mode="clip"`, with which numpy writes right into that buffer.
"""

import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from itertools import cycle
from statistics import median
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import SyncVectorEnv

from fintrading_gym import ENV_ID
from fintrading_gym import observations as view
from fintrading_gym.windows import find_window

SIZES = (64, 1024, 8192)
PEERS_SIZES = {"gym-anytrading": (64, 1024), "gym-trading-env": (64,)}  # more take minutes, and are no faster
NUMPY, COMPILED, GATHER = "ours, numpy", "ours, compiled", "gather of the rows, no game"
LAP = 8192  # environment steps before it is the next one's turn, or one step if that is more
SEED = 0

Lap = Callable[[], int]
Row = dict[str, Any]
Maker = Callable[[], gym.Env[Any, Any]]

# What this project promises: (row, column, at least).
TARGETS: tuple[tuple[str, str, float], ...] = (
    (f"{NUMPY}, N=1024", "over_anytrading", 100.0),
    (f"{COMPILED}, N=1024", "over_anytrading", 400.0),
    (f"{COMPILED}, N=1024", "of_gather", 0.5),
    (f"{COMPILED}, N=8192", "of_gather", 0.5),
)
MEMORY_TARGET = 64.0  # MB of 8192 environments above the import, at most


def contestants(peers: dict[str, Maker], **game: Any) -> dict[str, Lap]:
    """Every contestant, ready to run, by `NAME, N=SIZE`.

    Args:
        peers: a name of `PEERS_SIZES` -> maker of a single environment.
        game: the keywords of ours.
    """
    laps: dict[str, Lap] = {}
    for n in SIZES:
        laps[f"{GATHER}, N={n}"] = gathering(n, find_window(game["cell"]), game["lookback"])
        for name, compiled in {NUMPY: False, COMPILED: True}.items():
            laps[f"{name}, N={n}"] = stepping(gym.make_vec(ENV_ID, n, compiled=compiled, **game), n, 3)
    for name, make in peers.items():
        actions = int(make().action_space.n)  # type: ignore[attr-defined]
        for loop, gather in _loops().items():
            for n in PEERS_SIZES[name]:
                laps[f"{name} in {loop}, N={n}"] = stepping(gather([make] * n), n, actions)
    return laps


def _loops() -> dict[str, Callable[[list[Maker]], Any]]:
    loops: dict[str, Callable[[list[Maker]], Any]] = {"SyncVectorEnv": SyncVectorEnv}
    if find_spec("stable_baselines3"):
        from stable_baselines3.common.vec_env import DummyVecEnv

        loops["SB3's DummyVecEnv"] = DummyVecEnv
    return loops


def stepping(envs: Any, n: int, actions: int) -> Lap:
    """Laps of drawn actions, warmed up by one."""
    drawn = cycle(np.random.default_rng(SEED).integers(actions, size=(128, n)))
    steps = max(1, LAP // n)

    def lap() -> int:
        for _ in range(steps):
            envs.step(next(drawn))
        return steps * n

    if isinstance(envs, gym.vector.VectorEnv):
        envs.reset(seed=SEED)
    else:
        envs.reset()  # SB3's
    lap()
    return lap


def gathering(n: int, window: Any, lookback: int) -> Lap:
    """Laps of nothing but the observations: the same rows of the same table, day by day."""
    table = np.array(view.market_rows(window, lookback))
    shown = cycle(np.repeat(np.arange(1, len(table)), n).reshape(-1, n))
    buffer = np.empty((n, table.shape[1]), np.float32)
    steps = max(1, LAP // n)

    def lap() -> int:
        for _ in range(steps):
            np.take(table, next(shown), axis=0, out=buffer, mode="clip")
        return steps * n

    return lap


def rows(samples: dict[str, list[float]], anytrading: str) -> list[Row]:
    """One row a contestant: the median rate; for ours the ratios to the bound and to the best of gym-anytrading's."""
    best = max((name for name in samples if name.startswith(anytrading)), key=lambda name: median(samples[name]))
    table: list[Row] = []
    for name, rates in samples.items():
        row = {"name": name, "per_second": median(rates), "slowest": min(rates), "fastest": max(rates)}
        if name.startswith((NUMPY, COMPILED)):
            bound = samples[f"{GATHER},{name.rsplit(',', 1)[1]}"]
            row["of_gather"] = median(mine / most for mine, most in zip(rates, bound, strict=True))
            row["over_anytrading"] = median(mine / theirs for mine, theirs in zip(rates, samples[best], strict=True))
        table.append(row)
    return table


# A process of its own. On Linux it inherits ru_maxrss from the one that starts it, so its peak is read from /proc.
MEMORY = """
import os, re, resource, sys
import gymnasium as gym, numpy as np
import fintrading_gym.vector_env

def peak():
    if os.path.exists("/proc/self/status"):
        return int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)  # macOS counts bytes

compiled = sys.argv[1] == "True"
if compiled:
    import fintrading_gym.kernel
before = peak()
envs = gym.make_vec("FinMemTrading-v0", 8192, compiled=compiled, start="random")
envs.reset(seed=0)
for row in np.random.default_rng(0).integers(3, size=(110, 8192)):
    envs.step(row)
print(peak() - before)
"""


def megabytes(compiled: bool) -> float:
    """What 8192 environments take at their peak above the import, over two episodes of random starts."""
    done = subprocess.run([sys.executable, "-c", MEMORY, str(compiled)], capture_output=True, text=True, check=True)
    return float(done.stdout)
