"""Price tables from Yahoo Finance, through yfinance: the one place that reaches for the network."""

import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fintrading_gym.errors import DataError, MissingExtra
from fintrading_gym.windows import COLUMNS, Prices, read_prices

if TYPE_CHECKING:
    import pandas as pd


def fetch(ticker: str, first: str, last: str, path: Path) -> Prices:
    """Write the table of `ticker` from day `first` to `last` (ISO dates, both included) to `path`, and read it.

    Raises:
        MissingExtra: yfinance is not installed.
        DataError: a date is malformed, no quotes came back, or they are no valid table; nothing is written.
    """
    try:
        import yfinance
    except ImportError as fault:
        raise MissingExtra("fintrading data fetch", "fetch") from fault
    try:
        # yfinance leaves the end day out.
        end = datetime.date.fromisoformat(last) + datetime.timedelta(days=1)
        begin = datetime.date.fromisoformat(first)
    except ValueError as fault:
        raise DataError(f"{first!r}..{last!r}: {fault}; dates have the form YYYY-MM-DD") from fault
    frame = yfinance.download(ticker, start=str(begin), end=str(end), auto_adjust=False, progress=False)
    if frame is None or frame.empty:
        raise DataError(f"Yahoo Finance gave no quotes of {ticker!r} for {first}..{last}")
    table = as_table(frame)
    read_prices(table)
    table.to_csv(path, index=False)
    return read_prices(path)


def as_table(frame: "pd.DataFrame") -> "pd.DataFrame":
    """The columns of `windows.COLUMNS` from what `yfinance.download(..., auto_adjust=False)` returns."""
    if frame.columns.nlevels > 1:  # (field, ticker) since yfinance 0.2.51
        frame = frame.droplevel(1, axis=1)
    table = frame.rename(columns=lambda name: str(name).lower().replace(" ", "_"))
    table = table.rename_axis(index="date").reset_index()
    table["date"] = table["date"].dt.strftime("%Y-%m-%d")
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        raise DataError(f"Yahoo Finance's table has no {missing}; it has {list(table.columns)}")
    prices = list(COLUMNS[1:6])
    table[prices] = table[prices].round(6)
    return table[list(COLUMNS)]
