"""Trained policies as files, numbers and JSON alone, and the days that each of them may be played on."""

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from math import isfinite, prod
from pathlib import Path
from tokenize import TokenError  # numpy reads the header of an array with it
from typing import IO, Any
from zipfile import BadZipFile, ZipFile, is_zipfile
from zlib import error as ZlibError  # noqa: N812 - an exception, whatever its name says

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fintrading_agents.folders import cache_folder
from fintrading_gym import __version__
from fintrading_gym.env import FILLS, HOLD_RULES
from fintrading_gym.errors import brief, lookup, one_line
from fintrading_gym.observations import columns
from fintrading_gym.replies import ACTIONS
from fintrading_gym.rollout import Task
from fintrading_gym.windows import Window, iso_date

Array = NDArray[np.float32]
Recipe = dict[str, Any]  # JSON: all that decides a policy's weights on one machine

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"tanh": np.tanh, "relu": lambda x: np.maximum(x, 0)}
GAME = ("hold", "cost_bps", "fill", "lookback")  # what a policy was trained to play, beside the days
# What numpy, zipfile and json raise for a file that they did not write.
FOREIGN = (
    *(OSError, ValueError, LookupError, TypeError, RuntimeError, EOFError, MemoryError),
    *(BadZipFile, ZlibError, SyntaxError, TokenError),
)
MAX_BYTES = 1 << 26  # of a file, packed and unpacked; a policy of the usual size has 30 kB
LONGEST = 300  # characters of why a file is refused: some faults quote what they found
# How a recipe may write what gets into file names, tables and messages.
WRITTEN = {
    "algorithm": r"[a-z0-9_]{1,20}",
    "version": r"[A-Za-z0-9.+!-]{1,40}",
    "ticker": r"[\x21-\x7e]{1,20}",  # as of a Window
    "sha256": r"[0-9a-f]{64}",
}


class PolicyError(ValueError):
    """A file that is no stored policy, or a policy that may not play a task."""


@dataclass(frozen=True, eq=False)
class Policy:
    """An agent: a feed-forward network from the vector view to the three actions, whose highest output is taken."""

    recipe: Recipe  # of `recipe_of`
    layers: tuple[tuple[Array, Array], ...]  # (out, in) weights and (out,) biases, float32, first layer first
    libraries: dict[str, str] = field(default_factory=dict)  # name: version of those that trained it

    def __call__(self, observation: Any) -> int:
        """The decision of a day."""
        return int(np.argmax(self.outputs(observation["vector"])))

    def outputs(self, vectors: Array) -> Array:
        """Logits or values of sell, hold, buy: (..., columns) float32 to (..., 3) float32."""
        *hidden, (weights, bias) = self.layers
        for inner, shift in hidden:
            vectors = ACTIVATIONS[self.recipe["hyperparameters"]["activation"]](vectors @ inner.T + shift)
        return vectors @ weights.T + bias

    @property
    def last_day(self) -> str:
        """The latest day it was trained on."""
        return last_day(self.recipe)

    @property
    def facts(self) -> dict[str, Any]:
        """What a leaderboard's row says of it."""
        days = self.recipe["days"]
        return {
            "policy": key(self.recipe),
            "policy_seed": self.recipe["seed"],
            "trained_until": self.last_day,
            "selected_until": selected_until(self.recipe),
            "trained_on": " ".join(f"{span['ticker']}:{span['first']}:{span['last']}" for span in days),
            "trained_on_sha256": " ".join(span["sha256"] for span in days),
        }


def recipe_of(
    algorithm: str, hyperparameters: Mapping[str, Any], days: Iterable[Window], task: Task, seed: int = 0
) -> Recipe:
    """What decides the weights of a policy: algorithm, hyperparameters, days with their tables, game, seed, version.

    Raises:
        TypeError: a hyperparameter is nothing that JSON can hold.
    """
    recipe = {
        "algorithm": algorithm,
        "hyperparameters": dict(hyperparameters),
        "days": [_span(window) for window in days],
        "game": {setting: getattr(task, setting) for setting in GAME},
        "seed": seed,
        "version": __version__,
    }
    # As it comes back from a file: a list for a tuple, a plain number for one of numpy's.
    plain: Recipe = json.loads(json.dumps(recipe, default=_plain))
    return plain


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{brief(value)} cannot be a hyperparameter of a stored policy, which are numbers, words and lists")


def _span(window: Window) -> dict[str, str]:
    """The days of a window that are in its table, and that table's sha256."""
    prices = window.load()
    start, days = window.span()
    ends = {"first": prices.date[start], "last": prices.date[start + days - 1]}
    return {"ticker": window.ticker, **ends, "sha256": prices.sha256}


def key(recipe: Recipe) -> str:
    """A short name of a recipe: two that differ in anything have different ones."""
    return sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:16]


def last_day(recipe: Recipe) -> str:
    """The latest day that a policy of this recipe is trained on."""
    return max(str(span["last"]) for span in recipe["days"])


def selected_until(recipe: Recipe) -> str | None:
    """The last day that helped to choose its hyperparameters; None: the recipe does not tell."""
    day: str | None = recipe["hyperparameters"].get("selected_until")
    return day


def refuse_unfit(recipe: Recipe, task: Task) -> None:
    """Raise PolicyError where a policy of this recipe is not to play the task.

    It may play no day that it was trained on, or that helped to choose its hyperparameters, or that comes before
    one of these; and no game but its own. Every market shares its days with the others: who was trained on one
    ticker's crash has seen them all. A refusal, and no mark on a score that can be quoted without it.
    """
    algorithm, first = recipe["algorithm"], _span(task.window)["first"]
    selected, trained_until = selected_until(recipe), last_day(recipe)
    if selected is not None and first <= selected:
        raise PolicyError(
            f"The hyperparameters of this {algorithm} policy were chosen on days up to {selected}; window"
            f" {task.window} begins on {first}. Play a later window, or train with hyperparameters of your own"
        )
    if first <= trained_until:
        raise PolicyError(
            f"This {algorithm} policy was trained on days up to {trained_until}; window {task.window} begins on"
            f" {first}. Play a later window, or train for this one: fintrading train {algorithm} --cell {task.window}"
        )
    for setting in GAME:
        trained, wanted = recipe["game"][setting], getattr(task, setting)
        if trained != wanted:
            raise PolicyError(
                f"This {algorithm} policy was trained with {setting}={trained!r}, the task has {setting}={wanted!r}."
                " Play the game that it knows, or train for this one"
            )


# ------------------------------------------------------------------------------------------- the files


def save(policy: Policy, path: Path) -> None:
    """Write a policy, in one piece: who reads the path meanwhile sees the file before or the file after."""
    told = {"recipe": policy.recipe, "libraries": policy.libraries}
    arrays: dict[str, Any] = {
        name: np.frombuffer(json.dumps(what, sort_keys=True).encode(), np.uint8) for name, what in told.items()
    }
    for k, (weights, bias) in enumerate(policy.layers):
        arrays |= {f"weights_{k}": weights, f"bias_{k}": bias}
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with partial.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
    partial.replace(path)


def load(path: Path) -> Policy:
    """Read a policy. Nothing in the file is executed: it is an archive of arrays, two of which are JSON.

    Raises:
        PolicyError: there is no such file, or it is anything else.
    """
    if not path.is_file():
        raise PolicyError(f"There is no file {path}; fintrading train writes one")
    try:
        if not is_zipfile(path):
            raise ValueError("it is no .npz archive")
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES} bytes")
        with ZipFile(path) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > MAX_BYTES:
                raise ValueError(f"it unpacks to more than {MAX_BYTES} bytes")
            arrays = {}
            for member in members:
                with archive.open(member) as file:
                    arrays[member.filename.removesuffix(".npy")] = _array(file, member.file_size)
        return _policy(arrays)
    except FOREIGN as fault:
        why = one_line(fault)[:LONGEST]
        raise PolicyError(f"{path} is no stored policy ({why})") from fault


def _array(file: IO[bytes], size: int) -> NDArray[Any]:
    """The array of a member of an archive, whose size is held against its header before anything is made of it."""
    if npy.read_magic(file) != (1, 0):
        raise ValueError("an array of it is of another format than numpy.savez writes")
    shape, column_major, dtype = npy.read_array_header_1_0(file)
    if dtype.hasobject:
        raise ValueError("an array of it holds objects")
    wanted, there = prod(shape) * dtype.itemsize, size - file.tell()
    if wanted != there:
        raise ValueError(f"an array of shape {brief(shape)} needs {wanted} bytes, and {there} are there")
    return np.frombuffer(file.read(), dtype).reshape(shape, order="F" if column_major else "C")


def _policy(arrays: dict[str, Any]) -> Policy:
    """The policy that the arrays of a file say; an error of `load` if they say none."""
    recipe, libraries = (json.loads(arrays.pop(name).tobytes()) for name in ("recipe", "libraries"))
    _check(recipe, libraries)
    width, layers = len(columns(recipe["game"]["lookback"])), []
    for k in range(len(arrays) // 2):
        weights, bias = arrays.pop(f"weights_{k}"), arrays.pop(f"bias_{k}")
        if bias.ndim != 1 or weights.shape != (len(bias), width):
            raise ValueError(f"layer {k} has weights {weights.shape} and a bias {bias.shape} for {width} inputs")
        if not all(array.dtype == np.float32 and np.isfinite(array).all() for array in (weights, bias)):
            raise ValueError(f"layer {k} is not finite float32 numbers")
        width = len(bias)
        layers.append((weights, bias))
    if arrays or width != len(ACTIONS):
        raise ValueError(f"its {len(layers)} layers end in {width} outputs, and {brief(list(arrays))} are left over")
    if len(layers) > 1:
        lookup("activation", recipe["hyperparameters"]["activation"], ACTIVATIONS)
    return Policy(recipe, tuple(layers), libraries)


def _check(recipe: Recipe, libraries: dict[str, str]) -> None:
    """Raise ValueError where they hold what `recipe_of` does not write."""
    if not all(isinstance(part, dict) for part in (libraries, recipe["hyperparameters"])):
        raise ValueError("its hyperparameters or libraries have no names")
    days, game, selected = recipe["days"], recipe["game"], selected_until(recipe)
    fine = [
        *(_written(recipe, name) for name in ("algorithm", "version")),
        type(recipe["seed"]) is int and 0 <= recipe["seed"] < 1 << 64,
        len(days) > 0,
        *(_written(span, name) for span in days for name in ("ticker", "sha256")),
        *(iso_date(span[name]) == span[name] for span in days for name in ("first", "last")),
        selected is None or iso_date(selected) == selected,
        set(game) == set(GAME),
        game["hold"] in HOLD_RULES and game["fill"] in FILLS,
        type(game["cost_bps"]) is float and isfinite(game["cost_bps"]),
        type(game["lookback"]) is int and 1 <= game["lookback"] < 10_000,
        all(isinstance(word, str) for word in libraries.values()),
    ]
    if not all(fine):
        raise ValueError("its recipe does not tell algorithm, version, seed, days and game")


def _written(told: dict[str, Any], name: str) -> bool:
    return isinstance(told[name], str) and bool(re.fullmatch(WRITTEN[name], told[name]))


# ------------------------------------------------------------------------------------------- the cache


def title(recipe: Recipe) -> str:
    """What a policy is, at a glance: `ppo-TSLA-until-2022-10-05-seed0`."""
    own = recipe["days"][0]
    told = f"{recipe['algorithm']}-{own['ticker']}-until-{own['last']}-seed{recipe['seed']}"
    return re.sub(r"[^A-Za-z0-9.-]", "_", told)  # BRK/B is a ticker, and no folder


def cached(recipe: Recipe) -> Path:
    """Where boards keep the policy of a recipe."""
    return cache_folder() / "policies" / f"{title(recipe)}-{key(recipe)}.npz"
