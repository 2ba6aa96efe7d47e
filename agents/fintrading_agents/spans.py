"""Which days a policy may learn from: those strictly before the window that it is to play."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from fintrading_gym.errors import DataError
from fintrading_gym.windows import Window, bundled

MIN_DAYS = 60  # a quarter of a year: below it an episode of the usual 50 decisions hardly has two starts


def training_days(window: Window, tickers: Iterable[str] = ()) -> tuple[Window, ...]:
    """The window's own ticker from its table's first day to the day before the window, then other tickers' same days.

    The last close that a return of these days needs is that of their last day, so nothing in them
    depends on a price of the window.

    Args:
        window: what is to be played.
        tickers: bundled tables to learn from beside the window's own, which is skipped here.

    Raises:
        DataError: a table has fewer than MIN_DAYS such days.
        UnknownName: no such ticker.
    """
    start, _ = window.span()
    date = window.load().date[:start]
    own = [] if start < MIN_DAYS else [Window(window.ticker, date[0], date[-1], window.prices)]
    if not own:
        raise DataError(
            f"Window {window} has {start} days before it in {window.load().source}; training needs at least {MIN_DAYS}"
        )
    return (*own, *(_same_days(ticker, date[0], date[-1]) for ticker in tickers if ticker != window.ticker))


def _same_days(ticker: str, first: str, last: str) -> Window:
    date = bundled(ticker).date
    start, stop = bisect_left(date, first), bisect_right(date, last)
    if stop - start < MIN_DAYS:
        raise DataError(
            f"{ticker} has {stop - start} days in {first}..{last}; training on it needs at least {MIN_DAYS}"
        )
    return Window(ticker, date[start], date[stop - 1])
