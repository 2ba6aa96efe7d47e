"""What a call costs: a user's table first, then published prices, and None where nobody knows."""

import hashlib
import os
from datetime import UTC, datetime, timedelta

import pytest

from fintrading_agents.models.prices import find_price, free
from fintrading_agents.models.reply import Usage

OPENAI = "https://api.openai.com/v1"
USAGE = Usage(1_000_000, 100_000, 400_000)


def test_a_users_table_counts_cached_input_apart(tmp_path):
    file = tmp_path / "prices.toml"
    file.write_text(
        '["openai/mine"]\ninput = 2.0\ncached = 0.5\noutput = 10\n\n["openai/plain"]\ninput = 2\noutput = 10\n'
    )
    price = find_price("openai/mine", "http://127.0.0.1:1/v1", str(file))
    assert price(USAGE) == pytest.approx(0.6 * 2 + 0.4 * 0.5 + 0.1 * 10)
    assert find_price("openai/plain", OPENAI, str(file))(USAGE) == pytest.approx(2 + 1)
    assert find_price("openai/other", "http://127.0.0.1:1/v1", str(file)) is None


def test_published_prices_count_at_their_own_endpoint_alone():
    pytest.importorskip("genai_prices")
    price = find_price("openai/gpt-4o-mini", OPENAI, None)
    assert price(Usage(1_000_000, 0)) == pytest.approx(0.15)
    assert price(Usage(1_000_000, 0, 1_000_000)) == pytest.approx(0.075)
    assert price(Usage(0, 1_000_000)) == pytest.approx(0.6)
    assert find_price("openai/gpt-4o-mini", "http://127.0.0.1:8000/v1", None) is None
    assert find_price("openai/no-such-model", OPENAI, None) is None


def test_a_price_tells_whose_it_is_and_of_which_date(tmp_path):
    file = tmp_path / "prices.toml"
    text = '["openai/dated"]\ninput = 2\noutput = 10\ndate = 2026-05-04\n["openai/plain"]\ninput = 2\noutput = 10\n'
    file.write_text(text)
    os.utime(file, (0, 86400.0 * 365))
    told = f"prices.toml (sha256 {hashlib.sha256(text.encode()).hexdigest()[:12]}) of"
    assert find_price("openai/dated", OPENAI, str(file)).source() == f"{told} 2026-05-04"
    assert find_price("openai/plain", OPENAI, str(file)).source() == f"{told} 1971-01-01"
    assert free.source() is None


def test_a_published_price_tells_the_list_and_the_day_on_which_it_was_asked():
    genai_prices = pytest.importorskip("genai_prices")
    told = find_price("openai/gpt-4o-mini", OPENAI, None).source()
    days = {datetime.now(UTC).date() - timedelta(days=k) for k in (0, 1)}  # it may be midnight
    assert told in {f"genai-prices {genai_prices.__version__}, as of {day}" for day in days}


def test_the_users_table_wins(tmp_path):
    file = tmp_path / "prices.toml"
    file.write_text('["openai/gpt-4o-mini"]\ninput = 7\noutput = 7\n')
    assert find_price("openai/gpt-4o-mini", OPENAI, str(file))(Usage(1_000_000, 0)) == 7


@pytest.mark.parametrize(
    "text",
    [
        "not toml",
        '["openai/x"]\ninput = 1',
        '["openai/x"]\ninput = "1"\noutput = 1',
        '["openai/x"]\ninput = -1\noutput = 1',
        '["openai/x"]\ninput = 1\noutput = 1\nouput = 1',
        '["openai/x"]\ninput = 1\noutput = 1\ndate = "May"',
        '["openai/x"]\ninput = 1\noutput = 1\ndate = 2026-05-04T01:02:03',
        '"openai/x" = 3',
    ],
)
def test_a_table_that_cannot_be_read_is_told(text, tmp_path):
    file = tmp_path / "prices.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"prices\.toml: "):
        find_price("openai/x", OPENAI, str(file))


def test_a_missing_table_is_told(tmp_path):
    with pytest.raises(ValueError, match="cannot be read"):
        find_price("openai/x", OPENAI, str(tmp_path / "none.toml"))


def test_what_runs_here_costs_nothing():
    assert free(USAGE) == 0
