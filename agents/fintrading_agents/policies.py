"""Trained policies as files, numbers and JSON alone, and the days that each of them may be played on."""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, is_zipfile
from zlib import error as ZlibError  # noqa: N812 - an exception, whatever its name says

import numpy as np
from numpy.typing import NDArray

from fintrading_gym import __version__
from fintrading_gym.errors import MissingExtra, lookup
from fintrading_gym.observations import columns
from fintrading_gym.replies import ACTIONS
from fintrading_gym.rollout import Task
from fintrading_gym.windows import Window, iso_date

Array = NDArray[np.float32]
Facts = dict[str, Any]  # JSON

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"tanh": np.tanh, "relu": lambda x: np.maximum(x, 0)}
GAME = ("hold", "cost_bps", "fill", "lookback")  # what a policy was trained to play, beside the days
MAX_BYTES = 1 << 26  # of a file, unpacked; a policy of the usual size has 30 kB


class PolicyError(ValueError):
    """A file that is no stored policy, or a policy that may not play a task."""


@dataclass(frozen=True, eq=False)
class Policy:
    """A feed-forward network from the vector view to the three actions; its highest output is the decision.

    `facts` are `algorithm`, `hyperparameters`, `days` (a list of ticker, first, last and the table's
    sha256), `game` (see GAME), `seed`, `version`, and `trained_with` (library: version).
    """

    facts: Facts
    layers: tuple[tuple[Array, Array], ...]  # (out, in) weights and (out,) biases, float32, first layer first

    def outputs(self, vectors: Array) -> Array:
        """Logits or values of sell, hold, buy: (..., columns) float32 to (..., 3) float32."""
        activate = ACTIVATIONS[self.facts["hyperparameters"]["activation"]]
        *hidden, (weights, bias) = self.layers
        for inner, shift in hidden:
            vectors = activate(vectors @ inner.T + shift)
        return vectors @ weights.T + bias

    def __call__(self, observation: Any) -> int:
        """The decision of a day: a policy is an agent."""
        return int(np.argmax(self.outputs(observation["vector"])))

    @property
    def last_day(self) -> str:
        """The latest day it was trained on."""
        return max(span["last"] for span in self.facts["days"])

    def about(self) -> Facts:
        """What a leaderboard's row says of it."""
        days = self.facts["days"]
        return {
            "key": key(self.facts),
            "seed": self.facts["seed"],
            "last_day": self.last_day,
            "days": " ".join(f"{span['ticker']}:{span['first']}:{span['last']}" for span in days),
            "data_sha256": " ".join(span["sha256"] for span in days),
        }


def facts_of(
    algorithm: str, hyperparameters: Mapping[str, Any], days: Iterable[Window], task: Task, seed: int = 0
) -> Facts:
    """What decides the weights of a policy that is trained on these days for the game of this task."""
    return {
        "algorithm": algorithm,
        "hyperparameters": dict(hyperparameters),
        "days": [span_of(window) for window in days],
        "game": {setting: getattr(task, setting) for setting in GAME},
        "seed": seed,
        "version": __version__,
    }


def span_of(window: Window) -> dict[str, str]:
    """The days of a window as a policy's facts tell of them."""
    prices = window.load()
    start, days = window.span()
    return {
        "ticker": window.ticker,
        "first": prices.date[start],
        "last": prices.date[start + days - 1],
        "sha256": prices.sha256,
    }


def key(facts: Facts) -> str:
    """A name for all that decides the weights: the facts without the libraries' versions."""
    decisive = {name: fact for name, fact in facts.items() if name != "trained_with"}
    return sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:16]


def refuse_unfit(policy: Policy, task: Task) -> None:
    """Raise PolicyError where the policy would play days it was trained on, days before them, or another game.

    Every market shares its days with the others: who was trained on one ticker's crash has seen them all.
    """
    algorithm, first = policy.facts["algorithm"], span_of(task.window)["first"]
    if first <= policy.last_day:
        raise PolicyError(
            f"This {algorithm} policy was trained on days up to {policy.last_day}; window {task.window} begins on"
            f" {first}. Play a later window, or train for this one: fintrading train {algorithm} --cell {task.window}"
        )
    for setting in GAME:
        trained, wanted = policy.facts["game"][setting], getattr(task, setting)
        if trained != wanted:
            raise PolicyError(
                f"This {algorithm} policy was trained with {setting}={trained!r}, the task has {setting}={wanted!r}."
                " Play the game that it knows, or train for this one"
            )


# ------------------------------------------------------------------------------------------- the files


def save(policy: Policy, path: Path) -> None:
    """Write a policy, in one piece: who reads the path meanwhile sees the file before or the file after."""
    arrays = {"facts": np.array(json.dumps(policy.facts, sort_keys=True))}
    for k, (weights, bias) in enumerate(policy.layers):
        arrays |= {f"weights_{k}": weights, f"bias_{k}": bias}
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with partial.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
    partial.replace(path)


def load(path: Path) -> Policy:
    """Read a policy. Nothing in the file is executed: it is an archive of arrays and of one JSON text.

    Raises:
        PolicyError: there is no such file, or it is anything else.
    """
    if not path.is_file():
        raise PolicyError(f"There is no file {path}; fintrading train writes one")
    try:
        if not is_zipfile(path):
            raise ValueError("it is no .npz archive")
        with np.load(path, allow_pickle=False) as archive:
            if sum(member.file_size for member in archive.zip.infolist()) > MAX_BYTES:
                raise ValueError(f"it unpacks to more than {MAX_BYTES} bytes")
            arrays = {name: archive[name] for name in archive.files}
        return _policy(arrays)
    # What numpy, zipfile and json raise for a file that they did not write.
    except (OSError, ValueError, LookupError, TypeError, RuntimeError, EOFError, BadZipFile, ZlibError) as fault:
        why = " ".join(f"{type(fault).__name__}: {fault}".split())
        raise PolicyError(f"{path} is no stored policy ({why})") from fault


def _policy(arrays: dict[str, Any]) -> Policy:
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise ValueError("it holds more than arrays")
    facts = _facts(arrays.pop("facts"))
    width, layers = len(columns(facts["game"]["lookback"])), []
    for k in range(len(arrays) // 2):
        weights, bias = arrays.pop(f"weights_{k}"), arrays.pop(f"bias_{k}")
        if weights.shape != (len(bias), width) or bias.ndim != 1:
            raise ValueError(f"layer {k} has weights {weights.shape} and a bias {bias.shape} for {width} inputs")
        if not all(array.dtype == np.float32 and np.isfinite(array).all() for array in (weights, bias)):
            raise ValueError(f"layer {k} is not finite float32 numbers")
        width = len(bias)
        layers.append((weights, bias))
    if arrays or width != len(ACTIONS):
        raise ValueError(f"its {len(layers)} layers end in {width} outputs, and {list(arrays)} are left over")
    return Policy(facts, tuple(layers))


def _facts(array: NDArray[Any]) -> Facts:
    facts: Facts = json.loads(array.item())
    lookup("activation", facts["hyperparameters"]["activation"], ACTIVATIONS)
    of_a_kind = [
        isinstance(facts["algorithm"], str),
        type(facts["seed"]) is int,
        bool(facts["days"]),
        *(iso_date(span["last"]) and all(isinstance(fact, str) for fact in span.values()) for span in facts["days"]),
        *({"ticker", "first", "last", "sha256"} <= set(span) for span in facts["days"]),
        set(facts["game"]) == set(GAME),
        type(facts["game"]["lookback"]) is int and 1 <= facts["game"]["lookback"] < 10_000,
    ]
    if not all(of_a_kind):
        raise ValueError("its facts do not tell algorithm, seed, days and game")
    return facts


# ------------------------------------------------------------------------------------------- the cache


def cached(facts: Mapping[str, Any]) -> Path:
    """The file of the cache that a policy of these facts is kept in.

    The folder is FINTRADING_CACHE where that is set, else the user's cache folder of the platform.
    """
    folder = os.environ.get("FINTRADING_CACHE")
    if not folder:
        try:
            from platformdirs import user_cache_dir
        except ImportError as fault:
            raise MissingExtra("The cache of trained policies", "rl") from fault
        folder = user_cache_dir("fintrading-gym", appauthor=False)
    day = facts["days"][0]
    name = f"{facts['algorithm']}-{day['ticker']}-{day['last']}-seed{facts['seed']}-{key(dict(facts))}.npz"
    return Path(folder) / "policies" / name
