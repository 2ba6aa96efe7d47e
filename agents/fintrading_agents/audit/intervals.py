"""How sure a number is: 95 % intervals of a mean and of a share, ready for JSON."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

A = TypeVar("A")
B = TypeVar("B")

SHUFFLES = 1999
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

    So a model that always says "AAPL" is at chance, however often that is right. `p` is the share of `SHUFFLES`
    random matches of answers with truths in which as many are right.
    """
    n = len(answers)
    fits = np.array([[right(answer, truth) for truth in truths] for answer in answers], bool).reshape(n, n)
    hits = int(np.trace(fits))
    others = fits[~np.eye(n, dtype=bool)]
    matches = np.random.default_rng(0).random((SHUFFLES, n)).argsort(axis=1)
    as_many = int((fits[np.arange(n), matches].sum(axis=1) >= hits).sum())
    known = (
        {"chance": float(others.mean()), "p": (1 + as_many) / (1 + SHUFFLES)} if n > 1 else {"chance": None, "p": None}
    )
    return share(hits, n) | known


def is_above_chance(told: dict[str, Any]) -> bool:
    """Whether so many right answers would be luck in fewer than one of forty audits."""
    return told["p"] is not None and told["p"] < 0.025
