"""N episodes at once, advanced in whole-array operations: step for step what N single environments do."""

from collections.abc import Sequence
from itertools import cycle, islice
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from fintrading_gym import observations as view
from fintrading_gym.env import ACTION, OBSERVATION, FinMemTradingEnv, positive
from fintrading_gym.errors import lookup
from fintrading_gym.metrics import BUY, HOLD
from fintrading_gym.vector_infos import NOBODY, NOWHERE, Flags, Infos, Step
from fintrading_gym.vector_tables import CHANGES, CODES, NO_DECISION, OWN, Ints, market, player_states
from fintrading_gym.windows import Floats, Window

MODES = {mode.value: mode for mode in AutoresetMode}
DRAWS = 128  # random starts drawn at once for an environment: numpy takes as long for one as for a hundred
# (keyword, its values for single environments, the one for batches)
BATCHED = (
    ("observation", OBSERVATION, "vector"),
    ("action", ACTION, "index"),
    ("render_mode", FinMemTradingEnv.metadata["render_modes"], None),
)
CUMULATIVE = 1 - OWN  # the column of the return so far, second of the player's own


class FinMemTradingVectorEnv(VectorEnv[NDArray[np.float32], Any, NDArray[Any]]):
    """`FinMemTradingEnv` in whole arrays, what `gym.make_vec("FinMemTrading-v0", num_envs=N)` makes.

    Rules, observations, rewards and infos are those of N single environments in Gymnasium's
    `SyncVectorEnv`, bit for bit: environment k of `reset(seed=s)` plays what a single one plays after
    `reset(seed=s + k)`, through all its episodes. `infos` holds the same keys and masks; its values are
    computed when they are first read, which the ledgers and scores of ended episodes are worth.

    ## Arguments
    * `num_envs`: N
    * `cell`: as for one environment, or a list of cells, which the environments take in turn
    * `autoreset_mode`: of `gymnasium.vector.AutoresetMode`. `NextStep`: the step after an episode's end
      resets it and ignores its action. `SameStep`: the last step resets; `final_obs` and `final_info`
      tell of the end. `Disabled`: `reset(options={"reset_mask": mask})` does, and a step before it raises
    * every keyword of `FinMemTradingEnv`, with `observation="vector"` (here the default) and
      `action="index"`; text and pictures need `make_vec(..., vectorization_mode="sync")`

    Raises:
        ValueError: a keyword has no such value, or there are more cells than environments.
    """

    def __init__(
        self,
        num_envs: int = 1,
        cell: str | Window | Sequence[str | Window] = "tsla_main",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        **keywords: Any,
    ):
        self.num_envs = positive("num_envs", num_envs)
        cells = [cell] if isinstance(cell, str | Window) else list(cell)
        if not 1 <= len(cells) <= num_envs:
            raise ValueError(f"cell={cell!r} names {len(cells)} cells for num_envs={num_envs}; give each one")
        if not isinstance(autoreset_mode, AutoresetMode):
            autoreset_mode = lookup("autoreset mode", autoreset_mode, MODES)
        self.autoreset_mode = autoreset_mode
        self.metadata = {"render_modes": [], "autoreset_mode": autoreset_mode}

        games = [FinMemTradingEnv(cell=each, **_batched(keywords)) for each in cells]
        self._game = games[0]
        self.single_observation_space, self.single_action_space = games[0].observation_space, games[0].action_space
        self.observation_space = batch_space(games[0].observation_space, num_envs)
        self.action_space = batch_space(games[0].action_space, num_envs)
        self._market, self._player = market(games), player_states(games[0].hold)

        def in_turn(values: Sequence[int]) -> Ints:
            return np.fromiter(islice(cycle(values), num_envs), np.intp)

        days = [game.window.span()[1] for game in games]
        self._opening = in_turn(np.cumsum([0, *days[:-1]]).tolist())  # row of the window's first day
        self._lengths = in_turn([game.timesteps for game in games])
        self._latest = in_turn(days) - 1 - self._lengths  # day of the window that an episode can start on
        self._generators: list[np.random.Generator | None] = [None] * num_envs
        self._draws = np.zeros((num_envs, DRAWS if games[0].start == "random" else 0), np.int32)
        self._drawn = np.full(num_envs, DRAWS)  # how many of the draws are used up

        # Where the episodes are. Infos still read these arrays later: they are replaced, and never written to.
        self._row = self._end = np.zeros(num_envs, np.intp)  # of the market: the day shown, the day that ends it
        self._state = np.zeros(num_envs, np.intp)  # of the player
        self._cumulative = np.zeros(num_envs)
        self._over = np.arange(num_envs)  # environments whose episode is over, or has not begun
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
        self._begin(which)
        self._over = self._over[~mask[self._over]]
        self._begun = True
        return self._observe(), Infos(self._tell(np.zeros(self.num_envs), told=None if mask.all() else mask))

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
        self._log[self._steps % len(self._log)] = codes
        self._steps += 1

        move = len(CODES) * self._state + codes
        earned = self._market.earned.take(CHANGES * self._row + self._player.change.take(move))
        self._state = self._player.leads_to.take(move)
        self._cumulative = self._cumulative + earned
        self._row = self._row + 1
        if resetting.size:
            earned[resetting] = 0.0
            self._begin(resetting)
        observations, truncated = self._observe(), self._row == self._end
        self._over = ended = np.flatnonzero(truncated)
        step = self._tell(earned.copy(), undecided=undecided, ended=ended)
        if ended.size and self.autoreset_mode is AutoresetMode.SAME_STEP:
            observations, step = self._reset_at_once(observations, step)
        return observations, earned, np.zeros(self.num_envs, np.bool_), truncated, Infos(step)

    def _reset_at_once(self, observations: NDArray[np.float32], final: Step) -> tuple[NDArray[np.float32], Step]:
        """What a step returns that has reset the episodes it ended: their first observations, and both infos."""
        ended, undecided, earned = final.ended, final.undecided, final.earned.copy()
        final.told = told = np.zeros(self.num_envs, np.bool_)
        told[ended] = True
        earned[ended] = 0.0
        self._begin(ended)
        self._over = NOBODY
        step = self._tell(earned, final=final, last=observations[ended])
        if undecided.size:
            final.undecided, step.undecided = undecided & told, undecided & ~told
        return self._observe(), step

    def _begin(self, which: Ints) -> None:
        first = self._opening[which] + self._draw(which)
        self._row = _with(self._row, which, first)
        self._end = _with(self._end, which, first + self._lengths[which])
        self._state = _with(self._state, which, 0)
        self._cumulative = _with(self._cumulative, which, 0.0)

    def _observe(self) -> NDArray[np.float32]:
        shown = self._market.shown.take(self._row, axis=0)
        shown[:, -OWN:] = self._player.shown.take(self._state, axis=0)
        shown[:, CUMULATIVE] = np.clip(view.RETURN_SCALE * self._cumulative, -view.LIMIT, view.LIMIT)
        return shown

    def _tell(self, earned: Floats, ended: Ints = NOBODY, **more: Any) -> Step:
        step = Step(self._market, self._player, self._row, self._state, self._cumulative, earned, ended=ended, **more)
        if ended.size:
            step.lengths = self._lengths[ended]
            log = np.roll(self._log, -self._steps, axis=0)  # from the oldest step to this one
            step.codes = log if ended.size == self.num_envs else log[:, ended]
        return step

    def _read(self, actions: Any, ignored: Ints) -> tuple[Ints, Flags]:
        """The codes of the actions, a new array, and where they are those of no decision."""
        given = np.asarray(actions)
        if given.shape != (self.num_envs,):
            raise ValueError(f"actions of shape {given.shape} are not one for each of {self.num_envs} environments")
        if given.dtype.kind in "iu":
            codes = given.astype(np.intp)
            codes[ignored] = HOLD
            wrong = codes.view(np.uintp) > BUY  # unsigned, a negative number is a large one
            if wrong.any():
                self._read_one(int(wrong.argmax()), given[wrong.argmax()])
            return codes, NOWHERE
        codes = np.full(self.num_envs, HOLD)
        for k in np.setdiff1d(np.arange(self.num_envs), ignored):
            codes[k] = self._read_one(k, given[k])
        return codes, codes == NO_DECISION

    def _read_one(self, k: int, action: Any) -> int:
        try:
            index, reason = self._game._read(action)
        except ValueError as fault:
            raise ValueError(f"environment {k}: {fault}") from None
        return index if reason is None else NO_DECISION

    def _seed(self, which: Ints, seed: int | Sequence[int | None] | None) -> None:
        super().reset(seed=seed if isinstance(seed, int) else None)  # says what is wrong with a seed
        if seed is None:
            return
        seeds = range(seed, seed + self.num_envs) if isinstance(seed, int) else list(seed)
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds are not one for each of {self.num_envs} environments")
        if self._game.start == "random":
            for k in which:
                if seeds[k] is not None:
                    self._generators[k] = seeding.np_random(seeds[k])[0]
                    self._drawn[k] = DRAWS

    def _draw(self, which: Ints) -> Ints:
        """The days of their windows that the next episodes start on."""
        if self._game.start == "first":
            return np.zeros(which.size, np.intp)
        for k in which[self._drawn[which] == DRAWS]:
            generator = self._generators[k] = self._generators[k] or seeding.np_random()[0]
            self._draws[k] = generator.integers(self._latest[k] + 1, size=DRAWS)
            self._drawn[k] = 0
        days: Ints = self._draws[which, self._drawn[which]].astype(np.intp)
        self._drawn[which] += 1
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
        if given != only and given in known:
            raise ValueError(
                f"{name}={given!r} is not batched, only {only!r}:"
                " make_vec(..., vectorization_mode='sync') makes N single environments"
            )
    return keywords


def _with(array: NDArray[Any], which: Ints, values: Any) -> NDArray[Any]:
    changed = array.copy()
    changed[which] = values
    return changed
