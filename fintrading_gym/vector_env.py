"""N episodes at once, advanced in whole-array operations: step for step what N single environments do."""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from fintrading_gym.env import ACTION, OBSERVATION, FinMemTradingEnv, positive
from fintrading_gym.errors import lookup
from fintrading_gym.metrics import BUY, HOLD
from fintrading_gym.vector_infos import AT_THE_END, RESTARTED, UNDECIDED, Ended, Infos, Makers, Restarted
from fintrading_gym.vector_tables import (
    BEGUN,
    NO_DECISION,
    Episodes,
    Flags,
    Ints,
    advance,
    market,
    observe,
    player_states,
)
from fintrading_gym.windows import Floats, Window

INT = np.dtype(np.intp)
MODES = {mode.value: mode for mode in AutoresetMode}
DRAWS = 64  # random numbers drawn at once for an environment: a call costs as much as all of them
NOBODY = np.zeros(0, np.intp)
# (keyword, its values for single environments, the one for batches)
BATCHED = (
    ("observation", OBSERVATION, "vector"),
    ("action", ACTION, "index"),
    ("render_mode", FinMemTradingEnv.metadata["render_modes"], None),
)


class FinMemTradingVectorEnv(VectorEnv[NDArray[np.float32], Any, NDArray[Any]]):
    """`FinMemTradingEnv` in whole arrays, what `gym.make_vec("FinMemTrading-v0", num_envs=N)` makes.

    Rules, observations, rewards and infos are those of N single environments in Gymnasium's
    `SyncVectorEnv`, bit for bit: environment k of `reset(seed=s)` plays what a single one plays after
    `reset(seed=s + k)`, through all its episodes. `infos` is a dict of the same keys and masks whose values
    are computed when they are first read: the ledgers and scores of N episodes take longer than playing them.

    ## Arguments
    * `num_envs`: N
    * `cell`: as for one environment, or a list of cells, which the environments take in turn
    * `autoreset_mode`: of `gymnasium.vector.AutoresetMode`. `NextStep`: the step after an episode's end
      resets it and ignores its action. `SameStep`: the last step resets; `final_obs` and `final_info`
      tell of the end. `Disabled`: `reset(options={"reset_mask": mask})` does, and a step before it raises
    * `compiled`: True: steps run as machine code, to the same bits (extra `fast`; compiled the first time it is
      asked for, and kept on disk)
    * every keyword of `FinMemTradingEnv`, with `observation="vector"` (here the default) and
      `action="index"`; text and pictures need `make_vec(..., vectorization_mode="sync")`

    Raises:
        ValueError: a keyword has no such value, or there are more cells than environments.
        MissingExtra: `compiled` needs an extra that is not installed.
    """

    def __init__(
        self,
        num_envs: int = 1,
        cell: str | Window | Sequence[str | Window] = "tsla_main",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        compiled: bool = False,
        **keywords: Any,
    ):
        self.num_envs = num_envs = positive("num_envs", num_envs)
        cells = [cell] if isinstance(cell, str | Window) else list(cell)
        if not 1 <= len(cells) <= num_envs:
            raise ValueError(f"cell={cell!r} names {len(cells)} cells for num_envs={num_envs}; give each one")
        if not isinstance(autoreset_mode, AutoresetMode):
            autoreset_mode = lookup("autoreset mode", autoreset_mode, MODES)
        self.autoreset_mode = autoreset_mode
        self.metadata = {"render_modes": [], "autoreset_mode": autoreset_mode}

        games = [FinMemTradingEnv(cell=each, **_batched(keywords)) for each in cells]
        self.games = games  # one for each cell: environment k plays games[k % len(games)]
        self.single_observation_space, self.single_action_space = games[0].observation_space, games[0].action_space
        self.observation_space = batch_space(games[0].observation_space, num_envs)
        self.action_space = batch_space(games[0].action_space, num_envs)
        self._advance = advance
        if compiled:
            from fintrading_gym import kernel

            self._advance = kernel.advance

        def in_turn(values: Sequence[int]) -> Ints:
            return np.fromiter(islice(cycle(values), num_envs), np.intp)

        days = [game.window.span()[1] for game in games]
        self._opening = in_turn(np.cumsum([0, *days[:-1]]).tolist())  # row of the window's first day
        self._lengths = in_turn([game.timesteps for game in games])
        self._starts = in_turn(days) - self._lengths  # days of the window that leave room for the episode
        self._generators: list[np.random.Generator | None] = [None] * num_envs
        self._draws = np.zeros((num_envs, DRAWS if games[0].start == "random" else 0))
        self._drawn = np.full(num_envs, DRAWS)  # how many of the draws are used up

        place = np.zeros((2, num_envs), np.int32)
        self._at = Episodes(market(games), player_states(games[0].hold), place, np.zeros(num_envs))
        self._end = place[0]  # row of the market that ends the episode
        self._left = 0  # steps until the next episodes end
        self._over = np.arange(num_envs)  # environments whose episode is over, or has not begun
        self._nowhere = np.zeros(num_envs, np.bool_)
        self._begun = False
        self._log = np.zeros((int(self._lengths.max()), num_envs), np.uint8)  # codes of the last steps, a ring
        self._steps = 0

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin an episode everywhere, or where `options["reset_mask"]` says so.

        Args:
            seed: of the first environment, the others counting up from it; or a sequence of one for each.
            options: may hold `reset_mask`, (N,) bool.
        """
        mask = self._reset_mask(options)
        which = np.flatnonzero(mask)
        self._seed(which, seed)
        observations = observe(self._at)
        self._begin(which, observations)
        self._over = self._over[~mask[self._over]]
        self._begun = True
        return observations, Infos(self._at if mask.all() else replace(self._at, where=mask))

    def step(self, actions: Any) -> tuple[NDArray[np.float32], Floats, Flags, Flags, dict[str, Any]]:
        """Decide on the day shown in every environment, and see the next.

        Args:
            actions: (N,) integers 0 sell, 1 hold, 2 buy; a sequence may also hold None for no decision.

        Raises:
            ResetNeeded: an episode is over and not reset by itself, or was not begun.
            ValueError: an action is neither an index 0, 1, 2 nor None; nothing has moved then.
        """
        resetting = self._over
        if resetting.size and not (self._begun and self.autoreset_mode is AutoresetMode.NEXT_STEP):
            raise ResetNeeded(
                f"{resetting.size} episodes, that of environment {resetting[0]} first, are over (or not begun):"
                " call reset() before step()"
            )
        codes, undecided = self._read(actions, resetting)
        log = self._log[self._steps % len(self._log)]
        limit = BUY if undecided is None else NO_DECISION
        try:
            self._at, observations, rewards = self._advance(self._at, codes, limit, log)
        except IndexError:  # one of the codes is none: only who reads them one by one can tell which
            self._read_each(actions, resetting)
            raise
        self._steps += 1
        self._left -= 1
        truncated = self._nowhere.copy() if self._left else self._at.row == self._end
        self._over = NOBODY if self._left else truncated.nonzero()[0]
        if resetting.size:
            rewards[resetting] = 0.0
            self._begin(resetting, observations)
        self._at.undecided = undecided
        if not self._over.size:
            infos = _infos(self._at)
        elif self.autoreset_mode is AutoresetMode.SAME_STEP:
            infos = self._restart(observations)
        else:
            infos = _infos(self._at, (AT_THE_END, self._ended()))
            self._look_ahead()
        return observations, rewards, self._nowhere.copy(), truncated, infos

    def first_days(self) -> list[tuple[str, float]]:
        """Date and adjusted close (USD) on which each running episode began."""
        rows = self._end - self._lengths
        return list(zip(self._at.market.date[rows].tolist(), self._at.market.price[rows].tolist(), strict=True))

    def single(self, k: int) -> FinMemTradingEnv:
        """A single environment that stands where environment k does now; a copy, which moves on by itself.

        Raises:
            IndexError: there is no environment k.
        """
        k = range(self.num_envs)[k]
        game = copy(self.games[k % len(self.games)])
        if self._begun:
            length = int(self._lengths[k])
            first = int(self._end[k]) - length
            game._begin(first - int(self._opening[k]), length)
            for step in range(self._steps - (int(self._at.row[k]) - first), self._steps):
                code = int(self._log[step % len(self._log), k])
                game.step(None if code == NO_DECISION else code)
        return game

    def _restart(self, observations: NDArray[np.float32]) -> Infos:
        """Begin the episodes that are over, also in `observations`; the infos of both their end and beginning."""
        ended, last = self._ended(), self._at
        which, mask, undecided = ended.which, ended.mask(), last.undecided
        final = replace(last, where=mask, undecided=None if undecided is None else undecided & mask)
        restarted = Restarted(ended, observations[which], _infos(final, (AT_THE_END, ended)))
        self._begin(which, observations)
        self._over = NOBODY
        self._at.undecided = None if undecided is None else undecided & ~mask
        return _infos(self._at, (RESTARTED, restarted))

    def _ended(self) -> Ended:
        log = np.roll(self._log, -self._steps, axis=0)  # from the oldest step to the last
        codes = log if self._over.size == self.num_envs else log[:, self._over]
        return Ended(self._at, self._over, self._lengths[self._over], codes)

    def _begin(self, which: Ints, observations: NDArray[np.float32]) -> None:
        """New episodes there, whose first observations replace what is in `observations`."""
        first = self._opening[which] + self._draw(which)
        at, place = self._at, np.array([first, np.full_like(first, BEGUN)], np.int32)
        cumulative = _with(at.cumulative, which, np.zeros(which.size))
        self._at = Episodes(at.market, at.player, _with(at.place, which, place), cumulative)
        self._end = _with(self._end, which, first + self._lengths[which])
        self._look_ahead()
        if which.size == self.num_envs:
            at.market.shown.take(first, axis=0, out=observations, mode="clip")  # "clip" writes without a buffer
        else:
            observations[which] = at.market.shown.take(first, axis=0)

    def _look_ahead(self) -> None:
        """Count the steps until the next episodes end, so that those before need not ask whether any does."""
        left = self._end - self._at.row  # 0 where an episode is over: the next one is counted when it begins
        self._left = int(left.min(initial=left.max(), where=left > 0))

    def _read(self, actions: Any, ignored: Ints) -> tuple[Ints, Flags | None]:
        """The codes of the actions, not yet checked, and where they stand for no decision (None: nowhere)."""
        given = np.asarray(actions)
        if given.shape != self._nowhere.shape:
            raise ValueError(f"actions of shape {given.shape} are not one for each of {self.num_envs} environments")
        # the kernel reads no other: numba counts what is read-only or not aligned as another type
        if given.dtype == INT and given.flags.carray:
            codes = given
        elif given.dtype.kind in "iu":
            codes = given.astype(INT, "C")
        else:
            codes = self._read_each(given, ignored)
            return codes, codes == NO_DECISION
        return (_with(codes, ignored, np.full(ignored.size, HOLD)) if ignored.size else codes), None

    def _read_each(self, actions: Any, ignored: Ints) -> Ints:
        """The codes of the actions, held against the rule for a single one; HOLD where it is ignored."""
        codes = np.full(self.num_envs, HOLD)
        for k in np.setdiff1d(np.arange(self.num_envs), ignored):
            try:
                index, reason = self.games[0]._read(actions[k])
            except ValueError as fault:
                raise ValueError(f"environment {k}: {fault}") from None
            codes[k] = index if reason is None else NO_DECISION
        return codes

    def _seed(self, which: Ints, seed: int | Sequence[int | None] | None) -> None:
        seed = int(seed) if isinstance(seed, np.integer) else seed
        super().reset(seed=seed if isinstance(seed, int) else None)  # says what is wrong with a seed
        if seed is None:
            return
        given = range(seed, seed + self.num_envs) if isinstance(seed, int) else seed
        seeds = [int(each) if isinstance(each, np.integer) else each for each in given]
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds are not one for each of {self.num_envs} environments")
        if self.games[0].start == "random":
            for k in which:
                if seeds[k] is not None:
                    self._generators[k] = seeding.np_random(seeds[k])[0]
                    self._drawn[k] = DRAWS

    def _draw(self, which: Ints) -> Ints:
        """The days of their windows that the next episodes start on."""
        if self.games[0].start == "first":
            return np.zeros(which.size, np.intp)
        for k in which[self._drawn[which] == DRAWS]:
            generator = self._generators[k] = self._generators[k] or seeding.np_random()[0]
            generator.random(out=self._draws[k])
            self._drawn[k] = 0
        drawn = self._draws[which, self._drawn[which]]
        self._drawn[which] += 1
        days: Ints = (drawn * self._starts[which]).astype(np.intp)
        return days

    def _reset_mask(self, options: dict[str, Any] | None) -> Flags:
        mask = (options or {}).get("reset_mask")
        if mask is None:
            return np.ones(self.num_envs, np.bool_)
        if not (isinstance(mask, np.ndarray) and mask.dtype == np.bool_):
            raise TypeError(f"reset_mask={mask!r} is not an array of booleans")
        if mask.shape != (self.num_envs,) or not mask.any():
            raise ValueError(
                f"reset_mask, of shape {mask.shape} and {mask.sum()} times True, has to choose from"
                f" {self.num_envs} environments at least one"
            )
        if not (self._begun or mask.all()):
            raise ResetNeeded("No episode was begun: call reset() without a reset_mask first")
        return mask.copy()


def _batched(keywords: dict[str, Any]) -> dict[str, Any]:
    """The keywords with the vector view as default; ValueError for one that is only there for single environments."""
    keywords = {"observation": "vector", **keywords}
    for name, known, only in BATCHED:
        given = keywords.get(name, only)
        if given != only and isinstance(given, str) and given in known:
            raise ValueError(
                f"{name}={given!r} is not batched, only {only!r}:"
                " make_vec(..., vectorization_mode='sync') makes N single environments"
            )
    return keywords


def _infos(at: Episodes, *more: tuple[Makers, object]) -> Infos:
    if at.undecided is not None and at.undecided.any():
        more = (UNDECIDED, at.undecided), *more
    return Infos(at, *more)


def _with(array: NDArray[Any], which: Ints, values: NDArray[Any]) -> NDArray[Any]:
    """The array with these values in the places `which`, ascending, of its last axis; another one than it was."""
    if which.size == array.shape[-1]:
        return values
    changed = array.copy()
    changed[..., which] = values
    return changed
