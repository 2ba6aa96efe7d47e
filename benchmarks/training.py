"""What the environment adds to a learner's time, and PPO on it beside PPO on gym-anytrading, in one run.

    pip install -e '.[rl,bench]'
    python benchmarks/training.py

First the same PPO (the hyperparameters of `fintrading_agents.rl`, 8192 steps an update) learns on our native
`VecEnv`, bootstrapping from all ends at once as `fintrading train` does; on the same episodes through
Stable-Baselines3's `DummyVecEnv`; and on two environments that cost nothing: `still` returns prepared arrays and
never ends an episode, `ending` ends them as ours do, and the learner bootstraps in its own way. They take turns,
an update each; ratios are taken inside a round.

Then both train for 200,000 steps on TSLA's days before a validation span and play that span greedily, once a
seed: ours as `fintrading train ppo` does, and gym-anytrading as Stable-Baselines3 has it, every hyperparameter
its default, in a `DummyVecEnv` of 8, which makes it faster than the usual single one. Both are settled by our
ledger, at the close that was seen.

Seconds are seconds of processor time, so that what else the machine does counts little; torch has one thread.
"""

import argparse
import json
import os
import platform
import sys
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from importlib import metadata
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, median, stdev
from time import process_time
from typing import Any

import gymnasium as gym
import in_readme
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import t as student
from select_hyperparameters import VALIDATION
from stable_baselines3 import PPO
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from fintrading_agents.rl import HYPERPARAMETERS, TORCH_NAMES, train
from fintrading_agents.sb3 import FinMemTradingVecEnv, bootstrapping, make_vec_env
from fintrading_agents.spans import training_days
from fintrading_gym import ENV_ID
from fintrading_gym.errors import MissingExtra
from fintrading_gym.metrics import BUY, SELL, earned, fintrading_score
from fintrading_gym.rollout import Task, rollout
from fintrading_gym.windows import Window

RESULTS = Path(__file__).parent / "results" / "training.json"
TASK = Task(Window("TSLA", *VALIDATION), timesteps=None)
STEPS, UPDATE = 200_000, 8192  # of a training, of one update of PPO
SIZES = (64, 256)
LOOKBACK, PEERS = 7, 8  # days that gym-anytrading shows, and how many of it learn side by side
PPO_TABLE = HYPERPARAMETERS["ppo"]

Row = dict[str, Any]


# ---------------------------------------------------------------------------- what the environment costs


class Costless(FinMemTradingVecEnv):
    """Arrays made beforehand, and every `length` steps the infos of episodes that end (0: never)."""

    def __init__(self, num_envs: int, length: int):
        super().__init__(make_vec_env(num_envs).env)
        random = np.random.default_rng(0)
        observations = random.standard_normal((num_envs, *self.observation_space.shape)).astype(np.float32)
        rewards, episode = np.zeros(num_envs, np.float32), {"r": 0.0, "l": length, "t": 0.0}
        ended = [{"terminal_observation": row, "TimeLimit.truncated": True, "episode": episode} for row in observations]
        self.under_way = observations, rewards, np.zeros(num_envs, np.bool_), [{} for _ in range(num_envs)]
        self.at_the_end = observations, rewards, np.ones(num_envs, np.bool_), ended
        self.length, self.steps = length, 0

    def reset(self) -> NDArray[np.float32]:
        """The prepared observations."""
        return self.under_way[0]

    def step_async(self, actions: NDArray[np.integer[Any]]) -> None:
        """Count."""
        self.steps += 1

    def step_wait(self) -> Any:
        """What was prepared."""
        return self.at_the_end if self.length and self.steps % self.length == 0 else self.under_way


def game() -> dict[str, Any]:
    (days,) = training_days(TASK.window)
    return {"cell": days, "start": "random", "timesteps": PPO_TABLE["timesteps"]}


def dummy(num_envs: int) -> VecEnv:
    return DummyVecEnv([lambda: Monitor(gym.make(ENV_ID, observation="vector", **game()))] * num_envs)


ENVIRONMENTS: dict[str, Callable[[int], VecEnv]] = {
    "costless, still": lambda n: Costless(n, 0),
    "costless, ending": lambda n: Costless(n, PPO_TABLE["timesteps"] or training_days(TASK.window)[0].span()[1] - 1),
    "ours, native VecEnv": lambda n: make_vec_env(n, **game()),
    "ours, DummyVecEnv": dummy,
}


def learner(envs: VecEnv) -> PPO:
    """The PPO of `fintrading_agents.rl`, with as many steps an update whatever the number of environments."""
    settings = PPO_TABLE["learner"] | {"n_steps": UPDATE // envs.num_envs}
    activation = getattr(torch.nn, TORCH_NAMES[PPO_TABLE["activation"]])
    network = {"net_arch": PPO_TABLE["net_arch"], "activation_fn": activation}
    made = PPO("MlpPolicy", envs, policy_kwargs=network, seed=0, device="cpu", **settings)
    if isinstance(envs, FinMemTradingVecEnv) and not isinstance(envs, Costless):
        bootstrapping(made)
    return made


def costs(rounds: int, updates: int) -> list[Row]:
    """Seconds for STEPS steps of each environment and size, one number a round."""
    learners = {(size, name): learner(make(size)) for size in SIZES for name, make in ENVIRONMENTS.items()}
    for each in learners.values():
        each.learn(UPDATE)  # warm
    spent: dict[tuple[int, str], list[float]] = {place: [] for place in learners}
    for _ in range(rounds):
        for seconds in spent.values():
            seconds.append(0.0)
        for _ in range(updates):
            for place, each in learners.items():
                begin = process_time()
                each.learn(UPDATE, reset_num_timesteps=False)
                spent[place][-1] += process_time() - begin
    scale = STEPS / (updates * UPDATE)
    return [_cost(size, name, spent, scale) for size, name in spent]


def _cost(size: int, name: str, spent: dict[tuple[int, str], list[float]], scale: float) -> Row:
    row: Row = {"num_envs": size, "name": name, "seconds": median(spent[size, name]) * scale}
    for bound in ("still", "ending"):
        pairs = zip(spent[size, name], spent[size, f"costless, {bound}"], strict=True)
        ratios = [own / least for own, least in pairs]
        row[f"over_{bound}"] = median(ratios)
        row[f"over_{bound}_range"] = [min(ratios), max(ratios)]
    return row


# ----------------------------------------------------------------------------------- beside gym-anytrading


def train_ours(seed: int) -> tuple[float, float]:
    """Seconds of the training, and the score on VALIDATION."""
    task = Task(TASK.cell, seed=seed, timesteps=None)
    begin = process_time()
    policy = train("ppo", task, hyperparameters=PPO_TABLE | {"steps": STEPS})
    seconds = process_time() - begin
    score = rollout(policy, task.make()).score
    assert score is not None
    return seconds, score


def anytrading(window: Window) -> gym.Env[Any, Any]:
    import gym_anytrading  # noqa: F401 - registers stocks-v0
    import pandas as pd

    first, days = window.span()
    first_shown = max(first, LOOKBACK)  # it needs that many rows before its first day
    table = pd.DataFrame({"Close": window.load().close})
    return gym.make("stocks-v0", df=table, window_size=LOOKBACK, frame_bound=(first_shown, first + days))


def train_anytrading(seed: int) -> tuple[float, float]:
    """The same for PPO on gym-anytrading, with Stable-Baselines3's defaults throughout."""
    (days,) = training_days(TASK.window)
    begin = process_time()
    envs = DummyVecEnv([lambda: Monitor(anytrading(days))] * PEERS)
    peer = PPO("MlpPolicy", envs, seed=seed, device="cpu").learn(STEPS)
    seconds = process_time() - begin

    env = anytrading(TASK.window)
    observation, _ = env.reset(seed=seed)
    actions, over = [], False
    while not over:
        action = peer.predict(observation, deterministic=True)[0]
        actions.append(BUY if int(action) else SELL)
        observation, _, _, over, _ = env.step(int(action))
    _, log_returns = earned(TASK.market()[0], actions)
    return seconds, fintrading_score(log_returns, np.ones(len(actions), np.bool_))


def both(seed: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Ours and theirs of one seed, one after the other in one process."""
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        # gym-anytrading's observations are views of one table, and Gymnasium's checker says so on its first steps.
        warnings.filterwarnings("ignore", message=".*share an object", category=UserWarning)
        ours, theirs = train_ours(seed), train_anytrading(seed)
    print(f"seed {seed}: ours {ours[0]:.1f} s, {ours[1]:.3f}; theirs {theirs[0]:.1f} s, {theirs[1]:.3f}", flush=True)
    return ours, theirs


def comparison(ours: Sequence[tuple[float, float]], theirs: Sequence[tuple[float, float]]) -> Row:
    """How many times faster ours is, seed by seed, and what is between the scores; of seconds and scores of both."""
    ratios = [slow / fast for (fast, _), (slow, _) in zip(ours, theirs, strict=True)]
    scores = [[score for _, score in side] for side in (ours, theirs)]
    return {
        "seconds": [median(seconds for seconds, _ in side) for side in (ours, theirs)],
        "faster": median(ratios),
        "faster_range": [min(ratios), max(ratios)],
        "scores": scores,
        "difference": mean(scores[0]) - mean(scores[1]),
        "interval": interval(*scores),
        "validation": str(TASK.window),
    }


def interval(ours: list[float], theirs: list[float]) -> list[float]:
    """Welch's 95 % interval of the difference of the means."""
    parts = [stdev(scores) ** 2 / len(scores) for scores in (ours, theirs)]
    middle, error = mean(ours) - mean(theirs), sum(parts) ** 0.5
    if not error:
        return [middle, middle]
    freedom = sum(parts) ** 2 / sum(p**2 / (len(s) - 1) for p, s in zip(parts, (ours, theirs), strict=True))
    reach = float(student.ppf(0.975, freedom)) * error
    return [middle - reach, middle + reach]


# ------------------------------------------------------------------------------------------ the report


def machine() -> Row:
    """What the numbers depend on."""
    packages = ("fintrading-gym", "gymnasium", "numpy", "torch", "stable-baselines3", "gym-anytrading")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpus": os.cpu_count(),
        "platform": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in packages},
    }


def verdicts(table: list[Row], peer: Row) -> list[Row]:
    """What is asked of the numbers, and whether they say so."""
    ours = [row for row in table if row["name"].startswith("ours, native")]
    return [
        *(
            {
                "what": f"N = {row['num_envs']}: time over the costless learner, {bound}",
                "at_most": 1.10,
                "measured": row[f"over_{bound}"],
                "reached": row[f"over_{bound}"] <= 1.10,
            }
            for row in ours
            for bound in ("still", "ending")
        ),
        {
            "what": "PPO, times faster than on gym-anytrading",
            "at_least": 5.0,
            "measured": peer["faster"],
            "reached": peer["faster"] >= 5.0,
        },
        {
            "what": "validation score less theirs: its 95 % interval is not all below 0",
            "at_least": 0.0,
            "measured": peer["interval"][1],
            "reached": peer["interval"][1] >= 0.0,
        },
    ]


def show_costs(table: list[Row]) -> None:
    print(f"\nPPO, seconds for {STEPS:,} steps   over the costless learner that is still / that ends episodes")
    for row in table:
        over = "   ".join(
            f"{row[f'over_{bound}']:.3f} ({row[f'over_{bound}_range'][0]:.3f} .. {row[f'over_{bound}_range'][1]:.3f})"
            for bound in ("still", "ending")
        )
        print(f"N = {row['num_envs']:3} {row['name']:20} {row['seconds']:6.2f} s   {over}", flush=True)


def show_comparison(peer: Row, targets: list[Row]) -> None:
    low, high = peer["interval"]
    print(
        f"\nours {peer['seconds'][0]:.1f} s, gym-anytrading {peer['seconds'][1]:.1f} s:"
        f" {peer['faster']:.1f} times faster ({peer['faster_range'][0]:.1f} .. {peer['faster_range'][1]:.1f})\n"
        f"validation scores {mean(peer['scores'][0]):.3f} and {mean(peer['scores'][1]):.3f},"
        f" difference {peer['difference']:+.3f}, 95 % interval {low:+.3f} .. {high:+.3f}\n"
    )
    for row in targets:
        bound = f"at least {row['at_least']}" if "at_least" in row else f"at most {row['at_most']}"
        print(f"{row['what']:70} {bound:14} {row['measured']:8.3f} {'reached' if row['reached'] else 'missed'}")


def readme(found: Row) -> str:
    """The README's tables, from what `results/training.json` holds."""
    peer = found["gym-anytrading"]
    (fast, slow), (low, high) = peer["seconds"], peer["interval"]
    ours, theirs = (mean(scores) for scores in peer["scores"])
    lines = [
        f"| PPO, {STEPS:,} steps, on | N | seconds | over the same on `still` | on `ending` |",
        "|---|---|---|---|---|",
        *(
            f"| {row['name']} | {row['num_envs']} | {row['seconds']:.1f}"
            f" | {row['over_still'] - 1:+.0%} | {row['over_ending'] - 1:+.0%} |"
            for row in found["costs"]
        ),
        "",
        f"| PPO, {STEPS:,} steps, {len(peer['scores'][0])} seeds | seconds | score on {peer['validation']} |",
        "|---|---|---|",
        f"| ours | {fast:.1f} | {ours:.3f} |",
        f"| gym-anytrading, Stable-Baselines3's defaults | {slow:.1f} | {theirs:.3f} |",
        f"| | {peer['faster']:.1f} times | {peer['difference']:+.3f} ({low:+.3f} .. {high:+.3f}) |",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=5, help="measurements of each environment")
    options.add_argument("--updates", type=int, default=6, help="updates of PPO in one of them")
    options.add_argument("--seeds", type=int, default=5, help="trainings on each side of the comparison")
    options.add_argument("--workers", type=int, default=1, help="processes of the comparison, beside that of the costs")
    options.add_argument("--out", type=Path, default=RESULTS, help="where the numbers go, as JSON")
    options.add_argument("--readme", action="store_true", help="write the README's table as well")
    chosen = options.parse_args()
    if not find_spec("gym_anytrading"):
        print(MissingExtra("The comparison with gym-anytrading", "rl,bench"), file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    with ProcessPoolExecutor(chosen.workers, get_context("spawn")) as pool:
        pairs = pool.map(both, range(chosen.seeds))  # beside the costs, whose contestants it slows all alike
        table = costs(chosen.rounds, chosen.updates)
        show_costs(table)
        peer = comparison(*zip(*pairs, strict=True))
    targets = verdicts(table, peer)
    show_comparison(peer, targets)
    found = {"machine": machine(), "costs": table, "gym-anytrading": peer, "targets": targets}
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(found, indent=1) + "\n")
    if chosen.readme:
        in_readme.show("training", readme(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
