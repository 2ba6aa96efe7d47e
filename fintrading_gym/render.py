"""What a person sees of an episode: one line a day, or a chart."""

import numpy as np
from numpy.typing import NDArray

from fintrading_gym.errors import MissingExtra
from fintrading_gym.ledger import Ledger
from fintrading_gym.observations import POSITIONS
from fintrading_gym.replies import ACTIONS


def line(date: str, price: float, position: int, cumulative: float, log: list[tuple[int, bool, int, float]]) -> str:
    """One day as a line: date, close, position, and what the last decision was and earned."""
    text = f"{date}  close {price:10.2f}  {POSITIONS[position]:5}  total {cumulative:+.4f}"
    if log:
        action, valid, _, earned = log[-1]
        text += f"  after {ACTIONS[action]:4} {earned:+.4f}" + ("" if valid else "  (no decision)")
    return text


def picture(title: str, date: tuple[str, ...], price: list[float], ledger: Ledger) -> NDArray[np.uint8]:
    """The episode so far as an RGB array (480, 720, 3): prices with buys and sells, cumulative return below.

    Args:
        title: stands above the chart.
        date: the days shown, one more than decisions.
        price: their adjusted closes, USD.
        ledger: the decisions.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as fault:
        raise MissingExtra("render_mode='rgb_array'", "report") from fault
    figure = Figure(figsize=(7.2, 4.8), dpi=100, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    days = np.arange(len(date))
    above.plot(days, price, color="0.4", linewidth=1)
    for word, marker, colour in (("buy", "^", "tab:green"), ("sell", "v", "tab:red")):
        at = np.flatnonzero(np.array(ledger.action) == ACTIONS.index(word))
        above.scatter(at, np.array(price)[at], marker=marker, c=colour, s=24, label=word, zorder=2)
    above.set(title=title, ylabel="adjusted close, USD")
    above.legend(loc="upper right")
    below.plot(days, np.cumsum([0.0, *ledger.log_return]), color="tab:blue")
    below.axhline(0, color="0.8", linewidth=0.8)
    below.set(ylabel="log return", xlabel=f"trading days from {date[0]}, now {date[-1]}")
    canvas.draw()  # type: ignore[no-untyped-call]
    return np.array(canvas.buffer_rgba())[..., :3].copy()  # type: ignore[no-untyped-call]
