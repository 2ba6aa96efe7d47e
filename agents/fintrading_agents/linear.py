"""The linear baseline: what a ridge regression makes of the vector view, so that a network has something to beat."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fintrading_agents.policies import Policy, recipe_of, refuse_unfit
from fintrading_agents.spans import training_days
from fintrading_gym.env import market_returns
from fintrading_gym.metrics import BUY, SELL
from fintrading_gym.observations import OWN, columns, market_rows
from fintrading_gym.replies import ACTIONS
from fintrading_gym.rollout import Agent, Task, Traits
from fintrading_gym.windows import Floats, Window

# As those of rl.py, and chosen with them. So small a penalty only breaks ties between columns that say the same.
HYPERPARAMETERS = {"penalty": 1e-5, "selected_until": "2021-12-31"}


def linear(task: Task) -> Agent:
    """Ridge regression of the next day's return on the days shown, fitted on the days before the window."""
    policy = fit(task)
    refuse_unfit(policy.recipe, task)
    return policy


linear.traits = Traits(uses_persona=False, uses_seed=False)  # type: ignore[attr-defined]


def fit(task: Task, hyperparameters: Mapping[str, Any] = HYPERPARAMETERS) -> Policy:
    """Regress what a new position earns on the market's columns of the vector view; buy where that is positive.

    Minimises mean((y - a - Z b)^2) + penalty |b|^2 over the training days, Z being the columns brought to
    mean 0 and standard deviation 1 (constant ones left out). The persona, the costs and what the player
    did have no part in it.

    Args:
        task: what is to be played; trained on are its ticker's days before its window.
        hyperparameters: `penalty`, of the squared coefficients.

    Raises:
        DataError: there are too few days before the window.
    """
    days = training_days(task.window)
    pairs = [_pairs(window, task) for window in days]
    x, y = (np.concatenate(part) for part in zip(*pairs, strict=True))
    mean, deviation = x.mean(axis=0), x.std(axis=0)
    scale = np.where(deviation > 1e-9, deviation, np.inf)  # a constant column gets the coefficient 0
    z = (x - mean) / scale
    gram = z.T @ z / len(y) + hyperparameters["penalty"] * np.eye(z.shape[1])
    slope = np.linalg.solve(gram, z.T @ (y - y.mean()) / len(y)) / scale

    weights = np.zeros((len(ACTIONS), len(columns(task.lookback))), np.float32)
    bias = np.zeros(len(ACTIONS), np.float32)
    for action, sign in ((BUY, 1), (SELL, -1)):  # hold stays at 0, between the two
        weights[action, : slope.size] = sign * slope
        bias[action] = sign * (y.mean() - mean @ slope)
    return Policy(recipe_of("linear", hyperparameters, days, task), ((weights, bias),))


def _pairs(window: Window, task: Task) -> tuple[Floats, Floats]:
    """What is seen on each day but the last, (n, market columns), and what a position taken then earns, (n,)."""
    first, days = window.span()
    prices, inside = window.load(), slice(first, first + days)
    whole, overnight = market_returns(prices.open[inside], prices.close[inside], task.fill)
    return market_rows(window, task.lookback)[:-1, :-OWN].astype(np.float64), whole - overnight
