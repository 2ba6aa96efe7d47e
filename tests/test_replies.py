"""What counts as a decision: the 104 shapes, each rule by its name, and laws that hold for every text."""

import json
import sys
import time
import types
from pathlib import Path

import pytest
from conftest import slower
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fintrading_gym import replies
from fintrading_gym.replies import ACTIONS, KEYS, LIMIT, REASONS, REPAIRS, WARNINGS, Decision, parse, prose

SHAPES = [json.loads(line) for line in Path(__file__).with_name("replies.jsonl").read_text("utf-8").splitlines()]
BUY, SELL, HOLD = (json.dumps({"action": word}) for word in ("buy", "sell", "hold"))
QUICK = settings(deadline=None, max_examples=100)


def assert_lawful(decision):
    """What holds for every decision, whatever the reply."""
    assert decision.action in (*ACTIONS, None)
    assert (decision.reason == "") == (decision.action is not None)
    assert decision.action or decision.reason in REASONS
    assert decision.confidence is None or 0 <= decision.confidence <= 1
    assert decision.target_price is None or 0 < decision.target_price < float("inf")
    assert [name for name in REPAIRS if name in decision.repaired] == list(decision.repaired)
    assert [name for name in WARNINGS if name in decision.warnings] == list(decision.warnings)


def called(*arguments, **message):
    """A message whose tool calls have these arguments."""
    calls = [{"type": "function", "function": {"name": "submit", "arguments": each}} for each in arguments]
    return {"content": None, "tool_calls": calls, **message}


# ---------------------------------------------------------------------------------------------- the shapes


@pytest.mark.parametrize("shape", SHAPES, ids=[shape["id"] for shape in SHAPES])
def test_every_shape_gets_its_verdict(shape):
    decision = parse(shape["reply"])
    assert (decision.action or "invalid") == shape["verdict"], shape["why"]
    assert_lawful(decision)


def test_there_are_104_shapes():
    assert len({shape["id"] for shape in SHAPES}) == 104


SHAPE_REASONS = {
    "think-02": "only_reasoning",
    "think-06": "only_reasoning",
    "think-07": "only_reasoning",
    "prose-03": "no_object",
    "num-05": "bad_value",
    "alias-03": "conflict",
    "multi-02": "conflict",
    "dup-01": "conflict",
    "nest-08": "bad_value",
    "nest-09": "no_decision",
    "enc-05": "no_object",
    "fix-07": "no_object",
    "trunc-01": "truncated",
    "trunc-02": "truncated",
    "syn-01": "bad_value",
    "syn-05": "no_decision",
    "syn-14": "bad_value",
    "tool-02": "conflict",
    "tool-04": "no_decision",
    "refuse-01": "refusal",
    "refuse-02": "refusal",
    "refuse-04": "filtered",
    "err-01": "empty",
    "err-02": "empty",
    "err-05": "no_decision",
    "err-08": "no_object",
}


@pytest.mark.parametrize("name", SHAPE_REASONS)
def test_a_shape_without_a_decision_says_why(name):
    (reply,) = (shape["reply"] for shape in SHAPES if shape["id"] == name)
    assert parse(reply).reason == SHAPE_REASONS[name]


# --------------------------------------------------------------------------------------------- a decision


def test_the_index_of_a_decision_is_the_action_of_the_environment():
    assert [Decision(action).index for action in ACTIONS] == [0, 1, 2]
    assert ACTIONS == ("sell", "hold", "buy")
    assert Decision(None, "empty").index is None


def test_a_decision_cannot_be_changed():
    with pytest.raises(AttributeError):
        parse(BUY).action = "sell"


def test_a_plain_object_needs_no_repair_and_no_warning():
    assert parse(BUY) == Decision("buy", "", None, (), ())


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("word", ACTIONS)
def test_each_key_may_hold_each_word(key, word):
    assert parse(json.dumps({key: word})).action == word


# ------------------------------------------------------------------------------------------------ reasoning


@pytest.mark.parametrize("tag", ["think", "thinking", "reasoning", "thought", "analysis", "scratchpad"])
@pytest.mark.parametrize("opener", ["<{}>", '<{} depth="2">', "<{}\nx>"])
def test_every_reasoning_tag_is_cut_in_any_case_and_with_attributes(tag, opener):
    for name in (tag, tag.upper(), tag.title()):
        assert parse(f"{opener.format(name)}maybe {SELL}</{tag}>{BUY}").action == "buy"


def test_json_as_a_whole_is_taken_before_anything_is_cut():
    for mention in ("a <think> tag", "a </think> tag", "<|channel|>analysis<|message|>", f"</think> {SELL}"):
        written = json.dumps({"action": "buy", "reason": mention})
        for whole in (written, f"```json\n{written}\n```", f"{written[:-1]},}}", json.dumps(written), f"[{written}]"):
            assert parse(whole).action == "buy", whole


def test_an_unclosed_opener_drops_what_follows_it():
    assert parse(f"<think>so {SELL}").reason == "only_reasoning"
    assert parse(f"{BUY} <think>or rather {SELL}").action == "buy"


def test_a_lone_closer_drops_what_precedes_it():
    assert parse(f"perhaps {SELL}</think>{BUY}").action == "buy"
    assert parse(f"<think>a</think>{SELL} no, wait</think>{BUY}").action == "buy"
    assert parse(f"{SELL}<think>a</think> no, wait</think>{BUY}").action == "buy"
    assert parse(f"{BUY}</think>").reason == "only_reasoning"


def test_the_depth_of_reasoning_is_counted():
    assert parse(f"<think>a<think>b</think>{SELL}</think>{BUY}").action == "buy"
    assert parse(f"<think>a<think>b</think>{SELL}").reason == "only_reasoning"


def test_a_closer_of_another_name_ends_no_reasoning():
    assert parse(f"<think>I mention </analysis> here, then {SELL}").reason == "only_reasoning"


def test_a_tag_that_merely_begins_like_one_is_text():
    assert parse(f"<thinker>{BUY}").action == "buy"
    assert parse(f"<think/>{BUY}").action == "buy"


def test_what_reasoning_split_is_not_glued_into_a_word():
    assert parse('So: {"action": "b<think>x</think>uy"}').reason == "bad_value"
    assert parse('{"action": <think>x</think> "buy"}').action == "buy"


def test_only_the_final_harmony_channel_answers():
    draft = f"<|channel|>analysis<|message|>{SELL}<|end|>"
    final = "<|start|>assistant<|channel|>final{}<|message|>{}<|return|>"
    assert parse(draft + final.format("", BUY)).action == "buy"
    assert parse(draft + final.format(" <|constrain|>json", BUY)).action == "buy"
    assert parse(f"{SELL}{final.format('', BUY)}").action == "buy"
    assert parse(draft + final.format("", f"<think>{SELL}</think>{BUY}")).action == "buy"
    assert parse(draft).reason == "only_reasoning"
    assert parse(final.format("", BUY) + final.format("", SELL)).reason == "conflict"


# ---------------------------------------------------------------------------------------- several decisions


def test_several_objects_count_only_when_all_agree():
    assert parse(f"{BUY} {BUY}").action == "buy"
    assert parse(f"{BUY} {SELL}").reason == "conflict"
    assert parse(f"```\n{BUY}\n```\n```\n{SELL}\n```").reason == "conflict"


def test_an_object_with_a_bad_value_competes():
    assert parse(f'{BUY} {{"action": "wait"}}').reason == "conflict"
    assert parse(f'{BUY} {{"action": null}}').reason == "conflict"
    assert parse('{"action": "wait"} {"action": "long"}').reason == "bad_value"


def test_a_broken_object_that_names_a_decision_key_competes():
    assert parse(f"{{action: sell}} {BUY}").reason == "conflict"
    assert parse(f"{{volume: high}} {BUY}").action == "buy"


def test_an_echoed_template_is_no_candidate():
    for template in (
        '{"action": "buy|sell|hold"}',
        '{"action": "buy\uff5csell"}',
        '{"action": "buy" | "sell" | "hold"}',
    ):
        assert parse(f"{template} {SELL}").action == "sell"
        assert parse(template).reason in ("no_decision", "no_object")


def test_the_top_level_outranks_the_nested():
    assert parse('{"bull": {"action": "buy"}, "action": "hold"}').action == "hold"
    assert parse('{"bull": {"action": "buy"}, "action": "wait"}').reason == "bad_value"
    assert parse('{"a": {"action": "buy", "why": {"action": "sell"}}}').action == "buy"


def test_nested_decisions_of_any_depth_must_agree():
    assert parse('{"a": {"action": "buy"}, "b": {"c": [{"action": "sell"}]}}').reason == "conflict"
    assert parse('{"a": {"action": "buy"}, "b": {"c": [{"action": "buy"}]}}').action == "buy"


def test_a_decision_key_may_wrap_a_decision():
    assert parse('{"decision": {"action": "buy"}}').action == "buy"
    assert parse('{"decision": {"action": "buy"}, "action": "sell"}').reason == "conflict"
    assert parse('{"decision": {"type": "buy"}}').reason == "bad_value"


def test_keys_that_disagree_are_a_conflict_and_keys_that_agree_are_one_decision():
    assert parse('{"action": "buy", "action": "sell"}').reason == "conflict"
    assert parse('{"action": "buy", "decision": "maybe"}').reason == "conflict"
    assert parse('{"action": "buy", "action": "BUY", "decision": "buy."}').action == "buy"


# ---------------------------------------------------------------------------------------------- what is cut


@pytest.mark.parametrize(
    "text",
    [
        '{"action": "buy"',
        '{"action": "buy", "reason": "ea',
        '{"orders": [{"action": "buy"}], "note"',
        f'{BUY} {{"action": "se',
        f"[{BUY},",
        f"[{BUY}",
        '```json\n{"action": "buy",',
        '{"action": "buy", // and the',
        '{"action": "buy", /* and the',
        f'{{"x": {BUY}',
    ],
)
def test_a_cut_off_outer_object_is_truncated_whatever_it_holds(text):
    assert parse(text).reason == "truncated"


def test_braces_and_brackets_in_prose_cut_nothing_off():
    for words in ("{x}", "{don't}", "[0, 1)", "[No response]", "{it's", "}"):
        assert parse(f"{words} {BUY}").action == ("buy" if words != "{it's" else None)
    assert parse(f"{{don't}} {BUY} It's so.").action == "buy"
    assert parse(f"[{BUY} So be it.").action == "buy"


def test_every_proper_prefix_of_an_object_is_no_decision():
    whole = '{"reason": "a } b \\" { c", "x": {"action": "sell"}, "action": "buy"}'
    assert parse(whole).action == "buy"
    assert all(parse(whole[:cut]).action is None for cut in range(len(whole)))


def test_more_than_64_kib_is_too_long_once_reasoning_is_cut():
    assert parse(BUY.ljust(LIMIT)).action == "buy"
    assert parse(BUY.ljust(LIMIT + 1)).reason == "too_long"
    assert parse(f"<think>{'x' * LIMIT}</think>{BUY}").action == "buy"
    assert parse(f'{{<think>{"x" * LIMIT}</think>"action": "buy"}}').action == "buy"
    assert parse(f"<think>x</think>{'x' * LIMIT}{BUY}").reason == "too_long"
    assert parse(json.dumps(BUY)[:-1] + "\\u0020" * (LIMIT // 2) + '"').reason == "too_long"
    assert parse(json.dumps({"action": "buy", "reason": f"<think>{'x' * LIMIT}</think>"})).reason == "too_long"
    assert parse(" " * (LIMIT + 1)).reason == "empty"


def test_the_limit_counts_bytes():
    assert parse(BUY + "é" * ((LIMIT - len(BUY)) // 2)).action == "buy"
    assert parse(BUY + "é" * (LIMIT // 2)).reason == "too_long"


# -------------------------------------------------------------------------------------- the word and the key


@pytest.mark.parametrize(
    "value", ["BUY", " buy ", "buy.", "\uff22\uff55\uff59", "b\u200buy", "\ufeffbuy", "\u00a0Buy.\n", "BUY\uff0e"]
)
def test_values_are_compared_folded_and_may_end_in_a_full_stop(value):
    assert parse(json.dumps({"action": value})).action == "buy"


@pytest.mark.parametrize(
    "value",
    ["buy..", "buy!", "**buy**", "'buy'", "buy,", ".buy", "buys", "bu y", "b\u00adbuy", "\u0412UY", "", ".", "buy ."],
)
def test_nothing_else_is_stripped_from_a_value(value):
    assert parse(json.dumps({"action": value})).reason == "bad_value"


@pytest.mark.parametrize("value", [1, 0.0, True, None, ["buy"], {}, {"buy": 1}, [], "-1", "1"])
def test_a_value_that_is_no_word_is_a_bad_value(value):
    assert parse(json.dumps({"action": value})).reason == "bad_value"


def test_keys_are_compared_folded_and_whole():
    for key in ("ACTION", " action ", "\uff41ction", "act\u200bion", "\\u0061ction"):
        assert parse(f'{{"{key}": "buy"}}').action == "buy"
    for key in ("action.", "actions", "last_action", "action_plan", "act ion", "recommended_action"):
        assert parse(f'{{"{key}": "buy"}}').reason == "no_decision"


# -------------------------------------------------------------------------------------------------- repairs

REPAIRED = [
    ("fence", '```json\n{"action": "buy"}\n```'),
    ("fence", '~~~\n{"action": "buy"}\n~~~'),
    ("fence", '`{"action": "buy"}`'),
    ("zero_width", '\ufeff{"action": "buy"}'),
    ("zero_width", '{\u00a0"action":\u200b"buy"}'),
    ("zero_width", '{"action": "b\u200buy"}'),
    ("smart_quotes", '{“action”: “buy”, “reason”: “he said "go"”}'),
    ("smart_quotes", "{\u201eaction\u201c: \u2018buy\u2019}"),
    ("single_quotes", "{'action': 'buy', 'a': None, 'b': True, 'c': \"it's\", 'd': 'it\\'s \"up\"'}"),
    ("trailing_comma", '{"a": [1, 2, ], "action": "buy", }'),
    ("comment", '{"action": "buy" // no } here, it\'s "text\n}'),
    ("comment", '{/* { " */"action": "buy", "url": "http://a/*b*/"}'),
    ("raw_newline", '{"action": "buy", "reason": "one\n\ttwo\r\n"}'),
    ("nan", '{"action": "buy", "x": NaN, "y": -Infinity}'),
    ("encoded", json.dumps('{"action": "buy"}')),
    ("text_after", '{"action": "buy"} That } is all.'),
]


@pytest.mark.parametrize(("name", "text"), REPAIRED)
def test_a_repair_is_made_and_named(name, text):
    decision = parse(text)
    assert (decision.action, decision.repaired) == ("buy", (name,))


def test_every_repair_of_the_list_has_a_text():
    assert {name for name, _ in REPAIRED} == set(REPAIRS)


def test_repairs_add_up():
    decision = parse("```json\n{'action': 'buy', // now\n}\n``` Bye.")
    assert decision.repaired == ("fence", "single_quotes", "trailing_comma", "comment", "text_after")


@pytest.mark.parametrize(
    "text",
    [
        "{action: buy}",
        '{"action": buy}',
        '{"action" = "buy"}',
        '{"action": "buy"; }',
        '{"action": "buy",, }',
        '{"action": "buy" "x": 1}',
        '{"action": "buy", "x": None}',
        '{"action": "buy" # so\n}',
        '{"action": "buy", "x": "\\q"}',
        '{"action": "buy", "x": "a "quoted" word"}',
        "{'action': 'buy', 'x': 'it's up'}",
        '{{"action": "buy"}}',
        "{&quot;action&quot;: &quot;buy&quot;}",
        '{"action": "buy", "x": "\x00"}',
    ],
)
def test_what_is_not_on_the_list_is_not_repaired(text):
    assert parse(text).reason == "no_object"


def test_only_one_level_of_encoding_is_undone():
    assert parse(json.dumps(json.dumps(BUY))).reason == "no_object"
    assert parse(json.dumps({"note": BUY})).reason == "no_decision"
    assert parse(json.dumps(f"I say {BUY}")).reason == "no_object"


def test_what_stands_inside_a_string_is_text():
    for inner in (SELL, "{", "}", '"', "// x", "/* x", "```", "it's", "“", "<b>", "\\"):
        for text in (json.dumps({"r": inner, "action": "buy"}), repr({"r": inner, "action": "buy"})):
            assert parse(text).action == "buy", text


# ----------------------------------------------------------------------------------------------- confidence


CONFIDENCES = {"0.55": 0.55, "0": 0.0, "1": 1.0, '"0.8"': 0.8, '" .8 "': 0.8, "-0.0": 0.0, "null": None}
CONFIDENCES |= {'"85%"': 0.85, '"85 %"': 0.85, '"\uff18\uff15\uff05"': 0.85}


@pytest.mark.parametrize(("raw", "confidence"), CONFIDENCES.items(), ids=ascii)
def test_a_confidence_is_read_from_numbers_and_from_text(raw, confidence):
    decision = parse(f'{{"action": "buy", "confidence": {raw}}}')
    assert (decision.action, decision.confidence, decision.warnings) == ("buy", confidence, ())


@pytest.mark.parametrize(
    ("raw", "warning"),
    [(raw, "confidence_out_of_range") for raw in ("85", "-0.1", "1.01", "NaN", "Infinity", '"850%"', '"nan"', '"85"')]
    + [(raw, "confidence_unreadable") for raw in ("true", '"high"', '""', "[0.5]", "{}", '"0_5"', '"0,8"')]
    + [("9" * 6000, "confidence_out_of_range")],
)
def test_a_confidence_that_is_none_is_never_a_default(raw, warning):
    decision = parse(f'{{"action": "buy", "confidence": {raw}}}')
    assert (decision.action, decision.confidence, decision.warnings) == ("buy", None, (warning,))


def test_two_confidences_for_one_decision_are_none():
    for text in ('{"action": "buy", "confidence": 0.2, "confidence": 0.3}', f'{BUY[:-1]}, "confidence": 1}}' * 2):
        assert parse(text).action == "buy"
    two = '{"action": "buy", "confidence": 0.2} {"action": "buy", "confidence": 0.3}'
    assert (parse(two).confidence, parse(two).warnings) == (None, ("confidence_conflict",))


def test_a_confidence_beside_the_wrapper_belongs_to_the_decision():
    assert parse('{"decision": {"action": "buy"}, "confidence": 0.7}').confidence == 0.7
    assert parse('{"TSLA": {"action": "buy", "confidence": 0.6}, "confidence": 0.7}').confidence == 0.6


PRICES = {"104.2": 104.2, "7": 7, '"$1,234.50"': 1234.5, '"$ 99"': 99, '" 104.20 "': 104.2, "1e2": 100, "null": None}


@pytest.mark.parametrize(("raw", "price"), PRICES.items(), ids=ascii)
def test_a_target_price_is_read_from_numbers_and_from_text(raw, price):
    decision = parse(f'{{"action": "buy", "target_price": {raw}}}')
    assert (decision.action, decision.target_price, decision.warnings) == ("buy", price, ())


@pytest.mark.parametrize(
    ("raw", "warning"),
    [(raw, "target_price_not_positive") for raw in ("0", "-3", "0.00", '"$0.00"', '"-1"')]
    + [(raw, "target_price_unreadable") for raw in ("NaN", "Infinity", "1e999", "true", '"high"', '"1,23"', "[1]")]
    + [(raw, "target_price_unreadable") for raw in ('"inf"', '"100-120"', '"EUR 5"', '"1_000"', '""')],
)
def test_a_target_price_that_is_none_is_never_a_default(raw, warning):
    decision = parse(f'{{"action": "buy", "target_price": {raw}}}')
    assert (decision.action, decision.target_price, decision.warnings) == ("buy", None, (warning,))
    assert_lawful(decision)


def test_two_target_prices_for_one_decision_are_none_and_the_confidence_stays():
    two = '{"action": "buy", "target_price": 5, "confidence": 0.5} {"action": "buy", "target_price": 6}'
    assert (parse(two).target_price, parse(two).confidence) == (None, 0.5)
    assert parse(two).warnings == ("target_price_conflict",)
    wrapped = '{"decision": {"action": "buy", "target_price": 5}, "target_price": 6, "confidence": 1}'
    assert (parse(wrapped).target_price, parse(wrapped).confidence) == (5, 1)


# -------------------------------------------------------------------------------------------------- prose


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ("  Shares rose 3 %.\n", "Shares rose 3 %."),
        ("<think>hm</think>Shares rose.", "Shares rose."),
        ("hm</think>Shares rose.", "Shares rose."),
        ("<|channel|>analysis<|message|>hm<|end|><|channel|>final<|message|>Shares rose.", "Shares rose."),
        ({"content": "cut of", "finish_reason": "length", "reasoning_content": "hm"}, "cut of"),
        (
            {"content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Shares rose."}]},
            "Shares rose.",
        ),
    ],
)
def test_prose_is_what_a_reply_says_without_its_reasoning(reply, text):
    assert prose(reply) == (text, "")


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "empty"),
        (" \n\ufeff", "empty"),
        ({"content": None}, "empty"),
        ("<think>cut off in the mid", "only_reasoning"),
        ({"content": "", "reasoning_content": "hm"}, "only_reasoning"),
        ({"content": "x", "refusal": "I will not."}, "refusal"),
        ({"content": [{"type": "refusal", "refusal": "I will not."}]}, "refusal"),
        ({"content": "x", "finish_reason": "content_filter"}, "filtered"),
        ("x" * (LIMIT + 1), "too_long"),
        ({"content": 3}, "error"),
        ({"role": "assistant"}, "error"),
        (None, "error"),
    ],
)
def test_prose_that_is_none_says_why(reply, reason):
    assert prose(reply) == ("", reason)
    assert reason in REASONS


# ------------------------------------------------------------------------------------------------- messages


def test_a_filled_refusal_outranks_all():
    assert parse({**called(BUY), "content": BUY, "refusal": "No."}).reason == "refusal"
    assert parse({"content": BUY, "refusal": "  "}).action == "buy"
    assert parse({"content": [{"type": "refusal", "refusal": "No."}]}).reason == "refusal"
    assert parse({"content": [{"type": "refusal", "refusal": ""}, {"type": "text", "text": BUY}]}).action == "buy"


def test_a_content_filter_leaves_no_decision():
    assert parse({"content": BUY, "finish_reason": "content_filter"}).reason == "filtered"


def test_a_tool_call_outranks_the_content_where_it_holds_a_decision():
    assert parse(called(SELL, content=BUY)).action == "sell"
    assert parse(called('{"action": "wait"}', content=BUY)).reason == "bad_value"
    assert parse(called('{"query": "TSLA"}', content=BUY)).action == "buy"
    assert parse(called('{"query": "TSLA"}', SELL, content=BUY)).action == "sell"


def test_tool_calls_must_agree():
    assert parse(called(SELL, SELL)).action == "sell"
    assert parse(called(SELL, BUY, content=BUY)).reason == "conflict"


def test_the_arguments_of_a_tool_call_may_be_decoded_encoded_twice_or_cut():
    assert parse(called({"action": "buy"})).action == "buy"
    assert parse(called(json.dumps(BUY))).repaired == ("encoded",)
    assert parse(called('{"action": "bu', content=SELL, finish_reason="length")).reason == "truncated"
    assert parse(called(BUY, '{"action": "bu')).reason == "truncated"
    assert parse({"content": None, "function_call": {"name": "f", "arguments": BUY}}).action == "buy"
    cyclic = {}
    cyclic["action"] = cyclic
    assert parse(called(cyclic)).reason == "empty"


def test_only_text_parts_of_the_content_answer():
    text = [
        {"type": "text", "text": BUY[:9]},
        {"type": "thinking", "thinking": SELL},
        {"type": "text", "text": BUY[9:]},
    ]
    assert parse({"content": text}).action == "buy"
    assert parse({"content": [{"type": "image", "text": BUY}, 7, None]}).reason == "empty"
    assert parse({"content": [{"type": "thinking", "thinking": BUY}]}).reason == "only_reasoning"
    assert parse({"content": [BUY]}).action == "buy"


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content", "reasoning_details"])
def test_reasoning_fields_are_never_parsed(name):
    assert parse({"content": None, name: BUY}).reason == "only_reasoning"
    assert parse({"content": SELL, name: BUY}).action == "sell"


def test_the_token_limit_is_a_warning_for_a_complete_object_and_truncation_for_none():
    assert parse({"content": BUY, "finish_reason": "length"}).warnings == ("finish_length",)
    assert parse({"content": "I think that", "finish_reason": "length"}).reason == "truncated"
    assert parse({"content": "", "finish_reason": "length"}).reason == "empty"


def test_objects_that_dump_a_message_are_messages():
    class Message:
        def model_dump(self):
            return {"content": BUY, "refusal": None, "role": "assistant", "tool_calls": None}

    class Broken:
        def model_dump(self):
            raise ValueError("no")

    class Odd:
        model_dump = 7

    class Pydantic(Message):
        def model_dump(self, *, warnings=True):
            assert not warnings
            return super().model_dump()

    assert parse(Message()).action == parse(Pydantic()).action == "buy"
    assert parse({"content": [Message()]}).reason == "empty"
    assert [parse(thing).reason for thing in (Broken(), Odd(), Message)] == ["error"] * 3


NO_REPLIES = [None, 7, 1.5, True, b'{"action": "buy"}', [], [BUY], (), {}, {"action": "buy"}, {"error": {"code": 503}}]
NO_REPLIES += [{"content": 7}, {"content": {"action": "buy"}}, types.SimpleNamespace(content=BUY), parse, object()]


@pytest.mark.parametrize("thing", NO_REPLIES, ids=lambda thing: type(thing).__name__)
def test_what_is_no_reply_is_an_error(thing):
    assert parse(thing) == Decision(None, "error")


# --------------------------------------------------------------------------------------------- for all texts

SHARDS = ["{", "}", "[", "]", '"', "'", "\\", "\\u", "\n", ",", ":", " ", "//", "/*", "*/", "|", "```", "NaN"]
SHARDS += ["\u201c", "\u201d", "\u2018", "\u200b", "\ud800", '"action"', '"buy"', "'sell'", BUY, SELL]
SHARDS += ["<think>", "</think>", "<|channel|>", "final", "<|message|>"]
ANY_TEXT = st.one_of(
    st.text(st.characters(exclude_categories=[])), st.lists(st.sampled_from(SHARDS), max_size=20).map("".join)
)
ANY_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), ANY_TEXT),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | st.sampled_from(KEYS), inner, max_size=3)
    ),
    max_leaves=6,
)
PARTS = st.lists(
    st.fixed_dictionaries({"type": st.sampled_from(["text", "thinking", "refusal"]) | ANY_JSON, "text": ANY_JSON})
)
CALLS = st.lists(
    st.fixed_dictionaries({"function": st.fixed_dictionaries({"arguments": ANY_JSON}) | ANY_JSON}), max_size=3
)
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "content": ANY_JSON | PARTS,
        "tool_calls": CALLS | ANY_JSON,
        "function_call": ANY_JSON,
        "refusal": ANY_JSON,
        "reasoning": ANY_JSON,
        "finish_reason": st.sampled_from(["stop", "length", "content_filter"]) | ANY_JSON,
    },
)
# Tags aside, a reason may say anything.
REASONS_GIVEN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<")).map(lambda text: text[:40])
# Prose holds no braces or tags, and a "[" right before the object would be a list cut off.
PROSE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="{}<[")) | st.sampled_from(
    ["I'd buy.", 'a "sell" b', "`code`", "it's", "// no", "/*", "Final: hold", "“", "**buy**", "\\"]
)


@QUICK
@given(ANY_TEXT)
def test_no_text_raises_and_each_is_read_the_same_twice(text):
    decision = parse(text)
    assert_lawful(decision)
    assert parse(text) == decision


@QUICK
@given(MESSAGES | ANY_JSON)
def test_no_message_raises_and_each_is_read_the_same_twice(message):
    decision = parse(message)
    assert_lawful(decision)
    assert parse(message) == decision


@QUICK
@given(st.sampled_from(ACTIONS), REASONS_GIVEN, PROSE, PROSE)
@example("buy", "", "[1] ", "]")
@example("buy", "```", "```", "```")
@example("buy", '"}', "\ufeff", '"')
def test_the_verdict_is_the_same_under_fences_and_prose(action, reason, before, after):
    written = json.dumps({"reason": reason, "action": action}, ensure_ascii=False)
    for packed in (
        f"```json\n{written}\n```",
        f"```\n{written}",
        f"{before}\n{written}\n{after}",
        f"{before}\n```json\n{written}\n```\n{after}",
        f"<think>{before}{SELL}</think>{written}",
        f"[{written}]",
        json.dumps(written),
        repr({"action": action}),
    ):
        assert parse(packed).action == action, packed


@QUICK
@given(st.lists(st.sampled_from(["buy", "sell", "hold", "action", ":", '"', "'", "{", "<action>", " ", "\n", "1"])))
def test_words_without_an_object_never_become_an_action(words):
    assert parse("".join(words)).action is None
    assert parse(" ".join(words)).action is None


@QUICK
@given(st.sampled_from(ACTIONS), st.sampled_from(ACTIONS), PROSE)
def test_two_objects_decide_if_and_only_if_they_agree(one, other, between):
    decision = parse(json.dumps({"action": one}) + between + json.dumps({"decision": other}))
    assert decision.action == (one if one == other else None)


# ----------------------------------------------------------------------------------------------------- speed

HOSTILE = [
    "{",
    "}",
    "[",
    "]",
    '"',
    '""',
    '"\\',
    "'",
    "' ",
    "\\",
    "//",
    "/*",
    "/*/",
    ",",
    ", ",
    " ",
    "\n",
    "`",
    "~",
    "9",
]
HOSTILE += ["{}", "{1}", "{'a'}", "[{", "{,", '{"a":', '{"action":', '{"decision":{"action":', BUY]
HOSTILE += ["<think ", "<think>", "</think>", "<think></think>", "<|channel|>", "<|channel|>final<|message|>"]
HOSTILE += ["\ud800", "\u201c", "\u2018", "\u200b", "\ufdfa"]
HOSTILE += ["\u0301\u0316"]  # normalising a long run of these takes quadratic time


def filled(shard, size):
    return shard * (size // len(shard.encode("utf-8", "surrogatepass")))


def lines_run(text):
    """How many lines of the parser one reply takes."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        count += event == "line"
        return trace if frame.f_code.co_filename == replies.__file__ else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        parse(text)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("shard", HOSTILE, ids=ascii)
def test_the_work_grows_with_the_length_and_not_faster(shard):
    for frame in ("{}", '{{"action": {}}}', '"{}"', "<think>{}"):
        short, long = (lines_run(frame.format(filled(shard, size))) for size in (1_000, 4_000))
        assert long <= 4.5 * short + 200, frame


def seconds(text):
    """The best of three, or of fewer if one is fast enough: what a busy machine adds is not the parser's."""
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        parse(text)
        best = min(best, time.process_time() - start)
        if best < 0.02:
            break
    return best


@pytest.mark.parametrize("shard", HOSTILE, ids=ascii)
def test_64_kib_of_anything_take_a_moment(shard):
    # The regular expressions' own work is not counted above; were it quadratic, this would take many seconds.
    took = seconds(filled(shard, LIMIT)), seconds(f'{{"action": "{filled(shard, LIMIT - 100)}"}}')
    assert max(took) < 0.5 * slower()


def test_twenty_thousand_braces_take_less_than_50_ms():
    assert seconds("{" * 20_000) < 0.05 * slower()


def test_a_long_run_of_reasoning_is_cut_in_linear_time():
    assert parse("<think>" * 100_000 + BUY).reason == "only_reasoning"
    assert parse("<think>x</think>" * 50_000 + BUY).action == "buy"
    assert parse("</think>" * 100_000 + BUY).action == "buy"


def test_deep_nesting_does_not_exhaust_the_stack():
    for text in ('{"a":' * 10_000 + "1" + "}" * 10_000, "[" * 60_000, "[" * 30_000 + "]" * 30_000):
        assert parse(text).action is None
        assert parse(called(text)).action is None
