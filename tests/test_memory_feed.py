"""What becomes known from day to day: a user's items from the day at whose close they are known, and price events."""

from types import SimpleNamespace

import numpy as np

from fintrading_agents.memory.feed import LONGEST, Feed, News, shortened
from fintrading_agents.sources import Item

# Thursday to Tuesday, with a weekend in between.
DATES = ("2022-10-06", "2022-10-07", "2022-10-10", "2022-10-11")
STILL = SimpleNamespace(open=np.full(4, 100.0), close=np.full(4, 100.0))


def feed(*items, bars=STILL, hide=lambda text: text):
    return Feed(bars, DATES, items, hide)


def item(date, title="Title", kind="news"):
    return Item(date, kind, title, "Text.")


def test_an_item_is_told_once_on_the_first_day_at_whose_close_it_is_known():
    told = feed(item("2022-10-07"), item("2022-10-08"), item("2022-10-11"))
    days = [told.of_day(row) for row in range(4)]
    assert [[news.row for news in day] for day in days] == [[], [1], [2], [3]]  # Saturday's is Monday's
    assert days[1] == [News("news", "news: Title. Text", 1)]


def test_items_without_a_date_or_of_a_later_day_are_kept_out_and_counted():
    told = feed(item(None), item("2022-10-10"), item("2023-01-01"))
    assert told.of_day(1) == []
    assert told.excluded == 3
    assert len(told.of_day(3)) == 1
    assert told.excluded == 2


def test_what_is_older_than_the_day_that_is_asked_first_has_its_own_age():
    told = feed(item("2022-10-07", "two"), item("2022-10-06", "one"), item("2022-09-29", "before")).of_day(3)
    assert [(news.text, news.row) for news in told] == [
        ("news: before. Text", -5),  # five weekdays before the table begins
        ("news: one. Text", 0),
        ("news: two. Text", 1),
    ]


def test_two_equal_items_are_two():
    assert len(feed(item("2022-10-06"), item("2022-10-06")).of_day(0)) == 2


def test_every_text_is_hidden_before_it_is_cut():
    name = "Company Incorporated " * 150
    told = feed(Item("2022-10-06", "10-k", "", name), hide=lambda text: text.replace("Company Incorporated", "X"))
    (news,) = told.of_day(0)
    assert news.text == shortened("10-k: " + "X " * 149 + "X", LONGEST)
    assert news.kind == "10-k"


def test_price_events_stand_beside_items():
    bars = SimpleNamespace(open=np.array([100.0, 99, 98, 97]), close=np.array([100.0, 99, 98, 97]))
    told = feed(item("2022-10-11"), bars=bars)
    assert [news.kind for news in told.of_day(3)] == ["streak", "news"]


def test_a_text_is_cut_between_two_words():
    assert shortened("a few words", 11) == "a few words"
    assert shortened("a few more words", 13) == "a few more..."
    assert shortened("a few more words", 12) == "a few..."
    assert shortened("unbroken" * 9, 10) == "unbroke..."
