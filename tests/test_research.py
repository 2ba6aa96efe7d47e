"""The research context: what it holds, what it leaves out, and that nothing in it knows the future."""

import json
import re
import urllib.request
from itertools import pairwise

import numpy as np
import pytest
from conftest import window_of
from hypothesis import given
from hypothesis import strategies as st

from fintrading_agents.egress import Egress
from fintrading_agents.neutering import for_task
from fintrading_agents.research import (
    BUDGETS,
    ITEMS,
    NO_SOURCE,
    OTHER_ITEMS,
    SECTIONS,
    cut,
    from_prices,
    research,
    tokens,
)
from fintrading_agents.sources import KINDS, Item
from fintrading_agents.technicals import bollinger, macd, rsi
from fintrading_gym.masking import IDENTITIES, mask
from fintrading_gym.observations import DETAILS, Sight, market_texts
from fintrading_gym.rollout import Task
from fintrading_gym.windows import CELLS, Window, bundled

TASK = Task("tsla_main")
HEADINGS = list(SECTIONS)


def made(day=2, items=(), detail="full", identity="masked", task=TASK, lookback=7):
    return research(Sight(task.window, lookback, detail, identity), day, items, for_task(task, identity).neuter)


def section(found, heading):
    return re.search(rf"^## {heading}\n(.*?)(?:\n\n##|\Z)", found.text, re.S | re.M)[1]


def news(date, text="Shares moved.", kind="news", title="A title"):
    return Item(date, kind, title, text)


# ------------------------------------------------------------------------------------------- what it holds


@pytest.mark.parametrize("identity", IDENTITIES)
@pytest.mark.parametrize("detail", DETAILS)
def test_it_is_one_block_of_seven_headed_sections_and_a_date_line(detail, identity):
    text = made(detail=detail, identity=identity).text
    assert re.findall("^## (.*)$", text, re.M) == HEADINGS
    assert len(HEADINGS) == 7
    title, date = text.splitlines()[:2]
    assert (title, date) == {
        "real": ("# Research on TSLA", "Date: 2022-10-10"),
        "names": ("# Research on Company-001", "Date: 2022-10-10"),
    }.get(identity, ("# Research on Company-001", "Date: Day 9"))


def test_a_section_without_a_source_says_so_and_the_others_come_from_the_window():
    found = made()
    assert [heading for heading in HEADINGS if section(found, heading) == NO_SOURCE] == HEADINGS[2:]
    assert market_texts(Sight(TASK.window, 7, "full", "masked"))[2].partition("\n")[2] in section(found, "Quote")


def test_the_quote_by_hand():
    window = window_of([100.0, 110.0, 99.0, 120.0, 90.0], [100.0, 104.0, 112.0, 98.0, 130.0], skip=1)
    text = section(made(2, identity="real", detail="brief", task=Task(window)), "Quote").splitlines()
    assert text[0] == "close 120.00, +21.21 % on the day"
    assert text[1] == "3-day momentum: +20.00 %"
    assert text[-1] == "range of 4 days: 98.00 to 120.00"


@pytest.mark.parametrize("identity", IDENTITIES)
def test_the_technicals_are_those_of_the_closes_that_are_shown(identity):
    close = mask(TASK.window, 7, identity).close
    t = TASK.window.span()[0] + 2
    (line, signal, difference), (upper, middle, lower) = macd(close), bollinger(close)
    assert section(made(identity=identity), "Technicals") == (
        f"RSI (14 days): {rsi(close)[t]:.1f}\n"
        f"MACD (12, 26, 9 days): {line[t]:+.2f}, signal {signal[t]:+.2f}, difference {difference[t]:+.2f}\n"
        f"Bollinger bands (20 days, 2 deviations): lower {lower[t]:.2f}, middle {middle[t]:.2f}, upper {upper[t]:.2f}"
    )


def test_indicators_without_enough_days_are_not_available():
    text = section(made(0, task=Task(Window("TSLA", "2021-01-04", "2021-03-01"))), "Technicals")
    assert re.findall(r"[\d.]+\b(?! ?days|,|\))", text.replace("2 deviations", "")) == []
    assert text.count("n/a") == 7


@pytest.mark.parametrize("kind", KINDS)
def test_an_item_of_every_kind_stands_in_one_section(kind):
    found = made(items=[news("2022-10-05", kind=kind)])
    (heading,) = [heading for heading, kinds in SECTIONS.items() if kind in kinds]
    assert section(found, heading) == "- 3 trading days ago: A title: Shares moved."
    assert [h for h in HEADINGS[2:] if section(found, h) == NO_SOURCE] == [h for h in HEADINGS[2:] if h != heading]
    assert (found.items, found.left_out, found.excluded) == (1, 0, 0)


@pytest.mark.parametrize(
    ("date", "told"),
    [
        ("2022-10-10", "today"),
        ("2022-10-08", "today"),  # a Saturday: known at Monday's close
        ("2022-10-07", "1 trading day ago"),
        ("2022-10-06", "2 trading days ago"),
        ("2019-01-01", "445 trading days ago"),  # before the first row of the table
    ],
)
def test_an_items_age_is_counted_in_trading_days(date, told):
    assert section(made(items=[news(date)]), "News").startswith(f"- {told}: ")


def test_at_most_eight_news_are_told_the_newest_first_and_the_rest_is_counted():
    items = [news(f"2022-09-{day:02}", title=f"title {day}") for day in range(1, 21)]
    items += [news(f"2022-09-{day:02}", kind="rating") for day in range(1, 6)]
    found = made(items=items)
    assert re.findall(r"title \d+", section(found, "News")) == [f"title {day}" for day in range(20, 12, -1)]
    assert ITEMS["News"] == 8
    assert section(found, "Analyst ratings").count("\n- ") + 1 == OTHER_ITEMS
    assert (found.items, found.left_out) == (8 + OTHER_ITEMS, 12 + 2)


words = st.text("abcdefgh 0123456789,.$äß", min_size=1, max_size=4000)


@given(st.lists(words, min_size=1, max_size=10), st.sampled_from(DETAILS), st.sampled_from([*KINDS]))
def test_a_section_keeps_to_its_budget(texts, detail, kind):
    found = made(items=[news("2022-10-05", text, kind) for text in texts], detail=detail)
    (heading,) = [heading for heading, kinds in SECTIONS.items() if kind in kinds]
    assert tokens(section(found, heading)) <= BUDGETS[heading][detail]
    assert found.tokens == tokens(found.text)


@given(words, st.integers(3, 200))
def test_a_text_is_cut_between_words_and_says_so(text, budget):
    told = cut(text, budget)
    assert tokens(told) <= budget
    if told.endswith("..."):
        kept = told.removesuffix("...").split()
        assert text.split()[: len(kept)] == kept
    else:
        assert told.split() == text.split()


def test_what_comes_from_prices_is_short_in_every_cell():
    for detail, quotes in (("full", 600), ("brief", 110)):
        for cell in CELLS:
            days = from_prices(Sight(Task(cell).window, 7, detail, "masked"))
            assert max(tokens(quote) for quote, _ in days) < quotes
            assert max(tokens(technicals) for _, technicals in days) < 130


@pytest.mark.parametrize("identity", IDENTITIES)
def test_of_a_long_table_of_prices_the_newest_days_are_shown(identity):
    found = made(80, identity=identity, lookback=60)
    assert tokens(section(found, "Quote")) <= BUDGETS["Quote"]["full"]
    shown = section(found, "Quote").splitlines()
    view = market_texts(Sight(TASK.window, 60, "full", identity))[80].splitlines()
    rows = shown[2:-5]
    assert shown[1] == view[1]
    assert 5 < len(rows) < 60
    assert rows == view[62 - len(rows) : 62]
    assert shown[-5:-2] == view[62:]


# --------------------------------------------------------------------------------- what it must not hold


def test_what_is_later_than_the_close_or_undated_is_left_out_and_counted():
    items = [news("2022-10-10", title="now"), news("2022-10-11", title="later"), news(None, title="undated")]
    found = made(items=items)
    assert section(found, "News") == "- today: now: Shares moved."
    assert found.excluded == 2


@pytest.mark.parametrize("identity", IDENTITIES)
@pytest.mark.parametrize("detail", DETAILS)
def test_no_section_changes_when_later_prices_or_items_change(detail, identity):
    closes = np.array([100 + 7 * ((k * 37) % 11) for k in range(90)], float)
    dates = window_of(closes).load().date
    for day in (0, 4, 20):
        t = 40 + day
        changed = closes.copy()
        changed[t + 1 :] *= np.linspace(0.3, 5, len(closes) - t - 1)
        futures = [
            ([news(date, f"on {date}", kind) for date in dates for kind in KINDS], closes),
            ([news(date, f"on {date}", kind) for date in dates[: t + 1] for kind in KINDS], changed),
            ([*[news(date, f"on {date}", kind) for date in dates[: t + 1] for kind in KINDS],
              *[Item(dates[t + 1], "outlook", "boom", "it doubles"), Item(None, "flow", "boom", "")]], changed),
        ]  # fmt: skip
        told = [
            made(day, items, detail, identity, Task(window_of(prices, skip=40), timesteps=30))
            for items, prices in futures
        ]
        assert len({found.text.encode() for found in told}) == 1
        assert told[0].excluded > told[1].excluded


def test_an_empty_section_is_the_same_whether_it_is_empty_for_ever_or_not_yet():
    assert made().text == made(items=[news("2022-10-11", kind="outlook")]).text


@pytest.mark.parametrize("cell", CELLS)
def test_nothing_masked_tells_who_or_when(cell):
    task = Task(cell, timesteps=None)
    ticker, dates = task.window.ticker, task.window.load().date
    start, days = task.window.span()
    raw = task.window.load().close
    items = [
        news(day, f"{ticker} (NASDAQ: {ticker}) closed at ${raw[t]:.2f} on {day}, said Elon Musk of Tesla.")
        for t, day in enumerate(dates[: start + days])
    ]
    egress = Egress(task, "masked")
    for day in range(0, days - 1, 20):
        assert egress.leaks("", made(day, items, task=task).text) == []


def test_half_a_name_is_not_told_where_a_text_is_cut():
    for spare in range(60):
        text = made(items=[news("2022-10-05", "word " * spare + "Berkshire Hathaway " * 60)], detail="brief").text
        assert "Berkshire" not in text
        assert "Hathaway" not in text


def test_a_masked_block_does_not_hang_on_the_level_of_prices():
    prices = bundled("TSLA")
    closes = np.array(prices.close[300:420])
    told = {made(5, task=Task(window_of(closes * level, skip=60))).text for level in (1.0, 4.0, 0.125)}
    assert len(told) == 1


def test_a_texts_date_and_the_views_day_have_the_same_number():
    found = made(items=[news("2022-10-10", "It fell on 2022-10-10 and on 2022-10-07.")])
    assert found.text.splitlines()[1] == "Date: Day 9 (in texts Date-0009)"
    assert "It fell on Date-0009 and on Date-0008." in section(found, "News")


# ---------------------------------------------------------------------------------------------- tokens


@pytest.mark.parametrize(
    ("text", "count"), [("", 0), ("word", 1), ("words", 2), ("104.20", 6), ("a b\nc", 4), ("a   b", 3), ("§é", 2)]
)
def test_tokens_are_counted_by_digits_signs_and_quarters_of_words(text, count):
    assert tokens(text) == count


def test_tokens_of_two_lines_are_those_of_both_and_the_break():
    texts = section(made(), "Quote").splitlines()
    assert all(tokens(f"{a}\n{b}") == tokens(a) + 1 + tokens(b) for a, b in pairwise(texts))


@pytest.mark.slow  # it needs the small model
def test_the_small_model_needs_no_more_tokens_than_are_counted():
    pytest.importorskip("xllamacpp")
    from fintrading_agents.models.local import present, serve

    if not present("smollm2"):
        pytest.skip("fintrading models add smollm2")
    url = serve().removesuffix("/v1") + "/tokenize"
    for detail in DETAILS:
        items = [
            news("2022-10-05", "Shares fell as analysts cut targets; deliveries missed forecasts. " * 9, k)
            for k in KINDS
        ]
        found = made(items=items, detail=detail)
        asked = urllib.request.Request(
            url, json.dumps({"content": found.text}).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(asked, timeout=300) as answer:
            assert len(json.load(answer)["tokens"]) <= found.tokens
