"""Price tables from Yahoo Finance, through yfinance: the one place that reaches for the network."""

import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fintrading_gym.errors import DataError, MissingExtra
from fintrading_gym.windows import COLUMNS, Prices, iso_date, read_prices

if TYPE_CHECKING:
    import pandas as pd


def fetch(ticker: str, first: str, last: str, path: Path) -> Prices:
    """Write the table of `ticker` from day `first` to `last` (ISO dates, both included) to `path`, and read it.

    Raises:
        MissingExtra: yfinance is not installed.
        DataError: the ticker or a date is malformed, no quotes came back, they are no valid table, or
            `path` cannot be written. No file is left behind.
    """
    try:
        import yfinance
    except ImportError as fault:
        raise MissingExtra("fintrading data fetch", "fetch") from fault
    if ticker.replace(",", " ").split() != [ticker]:  # yfinance would take several
        raise DataError(f"{ticker!r} is not one ticker, such as 'TSLA'")
    for day in (first, last):
        if iso_date(day) is None:
            raise DataError(f"{day!r} is not a date of the form YYYY-MM-DD")
    if not first <= last < "9999-12-31":
        raise DataError(f"{first}..{last} is no stretch of days: first <= last < 9999-12-31")
    end = datetime.date.fromisoformat(last) + datetime.timedelta(days=1)  # yfinance leaves the end day out
    try:
        frame = yfinance.download(ticker, start=first, end=str(end), auto_adjust=False, progress=False)
    except OSError as fault:
        raise DataError(f"Yahoo Finance cannot be asked for {ticker!r} ({' '.join(str(fault).split())})") from fault
    if frame is None or frame.empty:
        raise DataError(f"Yahoo Finance gave no quotes of {ticker!r} for {first}..{last}")
    table = as_table(frame)
    try:
        read_prices(table)
    except DataError as fault:
        raise DataError(f"Yahoo Finance's quotes of {ticker!r} cannot be played: {fault}") from fault
    try:
        path.write_bytes(table.to_csv(index=False, lineterminator="\n").encode())
    except OSError as fault:
        raise DataError(f"{path}: cannot be written ({fault.strerror})") from fault
    return read_prices(path)


def as_table(frame: "pd.DataFrame") -> "pd.DataFrame":
    """The columns of `windows.COLUMNS` from what `yfinance.download(..., auto_adjust=False)` returns."""
    if frame.columns.nlevels > 1:  # (field, ticker) since yfinance 0.2.51
        frame = frame.droplevel(1, axis=1)
    table = frame.rename(columns=lambda name: str(name).lower().replace(" ", "_"))
    table = table.rename_axis(index="date").reset_index()
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        raise DataError(f"Yahoo Finance's table has no {missing}; it has {list(table.columns)}")
    table = table[list(COLUMNS)]
    prices = list(COLUMNS[1:6])
    # Yahoo's prices are float32; eight digits keep all of one, of a penny stock too.
    return table.assign(date=table["date"].dt.strftime("%Y-%m-%d"), **table[prices].map(lambda p: float(f"{p:.8g}")))
