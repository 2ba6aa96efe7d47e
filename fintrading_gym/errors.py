"""What can be wrong with an input, and the one function that says so for every table of names."""

import difflib
import reprlib
from collections.abc import Iterable, Mapping
from typing import TypeVar

V = TypeVar("V")


class DataError(ValueError):
    """A price table that cannot be played: the message names file, row and column."""


class UnknownName(ValueError):  # noqa: N818 - reads as a sentence where it is raised and caught
    """A name that is in no table: the message lists what is allowed and the nearest valid name."""


class MissingExtra(ImportError):  # noqa: N818
    """An optional dependency is not installed: the message is the exact line that installs it."""

    def __init__(self, need: str, extra: str):
        super().__init__(f"{need} needs an extra that is not installed. Run: pip install 'fintrading-gym[{extra}]'")
        self.args = (need, extra)  # what a copy in another process is made from; the message stays


class RunStopped(Exception):  # noqa: N818
    """Nothing more is to be played: a limit of the run is reached, or what it needs cannot be had.

    Unlike other exceptions of an agent it does not fail the episode, it ends the run; what is finished stays.
    """


def lookup(kind: str, name: object, table: Mapping[str, V]) -> V:
    """The entry `name` of `table`.

    Args:
        kind: what the table holds, for the message ("cell", "persona", ...).
        name: the key as the user wrote it.
        table: every allowed name.

    Raises:
        UnknownName: `No cell 'tsla_man'; there are [...]. Did you mean 'tsla_main'?`
    """
    if isinstance(name, str) and name in table:
        return table[name]
    raise UnknownName(f"No {kind} {brief(name)}; there are {list(table)}.{did_you_mean(name, table)}")


def did_you_mean(name: object, names: Iterable[str]) -> str:
    """The end of a message: the nearest of `names`, upper and lower case alike; empty if none is near."""
    written = {allowed.lower(): allowed for allowed in names}
    near = difflib.get_close_matches(str(name).lower(), written, n=1, cutoff=0.5)
    return f" Did you mean {written[near[0]]!r}?" if near else ""


def brief(value: object) -> str:
    """`value` as a message shows it: on one line, and short."""
    return " ".join(reprlib.repr(value).split())


def one_line(fault: BaseException) -> str:
    """An exception's kind and message on one line."""
    return f"{type(fault).__name__}: {' '.join(str(fault).split())}"
