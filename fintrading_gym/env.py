"""The rules of the game: one decision a day on one stock."""

from typing import Any, cast

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.error import CustomSpaceError, ResetNeeded
from gymnasium.vector.utils import create_shared_memory

from fintrading_gym import masking
from fintrading_gym import observations as view
from fintrading_gym.errors import brief, lookup
from fintrading_gym.ledger import Ledger
from fintrading_gym.metrics import HOLD, fintrading_score
from fintrading_gym.observations import vector_view
from fintrading_gym.replies import ACTIONS, parse
from fintrading_gym.windows import Floats, Window, find_window
from fintrading_gym.worlds import find_world

# "text" stands for whatever a model may reply; a sampled action is printable ASCII and no decision.
ASCII = "".join(map(chr, range(32, 127))) + "\n\t"

OBSERVATION = {
    "both": "Dict(text, vector)",
    "text": "str",
    "vector": "float32 array",
}
ACTION = {"index": "Discrete(3): 0 sell, 1 hold, 2 buy", "text": "a model's raw reply"}
HOLD_RULES = {"keep": "hold keeps the position", "flat": "hold closes it for the day, the paper's eq. 7"}
FILLS = {"close": "at the close just seen", "next_open": "at the next day's open"}
STARTS = {"first": "the window's first day", "random": "a day drawn inside the window"}


class FinMemTradingEnv(gym.Env[Any, Any]):
    """One decision a day, buy, sell or hold, on one stock over a window of real daily prices.

    ## Description
    The single-stock game of FinMem (arXiv 2311.13743, eq. 7). On day i the agent sees the bars up to
    and including day i's close, p_i (adjusted for splits and dividends), and decides; the position it
    takes earns the log return to the next close.

    What is known and done when, with `fill="close"` and `fill="next_open"`:

    | moment | close | next_open |
    |---|---|---|
    | close of day i | p_i is seen, the decision is taken and fills at p_i | p_i is seen, the decision is taken |
    | open of day i+1 | | the decision fills; the old position has earned close i .. open i+1 |
    | close of day i+1 | the position has earned ln(p_{i+1}/p_i) | the new position has earned open i+1 .. close i+1 |

    ## Action Space
    `action="index"`: `Discrete(3)`, 0 sell, 1 hold, 2 buy. Buy sets the position to +1, sell to -1
    (from any position, flat included); hold keeps it (`hold="keep"`) or closes it for the day
    (`hold="flat"`). `None` says that the agent has no decision.

    `action="text"`: a model's reply, as text or as an API message, read by `fintrading_gym.replies`.

    Where there is no decision the environment holds, and says so in `info["valid"]`.

    ## Observation Space
    `observation="vector"`: `Box(-10, 10, (5 * lookback + 12,), float32)`. Columns, with the default
    `lookback=7`; `_k` means k trading days ago, oldest first:

    | column | name | what it holds |
    |---|---|---|
    | 5 (6 - k) | `open_k` | 10 ln(open / today's close) |
    | 5 (6 - k) + 1 | `high_k` | 10 ln(high / today's close) |
    | 5 (6 - k) + 2 | `low_k` | 10 ln(low / today's close) |
    | 5 (6 - k) + 3 | `close_k` | 10 ln(close / today's close) |
    | 5 (6 - k) + 4 | `volume_k` | ln((1 + volume) / (1 + median volume of the days shown)) |
    | 35 | `momentum_3` | 10 x log return over 3 days |
    | 36 | `return_5` | 10 x log return over 5 days |
    | 37 | `return_20` | 5 x log return over 20 days |
    | 38 | `history` | earlier days in the table, at most 20, / 20; what needs more days than there are is 0 |
    | 39 | `position` | -1 short, 0 flat, +1 long |
    | 40 | `cumulative_return` | 5 x sum of log returns earned in this episode |
    | 41 | `decided` | decisions taken so far, at most 5, / 5 |
    | 42 .. 46 | `decision_5` .. `decision_1` | -1 sell, 0 hold or none yet, +1 buy |

    Numbers beyond -10..10 are clipped. The level of prices and volumes, the ticker and the date are
    not state and are left out. `observation="text"`: the same state as ASCII text, with ticker, date
    and prices as they are; `detail="brief"` leaves the table of bars out. `observation="both"`:
    `Dict(text, vector)`.

    `identity` says how much of that the text view hides. With "coarse" the bars of both views, and the
    agent's own return in them, are rounded; at every other level the vector view is the same to the bit.

    ## Rewards
    `position_i * ln(p_{i+1} / p_i) - cost_bps * 1e-4 * |change of position|`; with
    `fill="next_open"`: `position_{i-1} * ln(o_{i+1} / p_i) + position_i * ln(p_{i+1} / o_{i+1})`
    less the same costs.

    ## Starting State
    Flat, at the close of the window's first day, or with `start="random"` of a day drawn so that the
    episode fits into the window (an episode as long as the window leaves one such day). The last
    position is marked to market, not closed.

    ## Episode End
    Truncation after `timesteps` decisions or on the window's last day: the market goes on, so nothing
    is terminal, and learners bootstrap. A further step raises `gymnasium.error.ResetNeeded`. Shorten an
    episode by `timesteps`: a `TimeLimit` around it would cut off the ledger and the score.

    ## Information
    `reset` and `step` tell of the day that the observation shows: `date`, `price` (adjusted close,
    USD), `position` (held into it), `log_return` (earned into it), `cumulative_log_return`, `valid`.
    Where `valid` is False there was no decision, and `reason` says why: a key of `replies.REASONS`, or
    "none" for `None`. The last step adds `ledger` (`fintrading_gym.ledger.Ledger`) and `score`
    (`fintrading_gym.metrics.fintrading_score`). All of it is true at every level of `identity`, as rewards
    are: it is for whoever keeps the books, not for the agent.

    ## Arguments
    * `cell`: a cell's name, `"TICKER:FIRST:LAST"`, `"FILE.csv:FIRST:LAST"` or a `Window`
    * `persona`: `risk_seeking`, `risk_averse`, `adaptive`: words in the text view, and nothing else
    * `timesteps`: decisions in an episode; `None`: to the window's end
    * `observation`: `both`, `text`, `vector`
    * `action`: `index`, `text`
    * `hold`: `keep`, `flat`
    * `cost_bps`: cost of changing the position by 1, in basis points
    * `fill`: `close`, `next_open`
    * `start`: `first`, `random`
    * `identity`: `real`, `names` (ticker hidden), `names+dates` (and dates), `masked` (and the level of
      prices and volumes), `coarse` (and rounded); see `fintrading_gym.masking`
    * `world`: `real`, or a counterfactual one: `mirror`, `shuffled`, `reversed`, `renamed`, with a seed as
      in `shuffled:1`; see `fintrading_gym.worlds`
    * `lookback`: days of bars shown
    * `detail`: `full`, `brief`
    * `render_mode`: `ansi` (the last step as a line), `rgb_array` (chart), `human` (prints the line)

    ## Version History
    * v0: first release
    """

    _first: int  # the day of the episode's first decision, counted from the window's first
    _day: int  # the day that is shown
    _end: int  # the day that ends the episode; _day == _end: it is over, or has not begun
    _position: int
    _cumulative: float
    _recent: bytes  # the last five decisions as the vector view shows them
    _log: list[tuple[int, bool, int, float]]  # action, valid, position, earned

    metadata = {"render_modes": ["ansi", "rgb_array", "human"], "render_fps": 4}  # noqa: RUF012 - Gymnasium's own form

    def __init__(
        self,
        cell: str | Window = "tsla_main",
        persona: str = "adaptive",
        timesteps: int | None = 50,
        observation: str = "both",
        action: str = "index",
        hold: str = "keep",
        cost_bps: float = 0.0,
        fill: str = "close",
        start: str = "first",
        identity: str = "real",
        world: str = "real",
        lookback: int = 7,
        detail: str = "full",
        render_mode: str | None = None,
    ):
        self.window = find_world(find_window(cell), world)
        for kind, name, table in (
            ("persona", persona, view.PERSONAS),
            ("observation", observation, OBSERVATION),
            ("action", action, ACTION),
            ("hold rule", hold, HOLD_RULES),
            ("fill", fill, FILLS),
            ("start", start, STARTS),
            ("detail", detail, dict.fromkeys(view.DETAILS)),
        ):
            lookup(kind, name, table)
        identity = masking.find_identity(identity)
        if render_mode is not None:
            lookup("render mode", render_mode, dict.fromkeys(self.metadata["render_modes"]))
        positive("lookback", lookback)
        if not isinstance(cost_bps, int | float | np.number) or isinstance(cost_bps, bool) or not 0 <= cost_bps <= 1e4:
            raise ValueError(f"cost_bps={brief(cost_bps)} is not a number of basis points, 0..10000")
        # Below 30 attributes an instance shares its class's layout, and step() is 5 % faster.
        self.persona, self.observation, self.action = persona, observation, action
        self.hold, self.cost_bps, self.start, self.render_mode = hold, float(cost_bps), start, render_mode

        first, days = self.window.span()
        self.timesteps = days - 1 if timesteps is None else min(positive("timesteps", timesteps), days - 1)
        prices = self.window.load()
        inside = slice(first, first + days)
        self._dates: tuple[str, ...] = prices.date[inside]
        self._close: list[float] = prices.close[inside].tolist()
        market, overnight = market_returns(prices.open[inside], prices.close[inside], fill)
        self._market: list[float] = market.tolist()  # plain floats: indexing an array in step() costs ten times as much
        self._overnight: list[float] = overnight.tolist()
        self._intraday: list[float] = (market - overnight).tolist()
        self.sight = view.Sight(self.window, lookback, detail, identity)
        self._rows = list(view.market_rows(masking.bars(self.window, identity), lookback))
        self._texts = view.market_texts(self.sight) if observation != "vector" or identity == "coarse" else ()
        self.observation_space = _observation_space(observation, lookback)
        self.action_space = spaces.Discrete(3) if action == "index" else spaces.Text(1 << 16, charset=ASCII)
        self._begin(0, 0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, flat; see the class."""
        super().reset(seed=seed)
        starts = len(self._dates) - self.timesteps  # days of the window that leave room for the episode
        self._begin(int(self.np_random.random() * starts) if self.start == "random" else 0, self.timesteps)
        info = {
            "date": self._dates[self._day],
            "position": 0,
            "price": self._close[self._day],
            "log_return": 0.0,
            "cumulative_log_return": 0.0,
            "valid": True,
        }
        if self.render_mode == "human":
            self.render()
        return self._observe(self._day), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Decide on the day shown, and see the next; see the class.

        Raises:
            ResetNeeded: the episode is over or was never begun.
            ValueError: the action is neither an index 0, 1, 2 nor None, or with action="text" not a reply.
        """
        day = self._day
        if day == self._end:
            raise ResetNeeded("The episode is over (or not begun): call reset() before step()")
        if self.action == "index" and type(action) is int and 0 <= action <= 2:
            index, reason = action, None
        else:
            index, reason = self._read(action)
        before, position = self._position, index - 1
        if index == HOLD:
            position = before if self.hold == "keep" else 0
        earned = before * self._overnight[day] + position * self._intraday[day]
        if position != before and self.cost_bps:
            earned -= self.cost_bps * 1e-4 * abs(position - before)

        self._day = day = day + 1
        self._position = position
        self._cumulative = cumulative = self._cumulative + earned
        self._recent = self._recent[4:] + view.SIGNS[index]  # a float32 each
        self._log.append((index, reason is None, position, earned))

        info = {
            "date": self._dates[day],
            "position": position,
            "price": self._close[day],
            "log_return": earned,
            "cumulative_log_return": cumulative,
            "valid": reason is None,
        }
        if reason is not None:
            info["reason"] = reason
        truncated = day == self._end
        if truncated:
            info["ledger"] = ledger = self.ledger()
            info["score"] = fintrading_score(ledger.log_return, ledger.valid)
        if self.render_mode == "human":
            self.render()
        if self._texts:
            observation = self._observe(day)
        else:
            observation = vector_view(self._rows[day], position, cumulative, day - self._first, self._recent)
        return observation, earned, False, truncated, info

    def ledger(self) -> Ledger:
        """The running episode's ledger so far."""
        action, valid, position, earned = zip(*self._log, strict=True) if self._log else ((), (), (), ())
        played = slice(self._first, self._day)
        return Ledger(
            date=self._dates[played],
            price=tuple(self._close[played]),
            action=action,
            valid=valid,
            position=position,
            log_return=earned,
            market=tuple(self._market[played]),
            overnight=tuple(self._overnight[played]),
        )

    def render(self) -> Any:
        """The last step as a line (`ansi`, `human`) or the episode as a picture (`rgb_array`)."""
        if self.render_mode is None:
            raise ValueError("render() needs a render mode: gym.make(..., render_mode='ansi' | 'rgb_array' | 'human')")
        from fintrading_gym import render

        if self.render_mode == "rgb_array":
            shown = slice(self._first, self._day + 1)
            return render.picture(str(self.window), self._dates[shown], self._close[shown], self.ledger())
        line = render.line(self._dates[self._day], self._close[self._day], self._position, self._cumulative, self._log)
        if self.render_mode == "human":
            print(line)
            return None
        return line

    def _begin(self, day: int, timesteps: int) -> None:
        self._first = self._day = day
        self._end = day + timesteps
        self._position = 0
        self._cumulative = 0.0
        self._recent = view.NONE_YET
        self._log = []
        if self._texts and self.sight.identity not in masking.DATED:  # these count from the episode's first day
            self._texts = view.market_texts(self.sight, day)

    def _read(self, action: Any) -> tuple[int, str | None]:
        """The action as an index, and why it is no decision (None: it is one)."""
        if self.action == "text" and action is not None:
            decision = parse(action)
            if decision.reason == "error":
                allowed = "text, a message (of an API's response: choices[0].message), or None for none"
                raise ValueError(f"action={brief(action)} is no reply; there are {allowed}")
            return (HOLD, decision.reason) if decision.action is None else (ACTIONS.index(decision.action), None)
        if action is None:
            return HOLD, "none"
        try:
            index = action.__index__()  # int, numpy integers and 0-d integer arrays; no floats, no words
        except (AttributeError, TypeError):
            index = -1
        if not 0 <= index <= 2:
            raise ValueError(
                f"action={brief(action)} is no decision; there are 0 sell, 1 hold, 2 buy, or None for none"
            )
        return index, None

    def _observe(self, day: int) -> Any:
        cumulative = masking.own_return(self._cumulative, self.sight.identity)
        state = (self._position, cumulative, day - self._first, self._recent)
        if self.observation == "vector":
            return vector_view(self._rows[day], *state)
        text = view.text_view(self._texts[day], view.PERSONAS[self.persona], self.timesteps, *state)
        return text if self.observation == "text" else {"text": text, "vector": vector_view(self._rows[day], *state)}


def market_returns(opens: Floats, closes: Floats, fill: str) -> tuple[Floats, Floats]:
    """Log returns (days - 1,) of the stock to the next close, and the part that comes before the fill."""
    market = np.log(closes[1:] / closes[:-1])
    overnight = np.log(opens[1:] / closes[:-1]) if fill == "next_open" else np.zeros_like(market)
    return market, overnight


class TextSpace(spaces.Text):
    """Text that Gymnasium's asynchronous environments refuse to share.

    Their shared memory gives zeros for text, for ever and without a word (seen in 1.4.0).
    """


@create_shared_memory.register(TextSpace)
def _refuse_shared_text(space: TextSpace, n: int = 1, ctx: Any = None) -> Any:
    raise CustomSpaceError("text cannot be shared: gym.make_vec(..., vector_kwargs={'shared_memory': False})")


def _observation_space(observation: str, lookback: int) -> spaces.Space[Any]:
    vector = spaces.Box(-view.LIMIT, view.LIMIT, (len(view.columns(lookback)),), np.float32)
    text = TextSpace(view.text_limit(lookback), charset=ASCII)
    both = spaces.Dict({"text": text, "vector": vector})
    return cast("spaces.Space[Any]", {"both": both, "text": text, "vector": vector}[observation])


def positive(name: str, value: Any) -> int:
    """A keyword that counts something, as an int; ValueError if it is none."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}={value!r} is not a whole number >= 1" + (" or None" if name == "timesteps" else ""))
    return int(value)
