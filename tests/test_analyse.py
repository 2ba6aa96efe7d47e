"""`fintrading analyse`: one day, the five reports with names put back, and what was sent beside them."""

import json
import re
from importlib.util import find_spec

import pytest
from stub_endpoint import FAULTS, Stub, says
from typer.testing import CliRunner

from fintrading_agents.analyse import markdown, record_of, until, used
from fintrading_agents.models import Reply, Scripted, Usage
from fintrading_agents.models import client as client_module
from fintrading_agents.sources import Item
from fintrading_gym.cli import app
from fintrading_gym.errors import DataError, RunStopped
from fintrading_gym.rollout import Task
from fintrading_gym.windows import DATA, bundled

SCRIPT = ("--model", "scripted/committee")
DAY = ("--day", "2022-10-10")
STAGES = ["analyst", "bull", "bear", "judge", "risk"]
TESLA = Item(
    "2022-10-07", "news", "Tesla delivers fewer", "Elon Musk said on October 7, 2022 that TSLA at $223.07 is cheap."
)


@pytest.fixture
def run(monkeypatch, tmp_path):
    """`fintrading analyse WORDS`; the result, after the exit code was compared."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("FINTRADING_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(client_module, "FIRST_PAUSE", 0.001)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sources.jsonl").write_text(json.dumps(TESLA._asdict()) + "\n")

    def run(*words, code=0):
        done = CliRunner().invoke(app, ["analyse", *map(str, words)])
        assert done.exit_code == code, done.output + repr(done.exception)
        return done

    return run


def one_of(answers, identity="masked", items=(), day="2022-10-10", **how):
    window, _ = until("TSLA", day)
    return record_of(Task(window, timesteps=1, identity=identity), Scripted(answers), items, **how)


def test_it_prints_the_verdict_and_five_reports(run):
    done = run("TSLA", *DAY, *SCRIPT)
    assert done.stdout.startswith("# TSLA at the close of 2022-10-10\n\n**Sell**, confidence 0.60, target price 218.5")
    titles = [line for line in done.stdout.splitlines() if line.startswith("## ")]
    assert titles == ["## Analyst", "## Bull", "## Bear", "## Judge", "## Risk committee"]
    assert "Unsupported figures: 0 of 9" in done.stdout
    assert "told neither names nor dates" in done.stdout


def test_its_cost_and_its_progress_are_told_stage_by_stage(run):
    lines = run("TSLA", *DAY, *SCRIPT, "--debate-rounds", 1).stderr.splitlines()
    assert lines[0] == "7 calls to scripted/committee: a debate of 1 round"
    assert lines[1:8] == [f"{stage} ..." for stage in [*STAGES[:3], "bull 1", "bear 1", *STAGES[3:]]]
    assert lines[8].startswith("7 calls, 0 of them from the cache; tokens: unknown; paid: 0.0000 USD")


def test_without_rounds_it_is_called_what_it_is(run, tmp_path):
    done = run("TSLA", *DAY, *SCRIPT, "--json", "all.json")
    assert done.stderr.splitlines()[0] == "5 calls to scripted/committee: one-shot construction"
    assert "* One-shot construction: bull and bear did not read each other.\n" in done.stdout
    told = json.loads((tmp_path / "all.json").read_text())
    assert (told["facts"]["debate_rounds"], told["manner"]) == (0, "one-shot construction")
    done = run("TSLA", *DAY, *SCRIPT, "--debate-rounds", 2)
    assert "* A debate of 2 rounds.\n" in done.stdout
    help = CliRunner().invoke(app, ["analyse", "--help"], terminal_width=300).stdout
    assert "0: one-shot construction" in " ".join(help.split())


def test_what_was_sent_is_masked_and_what_is_read_has_its_names(run, tmp_path):
    run("TSLA", *DAY, *SCRIPT, "--sources", "sources.jsonl", "--json", "all.json", "--out", "report.md")
    told = json.loads((tmp_path / "all.json").read_text())
    assert [call["stage"] for call in told["calls"]] == STAGES
    sent = json.dumps([[call["messages"], call["content"]] for call in told["calls"]])
    assert "Company-001 delivers fewer" in sent
    assert not any(word in sent for word in ("Tesla", "TSLA", "Musk", "2022", "223.07"))
    assert (told["facts"]["leaks"], told["identity"]) == (0, "masked")
    assert told["names"]["Company-001"] == "Tesla, Inc."
    assert told["research"]["items"] == 1
    assert told["close"] == pytest.approx(222.96)
    assert told["target_price"] == pytest.approx(told["verdict"]["target_price"] * told["dollars"])
    assert (tmp_path / "report.md").read_text() == markdown(told)


def test_names_dates_and_quoted_prices_come_back_in_the_reports():
    texts = ["## Price\nCompany-001 fell to $78.84 on Date-0007, said **Company 1**.", "Buy it.", "Sell it.", "Draw."]
    told = one_of([*texts, '{"action": "hold", "confidence": 0.5, "target_price": 100}'])
    assert told["calls"][0]["content"] == texts[0]
    window, _ = until("TSLA", "2022-10-10")
    day = window.load().date[-2 - 6 + 6]  # the seventh that the view shows is the day before
    restored = f"## Price\nTesla, Inc. fell to ${78.84 * told['dollars']:.2f} on {day}, said **Tesla, Inc.**."
    assert told["restored"] == [restored, None, None, None, None]
    assert restored.replace("## ", "#### ") in markdown(told)


def test_prices_of_the_research_come_back_to_the_cent():
    def quotes(messages):
        """All prices of the research, and the last close as a target."""
        if '"target_price"' not in messages[0]["content"]:
            return " ".join(
                f"at ${price}" for price in dict.fromkeys(re.findall(r"\d+\.\d\d(?! %)", messages[1]["content"]))
            )
        close = re.search(r"^close (\S+),", messages[1]["content"], re.MULTILINE)[1]
        return f'{{"action": "hold", "confidence": 0.5, "target_price": {close}}}'

    told = one_of(quotes, day="2022-10-06")
    true = until("TSLA", "2022-10-06")[0].load()
    shown = re.findall(r"\$(\S+)", told["restored"][0])
    assert f"{true.close[-1]:.2f}" == "238.13" == shown[0]  # which is 95.82 there, and 95.82 / scale is 238.12
    week = [f"{getattr(true, name)[t]:.2f}" for name in ("open", "high", "low", "close") for t in range(-7, 0)]
    assert set(week) <= set(shown)
    assert f"{true.low[-250:].min():.2f}" in shown
    assert f"{true.high[-250:].max():.2f}" in shown
    assert told["target_price"] == told["close"]
    assert "target price 238.13 USD (+0.00 %), close 238.13 USD" in markdown(told)


def test_live_sends_names_and_dates_and_restores_nothing(run, tmp_path):
    done = run("TSLA", *DAY, *SCRIPT, "--live", "--sources", "sources.jsonl", "--json", "all.json")
    told = json.loads((tmp_path / "all.json").read_text())
    sent = json.dumps([call["messages"] for call in told["calls"]])
    assert all(word in sent for word in ("# Research on TSLA", "Date: 2022-10-10", "Elon Musk", "222.96"))
    assert (told["identity"], told["names"], told["dollars"]) == ("real", {}, 1)
    assert told["restored"] == [None] * 5
    assert "2022-10-10 lies in the past: a model that is told so may remember" in done.stderr
    assert "neither names nor dates" not in done.stdout
    last = bundled("TSLA").date[-1]
    assert "lies in the past" not in run("TSLA", "--day", last, *SCRIPT, "--live").stderr


def test_a_table_of_ones_own_and_its_last_day(run, tmp_path):
    (tmp_path / "mine.csv").write_bytes((DATA / "AAPL.csv").read_bytes())
    last = bundled("AAPL").date[-1]
    ours = run("AAPL", "--day", last, *SCRIPT, "--json", "ours.json").stdout
    assert run("AAPL", "--day", last, *SCRIPT, "--prices", "mine.csv").stdout == ours
    assert "ACME at the close" in run("ACME", "--day", last, *SCRIPT, "--prices", "mine.csv").stdout


def test_nothing_of_a_later_day_is_even_read():
    window, later = until("TSLA", "2022-10-10")
    assert later
    assert window.load().date[-1] == "2022-10-10" == window.last
    assert not until("TSLA", bundled("TSLA").date[-1])[1]
    news = [TESLA, Item("2022-10-11", "news", "later", ""), Item(None, "news", "undated", "")]
    told = one_of(lambda messages: '{"action": "buy"}', items=news)
    assert told["research"] == {**told["research"], "items": 1, "excluded": 2}


def test_the_labelled_form_is_read_too(run):
    text = run("TSLA", *DAY, *SCRIPT, "--form", "prose").stdout
    assert text.startswith(
        "# TSLA at the close of 2022-10-10\n\n**Sell**, confidence 0.60, target price 222.96 USD (+0.00"
    )
    assert "## Risk committee\n\nFINAL RECOMMENDATION: SELL\n" in text
    assert "TARGET PRICE: $222.96" in text


@pytest.mark.skipif(not (find_spec("openai") and find_spec("tenacity")), reason="extra llm")
def test_the_second_run_of_a_day_costs_nothing(run):
    def answer(body):
        last = '"target_price"' in body["messages"][0]["content"]
        return says('{"action": "sell", "confidence": 0.7, "target_price": 70}' if last else "Overdone at 77.47.")

    with Stub(answer) as stub:
        words = ("TSLA", *DAY, "--model", "openai/stub", "--base-url", stub.url, "--structured", "none")
        first = run(*words)
        assert len(stub.requests) == 1 + 5
        again = run(*words)
        assert len(stub.requests) == 1 + 5
        run("TSLA", "--day", "2022-10-11", *words[3:])
        assert len(stub.requests) == 1 + 5 + 4  # the judge sees texts alone, and they are the same again
    assert again.stdout == first.stdout
    assert "5 calls, 0 of them from the cache; tokens: 600 in and 40 out" in first.stderr
    assert "5 calls, 5 of them from the cache; tokens: 600 in and 40 out" in again.stderr
    replayed = run(*words, "--cache", "replay")
    assert replayed.stdout == first.stdout


@pytest.mark.skipif(not (find_spec("openai") and find_spec("tenacity")), reason="extra llm")
def test_a_failed_stage_ends_with_1_and_keeps_what_there_is(run, tmp_path):
    def answer(body):
        bear = "You are the bear" in body["messages"][0]["content"]
        return FAULTS["overloaded"] if bear else says("Overdone at 77.47.")

    with Stub(answer) as stub:
        model = ("--model", "openai/stub", "--base-url", stub.url, "--structured", "none", "--attempts", 2)
        done = run("TSLA", *DAY, *model, "--json", "all.json", code=1)
    assert "fintrading: no verdict: stage bear failed (server: " in done.stderr
    assert "**No verdict**: stage bear failed (server: " in done.stdout
    told = json.loads((tmp_path / "all.json").read_text())
    assert [call["stage"] for call in told["calls"]] == STAGES[:3]
    assert (told["verdict"]["action"], told["verdict"]["reason"]) == (None, "stage_failed")
    assert "## Bear\n\n*server: " in done.stdout


@pytest.mark.skipif(not (find_spec("openai") and find_spec("tenacity")), reason="extra llm")
def test_a_model_that_cannot_be_had_ends_with_one_line(run):
    with Stub(FAULTS["bad_key"]) as stub:
        done = run("TSLA", *DAY, "--model", "openai/stub", "--base-url", stub.url, code=1)
    assert "cannot be had: bad_key" in str(done.exception)
    with Stub(says("ok"), FAULTS["quota"]) as stub:
        done = run("TSLA", *DAY, "--model", "openai/stub", "--base-url", stub.url, "--structured", "none", code=1)
    assert "quota" in str(done.exception)
    assert isinstance(done.exception, RunStopped)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("TSLB", *DAY, *SCRIPT), "No ticker 'TSLB'; .* Did you mean 'TSLA'"),
        (("TSLA", "--day", "2022-10-08", *SCRIPT), "2022-10-08 is no trading day of TSLA.csv .* nearest is 2022-10-07"),
        (("TSLA", "--day", "2021-01-04", *SCRIPT), "2021-01-04 is no trading day .* that has one before it"),
        (("TSLA", "--day", "2031-01-04", *SCRIPT), "the nearest is 2023-06-30"),
        (("TSLA", "--day", "yesterday", *SCRIPT), "--day 'yesterday' is not a date"),
        (("TSLA", *DAY), "committee needs a model"),
        (("TSLA", *DAY, "--model", "openia/x"), "No model provider 'openia'"),
        (("TSLA", *DAY, *SCRIPT, "--every", 2), "--every is for episodes"),
        (("TSLA", *DAY, *SCRIPT, "--context", "full"), "--context is for players that ask a model, such as llm"),
        (("TSLA", *DAY, *SCRIPT, "--persona", "bold"), "No persona 'bold'"),
        (("TSLA", *DAY, *SCRIPT, "--detail", "ful"), "No detail 'ful'.* Did you mean 'full'"),
        (("TSLA", *DAY, *SCRIPT, "--sources", "none.jsonl"), r"none\.jsonl: cannot be read"),
        (("TSLA", *DAY, *SCRIPT, "--prices", "none.csv"), r"none\.csv: cannot be read"),
        (("TSLA", *DAY, *SCRIPT, "--json", "no/such/folder.json"), "No such file"),
    ],
)
def test_bad_usage_is_told_in_one_line(words, told, run):
    done = run(*words, code=1)  # of a CliRunner; `main` makes 2 of these
    with pytest.raises((ValueError, OSError), match=told):
        raise done.exception
    assert "\n" not in str(done.exception)


def test_made_up_figures_leaks_and_unknown_costs_are_told_to_the_reader():
    answers = iter(["It was 12345.", "I see Tesla here.", "x", "y", '{"action": "buy"}'])
    told = one_of(lambda messages: Reply(next(answers), "ok", usage=Usage(10, 2)))
    page = markdown(told)
    assert "Unsupported figures: 1 of 1 (analyst 12345)" in page
    assert "who or when; times: 1 (day 1, calls 2, content: company 'Tesla')" in page
    assert "**Buy**, confidence not stated, target price not stated" in page
    assert "confidence_missing, target_price_missing" in page
    assert used(told["facts"]) == "5 calls, 0 of them from the cache; tokens: 50 in and 10 out; paid: an unknown sum"


def test_the_model_prices_have_a_flag_of_their_own(run, tmp_path):
    (tmp_path / "prices.toml").write_text("broken")
    with pytest.raises(DataError, match=r"prices\.toml: no column 'date'"):
        raise run("TSLA", *DAY, *SCRIPT, "--prices", "prices.toml", code=1).exception
    model = ("--model", "openai/x", "--base-url", "http://127.0.0.1:9/v1", "--model-prices", "prices.toml")
    with pytest.raises(ValueError, match=r"prices\.toml"):
        raise run("TSLA", *DAY, *model, code=1).exception
