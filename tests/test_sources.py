"""What a user brings beside prices: how it is read, and from when on it is known."""

import datetime
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fintrading_agents.sources import KINDS, Item, known, read_sources
from fintrading_gym.errors import DataError


def written(folder, *lines):
    path = folder / "sources.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n")
    return path


def line_of(date, **more):
    return {"date": date, "kind": "news", "title": "a title", "text": "a text", **more}


def test_a_file_is_read_in_its_order_and_other_fields_are_left_alone(tmp_path):
    path = written(tmp_path, line_of("2022-10-07", url="x"), "", {"kind": "10-K", "text": " figures ", "date": None})
    assert read_sources(path) == [
        Item("2022-10-07", "news", "a title", "a text"),
        Item(None, "10-k", "", "figures"),
    ]
    assert read_sources(str(path)) == read_sources(path)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_read_in_upper_and_lower_case(kind, tmp_path):
    (item,) = read_sources(written(tmp_path, line_of("2022-10-07", kind=kind.upper())))
    assert item.kind == kind


def test_what_is_told_of_another_ticker_is_left_out(tmp_path):
    path = written(tmp_path, line_of("2022-10-07", ticker="TSLA"), line_of("2022-10-07", ticker="SPY"), line_of(""))
    assert [item.ticker for item in read_sources(path)] == ["TSLA", "SPY", ""]
    assert [item.ticker for item in read_sources(path, "TSLA")] == ["TSLA", ""]
    spelt = ["tsla", "NASDAQ:TSLA", "nasdaq: tsla", "$TSLA", "TSLAX", "SPY"]
    path = written(tmp_path, *(line_of("2022-10-07", ticker=ticker) for ticker in spelt))
    assert [item.ticker for item in read_sources(path, "TSLA")] == spelt[:4]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "line 2 is no JSON object"),
        ('["date"]', r"line 2: \['date'\] is no JSON object"),
        (line_of("2022-10-07", kind="nwes"), "line 2: No kind of item 'nwes'; there are .* Did you mean 'news'?"),
        ({"date": "2022-10-07", "text": "x"}, "line 2: No kind of item ''"),
        (line_of("2022-10-07", text=3), "line 2: text=3 is no text"),
        (line_of("2022-10-07", text=" ", title=None), "line 2 has neither a title nor a text"),
        (line_of("soon"), "line 2: date='soon' is neither YYYY-MM-DD nor a time"),
        (line_of("2022-02-30"), "date='2022-02-30' is neither"),
        (line_of(20221007), "date=20221007 is neither"),
        (line_of("2022-10-07T09:30"), "line 2: date='2022-10-07T09:30' needs its offset from UTC"),
    ],
)
def test_a_line_that_is_none_is_told_with_its_number(line, told, tmp_path):
    with pytest.raises(DataError, match=told) as fault:
        read_sources(written(tmp_path, line_of("2022-10-07"), line))
    assert str(fault.value).startswith("sources.jsonl, line 2")
    assert "\n" not in str(fault.value)


def test_a_file_that_cannot_be_read_is_told(tmp_path):
    with pytest.raises(DataError, match=r"none\.jsonl: cannot be read"):
        read_sources(tmp_path / "none.jsonl")
    (tmp_path / "latin.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match=r"latin\.jsonl is no JSONL file"):
        read_sources(tmp_path / "latin.jsonl")


@pytest.mark.parametrize(
    ("time", "day"),
    [
        ("2022-10-06T09:30-04:00", "2022-10-06"),
        ("2022-10-06T16:00:00-04:00", "2022-10-06"),  # at the close
        ("2022-10-06T16:00:01-04:00", "2022-10-07"),
        ("2022-10-06T20:00Z", "2022-10-06"),  # 16:00 in summer
        ("2022-12-06T20:30Z", "2022-12-06"),  # 15:30 in winter
        ("2022-12-06T21:30Z", "2022-12-07"),
        ("2022-11-25T14:00-05:00", "2022-11-26"),  # the day after Thanksgiving closes at 13:00
        ("2022-12-31T23:00-05:00", "2023-01-01"),
    ],
)
def test_a_time_after_the_close_counts_for_the_next_day(time, day, tmp_path):
    (item,) = read_sources(written(tmp_path, line_of(time)))
    assert item.date == day


@pytest.mark.filterwarnings("ignore")  # the calendar's rules are written for an older pandas
def test_early_closes_are_those_of_the_exchange(tmp_path):
    calendars = pytest.importorskip("exchange_calendars")
    calendar = calendars.get_calendar("XNYS", start="2015-01-01", end="2027-12-31")
    early = {f"{day:%Y-%m-%d}" for day in calendar.early_closes}
    sessions = [f"{day:%Y-%m-%d}" for day in calendar.sessions]
    items = read_sources(written(tmp_path, *(line_of(f"{day}T20:00Z") for day in sessions)))  # 15:00 or 16:00
    assert {day for day, item in zip(sessions, items, strict=True) if item.date != day} == early


days = st.dates(datetime.date(2022, 1, 1), datetime.date(2022, 12, 31)).map(str)


@given(st.lists(st.one_of(st.none(), days)), days)
def test_known_is_what_is_dated_up_to_the_day_and_everything_else_is_counted(dates, day):
    items = [Item(date, "news", str(k), "") for k, date in enumerate(dates)]
    seen, excluded = known(items, day)
    assert set(seen) == {item for item in items if item.date is not None and item.date <= day}
    assert len(seen) + excluded == len(items)
    assert [item.date for item in seen] == sorted(item.date for item in seen)
    same_day = [int(item.title) for item in seen if item.date == day]
    assert same_day == sorted(same_day)
