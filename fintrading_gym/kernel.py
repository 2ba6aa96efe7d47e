"""`vector_tables.advance` as one compiled loop over the environments, for those who have the extra `fast`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fintrading_gym.errors import MissingExtra
from fintrading_gym.observations import LIMIT, OWN, RETURN_SCALE
from fintrading_gym.vector_tables import CHANGE, CHANGES, CODES, CUMULATIVE, STATE, Episodes, Ints, returns
from fintrading_gym.windows import Floats

try:
    from numba import float32, float64, int32, intp, njit, types, uint8, uint64
    from numba.core import cgutils
    from numba.extending import intrinsic
except ImportError as fault:
    raise MissingExtra("compiled=True", "fast") from fault

INT = np.dtype(np.int32)
MANY = 8  # floats copied at once: the width of a vector register. A row ends with as many, so none is overrun
assert OWN == MANY


def advance(
    at: Episodes, codes: Ints, limit: int, log: NDArray[np.uint8]
) -> tuple[Episodes, NDArray[np.float32], Floats]:
    """As `vector_tables.advance`, bit for bit."""
    n, market, player = len(codes), at.market, at.player
    place, cumulative, earned = np.empty((2, n), INT), np.empty(n), np.empty(n)
    observations = np.empty((n, market.shown.shape[1]), np.float32)
    highest = _advance(
        market.shown, market.earned, player.moves, player.shown, at.place, at.cumulative, codes,
        place, cumulative, earned, log, observations,
    )  # fmt: skip
    if highest > limit:
        raise IndexError(f"codes {codes} are not all 0 to {limit}")
    if market.identity == "coarse":
        observations[:, CUMULATIVE] = returns(cumulative, market.identity)
    return Episodes(market, player, place, cumulative), observations, earned


@intrinsic  # type: ignore[untyped-decorator]
def _copy(_: Any, to: Any, at: Any, source: Any, start: Any) -> Any:
    """Copy MANY floats from `source.flat[start:]` to `to.flat[at:]`.

    A loop over the elements would copy one at a time: the compiler cannot know that the arrays do not overlap.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        arrays = [context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 2)]
        target, origin = (builder.gep(array, [args[i]]) for array, i in zip(arrays, (1, 3), strict=True))
        cgutils.raw_memcpy(builder, target, origin, context.get_constant(types.intp, MANY), itemsize=4, align=4)
        return context.get_dummy_value()

    return types.void(to, at, source, start), generate


ROWS, PLACE, FLOATS = float32[:, ::1], int32[:, ::1], float64[::1]


# With its types given it is compiled, or loaded from numba's cache, once and here, not in somebody's first step.
# No fastmath: sums must come out as numpy has them. Unsigned indices spare the test for negative ones.
@njit(  # type: ignore[untyped-decorator]
    (ROWS, FLOATS, int32[::1], ROWS, PLACE, FLOATS, intp[::1], PLACE, FLOATS, FLOATS, uint8[::1], ROWS),
    nogil=True,
    error_model="numpy",
    cache=True,
)
def _advance(
    shown: Any, earned_by: Any, moves: Any, own: Any, place: Any, cumulative: Any, codes: Any,
    next_place: Any, next_cumulative: Any, earned: Any, log: Any, observations: Any,
) -> Any:  # fmt: skip
    """Fill the arrays of the second line from those of the first; the highest code as an unsigned number."""
    n, highest = uint64(codes.shape[0]), uint64(0)
    for i in range(n):
        code = uint64(codes[i])
        highest = max(highest, code)
        code &= uint64(len(CODES) - 1)  # stay inside the tables, whatever the code is
        move = uint64(moves[uint64(len(CODES)) * uint64(place[1, i] >> STATE) + code])
        gain = earned_by[uint64(CHANGES) * uint64(place[0, i]) + (move & uint64(CHANGE))]
        next_place[0, i], next_place[1, i] = place[0, i] + 1, move
        next_cumulative[i], earned[i], log[i] = cumulative[i] + gain, gain, code
    # a second loop, since the pointers of both together exceed the processor's registers
    columns = uint64(shown.shape[1])
    market = columns - uint64(OWN)
    for i in range(n):
        to, day, player = (
            columns * i,
            columns * uint64(next_place[0, i]),
            uint64(OWN) * uint64(next_place[1, i] >> STATE),
        )
        for j in range(uint64(0), market, uint64(MANY)):
            _copy(observations, to + j, shown, day + j)
        _copy(observations, to + market, own, player)
        observations[i, columns + uint64(CUMULATIVE)] = min(max(RETURN_SCALE * next_cumulative[i], -LIMIT), LIMIT)
    return highest
