"""Windows and price tables: the facts of the bundled data, and every way a table can be wrong."""

import copy
import csv
import datetime
import hashlib
import json
import pickle
import re
import subprocess
import sys
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fintrading_gym import windows
from fintrading_gym.errors import DataError, UnknownName, did_you_mean, lookup
from fintrading_gym.windows import CELLS, COLUMNS, DATA, EVALUATION, PAPER, TICKERS, Window, find_window, read_prices

ARRAYS = ("open", "high", "low", "close", "volume")
PRICE_COLUMNS = COLUMNS[1:6]
FIRST, LAST = "2021-01-04", "2023-06-30"
ARABIC = "".join(chr(0x660 + int(c)) if c.isdigit() else c for c in "2021-01-06")  # what \d takes for digits

# DESIGN section 2: cell, ticker, window, days, ln(last / first) of adj_close.
FACTS = [
    ("tsla_main", "TSLA", "2022-10-06", "2023-04-10", 127, -0.2551),
    ("tsla_ablation", "TSLA", "2022-06-16", "2022-12-28", 135, -0.6369),
    ("spy_bear_2022", "SPY", "2022-01-03", "2022-10-14", 198, -0.2780),
    ("nvda_bull_2023", "NVDA", "2023-01-03", "2023-06-30", 124, +1.0838),
]
# DESIGN section 2, the paper's rows: cell, ticker, window, prices, CR in percent.
PAPER_FACTS = [
    ("paper_tsla", "TSLA", "2022-10-10", "2023-04-06", 124, -18.6312),
    ("paper_nflx", "NFLX", "2022-10-06", "2023-04-05", 125, 35.5111),
    ("paper_amzn", "AMZN", "2022-10-10", "2023-04-06", 124, -10.7739),
    ("paper_msft", "MSFT", "2022-10-06", "2023-04-05", 125, 14.6949),
    ("paper_coin", "COIN", "2022-10-06", "2023-04-24", 137, -30.0071),
    ("paper_tsla_ablation", "TSLA", "2022-06-16", "2022-12-27", 134, -66.9497),
]


def rows(ticker="TSLA", start=0, stop=None):
    """A bundled table as the strings in its file, read by nothing of ours."""
    with (DATA / f"{ticker}.csv").open(newline="") as file:
        return [list(row.values()) for row in csv.DictReader(file)][start:stop]


GOOD = rows(stop=8)
HEADER = list(COLUMNS)


def text(table, header=HEADER, sep=",", end="\n"):
    return "".join(sep.join(map(str, row)) + end for row in [header, *table])


def frame(table=None):
    """The figures of `table` as numbers and its dates as strings."""
    made = pd.DataFrame(GOOD if table is None else table, columns=HEADER)
    return made.assign(**{c: [float(v) for v in made[c]] for c in HEADER[1:]})


def planted(row, column, value, table=GOOD):
    table = copy.deepcopy(table)
    table[row][HEADER.index(column)] = value
    return table


def log_return(window):
    first, days = window.span()
    close = window.load().close[first : first + days]
    return np.log(close[-1] / close[0])


def same_arrays(a, b):
    return a.date == b.date and all(np.array_equal(getattr(a, c), getattr(b, c)) for c in ARRAYS)


def refusal(source, kind=DataError):
    """The message with which `source` is refused: one line, and no longer than a person reads."""
    act = find_window if kind is UnknownName or isinstance(source, Window) else read_prices
    return one_line(lambda: act(source), kind)


def one_line(act, kind=DataError):
    with pytest.raises(kind) as caught:
        act()
    assert type(caught.value) is kind
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert len(message) < 400
    return message


@pytest.fixture
def write(tmp_path):
    def write(content, name="mine.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


# ------------------------------------------------------------------------------- the bundled tables


@pytest.mark.parametrize(("cell", "ticker", "first", "last", "days", "expected"), FACTS)
def test_an_evaluation_cell_has_the_designs_window_days_and_log_return(cell, ticker, first, last, days, expected):
    window = EVALUATION[cell]
    assert (window.ticker, window.first, window.last) == (ticker, first, last)
    assert window.span()[1] == days
    assert round(log_return(window), 4) == expected


@pytest.mark.parametrize(("cell", "ticker", "first", "last", "prices", "percent"), PAPER_FACTS)
def test_a_paper_cell_has_the_designs_window_prices_and_return(cell, ticker, first, last, prices, percent):
    window = PAPER[cell]
    assert (window.ticker, window.first, window.last) == (ticker, first, last)
    assert window.span()[1] == prices
    # The paper adds the returns in percent; its last printed digit is 1e-4 of a percent.
    assert 100 * log_return(window) == pytest.approx(percent, abs=1e-4)


def test_the_tables_of_facts_name_every_cell():
    assert [fact[0] for fact in FACTS] == list(EVALUATION)
    assert [fact[0] for fact in PAPER_FACTS] == list(PAPER)
    assert list(CELLS) == [*EVALUATION, *PAPER]


@pytest.mark.parametrize("cell", CELLS)
def test_a_cells_ends_are_trading_days_with_twenty_days_of_history_before_them(cell):
    window = CELLS[cell]
    first, days = window.span()
    date = window.load().date
    assert (date[first], date[first + days - 1]) == (window.first, window.last)
    assert first >= 20 or window.ticker == "COIN"


@pytest.mark.parametrize("ticker", TICKERS)
def test_a_bundled_table_covers_the_designs_days(ticker):
    date = windows.bundled(ticker).date
    assert (date[0], date[-1]) == ("2021-04-14" if ticker == "COIN" else FIRST, LAST)
    assert len(date) == (558 if ticker == "COIN" else 627)


def test_the_tables_in_data_are_those_of_the_ten_tickers():
    assert {path.stem for path in DATA.glob("*.csv")} == set(TICKERS)
    assert len(TICKERS) == 10


@pytest.mark.parametrize("ticker", TICKERS)
def test_the_manifest_tells_the_truth_about_a_table(ticker):
    manifest = json.loads((DATA / "manifest.json").read_text())
    assert set(manifest) == {f"{t}.csv" for t in TICKERS}
    content, table = (DATA / f"{ticker}.csv").read_bytes(), rows(ticker)
    assert manifest[f"{ticker}.csv"] == {
        "sha256": hashlib.sha256(content).hexdigest(),
        "rows": len(table),
        "first": table[0][0],
        "last": table[-1][0],
    }
    assert windows.bundled(ticker).sha256 == manifest[f"{ticker}.csv"]["sha256"]
    assert windows.bundled(ticker).source == f"{ticker}.csv"


def test_the_data_readme_names_every_ticker_and_the_counts():
    readme = (DATA / "README.md").read_text()
    for fact in (*TICKERS, "627", "558", FIRST, LAST, "2021-04-14", "manifest.json"):
        assert fact in readme


@pytest.mark.parametrize("ticker", TICKERS)
def test_open_high_and_low_are_adjusted_by_adj_close_over_close(ticker):
    prices, raw = windows.bundled(ticker), np.array([[float(v) for v in row[1:]] for row in rows(ticker)])
    opened, high, low, close, adjusted, volume = raw.T
    np.testing.assert_array_equal(prices.close, adjusted)
    np.testing.assert_array_equal(prices.volume, volume)
    for ours, theirs in ((prices.open, opened), (prices.high, high), (prices.low, low)):
        np.testing.assert_allclose(ours, theirs * adjusted / close, rtol=1e-12)
    assert {getattr(prices, name).dtype for name in ARRAYS} == {np.dtype(np.float64)}
    assert {getattr(prices, name).shape for name in ARRAYS} == {(len(prices.date),)}


def test_only_a_table_with_dividends_is_really_adjusted():
    assert windows.bundled("SPY").open[0] < 0.96 * float(rows("SPY")[0][1])
    assert windows.bundled("TSLA").open[0] == float(rows("TSLA")[0][1])


@pytest.fixture(scope="module")
def sessions():
    with warnings.catch_warnings():
        # Its holiday rules are written for an older pandas.
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", category=FutureWarning)
        import exchange_calendars

        calendar = exchange_calendars.get_calendar("XNYS", start=FIRST, end=LAST)
    return tuple(calendar.sessions.strftime("%Y-%m-%d"))


@pytest.mark.parametrize("ticker", TICKERS)
def test_a_tables_days_are_exactly_the_sessions_of_the_new_york_exchange(ticker, sessions):
    assert len(sessions) == 627
    listed = sessions[sessions.index("2021-04-14") :] if ticker == "COIN" else sessions
    assert windows.bundled(ticker).date == listed


def test_a_bundled_table_is_read_once():
    assert windows.bundled("NFLX") is windows.bundled("NFLX")
    assert find_window("paper_nflx").load() is windows.bundled("NFLX")
    assert find_window("NFLX:2022-01-03:2022-02-01").load() is windows.bundled("NFLX")


def test_a_bundled_table_is_read_without_pandas():
    code = "import sys, fintrading_gym.windows as w; w.find_window('tsla_main'); print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# ---------------------------------------------------------------------------------- prices as values


@pytest.mark.parametrize("name", ARRAYS)
def test_the_shared_arrays_are_read_only(name):
    with pytest.raises(ValueError, match="read-only"):
        getattr(windows.bundled("TSLA"), name)[0] = 1.0


def test_a_table_keeps_its_figures_when_the_users_frame_changes():
    given_frame = frame()
    prices = read_prices(given_frame)
    kept = copy.deepcopy(prices)
    given_frame.loc[:, HEADER[1:]] = 7.0  # and the frame itself is not locked
    assert same_arrays(prices, kept)


def test_tables_of_the_same_bytes_are_equal_and_others_are_not(write):
    one, two = read_prices(write(text(GOOD))), read_prices(write(text(GOOD), "other.csv"))
    assert one == two
    assert hash(one) == hash(two)
    changed = read_prices(write(text(planted(7, "volume", "1")), "other.csv"))
    assert changed != one
    assert one != "mine.csv"
    assert len({one, two, changed}) == 2


def test_a_frame_equals_the_file_pandas_writes_of_it(tmp_path):
    made = frame()
    made.to_csv(tmp_path / "mine.csv", index=False)
    assert read_prices(made) == read_prices(tmp_path / "mine.csv")


def test_prices_and_windows_survive_pickle_and_copy():
    prices = read_prices(frame())
    window = Window("MINE", "2021-01-05", "2021-01-12", prices)
    for again in (pickle.loads(pickle.dumps(window)), copy.deepcopy(window)):
        assert again == window
        assert hash(again) == hash(window)
        assert again.span() == window.span() == (1, 6)
        assert same_arrays(again.load(), prices)
    assert len(pickle.dumps(EVALUATION["tsla_main"])) < 500  # a bundled table does not travel along


def test_windows_are_equal_by_ticker_days_and_prices():
    prices, other = read_prices(frame()), read_prices(frame(GOOD[:7]))
    window = Window("TSLA", "2021-01-05", "2021-01-08")
    assert window == Window("TSLA", "2021-01-05", "2021-01-08")
    assert len({window, Window("TSLA", "2021-01-05", "2021-01-08")}) == 1
    assert window != Window("SPY", "2021-01-05", "2021-01-08")
    assert window != Window("TSLA", "2021-01-05", "2021-01-11")
    own = Window("TSLA", "2021-01-05", "2021-01-08", prices)
    assert own != window
    assert own == Window("TSLA", "2021-01-05", "2021-01-08", read_prices(frame()))
    assert own != Window("TSLA", "2021-01-05", "2021-01-08", other)


def test_windows_and_prices_cannot_be_reassigned():
    with pytest.raises(AttributeError):
        EVALUATION["tsla_main"].first = "2021-01-04"
    with pytest.raises(AttributeError):
        windows.bundled("TSLA").close = np.zeros(3)


# ------------------------------------------------------------------------------------ finding a window


@pytest.mark.parametrize("cell", CELLS)
def test_a_window_is_found_by_its_cell_its_days_and_itself(cell):
    window = CELLS[cell]
    assert find_window(cell) is window
    assert find_window(window) is window
    assert find_window(str(window)) == window
    assert str(window) == f"{window.ticker}:{window.first}:{window.last}"


def test_a_day_without_trading_moves_an_end_inwards():
    # 2022-10-08/09 and 2022-10-15/16 are weekends, 2022-11-24 is Thanksgiving.
    date = windows.bundled("TSLA").date
    for cell, first, last in (
        ("TSLA:2022-10-08:2022-10-16", "2022-10-10", "2022-10-14"),
        ("TSLA:2022-10-09:2022-10-15", "2022-10-10", "2022-10-14"),
        ("TSLA:2022-11-22:2022-11-24", "2022-11-22", "2022-11-23"),
        ("TSLA:2022-11-24:2022-11-28", "2022-11-25", "2022-11-28"),
    ):
        start, days = find_window(cell).span()
        assert (date[start], date[start + days - 1]) == (first, last)


@given(st.dates(datetime.date(2021, 1, 4), datetime.date(2023, 6, 30)), st.integers(0, 40))
@settings(max_examples=80, deadline=None)
def test_a_window_holds_the_days_from_first_to_last(first, length):
    last = min(first + datetime.timedelta(days=length), datetime.date(2023, 6, 30))
    date = windows.bundled("TSLA").date
    inside = [d for d in date if str(first) <= d <= str(last)]
    window = Window("TSLA", str(first), str(last))
    if len(inside) < 2:
        message = refusal(window)
        assert f"holds {len(inside)} trading days" in message
        assert "at least 2" in message
    else:
        start, days = window.span()
        assert list(date[start : start + days]) == inside


def test_the_whole_table_is_a_window():
    assert find_window(f"SPY:{FIRST}:{LAST}").span() == (0, 627)
    assert find_window(f"COIN:2021-04-14:{LAST}").span() == (0, 558)


@pytest.mark.parametrize(
    "name",
    ["mine.csv", "MINE.CSV", "a folder/of some depth, with spaces/and:colons:in:it/mine.csv", "./mine.csv"],
)
def test_a_file_is_found_by_its_path_and_played_under_its_name(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text(GOOD))
    for written in (name, path):
        window = find_window(f"{written}:2021-01-05:2021-01-10")
        assert (window.ticker, window.first, window.last) == ("MINE", "2021-01-05", "2021-01-10")
        assert window.span() == (1, 4)
        assert window.load().source == path.name
        assert same_arrays(window.load(), read_prices(path))


def test_a_window_with_prices_of_its_own_needs_no_bundled_ticker():
    window = find_window(Window("ACME", "2021-01-04", "2021-01-13", read_prices(frame())))
    assert window.span() == (0, 8)
    assert window.load().source == "DataFrame"


def test_a_gap_that_leaves_too_few_days_is_told_with_file_row_and_column(write):
    gap = GOOD[:2] + rows(start=40, stop=44)
    path = write(text(gap))
    for last, days in (("2021-02-10", 0), (gap[2][0], 1)):
        message = one_line(lambda last=last: find_window(f"{path}:2021-01-06:{last}"))
        assert f"MINE:2021-01-06:{last} holds {days} trading days" in message
        assert "mine.csv, from row 3, column date" in message


@pytest.mark.parametrize(
    ("cell", "hint"),
    [
        ("tsla_man", "Did you mean 'tsla_main'?"),
        ("TSLA_MAIN", "Did you mean 'tsla_main'?"),
        ("Paper-COIN", "Did you mean 'paper_coin'?"),
        ("spy_bear", "Did you mean 'spy_bear_2022'?"),
        ("TSLA", "Did you mean 'tsla_main'?"),
        ("zzzzzz", "'paper_tsla_ablation']."),
        ("", "'paper_tsla_ablation']."),
        (None, "'paper_tsla_ablation']."),
        (7, "'paper_tsla_ablation']."),
        (("TSLA", FIRST, LAST), "'paper_tsla_ablation']."),
    ],
)
def test_an_unknown_cell_is_told_with_all_cells_and_the_nearest(cell, hint):
    message = refusal(cell, UnknownName)
    assert message.startswith(f"No cell {cell!r}; there are {list(CELLS)}.")
    assert message.endswith(hint)


@pytest.mark.parametrize(
    ("ticker", "near"),
    [("tsla", "TSLA"), ("TSLAA", "TSLA"), ("Goog", "GOOG"), ("IBM.X/Y", None), ("data.txt", None)],
)
def test_an_unknown_ticker_is_told_with_all_tickers_and_the_nearest(ticker, near):
    hint = f" Did you mean {near!r}?" if near else ""
    message = refusal(f"{ticker}:2022-01-03:2022-02-01", UnknownName)
    assert message == f"No ticker {ticker!r}; there are {list(TICKERS)}.{hint}"
    assert one_line(lambda: windows.bundled(ticker), UnknownName) == message


@pytest.mark.parametrize("cell", ["TSLA:2022-10-06", "TSLA:", ":", "mine.csv:2022-10-06"])
def test_a_half_written_window_is_told_how_a_whole_one_looks(cell):
    message = one_line(lambda: find_window(cell))
    assert repr(cell) in message
    assert "TICKER:FIRST:LAST" in message
    assert "FILE.csv:FIRST:LAST" in message


@pytest.mark.parametrize(
    "day",
    ["2022-1-3", "20220103", "2022-02-30", "2022-13-01", "2022-01-03 ", "03.01.2022", "", ARABIC, "2022-W01-1"],
)
@pytest.mark.parametrize("end", ["first", "last"])
def test_a_windows_day_that_is_no_date_is_refused(day, end):
    given_days = {"first": "2022-01-03", "last": "2022-02-01", end: day}
    message = one_line(lambda: find_window(f"TSLA:{given_days['first']}:{given_days['last']}"))
    assert f"{day!r} is not a date of the form YYYY-MM-DD" in message


@pytest.mark.parametrize("day", [None, 20220103, datetime.date(2022, 1, 3), pd.Timestamp("2022-01-03"), b"2022-01-03"])
def test_a_windows_day_that_is_no_string_is_refused(day):
    for window in (Window("TSLA", day, "2022-02-01"), Window("TSLA", "2022-01-03", day)):
        assert f"{day!r} is not a date of the form YYYY-MM-DD" in refusal(window)


@pytest.mark.parametrize(
    ("first", "last"), [("2021-01-03", "2022-01-03"), ("2022-01-03", "2023-07-01"), ("2024-01-02", "2024-02-01")]
)
def test_a_window_that_leaves_its_table_is_told_where_the_table_ends(first, last):
    # The table cannot know whether a day beyond it was a trading day, so a weekend there is refused too.
    message = one_line(lambda: find_window(f"TSLA:{first}:{last}"))
    assert message == f"Window TSLA:{first}:{last} leaves its table: TSLA.csv has prices {FIRST}..{LAST}"


@pytest.mark.parametrize(
    ("first", "last", "days"),
    [
        ("2022-10-10", "2022-10-10", 1),
        ("2022-10-08", "2022-10-09", 0),
        (LAST, LAST, 1),
        (FIRST, FIRST, 1),
    ],
)
def test_a_window_without_two_days_is_refused(first, last, days):
    message = one_line(lambda: find_window(f"TSLA:{first}:{last}"))
    assert f"Window TSLA:{first}:{last} holds {days} trading days; a decision needs at least 2" in message


def test_a_window_that_ends_before_it_begins_is_told_so():
    message = one_line(lambda: find_window("TSLA:2023-01-03:2022-01-03"))
    assert message == "Window TSLA:2023-01-03:2022-01-03: its last day comes before its first"


def test_a_table_with_other_separators_is_told_so(write):
    assert "separated by ';'" in one_line(lambda: read_prices(write(text(GOOD).replace(",", ";"))))


@pytest.mark.parametrize("ticker", ["", "TS LA", "TSLA\n", "T" * 21, "ТСЛА", 7, None])
def test_a_ticker_that_a_prompt_could_not_carry_is_refused(ticker):
    message = one_line(lambda: Window(ticker, "2022-01-03", "2022-02-01"))
    assert message.startswith(f"Ticker {ticker!r} is not 1 to 20 printable ASCII characters without a space")


def test_a_file_whose_name_is_no_ticker_is_told_so(write):
    path = write(text(GOOD), "my own prices.csv")
    message = one_line(lambda: find_window(f"{path}:2021-01-04:2021-01-08"))
    assert message.startswith("Ticker 'MY OWN PRICES' is not")
    assert "the ticker of a file is its name" in message


@pytest.mark.parametrize("prices", [frame(), "mine.csv", 7, False])
def test_a_windows_prices_must_have_been_read(prices):
    message = one_line(lambda: Window("TSLA", "2021-01-04", "2021-01-08", prices))
    assert type(prices).__name__ in message
    assert "read_prices" in message


def test_a_missing_file_is_told_with_its_whole_path(tmp_path):
    path = tmp_path / "none.csv"
    assert one_line(lambda: find_window(f"{path}:2021-01-04:2021-01-08")) == (
        f"{path}: cannot be read (No such file or directory)"
    )


def test_the_nearest_name_is_found_in_any_case_and_written_as_it_stands():
    assert did_you_mean("tsIa", TICKERS) == " Did you mean 'TSLA'?"
    assert did_you_mean("zzz", TICKERS) == ""
    assert did_you_mean(None, []) == ""
    assert lookup("ticker", "SPY", {"SPY": 3}) == 3


# ------------------------------------------------------------------------------- a user's table, good


@given(st.sampled_from(TICKERS), st.integers(0, 500), st.integers(2, 40))
@settings(max_examples=25, deadline=None)
def test_a_file_and_a_frame_of_the_same_figures_give_the_same_arrays(tmp_path_factory, ticker, start, days):
    table = rows(ticker, start, start + days)
    assume(len(table) > 1)
    path = tmp_path_factory.mktemp("same") / "mine.csv"
    path.write_text(text(table))
    prices = read_prices(path)
    assert prices.date == tuple(row[0] for row in table)
    assert same_arrays(prices, read_prices(frame(table)))
    assert same_arrays(prices, read_prices(pd.read_csv(path)))
    inside = slice(start, start + days)
    for name in ARRAYS:  # a slice of a table is the table of the slice
        np.testing.assert_array_equal(getattr(prices, name), getattr(windows.bundled(ticker), name)[inside])


CSV_FORMS = {
    "crlf line ends": text(GOOD, end="\r\n"),
    "old mac line ends": text(GOOD, end="\r"),
    "byte order mark": "\ufeff" + text(GOOD),
    "byte order mark before a quoted header": '\ufeff"date"' + text(GOOD)[4:],
    "quoted fields": text([[f'"{v}"' for v in row] for row in GOOD], [f'"{c}"' for c in HEADER]),
    "spaces after commas": text(GOOD, sep=", "),
    "no line end at the end": text(GOOD).rstrip("\n"),
    "trailing blank lines": text(GOOD) + "\n\r\n   \n",
    "blank lines at the start and within": "\n" + text(GOOD[:3]) + "\n\n" + text(GOOD)[len(text(GOOD[:3])) :],
    "extra columns": text([["x", *row, "NaN", ""] for row in GOOD], ["name", *HEADER, "dividends", "note"]),
    "an extra column twice": text([[*row, "1", "2"] for row in GOOD], [*HEADER, "note", "note"]),
    "an index column without a name": text([[i, *row] for i, row in enumerate(GOOD)], ["", *HEADER]),
    "another order of columns": text([row[::-1] for row in GOOD], HEADER[::-1]),
    "exponents and signs": text([[row[0], *(f"+{float(v):.10E}" for v in row[1:])] for row in GOOD]),
}


@pytest.mark.parametrize("form", CSV_FORMS)
def test_a_csv_file_of_any_common_form_gives_the_same_arrays(write, form):
    assert same_arrays(read_prices(write(CSV_FORMS[form])), read_prices(frame()))


def test_a_file_is_read_by_a_string_as_well(write):
    path = write(text(GOOD))
    assert read_prices(str(path)) == read_prices(path)
    assert read_prices(path).sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


DAYS = [row[0] for row in GOOD]
FRAME_FORMS = {
    "datetime64 dates": frame().assign(date=pd.to_datetime(DAYS)),
    "datetime64[ns] dates": frame().assign(date=pd.to_datetime(DAYS).as_unit("ns")),
    "times of day": frame().assign(date=pd.to_datetime(DAYS) + pd.Timedelta(hours=16)),
    "midnights in Tokyo": frame().assign(date=pd.to_datetime(DAYS).tz_localize("Asia/Tokyo")),
    "evenings in New York": frame().assign(
        date=(pd.to_datetime(DAYS) + pd.Timedelta(hours=20)).tz_localize("America/New_York")
    ),
    "timestamps as objects": frame().assign(date=pd.Series([pd.Timestamp(d) for d in DAYS], dtype=object)),
    "date objects": frame().assign(date=[datetime.date.fromisoformat(d) for d in DAYS]),
    "datetime objects": frame().assign(
        date=pd.Series([datetime.datetime.fromisoformat(d) for d in DAYS], dtype=object)
    ),
    "numpy days as objects": frame().assign(date=pd.Series([np.datetime64(d) for d in DAYS], dtype=object)),
    "dates of mixed kinds": frame().assign(
        date=pd.Series([*DAYS[:5], pd.Timestamp(DAYS[5]), pd.Timestamp(DAYS[6], tz="UTC"), np.datetime64(DAYS[7])])
    ),
    "string dtype": frame().assign(date=pd.array(DAYS, dtype="string")),
    "categories": frame().assign(date=pd.Categorical(DAYS), open=pd.Categorical(frame()["open"])),
    "integer volume": frame().astype({"volume": np.int64}),
    "unsigned volume": frame().astype({"volume": np.uint32}),
    "Float64 and Int64": frame().astype(dict.fromkeys(PRICE_COLUMNS, "Float64") | {"volume": "Int64"}),
    "objects": frame().astype(object),
    "numbers as strings": pd.DataFrame(GOOD, columns=HEADER),
    "extra columns": frame().assign(note="x", open_interest=np.nan),
    "another order of columns": frame()[HEADER[::-1]],
    "an index that is not 0..n": frame().set_index(pd.Index(range(70, 78))),
    "an index of one number": frame().set_index(pd.Index([3] * 8)),
    "dates as the index too": frame().set_index(pd.Index(DAYS, name="day")),
    "a part of a longer frame": pd.concat([frame(), frame()])[:8],
}


@pytest.mark.parametrize("form", FRAME_FORMS)
def test_a_frame_of_any_common_form_gives_the_same_arrays(form):
    before = FRAME_FORMS[form].copy()
    assert same_arrays(read_prices(FRAME_FORMS[form]), read_prices(frame()))
    pd.testing.assert_frame_equal(before, FRAME_FORMS[form])


def test_whole_numbers_are_prices_too():
    whole = pd.DataFrame([[d, 3, 4, 2, 3, 3, 9] for d in DAYS], columns=HEADER)
    assert read_prices(whole).open.tolist() == [3.0] * 8


def test_columns_that_are_not_played_do_not_count_for_equality():
    assert read_prices(frame().assign(note="x")[["note", *HEADER[::-1]]]) == read_prices(frame())


def test_a_close_a_hair_outside_its_day_is_a_vendors_rounding_and_passes():
    low, high = float(GOOD[2][3]), float(GOOD[2][2])
    read_prices(frame(planted(2, "close", low * (1 - 0.0009))))
    read_prices(frame(planted(2, "open", high * (1 + 0.0009))))


def test_a_day_without_volume_passes():
    assert read_prices(frame(planted(2, "volume", 0))).volume[2] == 0


def test_the_widest_prices_that_are_allowed_give_finite_numbers_only():
    low, high = windows.PRICE
    tiny, huge = [low] * 5 + [0.0], [high] * 5 + [windows.VOLUME[1]]
    mixed = [[DAYS[0], *tiny], [DAYS[1], *huge], [DAYS[2], low, low, low, low, high, 0.0]]
    mixed.append([DAYS[3], high, high, high, high, low, 1.0])
    prices = read_prices(pd.DataFrame(mixed, columns=HEADER))
    with np.errstate(all="raise"):
        assert np.isfinite(np.diff(np.log(prices.close))).all()
        assert np.isfinite(np.log(prices.open)).all()


# -------------------------------------------------------------------------------- a user's table, bad

# One fault in one field: what is planted (given the row's own figures), in which columns, what the message says.
ABSENT = ["", "NaN", "nan", "NA", "null", "None", "-", "N/A", "<NA>"]
NO_NUMBER = ["inf", "-inf", "Infinity", "1e400", "1_000", "0x1F", "True", "12,5", '"1,234.5"', "$5", "5%", "1d5"]
NO_NUMBER += ["1 2", "1-2", "e5", ARABIC[:4]]
NO_DATE = ["2022-02-30", "2022-1-3", "20220103", "2021/01/06", "06.01.2021", "2021-01-06T00:00", "2021-01-06 16:00:00"]
NO_DATE += ["2021-13-01", "0000-01-01", "2021-01-00", ARABIC, "12345", "2021-W01-3", "today", "NaT", "", "1.6e9"]
numbers = st.sampled_from(HEADER[1:])
prices_only = st.sampled_from(PRICE_COLUMNS)
FAULTS = {
    "no number": (numbers, st.sampled_from(ABSENT + NO_NUMBER), "is not a finite number"),
    "not positive": (prices_only, st.sampled_from(["0", "-0.0", "-1", "-239.5", "1e-300"]), "is not a positive price"),
    "beyond any price": (prices_only, st.sampled_from(["1e16", "1e308"]), "is not a positive price"),
    "negative volume": (st.just("volume"), st.sampled_from(["-1", "-0.5", "-1e9"]), "is not a number of shares"),
    "no volume of this world": (st.just("volume"), st.just("1e300"), "is not a number of shares"),
    "no date": (st.just("date"), st.sampled_from(NO_DATE), "is not a date of the form YYYY-MM-DD"),
    "low above high": (st.just("low"), st.just("999999"), "is above the day's high"),
    "outside the day": (st.sampled_from(["open", "close"]), st.sampled_from(["1", "9999"]), "lies outside the day's"),
}


@pytest.mark.parametrize("fault", FAULTS)
@given(data=st.data(), ticker=st.sampled_from(TICKERS), row=st.integers(0, 557))
@settings(max_examples=25, deadline=None)
def test_a_fault_in_one_field_of_a_file_is_told_with_file_row_and_column(tmp_path_factory, data, fault, ticker, row):
    columns, values, complaint = FAULTS[fault]
    column, value = data.draw(columns), data.draw(values)
    table = rows(ticker)
    written = f'"{value}"' if "," in value and not value.startswith('"') else value
    path = tmp_path_factory.mktemp("bad") / "mine.csv"
    path.write_text(text(planted(row, column, written, table)))
    message = refusal(path)
    date = "" if column == "date" else f" ({table[row][0]})"
    assert message.startswith(f"mine.csv, row {row + 1}{date}, column {column}: ")
    assert complaint in message


@pytest.mark.parametrize(("column", "values"), [("volume", ABSENT + NO_NUMBER), ("date", NO_DATE)])
def test_none_of_the_words_that_pass_for_numbers_or_dates_elsewhere_passes_here(write, column, values):
    for value in values:
        written = value if '"' in value else f'"{value}"'
        message = refusal(write(text(planted(2, column, written))))
        assert re.match(rf"mine.csv, row 3( \(2021-01-06\))?, column {column}: '.*' is not a (finite|date)", message)


MISSING = [None, np.nan, pd.NA, pd.NaT, float("inf"), -np.inf, np.float32("nan")]
NO_NUMBERS = [True, np.True_, 3j, [1.0], (), {}, b"1", "x", pd.Timestamp(0), datetime.date(2022, 1, 3), pd.Timedelta(1)]
NO_DATES = [None, np.nan, pd.NA, pd.NaT, 20210106, 20210106.0, 0, True, [], datetime.time(1), b"2021-01-06"]
FRAME_FAULTS = {
    "missing": (numbers, st.sampled_from(MISSING), "is not a finite number"),
    "no number": (numbers, st.sampled_from(NO_NUMBERS), "is not a finite number"),
    "not positive": (prices_only, st.sampled_from([0, -0.0, -1, -1e-9, np.float32(-2)]), "is not a positive price"),
    "negative volume": (st.just("volume"), st.sampled_from([-1, -0.5]), "is not a number of shares"),
    "no date": (st.just("date"), st.sampled_from([*NO_DATES, pd.Period("2021-01-06")]), "is not a date of the form"),
    "no date in words": (st.just("date"), st.sampled_from(NO_DATE), "is not a date of the form YYYY-MM-DD"),
}


@pytest.mark.parametrize("fault", FRAME_FAULTS)
@given(data=st.data(), row=st.integers(0, 7))
@settings(max_examples=30, deadline=None)
def test_a_fault_in_one_field_of_a_frame_is_told_with_row_and_column(data, fault, row):
    columns, values, complaint = FRAME_FAULTS[fault]
    column, value = data.draw(columns), data.draw(values)
    field = [*frame()[column]]
    field[row] = value
    message = refusal(frame().assign(**{column: pd.Series(field, dtype=object)}))
    date = "" if column == "date" else f" ({DAYS[row]})"
    assert message.startswith(f"DataFrame, row {row + 1}{date}, column {column}: ")
    assert complaint in message
    assert "np." not in message


@given(row=st.integers(0, 7), column=numbers, dtype=st.sampled_from(["float64", "Float64", "float32", "Int64"]))
@settings(max_examples=30, deadline=None)
def test_a_missing_value_of_any_dtype_is_told_with_row_and_column(row, column, dtype):
    made = frame().round(0).astype({column: dtype}) if dtype == "Int64" else frame().astype({column: dtype})
    made.loc[row, column] = None
    message = refusal(made)
    assert message.startswith(f"DataFrame, row {row + 1} ({DAYS[row]}), column {column}: ")
    assert "is not a finite number" in message


def test_missing_datetime64_dates_are_refused():
    date = pd.Series(pd.to_datetime(DAYS))
    date[4] = pd.NaT
    assert refusal(frame().assign(date=date)) == (
        "DataFrame, row 5, column date: NaT is not a date of the form YYYY-MM-DD"
    )


@pytest.mark.parametrize("column", HEADER[1:])
@pytest.mark.parametrize(
    "values",
    [True, pd.to_datetime(DAYS), pd.to_timedelta(range(8)), [[1.0]] * 8, 1j],
    ids=["bool", "datetime", "timedelta", "lists", "complex"],
)
def test_a_column_of_another_kind_is_not_taken_for_numbers(column, values):
    message = refusal(frame().assign(**{column: values}))
    assert message.startswith(f"DataFrame, row 1 (2021-01-04), column {column}: ")
    assert "is not a finite number" in message


@pytest.mark.parametrize("dtype", [np.int64, float, "Int64", "int64[ns]"])
def test_numbers_are_not_taken_for_dates(dtype):
    days = pd.to_datetime(DAYS)
    compact = [int(d.replace("-", "")) for d in DAYS]
    date = days.as_unit("ns").astype(np.int64) if dtype == "int64[ns]" else pd.array(compact, dtype=dtype)
    assert refusal(frame().assign(date=date)).startswith("DataFrame, row 1, column date: ")


@given(st.integers(0, 500), st.integers(3, 30), st.data())
@settings(max_examples=30, deadline=None)
def test_a_repeated_date_is_told_with_its_second_row(start, days, data):
    table = rows("SPY", start, start + days)
    row = data.draw(st.integers(1, len(table) - 1))
    table[row][0] = table[row - 1][0]
    assert refusal(frame(table)) == f"DataFrame, row {row + 1}, column date: {table[row][0]!r} stands twice"


@given(st.integers(0, 500), st.integers(3, 30), st.data())
@settings(max_examples=30, deadline=None)
def test_dates_out_of_order_are_told_with_the_first_row_that_goes_back(start, days, data):
    table = rows("SPY", start, start + days)
    row = data.draw(st.integers(1, len(table) - 1))
    table[row - 1], table[row] = table[row], table[row - 1]
    message = refusal(frame(table))
    assert message == f"DataFrame, row {row + 1}, column date: {table[row][0]!r} is earlier than the row before it"


def test_newest_first_and_bars_within_a_day_are_refused(write):
    assert "mine.csv, row 2, column date: '2021-01-12' is earlier" in refusal(write(text(GOOD[::-1])))
    hours = pd.date_range("2021-01-04 10:00", periods=8, freq="h")
    assert refusal(frame().assign(date=hours)) == "DataFrame, row 2, column date: '2021-01-04' stands twice"


def test_days_are_told_apart_by_the_clock_of_their_own_time_zone():
    # Both evenings lie on one day of UTC's clock before and after New York's change of clocks.
    evenings = pd.DatetimeIndex(["2022-03-11 23:30", "2022-03-14 00:30"]).tz_localize("America/New_York")
    assert read_prices(frame(GOOD[:2]).assign(date=evenings)).date == ("2022-03-11", "2022-03-14")
    one_day = pd.DatetimeIndex(["2022-03-14 00:30", "2022-03-14 23:30"]).tz_localize("America/New_York")
    assert "row 2, column date: '2022-03-14' stands twice" in refusal(frame(GOOD[:2]).assign(date=one_day))


@pytest.mark.parametrize("column", ["open", "close"])
def test_a_price_outside_its_day_by_more_than_rounding_is_refused(column):
    low, high = float(GOOD[2][3]), float(GOOD[2][2])
    for value in (low * (1 - 0.0011), high * (1 + 0.0011)):
        message = refusal(frame(planted(2, column, value)))
        assert message == f"DataFrame, row 3 (2021-01-06), column {column}: {value!r} lies outside the day's low..high"


@pytest.mark.parametrize("column", HEADER)
def test_a_missing_column_is_told_with_the_columns_there_are(write, column):
    rest = [c for c in HEADER if c != column]
    for source, name in ((write(frame().drop(columns=column).to_csv(index=False)), "mine.csv"), (None, "DataFrame")):
        message = refusal(frame().drop(columns=column) if source is None else source)
        assert message == (f"{name}: no column {column!r}; a price table has {HEADER}, this one {rest}.")


@pytest.mark.parametrize("written", ["Adj Close", "ADJ_CLOSE", "adjclose", "adj. close"])
def test_a_misnamed_column_is_told_with_its_nearest_name(write, written):
    renamed = frame().rename(columns={"adj_close": written})
    for source in (renamed, write(renamed.to_csv(index=False))):
        message = refusal(source)
        assert "no column 'adj_close'" in message
        assert message.endswith(f"Did you mean {written!r}? Rename it.")


@pytest.mark.parametrize("column", HEADER)
def test_a_column_that_stands_twice_is_refused(write, column):
    at = HEADER.index(column)
    path = write(text([[*row, row[at]] for row in GOOD], [*HEADER, column]))
    assert refusal(path) == f"mine.csv: 2 columns {column!r}; a price table has one of each"
    twice = pd.concat([frame(), frame()[[column]]], axis=1)
    assert refusal(twice) == f"DataFrame: 2 columns {column!r}; a price table has one of each"


def test_a_frame_with_dates_in_the_index_alone_or_two_levels_of_columns_is_refused():
    assert "no column 'date'" in refusal(frame().set_index("date"))
    levels = frame()
    levels.columns = pd.MultiIndex.from_product([HEADER, ["TSLA"]])
    assert "no column 'date'" in refusal(levels)


@pytest.mark.parametrize("shift", ["before", "after", "trailing comma", "before, with the header's comma forgotten"])
def test_rows_longer_than_the_header_are_refused_not_shifted(write, shift):
    longer = {"before": lambda row: ["7", *row], "after": lambda row: [*row, "7"]}
    longer["trailing comma"] = lambda row: [*row, ""]
    path = write(text([longer.get(shift, longer["before"])(row) for row in GOOD]))
    assert refusal(path) == "mine.csv, row 1, column volume: 8 fields, the header 7"


@given(row=st.integers(0, 7), fields=st.integers(1, 6))
@settings(max_examples=20, deadline=None)
def test_a_short_row_is_told_with_its_last_column(tmp_path_factory, row, fields):
    path = tmp_path_factory.mktemp("short") / "mine.csv"
    path.write_text(text([r[:fields] if i == row else r for i, r in enumerate(GOOD)]))
    expected = f"mine.csv, row {row + 1}, column {HEADER[fields - 1]}: {fields} fields, the header 7"
    assert refusal(path) == expected


def test_an_unquoted_thousands_separator_is_a_row_that_is_too_long(write):
    assert refusal(write(text(planted(2, "open", "1,252.83")))).startswith("mine.csv, row 3, column volume: 8 fields")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "no column 'date'"),
        (b"\n\n", "no column 'date'"),
        (text([]), "0 rows; a price table needs at least 2"),
        (text(GOOD[:1]), "1 rows; a price table needs at least 2"),
        (text(GOOD)[len(text([])) :], "no column 'date'"),
        (text(GOOD, sep=";"), "no column 'date'"),
        (text(GOOD, sep="\t"), "no column 'date'"),
        ("<html><body>Not found</body></html>\n", "no column 'date'"),
        ('{"date": ["2021-01-04"]}', "no column 'date'"),
        ('"' + text(GOOD), "no CSV table"),
        (text(GOOD).replace("252.8300", '"252.8300'), "no CSV table"),
        (text(GOOD).replace("252.8300", '"252"8300'), "no CSV table"),
        (text(GOOD).encode("utf-16"), "no CSV table"),
        (text(GOOD).encode("utf-16-le"), "no column 'date'"),
        (b"\x1f\x8b\x08\x00" + bytes(range(256)), "no CSV table"),
        (b"\x00" * 5000, "no column 'date'"),
        (text(GOOD, [*HEADER[:6], "volumé"]).encode("latin-1"), "no CSV table"),
        ("x" * 200_000, "no CSV table"),
        ("x," * 50_000, "no column 'date'"),
        (text(planted(3, "close", "9" * 5000)), "row 4 (2021-01-07), column close"),
        (text(planted(3, "close", "x" * 5000)), "row 4 (2021-01-07), column close"),
        (text(planted(3, "close", '"1\n2"')), "row 4 (2021-01-07), column close: '1\\n2'"),
        (text(planted(3, "close", "240\x00")), "row 4 (2021-01-07), column close: '240\\x00'"),
    ],
)
def test_what_is_no_table_at_all_is_refused_in_one_line(write, content, complaint):
    message = refusal(write(content))
    assert "mine.csv" in message
    assert complaint in message


@given(st.binary(max_size=300))
@settings(max_examples=60, deadline=None)
def test_no_bytes_at_all_make_anything_but_a_data_error(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("bytes") / "mine.csv"
    for whole in (content, text(GOOD[:2]).encode() + content):
        path.write_bytes(whole)
        with suppress(DataError):
            prices = read_prices(path)
            assert prices.date == tuple(DAYS[:2])  # nothing but blank lines came after them


def test_a_directory_and_a_path_that_cannot_be_are_refused(tmp_path):
    assert refusal(tmp_path) == f"{tmp_path}: cannot be read (Is a directory)"
    assert "mine.csv" in refusal(tmp_path / "no" / "such" / "mine.csv")
    assert "null byte" in refusal("mi\0ne.csv")
    assert "cannot be read" in refusal("")
    with pytest.raises(DataError, match="cannot be read"):
        read_prices("x" * 5000)


@pytest.mark.parametrize("source", [None, 7, b"mine.csv", {}, [], frame()["open"], frame().to_numpy(), Path])
def test_what_is_neither_a_file_nor_a_frame_is_refused(source):
    message = refusal(source)
    assert type(source).__name__ in message
    assert message.endswith("give a CSV file or a DataFrame")


@pytest.mark.parametrize("made", [pd.DataFrame(), pd.DataFrame(columns=HEADER), frame()[:1], frame()[:0]])
def test_an_empty_frame_is_refused(made):
    assert re.fullmatch(r"DataFrame: (no column 'date'; .*|[01] rows; a price table needs at least 2)", refusal(made))
