"""What masking cannot do: how many stretches of prices tell by themselves which stock they are, and when.

    python benchmarks/identify.py [--json FILE]

For an adversary who holds the ten bundled tables: the share of all stretches of 7 (or 20) days whose numbers, as
they are shown, fit one stock and one date alone. Names and dates are hidden throughout. With `--json` the figures
are written to a file; `results/identify.json` is how they stood.
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from rich.console import Console
from rich.table import Table

from fintrading_gym import masking
from fintrading_gym.observations import TRENDS
from fintrading_gym.windows import TICKERS, Floats, Prices, Window, bundled

BARS = ("open", "high", "low", "close")
Shown = Callable[[Prices], Floats]  # (stretches, numbers): what is seen of each stretch


def closes(days: int, level: float | None, step: float) -> Shown:
    """`days` closes, with `level` scaled so that the first is that, to the nearest multiple of `step`."""

    def shown(prices: Prices) -> Floats:
        seen = sliding_window_view(prices.close, days)
        return np.round((seen if level is None else level * seen / seen[:, :1]) / step)

    return shown


def view(identity: str, with_volume: bool) -> Shown:
    """The 7 bars of the text view at a level of identity, as it prints them: prices to 0.01, volumes to 0.0001."""

    def shown(prices: Prices) -> Floats:
        bars = masking.bars(Window("ANY", prices.date[0], prices.date[-1], prices), identity).load()
        columns = [sliding_window_view(getattr(bars, name), 7) for name in BARS]
        first = columns[BARS.index("close")][:, :1]
        seen = [np.round(masking.FIRST_CLOSE * column / first, 2) for column in columns]
        volume = sliding_window_view(bars.volume, 7)
        if with_volume:
            seen.append(np.round(volume / np.median(volume, axis=1, keepdims=True), 4))
        return np.concatenate(seen, axis=1)

    return shown


def brief(identity: str) -> Shown:
    """The three returns of the brief text view, as it prints them: to 0.01 %."""

    def shown(prices: Prices) -> Floats:
        close = masking.bars(Window("ANY", prices.date[0], prices.date[-1], prices), identity).load().close
        longest = max(TRENDS.values())
        returns = [close[longest:] / close[longest - back : -back] - 1 for back in TRENDS.values()]
        return np.round(10_000 * np.column_stack(returns))

    return shown


ROWS: dict[str, Shown] = {
    "one close, to the cent": closes(1, None, 0.01),
    "one close, to the dollar": closes(1, None, 1.0),
    "7 closes, to the cent": closes(7, None, 0.01),
    "7 closes, the first 100, to 0.01": closes(7, 100, 0.01),
    "7 closes, the first 100, to 0.1": closes(7, 100, 0.1),
    "7 closes, the first 100, to 0.5": closes(7, 100, 0.5),
    "7 closes, the first 100, to 1": closes(7, 100, 1.0),
    "7 closes, the first 100, to 2": closes(7, 100, 2.0),
    "20 closes, the first 100, to 1": closes(20, 100, 1.0),
    "the masked view's 7 bars": view("masked", with_volume=True),
    "the coarse view's 7 bars without volumes": view("coarse", with_volume=False),
    "the coarse view's 7 bars": view("coarse", with_volume=True),
    "the masked brief view's three returns": brief("masked"),
    "the coarse brief view's three returns": brief("coarse"),
}


def unique(shown: Shown) -> float:
    """Share of all stretches of all tickers that no other looks like."""
    seen = [row.tobytes() for ticker in TICKERS for row in np.ascontiguousarray(shown(bundled(ticker)))]
    count = Counter(seen)
    return sum(count[row] == 1 for row in seen) / len(seen)


def main() -> None:
    """Print the table, and write it."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--json", type=Path, help="write the figures to this file")
    out = arguments.parse_args().json
    shares = {name: unique(shown) for name, shown in ROWS.items()}
    table = Table("what is shown", "tells stock and date", title=f"Among {len(TICKERS)} stocks, 2021-01..2023-06")
    for name, share in shares.items():
        table.add_row(name, f"{share:.1%}")
    Console().print(table)
    if out:
        out.write_text(json.dumps(shares, indent=1) + "\n")


if __name__ == "__main__":
    main()
