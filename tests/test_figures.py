"""The numeric audit: which figures count, and which of them were made up."""

from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fintrading_agents.figures import figures, unsupported

RESEARCH = """\
close 82.74, -1.11 % on the day
3-day momentum: +3.20 %
range of 250 days: 71.87 to 144.02
RSI (14 days): 28.2
MACD (12, 26, 9 days): -5.31, signal -4.02, difference -1.29
volume 69298400
- today: Revenue of $16.9 billion; margins fell 2.5 points"""


def written(text):
    return [figure.text for figure in figures(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It closed at 82.74 after falling 1.11 %.", ["82.74", "1.11"]),
        ("between 71.87-144.02, 3-day, 12.5x, (14), ~7, 5th", ["71.87", "144.02", "3", "12.5", "14", "7"]),
        ("1,234,567.5 shares; 12,26,9 days; 1,23", ["1,234,567.5", "12", "26", "9", "1", "23"]),
        # Glued to a sign, a currency or a name.
        (".75%, $.75, -.75", [".75", ".75", "-.75"]),
        ("RSI14.7, RSI72, close82.74, EUR45, US$45, USD 45, 45EUR", ["14.7", "72", "82.74", "45", "45", "45", "45"]),
        (
            "-3.2%, +3.2 %, \u22123.2, (-3.2), -$3.2, $-3.2, -EUR3, EUR-3",
            ["-3.2", "+3.2", "\u22123.2", *["-3.2"] * 3, "-3", "-3"],
        ),
        ("1.1%-3.2%, 2022-10-06, 5 - 3, GPT-4", ["1.1", "3.2", "2022", "10", "06", "5", "3", "4"]),
        ("6.9e7 and 1E-3, 6e7x", ["6.9e7", "1E-3", "6"]),
        ("$16.9bn, 16.9 billion, 5B, 200k, 4 mln", ["16.9bn", "16.9 billion", "5B", "200k", "4 mln"]),
        ("No.5, wait...75, and 82.74.", ["5", "75", "82.74"]),
        # In words.
        ("Fifteen percent of two hundred", ["Fifteen", "two hundred"]),
        (
            "twenty-five points, a hundred and one, fifteen hundred",
            ["twenty-five", "a hundred and one", "fifteen hundred"],
        ),
        ("two hundred million, two thousand and six", ["two hundred million", "two thousand and six"]),
        ("three point two percent, one and a half percent", ["three point two", "one and a half"]),
        ("two weeks, three trading days, one percent, five times", ["two", "three", "one", "five"]),
        # What is left out.
        ("Q2, MA50, B2B, v1.5, V2, 5G, 2Q23, S&P 500, Nasdaq-100, a 10-K, 10-Qs, 1.2.3", []),
        ("Company-001 rose on Day 7 and Date-0006, said Person-082; company 12 years old", ["12"]),
        ("1. first\n 2) second\n- 3. third\n## 4. fourth\n**5.** fifth\n> 6. sixth", []),
        ("Point 1: fact 2 and reason #3, #4; the 3rd of them, the 21st", []),
        ("1.5 is a figure at the beginning of a line; so is point 1.5, and fact 3 %", ["1.5", "1.5", "3"]),
        ("one of the two sides, on the one hand, three facts, one day, no one, someone, tension, often", []),
        ("dozens, hundreds of millions, half, a quarter, a third, twice, tenfold, \u00bd", []),
        ("No figure at all.", []),
        ("", []),
    ],
)
def test_a_figure_is_a_number_that_measures_something(text, found):
    assert written(text) == found


@pytest.mark.parametrize(
    ("text", "made_up"),
    [
        ("The close of 82.74 lies 1.11 % lower.", []),
        ("82.740, -1.110 % and 69,298,400 are the same values", []),
        ("about 82.7, down 1 %", ["82.7", "1"]),  # what was rounded is another figure
        ("a target of 95, then 95 again", ["95", "95"]),
        (".74, RSI14.7, RSI28.2, EUR45, EUR82.74", [".74", "14.7", "45"]),
        ("fifteen percent in fourteen days, two hundred and fifty days", ["fifteen"]),
        # Signs.
        ("-3.2 % in three days", ["-3.2"]),
        ("+3.2 %, 3.2 % and a rise of 3.2 % alike", []),
        ("it fell 3.2 %, a 3.2 % loss, down by about 3.2 %, 3.2 percent lower, minus 3.2 %", ["3.2"] * 5),
        ("it fell 1.11 %, a drop of 1.11 %, 1.11 % down, -1.11 %, negative 1.11", []),
        ("it rose 1.11 %, a gain of 1.11 %, 1.11 % higher, up 1.11, +1.11 %", ["1.11"] * 4 + ["+1.11"]),
        ("down to 71.87, up from 71.87, fell from +3.2 %, below 144.02", []),
        ("margins down 2.5 points, and not +2.5", ["+2.5"]),
        ("rose 3.2 % lower", []),  # whatever that may be
        # Magnitudes.
        ("16.9bn, $16,900 million, 16,900,000,000 and, in billions, 16.9", []),
        ("16.9 million, 16,900", ["16.9 million", "16,900"]),
        ("69.2984 million, 69.2984e6 and 6.92984e7 shares", []),
    ],
)
def test_a_figure_that_is_not_in_the_research_is_counted_each_time(text, made_up):
    assert unsupported(text, RESEARCH) == made_up


PIECES = "two hundred and million point one a half fell rose by lower up EUR RSI bn k v S&P -$ Day Company-001"
TEXTS = st.lists(
    st.one_of(
        st.text("0123456789.,-+ \nabQ%$eE()", max_size=12),
        st.sampled_from(PIECES.split()),
        st.text(max_size=4),
    ),
    max_size=40,
)


@given(TEXTS.map("".join) | TEXTS.map(" ".join), st.text("0123456789.,- ", max_size=50))
@example("".join(chr(0x660 + n) for n in range(10)), "")  # digits of other scripts
@example("9" * 5000 + " million", "")
def test_a_text_supports_itself_and_whatever_is_quoted_of_it(text, more):
    assert unsupported(text, text) == []
    assert unsupported(text, f"{more}\n\n{text}") == []
    assert len(unsupported(text, more)) <= len(figures(text))


NUMBERS = st.decimals(0, 10**7, places=2, allow_nan=False, allow_infinity=False)
WAYS = ["{}", "{:f}0", "{:,}", "${:,}", "EUR{}", "(RSI{:.2f})", "{} %", "about {}.", "{}x", "**{}**", "{}e0", "{}-day"]


@given(NUMBERS, st.sampled_from(WAYS), st.sampled_from(WAYS))
def test_a_value_is_the_same_however_it_is_written(number, way, other):
    text, told = way.format(number), other.format(number)
    assert [figure.number for figure in figures(text)] == [number]
    assert unsupported(text, told) == []
    assert len(unsupported(text, other.format(number + 1))) == 1


SIGNED = {
    -1: [
        "-{}",
        "\u2212{} %",
        "fell {} %",
        "a {} % loss",
        "dropped by nearly {}",
        "{} percent lower",
        "-${}",
        "minus {}",
    ],
    0: ["{}", "{} %", "moved {} %", "from 1 to {}", "up to {}"],
    1: ["+{}", "+{} %", "rose {} %", "a {} % gain", "climbed by about {}", "{} percent higher", "+${}", "plus {}"],
}


@given(
    NUMBERS.filter(lambda number: number > 1),
    *[st.sampled_from([(sign, way) for sign, ways in SIGNED.items() for way in ways])] * 2,
)
def test_only_opposite_signs_make_a_figure_another_one(number, said, known):
    (sign, way), (known_sign, known_way) = said, known
    figure = figures(way.format(number))[-1]
    assert (figure.sign, figure.number) == (sign, number)
    made_up = unsupported(way.format(number), "1; " + known_way.format(number))
    assert len(made_up) == (sign * known_sign == -1)


ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
    " eighteen nineteen"
)
TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety"


def spelt(number, link):
    """As it is said, another way round than it is read: from the largest part down."""
    for power, word in ((10**9, "billion"), (10**6, "million"), (1000, "thousand"), (100, "hundred")):
        if number >= power:
            rest = f"{link}{spelt(number % power, link)}" if number % power else ""
            return f"{spelt(number // power, link)} {word}{rest}"
    if number < 20:
        return ONES.split()[number]
    return TENS.split()[number // 10] + (f"-{ONES.split()[number % 10]}" if number % 10 else "")


@given(st.integers(10, 10**12 - 1), st.sampled_from([" ", " and "]))
def test_a_number_in_words_has_the_value_of_the_same_in_digits(number, link):
    text = spelt(number, link)
    (figure,) = figures(text)
    assert figure.readings()[-1] == number
    assert figure.text == text
    assert unsupported(text, f"{number:,}") == unsupported(f"{number:,}", text.title()) == []
    assert unsupported(text, f"{number + 1}") == [text]


@pytest.mark.parametrize("text", ["a million and ", "two hundred and ", "one point ", "9", "1,", "1.", "a", "fell by "])
def test_no_text_is_gone_through_again_and_again(text):
    long = text * (40_000 // len(text))
    assert len(figures(long)) <= len(long)  # a pattern that backtracks would take hours


def test_a_number_has_no_sign_and_no_magnitude_of_its_own():
    (figure,) = figures("-$1,234.50 million")
    assert figure[1:] == (Decimal("1234.5"), 6, -1)
