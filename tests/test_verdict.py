"""The committee's last word, as JSON and as labelled lines: what is there is read, and nothing is made up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fintrading_agents.models import Reply
from fintrading_agents.verdict import FORMS, VERDICT, read_labelled, read_schema
from fintrading_gym.replies import ACTIONS, REASONS, WARNINGS, Decision

WHOLE = "Too hot.\nFINAL RECOMMENDATION: SELL\nCONFIDENCE: 72%\nTARGET PRICE: $104.20\n"
SOLD = Decision("sell", confidence=0.72, target_price=104.2)
BOTH_MISSING = ("confidence_missing", "target_price_missing")


@pytest.mark.parametrize(
    "text",
    [
        WHOLE,
        "**FINAL RECOMMENDATION:** **SELL**\n**Confidence:** 72 %\n**Target price:** 104.20",
        "- Final recommendation: sell.\n- Confidence: 0.72\n- Target_Price: $104.2",
        "> FINAL RECOMMENDATION : Sell\n> CONFIDENCE : 72%\n> TARGET PRICE : $104.20",
        WHOLE + WHOLE,
        f"<think>FINAL RECOMMENDATION: BUY</think>{WHOLE}",
    ],
)
def test_labelled_lines_are_read_as_models_write_them(text):
    assert read_labelled(text) == SOLD
    assert read_labelled(Reply(text, "ok")) == SOLD


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("<think>FINAL RECOMMENDATION: BUY", "only_reasoning"),
        ("I would BUY, others SELL.", "no_decision"),  # no keyword counts
        ("My FINAL RECOMMENDATION: BUY", "no_decision"),  # nor a label inside a sentence
        ("CONFIDENCE: 65%\nTARGET PRICE: $1.00", "no_decision"),
        ("RECOMMENDATION: BUY", "no_decision"),
        ("FINAL RECOMMENDATION: BUY, SELL or HOLD", "bad_value"),
        ("FINAL RECOMMENDATION: STRONG BUY", "bad_value"),
        ("FINAL RECOMMENDATION:\nBUY", "bad_value"),
        ("FINAL RECOMMENDATION: BUY | SELL", "no_decision"),
        ("FINAL RECOMMENDATION: BUY\nFINAL RECOMMENDATION: SELL", "conflict"),
        ("Error: 429 Too Many Requests", "no_decision"),
    ],
)
def test_a_recommendation_that_is_none_is_none_with_a_reason_and_never_hold(text, reason):
    assert read_labelled(text) == Decision(None, reason)
    assert reason in REASONS


@pytest.mark.parametrize(
    ("lines", "warnings"),
    [
        ("", BOTH_MISSING),
        ("CONFIDENCE: 72\nTARGET PRICE: $0.00", ("confidence_out_of_range", "target_price_not_positive")),
        ("CONFIDENCE: high\nTARGET PRICE: unclear", ("confidence_unreadable", "target_price_unreadable")),
        ("CONFIDENCE: 60-70%\nTARGET PRICE: $90 to $95", ("confidence_unreadable", "target_price_unreadable")),
        ("CONFIDENCE: 60%\nCONFIDENCE: 70%", ("confidence_conflict", "target_price_missing")),
        ("CONFIDENCE:\nTARGET PRICE:", ("confidence_unreadable", "target_price_unreadable")),
    ],
)
def test_a_number_that_is_none_is_none_with_a_reason_and_never_a_default(lines, warnings):
    decision = read_labelled(f"FINAL RECOMMENDATION: HOLD\n{lines}")
    assert decision == Decision("hold", warnings=tuple(name for name in WARNINGS if name in warnings))
    assert (decision.confidence, decision.target_price) == (None, None)


def test_a_reply_that_is_cut_off_says_so():
    cut = Reply("FINAL RECOMMENDATION: BUY\nCONFI", "truncated", finish_reason="length")
    assert read_labelled(cut) == Decision(
        "buy", warnings=("confidence_missing", "target_price_missing", "finish_length")
    )
    assert read_labelled(Reply("Too hot. FINAL", "truncated", finish_reason="length")) == Decision(None, "truncated")
    assert read_labelled(Reply("x", "refused", refusal="no")) == Decision(None, "refusal")
    assert read_labelled(Reply("x", "filtered", finish_reason="content_filter")) == Decision(None, "filtered")


@pytest.mark.parametrize(
    ("text", "decision"),
    [
        ('{"action": "sell", "confidence": 0.72, "target_price": 104.2}', SOLD),
        ('```json\n{"action": "hold"}\n```', Decision("hold", repaired=("fence",), warnings=BOTH_MISSING)),
        ('{"action": "buy", "confidence": 7, "target_price": null}',
         Decision("buy", warnings=("confidence_out_of_range", "target_price_missing"))),
        ('{"confidence": 0.65, "target_price": 1}', Decision(None, "no_decision")),
        ("HOLD", Decision(None, "no_object")),
        ("", Decision(None, "empty")),
    ],
)  # fmt: skip
def test_json_is_read_as_every_decision_is_and_what_is_missing_is_told(text, decision):
    assert read_schema(text) == decision


labels = st.sampled_from(["FINAL RECOMMENDATION", "CONFIDENCE", "TARGET PRICE", "Note"])
values = st.one_of(st.sampled_from(["BUY", "sell", "Hold.", "72%", "$5", "0", ""]), st.text(max_size=12))


@given(st.lists(st.tuples(labels, values), max_size=6))
def test_whatever_is_written_there_is_an_action_or_a_reason(lines):
    decision = read_labelled("\n".join(f"{label}: {value}" for label, value in lines))
    assert (decision.action in ACTIONS) != (decision.reason in REASONS)
    if decision.action:
        for name in ("confidence", "target_price"):
            assert (getattr(decision, name) is None) == any(warning.startswith(name) for warning in decision.warnings)


def test_the_schema_and_the_grammar_ask_for_what_is_read():
    assert list(VERDICT.schema["properties"]) == VERDICT.schema["required"] == ["action", "confidence", "target_price"]
    assert all(f'\\"{name}\\"' in VERDICT.grammar for name in VERDICT.schema["required"])
    assert FORMS.keys() == {"schema", "prose"}
    assert FORMS["prose"].form is None
