"""What happened in an episode, day by day, and every number that is computed from it."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fintrading_gym import metrics
from fintrading_gym.replies import ACTIONS


@dataclass(frozen=True, slots=True, repr=False)
class Ledger:
    """One entry a decision, oldest first; every column has the same length."""

    date: tuple[str, ...] = ()  # the day whose close the decision saw
    price: tuple[float, ...] = ()  # adjusted close of that day, USD
    action: tuple[int, ...] = ()  # 0 sell, 1 hold, 2 buy: what was carried out
    valid: tuple[bool, ...] = ()  # False: the agent gave no decision, and the environment held
    position: tuple[int, ...] = ()  # -1, 0, +1 after the decision
    log_return: tuple[float, ...] = ()  # earned until the next close, costs taken off
    market: tuple[float, ...] = ()  # log return of the stock until the next close
    overnight: tuple[float, ...] = ()  # the part of `market` that the position before the decision earns

    def __repr__(self) -> str:
        days = f", {self.date[0]}..{self.date[-1]}" if self.date else ""
        return f"Ledger({len(self.date)} decisions{days})"

    def rows(self) -> list[dict[str, Any]]:
        """The ledger as one dict a decision, ready for JSON or a table."""
        names = [f.name for f in fields(self)]
        return [dict(zip(names, row, strict=True)) for row in zip(*(getattr(self, n) for n in names), strict=True)]


def evaluate(ledger: Ledger, hold: str = "keep", cost_bps: float = 0.0) -> dict[str, float]:
    """Every number of a leaderboard row that one episode gives.

    Beside `metrics.summary`: `buy_and_hold` (cumulative log return of buying each day, same costs and
    fills), `excess` over it, `oracle` (best sequence in hindsight), `regret` to it, `luck`, and the
    shares of the decisions (`sell_share`, `hold_share`, `buy_share`).

    Args:
        ledger: of a finished or a broken-off episode.
        hold: the environment's rule, "keep" or "flat".
        cost_bps: the environment's costs.
    """
    numbers = metrics.summary(ledger.log_return, ledger.position, ledger.valid)
    market, overnight = np.array(ledger.market), np.array(ledger.overnight)
    rules: dict[str, Any] = {"overnight": overnight, "hold": hold, "cost_bps": cost_bps}
    shares = np.bincount(np.array(ledger.action, np.int64), minlength=3) / max(len(ledger.action), 1)
    always_buy = np.full(len(market), ACTIONS.index("buy"))
    buy_and_hold = metrics.cumulative_return(metrics.earned(market, always_buy, **rules)[1])
    oracle = metrics.hindsight(market, **rules)[1]
    return numbers | {
        "buy_and_hold": buy_and_hold,
        "excess": numbers["cumulative_return"] - buy_and_hold,
        "oracle": oracle,
        "regret": oracle - numbers["cumulative_return"],
        "luck": metrics.luck(ledger.log_return, market, shares, **rules),
        **{f"{name}_share": share for name, share in zip(ACTIONS, shares.tolist(), strict=True)},
    }
