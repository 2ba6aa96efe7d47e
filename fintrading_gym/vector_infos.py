"""What a batched step tells beside its observations and rewards, computed when it is read."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fintrading_gym.ledger import Ledger
from fintrading_gym.metrics import HOLD, fintrading_score
from fintrading_gym.vector_tables import CHANGES, CODES, NO_DECISION, Ints, Market, Player
from fintrading_gym.windows import Floats

Flags = NDArray[np.bool_]

NOBODY = np.zeros(0, np.intp)
NOWHERE = np.zeros(0, np.bool_)
_NOTHING = np.zeros((0, 0), np.uint8)
_UNSEEN = np.zeros((0, 0), np.float32)


@dataclass(eq=False)
class Step:
    """A step of N environments as it was. Nobody writes to these arrays."""

    market: Market
    player: Player
    row: Ints  # (N,) of `market`: the day that is shown
    state: Ints  # (N,) of `player`
    cumulative: Floats  # (N,) log return earned in the episode
    earned: Floats  # (N,) log return earned in this step
    told: Flags | None = None  # (N,) the environments that the infos are of; None: all
    undecided: Flags = field(default_factory=lambda: NOWHERE)  # (N,) the action was None; empty: nowhere
    ended: Ints = field(default_factory=lambda: NOBODY)  # (n,) environments whose episodes the infos sum up
    lengths: Ints = field(default_factory=lambda: NOBODY)  # (n,) decisions in those episodes
    codes: NDArray[np.uint8] = field(
        default_factory=lambda: _NOTHING
    )  # (T, n) their last T decisions, T >= lengths, oldest first
    final: Any = None  # the Step before episodes were reset at once; None: none were
    last: NDArray[np.float32] = field(default_factory=lambda: _UNSEEN)  # (n, columns) the observations that ended those

    def spread(self, values: NDArray[Any], blank: Any = 0) -> NDArray[Any]:
        """`values` (N,) where these infos tell of them, and `blank` elsewhere."""
        return values if self.told is None else np.where(self.told, values, np.array(blank, values.dtype))

    def mask(self) -> Flags:
        """(N,) the environments that the infos are of, a new array."""
        return np.ones(len(self.row), np.bool_) if self.told is None else self.told.copy()

    def valid(self) -> Flags:
        """(N,) the agent has decided."""
        return self.mask() & ~self.undecided if self.undecided.size else self.mask()

    def summed_up(self, what: Callable[[int], Any], values: NDArray[Any]) -> NDArray[Any]:
        """`values` (N,) with `what` of the n-th episode that ended, at its environment's place."""
        for n, where in enumerate(self.ended):
            values[where] = what(n)
        return values

    def ending(self) -> Flags:
        """(N,) the environments whose episodes ended, a new array."""
        return self.summed_up(lambda _: True, np.zeros(len(self.row), np.bool_))

    def ledger(self, n: int) -> Ledger:
        """The ledger of the n-th episode that ended."""
        length, last = int(self.lengths[n]), int(self.row[self.ended[n]])
        played = slice(last - length, last)
        codes, position, earned = (column[-length:, n] for column in (self.codes, *self._replay))
        return Ledger(
            date=tuple(self.market.date[played]),
            price=tuple(self.market.price[played].tolist()),
            action=tuple(np.where(codes == NO_DECISION, HOLD, codes).tolist()),
            valid=tuple((codes != NO_DECISION).tolist()),
            position=tuple(position.tolist()),
            log_return=tuple(earned.tolist()),
            market=tuple(self.market.log_return[played].tolist()),
            overnight=tuple(self.market.overnight[played].tolist()),
        )

    def score(self, n: int) -> float:
        """The score of the n-th episode that ended."""
        length = int(self.lengths[n])
        return fintrading_score(self._replay[1][-length:, n].copy(), self.codes[-length:, n] != NO_DECISION)

    @cached_property
    def _replay(self) -> tuple[Ints, Floats]:
        """Positions and earned log returns (T, n) of the episodes that ended, in the rows of `codes`."""
        most, count = self.codes.shape
        position, earned = np.zeros((most, count), np.intp), np.zeros((most, count))
        state, row = np.zeros(count, np.intp), self.row[self.ended] - most
        for t in range(most):
            plays = t >= most - self.lengths
            move = len(CODES) * state + self.codes[t]
            state = np.where(plays, self.player.leads_to[move], 0)
            position[t] = self.player.position[state]
            earned[t, plays] = self.market.earned[(CHANGES * (row + t) + self.player.change[move])[plays]]
        return position, earned


def _reasons(undecided: Flags) -> NDArray[np.object_]:
    reason = np.full(undecided.size, None)
    reason[undecided] = "none"
    return reason


FIELDS: dict[str, Callable[[Step], NDArray[Any]]] = {
    "date": lambda step: step.spread(step.market.date.take(step.row), None),
    "position": lambda step: step.spread(step.player.position.take(step.state)),
    "price": lambda step: step.spread(step.market.price.take(step.row)),
    "log_return": lambda step: step.spread(step.earned.copy()),
    "cumulative_log_return": lambda step: step.spread(step.cumulative.copy()),
    "valid": Step.valid,
}
FIELDS |= {f"_{name}": Step.mask for name in FIELDS}
UNDECIDED: dict[str, Callable[[Step], Any]] = {
    "reason": lambda step: _reasons(step.undecided),
    "_reason": lambda step: step.undecided.copy(),
}
AT_THE_END: dict[str, Callable[[Step], Any]] = {
    "ledger": lambda step: step.summed_up(step.ledger, np.full(len(step.row), None)),
    "score": lambda step: step.summed_up(step.score, np.zeros(len(step.row))),
    "_ledger": Step.ending,
    "_score": Step.ending,
}
RESET_AT_ONCE: dict[str, Callable[[Step], Any]] = {
    "final_obs": lambda step: step.final.summed_up(step.last.__getitem__, np.full(len(step.row), None)),
    "final_info": lambda step: Infos(step.final),
    "_final_obs": lambda step: step.final.mask(),
    "_final_info": lambda step: step.final.mask(),
}
_MAKERS = FIELDS | UNDECIDED | AT_THE_END | RESET_AT_ONCE
_UNREAD: Any = object()


class Infos(dict[str, Any]):
    """Gymnasium's dict of arrays and masks, whose values are computed when they are first read.

    To write out the dates of 8192 environments costs as much as to advance them, and the ledger or the
    score of each a thousand times as much; a learner reads none of it on most steps.
    """

    def __init__(self, step: Step):
        keys = [*FIELDS]
        if step.undecided.any():
            keys += UNDECIDED
        if step.ended.size:
            keys += AT_THE_END
        if step.final:
            keys += RESET_AT_ONCE
        super().__init__(dict.fromkeys(keys, _UNREAD))
        self._step = step

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        if value is _UNREAD:
            value = self[key] = _MAKERS[key](self._step)
        return value

    def get(self, key: str, default: Any = None) -> Any:
        """As of a dict, whose own `get` would show what is not yet computed."""
        return self[key] if key in self else default  # noqa: SIM401

    def pop(self, key: str, *default: Any) -> Any:
        """As of a dict."""
        self.get(key)
        return super().pop(key, *default)

    def __iter__(self) -> Iterator[str]:  # dict(infos) and {**infos} copy what lies within, unless this is overridden
        return super().__iter__()

    def __reduce__(self) -> tuple[Any, ...]:  # a copy and a pickle are plain dicts
        return dict, (dict(self),)


def _read_first(name: str) -> None:
    """Make the method of dict see every value."""
    method = getattr(dict, name)

    @wraps(method)
    def reading(self: Infos, *others: Any) -> Any:
        for key in self:
            self[key]
        return method(self, *others)

    setattr(Infos, name, reading)


for _name in ("__eq__", "__ne__", "__or__", "__repr__", "__ror__", "copy", "items", "popitem", "setdefault", "values"):
    _read_first(_name)
