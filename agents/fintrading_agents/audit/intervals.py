"""How sure a number is: 95 % intervals of a mean and of a share, ready for JSON."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

A = TypeVar("A")
B = TypeVar("B")

Z = 1.959964
# Student's t, 95 % two-sided, for 1 to 30 degrees of freedom.
T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def mean(values: Sequence[float], bounds: tuple[float, float] = (-np.inf, np.inf)) -> dict[str, Any]:
    """Mean of independent values, with Student's interval inside `bounds`; None for its ends below two values."""
    n = len(values)
    told: dict[str, Any] = {"mean": float(np.mean(values)) if n else None, "low": None, "high": None, "n": n}
    if n >= 2:
        df = n - 1
        quantile = T[df - 1] if df <= len(T) else Z + (Z**3 + Z) / (4 * df)
        half = quantile * float(np.std(values, ddof=1)) / n**0.5
        told |= {"low": max(told["mean"] - half, bounds[0]), "high": min(told["mean"] + half, bounds[1])}
    return told


def share(hits: int, n: int) -> dict[str, Any]:
    """Share of hits, with Wilson's interval."""
    if not n:
        return {"share": None, "low": None, "high": None, "n": 0}
    p, z2 = hits / n, Z * Z
    middle, half = p + z2 / (2 * n), Z * (p * (1 - p) / n + z2 / (4 * n * n)) ** 0.5
    return {"share": p, "low": (middle - half) / (1 + z2 / n), "high": (middle + half) / (1 + z2 / n), "n": n}


def against_chance(answers: Sequence[A], truths: Sequence[B], right: Callable[[A, B], bool]) -> dict[str, Any]:
    """Share of right answers, and `chance`: what the same answers would score if each met another question's truth.

    So a model that always says "AAPL" is at chance, however often that is right.
    """
    n = len(answers)
    told = share(sum(map(right, answers, truths)), n)
    others = [right(answers[i], truths[j]) for i in range(n) for j in range(n) if i != j]
    return told | {"chance": float(np.mean(others)) if others else None}


def is_above_chance(told: dict[str, Any]) -> bool:
    """Whether the whole interval lies above chance."""
    return told["chance"] is not None and told["low"] > told["chance"]
