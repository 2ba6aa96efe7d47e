"""Rule players: what a model has to beat, and the hindsight optimum that nobody can."""

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from fintrading_gym.metrics import BUY, HOLD, SELL, hindsight
from fintrading_gym.observations import PRICE_SCALE, columns
from fintrading_gym.rollout import Agent, Task, Traits


def _player(
    uses_seed: bool = False, ranked: bool = True
) -> Callable[[Callable[[Task], Agent]], Callable[[Task], Agent]]:
    """Mark a rule's factory: rules ignore the persona, and all but `random` the seed."""

    def mark(factory: Callable[[Task], Agent]) -> Callable[[Task], Agent]:
        factory.traits = Traits(uses_persona=False, uses_seed=uses_seed, ranked=ranked)  # type: ignore[attr-defined]
        return factory

    return mark


@_player()
def buy_and_hold(task: Task) -> Agent:
    """Long every day."""
    return lambda observation: BUY


@_player()
def short_and_hold(task: Task) -> Agent:
    """Short every day."""
    return lambda observation: SELL


@_player()
def flat(task: Task) -> Agent:
    """Never trades."""
    return lambda observation: HOLD


@_player(uses_seed=True)
def random(task: Task) -> Agent:
    """Sell, hold or buy with equal chances."""
    generator = np.random.default_rng([task.seed, zlib.crc32(str(task.window).encode())])
    return lambda observation: int(generator.integers(3))


@_player()
def momentum(task: Task) -> Agent:
    """With the sign of the last 3 days' return."""
    column = list(columns(task.lookback)).index("momentum_3")
    return lambda observation: _with_sign(observation["vector"][column])


@_player()
def mean_reversion(task: Task) -> Agent:
    """Against the sign of the last 5 days' return."""
    column = list(columns(task.lookback)).index("return_5")
    return lambda observation: _with_sign(-observation["vector"][column])


@_player()
def sma_cross(task: Task) -> Agent:
    """Long while the mean of the last 3 closes stands above that of all closes shown, short while below."""
    names = list(columns(task.lookback))
    closes = [names.index(f"close_{k}") for k in range(task.lookback)]

    def decide(observation: Any) -> int:
        close = np.exp(observation["vector"][closes].astype(np.float64) / PRICE_SCALE)
        return _with_sign(close[:3].mean() - close.mean())

    return decide


@_player(ranked=False)
def oracle(task: Task) -> Agent:
    """The best sequence in hindsight under the task's own costs, fills and hold rule."""
    market, overnight = task.market()
    plan, _ = hindsight(market, overnight=overnight, hold=task.hold, cost_bps=task.cost_bps)
    coming = iter(plan.tolist())
    return lambda observation: next(coming)


def _with_sign(number: float) -> int:
    return HOLD + int(np.sign(number))
