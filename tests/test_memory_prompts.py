"""What the agent says to its model, and what it reads from the answer."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fintrading_agents.memory import prompts
from fintrading_agents.memory.prompts import cited_in, decision_form, memories, reason_of, study_form, system_prompt
from fintrading_agents.memory.store import Recalled
from fintrading_gym.observations import PERSONAS
from fintrading_gym.rollout import Task

SHOWN = [Recalled(id, "deep", age, 1.0, 0.5, 0.4, 1.9, f"text {id}") for id, age in ((40, 0), (7, 1), (12, 30))]


def test_memories_are_numbered_with_their_age_and_never_with_a_date():
    assert memories(SHOWN, "full").splitlines() == [
        "You remember:",
        "1. [deep, today] text 40",
        "2. [deep, 1 day ago] text 7",
        "3. [deep, 30 days ago] text 12",
    ]
    assert memories(SHOWN[:1], "brief") == "You remember:\n1 (today): text 40\n"
    assert memories([], "full") == prompts.NOTHING
    long = SHOWN[0]._replace(text="word " * 500)
    assert [len(memories([long], detail)) < most for detail, most in (("full", 460), ("brief", 120))] == [True, True]


def test_the_rules_of_the_task_are_told():
    usual, other = Task(), Task(hold="flat", fill="next_open", cost_bps=7.5, persona="risk_averse")
    for detail in ("full", "brief"):
        assert "keep the position you have" in system_prompt(usual, detail, "cumulative")
        assert "have no position until the next decision" in system_prompt(other, detail, "cumulative")
        assert "costs 7.5 basis points" in system_prompt(other, detail, "cumulative")
    assert "at the close that you are shown" in system_prompt(usual, "full", "cumulative")
    assert "at the next day's open" in system_prompt(other, "full", "cumulative")
    assert "risk-averse investor" in system_prompt(other, "full", "momentum")


def test_each_reading_of_the_switch_has_a_prompt_and_two_stances_of_its_own():
    told = {system_prompt(Task(), "full", rule) for rule in prompts.RULES}
    stances = {stance for _, both in prompts.RULES.values() for stance in both}
    assert (len(prompts.RULES), len(told), len(stances)) == (3, 3, 6)
    assert prompts.RULES["cumulative"][1] == PERSONAS["adaptive"]  # as the environment has it
    assert all(
        [word in stance for word in ("risk-seeking", "risk-averse")] == [seeking, not seeking]
        for _, both in prompts.RULES.values()
        for stance, seeking in zip(both, (True, False), strict=True)
    )


def test_a_form_asks_for_citations_only_where_there_is_something_to_cite():
    assert list(decision_form(3).schema["properties"]) == ["action", "reason", "cited"]
    assert list(decision_form(0).schema["properties"]) == ["action", "reason"]
    assert "cited" not in decision_form(0).grammar.splitlines()[0]
    assert decision_form(3).grammar.endswith('number ::= "1" | "2" | "3"')
    assert study_form(0).grammar.endswith('cited ::= ""')
    for form in (decision_form(3), study_form(3), prompts.reflect_form()):
        assert form.schema["required"] == list(form.schema["properties"])  # as strict schemas demand


@given(reason=st.text(), cited=st.lists(st.integers(1, 3), max_size=3, unique=True))
def test_what_was_answered_is_read_back(reason, cited):
    for text in (
        json.dumps({"action": "buy", "reason": reason, "cited": cited}),
        f"Well: {json.dumps({'reason': reason})}",
    ):
        assert reason_of(text) == " ".join(reason.split())
    assert cited_in(json.dumps({"reason": "because", "cited": cited}), SHOWN) == [(40, 7, 12)[k - 1] for k in cited]


@pytest.mark.parametrize(
    ("text", "reason", "cited"),
    [
        ("", "", []),
        ('{"action": "buy"}', "", []),
        ('{"reason": 5, "cited": "1"}', "", []),
        ('{"reason": "cut of', "", []),
        ('{"cited": [0, 4, 99, 2]}', "", [7]),  # what was not shown cites nothing
        ('{"cited": [1, 1, 3, 2, 2]}', "", [40, 12, 7]),
        ('{"cited": [1.5]}', "", []),
        ('{"reason": "a", "cited": [1]} then {"reason": "b", "cited": [2]}', "b", [7]),
        ('{"reason": "raw\nline", "cited" : [ 3 ]}', "raw line", [12]),
        ('{"reason": "\\ud800 \\x"}', "", []),
    ],
)
def test_what_cannot_be_read_is_no_reason_and_cites_nothing(text, reason, cited):
    assert (reason_of(text), cited_in(text, SHOWN)) == (reason, cited)


@given(st.text(alphabet='"\\{}[]reason:cted,1 \n', max_size=200))
def test_reading_never_raises(text):
    assert isinstance(reason_of(text), str)
    assert set(cited_in(text, SHOWN)) <= {40, 7, 12}


def test_a_long_answer_is_read_in_time():
    for text in (
        '"reason": "' * 20_000,
        '"reason": "' + "\\" * 60_000,
        '"cited": [' * 20_000,
        '"cited": [' + "1, " * 20_000,
    ):
        reason_of(text)
        cited_in(text, SHOWN)


def test_a_move_of_nothing_is_told_in_words_too():
    assert [prompts.moved(x) for x in (0.1, 0.0, -0.1)] == ["rose", "stayed the same", "fell"]
    assert [prompts.sign(x) for x in (0.1, 0.0, -0.1)] == ["positive", "zero", "negative"]
    assert [prompts.percent(x) for x in (0.1, 0.0, -0.00001)] == ["+10.00 %", "+0.00 %", "+0.00 %"]


def test_the_hash_covers_every_prompt():
    known = {id(part) for part in prompts.PROMPTS}
    texts = {
        name for name, value in vars(prompts).items()
        if name.isupper() and name[0] != "_" and id(value) not in known and name not in ("PROMPTS", "PROMPT_SHA256")
    }  # fmt: skip
    assert texts == {"ACTIONS"}  # part of a form, which is in it
