"""Which days are played: price tables, windows of them, and the named cells."""

import csv
import hashlib
import io
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date as Date  # noqa: N812 - `date` is a column here
from functools import cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fintrading_gym.errors import DataError, brief, did_you_mean, lookup

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Table = dict[str, list[object]]  # the seven columns as they were given

TICKERS = ("TSLA", "SPY", "NVDA", "AMZN", "NFLX", "MSFT", "COIN", "AAPL", "GOOG", "META")
COLUMNS = ("date", "open", "high", "low", "close", "adj_close", "volume")
# Far beyond any market, and near enough that no ratio and no sum of such numbers overflows.
PRICE = (1e-12, 1e15)  # USD
VOLUME = (0.0, 1e18)  # shares
NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)  # no 1_000, inf, nan or True

_PACKAGE = Path(__file__).resolve().parent
# A wheel carries the tables inside the package; a checkout and an editable install keep them beside it.
DATA = _PACKAGE / "data" if (_PACKAGE / "data").is_dir() else _PACKAGE.parent / "data"


@dataclass(frozen=True, eq=False)
class Prices:
    """One ticker's daily bars, adjusted for splits and dividends (open, high and low by adj_close / close).

    The arrays are read-only: everybody who plays a ticker shares them. Equal are tables of the same sha256.
    """

    date: tuple[str, ...]  # T ISO dates, ascending
    open: Floats  # (T,) float64, USD, adjusted
    high: Floats  # (T,) float64, USD, adjusted
    low: Floats  # (T,) float64, USD, adjusted
    close: Floats  # (T,) float64, USD, adjusted: p_i of the returns
    volume: Floats  # (T,) float64, shares
    sha256: str  # of the file's bytes, or of the same table written as CSV
    source: str  # the file's name, or "DataFrame"

    def __post_init__(self) -> None:
        for column in (self.open, self.high, self.low, self.close, self.volume):
            column.flags.writeable = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Prices) and self.sha256 == other.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)


@dataclass(frozen=True)
class Window:
    """A stretch of trading days of one ticker, both ends included.

    `first` and `last` are ISO dates; on a day without trading the window starts with the next
    trading day and ends with the one before. Days before `first` are history that may be shown,
    never played.
    """

    ticker: str
    first: str
    last: str
    prices: Prices | None = field(default=None, repr=False)  # None: the bundled table of `ticker`

    def __post_init__(self) -> None:
        if not (isinstance(self.ticker, str) and re.fullmatch(r"[\x21-\x7e]{1,20}", self.ticker)):
            rule = "1 to 20 printable ASCII characters without a space"
            raise DataError(f"Ticker {self.ticker!r} is not {rule} (the ticker of a file is its name)")
        if not (self.prices is None or isinstance(self.prices, Prices)):
            raise DataError(f"Window {self}: its prices are a {type(self.prices).__name__}; give read_prices(...)")

    def load(self) -> Prices:
        """The whole table this window is cut from."""
        return bundled(self.ticker) if self.prices is None else self.prices

    def span(self) -> tuple[int, int]:
        """Row of the window's first day in `load()`, and the number of its days.

        Raises:
            DataError: the dates are malformed, lie outside the table, or leave fewer than two days.
        """
        for day in (self.first, self.last):
            if not isinstance(day, str) or iso_date(day) is None:
                raise DataError(f"Window {self}: {day!r} is not a date of the form YYYY-MM-DD")
        if self.last < self.first:
            raise DataError(f"Window {self}: its last day comes before its first")
        prices = self.load()
        date = prices.date
        if not date[0] <= self.first or not self.last <= date[-1]:
            raise DataError(f"Window {self} leaves its table: {prices.source} has prices {date[0]}..{date[-1]}")
        start, stop = bisect_left(date, self.first), bisect_right(date, self.last)
        if stop - start < 2:
            raise DataError(
                f"Window {self} holds {max(stop - start, 0)} trading days; a decision needs at least 2"
                f" ({prices.source}, from row {start + 1}, column date)"
            )
        return start, stop - start

    def __str__(self) -> str:
        return f"{self.ticker}:{self.first}:{self.last}"


# The evaluation: the paper's two test windows as it states them, and two regimes beside them.
EVALUATION: dict[str, Window] = {
    "tsla_main": Window("TSLA", "2022-10-06", "2023-04-10"),
    "tsla_ablation": Window("TSLA", "2022-06-16", "2022-12-28"),
    "spy_bear_2022": Window("SPY", "2022-01-03", "2022-10-14"),
    "nvda_bull_2023": Window("NVDA", "2023-01-03", "2023-06-30"),
}
# The windows from which the paper's printed buy-and-hold rows really come (arXiv 2311.13743: Table I, the ablations).
PAPER: dict[str, Window] = {
    "paper_tsla": Window("TSLA", "2022-10-10", "2023-04-06"),
    "paper_nflx": Window("NFLX", "2022-10-06", "2023-04-05"),
    "paper_amzn": Window("AMZN", "2022-10-10", "2023-04-06"),
    "paper_msft": Window("MSFT", "2022-10-06", "2023-04-05"),
    "paper_coin": Window("COIN", "2022-10-06", "2023-04-24"),
    "paper_tsla_ablation": Window("TSLA", "2022-06-16", "2022-12-27"),
}
CELLS: dict[str, Window] = EVALUATION | PAPER


def files_of(cells: Iterable[str]) -> list[Path]:
    """The tables of one's own among cells of the form FILE.csv:FIRST:LAST."""
    names = [cell.rsplit(":", 2)[0] for cell in cells]
    return [Path(name) for name in names if name.lower().endswith(".csv")]


def find_window(cell: str | Window) -> Window:
    """The window a user names: a cell, `TICKER:FIRST:LAST`, `FILE.csv:FIRST:LAST`, or a `Window` itself.

    Raises:
        UnknownName: no such cell or ticker.
        DataError: no window is written like that, or it does not fit its table.
    """
    if isinstance(cell, Window):
        window = cell
    elif isinstance(cell, str) and ":" in cell:
        name, *days = cell.rsplit(":", 2)
        if len(days) != 2:
            raise DataError(f"{cell!r} is neither TICKER:FIRST:LAST nor FILE.csv:FIRST:LAST nor a cell's name")
        prices = read_prices(name) if name.lower().endswith(".csv") else None
        window = Window(Path(name).stem.upper() if prices else name, days[0], days[1], prices)
    else:
        window = lookup("cell", cell, CELLS)
    window.span()
    return window


@cache
def bundled(ticker: str) -> Prices:
    """The table that ships for `ticker`.

    Raises:
        UnknownName: none does.
    """
    lookup("ticker", ticker, dict.fromkeys(TICKERS))
    return read_prices(DATA / f"{ticker}.csv")


def read_prices(source: "str | Path | pd.DataFrame") -> Prices:
    """Read and check a table of daily bars.

    Args:
        source: a CSV file or a DataFrame with the columns date, open, high, low, close, adj_close,
            volume; dates ascending, prices in one currency, OHLC split-adjusted.

    Raises:
        DataError: no table, a missing or doubled column, a row of another length, a date that is
            malformed, repeated or out of order, a value that is missing or no number, a price that is
            not positive, a negative volume, or prices outside low..high. The message names file, row
            (1 = the first below the header, blank lines not counted) and column.
    """
    if isinstance(source, str | PathLike):
        name = Path(source).name
        table, content = _read_csv(Path(source))
    else:
        name = "DataFrame"
        table, content = _read_frame(source)
    if len(table["date"]) < 2:
        raise DataError(f"{name}: {len(table['date'])} rows; a price table needs at least 2")
    date = _dates(table["date"], name)
    column = {c: _numbers(table[c], c, name, date) for c in COLUMNS[1:]}
    _check_ranges(column, name, date)
    factor = column["adj_close"] / column["close"]
    return Prices(
        date=date,
        open=column["open"] * factor,
        high=column["high"] * factor,
        low=column["low"] * factor,
        close=column["adj_close"],
        volume=column["volume"],
        sha256=hashlib.sha256(content).hexdigest(),
        source=name,
    )


def oddities(prices: Prices) -> list[str]:
    """What a playable table should perhaps not hold: sentences for a person to judge."""
    days = np.array(prices.date, "datetime64[D]")
    found = []
    for t, gap in enumerate(np.diff(days).astype(int).tolist(), 1):
        if gap > 5:  # a long weekend has 4
            found.append(f"no quotes for {gap - 1} days before {prices.date[t]}")
    found += [f"{day} is a weekend day" for day in prices.date if Date.fromisoformat(day).weekday() >= 5]
    for t in (np.flatnonzero(np.abs(np.diff(np.log(prices.close))) > np.log(1.8)) + 1).tolist():
        change = prices.close[t] / prices.close[t - 1] - 1
        found.append(f"the close moves by {change:+.0%} on {prices.date[t]}; is it adjusted for splits?")
    return found


def iso_date(value: object) -> str | None:
    """`value`, a string YYYY-MM-DD or any date or time, as an ISO date; None if it is none."""
    text = str(value)[:10] if isinstance(value, Date | np.datetime64) else value
    if isinstance(text, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
        with suppress(ValueError):  # such as 2022-02-30
            return Date.fromisoformat(text).isoformat()
    return None


def _read_csv(path: Path) -> tuple[Table, bytes]:
    try:
        content = path.read_bytes()
        lines = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True, skipinitialspace=True)
        header, *rows = [row for row in lines if row not in ([], [""])] or [[]]
    except OSError as fault:
        raise DataError(f"{path}: cannot be read ({fault.strerror})") from fault
    except (ValueError, csv.Error) as fault:  # ValueError: no UTF-8, or a path with a null byte
        raise DataError(f"{path.name!r} is no CSV table ({fault})") from fault
    _check_header(header, path.name)
    for number, row in enumerate(rows, 1):
        if len(row) != len(header):
            last = header[min(len(row), len(header)) - 1]
            raise DataError(f"{path.name}, row {number}, column {last}: {len(row)} fields, the header {len(header)}")
    return {c: [row[header.index(c)] for row in rows] for c in COLUMNS}, content


def _read_frame(frame: "pd.DataFrame") -> tuple[Table, bytes]:
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise DataError(f"A {type(frame).__name__} is no price table; give a CSV file or a DataFrame")
    _check_header([str(c) for c in frame.columns], "DataFrame")
    frame = frame[list(COLUMNS)]
    content = frame.to_csv(index=False, lineterminator="\n").encode(errors="backslashreplace")
    return {c: list(frame[c]) for c in COLUMNS}, content


def _check_header(header: list[str], name: str) -> None:
    for wanted in COLUMNS:
        if wanted not in header:
            near = did_you_mean(wanted, [c for c in header if c not in COLUMNS])
            hint = f"{near} Rename it." if near else ""
            if len(header) == 1 and header[0].count(";") >= len(COLUMNS) - 1:
                hint = " Its fields are separated by ';' and not by ','."
            needs = f"a price table has {list(COLUMNS)}, this one {brief(header)}"
            raise DataError(f"{name}: no column {wanted!r}; {needs}.{hint}")
        if header.count(wanted) > 1:
            raise DataError(f"{name}: {header.count(wanted)} columns {wanted!r}; a price table has one of each")


def _dates(values: list[object], name: str) -> tuple[str, ...]:
    dates = [iso_date(value) for value in values]
    malformed = np.array([date is None for date in dates])
    _refuse(malformed, values, name, "date", "is not a date of the form YYYY-MM-DD")
    date = tuple(filter(None, dates))
    step = np.diff(np.array(date, "datetime64[D]").astype(np.int64), prepend=-(10**9))
    _refuse(step == 0, date, name, "date", "stands twice")
    _refuse(step < 0, date, name, "date", "is earlier than the row before it")
    return date


def _numbers(values: list[object], column: str, name: str, date: tuple[str, ...]) -> Floats:
    numbers = np.array([float(text) if NUMBER.fullmatch(text) else math.nan for text in map(str, values)])
    _refuse(~np.isfinite(numbers), values, name, column, "is not a finite number", date)
    return numbers


def _check_ranges(column: dict[str, Floats], name: str, date: tuple[str, ...]) -> None:
    def outside(c: str, low: float | Floats, high: float | Floats) -> NDArray[np.bool_]:
        return (column[c] < low) | (column[c] > high)

    low, high = column["low"], column["high"]
    # Vendors round each field on its own, so a close may stand a hair outside its day's range.
    day = (low * (1 - 1e-3), high * (1 + 1e-3))
    faults = [
        *((c, outside(c, *PRICE), f"is not a positive price ({PRICE[0]:g}..{PRICE[1]:g})") for c in COLUMNS[1:6]),
        ("volume", outside("volume", *VOLUME), f"is not a number of shares ({VOLUME[0]:g}..{VOLUME[1]:g})"),
        ("low", low > high, "is above the day's high"),
        *((c, outside(c, *day), "lies outside the day's low..high") for c in ("open", "close")),
    ]
    for c, bad, complaint in faults:
        _refuse(bad, column[c].tolist(), name, c, complaint, date)


def _refuse(
    bad: NDArray[np.bool_], values: Sequence[object], name: str, column: str, complaint: str, date: Sequence[str] = ()
) -> None:
    """Raise for the first row where `bad` holds."""
    if bad.any():
        row = int(np.argmax(bad))
        on = f" ({date[row]})" if date else ""
        value = values[row]
        value = value.item() if isinstance(value, np.generic) else value
        raise DataError(f"{name}, row {row + 1}{on}, column {column}: {brief(value)} {complaint}")
