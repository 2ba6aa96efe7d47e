"""Policies that Stable-Baselines3 learns on the days before a window, and the players that they become."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from fintrading_agents.policies import (
    Array,
    Policy,
    PolicyError,
    Recipe,
    cached,
    load,
    recipe_of,
    refuse_unfit,
    save,
)
from fintrading_agents.spans import training_days
from fintrading_gym.errors import MissingExtra, lookup
from fintrading_gym.rollout import Agent, Task, Traits

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm

SELECTED_UNTIL = "2021-12-31"  # the last day that helped to choose; no window that begins by then is played

# One table for every cell, as benchmarks/select_hyperparameters.py chose it on days before all of them; what it did
# not vary has its reason here. `learner` is passed on to Stable-Baselines3, whose defaults hold for the rest.
HYPERPARAMETERS: dict[str, dict[str, Any]] = {
    "ppo": {
        "selected_until": SELECTED_UNTIL,
        "steps": 100_000,  # a second or two; twice as many scored no better
        "envs": 256,  # as many episodes side by side as still speed up the network's passes
        "timesteps": 50,  # of an episode: as many decisions as it will be played for
        "net_arch": [64, 64],  # the field's habit for vectors of this size
        "activation": "tanh",
        "learner": {
            "n_steps": 32,  # x 256: 8192 decisions an update
            "batch_size": 4096,  # large, since a small network on one core pays by the batch
            "n_epochs": 4,
            "learning_rate": 1e-3,  # three times the default, for batches 64 times as large
            "gamma": 0.99,
            "ent_coef": 0.0,
        },
    },
    "a2c": {
        "selected_until": SELECTED_UNTIL,
        "steps": 100_000,
        "envs": 64,  # 312 updates: it takes one gradient step in each, and 78 of the usual size are too few
        "timesteps": 50,
        "net_arch": [64, 64],
        "activation": "tanh",
        "learner": {
            "n_steps": 5,
            "learning_rate": 3e-3,  # for batches 64 times as large as the default's
            "gamma": 0.0,  # a decision is judged by the next day alone: it can be taken back then
            "ent_coef": 0.0,
        },
    },
    "dqn": {
        "selected_until": SELECTED_UNTIL,
        "steps": 100_000,
        "envs": 256,
        "timesteps": 50,
        "net_arch": [64, 64],
        "activation": "relu",
        "learner": {
            "buffer_size": 100_000,  # all of the training
            "learning_starts": 5_000,
            "batch_size": 256,  # one gradient step for each 256 decisions, each decision being used once or so
            "train_freq": 1,
            "gradient_steps": 1,
            "target_update_interval": 5_000,  # decisions, that is 20 gradient steps
            "exploration_fraction": 0.1,
            "learning_rate": 1e-3,
            "gamma": 0.9,  # a decision can be taken back the next day, so little depends on what is far
        },
    },
}
TORCH_NAMES = {"tanh": "Tanh", "relu": "ReLU"}  # of policies.ACTIVATIONS, in torch.nn
LIBRARIES = ("stable-baselines3", "torch", "numpy")
REPORT_EVERY = 0.25  # seconds
# Steps done, steps a second, and the mean return of the last episodes (NaN: none has ended yet).
Report = Callable[[int, float, float], None]


def recipe_for(
    algorithm: str, task: Task, tickers: Iterable[str] = (), hyperparameters: Mapping[str, Any] | None = None
) -> Recipe:
    """What `train` makes of the same arguments, before it is made."""
    table = lookup("algorithm", algorithm, HYPERPARAMETERS)
    return recipe_of(algorithm, hyperparameters or table, training_days(task.window, tickers), task, task.seed)


def train(
    algorithm: str,
    task: Task,
    tickers: Iterable[str] = (),
    hyperparameters: Mapping[str, Any] | None = None,
    report: Report | None = None,
    tensorboard: Path | None = None,
) -> Policy:
    """Learn a policy on the days before the task's window. On one machine a recipe always gives the same weights.

    Args:
        algorithm: `ppo`, `a2c` or `dqn`.
        task: what is to be played; its seed is that of the training.
        tickers: bundled tables whose same days are learned from too.
        hyperparameters: in the place of those of HYPERPARAMETERS.
        report: called every REPORT_EVERY seconds.
        tensorboard: a folder for TensorBoard's log.

    Raises:
        DataError: there are too few days before the window.
        MissingExtra: Stable-Baselines3 is not installed.
        UnknownName: no such algorithm or ticker.
    """
    tickers = tuple(tickers)
    recipe = recipe_for(algorithm, task, tickers, hyperparameters)
    try:
        import stable_baselines3
        import torch
    except ImportError as fault:
        raise MissingExtra(f"Training {algorithm}", "rl") from fault
    if tensorboard and not find_spec("tensorboard"):
        raise MissingExtra("TensorBoard's log", "rl")
    from fintrading_agents.sb3 import bootstrapping, make_vec_env

    chosen, days = recipe["hyperparameters"], training_days(task.window, tickers)
    envs = make_vec_env(chosen["envs"], cell=days, start="random", timesteps=chosen["timesteps"], **recipe["game"])
    network = {
        "net_arch": chosen["net_arch"],
        "activation_fn": getattr(torch.nn, TORCH_NAMES[chosen["activation"]]),
    }
    with _one_thread():
        learner = getattr(stable_baselines3, algorithm.upper())(
            "MlpPolicy",
            envs,
            policy_kwargs=network,
            tensorboard_log=None if tensorboard is None else str(tensorboard),
            seed=task.seed,
            device="cpu",
            **chosen["learner"],
        )
        bootstrapping(learner)
        learner.learn(
            chosen["steps"], callback=_reporting(report) if report else None, tb_log_name=f"{algorithm}-seed{task.seed}"
        )
    return Policy(recipe, _layers(learner), {name: version(name) for name in LIBRARIES})


def trained(algorithm: str, task: Task) -> Policy:
    """The cache's policy for this task, trained and kept there if it was not there yet.

    Of several processes that lack the same one, the first trains it and the others wait.
    """
    recipe = recipe_for(algorithm, task)
    path = cached(recipe)
    if not path.exists():
        with _alone(path):
            if not path.exists():
                save(train(algorithm, task), path)
    policy = load(path)
    if policy.recipe != recipe:
        raise PolicyError(f"{path} holds another policy than its name says; delete it")
    return policy


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """For one process at a time; whoever dies in it makes room for the next."""
    try:
        from filelock import FileLock
    except ImportError as fault:
        raise MissingExtra("Training a policy", "rl") from fault
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        yield


def _player(algorithm: str, told: str) -> Callable[..., Agent]:
    def factory(task: Task, path: str | None = None) -> Agent:
        policy = None if path is None else load(Path(path))
        recipe = policy.recipe if policy else recipe_for(algorithm, task)
        if recipe["algorithm"] != algorithm:
            raise PolicyError(f"{path} is a policy of {recipe['algorithm']}: play {recipe['algorithm']}:{path}")
        refuse_unfit(recipe, task)  # before anything is trained for it
        return policy or trained(algorithm, task)

    def traits(path: str | None, options: Mapping[str, Any]) -> Traits:
        return Traits(uses_persona=False, uses_seed=path is None)  # a stored policy plays every seed alike

    factory.__name__ = factory.__qualname__ = algorithm
    factory.__doc__ = told
    factory.traits = traits  # type: ignore[attr-defined]
    return factory


ppo = _player("ppo", "Proximal policy optimisation, trained on the days before the window.")
a2c = _player("a2c", "Advantage actor-critic, trained on the days before the window.")
dqn = _player("dqn", "Deep Q-learning, trained on the days before the window.")


@contextmanager
def _one_thread() -> Iterator[None]:
    """Sums in one order, and for networks of this size the fastest way too."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _layers(learner: "BaseAlgorithm") -> tuple[tuple[Array, Array], ...]:
    """The linear layers from the observation to the decision."""
    from torch import nn

    policy: Any = learner.policy
    parts = [policy.q_net] if hasattr(policy, "q_net") else [policy.mlp_extractor.policy_net, policy.action_net]
    linear = [module for part in parts for module in part.modules() if isinstance(module, nn.Linear)]
    return tuple((layer.weight.detach().numpy().copy(), layer.bias.detach().numpy().copy()) for layer in linear)


def _reporting(report: Report) -> Any:
    """The callback of Stable-Baselines3 that calls `report`."""
    from stable_baselines3.common.callbacks import BaseCallback

    class Reporting(BaseCallback):
        def _on_training_start(self) -> None:
            self._begun = self._told = time.perf_counter()

        def _on_step(self) -> bool:
            if time.perf_counter() - self._told > REPORT_EVERY:
                self._tell()
            return True

        def _on_training_end(self) -> None:
            self._tell()

        def _tell(self) -> None:
            self._told = time.perf_counter()
            returns = [episode["r"] for episode in self.model.ep_info_buffer or ()]
            rate = self.num_timesteps / (self._told - self._begun)
            report(self.num_timesteps, rate, mean(returns) if returns else math.nan)

    return Reporting()
