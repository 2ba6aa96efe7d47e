"""The game as tables: what a day shows, what a move on it earns, where a decision leads; and a step by look-up."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from fintrading_gym import observations as view
from fintrading_gym.env import FinMemTradingEnv
from fintrading_gym.masking import own_returns
from fintrading_gym.metrics import BUY, HOLD, SELL
from fintrading_gym.windows import Floats

Ints = NDArray[np.intp]
SmallInts = NDArray[np.int32]  # where less to move is more speed
Flags = NDArray[np.bool_]

NO_DECISION = 3  # the code of None; 0, 1, 2 are those of the actions
CODES = (SELL, HOLD, BUY, NO_DECISION)
CHANGES = 9  # pairs of (position before, position after)
# A move is one number: the state it leads to from bit 4 on, the change of position in the bits below.
STATE, CHANGE = 4, 0b1111
BEGUN = 0 << STATE | CHANGE  # the move that there was none yet
CUMULATIVE = 1 - view.OWN  # the column of the return so far, second of the player's own


@dataclass(frozen=True, eq=False)
class Player:
    """Every state a player can be in, but for the return so far, numbered from 0, the start of an episode.

    A state is the position, how many decisions were taken (up to five), and the last five: what the
    vector view shows of the player. There are S = 366 of them (hold="flat": 364).
    """

    # (S * 4,) what code c does to state s, at 4 s + c: the state after it << 4 | the change of position, which is
    # 3 x (the position before + 1) + the position after + 1
    moves: SmallInts
    position: Ints  # (S,) -1, 0, +1
    shown: NDArray[np.float32]  # (S, OWN) the last columns of the vector view, the cumulative return left 0


@cache
def player_states(hold: str) -> Player:
    """The states under a hold rule, as `FinMemTradingEnv.step` leads from one to the next."""
    states = [(0, 0, view.NONE_YET)]
    number = {states[0]: 0}
    moves = []
    for position, decided, recent in states:  # which grows until no move leads to a new state
        for code in CODES:
            action = HOLD if code == NO_DECISION else code
            after = position if action == HOLD and hold == "keep" else action - HOLD
            state = (after, min(decided + 1, view.REMEMBERED), recent[view.SIGN.size :] + view.SIGNS[action])
            if state not in number:
                number[state] = len(states)
                states.append(state)
            moves.append(number[state] << STATE | 3 * (position + 1) + after + 1)
    blank = np.zeros(view.OWN, np.float32)
    shown = [view.vector_view(blank, position, 0.0, decided, recent) for position, decided, recent in states]
    return Player(np.array(moves, np.int32), np.array([state[0] for state in states]), np.array(shown))


@dataclass(frozen=True, eq=False)
class Market:
    """The windows of several cells one below the other: R rows, each a day of one of them."""

    shown: NDArray[np.float32]  # (R + 1, columns) the vector view before the first decision; and a row of nothing
    earned: Floats  # (R * 9,) what a move on day i earns until the next close, at 9 i + the change of position
    date: NDArray[np.object_]  # (R,) ISO dates
    price: Floats  # (R,) adjusted close, USD
    log_return: Floats  # (R,) of the stock, to the next close; 0 on a window's last day
    overnight: Floats  # (R,) the part of it before the fill
    identity: str  # of masking.IDENTITIES


def market(games: Sequence[FinMemTradingEnv]) -> Market:
    """The windows of these games, by their rules on costs and fills."""
    columns = (np.concatenate(column) for column in zip(*map(_market_of, games), strict=True))
    shown, earned, date, price, log_return, overnight = columns
    shown = np.vstack([shown, np.zeros_like(shown[:1])])
    return Market(shown, earned, date, price, log_return, overnight, games[0].sight.identity)


def _market_of(game: FinMemTradingEnv) -> tuple[NDArray[np.generic], ...]:
    log_return, overnight, intraday = (
        np.append(column, 0.0)[:, None]  # the last day is never traded on
        for column in (game._market, game._overnight, game._intraday)
    )
    before, after = (side.ravel().astype(np.float64) for side in np.mgrid[-1:2, -1:2])
    earned = before * overnight + after * intraday - game.cost_bps * 1e-4 * np.abs(after - before)
    return (
        np.array(game._rows), earned.ravel(), np.array(game._dates, object), np.array(game._close),
        log_return.ravel(), overnight.ravel(),
    )  # fmt: skip


@dataclass(eq=False, slots=True)
class Episodes:
    """Where N episodes are. A step makes new arrays and leaves these alone, since infos read them later."""

    market: Market
    player: Player
    place: SmallInts  # (2, N) the row of `market` that is shown; the last move
    cumulative: Floats  # (N,) log return earned so far
    where: Flags | None = None  # (N,) the environments that infos tell of; None: all
    undecided: Flags | None = None  # (N,) the last action was None; None: nowhere

    @property
    def row(self) -> SmallInts:
        """The row of `market` that is shown, (N,)."""
        row: SmallInts = self.place[0]
        return row

    @property
    def state(self) -> SmallInts:
        """The state of `player`, (N,)."""
        state: SmallInts = self.place[1] >> STATE
        return state

    def earned(self) -> Floats:
        """Log return earned by the last decision, (N,); 0 where there is none yet."""
        change = self.place[1] & CHANGE
        gain: Floats = np.where(
            change == BEGUN, 0.0, self.market.earned.take(CHANGES * (self.row - 1) + change % CHANGES)
        )
        return gain


def advance(
    at: Episodes, codes: Ints, limit: int, log: NDArray[np.uint8]
) -> tuple[Episodes, NDArray[np.float32], Floats]:
    """A step of N episodes.

    Args:
        at: where the episodes are. One that is over moves on to a day that is not its own: begin it anew.
        codes: (N,) what was decided, see `CODES`.
        limit: the highest code that may be.
        log: (N,) where the codes are written to.

    Returns:
        Where they are then, what they show (N, columns), and what they have earned (N,).

    Raises:
        IndexError: a code is below 0 or above the limit.
    """
    if codes.view(np.uintp).max() > limit:  # unsigned, what is below 0 is large
        raise IndexError(f"codes {codes} are not all 0 to {limit}")
    log[:] = codes
    moves = at.player.moves.take(len(CODES) * at.state + codes)
    earned = at.market.earned.take(CHANGES * at.row + (moves & CHANGE))
    at = Episodes(at.market, at.player, np.array([at.row + 1, moves]), at.cumulative + earned)
    return at, observe(at), earned


def observe(at: Episodes) -> NDArray[np.float32]:
    """The vector views (N, columns), a new array."""
    shown = at.market.shown.take(at.row, axis=0)
    shown[:, -view.OWN :] = at.player.shown.take(at.state, axis=0)
    shown[:, CUMULATIVE] = returns(at.cumulative, at.market.identity)
    return shown


def returns(cumulative: Floats, identity: str) -> Floats:
    """The player's own return as the view's column has it, (N,)."""
    scaled: Floats = view.RETURN_SCALE * own_returns(cumulative, identity)
    return scaled.clip(-view.LIMIT, view.LIMIT)
