"""The seat: what a model is shown, how its replies are read, and what is kept of them."""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from importlib.util import find_spec

import pytest
from conftest import slower, window_of
from stub_endpoint import FAULTS, Stub, error, says

from fintrading_agents import llm as seat
from fintrading_agents.llm import FORM, PERSONAS, PROMPT_SHA256, llm, system_prompt
from fintrading_agents.models import ModelFailure, Reply, Scripted, Usage, faults
from fintrading_agents.models import client as client_module
from fintrading_gym import leaderboard as board
from fintrading_gym.errors import RunStopped
from fintrading_gym.ranking import rank
from fintrading_gym.replies import REASONS, Decision
from fintrading_gym.rollout import Player, Task, find_player
from fintrading_gym.windows import EVALUATION

BUY = '{"action": "buy"}'
BRIEF = Task(timesteps=3)


def played(answers, task=BRIEF, **options):
    """The episode of a seat whose model answers by a function, or from a list."""
    return Player("llm:given", llm, Scripted(answers), options).play(task)


def contents(episode):
    """Of each day, of each call, the texts of its messages."""
    return [[[m["content"] for m in call["messages"]] for call in day["calls"]] for day in episode.log]


# ----------------------------------------------------------------------------------------- what it is shown


@pytest.mark.parametrize("persona", PERSONAS)
@pytest.mark.parametrize("cell", EVALUATION)
def test_it_plays_every_task(cell, persona):
    episode = find_player("llm:scripted/momentum").play(Task(cell, persona, timesteps=10))
    assert episode.failure is None
    assert all(episode.ledger.valid)
    rule = find_player("momentum").play(Task(cell, persona, timesteps=10))
    assert episode.ledger == rule.ledger  # the script follows the same number, out of the text


def test_it_is_shown_the_rules_then_todays_view_and_nothing_else():
    seen = []
    agent = llm(BRIEF, Scripted(lambda messages: seen.append(messages) or BUY))
    agent({"text": "the view", "vector": None})
    agent("as text alone")
    assert seen == [
        [{"role": "system", "content": system_prompt(BRIEF)}, {"role": "user", "content": view}]
        for view in ("the view", "as text alone")
    ]


def test_the_rules_are_those_of_the_task_and_the_same_all_along():
    other = Task(hold="flat", fill="next_open", cost_bps=7.5, persona="risk_averse", timesteps=4)
    usual, unusual = system_prompt(Task()), system_prompt(other)
    assert "keep the position you have" in usual
    assert "at the close that you are shown" in usual
    assert "basis points" not in usual
    assert "have no position until the next decision" in unusual
    assert "at the next day's open" in unusual
    assert "costs 7.5 basis points" in unusual
    assert {texts[0] for day in contents(played(lambda messages: BUY, other)) for texts in day} == {unusual}


def test_every_persona_has_a_prompt_of_its_own():
    prompts = {system_prompt(Task(persona=persona)) for persona in PERSONAS}
    assert len(prompts) == 3
    assert all(PERSONAS[persona] in system_prompt(Task(persona=persona)) for persona in PERSONAS)


@pytest.mark.parametrize("context", ["last", "window:2", "full"])
def test_nothing_it_is_shown_depends_on_a_later_price(context):
    closes = [100 + 7 * ((k * 37) % 11) for k in range(40)]
    for day in (0, 5, 9):
        changed = [close if k <= 25 + day else 3 * close for k, close in enumerate(closes)]
        texts = [
            contents(played(lambda messages: BUY, Task(window_of(prices, skip=25), timesteps=12), context=context))
            for prices in (closes, changed)
        ]
        assert texts[0][: day + 1] == texts[1][: day + 1]
        assert texts[0][day + 1] != texts[1][day + 1]


@pytest.mark.parametrize(
    ("context", "days"), [("last", [0, 0, 0, 0]), ("window:2", [0, 1, 2, 2]), ("full", [0, 1, 2, 3])]
)
def test_the_context_is_as_long_as_was_asked_for(context, days):
    answers = ['{"action": "buy"}', 'Well: {"action": "sell"}', '{"action": "hold"}', BUY]
    episode = played(answers, Task(timesteps=4), context=context)
    assert [(len(day[0]) - 2) // 2 for day in contents(episode)] == days
    views = [day[0][-1] for day in contents(episode)]
    last = contents(episode)[-1][0][1:-1]
    assert last[0::2] == views[3 - days[3] : 3]
    assert last[1::2] == ['{"action": "buy"}', '{"action": "sell"}', '{"action": "hold"}'][3 - days[3] :]


def test_a_day_without_a_decision_is_not_in_the_context():
    episode = played(["?", BUY, BUY], BRIEF, context="full", max_nudges=0)
    assert [len(day[0]) for day in contents(episode)] == [2, 2, 4]


@pytest.mark.parametrize("context", ["lst", "window", "window:0", "window:x", "full:2", "last:1"])
def test_a_wrong_option_is_told_before_the_run(context):
    with pytest.raises(ValueError, match="none of last, window:K"):
        Player("llm:scripted/buy", llm, "scripted/buy", {"context": context}).play(BRIEF)
    with pytest.raises(ValueError, match="max_nudges=-1"):
        Player("llm:scripted/buy", llm, "scripted/buy", {"max_nudges": -1}).play(BRIEF)


def test_a_small_model_is_shown_the_brief_view_unless_told_otherwise():
    def detail(name, task):
        return Player("llm", llm, Scripted(lambda messages: BUY, name)).play(task)

    assert "open" not in contents(detail("local/smollm2", BRIEF))[0][0][1]
    assert detail("local/smollm2", BRIEF).facts["detail"] == "brief"
    for name, task in (("local/smollm2", replace(BRIEF, detail="full")), ("openai/x", BRIEF)):
        assert "volume" in contents(detail(name, task))[0][0][1]
        assert detail(name, task).facts["detail"] == "full"


def test_the_hash_covers_every_prompt_and_is_the_same_in_another_process():
    names = {name for name in vars(seat) if name.isupper() and name not in ("PROMPTS", "PROMPT_SHA256")}
    assert {name for name in names if getattr(seat, name) not in (*seat.PROMPTS, FORM)} == {
        "ACTIONS",
        "OPTIONS",
        "SMALL",
    }
    code = "from fintrading_agents.llm import PROMPT_SHA256; print(PROMPT_SHA256)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == PROMPT_SHA256 == played(lambda messages: BUY).facts["prompt_sha256"]


def test_the_form_allows_what_the_parser_reads():
    assert FORM.schema["properties"]["action"]["enum"] == ["sell", "hold", "buy"]
    assert all(f'"{word}"' in FORM.grammar for word in ("buy", "sell", "hold"))


# ----------------------------------------------------------------------------------- how replies are read


def test_a_nudge_names_the_reason_and_a_healed_day_is_counted():
    episode = played(["I think I would buy.", '{"action": "bui"}', BUY, "", BUY, BUY])
    assert [len(day["calls"]) for day in episode.log] == [3, 2, 1]
    first, second, third = contents(episode)[0]
    assert first[0] == second[0] == third[0]
    assert second[1] == first[1] + seat.NUDGE.format(reason=REASONS["no_object"])
    assert third[1] == second[1] + seat.NUDGE.format(reason=REASONS["bad_value"])
    assert REASONS["empty"] in contents(episode)[1][1][1]
    assert [d.action for d in episode.decisions] == ["buy"] * 3
    counted = {name: episode.facts[name] for name in ("format_nudges", "self_heals", "empty_replies")}
    assert counted == {"format_nudges": 3, "self_heals": 2, "empty_replies": 1}


@pytest.mark.parametrize("max_nudges", [0, 1, 2])
def test_after_the_last_nudge_there_is_no_decision_and_the_environment_holds(max_nudges):
    episode = played(lambda messages: "never", max_nudges=max_nudges)
    assert episode.decisions == (Decision(None, "no_object"),) * 3
    assert episode.ledger.action == (1, 1, 1)
    assert episode.ledger.valid == (False,) * 3
    assert episode.facts["format_nudges"] == 3 * max_nudges
    assert episode.facts["self_heals"] == 0


def test_at_most_two_nudges_by_default():
    assert {len(day["calls"]) for day in played(lambda messages: "").log} == {3}


@pytest.mark.parametrize("name", ["empty", "none", "only_reasoning", "length", "refusal", "content_filter"])
def test_no_outcome_becomes_a_decision(name):
    reply = faults.read(json.dumps(FAULTS[name].body), "http://x/v1")
    episode = played(lambda messages: reply)
    assert episode.ledger.valid == (False,) * 3
    assert {decision.action for decision in episode.decisions} == {None}


def test_reasoning_is_logged_and_neither_read_nor_sent_again():
    thought = '{"action": "sell"} is what I would say'
    reply = Reply(f"<think>{thought}</think>{BUY}", "ok", reasoning=thought)
    episode = played(lambda messages: reply, context="full")
    assert {d.action for d in episode.decisions} == {"buy"}
    assert episode.log[0]["calls"][0]["reasoning"] == thought
    assert not any(thought in text for day in contents(episode) for texts in day for text in texts)


# ---------------------------------------------------------------------------------------- what is kept


def test_each_days_whole_conversation_is_in_the_log_and_is_json():
    paid = {"latency": 0.5, "attempts": 2, "cost": 0.25, "cached": True, "sent": {"seed": 0}}
    reply = Reply(BUY, "ok", "because", usage=Usage(100, 10, 50), **paid)
    episode = played([reply, "no", reply, reply])
    call = episode.log[0]["calls"][0]
    assert json.loads(json.dumps(episode.log[0])) == json.loads(json.dumps({"calls": [call]}))
    assert call["messages"][0]["content"] == system_prompt(BRIEF)
    kept = {name: call[name] for name in ("content", "reasoning", "usage", *paid)}
    usage = {"input": 100, "output": 10, "cached": 50}
    assert kept == {"content": BUY, "reasoning": "because", "usage": usage, **paid}
    assert call["verdict"] == asdict(Decision("buy"))
    assert episode.log[1]["calls"][0]["verdict"]["reason"] == "no_object"


def test_tokens_and_cost_are_sums_and_unknown_where_one_is_unknown():
    known = Reply(BUY, "ok", usage=Usage(100, 10), cost=0.25, cached=True)
    facts = played([known] * 3).facts
    assert (facts["tokens_in"], facts["tokens_out"], facts["cost_usd"], facts["cache_hits"]) == (300, 30, 0.75, 3)
    facts = played([known, known, replace(known, usage=None, cost=None)]).facts
    assert (facts["tokens_in"], facts["tokens_out"], facts["cost_usd"]) == (None, None, None)


def test_a_model_that_does_not_answer_fails_the_episode_and_the_log_tells():
    def answer(messages):
        if "decisions taken: 1" in messages[-1]["content"]:
            raise ModelFailure("quota", "no money", url="http://x/v1", status=429)
        return BUY

    episode = played(answer)
    assert episode.failure.startswith("day 2: ModelFailure: quota: the account has no credit left, status 429")
    assert (len(episode.ledger.date), episode.score) == (1, None)
    (call,) = episode.log[1]["calls"]
    assert set(call) == {"stage", "messages", "failure"}
    assert "no money" in call["failure"]
    assert episode.facts["format_nudges"] == 0


def test_the_same_episode_is_the_same_bytes_in_another_process():
    code = (
        "import json; from fintrading_gym.rollout import Task, find_player;"
        "e = find_player('llm:scripted/momentum').play(Task('nvda_bull_2023', 'risk_averse', timesteps=20));"
        "print(json.dumps([e.ledger.rows(), e.log, e.facts]))"
    )
    told = set()
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
        told.add(done.stdout)
    assert len(told) == 1


@pytest.mark.parametrize(
    ("model", "options", "uses_seed", "concurrent"),
    [
        ("openai/x", {}, True, True),
        ("openai/x", {"temperature": 0.0}, True, True),  # an endpoint may differ all the same
        ("local/smollm2", {}, False, False),
        ("local/smollm2", {"temperature": 0.7}, True, False),
        ("scripted/buy", {}, False, True),
    ],
)
def test_seeds_are_played_where_they_can_matter_and_episodes_at_once_where_they_wait(
    model, options, uses_seed, concurrent
):
    for argument in (model, Scripted(lambda messages: BUY, model)):
        traits = Player("llm", llm, argument, options).traits
        assert (traits.uses_seed, traits.concurrent, traits.uses_persona) == (uses_seed, concurrent, True)


@pytest.mark.parametrize("spec", ["llm", "llm:"])
def test_a_seat_without_a_model_is_told(spec):
    with pytest.raises(ValueError, match="llm needs a model: llm:openai/NAME"):
        find_player(spec).play(BRIEF)


# --------------------------------------------------------------------------- at an endpoint, many at a time

needs_client = pytest.mark.skipif(not (find_spec("openai") and find_spec("tenacity")), reason="extra llm")
TASKS = [Task(cell, persona, timesteps=4) for cell in EVALUATION for persona in PERSONAS]


def policy(body):
    """A model that is a function of what it is shown, and sometimes needs a nudge."""
    view, seed = body["messages"][-1]["content"], body["seed"]
    number = len(view) + sum(map(ord, view)) + seed
    if number % 5 == 0 and "no decision" not in view:
        return says("Let me think about it.")
    return says(json.dumps({"action": ("sell", "hold", "buy")[number % 3]}), usage=(len(view), 5, 0))


@pytest.fixture
def options(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted-0123456789abcdef")
    monkeypatch.setattr(client_module, "FIRST_PAUSE", 0.001)
    return {"cache_file": str(tmp_path / "replies.sqlite"), "structured": "none", "attempts": 2}


def record(rows):
    """What a rerun must repeat byte for byte: all but what was paid for this time."""
    volatile = ("cache_hits", "paid_usd")
    return json.dumps([{name: value for name, value in row.items() if name not in volatile} for row in rows])


def board_of(url, options, tasks=TASKS, player=None, **run):
    player = player or Player("llm:openai/stub", llm, "openai/stub", {"base_url": url, **options})
    rows = {place: row for place, row, _ in board.run(board.plan([player], tasks), **run)}
    return [rows[place] for place in sorted(rows)]


@needs_client
def test_a_rerun_asks_nothing_and_repeats_every_byte_and_a_replay_needs_no_endpoint(options):
    with Stub(policy) as stub:
        url = stub.url
        first = board_of(url, options)
        asked = len(stub.requests)
        assert asked > 1 + 12 * 4  # preflight, every day, and some nudges
        again = board_of(url, options)
        assert len(stub.requests) == asked
    replayed = board_of(url, {**options, "cache": "replay"})
    assert record(first) == record(again) == record(replayed)
    assert sum(row["cache_hits"] for row in first) == 0
    assert sum(row["cache_hits"] for row in again) == asked - 1
    assert not any(row["failure"] for row in first)
    assert sum(row["format_nudges"] for row in first) == asked - 1 - 48


BUYS, SELLS = says('{"action": "buy"}'), says('{"action": "sell"}')


@needs_client
def test_a_day_with_a_cut_reply_and_a_nudge_that_succeeds_is_the_same_in_a_replay_and_asked_anew_in_a_rerun(options):
    days = [Task(timesteps=2)]
    with Stub(BUYS, FAULTS["length"], BUYS, SELLS, SELLS) as stub:  # whoever asks again is told otherwise
        first = board_of(stub.url, options, days)
        replayed = board_of(stub.url, {**options, "cache": "replay"}, days)
        assert len(stub.requests) == 1 + 3
        again = board_of(stub.url, options, days)
        assert stub.requests[4] == stub.requests[1]  # the cut day; what comes after it is another episode now
        asked = len(stub.requests)
        replayed_again = board_of(stub.url, {**options, "cache": "replay"}, days)
        assert record(board_of(stub.url, options, days)) == record(again)  # it holds answers alone now
        assert len(stub.requests) == asked
    assert record(first) == record(replayed)
    assert record(again) == record(replayed_again)
    assert [(row["format_nudges"], row["self_heals"]) for row in (first[0], again[0])] == [(1, 1), (0, 0)]


@needs_client
def test_what_one_agent_was_refused_another_is_not_and_each_is_the_same_in_a_replay(options):
    """Two agents of one board that ask the same on their first day."""

    def both(**more):
        given = {"base_url": stub.url, "max_nudges": 0, **options, **more}
        players = [Player(f"llm {c}", llm, "openai/stub", {**given, "context": c}) for c in ("last", "full")]
        return [row for _, row, _ in board.run(board.plan(players, [Task(timesteps=2)]), at_once=1)]

    with Stub(BUYS, FAULTS["refusal"], SELLS) as stub:
        played = both()
        assert len(stub.requests) == 1 + 2 * 2
        assert stub.requests[1] == stub.requests[3]
        replayed = both(cache="replay")
        assert len(stub.requests) == 1 + 2 * 2
    assert [row["coverage"] for row in played] == [0.5, 1.0]
    assert record(played) == record(replayed)


@needs_client
@pytest.mark.parametrize("fault", ["length", "refusal", "content_filter", "empty"])
def test_an_episode_that_was_broken_off_goes_on_as_it_began_and_pays_for_no_day_twice(fault, options):
    days = [Task(timesteps=4)]
    with Stub(BUYS, FAULTS[fault], SELLS, SELLS, BUYS) as stub:
        with pytest.raises(RunStopped, match="token_limit"):
            board_of(stub.url, {**options, "token_limit": 4 * 128}, days)
        assert len(stub.requests) == 1 + 3  # two days: the first took a nudge
        played = board_of(stub.url, options, days)
        assert len(stub.requests) == 1 + 3 + 2
        replayed = board_of(stub.url, {**options, "cache": "replay"}, days)
        assert record(played) == record(replayed)
        assert (played[0]["format_nudges"], played[0]["cache_hits"]) == (1, 3)
        again = board_of(stub.url, options, days)  # it came to its end: from now on it is asked anew
        assert stub.requests[6] == stub.requests[1]
    assert again[0]["format_nudges"] == 0


@needs_client
def test_a_row_tells_whose_prices_its_cost_comes_from_and_their_date_is_no_leak(options, tmp_path):
    prices = tmp_path / "prices.toml"
    prices.write_text('["openai/stub"]\ninput = 1\noutput = 1\ndate = 2026-05-04\n')
    priced = {**options, "prices": str(prices)}
    with Stub(BUYS) as stub:
        rows = [board_of(stub.url, given, [Task(timesteps=2)])[0] for given in (priced, priced)]
        (replayed,) = board_of(stub.url, {**options, "cache": "replay"}, [Task(timesteps=2)])
    assert all(row["prices"].startswith("prices.toml (sha256 ") for row in (*rows, replayed))
    assert all(row["prices"].endswith(" of 2026-05-04") and row["leaks"] == 0 for row in (*rows, replayed))
    assert "prices" not in played([BUY] * 3).facts


@needs_client
def test_a_row_names_every_form_that_was_asked_for_where_the_endpoint_takes_another_one_midway(options):
    def answer(body):
        if len(stub.requests) > 3 and "response_format" in body:
            return error(400, "unsupported response_format", param="response_format")
        return says('{"bird": "kingfisher"}') if len(stub.requests) == 1 else BUYS

    with Stub(answer) as stub:
        days = [Task(timesteps=4)]
        (row,) = board_of(stub.url, {**options, "structured": "auto"}, days)
        replayed = board_of(stub.url, {**options, "structured": "auto", "cache": "replay"}, days)
    assert (row["structured"], row["failure"]) == ("json_schema and none", None)
    assert record(replayed) == record([row])


@needs_client
def test_an_episode_that_a_call_ended_goes_on_as_it_began(options):
    days = [Task(timesteps=3)]
    with Stub(BUYS, FAULTS["length"], SELLS, FAULTS["bad_request"], SELLS) as stub:
        (failed,) = board_of(stub.url, options, days)
        assert failed["failure"].startswith("day 2: ModelFailure: bad_request")
        (played,) = board_of(stub.url, options, days)
        assert len(stub.requests) == 1 + 3 + 2
    assert (played["failure"], played["format_nudges"], played["cache_hits"]) == (None, 1, 2)


@needs_client
def test_an_episode_that_is_played_twice_in_a_run_is_asked_anew_and_replayed_as_it_was_last(options):
    cut = [says(text, finish_reason="length") for text in ("I wou", "Well,")]
    with Stub(BUYS, cut[0], SELLS, cut[1], SELLS) as stub:
        player = Player("llm", llm, "openai/stub", {"base_url": stub.url, **options})
        with player.opened() as opened:
            told = [opened.play(Task(timesteps=1)).log[0]["calls"] for _ in range(2)]
        replayed = replace(player, options={**player.options, "cache": "replay"}).play(Task(timesteps=1))
        assert len(stub.requests) == 1 + 2 + 1  # the nudge was answered
    assert [calls[0]["content"] for calls in (*told, replayed.log[0]["calls"])] == ["I wou", "Well,", "Well,"]


@needs_client
def test_an_episode_that_came_to_its_end_in_a_run_that_did_not_is_asked_anew_too(options):
    days = [Task(timesteps=1), Task("spy_bear_2022", timesteps=3)]
    with Stub(BUYS, FAULTS["length"], SELLS, BUYS) as stub:
        with pytest.raises(RunStopped, match="token_limit"):
            board_of(stub.url, {**options, "token_limit": 4 * 128}, days, at_once=1)
        assert len(stub.requests) == 1 + 2 + 1
        (row,) = board_of(stub.url, options, days[:1])
        assert stub.requests[4:] == stub.requests[1:2]
    assert row["format_nudges"] == 0


@needs_client
@pytest.mark.parametrize("context", ["last", "full"])
def test_logs_are_the_same_whether_episodes_are_played_at_once_or_one_by_one(context, options):
    logs = []
    for at_once in (1, 4):
        with Stub(policy) as stub:
            given = {**options, "base_url": stub.url, "cache": "off", "context": context}
            with Player("llm", llm, "openai/stub", given).opened() as player, ThreadPoolExecutor(at_once) as threads:
                episodes = list(threads.map(player.play, TASKS[:4]))
        logs.append([without_latency(day) for episode in episodes for day in episode.log])
    assert json.dumps(logs[0]) == json.dumps(logs[1])


def without_latency(day):
    return {"calls": [{**call, "latency": None} for call in day["calls"]]}


@needs_client
def test_every_seed_and_every_nudge_is_a_call_of_its_own(options):
    with Stub(lambda body: says("never")) as stub:
        board_of(stub.url, options, [Task(timesteps=2, seed=seed) for seed in range(3)])
        asked = [json.dumps([body["messages"], body["seed"]]) for body in stub.requests[1:]]
    assert len(asked) == len(set(asked)) == 3 * 2 * 3
    assert {body["seed"] for body in stub.requests[1:]} == {0, 1, 2}


@needs_client
def test_a_limit_ends_the_run_and_keeps_what_is_finished(options):
    with Stub(says(BUY)) as stub:
        limited = {**options, "token_limit": 128 * (1 + 4 * 5 + 2), "in_flight": 1}
        rows = []
        player = Player("llm:openai/stub", llm, "openai/stub", {"base_url": stub.url, **limited})
        with pytest.raises(RunStopped, match="token_limit=2944 is reached"):
            rows.extend(board.run(board.plan([player], TASKS), at_once=1))
        assert [row["failure"] for _, row, _ in rows] == [None] * 5  # five episodes, and two days of the sixth
        asked = len(stub.requests)
        assert asked == 1 + 4 * 5 + 2
        resumed = board_of(stub.url, options)
        assert len(stub.requests) == 1 + 12 * 4  # no call was paid for twice
        assert len(resumed) == 12


@needs_client
def test_a_failing_model_fails_its_episodes_and_the_rules_play_on(options):
    with Stub(says(BUY), error(401, "bad key")) as stub:
        players = [Player("llm:x", llm, "openai/stub", {"base_url": stub.url, **options}), find_player("flat")]
        rows = [row for _, row, _ in sorted(board.run(board.plan(players, TASKS)), key=lambda done: done[0])]
    assert [row["failure"] is None for row in rows] == [False] * 12 + [True] * 4
    assert "bad_key" in rows[0]["failure"]
    assert len(stub.requests) == 1 + 12
    assert rank([*rows])[-1].why.startswith("12 of 12 episodes failed")


@needs_client
def test_an_interrupt_does_not_wait_for_answers(options):
    with Stub(says(BUY), says(BUY), says("late", delay=60)) as stub:
        player = Player("llm:openai/stub", llm, "openai/stub", {"base_url": stub.url, **options})
        running = board.run(board.plan([find_player("flat"), player], TASKS))
        next(running)
        while len(stub.requests) < 4:
            time.sleep(0.01)
        started = time.monotonic()
        running.close()  # what an interrupt in the loop over the rows comes to
        assert time.monotonic() - started < 30


@pytest.mark.slow
@pytest.mark.timed
@needs_client
def test_twelve_tasks_take_hardly_longer_than_one(options):
    def seconds(tasks):
        started = time.monotonic()
        rows = board_of(stub.url, {**options, "cache": "off"}, tasks)
        assert [row["failure"] for row in rows] == [None] * len(tasks)
        return time.monotonic() - started

    tasks, latency = [replace(task, timesteps=20) for task in TASKS], 0.2 * slower(time.perf_counter)
    with Stub(says(BUY), latency=latency) as stub:
        seconds([replace(tasks[0], timesteps=1)])  # what is imported and read once is no episode's time
        one = seconds(tasks[:1])
        twelve = seconds(tasks)
        if twelve >= 1.3 * one:  # something else was going on; code that is too slow is so again
            twelve = seconds(tasks)
        assert stub.most_in_flight == 12
    print(f"one task {one:.2f} s, twelve {twelve:.2f} s, the latencies alone {21 * latency:.2f} s")
    assert one > 20 * latency
    assert twelve < 1.3 * one


OVERHEAD = """
import json, sys, time
from statistics import median
import openai
from fintrading_agents.llm import llm
from fintrading_agents.models import Settings, open_model, wait
from fintrading_gym.rollout import Task

url, file, view = sys.argv[1], sys.argv[2], "a" * 1500
sdk = openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0)

async def bare(call):
    return await sdk.chat.completions.create(messages=call["messages"], **call["sent"])

def seconds(play):
    started = time.process_time()
    play()
    return time.process_time() - started

with open_model("openai/stub", Settings(base_url=url, cache_file=file, structured="none")) as model:
    agent = llm(Task(), model)
    took = []  # by the seat, by the seat from the cache, by the SDK alone: one after the other, day by day
    for day in range(60):
        days = [seconds(lambda: agent(f"{view} {day}")) for _ in range(2)]
        took.append([*days, seconds(lambda: wait(bare(agent.log[-2]["calls"][0])))])
    wait(sdk.close())
print(json.dumps([median(column) for column in zip(*took[10:])]))
"""


@pytest.mark.slow
@pytest.mark.timed
@needs_client
def test_our_own_work_is_under_three_milliseconds_a_decision(tmp_path):
    # Counted in processor time, which a busy machine stretches less.
    with Stub(says(BUY)) as stub:
        told = subprocess.run(
            [sys.executable, "-c", OVERHEAD, stub.url, tmp_path / "replies.sqlite"],
            capture_output=True, text=True, check=True, env={**os.environ, "OPENAI_API_KEY": "none"},
        )  # fmt: skip
    ours, warm, bare = json.loads(told.stdout)
    print(f"{1000 * (ours - bare):.2f} ms over the SDK's {1000 * bare:.2f}; {1000 * warm:.2f} from the cache")
    bound = 0.003 * slower()
    assert ours - bare < bound
    assert warm < bound
