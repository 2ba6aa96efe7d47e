"""The five stages: what each is shown and what not, which run at the same time, and what a failed one stops."""

import asyncio
import json
import time
from importlib.util import find_spec

import pytest
from conftest import slower
from stub_endpoint import FAULTS, Stub, says

from fintrading_agents import llm
from fintrading_agents.committee import committee
from fintrading_agents.models import ModelFailure, Reply, Scripted, faults
from fintrading_agents.pipeline import ANALYST, BEAR, BULL, FINAL, JUDGE, RISK, SEES, Record, calls_of_one
from fintrading_agents.sources import Item
from fintrading_agents.transcript import IDENTITY
from fintrading_gym.errors import RunStopped
from fintrading_gym.replies import REASONS, Decision
from fintrading_gym.rollout import Player, Task

DAY = Task(timesteps=1)
BUY = '{"action": "buy", "confidence": 0.6, "target_price": 90}'
STAGES = ("analyst", "bull", "bear", "judge", "risk")
# The beginning of each stage's system prompt, by which a script knows who is asked.
BEGINS = {name: text[:40] for name, text in zip(STAGES, (ANALYST, BULL, BEAR, JUDGE, RISK), strict=True)}
# What is in the text of nobody but this stage; of the research its title, of the account a line of the view.
MARKS = {name: f"the words of the {name}" for name in STAGES[:-1]}
GIVEN = {"research": "# Research on Company-001", "account": "your position: flat"}


def who(messages):
    """The stage that is asked, and the round of its answer; 0: its first text."""
    system = messages[0]["content"]
    (stage,) = [name for name, begin in BEGINS.items() if system.startswith(begin)]
    return stage, int(system.partition("round ")[2][:1] or 0)


def says_who_it_is(messages):
    stage, n = who(messages)
    return BUY if stage == "risk" else MARKS[stage] + (f", round {n}" if n else "")


def played(script, task=DAY, **options):
    return Player("committee:given", committee, Scripted(script), options).play(task)


def told(episode, day=0):
    """Of each call of a day: stage, system prompt, and what it was given."""
    calls = episode.log[day]["calls"]
    return {call["stage"]: [message["content"] for message in call["messages"]] for call in calls}


# ----------------------------------------------------------------------------------- who sees what


# The matrix, written down a second time.
MATRIX = {
    "analyst": {"research"},
    "bull": {"research", "analyst"},
    "bear": {"research", "analyst"},
    "judge": {"bull", "bear"},
    "risk": {"research", "analyst", "bull", "bear", "judge", "account"},
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_prompt_holds_what_its_stage_may_see_and_nothing_else(stage):
    system, given = told(played(says_who_it_is))[stage]
    seen = {name for name, mark in {**GIVEN, **MARKS}.items() if mark in given}
    assert seen == MATRIX[stage]
    assert not any(mark in system for mark in [*GIVEN.values(), *MARKS.values()])
    assert SEES[stage] == tuple(name for name in (*GIVEN, *MARKS) if name in MATRIX[stage] - {"account"}) + (
        ("account",) if stage == "risk" else ()
    )


def test_what_is_given_is_the_parts_in_their_order_and_nothing_between_them():
    given = told(played(says_who_it_is))
    research = given["analyst"][1]
    assert given["bull"][1] == f"{research}\n\n# The analyst's report\n{MARKS['analyst']}" == given["bear"][1]
    assert given["judge"][1] == f"# The bull\n{MARKS['bull']}\n\n# The bear\n{MARKS['bear']}"
    assert given["risk"][1].startswith(f"{given['bull'][1]}\n\n{given['judge'][1]}\n\n# The judge's ruling\n")


@pytest.mark.parametrize("rounds", [1, 2])
def test_in_a_debate_each_answers_what_the_other_has_said_until_then(rounds):
    given = told(played(says_who_it_is, debate_rounds=rounds))
    assert list(given) == [
        "analyst", "bull", "bear", *[f"{side} {n}" for n in range(1, rounds + 1) for side in ("bull", "bear")],
        "judge", "risk",
    ]  # fmt: skip
    for n in range(1, rounds + 1):
        assert given[f"bull {n}"][1] == given[f"bear {n}"][1]
        assert "round" not in given["bull"][0]
        assert f"this is round {n} of the debate. Answer the bear's last word" in given[f"bull {n}"][0]
        assert f"this is round {n} of the debate. Answer the bull's last word" in given[f"bear {n}"][0]
        for side in ("bull", "bear"):
            texts = [MARKS[side], *[f"{MARKS[side]}, round {k}" for k in range(1, n)]]
            assert all(text in given[f"bull {n}"][1] for text in texts)
            assert f"{MARKS[side]}, round {n}" not in given[f"bull {n}"][1]
    assert "# Research" not in given["judge"][1]
    for stage in ("judge", "risk"):
        assert all(f"{MARKS[side]}, round {rounds}" in given[stage][1] for side in ("bull", "bear"))


def test_the_last_stage_is_told_the_rules_of_the_task_and_the_others_are_not():
    task = Task(timesteps=1, hold="flat", fill="next_open", cost_bps=7.5, persona="risk_averse")
    given = told(played(says_who_it_is, task))
    assert llm.rules(task) in given["risk"][0]
    assert not any("basis points" in system for stage, (system, _) in given.items() if stage != "risk")


def test_the_analyst_is_asked_for_five_sections_figures_and_three_facts():
    assert ANALYST.count("\n## ") == 5
    assert "Cite the figures" in ANALYST
    assert "three facts" in ANALYST


def test_a_stages_reasoning_is_kept_and_shown_to_nobody():
    def script(messages):
        text = says_who_it_is(messages)
        return Reply(f"<think>a secret thought</think>{text}", "ok", reasoning="another secret")

    episode = played(script)
    assert episode.decisions[0].action == "buy"
    assert not any("secret" in text for pair in told(episode).values() for text in pair)
    assert all("a secret thought" in call["content"] for call in episode.log[0]["calls"])


def test_a_text_that_was_cut_off_goes_on_as_far_as_it_goes():
    episode = played(lambda m: BUY if who(m)[0] == "risk" else Reply("The close", "truncated", finish_reason="length"))
    assert told(episode)["judge"][1] == "# The bull\nThe close\n\n# The bear\nThe close"
    assert episode.decisions[0].action == "buy"


def test_a_record_shows_nothing_that_is_not_there_yet():
    assert Record("research").shown("risk") == "research"
    assert Record("research", "account").shown("risk") == "research\n\n# The account\naccount"


# ------------------------------------------------------------------------------------- at the same time


class Meeting(Scripted):
    """A model that answers some stages only when all of them are asked."""

    def __init__(self, waiting):
        super().__init__(says_who_it_is)
        self.waiting, self.there, self.all_there = waiting, set(), asyncio.Event()

    async def complete(self, messages, *, sample=0, form=None):
        if who(messages) in self.waiting:
            self.there.add(who(messages))
            if self.there == self.waiting:
                self.all_there.set()
            await asyncio.wait_for(self.all_there.wait(), 20)
        return await super().complete(messages, sample=sample, form=form)


@pytest.mark.parametrize("n", [0, 1])
def test_bull_and_bear_are_asked_at_the_same_time(n):
    meeting = Meeting({("bull", n), ("bear", n)})
    episode = Player("committee:given", committee, meeting, {"debate_rounds": 1}).play(DAY)
    assert episode.failure is None
    assert episode.decisions[0].action == "buy"


def test_no_other_two_stages_are_asked_at_the_same_time():
    under_way, together = set(), set()

    class Slow(Scripted):
        async def complete(self, messages, *, sample=0, form=None):
            under_way.add(who(messages))
            await asyncio.sleep(0.05)
            together.add(frozenset(under_way))
            under_way.remove(who(messages))
            return await super().complete(messages, sample=sample, form=form)

    Player("committee:given", committee, Slow(says_who_it_is), {"debate_rounds": 1}).play(DAY)
    assert {pair for pair in together if len(pair) > 1} == {frozenset({("bull", n), ("bear", n)}) for n in (0, 1)}


@pytest.mark.slow
@pytest.mark.timed
@pytest.mark.skipif(not (find_spec("openai") and find_spec("tenacity")), reason="extra llm")
def test_an_analysis_takes_the_time_of_four_stages(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    latency = 0.5 * slower(time.perf_counter)
    with Stub(lambda body: says(says_who_it_is(body["messages"])) if len(body["messages"]) == 2 else says("?")) as stub:
        options = {"base_url": stub.url, "cache": "off", "structured": "none"}
        with Player("committee", committee, "openai/stub", options).opened() as player:
            player.play(DAY)  # what is imported and read once is no stage's time
            stub.latency = latency
            started = time.monotonic()
            episode = player.play(DAY)
            seconds = time.monotonic() - started
    assert episode.facts["calls"] == 5
    print(f"{seconds / latency:.2f} latencies")
    assert 4 <= seconds / latency < 4.7


def test_the_calls_of_an_analysis_are_known_beforehand():
    for rounds in range(4):
        episode = played(says_who_it_is, debate_rounds=rounds)
        assert episode.facts["calls"] == calls_of_one(rounds) == 5 + 2 * rounds


# -------------------------------------------------------------------------------------------- failures


def failing(stage, fault, n=0):
    def script(messages):
        if who(messages) == (stage, n):
            if isinstance(fault, Exception):
                raise fault
            return fault
        return says_who_it_is(messages)

    return script


NO_ANSWER = {
    kind: ModelFailure(kind, "TRACEBACK of the endpoint", url="http://x/v1", status=503)
    for kind in ("timeout", "connection", "server", "rate_limit", "malformed", "context", "unsupported", "bad_request")
}
SILENCE = {"empty": "empty", "only_reasoning": "only_reasoning", "refusal": "refusal", "content_filter": "filtered"}
NO_TEXT = {
    reason: (faults.read(json.dumps(FAULTS[fault].body), "http://x/v1"), reason) for fault, reason in SILENCE.items()
}


def stopped_at(episode, stage, why):
    """The decision is none, the log says why, and nobody was asked after it."""
    assert episode.failure is None
    assert episode.decisions == (Decision(None, "stage_failed"),)
    assert (episode.ledger.valid, episode.ledger.action) == ((False,), (1,))  # the environment holds
    assert episode.log[0]["invalid"].startswith(f"stage {stage} failed ({why}")
    assert episode.facts["failed_stages"] == 1
    asked = [call["stage"] for call in episode.log[0]["calls"]]
    assert asked == list(STAGES[: 1 + max(STAGES.index(stage), 2 if stage == "bull" else 0)])


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("kind", NO_ANSWER)
def test_a_stage_without_an_answer_stops_its_decision_and_no_error_is_told_to_another(stage, kind):
    episode = played(failing(stage, NO_ANSWER[kind]))
    stopped_at(episode, stage, f"{kind}: ")
    assert "TRACEBACK" in episode.log[0]["invalid"]
    assert not any("TRACEBACK" in text for pair in told(episode).values() for text in pair)


@pytest.mark.parametrize("stage", STAGES[:-1])
@pytest.mark.parametrize("name", NO_TEXT)
def test_a_stage_that_says_nothing_stops_its_decision(stage, name):
    reply, reason = NO_TEXT[name]
    stopped_at(played(failing(stage, reply)), stage, f"{reason}: {REASONS[reason]})")


@pytest.mark.parametrize("name", NO_TEXT)
def test_a_last_word_that_is_none_is_no_decision_with_its_own_reason(name):
    reply, reason = NO_TEXT[name]
    episode = played(failing("risk", reply))
    assert episode.decisions == (Decision(None, reason),)
    assert episode.log[0]["invalid"] == f"stage risk failed ({reason}: {REASONS[reason]})"


def test_a_last_word_in_words_is_no_decision_whatever_words_they_are():
    episode = played(failing("risk", "After weighing BUY against SELL I recommend HOLD at 65 % confidence."))
    assert episode.decisions == (Decision(None, "no_object"),)
    assert "target" not in episode.log[0]


@pytest.mark.parametrize("form", ["schema", "prose"])
def test_a_failed_call_is_not_taken_for_a_verdict_of_65_percent(form):
    for text in ("Error: 429 Too Many Requests. HOLD the line, 65 % of requests fail.", "", "None"):
        (decision,) = played(failing("risk", text), form=form).decisions
        assert (decision.action, decision.confidence, decision.target_price) == (None, None, None)


@pytest.mark.parametrize("side", ["bull", "bear"])
def test_a_side_that_fails_in_the_debate_is_named_with_its_round(side):
    episode = played(failing(side, NO_ANSWER["server"], n=2), debate_rounds=2)
    assert episode.log[0]["invalid"].startswith(f"stage {side} 2 failed (server: ")
    assert [call["stage"] for call in episode.log[0]["calls"]][-2:] == ["bull 2", "bear 2"]


def test_if_both_sides_fail_the_log_has_both_and_names_the_bull():
    def script(messages):
        if who(messages)[0] in ("bull", "bear"):
            raise ModelFailure("server", f"no {who(messages)[0]}")
        return says_who_it_is(messages)

    episode = played(script)
    stopped_at(episode, "bull", "server: the endpoint cannot answer now (no bull)")
    assert ["failure" in call for call in episode.log[0]["calls"]] == [False, True, True]


def test_the_next_day_is_decided_anew():
    failed = iter([True, False])

    def script(messages):
        if who(messages)[0] == "bear" and next(failed):
            raise NO_ANSWER["timeout"]
        return says_who_it_is(messages)

    episode = played(script, Task(timesteps=2))
    assert [decision.action for decision in episode.decisions] == [None, "buy"]
    assert ["invalid" in day for day in episode.log] == [True, False]


@pytest.mark.parametrize("kind", FINAL)
@pytest.mark.parametrize("stage", ["analyst", "bear", "risk"])
def test_a_model_that_can_be_had_no_more_ends_the_episode(stage, kind):
    episode = played(failing(stage, ModelFailure(kind, "no")), Task(timesteps=3))
    assert episode.failure.startswith(f"day 1: ModelFailure: {kind}: ")
    assert episode.score is None


@pytest.mark.parametrize(
    ("rounds", "manner"), [(0, "one-shot construction"), (1, "a debate of 1 round"), (3, "a debate of 3 rounds")]
)
def test_the_log_calls_a_debate_only_what_is_one(rounds, manner):
    episode = played(says_who_it_is, Task(timesteps=2), debate_rounds=rounds)
    assert [day["manner"] for day in episode.log] == [manner] * 2


@pytest.mark.parametrize("stage", STAGES)
def test_a_limit_of_the_run_is_no_failed_stage(stage):
    with pytest.raises(RunStopped, match="usd_limit"):
        played(failing(stage, RunStopped("usd_limit=1 is reached")))


@pytest.mark.parametrize("identity", ["real", "masked", "coarse"])
def test_a_price_that_a_stage_quotes_reaches_the_others_as_it_was_written(identity):
    def script(messages):
        return BUY if who(messages)[0] == "risk" else f"{MARKS[who(messages)[0]]}: between $85.10 and US$ 1,200.5"

    for stage, (_, given) in told(played(script, Task(timesteps=1, identity=identity), debate_rounds=1)).items():
        for writer in MATRIX[stage.split()[0]] & MARKS.keys():
            assert f"{MARKS[writer]}: between $85.10 and US$ 1,200.5" in given


def test_a_price_in_an_item_is_scaled_once_whoever_reads_it():
    items = [Item("2022-10-06", "news", "Quoted", "at $238.13")]
    agent = committee(DAY, Scripted(says_who_it_is))
    agent._items = items
    agent(DAY.make(observation="text", identity="masked").reset()[0])
    for call in agent.log[0]["calls"]:
        given = call["messages"][1]["content"]
        assert ("Quoted: at $82.74" in given) == (call["stage"] != "judge")


def test_nobody_is_told_who_it_is():
    items = [Item("2022-10-06", "news", "Tesla falls", "Elon Musk sold TSLA at $240.81 on October 5, 2022.")]
    assert IDENTITY == "masked"
    agent = committee(DAY, Scripted(says_who_it_is))
    agent._items = items
    agent(DAY.make(observation="text", identity="masked").reset()[0])
    sent = json.dumps([call["messages"] for call in agent.log[0]["calls"]])
    assert "Company-001 falls" in sent
    assert not any(word in sent for word in ("Tesla", "TSLA", "Musk", "2022", "October", "240.81"))
