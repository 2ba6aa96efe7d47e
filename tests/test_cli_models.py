"""The command line with players that ask a model: flags, board, limits, and nothing that tells a key."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest
import typer
from conftest import KEY
from stub_endpoint import Stub, error, says

from fintrading_gym import cli
from fintrading_gym.progress import told
from fintrading_gym.store import rows

BUY, SELL = says('{"action": "buy"}'), says('{"action": "sell"}')
QUICK = ("--structured", "none", "--attempts", 1)


def test_a_model_may_be_named_apart_or_after_the_agent(run):
    words = ("--cell", "spy_bear_2022", "--persona", "risk_averse", "--timesteps", 5, "--json")
    apart = run("play", "llm", "--model", "scripted/momentum", *words).out
    after = run("play", "llm:scripted/momentum", *words).out
    assert apart == after
    data = json.loads(apart)
    assert (data["agent"], data["facts"]["model"]) == ("llm:scripted/momentum", "scripted/momentum")
    assert len(data["log"]) == len(data["ledger"]) == 5
    assert "risk-averse" in data["log"][0]["calls"][0]["messages"][0]["content"]


def test_play_shows_the_models_numbers(run):
    text = run("play", "llm:scripted/prose", "--timesteps", 2, "--max-nudges", 1, "--verbose").out
    assert "hold (none given)" in text
    assert "format_nudges" in text
    assert "unknown" in text  # tokens that nobody counted


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("play", "flat", "--temperature", 0.5), "--temperature is for players that ask a model, such as llm"),
        (("leaderboard", "--agents", "flat,random", "--usd-limit", 1), "there are: flat, random"),
        (("play", "llm:scripted/buy", "--debate-rounds", 1), "--debate-rounds is for committee; there are: llm"),
        (("play", "committee:scripted/buy", "--every", 0), "every=0 is not a whole number >= 1"),
        (("play", "llm"), "llm needs a model"),
        (("play", "llm", "--model", "opnai/x"), "Did you mean 'openai'"),
        (("play", "llm:scripted/momentm"), "Did you mean 'momentum'"),
        (("play", "llm:scripted/buy", "--context", "lst"), "none of last, window:K"),
        (("play", "llm:openai/x", "--cache", "reply"), "Did you mean 'replay'"),
        (("play", "llm:openai/x", "--structured", "yaml"), "No structured output 'yaml'"),
        (("play", "llm:openai/x", "--cache", "replay"), "There is no cache"),
        (("play", "llm:scripted/buy", "--max-nudges", -1), "max_nudges=-1"),
        (("play", "llm:openai/x", "--base-url", "http://127.0.0.1:80a/v1"), "is no URL"),
        (("play", "llm:scripted/buy", "--detail", "breif"), "Did you mean 'brief'"),
        (("leaderboard", "--agents", "flat", "--also", "llm"), "llm needs a model"),
    ],
)
def test_bad_usage_is_one_line_and_ends_with_2(words, said, run):
    out = run(*words, code=2)
    assert said in out.err
    assert len(out.err.strip().splitlines()) == 1
    assert out.out == ""


@pytest.mark.parametrize("command", ["play", "leaderboard"])
def test_help_tells_every_flag_of_models_apart(command, run):
    text = run(command, "--help").out
    assert "Players that ask a model" in text
    assert all(flag in text for flag in ("--base-url", "--usd-limit", "--cache-file", "--structured", "--in-flight"))


def test_help_lists_commands_that_packages_bring_and_loads_them_when_asked(run, monkeypatch):
    loaded = []

    def fetch(name: str) -> None:
        """Fetch something."""
        print(f"fetched {name}")

    group = typer.Typer(help="Several of them.")
    group.command()(fetch)
    group.callback()(lambda: None)

    def point(thing):
        return types.SimpleNamespace(load=lambda: loaded.append(thing) or thing)

    monkeypatch.setattr(cli, "_brought", lambda: {"fetch": point(fetch), "several": point(group)})
    run("cells")
    assert loaded == []
    text = run("--help").out
    assert re.search(r"fetch +Fetch something\.", text)
    assert re.search(r"several +Several of them\.", text)
    assert run("fetch", "x").out == "fetched x\n"
    assert run("several", "fetch", "y").out == "fetched y\n"


# ------------------------------------------------------------------------------------------ at an endpoint

pytest.importorskip("openai")
pytest.importorskip("tenacity")
ONE = ("--agents", "buy_and_hold,llm:openai/stub", "--cells", "tsla_main", "--seeds", 1, "--timesteps", 25)


def test_flags_reach_the_endpoint(run):
    with Stub(BUY) as stub:
        words = (
            "--base-url",
            stub.url,
            "--temperature",
            0.25,
            "--max-tokens",
            99,
            "--seed",
            4,
            "--context",
            "window:2",
        )
        data = json.loads(run("play", "llm:openai/stub", "--timesteps", 3, *words, *QUICK, "--json").out)
        last = stub.requests[-1]
    assert (last["temperature"], last["max_tokens"], last["seed"], last["model"]) == (0.25, 99, 4, "stub")
    assert len(last["messages"]) == 1 + 2 * 2 + 1
    assert data["log"][0]["calls"][0]["sent"]["temperature"] == 0.25


@pytest.mark.parametrize("status", [401, 404])
def test_what_cannot_work_ends_with_1_in_one_line_with_status_and_url(status, run):
    with Stub(error(status, f"wrong: {KEY}")) as stub:
        for command in (("play", "llm:openai/stub"), ("leaderboard", *ONE)):
            out = run(*command, "--base-url", stub.url, *QUICK, code=1)
            assert f"status {status}, at {stub.url}" in out.err
            assert out.out == ""
            assert len(out.err.strip().splitlines()) == 1


def test_a_board_with_a_model_is_replayed_without_a_request_and_without_its_endpoint(run):
    files = []
    with Stub(lambda body: BUY if len(body["messages"][-1]["content"]) % 2 else SELL) as stub:
        words = ("leaderboard", *ONE, "--base-url", stub.url, *QUICK)
        for name in ("first", "second"):
            text = run(*words, "--json", f"{name}.json", "--csv", f"{name}.csv").out
            files.append(json.loads(Path(f"{name}.json").read_text()))
        assert len(stub.requests) == 1 + 25
        cache = Path(os.environ["FINTRADING_CACHE"]) / "replies.sqlite"
    files.append(None)
    run(*words, "--cache", "replay", "--cache-file", cache, "--json", "replayed.json")
    files[2] = json.loads(Path("replayed.json").read_text())
    assert "What the models did" in text
    rows = [next(row for row in file if row["agent"].startswith("llm:openai/stub [base_url=")) for file in files]
    assert (rows[0]["cache_hits"], rows[1]["cache_hits"], rows[2]["cache_hits"]) == (0, 25, 25)
    for row in rows:
        del row["cache_hits"], row["paid_usd"]
    assert rows[0] == rows[1] == rows[2]
    assert (rows[0]["model"], rows[0]["structured"], rows[0]["tokens_in"]) == ("openai/stub", "none", 25 * 120)
    assert rows[0]["cost_usd"] is None
    with Path("first.csv").open() as file:
        assert [row["model"] for row in csv.DictReader(file)] == ["", "openai/stub"]


def test_a_model_that_decides_one_thing_is_told(run):
    with Stub(BUY) as stub:
        text = run("leaderboard", *ONE, "--base-url", stub.url, *QUICK).out
    told = f"llm:openai/stub [base_url={stub.url} structured=none]"
    assert f"{told} decided buy on 100% of its days: a position, hardly a choice" in text
    assert "buy_and_hold decided" not in text  # it is a rule


def test_the_board_says_what_a_script_is(run):
    text = run("leaderboard", "--agents", "flat", "--also", "llm:scripted/momentum", "--cells", "tsla_main").out
    assert "llm:scripted/momentum: a script, and no language model" in text


def test_a_limit_ends_with_1_and_the_same_command_goes_on(run):
    with Stub(BUY) as stub:
        words = ("leaderboard", "--agents", "flat,llm:openai/stub", "--timesteps", 5, "--seeds", 1, *QUICK)
        words += ("--base-url", stub.url)
        limited = (*words, "--in-flight", 1, "--token-limit", 128 * (1 + 5 * 2 + 3), "--csv", "rows.csv")
        out = run(*limited, code=1)
        assert "6 of 8 episodes are finished: token_limit=1792 is reached (1792 used); what was paid" in out.err
        assert len(Path("rows.csv").read_text().splitlines()) == 1 + 4 + 2
        run(*words)
        assert len(stub.requests) == 1 + 5 * 4


def test_prices_make_costs_and_a_limit_in_money(run, tmp_path):
    (tmp_path / "prices.toml").write_text('["openai/stub"]\ninput = 100\noutput = 100\n')
    with Stub(BUY) as stub:
        words = ("play", "llm:openai/stub", "--base-url", stub.url, *QUICK, "--prices", "prices.toml")
        data = json.loads(run(*words, "--timesteps", 2, "--json").out)
        assert data["facts"]["cost_usd"] == pytest.approx(2 * 0.0128)
        assert "usd_limit=0.05 is reached" in run(*words, "--usd-limit", 0.05, code=1).err


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_an_interrupt_ends_with_130_keeps_what_is_finished_and_waits_for_no_answer(tmp_path):
    env = {**os.environ, "OPENAI_API_KEY": KEY, "FINTRADING_CACHE": str(tmp_path)}
    with Stub(BUY, BUY, says("late", delay=1000)) as stub:
        words = ["leaderboard", *ONE, "--base-url", stub.url, *QUICK, "--csv", "rows.csv", "--out", "board.db"]
        command = [str(Path(sys.executable).with_name("fintrading")), *map(str, words)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=pipe, stderr=pipe, text=True)
        while len(stub.requests) < 3 or not rows(tmp_path / "board.db"):  # the rule's
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=100)  # it would be one attempt's 120
    assert process.returncode == 130, out + err
    assert "buy_and_hold" in out
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 2
    assert KEY not in out + err


# ------------------------------------------------------------------------------------------- the live line


def facts(**more):
    return {"tokens_in": 1000, "tokens_out": 50, "paid_usd": 0.25, "cache_hits": 3, **more}


def test_the_live_line_tells_tokens_money_hits_and_the_mix():
    line = told([facts(), facts()], {"a": {"buy": 6}, "b": {"sell": 3, "none": 1}})
    assert line == "2,100 tokens, 0.5000 USD, 6 cached, buy 60% sell 30% none 10%"
    assert told([facts(tokens_in=None, paid_usd=None)], {"a": {"hold": 1}}) == "? tokens, ? USD, 3 cached, hold 100%"


@pytest.mark.parametrize(("buys", "sells", "alert"), [(9, 0, False), (10, 0, True), (95, 5, False), (96, 4, True)])
def test_the_live_line_warns_where_one_decision_is_nearly_all(buys, sells, alert):
    assert ("openai/a: buy on" in told([facts()], {"openai/a": {"buy": buys, "sell": sells}})) == alert
    beside = {"openai/a": {"buy": buys, "sell": sells}, "openai/b": {"sell": 500, "hold": 500}}
    assert ("openai/a: buy on" in told([facts()], beside)) == alert  # another's decisions do not hide it


@pytest.mark.parametrize(("days", "alert"), [(9, False), (10, True)])
def test_play_ends_with_the_warning(days, alert, run):
    last = run("play", "llm:scripted/buy", "--timesteps", days).out.strip().splitlines()[-1]
    assert last.startswith("llm:scripted/buy decided buy on 100% of its days") == alert


def test_a_day_without_a_decision_is_no_hold_in_what_the_models_did(run):
    agents = "committee:scripted/momentum,llm:scripted/momentum"
    text = run(
        "leaderboard", "--agents", agents, "--cells", "tsla_main", "--seeds", 1, "--timesteps", 3, "--form", "prose"
    ).out
    did = text[text.index("What the models did") :]
    assert next(line for line in did.splitlines() if " none " in line).split()[:5] == [
        "agent",
        "buy",
        "hold",
        "sell",
        "none",
    ]
    shares = next(line for line in did.splitlines() if line.startswith(" committee")).split()
    assert shares[-9:-5] == ["0%", "0%", "0%", "100%"]
