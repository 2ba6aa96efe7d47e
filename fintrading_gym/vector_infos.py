"""What a batched step tells beside its observations and rewards, computed when it is read."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fintrading_gym.ledger import Ledger
from fintrading_gym.metrics import HOLD, fintrading_score
from fintrading_gym.vector_tables import CHANGE, CHANGES, CODES, NO_DECISION, STATE, Episodes, Flags, Ints
from fintrading_gym.windows import Floats


@dataclass(eq=False)
class Ended:
    """The n episodes that a step of N environments ended."""

    at: Episodes  # all N of them
    which: Ints  # (n,) environments
    lengths: Ints  # (n,) decisions in an episode
    codes: NDArray[np.uint8]  # (T, n) the last T decisions, T >= lengths, oldest first

    def ledger(self, n: int) -> Ledger:
        """The ledger of the n-th of them."""
        length, last = int(self.lengths[n]), int(self.at.row[self.which[n]])
        played = slice(last - length, last)
        codes, position, earned = (column[-length:, n] for column in (self.codes, *self.replay))
        return Ledger(
            date=tuple(self.at.market.date[played]),
            price=tuple(self.at.market.price[played].tolist()),
            action=tuple(np.where(codes == NO_DECISION, HOLD, codes).tolist()),
            valid=tuple((codes != NO_DECISION).tolist()),
            position=tuple(position.tolist()),
            log_return=tuple(earned.tolist()),
            market=tuple(self.at.market.log_return[played].tolist()),
            overnight=tuple(self.at.market.overnight[played].tolist()),
        )

    def score(self, n: int) -> float:
        """The score of the n-th of them."""
        length = int(self.lengths[n])
        # a copy, since numpy may add up a column in another order than a tuple
        return fintrading_score(self.replay[1][-length:, n].copy(), self.codes[-length:, n] != NO_DECISION)

    @cached_property
    def replay(self) -> tuple[Ints, Floats]:
        """Positions and earned log returns (T, n), in the rows of `codes`."""
        most, count = self.codes.shape
        position, earned = np.zeros((most, count), np.intp), np.zeros((most, count))
        state, row = np.zeros(count, np.intp), self.at.row[self.which] - most
        for t in range(most):
            plays = t >= most - self.lengths
            moves = self.at.player.moves[len(CODES) * state + self.codes[t]]
            state = np.where(plays, moves >> STATE, 0)
            position[t] = self.at.player.position[state]
            earned[t, plays] = self.at.market.earned[(CHANGES * (row + t) + (moves & CHANGE))[plays]]
        return position, earned

    def spread(self, what: Callable[[int], Any], values: NDArray[Any]) -> NDArray[Any]:
        """`values` (N,) with `what` of the n-th episode in the place of its environment."""
        for n, where in enumerate(self.which):
            values[where] = what(n)
        return values

    def mask(self) -> Flags:
        """Where an episode ended, (N,), a new array."""
        mask = np.zeros(len(self.at.row), np.bool_)
        mask[self.which] = True
        return mask


class Restarted(NamedTuple):
    """What a step tells of the episodes that it ended and reset."""

    ended: Ended
    observations: NDArray[np.float32]  # (n, columns) their last
    infos: "Infos"  # their last


def _spread(at: Episodes, values: NDArray[Any], blank: Any = 0) -> NDArray[Any]:
    """`values` (N,) where infos tell of them, and `blank` elsewhere."""
    return values if at.where is None else np.where(at.where, values, np.array(blank, values.dtype))


def _told(at: Episodes) -> Flags:
    """Where infos tell of something, (N,), a new array."""
    return np.ones(len(at.row), np.bool_) if at.where is None else at.where.copy()


# What infos hold: a name, and how its value is made from ...
Makers = Mapping[str, Callable[[Any], Any]]
ALWAYS: Makers = {  # ... Episodes
    "date": lambda at: _spread(at, at.market.date.take(at.row), None),
    "position": lambda at: _spread(at, at.player.position.take(at.state)),
    "price": lambda at: _spread(at, at.market.price.take(at.row)),
    "log_return": lambda at: _spread(at, at.earned()),
    "cumulative_log_return": lambda at: _spread(at, at.cumulative.copy()),
    "valid": lambda at: _told(at) if at.undecided is None else _told(at) & ~at.undecided,
}
ALWAYS = {**ALWAYS, **{f"_{name}": _told for name in ALWAYS}}
UNDECIDED: Makers = {  # ... (N,) where there was no decision
    "reason": lambda undecided: np.where(undecided, *np.array(["none", None], object)),
    "_reason": np.copy,
}
AT_THE_END: Makers = {  # ... an Ended
    "ledger": lambda ended: ended.spread(ended.ledger, np.full(len(ended.at.row), None)),
    "score": lambda ended: ended.spread(ended.score, np.zeros(len(ended.at.row))),
    "_ledger": Ended.mask,
    "_score": Ended.mask,
}
RESTARTED: Makers = {  # ... a Restarted
    "final_obs": lambda of: of.ended.spread(of.observations.__getitem__, np.full(len(of.ended.at.row), None)),
    "final_info": lambda of: of.infos,
    "_final_obs": lambda of: of.ended.mask(),
    "_final_info": lambda of: of.ended.mask(),
}
_UNREAD: Any = object()
_UNREAD_ALWAYS = dict.fromkeys(ALWAYS, _UNREAD)


class Lazy(dict[str, Any]):
    """A dict whose values are computed when they are first read."""

    __slots__ = ("_parts",)

    def __init__(self, *parts: tuple[Makers, object]):
        self._parts = parts
        for makers, _ in parts:
            self.update(dict.fromkeys(makers, _UNREAD))

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        if value is _UNREAD:
            ((make, source),) = ((makers[key], source) for makers, source in self._parts if key in makers)
            value = self[key] = make(source)
        return value

    def get(self, key: str, default: Any = None) -> Any:
        """As of a dict, whose own `get` would show what is not yet computed."""
        return self[key] if key in self else default  # noqa: SIM401

    def pop(self, key: str, *default: Any) -> Any:
        """As of a dict."""
        self.get(key)
        return super().pop(key, *default)

    def copy(self) -> "Lazy":
        """As of a dict; what is not yet computed is not computed for it."""
        twin = type(self).__new__(type(self))
        twin._parts = self._parts
        twin.update(dict.items(self))
        return twin

    def __iter__(self) -> Iterator[str]:  # dict(infos) and {**infos} copy what lies within, unless this is overridden
        return super().__iter__()

    def __reduce__(self) -> tuple[Any, ...]:  # a copy and a pickle are plain dicts
        return dict, (dict(self),)


def _read_first(name: str) -> None:
    """Make the method of dict see every value."""
    method = getattr(dict, name)

    @wraps(method)
    def reading(self: Lazy, *others: Any) -> Any:
        for key in self:
            self[key]
        return method(self, *others)

    setattr(Lazy, name, reading)


for _name in ("__eq__", "__ne__", "__or__", "__repr__", "__ror__", "items", "popitem", "setdefault", "values"):
    _read_first(_name)


class Infos(Lazy):
    """Gymnasium's dict of arrays and masks.

    To write out the dates of 8192 environments costs as much as half a step of them, and all their
    ledgers or scores a thousand steps; a learner reads none of it on most steps.
    """

    __slots__ = ()

    def __init__(self, at: Episodes, *more: tuple[Makers, object]):
        self._parts = (ALWAYS, at), *more
        self.update(_UNREAD_ALWAYS)
        for makers, _ in more:
            self.update(dict.fromkeys(makers, _UNREAD))
