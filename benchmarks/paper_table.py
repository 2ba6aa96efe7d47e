"""The FinMem paper's buy-and-hold rows beside ours, and how lucky its published TSLA rows had to be.

Run: python benchmarks/paper_table.py [--json FILE]
"""

import argparse
import json
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from fintrading_gym.metrics import luck, paper_summary
from fintrading_gym.windows import CELLS

NAMES = ("cumulative_return", "sharpe_ratio", "daily_volatility", "annualized_volatility", "max_drawdown")
SHORT = ("CR %", "Sharpe", "DV %", "AV %", "MDD %")

# arXiv 2311.13743: the rows "Buy and Hold" of Table I and of the ablations.
PRINTED = {
    "paper_tsla": (-18.6312, -0.5410, 4.4084, 69.9818, 55.3208),
    "paper_nflx": (35.5111, 1.4109, 3.1964, 50.7410, 20.9263),
    "paper_amzn": (-10.7739, -0.4980, 2.7697, 43.9674, 33.6828),
    "paper_msft": (14.6949, 0.8359, 2.2326, 35.4411, 15.0097),
    "paper_coin": (-30.0071, -0.5150, 6.7517, 107.1795, 60.5084),
    "paper_tsla_ablation": (-66.9497, -2.0845, 3.8050, 60.4020, 67.3269),
}
# Table I, TSLA: the agent's cumulative return and daily volatility, both in per cent.
TSLA_ROWS = {
    "FinMem": (61.7758, 2.9522),
    "Generative Agents": (13.4636, 2.8774),
    "FinGPT": (-7.4554, 3.4145),
    "A2C": (13.7067, 4.4096),
    "PPO": (1.2877, 4.4110),
    "DQN": (33.3393, 4.4027),
}


def market(cell: str) -> np.ndarray:
    """The cell's log returns, one fewer than its prices."""
    window = CELLS[cell]
    first, days = window.span()
    return np.diff(np.log(window.load().close[first : first + days]))


def buy_and_hold(cell: str) -> tuple[float, ...]:
    """Our five figures of a long position held through the cell, as the paper computes them."""
    returns = market(cell)
    figures = paper_summary(returns, len(returns) + 1)
    return tuple(figures[name] for name in NAMES)


def tsla_luck(cumulative: float, volatility: float) -> tuple[float, float]:
    """Activity of a published TSLA row, and the share of random policies of that activity that did as well.

    The paper's agents are flat on a hold day, so (DV / DV of buy and hold)^2 is about the share of days with a
    position; buys and sells are taken as equally frequent, which no table of the paper says.
    """
    active = min((volatility / PRINTED["paper_tsla"][2]) ** 2, 1.0)
    returns = market("paper_tsla")
    earned = np.full(len(returns), cumulative / 100 / len(returns))
    return active, luck(earned, returns, (active / 2, 1 - active, active / 2), hold="flat")


def main() -> int:
    """Print both tables; 1 if a figure is off by 1e-4 or more."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--json", type=Path, help="write the figures to this file")
    out = arguments.parse_args().json
    console, result = Console(width=140), {"buy_and_hold": {}, "tsla": {}}
    worst = 0.0
    table = Table("cell", "whose", *SHORT, title="Buy and hold: the paper's printed figures and ours")
    for cell, printed in PRINTED.items():
        ours = buy_and_hold(cell)
        worst = max(worst, *(abs(a - b) for a, b in zip(printed, ours, strict=True)))
        table.add_row(cell, "paper", *(f"{x:.4f}" for x in printed))
        table.add_row("", "ours", *(f"{x:.4f}" for x in ours), end_section=True)
        result["buy_and_hold"][cell] = dict(zip(NAMES, ours, strict=True))
    console.print(table)
    console.print(f"largest difference of the thirty figures: {worst:.1e}")

    table = Table("TSLA row of Table I", "CR %", "days active", "luck", title="How often a random policy did as well")
    for name, (cumulative, volatility) in TSLA_ROWS.items():
        active, share = tsla_luck(cumulative, volatility)
        table.add_row(name, f"{cumulative:.4f}", f"{active:.0%}", f"{share:.3f}")
        result["tsla"][name] = {"cumulative_return": cumulative, "active": active, "luck": share}
    console.print(table)
    console.print("luck: share of 100,000 random policies, as many days active, buys and sells alike; FinMem's row")
    console.print("is the best of three personas picked on the test window, which multiplies its luck by about three.")
    if out:
        out.write_text(json.dumps(result | {"largest_difference": worst}, indent=1) + "\n")
    return int(worst >= 1e-4)


if __name__ == "__main__":
    raise SystemExit(main())
