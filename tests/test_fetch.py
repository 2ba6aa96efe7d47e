"""Fetching a table: a recorded frame in place of the network."""

import inspect
import pickle
import subprocess
import sys

import pandas as pd
import pytest

from fintrading_gym.errors import DataError, MissingExtra
from fintrading_gym.fetch import as_table, fetch
from fintrading_gym.windows import COLUMNS, find_window, read_prices

yfinance = pytest.importorskip("yfinance")
DOWNLOAD = yfinance.download  # the real one; the tests put another in its place

# What `yfinance.download("TSLA", start="2022-10-06", end="2022-10-12", auto_adjust=False)` of 1.7.0 returns:
# float32 prices as float64, int64 volumes, days as datetime64[s] without a time zone.
FIELDS = ["Adj Close", "Close", "High", "Low", "Open", "Volume"]
DAYS = ["2022-10-06", "2022-10-07", "2022-10-10", "2022-10-11"]
QUOTES = {
    "Adj Close": [238.1300048828125, 223.07000732421875, 222.9600067138672, 216.5],
    "Close": [238.1300048828125, 223.07000732421875, 222.9600067138672, 216.5],
    "High": [244.5800018310547, 234.57000732421875, 226.99000549316406, 225.75],
    "Low": [235.35000610351562, 222.02000427246094, 218.36000061035156, 215.0],
    "Open": [239.44000244140625, 233.94000244140625, 223.92999267578125, 220.9499969482422],
    "Volume": [69298400, 83916800, 67925000, 77013200],
}


def recorded(days=DAYS, quotes=QUOTES, ticker="TSLA"):
    columns = pd.MultiIndex.from_product([list(quotes), [ticker]], names=["Price", "Ticker"])
    index = pd.DatetimeIndex(days, name="Date").as_unit("s")
    frame = pd.DataFrame({(name, ticker): values for name, values in quotes.items()}, index=index)
    return frame.set_axis(columns, axis=1)


@pytest.fixture
def yahoo(monkeypatch):
    """Answers every download with `answer` and notes what was asked for."""

    class Yahoo:
        answer = recorded()
        asked = None

        def download(self, tickers, **keywords):
            assert self.asked is None, "asked twice"
            self.asked = {"tickers": tickers, **keywords}
            if isinstance(self.answer, BaseException):
                raise self.answer
            return self.answer

    made = Yahoo()
    monkeypatch.setattr(yfinance, "download", made.download)
    return made


@pytest.fixture
def refused(tmp_path):
    """The one line with which a fetch is refused; no file was written."""

    def refused(ticker="TSLA", first=DAYS[0], last=DAYS[-1], path=None, kind=DataError):
        with pytest.raises(kind) as caught:
            fetch(ticker, first, last, path or tmp_path / "out.csv")
        assert type(caught.value) is kind
        assert list(tmp_path.iterdir()) == []
        message = str(caught.value)
        assert len(message.splitlines()) == 1
        return message

    return refused


def changed(row, field, value):
    frame = recorded()
    frame.loc[frame.index[row], (field, "TSLA")] = value
    return frame


def test_the_recorded_frame_has_the_shape_that_yfinance_gives():
    frame = recorded()
    assert frame.columns.names == ["Price", "Ticker"]
    assert frame.columns.tolist() == [(name, "TSLA") for name in FIELDS]
    assert frame.index.name == "Date"
    assert str(frame.index.dtype) == "datetime64[s]"
    assert [str(kind) for kind in frame.dtypes] == ["float64"] * 5 + ["int64"]


def test_a_fetched_file_is_a_price_table_that_plays(yahoo, tmp_path):
    path = tmp_path / "tsla.csv"
    prices = fetch("TSLA", DAYS[0], DAYS[-1], path)
    assert path.read_text() == (
        "date,open,high,low,close,adj_close,volume\n"
        "2022-10-06,239.44,244.58,235.35001,238.13,238.13,69298400\n"
        "2022-10-07,233.94,234.57001,222.02,223.07001,223.07001,83916800\n"
        "2022-10-10,223.92999,226.99001,218.36,222.96001,222.96001,67925000\n"
        "2022-10-11,220.95,225.75,215.0,216.5,216.5,77013200\n"
    )
    assert prices == read_prices(path)
    assert prices.date == tuple(DAYS)
    window = find_window(f"{path}:2022-10-07:2022-10-11")
    assert window.ticker == "TSLA"
    assert window.span() == (1, 3)


def test_the_last_day_is_included_though_yfinance_leaves_the_end_out(yahoo, tmp_path):
    fetch("TSLA", "2022-10-06", "2022-10-31", tmp_path / "out.csv")
    assert yahoo.asked == {
        "tickers": "TSLA",
        "start": "2022-10-06",
        "end": "2022-11-01",
        "auto_adjust": False,
        "progress": False,
    }


def test_what_is_asked_for_exists_in_the_installed_yfinance(yahoo, tmp_path):
    fetch("TSLA", DAYS[0], DAYS[-1], tmp_path / "out.csv")
    inspect.signature(DOWNLOAD).bind(**yahoo.asked)


def test_one_day_may_be_asked_for_but_is_no_table(yahoo, refused):
    yahoo.answer = recorded()[:1]
    assert "1 rows; a price table needs at least 2" in refused(first=DAYS[0], last=DAYS[0])
    assert (yahoo.asked["start"], yahoo.asked["end"]) == ("2022-10-06", "2022-10-07")


def test_dividends_stay_in_the_adjusted_close(yahoo, tmp_path):
    yahoo.answer = recorded(quotes=QUOTES | {"Adj Close": [c * 0.9 for c in QUOTES["Close"]]})
    prices = fetch("TSLA", DAYS[0], DAYS[-1], tmp_path / "out.csv")
    assert prices.close == pytest.approx([c * 0.9 for c in QUOTES["Close"]], rel=1e-7)
    assert prices.open == pytest.approx([o * 0.9 for o in QUOTES["Open"]], rel=1e-7)


def test_the_price_of_a_penny_stock_keeps_its_digits(yahoo, tmp_path):
    yahoo.answer = recorded(
        quotes={name: [v * 1e-6 for v in QUOTES[name]] for name in FIELDS[:5]} | {"Volume": [1] * 4}
    )
    prices = fetch("TSLA", DAYS[0], DAYS[-1], tmp_path / "out.csv")
    assert prices.close == pytest.approx([c * 1e-6 for c in QUOTES["Close"]], rel=1e-7)


@pytest.mark.parametrize("extra", ["Capital Gains", "Dividends", "Stock Splits", "Repaired?"])
def test_columns_that_are_not_played_are_left_out(yahoo, tmp_path, extra):
    yahoo.answer = recorded(quotes=QUOTES | {extra: [0.0] * 4})
    fetch("TSLA", DAYS[0], DAYS[-1], tmp_path / "out.csv")
    assert pd.read_csv(tmp_path / "out.csv").columns.tolist() == list(COLUMNS)


def test_a_frame_with_one_level_of_columns_gives_the_same_table():
    flat = recorded().droplevel(1, axis=1)
    pd.testing.assert_frame_equal(as_table(flat), as_table(recorded()), check_names=False)


def test_the_frame_that_was_given_is_left_as_it_is():
    frame = recorded()
    as_table(frame)
    pd.testing.assert_frame_equal(frame, recorded())


@pytest.mark.parametrize("answer", [None, recorded()[:0], pd.DataFrame()])
def test_no_quotes_are_told_with_ticker_and_days(yahoo, refused, answer):
    yahoo.answer = answer
    assert refused("TSLAA") == "Yahoo Finance gave no quotes of 'TSLAA' for 2022-10-06..2022-10-11"


@pytest.mark.parametrize("field", FIELDS)
def test_a_missing_column_is_told(yahoo, refused, field):
    yahoo.answer = recorded(quotes={name: values for name, values in QUOTES.items() if name != field})
    message = refused()
    assert f"has no ['{field.lower().replace(' ', '_')}']; it has ['date', " in message


@pytest.mark.parametrize("field", FIELDS[:5])
@pytest.mark.parametrize("row", [0, 3])
def test_a_missing_quote_is_told_with_its_row_and_column(yahoo, refused, field, row):
    yahoo.answer = changed(row, field, float("nan"))
    column = field.lower().replace(" ", "_")
    assert refused() == (
        f"Yahoo Finance's quotes of 'TSLA' cannot be played: DataFrame, row {row + 1} ({DAYS[row]}), "
        f"column {column}: nan is not a finite number"
    )


def test_a_last_row_of_nothing_is_refused_not_dropped(yahoo, refused):
    quotes = {name: [*values[:3], float("nan")] for name, values in QUOTES.items()}
    yahoo.answer = recorded(quotes=quotes | {"Volume": [*QUOTES["Volume"][:3], 0]})
    assert "row 4 (2022-10-11), column open: nan is not a finite number" in refused()


def test_quotes_that_are_no_prices_are_refused(yahoo, refused):
    yahoo.answer = changed(2, "Low", -1.0)
    assert "row 3 (2022-10-10), column low: -1.0 is not a positive price" in refused()


@pytest.mark.parametrize("day", ["2022-10-6", "20221006", "2022-02-30", "06.10.2022", "", "2022-W40-4", "yesterday"])
@pytest.mark.parametrize("end", ["first", "last"])
def test_a_day_that_is_no_date_is_told_before_anything_is_asked(yahoo, refused, day, end):
    assert refused(**{end: day}) == f"{day!r} is not a date of the form YYYY-MM-DD"
    assert yahoo.asked is None


@pytest.mark.parametrize(("first", "last"), [("2022-10-11", "2022-10-06"), ("2022-10-06", "9999-12-31")])
def test_days_in_the_wrong_order_or_without_a_morrow_are_refused(yahoo, refused, first, last):
    assert refused(first=first, last=last).startswith(f"{first}..{last} is no stretch of days")
    assert yahoo.asked is None


@pytest.mark.parametrize("ticker", ["", " ", "TSLA MSFT", "TSLA,MSFT", " TSLA", "TSLA\n"])
def test_anything_but_one_ticker_is_refused(yahoo, refused, ticker):
    # yfinance would take a list by commas or spaces.
    assert refused(ticker) == f"{ticker!r} is not one ticker, such as 'TSLA'"
    assert yahoo.asked is None


def test_a_network_that_fails_is_told_in_one_line(yahoo, refused):
    yahoo.answer = ConnectionError("Failed to connect\nto query2.finance.yahoo.com")
    message = refused()
    assert message == ("Yahoo Finance cannot be asked for 'TSLA' (Failed to connect to query2.finance.yahoo.com)")


def test_a_path_that_cannot_be_written_is_told(yahoo, refused, tmp_path):
    path = tmp_path / "no" / "such" / "out.csv"
    assert refused(path=path) == f"{path}: cannot be written (No such file or directory)"


def test_a_directory_cannot_be_written_to(yahoo, tmp_path):
    with pytest.raises(DataError, match=r"cannot be written \(Is a directory\)"):
        fetch("TSLA", DAYS[0], DAYS[-1], tmp_path)


def test_a_refused_table_leaves_the_file_that_was_there(yahoo, tmp_path):
    path = tmp_path / "out.csv"
    path.write_text("mine")
    yahoo.answer = changed(2, "Low", -1.0)
    with pytest.raises(DataError):
        fetch("TSLA", DAYS[0], DAYS[-1], path)
    assert path.read_text() == "mine"


def test_without_yfinance_the_line_that_installs_it_is_told(monkeypatch, refused):
    monkeypatch.setitem(sys.modules, "yfinance", None)
    expected = "fintrading data fetch needs an extra that is not installed. Run: pip install 'fintrading-gym[fetch]'"
    assert refused(kind=MissingExtra) == expected


@pytest.mark.parametrize("fault", [DataError("mine.csv, row 3"), MissingExtra("fetching", "fetch")])
def test_a_fault_reaches_another_process_whole(fault):
    again = pickle.loads(pickle.dumps(fault))
    assert type(again) is type(fault)
    assert str(again) == str(fault)


def test_importing_the_module_loads_no_yfinance():
    code = "import sys, fintrading_gym.fetch; print('yfinance' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
