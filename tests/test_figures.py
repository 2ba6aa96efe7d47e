"""The numeric audit: which figures count, and which of them were made up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fintrading_agents.figures import figures, unsupported

RESEARCH = "close 82.74, -1.11 % on the day\nrange of 250 days: 71.87 to 144.02\nvolume 69298400\nRevenue $16.9 billion"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It closed at 82.74 after falling 1.11 %.", ["82.74", "1.11"]),
        ("between 71.87-144.02, $16.9bn, 3-day, 12.5x, (14)", ["71.87", "144.02", "16.9", "3", "12.5", "14"]),
        ("1,234,567.5 shares; 12,26,9 days; 1,23", ["1,234,567.5", "12", "26", "9", "1", "23"]),
        ("Q2, RSI14, B2B and v1.5 are names", []),
        ("Company-001 rose on Day 7 and Date-0006, said Person-082; company 12 years old", ["12"]),
        ("1. first\n 2) second\n- 3. third\n## 4. fourth\n**5.** fifth\n> 6. sixth", []),
        ("1.5 is a figure at the beginning of a line", ["1.5"]),
        ("No figure at all.", []),
        ("", []),
    ],
)
def test_a_figure_is_a_number_that_counts_something(text, found):
    assert figures(text) == found


@pytest.mark.parametrize(
    ("text", "made_up"),
    [
        ("The close of 82.74 lies 1.11 % lower.", []),
        ("82.740, +1.110 % and 69,298,400 are the same values", []),
        ("about 82.7, down 1 %", ["82.7", "1"]),  # what was rounded is another figure
        ("a target of 95, then 95 again", ["95", "95"]),
    ],
)
def test_a_figure_that_is_not_in_the_research_is_counted_each_time(text, made_up):
    assert unsupported(text, RESEARCH) == made_up


@given(st.text("0123456789.,- \nabQ%$", max_size=300), st.text("0123456789., ", max_size=50))
def test_a_text_supports_itself_and_whatever_is_quoted_of_it(text, more):
    assert unsupported(text, text) == []
    assert unsupported(text, f"{more} {text}") == []
    assert len(unsupported(text, more)) <= len(figures(text))
