"""The batched environment as a Stable-Baselines3 `VecEnv`: one call advances all episodes, without a wrapper each."""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from fintrading_gym.env import FinMemTradingEnv
from fintrading_gym.errors import MissingExtra
from fintrading_gym.vector_env import FinMemTradingVectorEnv
from fintrading_gym.vector_infos import Infos, Lazy, Makers

try:
    import torch
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
    from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
except ImportError as fault:
    raise MissingExtra("Stable-Baselines3", "rl") from fault

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm

# Methods of a single environment that only read it: the others would move one of N episodes by itself.
READERS = ("ledger", "render", "close", "get_wrapper_attr", "has_wrapper_attr")
INFO = ("date", "position", "price", "log_return", "cumulative_log_return", "valid", "ledger", "score")


def make_vec_env(num_envs: int = 64, **keywords: Any) -> "FinMemTradingVecEnv":
    """A `VecEnv` of N episodes for Stable-Baselines3's algorithms and wrappers.

    `PPO("MlpPolicy", make_vec_env(256, cell="TSLA:2021-01-04:2021-12-31", start="random"))` learns from it.

    Args:
        num_envs: N.
        **keywords: of `fintrading_gym.vector_env.FinMemTradingVectorEnv`, but for `autoreset_mode`, which
            Stable-Baselines3 fixes. The observation is the vector view: it has no policy for texts.

    Raises:
        ValueError: a keyword has no such value, or asks for texts.
    """
    if keywords.get("observation") in ("text", "both"):
        raise ValueError(
            f"observation={keywords['observation']!r} holds texts, for which Stable-Baselines3 has no policy;"
            " there is 'vector', the same state as numbers"
        )
    if "autoreset_mode" in keywords:
        raise ValueError(
            "autoreset_mode is not free here: Stable-Baselines3 resets an episode in the step that ends it"
        )
    return FinMemTradingVecEnv(FinMemTradingVectorEnv(num_envs, autoreset_mode=AutoresetMode.SAME_STEP, **keywords))


class FinMemTradingVecEnv(VecEnv):
    """N episodes as Stable-Baselines3 wants them.

    `step` gives observations (N, columns) float32, rewards (N,) float32, dones (N,) bool, and a list of
    N infos. An episode's end is always a truncation, so its info has `TimeLimit.truncated` True and
    `terminal_observation`, by which a learner bootstraps; as of `Monitor` `episode` with `r` (sum of
    log returns), `l` (decisions) and `t` (seconds since this was made); and all that a single environment
    tells at its end, `ledger` and `score` too, computed when it is read: `VecMonitor(envs, info_keywords=("score",))`.

    The infos of episodes under way are empty, since learners read none of them N times a step; `told` is the batched
    environment's dict of the last step, such as `told["position"]`, (N,).
    """

    def __init__(self, env: FinMemTradingVectorEnv):
        self.env = env
        self.told: dict[str, Any] = {}  # of FinMemTradingVectorEnv: after an end, of the episode that began
        self._actions: Any = None
        self._steps = 0
        self._began = np.zeros(env.num_envs, np.int64)  # (N,) the step before which an episode began
        self._made = time.time()
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)

    def reset(self) -> NDArray[np.float32]:
        """Begin N episodes; `seed` before it says with which random starts."""
        observations, self.told = self.env.reset(seed=self._seeds)
        self._began[:] = self._steps
        self._reset_seeds()
        self._reset_options()
        return observations

    def step_async(self, actions: NDArray[np.integer[Any]]) -> None:
        """Take the decisions (N,) that `step_wait` carries out."""
        self._actions = actions

    def step_wait(self) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Advance all episodes by a day, and begin anew those that ended."""
        observations, rewards, _, dones, self.told = self.env.step(self._actions)
        self._steps += 1
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if dones.any():
            observed, final = self.told["final_obs"], self.told["final_info"]
            total, seconds = final["cumulative_log_return"], round(time.time() - self._made, 6)
            for k in np.flatnonzero(dones):
                length = int(self._steps - self._began[k])
                infos[k] = info = Lazy((OF_ONE, (final, k)))
                info["terminal_observation"], info["TimeLimit.truncated"] = observed[k], True
                info["episode"] = {"r": float(total[k]), "l": length, "t": seconds}
            self._began[dones] = self._steps
        return observations, rewards.astype(np.float32), dones, infos

    @property
    def reset_infos(self) -> list[dict[str, Any]]:
        """What the single environments told when their running episodes began."""
        if not self.told:
            return [{} for _ in range(self.num_envs)]
        first = self.env.first_days()
        begun = {"position": 0, "log_return": 0.0, "cumulative_log_return": 0.0, "valid": True}
        return [{"date": date, "price": price, **begun} for date, price in first]

    @reset_infos.setter
    def reset_infos(self, infos: list[dict[str, Any]]) -> None:
        """Stable-Baselines3's blank list, in whose place is the property."""

    def close(self) -> None:
        """Nothing is open."""

    def get_images(self) -> Any:
        """Refused: there are none."""
        raise NotImplementedError(
            "The batched environment has no pictures; DummyVecEnv([lambda: gym.make(..., render_mode='rgb_array')]) has"
        )

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute of single environments, once for each index: spaces, `window`, `timesteps`, `hold` ...

        Raises:
            AttributeError: they have none of that name, or it is not to be had of one of N.
        """
        if attr_name.startswith("_") or attr_name in ("np_random", "np_random_seed"):
            raise AttributeError(f"{attr_name!r} belongs to no single one of the N episodes, which are one object")
        method = callable(getattr(FinMemTradingEnv, attr_name, None))
        if method:
            self._check_reader(attr_name)
        if method or attr_name == "unwrapped":
            return [getattr(self.env.single(k), attr_name) for k in self._where(indices)]
        games = self.env.games
        return [getattr(games[k % len(games)], attr_name) for k in self._where(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Refused: what a game is like is fixed when it is made."""
        raise AttributeError(f"{attr_name!r} cannot be set: the N episodes are one object; give it to make_vec_env")

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """What a method of single environments gives that only reads them, such as `ledger`, once for each index.

        Raises:
            AttributeError: it is none of READERS.
        """
        self._check_reader(method_name)
        singles = [self.env.single(k) for k in self._where(indices)]
        return [getattr(single, method_name)(*method_args, **method_kwargs) for single in singles]

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Any = None) -> list[bool]:
        """True for `Monitor`, whose part of the infos is here, else False, once for each index."""
        return [issubclass(Monitor, wrapper_class)] * len(self._where(indices))

    def _where(self, indices: int | Sequence[int] | None) -> list[int]:
        """Numbers of environments, from 0 on; IndexError for one that is not there."""
        return [range(self.num_envs)[k] for k in self._get_indices(indices)]

    def _check_reader(self, method: str) -> None:
        if method not in READERS:
            raise AttributeError(
                f"{method!r} cannot be called: the N episodes are one object; there are {list(READERS)}, and .env"
            )


def _of_one(name: str) -> Callable[[tuple[Infos, int]], Any]:
    """How the info `name` of one environment is made from those of the batch, as a single environment gives it."""

    def read(source: tuple[Infos, int]) -> Any:
        infos, k = source
        value = infos[name][k]
        return value.item() if isinstance(value, np.generic) else value

    return read


OF_ONE: Makers = {name: _of_one(name) for name in INFO}  # from the last infos of a batch, and which of its environments


def bootstrapping(learner: "BaseAlgorithm") -> None:
    """Let an on-policy learner bootstrap from all episodes that end together in one pass; leave others as they are.

    Stable-Baselines3 does so one environment after the other, which takes a tenth of a training whose episodes have
    50 decisions; what comes without a `terminal_observation` it leaves to others.
    """
    if isinstance(learner, OnPolicyAlgorithm):
        assert learner.env is not None
        learner.env = _BootstrapAtOnce(learner.env, learner)


class _BootstrapAtOnce(VecEnvWrapper):
    """Adds gamma x the value of the last observation to the last reward of the episodes that end."""

    def __init__(self, venv: VecEnv, learner: OnPolicyAlgorithm):
        super().__init__(venv)
        self.learner = learner

    def reset(self) -> Any:
        """As of what is wrapped."""
        return self.venv.reset()

    def step_wait(self) -> Any:
        """As of what is wrapped, but for the last rewards and `terminal_observation`."""
        observations, rewards, dones, infos = self.venv.step_wait()
        ended = np.flatnonzero(dones)
        if ended.size:
            last = np.array([infos[k].pop("terminal_observation") for k in ended])
            with torch.no_grad():
                values = self.learner.policy.predict_values(torch.as_tensor(last)).numpy()
            rewards[ended] += self.learner.gamma * values[:, 0]
        return observations, rewards, dones, infos
