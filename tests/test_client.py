"""The client against an endpoint that misbehaves: what each fault becomes, and how often it is asked again."""

import asyncio
import io
import json
import logging
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import pytest
from stub_endpoint import FAULTS, Answer, Stub, error, says

from fintrading_agents.models import Form, ModelFailure, Settings, open_model, wait
from fintrading_agents.models import client as client_module
from fintrading_agents.models import session as session_module
from fintrading_agents.models.prices import Price
from fintrading_agents.models.reply import held
from fintrading_gym.errors import RunStopped, UnknownName
from fintrading_gym.replies import parse

pytest.importorskip("openai")
pytest.importorskip("tenacity")

KEY = "sk-planted-0123456789abcdef"
MESSAGES = [{"role": "user", "content": "What now?"}]
BUY = says('{"action": "buy"}')
FORM = Form("decision", {"type": "object"}, 'root ::= "x"')
NAME = "openai/stub"

# Each fault by what it becomes: (kind, attempts) of a failure, or the outcome of a reply.
RETRIED = {
    "request_timeout": "timeout",
    "conflict": "server",
    "too_early": "server",
    "rate_limit": "rate_limit",
    "server_error": "server",
    "overloaded": "server",
    "error_in_200": "server",
    "rate_limit_in_200": "rate_limit",
    "no_choices": "malformed",
    "garbage": "malformed",
    "html": "malformed",
    "cut": "connection",
    "reset": "connection",
    "slow": "timeout",
}
AT_ONCE = {
    "bad_key": "bad_key",
    "forbidden": "forbidden",
    "unknown_model": "not_found",
    "unknown_model_in_400": "not_found",
    "wrong_path": "not_found",
    "quota": "quota",
    "no_credit": "quota",
    "context_length": "context",
    "reply_length": "reply_length",
    "bad_request": "bad_request",
}
OUTCOMES = {
    "empty": "empty",
    "none": "empty",
    "only_reasoning": "empty",
    "length": "truncated",
    "refusal": "refused",
    "content_filter": "filtered",
}


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(client_module, "FIRST_PAUSE", 0.001)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


@pytest.fixture
def settings(tmp_path):
    """Of a run that asks for no structured output, so that preflight is one request."""
    return Settings(
        cache_file=str(tmp_path / "replies.sqlite"), structured="none", attempts=3, timeout=5.0, patience=20.0
    )


@pytest.fixture
def clock(monkeypatch):
    """Pauses take no time, and the clock that attempts, patience and limits go by runs on by them; their lengths."""
    pauses, real, sleep = [], time.monotonic, asyncio.sleep

    async def paused(seconds, result=None):
        if seconds > 0.1:
            pauses.append(seconds)
        return await sleep(0, result)

    monkeypatch.setattr(asyncio, "sleep", paused)
    monkeypatch.setattr(time, "monotonic", lambda: real() + sum(pauses))
    return pauses


def ask(stub, settings, *calls, name=NAME):
    """The replies to calls, made one after the other; the preflight's answer comes before them."""
    with open_model(name, replace(settings, base_url=stub.url)) as model:
        return [wait(model.complete(**{"messages": MESSAGES, **call})) for call in calls or [{}]]


def test_every_fault_has_its_row():
    assert FAULTS.keys() == RETRIED.keys() | AT_ONCE.keys() | OUTCOMES.keys()


@pytest.mark.parametrize("fault", RETRIED)
def test_what_may_pass_is_asked_again_and_then_answered(fault, settings):
    quick = replace(settings, timeout=1.0 if fault == "slow" else 5.0)
    with Stub(BUY, FAULTS[fault], FAULTS[fault], BUY) as stub:
        (reply,) = ask(stub, quick)
        assert (reply.outcome, reply.attempts, parse(reply).action) == ("ok", 3, "buy")
        assert len(stub.requests) == 1 + 3


@pytest.mark.parametrize("fault", RETRIED)
def test_what_does_not_pass_fails_after_the_last_attempt(fault, settings):
    quick = replace(settings, timeout=1.0 if fault == "slow" else 5.0)
    with Stub(BUY, FAULTS[fault]) as stub:
        with pytest.raises(ModelFailure) as failure:
            ask(stub, quick)
        assert (failure.value.kind, failure.value.attempts) == (RETRIED[fault], 3)
        assert len(stub.requests) == 1 + 3
        assert stub.url in str(failure.value)
        assert "after 3 attempts" in str(failure.value)


@pytest.mark.parametrize("fault", AT_ONCE)
def test_what_will_not_change_fails_at_once(fault, settings):
    with Stub(BUY, FAULTS[fault]) as stub:
        with pytest.raises(ModelFailure) as failure:
            ask(stub, settings)
        assert (failure.value.kind, failure.value.attempts, len(stub.requests)) == (AT_ONCE[fault], 1, 1 + 1)
        assert failure.value.status == FAULTS[fault].status
        assert f"status {FAULTS[fault].status}" in str(failure.value)


def changed(message=None, choice=None, **body):
    told = json.loads(json.dumps(BUY.body))
    told["choices"][0]["message"].update(message or {})
    told["choices"][0].update(choice or {})
    return Answer(json.dumps({**told, **body}).replace("Infinity", "1e400"))


ROOM = "This model's maximum context length is 8192 tokens"
# As OpenAI, vLLM, Anthropic and Azure write it.
LONG_REPLIES = (
    "max_tokens is too large: 99999. This model supports at most 16384 completion tokens, whereas you provided 99999.",
    f"'max_tokens' or 'max_completion_tokens' is too large: 9000. {ROOM} and your request has 50 input tokens.",
    "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens",
    f"{ROOM}. However, you requested 8500 tokens (500 in the messages, 8000 in the completion).",
)
LONG_CONVERSATIONS = (
    f"{ROOM}. However, you requested 13000 tokens (9000 in the messages, 4000 in the completion).",
    f"{ROOM}. However, your messages resulted in 9000 tokens.",
)


def in_200(code, kind="error"):
    return Answer({"error": {"message": "no", "code": code, "type": kind}})


@pytest.mark.parametrize(
    ("answer", "kind", "attempts"),
    [
        (changed(message={"tool_calls": 5}), "malformed", 3),
        (changed(message={"tool_calls": [5]}), "malformed", 3),
        (changed(message={"content": 5}), "malformed", 3),
        (changed(message={"refusal": ["no"]}), "malformed", 3),
        (changed(choice={"finish_reason": 5}), "malformed", 3),
        (changed(choice={"message": "buy"}), "malformed", 3),
        (changed(usage={"prompt_tokens": float("inf"), "completion_tokens": 1}), "malformed", 3),
        (changed(usage={"prompt_tokens": "many", "completion_tokens": 1}), "malformed", 3),
        (changed(usage={"prompt_tokens": -1, "completion_tokens": 1}), "malformed", 3),
        (changed(usage=5), "malformed", 3),
        (Answer([]), "malformed", 3),
        (changed(choice={"finish_reason": "error"}), "server", 3),
        (changed(choice={"finish_reason": "error", "error": {"code": 429, "message": "busy"}}), "rate_limit", 3),
        *((error(400, told), "reply_length", 1) for told in LONG_REPLIES),
        *((error(400, told), "context", 1) for told in LONG_CONVERSATIONS),
        (in_200("insufficient_quota"), "quota", 1),
        (in_200(None, "insufficient_quota"), "quota", 1),
        (in_200("429"), "rate_limit", 3),
        (in_200("invalid_api_key"), "bad_key", 1),
        (in_200("model_not_found"), "not_found", 1),
        (in_200("server_error"), "server", 3),
        (error(400, "no", code=["a", "list"]), "bad_request", 1),
        (error(429, "no", code={"a": "dict"}), "rate_limit", 3),
        (error(429, "see /account/billing", code="rate_limit_exceeded"), "rate_limit", 3),
        (error(429, "see /account/billing"), "quota", 1),
    ],
)
def test_a_200_that_is_no_reply_is_a_failure_of_its_kind(answer, kind, attempts, settings):
    with Stub(BUY, answer) as stub:
        with pytest.raises(ModelFailure) as failure:
            ask(stub, settings, {"sample": 1})
        assert (failure.value.kind, len(stub.requests)) == (kind, 1 + attempts)


@pytest.mark.parametrize("fault", OUTCOMES)
def test_a_reply_that_cannot_be_used_is_an_outcome_and_no_decision(fault, settings):
    with Stub(BUY, FAULTS[fault]) as stub:
        reply, again = ask(stub, settings, {}, {})
        assert (reply.outcome, reply.attempts) == (OUTCOMES[fault], 1)
        assert parse(reply).action is None
        assert (again.cached, len(stub.requests)) == (False, 1 + 2)  # it is asked anew, not answered from the cache


def test_reasoning_is_kept_beside_the_answer_and_never_read_as_one(settings):
    thought = {"reasoning_content": '{"action": "sell"}'}
    with Stub(BUY, says('{"action": "buy"}', **thought), says(None, **thought)) as stub:
        said, silent = ask(stub, settings, {}, {"sample": 1})
        assert (said.reasoning, parse(said).action) == ('{"action": "sell"}', "buy")
        assert (silent.outcome, parse(silent).reason) == ("empty", "only_reasoning")


def test_a_reply_is_frozen_and_tells_usage_latency_and_what_was_sent(settings):
    with Stub(BUY, says("hello", usage=(100, 20, 60), delay=0.05)) as stub:
        (reply,) = ask(stub, settings, {"sample": 7})
    assert (reply.usage.input, reply.usage.output, reply.usage.cached) == (100, 20, 60)
    assert 0.05 <= reply.latency < 5
    assert reply.sent == {"model": "stub", "seed": 7, "temperature": 0.7, "max_tokens": 4096}
    assert stub.requests[1] == {"messages": MESSAGES, "authorization": f"Bearer {KEY}", **reply.sent}
    assert reply.cost is None  # unknown, not free
    with pytest.raises(AttributeError):
        reply.content = "other"


def test_a_tool_call_is_an_answer(settings):
    call = {"type": "function", "id": "1", "function": {"name": "decide", "arguments": '{"action": "sell"}'}}
    with Stub(BUY, says(None, tool_calls=[call])) as stub:
        (reply,) = ask(stub, settings)
    assert (reply.outcome, parse(reply).action) == ("ok", "sell")


# --------------------------------------------------------------------------------- waiting and concurrency


def test_retry_after_holds_for_every_call_to_the_endpoint(settings):
    busy, asked = [error(429, "slow down", retry_after="0.4")], []

    def answer(body):
        asked.append(time.monotonic())
        return busy.pop() if busy and body["seed"] else BUY

    with Stub(answer) as stub, open_model(NAME, replace(settings, base_url=stub.url)) as model:

        async def first_then_others():
            first = asyncio.ensure_future(model.complete(MESSAGES, sample=1))
            while not model._endpoint._opens:  # it was told to wait
                await asyncio.sleep(0.001)
            others = [model.complete(MESSAGES, sample=k) for k in range(2, 5)]
            return await asyncio.gather(first, *others)

        replies = wait(first_then_others())
    assert [reply.attempts for reply in replies] == [2, 1, 1, 1]
    _preflight, told, *others = asked
    assert min(others) - told >= 0.4


@pytest.mark.parametrize(
    ("fault", "pauses"), [("rate_limit", [10.0, 20.0, 30.0]), ("overloaded", [5.0] * 3), ("garbage", [5.0] * 3)]
)
def test_stepped_pauses_are_10_20_30_seconds_after_a_rate_limit_and_5_after_anything_else(
    fault, pauses, settings, monkeypatch, caplog
):
    for name in ("RATE_LIMIT_STEP", "OTHER_STEP"):
        monkeypatch.setattr(client_module, name, getattr(client_module, name) / 1000)
    with caplog.at_level("INFO", client_module.__name__), Stub(BUY, FAULTS[fault]) as stub:
        with pytest.raises(ModelFailure) as failure:
            ask(stub, replace(settings, attempts=None, pauses="stepped"))  # one word is the whole table
        assert len(stub.requests) == 1 + 4
    assert failure.value.attempts == 4
    assert [record.args[-1] * 1000 for record in caplog.records] == pytest.approx(pauses)


def test_stepped_pauses_give_way_to_what_the_endpoint_asks_for(settings):
    with Stub(BUY, error(429, "slow down", retry_after="0.01"), BUY) as stub:
        (reply,) = ask(stub, replace(settings, pauses="stepped", patience=1.0))
    assert (reply.outcome, reply.attempts) == ("ok", 2)


@pytest.mark.parametrize(
    ("fault", "pauses"), [("rate_limit", [10.0, 20.0, 30.0]), ("overloaded", [5.0] * 3), ("slow", [5.0] * 3)]
)
def test_no_other_limit_cuts_the_stepped_pauses(fault, pauses, settings, clock):
    usual = Settings(cache_file=settings.cache_file, structured="none", attempts=4, pauses="stepped", timeout=0.2)
    with Stub(BUY, FAULTS[fault]) as stub:
        with pytest.raises(ModelFailure) as failure:
            ask(stub, usual, {"sample": 1})
        assert (failure.value.attempts, len(stub.requests)) == (4, 1 + 4)
    assert clock == pauses


def test_a_limit_in_seconds_counts_the_pauses(settings, clock):
    with Stub(BUY, FAULTS["rate_limit"]) as stub:
        limited = replace(settings, attempts=4, pauses="stepped", patience=600.0, seconds_limit=25.0)
        with pytest.raises(RunStopped, match=r"seconds_limit=25\.0 is reached"):
            ask(stub, limited, {"sample": 1})
        assert len(stub.requests) <= 1 + 3


def test_patience_is_for_pauses_and_not_for_slow_answers(settings):
    with Stub(BUY, replace(FAULTS["slow"], delay=0.6), BUY) as stub:
        (reply,) = ask(stub, replace(settings, timeout=0.4, patience=0.2), {"sample": 1})
        assert (reply.outcome, reply.attempts) == ("ok", 2)
    with Stub(BUY, error(429, "slow down", retry_after="0.5")) as stub:
        with pytest.raises(ModelFailure, match="rate_limit"):
            ask(stub, replace(settings, patience=0.2), {"sample": 2})
        assert len(stub.requests) == 2


@pytest.mark.parametrize(("pauses", "least"), [("growing", [0.5, 1.0]), ("stepped", [10.0, 20.0])])
def test_an_endpoint_that_wants_to_be_asked_again_at_once_is_given_our_own_pauses(
    pauses, least, settings, clock, monkeypatch
):
    monkeypatch.setattr(client_module, "FIRST_PAUSE", 0.5)
    with Stub(BUY, error(429, "slow down", retry_after="0")) as stub, pytest.raises(ModelFailure):
        ask(stub, replace(settings, pauses=pauses, patience=600.0), {"sample": 1})
    assert len(clock) == 2
    assert all(floor <= pause <= floor + 0.5 for floor, pause in zip(least, clock, strict=True))


def test_a_pause_is_never_shorter_than_our_first(settings, clock, monkeypatch):
    monkeypatch.setattr(client_module, "FIRST_PAUSE", 0.5)
    with Stub(BUY, error(429, "slow down", retry_after="0.2")) as stub, pytest.raises(ModelFailure):
        ask(stub, settings, {"sample": 1})
    assert [pause for pause in clock if pause >= 0.5] == [0.5, 0.5]


def test_all_kinds_of_pauses_are_there_and_another_is_told():
    assert client_module._PAUSES.keys() == session_module.PAUSES.keys()
    with pytest.raises(UnknownName, match=r"No kind of pauses 'stepd'.*Did you mean 'stepped'"):
        Settings(pauses="stepd")


def test_a_wait_beyond_ones_patience_fails_at_once_for_all(settings):
    with Stub(BUY, error(429, "come back tomorrow", retry_after="86400")) as stub:
        with open_model(NAME, replace(settings, base_url=stub.url)) as model:
            for sample, attempts in ((1, 1), (2, 1)):
                with pytest.raises(ModelFailure) as failure:
                    wait(model.complete(MESSAGES, sample=sample))
                assert (failure.value.kind, failure.value.attempts) == ("rate_limit", attempts)
        assert len(stub.requests) == 2  # the second call did not even ask


def test_no_more_requests_are_in_flight_than_allowed(settings):
    together = threading.Barrier(3)

    def answer(body):
        if body["seed"]:  # no preflight
            together.wait(60)
        return BUY

    with Stub(answer, latency=0.05) as stub:
        settings = replace(settings, base_url=stub.url, in_flight=3)
        with open_model(NAME, settings) as model, ThreadPoolExecutor(12) as threads:
            list(threads.map(lambda k: wait(model.complete(MESSAGES, sample=k)), range(1, 13)))
        assert stub.most_in_flight == 3


def test_two_models_open_at_once_share_the_bound_of_their_endpoint(settings):
    together = threading.Barrier(2)

    def answer(body):
        if body["seed"]:  # no preflight
            together.wait(60)
        return BUY

    with Stub(answer, latency=0.05) as stub, ThreadPoolExecutor(8) as threads:
        shared = replace(settings, base_url=stub.url, in_flight=2)
        with open_model("openai/one", shared) as one, open_model("openai/two", shared) as two:
            list(threads.map(lambda k: wait((one, two)[k % 2].complete(MESSAGES, sample=k)), range(1, 9)))
        assert stub.most_in_flight == 2


def test_closing_ends_what_is_under_way(settings):
    with Stub(BUY, FAULTS["slow"]) as stub, ThreadPoolExecutor(1) as threads:
        with open_model(NAME, replace(settings, base_url=stub.url)) as model:
            waiting = threads.submit(lambda: wait(model.complete(MESSAGES, sample=1)))
            while len(stub.requests) < 2:
                time.sleep(0.001)
            started = time.monotonic()
        with pytest.raises(RunStopped, match="closed"):
            waiting.result()
        assert time.monotonic() - started < 20  # of 30


# --------------------------------------------------------------------------------------------- preflight


@pytest.mark.parametrize("fault", ["bad_key", "wrong_path", "unknown_model", "quota", "html", "reset"])
def test_what_cannot_work_is_told_before_the_run(fault, settings):
    with Stub(FAULTS[fault]) as stub, pytest.raises(RunStopped) as stopped:
        ask(stub, settings)
    assert f"{NAME} cannot be had" in str(stopped.value)
    assert stub.url in str(stopped.value)
    assert "\n" not in str(stopped.value)


def test_an_endpoint_that_is_not_there_is_told_in_seconds(settings):
    started = time.monotonic()
    with (
        pytest.raises(RunStopped, match=r"connection.*127\.0\.0\.1:9/v1"),
        open_model(NAME, replace(settings, base_url="http://127.0.0.1:9/v1")),
    ):
        pass
    assert time.monotonic() - started < 15


@pytest.mark.parametrize("fault", [name for name in RETRIED if RETRIED[name] not in client_module.PASSING])
def test_what_does_not_pass_by_itself_is_tried_twice_before_the_run(fault, settings):
    with Stub(FAULTS[fault]) as stub:
        with pytest.raises(RunStopped, match=f"cannot be had: {RETRIED[fault]}.*{stub.url}, after 2 attempts"):
            ask(stub, replace(settings, attempts=50, timeout=1.0 if fault == "slow" else 5.0))
        assert len(stub.requests) == client_module.PREFLIGHT_ATTEMPTS


@pytest.mark.parametrize("fault", AT_ONCE)
def test_what_will_not_change_is_tried_once_before_the_run(fault, settings):
    with Stub(FAULTS[fault]) as stub:
        with pytest.raises(RunStopped, match=f"cannot be had: {AT_ONCE[fault]}.*status {FAULTS[fault].status}"):
            ask(stub, settings)
        assert len(stub.requests) == 1


@pytest.mark.parametrize("name", ["rate_limit", "overloaded", "error_in_200", "rate_limit_in_200"])
def test_what_passes_is_waited_for_before_the_run_as_in_it(name, settings):
    with Stub(FAULTS[name], FAULTS[name], FAULTS[name], BUY) as stub:
        (reply,) = ask(stub, replace(settings, attempts=4))
        assert (reply.outcome, len(stub.requests)) == ("ok", 4 + 1)


def test_a_rate_limit_of_twenty_seconds_is_waited_for_before_the_run(settings, clock, caplog):
    with Stub(error(429, "slow down", retry_after="20"), BUY) as stub:
        (reply,) = ask(stub, replace(settings, patience=600.0), {"sample": 1})
        assert (reply.outcome, len(stub.requests)) == ("ok", 3)
    assert 19 < sum(clock) < 21
    assert any("again in 20.0 s" in record.message for record in caplog.records if record.levelname == "WARNING")


def test_an_endpoint_that_is_slow_has_the_time_of_a_request_and_the_user_is_told(settings, monkeypatch, caplog):
    monkeypatch.setattr(client_module, "QUIET", 0.1)
    with Stub(replace(BUY, delay=0.5)) as stub:
        ask(stub, replace(settings, timeout=5.0))
        with pytest.raises(RunStopped, match="cannot be had: timeout"):
            ask(stub, replace(settings, timeout=0.3, cache="refresh"))
    assert f"{NAME} has not answered yet; a request has 5 s (--timeout)" in caplog.messages


@pytest.mark.skipif(sys.platform != "linux", reason="fills a queue of connections as Linux keeps it")
def test_a_host_that_lets_nobody_in_is_no_connection_and_fails_in_seconds(settings, monkeypatch):
    monkeypatch.setattr(client_module, "CONNECT", 0.3)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as waiting:
        for _ in range(2):
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}/v1"
        started = time.monotonic()
        with (
            pytest.raises(RunStopped, match=f"cannot be had: connection.*at {url}, after 2 attempts"),
            open_model(NAME, replace(settings, base_url=url, timeout=100.0, attempts=9)),
        ):
            pass
        assert time.monotonic() - started < 30  # of 100


@pytest.mark.parametrize("fault", ["bad_key", "forbidden", "unknown_model", "quota"])
def test_what_cannot_work_ends_the_run_at_the_first_request_where_the_preflight_made_none(fault, settings):
    with Stub(BUY, FAULTS[fault]) as stub:
        with open_model(NAME, replace(settings, base_url=stub.url)):
            pass  # the cache remembers what the endpoint takes
        with pytest.raises(RunStopped, match=f"{NAME} cannot be had: {AT_ONCE[fault]}"):
            ask(stub, settings, {"sample": 1})
        assert len(stub.requests) == 2


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("opnai/x", {}, "Did you mean 'openai'"),
        ("openai", {}, "write openai/NAME"),
        ("scripted/momentm", {}, "Did you mean 'momentum'"),
        (NAME, {"base_url": "localhost:8000"}, "base_url='localhost:8000' is no URL"),
        (NAME, {"base_url": "http://127.0.0.1:80a/v1"}, "is no URL"),
        (NAME, {"base_url": "http://127.0.0.1:99999/v1"}, "is no URL"),
        (NAME, {"base_url": "http://[::1/v1"}, "is no URL"),
        (NAME, {"usd_limit": 1.0, "base_url": "http://127.0.0.1:9/v1"}, "nobody knows the price of openai/stub"),
        (NAME, {"cache": "replay"}, "There is no cache"),
    ],
)
def test_a_wrong_name_or_setting_is_told_in_one_line(name, changes, words, settings):
    with pytest.raises(ValueError, match=words) as fault, open_model(name, replace(settings, **changes)):
        pass
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cache": "reply"}, "Did you mean 'replay'"),
        ({"structured": "json"}, "No structured output 'json'"),
        ({"temperature": -1.0}, "temperature=-1.0"),
        ({"attempts": 0}, "attempts=0"),
        ({"usd_limit": float("nan")}, "usd_limit=nan"),
    ],
)
def test_wrong_settings_are_told_when_they_are_made(changes, words):
    with pytest.raises(ValueError, match=words):
        Settings(**changes)
    assert issubclass(UnknownName, ValueError)


def test_openai_itself_needs_a_key_and_other_endpoints_may_not(settings, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(ValueError, match="set OPENAI_API_KEY"), open_model(NAME, settings):
        pass
    with Stub(BUY) as stub:
        ask(stub, settings)
        assert stub.requests[0]["authorization"] == "Bearer none"


def test_the_endpoint_may_come_from_the_environment(settings, monkeypatch):
    with Stub(BUY) as stub:
        monkeypatch.setenv("OPENAI_BASE_URL", stub.url)
        with open_model(NAME, settings) as model:
            assert wait(model.complete(MESSAGES, sample=1)).content == '{"action": "buy"}'


# ---------------------------------------------------------------------- what an endpoint takes, and does not

BIRD = says('{"bird": "kingfisher"}')


@pytest.mark.parametrize(
    ("takes", "found", "asked"),
    [
        (lambda body: BIRD, "json_schema", ["json_schema"]),
        # It takes the parameter and does not keep to it.
        (lambda body: says("Fine, thanks!"), "none", ["json_schema", "json_object", "none"]),
        (lambda body: says('{"mood": "fine"}'), "json_object", ["json_schema", "json_object"]),
        # It does not take it.
        (
            lambda body: error(400, "This response_format type is unavailable now") if held(body) != "none" else BUY,
            "none",
            ["json_schema", "json_object", "none"],
        ),
    ],
)
def test_structured_output_is_tried_once_and_remembered(takes, found, asked, settings):
    auto = replace(settings, structured="auto")
    with Stub(takes) as stub:
        auto = replace(auto, base_url=stub.url)
        with open_model(NAME, auto) as model:
            assert model.structured == found
            assert [held(body) for body in stub.requests] == asked
            wait(model.complete(MESSAGES, form=FORM))
            assert held(stub.requests[-1]) == found
        with open_model(NAME, auto) as model:  # another run knows
            assert model.structured == found
            assert len(stub.requests) == len(asked) + 1


@pytest.mark.parametrize(
    ("mode", "sent"),
    [
        ("json_object", {"response_format": {"type": "json_object"}}),
        ("grammar", {"grammar": 'root ::= "x"'}),
        ("none", {}),
    ],
)
def test_structured_output_can_be_chosen(mode, sent, settings):
    with Stub(BUY) as stub:
        (reply,) = ask(stub, replace(settings, structured=mode), {"form": FORM})
    assert {name: reply.sent[name] for name in ("response_format", "grammar") if name in reply.sent} == sent


def test_what_was_chosen_and_is_not_taken_is_told(settings):
    with Stub(error(400, "response_format is not supported")) as stub, pytest.raises(RunStopped, match="unsupported"):
        ask(stub, replace(settings, structured="json_schema"))


def test_a_parameter_that_is_not_taken_is_left_out_or_renamed_and_the_run_says_so(settings, caplog):
    def strict(body):
        if "max_tokens" in body:
            return error(400, "Use 'max_completion_tokens' instead.", "unsupported_parameter", "max_tokens")
        if "temperature" in body:
            return error(400, "Unsupported value: 'temperature' does not support 0.7 with this model.")
        return error(422, "seed: Extra inputs are not permitted") if "seed" in body else BUY

    with Stub(strict) as stub, caplog.at_level(logging.WARNING):
        settings = replace(settings, base_url=stub.url)
        with open_model(NAME, settings) as model:
            assert len(stub.requests) == 4
            reply = wait(model.complete(MESSAGES, sample=3))
            assert reply.sent == {"model": "stub", "max_completion_tokens": 4096}
            assert len(stub.requests) == 5
        assert [r.message.split(":")[0] for r in caplog.records] == [
            f"{NAME} does not take {name}" for name in ("max_tokens", "temperature", "seed")
        ]
        with open_model(NAME, settings) as model:  # another run knows
            wait(model.complete(MESSAGES, sample=4))
        assert len(stub.requests) == 6


def remembered(stub, settings):
    """Settings of a run that remembers of the endpoint what an earlier one has learnt."""
    settings = replace(settings, base_url=stub.url, structured="auto")
    with open_model(NAME, settings):
        pass
    stub.requests.clear()
    return settings


def test_a_form_that_is_refused_later_is_forgotten_and_another_found_once_in_the_run(settings, caplog):
    taken = ["json_schema", "json_object", "none"]

    def answer(body):
        return BIRD if held(body) in taken else error(400, "unsupported response_format", param="response_format")

    with Stub(answer) as stub:
        settings = remembered(stub, settings)
        with open_model(NAME, settings) as model:
            before = wait(model.complete(MESSAGES, sample=1, form=FORM))
            taken.remove("json_schema")

            async def several():
                return await asyncio.gather(*(model.complete(MESSAGES, sample=k, form=FORM) for k in (2, 3, 4)))

            after = wait(several())
            assert model.structured == "json_object"
            assert [held(reply.sent) for reply in (before, *after)] == ["json_schema"] + ["json_object"] * 3
            probes = [held(body) for body in stub.requests if body["messages"] == client_module.PROBE]
            assert probes == ["json_schema", "json_object"]  # once for all
            asked = len(stub.requests)
            taken.remove("json_object")
            with pytest.raises(ModelFailure, match="unsupported"):  # not a second time
                wait(model.complete(MESSAGES, sample=5, form=FORM))
            assert len(stub.requests) == asked + 1
            taken.append("json_object")
        asked = len(stub.requests)
        for again in (settings, replace(settings, cache="replay")):
            with open_model(NAME, again) as model:  # a later run knows, and finds what was asked for otherwise
                assert model.structured == "json_object"
                kept = [wait(model.complete(MESSAGES, sample=k, form=FORM)) for k in (1, 2, 3, 4)]
                assert [replace(reply, cached=False) for reply in kept] == [before, *after]
        assert len(stub.requests) == asked
        with open_model(NAME, settings) as model:
            assert held(wait(model.complete(MESSAGES, sample=6, form=FORM)).sent) == "json_object"
        assert len(stub.requests) == asked + 1
    assert "does not take what it took before" in caplog.text


def test_a_form_that_the_user_chose_is_not_given_up(settings):
    with Stub(BUY, error(400, "unsupported response_format", param="response_format")) as stub:
        chosen = replace(settings, structured="json_object")
        with pytest.raises(ModelFailure, match="unsupported"):
            ask(stub, chosen, {"form": FORM})
        assert len(stub.requests) == 2


def test_a_name_of_the_limit_that_is_refused_later_is_forgotten(settings):
    newer = [True]

    def answer(body):
        refused = "max_tokens" if newer[0] else "max_completion_tokens"
        return error(400, f"Unsupported parameter: {refused}", param=refused) if refused in body else BUY

    with Stub(answer) as stub:
        settings = remembered(stub, settings)
        with open_model(NAME, settings) as model:
            assert "max_completion_tokens" in wait(model.complete(MESSAGES, sample=1)).sent
            newer[0] = False
            sent = wait(model.complete(MESSAGES, sample=2)).sent
            assert (sent["max_tokens"], "max_completion_tokens" in sent) == (4096, False)


def test_an_endpoint_that_takes_the_limit_under_no_name_is_asked_without(settings):
    def answer(body):
        named = next((name for name in body if name.startswith("max_")), None)
        return error(400, f"Unsupported parameter: {named}", param=named) if named else BUY

    with Stub(answer) as stub:
        (reply,) = ask(stub, settings, {"sample": 1})
    assert not any(name.startswith("max_") for name in reply.sent)


def test_a_parameter_that_is_refused_although_it_was_not_sent_is_no_endless_loop(settings):
    with Stub(BUY, error(400, "seed is not supported")) as stub:
        with pytest.raises(ModelFailure, match="unsupported"):
            ask(stub, settings)
        assert len(stub.requests) == 3


# -------------------------------------------------------------------------------------- limits of a run


@pytest.mark.parametrize(
    ("limits", "words", "calls"),
    [
        ({"token_limit": 300}, "token_limit=300 is reached .384 used", 2),  # 128 each, the preflight is the first
        ({"usd_limit": 0.0006}, "usd_limit=0.0006 is reached .0.000768 used", 2),
    ],
)
def test_a_limit_stops_the_run_before_the_next_call(limits, words, calls, settings, tmp_path):
    prices = tmp_path / "prices.toml"
    prices.write_text(f'["{NAME}"]\ninput = 2.0\noutput = 2.0\n')
    with Stub(BUY) as stub:
        limited = replace(settings, base_url=stub.url, prices=str(prices), **limits)
        with open_model(NAME, limited) as model:
            for sample in range(1, 1 + calls):
                wait(model.complete(MESSAGES, sample=sample))
            with pytest.raises(RunStopped, match=words):
                wait(model.complete(MESSAGES, sample=1 + calls))
            assert len(stub.requests) == 1 + calls
            assert wait(model.complete(MESSAGES, sample=1)).cached  # what was paid for can still be had
        with open_model(NAME, limited) as model:  # the next run starts from nothing
            assert not wait(model.complete(MESSAGES, sample=calls + 1)).cached


def test_calls_that_waited_for_others_see_what_those_have_spent(settings):
    with Stub(BUY, latency=0.02) as stub:
        limited = replace(settings, base_url=stub.url, in_flight=1, token_limit=128 * 3)
        with open_model(NAME, limited) as model:

            async def ten():
                calls = [model.complete(MESSAGES, sample=k) for k in range(1, 11)]
                return await asyncio.gather(*calls, return_exceptions=True)

            replies = wait(ten())
        assert len(stub.requests) == 3
    assert [isinstance(reply, RunStopped) for reply in replies] == [False] * 2 + [True] * 8


@pytest.mark.parametrize("answer", [FAULTS["slow"], error(429, "later", retry_after="15")])
def test_a_limit_in_seconds_ends_attempts_and_pauses(answer, settings):
    with Stub(BUY, answer) as stub:
        limited = replace(settings, base_url=stub.url, seconds_limit=2.0, timeout=10.0)
        started = time.monotonic()
        with pytest.raises(RunStopped, match=r"seconds_limit=2\.0 is reached"), open_model(NAME, limited) as model:
            wait(model.complete(MESSAGES, sample=1))
    assert time.monotonic() - started < 9  # of 10, or 15


def test_a_reply_whose_price_cannot_be_told_is_kept_without_one(settings, monkeypatch):
    def broken(usage):
        raise ArithmeticError("no such tier")

    monkeypatch.setattr("fintrading_agents.models.names.find_price", lambda *words: Price(broken))
    with Stub(BUY) as stub:
        (reply,) = ask(stub, settings, {"sample": 1})
        (again,) = ask(stub, settings, {"sample": 1})
        with pytest.raises(RunStopped, match=r"usd_limit=1\.0 cannot be kept"):
            ask(stub, replace(settings, usd_limit=1.0), {"sample": 2}, {"sample": 3})
    assert (reply.cost, again.cost, again.cached) == (None, None, True)


def test_more_cached_tokens_than_there_were_are_as_many_as_there_were(settings):
    with Stub(BUY, says("hello", usage=(100, 20, 160))) as stub:
        (reply,) = ask(stub, settings, {"sample": 1})
    assert (reply.usage.input, reply.usage.cached) == (100, 100)


def test_a_limit_in_seconds_counts_from_the_runs_beginning(monkeypatch):
    shared = session_module.Session(Settings(cache="off", seconds_limit=10.0))
    shared.check()
    now = time.monotonic()
    monkeypatch.setattr(session_module.time, "monotonic", lambda: now + 11)
    with pytest.raises(RunStopped, match=r"seconds_limit=10\.0 is reached"):
        shared.check()


def test_a_limit_on_tokens_that_nobody_counts_is_no_limit_and_told(settings):
    with Stub(says("hello", usage=None)) as stub, pytest.raises(RunStopped, match="does not say what a reply used"):
        ask(stub, replace(settings, token_limit=1000))


# ----------------------------------------------------------------------------------------------- secrets


def test_a_key_is_in_no_error_log_file_or_repr(settings, tmp_path, caplog):
    told = io.StringIO()
    echo = error(401, f"Incorrect API key provided: {KEY}")
    page = Answer(f"<html>Authorization: Bearer {KEY}</html>", headers={"content-type": "text/html"})
    handler = logging.StreamHandler(told)
    logging.getLogger().addHandler(handler)
    try:
        with caplog.at_level(logging.DEBUG), Stub(BUY, page, says(f"your key is {KEY}"), echo) as stub:
            with open_model(NAME, replace(settings, base_url=stub.url)) as model:
                reply = wait(model.complete(MESSAGES, sample=1))
                told.write(repr(reply) + repr(model) + repr(vars(session_module)["_open"].values()))
                try:
                    wait(model.complete(MESSAGES, sample=2))
                except ModelFailure as failure:
                    told.write(repr(failure) + str(failure) + "".join(traceback.format_exception(failure)))
            rows = sqlite3.connect(settings.cache_file).execute("SELECT * FROM replies").fetchall()
            told.write(repr(rows))
    finally:
        logging.getLogger().removeHandler(handler)
    told.write(caplog.text)
    assert reply.content == "your key is ***"
    assert "Incorrect API key provided: ***" in told.getvalue()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert KEY not in told.getvalue()
    assert not any(KEY.encode() in path.read_bytes() for path in files)


@pytest.mark.parametrize(
    "url",
    [
        "http://user:{}@127.0.0.1:9/v1",
        "http://127.0.0.1:9/v1?key={}",
        "user:{}@127.0.0.1:9",
        "{}@127.0.0.1:9/v1",
        "http://127.0.0.1:9/v1#{}",
    ],
)
def test_a_key_in_the_url_is_refused_without_being_told(url, settings):
    with (
        pytest.raises(ValueError, match="no user, password or query") as fault,
        open_model(NAME, replace(settings, base_url=url.format(KEY))),
    ):
        pass
    assert KEY not in str(fault.value)


@pytest.mark.parametrize("inside", ["\r\n", " ", "\x00", "\x1b", "é", "\u2028"])
def test_a_key_that_no_header_can_hold_is_refused_in_one_line_without_being_told(inside, settings, monkeypatch):
    monkeypatch.setattr(os, "environ", {**os.environ, "OPENAI_API_KEY": f"sk-first{inside}second"})
    replaced = replace(settings, base_url="http://127.0.0.1:9/v1")
    with pytest.raises(ValueError, match="OPENAI_API_KEY holds") as fault, open_model(NAME, replaced):
        pass
    assert "\n" not in str(fault.value)
    assert not any(part in repr(fault.value) for part in ("sk-first", "second"))


def test_white_space_around_a_key_is_not_part_of_it(settings, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", f" {KEY}\r\n")
    with Stub(BUY) as stub:
        ask(stub, settings)
        assert stub.requests[0]["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("secret", ["k1", "sk-12", "sk-back\\slash'quote", 'sk-"quoted"-0123'])
def test_a_short_key_and_one_that_is_written_otherwise_are_hidden_too(secret, settings, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", secret)
    echo = error(400, f"not with {secret} or {secret!r}")
    page = Answer(f"<html>{secret}</html>", headers={"content-type": "text/html"})
    stub = Stub(BUY, says(f"your key is {secret}."), echo, page)
    with stub, open_model(NAME, replace(settings, base_url=stub.url, attempts=1)) as model:
        reply = wait(model.complete(MESSAGES, sample=1))
        for sample in (2, 3):
            with pytest.raises(ModelFailure, match=r"\*\*\*") as failure:
                wait(model.complete(MESSAGES, sample=sample))
            assert secret not in str(failure.value)
            assert repr(secret)[1:-1] not in str(failure.value)
    assert reply.content == "your key is ***."


@pytest.mark.parametrize("told", ["first\r\nsecond\x1b[31m\tthird", "<html>\n <b>first</b>\n</html>"])
def test_what_an_endpoint_tells_in_several_lines_is_shown_on_one(told, settings):
    for answer in (error(400, told), Answer(told, headers={"content-type": "text/html"})):
        with Stub(BUY, answer) as stub, pytest.raises(ModelFailure) as failure:
            ask(stub, replace(settings, attempts=1, cache="off"))
        assert "first" in str(failure.value)
        assert str(failure.value).isprintable()


# ------------------------------------------------------------------------------------- the cache, in use


def test_what_was_paid_for_is_not_paid_for_again(settings):
    with Stub(BUY) as stub:
        first, other = ask(stub, settings, {"sample": 1}, {"sample": 2})
        again, third = ask(stub, settings, {"sample": 1}, {"sample": 2})
        assert len(stub.requests) == 3
    assert (first.cached, again.cached) == (False, True)
    assert (replace(again, cached=False), replace(third, cached=False)) == (first, other)


def test_equal_calls_at_the_same_time_are_one(settings):
    with Stub(BUY, latency=0.1) as stub:
        with open_model(NAME, replace(settings, base_url=stub.url)) as model, ThreadPoolExecutor(8) as threads:
            replies = list(threads.map(lambda k: wait(model.complete(MESSAGES, sample=1)), range(8)))
        assert len(stub.requests) == 2
    assert sorted(reply.cached for reply in replies) == [False] + [True] * 7


@pytest.mark.parametrize(
    ("mode", "requests"),
    [("readwrite", 2), ("refresh", 4), ("off", 6)],  # refresh: preflight and call once more; off: and again
)
def test_the_modes_differ_in_what_is_asked_again(mode, requests, settings):
    with Stub(BUY) as stub:
        ask(stub, settings, {"sample": 1})
        ask(stub, replace(settings, cache=mode), {"sample": 1})
        if mode == "off":
            ask(stub, replace(settings, cache=mode), {"sample": 1})
        assert len(stub.requests) == requests


def test_a_replay_needs_no_endpoint_and_a_miss_is_an_error(settings):
    with Stub(BUY, says("ok"), FAULTS["length"]) as stub:
        settings = replace(settings, base_url=stub.url)
        played = ask(stub, settings, {"sample": 1}, {"sample": 2})
    replay = replace(settings, cache="replay")
    with open_model(NAME, replay) as model:
        again = [wait(model.complete(MESSAGES, sample=k)) for k in (1, 2)]
        with pytest.raises(ModelFailure, match=r"replay.*replies\.sqlite"):
            wait(model.complete(MESSAGES, sample=3))
    assert [replace(reply, cached=False) for reply in again] == played
    with pytest.raises(RunStopped, match="openai/other cannot be had: replay"), open_model("openai/other", replay):
        pass


def test_a_replay_needs_neither_key_nor_price(settings, monkeypatch):
    with Stub(BUY) as stub:
        named = replace(settings, base_url=stub.url)
        (played,) = ask(stub, named, {"sample": 1})
    replay = replace(named, cache="replay", usd_limit=1.0)
    monkeypatch.delenv("OPENAI_API_KEY")
    with open_model(NAME, replay) as model:
        assert replace(wait(model.complete(MESSAGES, sample=1)), cached=False) == played
    monkeypatch.setattr("fintrading_agents.models.names.OPENAI_URL", stub.url)
    with open_model(NAME, replace(replay, base_url=None)) as model:
        assert wait(model.complete(MESSAGES, sample=1)).cached


@pytest.mark.parametrize("fault", OUTCOMES)
def test_what_is_no_answer_is_never_taken_from_the_cache_but_by_a_replay(fault, settings, caplog):
    with Stub(BUY, FAULTS[fault], FAULTS[fault], BUY) as stub:
        (first,) = ask(stub, settings, {"sample": 1})
        (replayed,) = ask(stub, replace(settings, cache="replay"), {"sample": 1})
        again, better = ask(stub, settings, {"sample": 1}, {"sample": 1})  # a later run, and once more in it
        assert len(stub.requests) == 1 + 3
        (kept,) = ask(stub, replace(settings, cache="replay"), {"sample": 1})
        assert ask(stub, settings, {"sample": 1}) == [kept]
        assert len(stub.requests) == 1 + 3
    assert [reply.outcome for reply in (first, again, better)] == [OUTCOMES[fault]] * 2 + ["ok"]
    assert replace(replayed, cached=False) == first
    assert replace(kept, cached=False) == better
    told = [message for message in caplog.messages if "no answers" in message]
    assert told[0].startswith(f"replies that were no answers: 1 {OUTCOMES[fault]}; a later run asks again")
    assert len(told) == 3  # none of the two runs that had answers


def test_a_parameter_that_is_found_out_midway_does_not_rename_the_calls_before(settings):
    def strict(body):
        late = len(stub.requests) > 2
        return error(400, "seed is not supported", param="seed") if late and "seed" in body else BUY

    with Stub(strict) as stub:
        days = ({"sample": 1}, {"sample": 2}, {"sample": 3})
        first = ask(stub, settings, *days)
        assert len(stub.requests) == 1 + 3 + 1
        again = ask(stub, settings, *days)
        assert len(stub.requests) == 1 + 3 + 1
    assert [replace(reply, cached=False) for reply in again] == first
    assert ["seed" in reply.sent for reply in first] == [True, False, False]


def test_who_leaves_does_not_end_the_call_of_those_who_stay(settings):
    with Stub(BUY, says("late", delay=0.3)) as stub, open_model(NAME, replace(settings, base_url=stub.url)) as model:

        async def one_leaves():
            one, two = (asyncio.ensure_future(model.complete(MESSAGES, sample=1)) for _ in range(2))
            while len(stub.requests) < 2:
                await asyncio.sleep(0.001)
            one.cancel()
            return await two

        assert wait(one_leaves()).content == "late"
        assert len(stub.requests) == 2


def test_a_call_ends_when_the_last_who_waits_has_left(settings):
    with Stub(BUY, FAULTS["slow"]) as stub, open_model(NAME, replace(settings, base_url=stub.url)) as model:

        async def both_leave():
            both = [asyncio.ensure_future(model.complete(MESSAGES, sample=1)) for _ in range(2)]
            while len(stub.requests) < 2:
                await asyncio.sleep(0.001)
            for one in both:
                one.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            return len(model._shared.flights)

        assert wait(both_leave()) == 0


def test_closing_one_handle_of_a_model_does_not_stop_another(settings):
    left = threading.Event()

    def answer(body):
        if body["seed"]:  # no preflight
            left.wait(60)
        return says("late")

    with Stub(answer) as stub, ThreadPoolExecutor(2) as threads:
        shared = replace(settings, base_url=stub.url)
        with open_model(NAME, shared) as stays:
            with open_model(NAME, shared) as leaves:
                both = [threads.submit(lambda of=of: wait(of.complete(MESSAGES, sample=1))) for of in (leaves, stays)]
                while [flight.waiters for flight in [*stays._shared.flights.values()]] != [2]:
                    time.sleep(0.001)
            left.set()
            stopped, waiting = both
            assert waiting.result().content == "late"
            with pytest.raises(RunStopped):
                stopped.result()
        assert len(stub.requests) == 2


FORK = """
import asyncio, os, signal
from fintrading_agents.models import wait

async def pid():
    return os.getpid()

assert wait(pid()) == os.getpid()
child = os.fork()
if not child:
    signal.alarm(20)
    os._exit(0 if wait(pid()) == os.getpid() else 1)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_has_a_loop_of_its_own():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_a_refreshed_reply_takes_the_place_of_the_old_one(settings):
    with Stub(BUY, says("old"), BUY, says("new")) as stub:
        ask(stub, settings)
        ask(stub, replace(settings, cache="refresh"))
        (reply,) = ask(stub, settings)
    assert (reply.content, reply.cached) == ("new", True)


def test_the_cache_is_keyed_by_all_that_changes_an_answer(settings):
    variants = [
        (settings, {}),
        (settings, {"sample": 1}),
        (settings, {"messages": [{"role": "user", "content": "What then?"}]}),
        (replace(settings, temperature=0.1), {}),
        (replace(settings, max_tokens=9), {}),
        (replace(settings, structured="json_object"), {"form": FORM}),
    ]
    with Stub(BUY) as stub:
        replies = [ask(stub, varied, call)[0] for varied, call in variants]
        other = ask(stub, settings, name="openai/other")[0]
        elsewhere = Stub(BUY)
        with elsewhere:
            replies += [other, ask(elsewhere, settings)[0]]
        same = [ask(stub, replace(settings, attempts=9, timeout=9.0, in_flight=1), {})[0]]
    assert not any(reply.cached for reply in replies)
    assert all(reply.cached for reply in same)


def test_a_price_that_became_known_is_told_of_cached_replies_too(settings, tmp_path):
    prices = tmp_path / "prices.toml"
    prices.write_text(f'["{NAME}"]\ninput = 1.0\noutput = 1.0\n')
    with Stub(BUY) as stub:
        (unknown,) = ask(stub, settings, {"sample": 1})
        (known,) = ask(stub, replace(settings, prices=str(prices)), {"sample": 1})
    assert unknown.cost is None
    assert known.cached
    assert known.cost == pytest.approx(128e-6)


def test_whose_price_a_cost_comes_from_is_kept_with_the_reply(settings, tmp_path):
    prices = tmp_path / "prices.toml"
    prices.write_text(f'["{NAME}"]\ninput = 1.0\noutput = 1.0\ndate = 2026-05-04\n')
    with Stub(BUY) as stub:
        (bought,) = ask(stub, replace(settings, prices=str(prices)), {"sample": 1})
        prices.write_text(prices.read_text().replace("1.0", "2.0"))
        (later,) = ask(stub, replace(settings, prices=str(prices)), {"sample": 1})
        (replayed,) = ask(stub, replace(settings, cache="replay"), {"sample": 1})
        (unknown,) = ask(stub, settings, {"sample": 2})
    assert bought.price.startswith("prices.toml (sha256 ")
    assert bought.price.endswith(") of 2026-05-04")
    assert bought.price == later.price == replayed.price
    assert bought.cost == later.cost == replayed.cost
    assert (unknown.price, "price" in unknown.as_json()) == (None, False)


def test_a_replay_tells_the_costs_of_the_board_whatever_prices_are_known_here(settings, tmp_path):
    prices = tmp_path / "prices.toml"
    prices.write_text(f'["{NAME}"]\ninput = 1.0\noutput = 1.0\n')
    dear = tmp_path / "dear.toml"
    dear.write_text(prices.read_text().replace("1.0", "9.0"))
    with Stub(BUY) as stub:
        ask(stub, settings, {"sample": 1}, {"sample": 2})
        ask(stub, replace(settings, prices=str(prices)), {"sample": 1})  # its price became known later
    for known_here in (None, str(dear)):
        priced, unpriced = ask(stub, replace(settings, cache="replay", prices=known_here), {"sample": 1}, {"sample": 2})
        assert (priced.cost, unpriced.cost) == (pytest.approx(128e-6), None)


@pytest.mark.slow
def test_the_oldest_openai_that_is_allowed_does_the_same(tmp_path):
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", tmp_path]
    done = subprocess.run([sys.executable, *install, "openai==2.54.0"], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"openai 2.54.0 cannot be installed here: {done.stderr.strip().splitlines()[-1]}")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    oldest = {"env": {**os.environ, "PYTHONPATH": path}, "capture_output": True, "text": True}
    told = subprocess.run([sys.executable, "-c", "import openai; print(openai.__version__)"], check=True, **oldest)
    assert told.stdout.strip() == "2.54.0"
    played = subprocess.run([sys.executable, "-m", "pytest", "-n0", "-p", "no:cacheprovider", __file__], **oldest)
    assert played.returncode == 0, played.stdout[-3000:]
    assert "passed" in played.stdout
