"""What makes an episode what it is: of two with the same recipe a board keeps one."""

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from fintrading_gym import __version__
from fintrading_gym.rollout import Player, Task

MADE_BY = ("code", "file", "files", "version")  # of a recipe: two agents of one name that differ here are two agents


def recipe_of(player: Player, task: Task) -> dict[str, Any]:
    """All that makes an episode what it is.

    The agent by name, by the options that change its play, and by the sha256 of the file that defines it and of the
    files that its argument and its options name, if they do; the task without what the agent ignores; the prices; the
    version.
    """
    told = {f.name: getattr(task, f.name) for f in fields(task)}
    told |= {"cell": task.cell if isinstance(task.cell, str) else str(task.window)}
    told |= {} if player.traits.uses_persona else {"persona": None}
    told |= {} if player.traits.uses_seed else {"seed": None}
    return {
        "agent": player.name,
        "options": dict(sorted(player.settings.items())),
        "code": _sha256(_source(player.factory)),
        "file": _sha256(player.argument),
        "files": {name: sha256 for name, value in sorted(player.settings.items()) if (sha256 := _sha256(value))},
        "task": told,
        "data_sha256": task.window.load().sha256,
        "version": __version__,
    }


def task_of(recipe: Mapping[str, Any]) -> Task:
    """The task of a recipe; what its agent ignores is as usual."""
    return Task(**{name: value for name, value in recipe["task"].items() if not _ignored(name, value)})


def key_of(recipe: Mapping[str, Any]) -> str:
    """The recipe's sha256."""
    return hashlib.sha256(dumps(recipe, sort_keys=True).encode()).hexdigest()


def dumps(data: Any, sort_keys: bool = False) -> str:
    """JSON in ASCII, whatever the data: what JSON cannot say (a date, a number that is not finite) is there as text.

    An agent may keep anything of its days, and an episode that was played, and paid for, must not be lost by it.
    """
    try:
        return json.dumps(data, sort_keys=sort_keys, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError):
        return json.dumps(_plain(data), sort_keys=sort_keys, separators=(",", ":"), allow_nan=False)


def _plain(data: Any) -> Any:
    if data is None or isinstance(data, str | bool | int):
        return data
    if isinstance(data, Mapping):
        return {name if isinstance(name, str) else str(name): _plain(value) for name, value in data.items()}
    if isinstance(data, list | tuple | set | frozenset):
        return [_plain(value) for value in data]
    if callable(plain := getattr(data, "tolist", None)):  # numpy's numbers and arrays
        return _plain(plain())
    if isinstance(data, float) and data - data == 0:  # neither infinite nor NaN
        return data
    return str(data)


def _ignored(name: str, value: Any) -> bool:
    return value is None and name in ("persona", "seed")


def _source(factory: Callable[..., Any]) -> str | None:
    """The file that defines a factory, be it a function, a class, an object of one, or any of them with arguments."""
    factory = inspect.unwrap(factory)
    while isinstance(factory, partial):
        factory = inspect.unwrap(factory.func)
    defined = inspect.isroutine(factory) or inspect.isclass(factory)
    try:
        return inspect.getsourcefile(factory if defined else type(factory))
    except TypeError:  # it is not written in Python
        return None


def _sha256(path: object) -> str | None:
    """Of a file's content; None if there is no such file."""
    file = Path(path) if isinstance(path, str) else None
    return hashlib.sha256(file.read_bytes()).hexdigest() if file and file.is_file() else None
