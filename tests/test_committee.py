"""The committee as a player: what it costs, what it keeps, what it plays, and that it knows nothing too early."""

import datetime
import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from conftest import window_of
from stub_endpoint import Stub, says
from typer.testing import CliRunner

from fintrading_agents import committee as module
from fintrading_agents import llm, pipeline
from fintrading_agents.committee import AUDITED, LAST_WORD, PROMPT_SHA256, calls_per_episode, committee
from fintrading_agents.models import ModelFailure, Reply, Scripted, Usage
from fintrading_agents.models import client as client_module
from fintrading_agents.research import SHAPE
from fintrading_agents.sources import KINDS, Item, fingerprint, read_sources
from fintrading_gym import leaderboard as board
from fintrading_gym.cli import app
from fintrading_gym.errors import DataError, UnknownName
from fintrading_gym.masking import IDENTITIES, mask
from fintrading_gym.observations import DETAILS, PERSONAS, percent_text
from fintrading_gym.ranking import rank
from fintrading_gym.replies import Decision
from fintrading_gym.rollout import Player, Task, find_player
from fintrading_gym.windows import CELLS, EVALUATION, PAPER, bundled

BRIEF = Task(timesteps=3)
SCRIPT = "scripted/committee"


def play(task=BRIEF, model=SCRIPT, **options):
    return Player(f"committee:{model}", committee, model, options).play(task)


def given(script, task=BRIEF, **options):
    return Player("committee:given", committee, Scripted(script), options).play(task)


def written(folder, items, name="sources.jsonl"):
    path = folder / name
    path.write_text("".join(json.dumps(item._asdict()) + "\n" for item in items))
    return str(path)


def after_the_close(date):
    """The second after a day's close in New York, as three clocks tell it; two of them may call it another day."""
    moment = datetime.datetime.fromisoformat(f"{date}T16:00:01").replace(tzinfo=ZoneInfo("America/New_York"))
    return [moment.astimezone(ZoneInfo(zone)).isoformat() for zone in ("America/New_York", "UTC", "Asia/Tokyo")]


def prompts(episode):
    return [[call["messages"] for call in day["calls"]] for day in episode.log]


# ------------------------------------------------------------------------------------------ what it plays


@pytest.mark.parametrize("cell", CELLS)
def test_it_plays_every_task_and_the_papers_cells(cell):
    for persona in PERSONAS if cell in EVALUATION else ("adaptive",):
        task = Task(cell, persona, timesteps=3)
        episode = play(task)
        assert episode.failure is None
        assert all(episode.ledger.valid)
        assert episode.identity == "masked"
        assert episode.ledger == find_player("momentum").play(task).ledger  # the script follows the same number
        assert (episode.facts["leaks"], episode.facts["calls"]) == (0, 15)
    assert len({*EVALUATION, *PAPER}) == len(CELLS)


@pytest.mark.parametrize("identity", IDENTITIES)
@pytest.mark.parametrize("detail", DETAILS)
def test_it_plays_at_every_level_of_identity_and_detail(detail, identity):
    episode = play(Task(timesteps=2, identity=identity, detail=detail))
    assert (episode.failure, episode.identity, episode.facts["detail"]) == (None, identity, detail)


def test_it_plays_an_audits_days_and_other_worlds():
    prices = bundled("TSLA")
    window = replace(Task().window, first=prices.date[400], last=prices.date[401], prices=prices)
    assert play(Task(window, timesteps=1)).failure is None
    for world in ("mirror", "shuffled", "reversed", "renamed"):
        assert play(replace(BRIEF, world=world)).failure is None


def test_a_row_has_cost_tokens_coverage_and_the_committees_own_facts():
    paid = Reply('{"action": "buy", "confidence": 0.5, "target_price": 90}', "ok", usage=Usage(100, 10), cost=0.25)
    player = Player("committee:given", committee, Scripted(lambda messages: paid))
    row, _ = board.played(player, BRIEF)
    assert (row["tokens_in"], row["tokens_out"], row["cost_usd"], row["coverage"]) == (1500, 150, 3.75, 1.0)
    assert {"every": 1, "debate_rounds": 0, "form": "schema", "prompt_sha256": PROMPT_SHA256}.items() <= row.items()
    assert {"failed_stages", "unsupported_figures", "figures", "items", "items_excluded"} <= row.keys()
    json.dumps(row)


def test_it_is_ranked_by_the_days_it_really_decided():
    def script(messages):
        if messages[0]["content"].startswith(pipeline.BEAR[:30]):
            raise ModelFailure("server")
        return '{"action": "buy"}'

    row, _ = board.played(Player("committee:given", committee, Scripted(script)), BRIEF)
    assert (row["coverage"], row["failed_stages"], row["failure"]) == (0.0, 3, None)
    assert "decided only 0%" in rank([row])[0].why


# ------------------------------------------------------------------------------------------- what it costs


@pytest.mark.parametrize("rounds", [0, 1, 3])
@pytest.mark.parametrize("every", [1, 2, 5, 50])
def test_the_calls_of_an_episode_are_known_beforehand(rounds, every):
    options = {"debate_rounds": rounds, "every": every}
    for timesteps in (1, 4, 7):
        task = Task(timesteps=timesteps)
        calls = play(task, **options).facts["calls"]
        assert calls == calls_per_episode(task, options) == Player("c", committee, SCRIPT, options).calls(task)
    assert calls_per_episode(Task(), {}) == 250
    assert calls_per_episode(Task(timesteps=None), {"every": 1000, "debate_rounds": 2}) == 9 + 125


def test_the_calls_are_told_before_the_run():
    words = ["--cell", "tsla_main", "--timesteps", "3", "--every", "2", "--debate-rounds", "1"]
    done = CliRunner().invoke(app, ["play", "committee", "--model", SCRIPT, *words, "--json"])
    assert done.exit_code == 0, done.output
    assert "committee:scripted/committee: 15 calls to its model in 1 episode," in done.stderr
    assert done.stderr.splitlines()[0].endswith(" aside: a debate of 1 round")
    assert json.loads(done.stdout)["facts"]["calls"] == 15
    words = ["--cells", "tsla_main,nvda_bull_2023", "--seeds", "1", "--timesteps", "2"]
    done = CliRunner().invoke(app, ["leaderboard", "--agents", f"flat,committee:{SCRIPT}", *words])
    assert done.exit_code == 0, done.output
    assert "committee:scripted/committee: 20 calls to its model in 2 episodes," in done.stderr
    assert done.stderr.splitlines()[0].endswith(" aside: one-shot construction")
    assert "flat" not in done.stderr


def test_a_player_that_does_not_know_says_nothing():
    assert find_player("flat").calls(BRIEF) is None


def test_every_other_day_is_one_plain_question_that_is_told_the_last_analysis():
    episode = play(Task(timesteps=5), every=3)
    assert [[call["stage"] for call in day["calls"]] for day in episode.log] == [
        ["analyst", "bull", "bear", "judge", "risk"], ["seat"], ["seat"],
        ["analyst", "bull", "bear", "judge", "risk"], ["seat"],
    ]  # fmt: skip
    seat = find_player("llm:scripted/momentum").play(Task(timesteps=5))
    for day, days in ((1, 1), (2, 2), (4, 1)):
        (call,) = episode.log[day]["calls"]
        last = episode.decisions[day - days]
        window = Task().window
        close = mask(window, 7, "masked").close[window.span()[0] + day - days]
        target = f"{percent_text(last.target_price / close - 1)} from the close then"
        line = LAST_WORD.format(days=days, action=last.action, confidence="0.60", target=target)
        system, view = (message["content"] for message in seat.log[day]["calls"][0]["messages"])
        assert [message["content"] for message in call["messages"]] == [system, view + line]
        assert "research" not in episode.log[day]
    assert [decision.action for decision in episode.decisions] == [decision.action for decision in seat.decisions]


def test_a_plain_day_after_a_failed_analysis_is_told_none_and_may_fail_itself():
    def script(messages):
        if messages[0]["content"].startswith(pipeline.JUDGE[:30]):
            raise ModelFailure("timeout")
        if "decisions taken: 2" in messages[-1]["content"]:
            raise ModelFailure("server")
        return '{"action": "buy"}'

    episode = given(script, every=3)
    assert "last analysis" not in episode.log[1]["calls"][0]["messages"][1]["content"]
    assert [decision.action for decision in episode.decisions] == [None, "buy", None]
    assert episode.log[2]["invalid"].startswith("stage seat failed (server: ")


# -------------------------------------------------------------------------------------------- what it keeps


def test_a_days_record_is_json_and_holds_each_generation_once():
    texts = {name: f"{name} says so at length" for name in ("analyst", "bull", "bear", "judge")}
    last = '{"action": "sell", "confidence": 0.7, "target_price": 80}'
    entry = given([*texts.values(), last], Task(timesteps=1)).log[0]
    assert json.dumps(entry) == json.dumps(json.loads(json.dumps(entry)))
    assert [call["stage"] for call in entry["calls"]] == ["analyst", "bull", "bear", "judge", "risk"]
    generated = [call["content"] for call in entry["calls"]]
    assert generated == [*texts.values(), last]
    # Beside the prompts, which each hold what their stage was shown, no text of the model stands anywhere else.
    rest = json.dumps([{**call, "messages": None, "content": None} for call in entry["calls"]])
    rest += json.dumps({name: value for name, value in entry.items() if name != "calls"})
    assert not any(text in rest for text in texts.values())
    assert entry["research"].keys() == {"tokens", "items", "left_out", "excluded"}
    assert entry["names"] == {"Company-001": "Tesla, Inc."}


def test_the_target_price_is_kept_as_it_was_told_and_in_usd():
    for identity in IDENTITIES:
        episode = play(Task(timesteps=1, identity=identity))
        scale = mask(BRIEF.window, 7, identity).scale
        target = episode.log[0]["target"]
        assert target["told"] == episode.decisions[0].target_price
        assert target["usd"] == pytest.approx(target["told"] / scale)
        assert target["usd"] == pytest.approx(238.13 * 0.98, rel=0.006)


def test_figures_that_are_not_in_the_research_are_counted_by_who_writes_them():
    def script(messages):
        if '"target_price"' in messages[0]["content"]:
            return '{"action": "hold", "confidence": 0.5, "target_price": 1}'
        return "close 82.74, was 12345.67 once" if "bear" in messages[0]["content"] else "close 82.74, RSI 31.1"

    episode = given(script, Task(timesteps=1), debate_rounds=1)
    # Bull and bear name one another in their prompts; the analyst does not.
    assert episode.log[0]["unsupported"] == {"analyst": [], "bull": ["12345.67"] * 2, "bear": ["12345.67"] * 2}
    assert (episode.log[0]["figures"], episode.facts["unsupported_figures"], episode.facts["figures"]) == (10, 4, 10)
    assert list(episode.log[0]["unsupported"]) == [*AUDITED]


def test_what_the_tokens_of_the_guard_stand_for_is_kept(tmp_path):
    items = [
        Item("2022-10-05", "news", "Tesla", "Elon Musk of Tesla met Microsoft on October 3, 2022 and in May 2019.")
    ]
    episode = play(sources=written(tmp_path, items))
    names = episode.log[0]["names"]
    sent = json.dumps(prompts(episode)[0])
    assert set(names.values()) >= {"Tesla, Inc.", "Elon Musk", "Microsoft Corporation", "2022-10-03", "2019-05"}
    assert all(token in sent for token in names)
    assert not any(name in sent for name in names.values())
    assert (episode.facts["leaks"], episode.facts["items"]) == (0, 3)
    assert episode.facts["sources_sha256"] == fingerprint(read_sources(tmp_path / "sources.jsonl"))
    assert play(Task(timesteps=1, identity="real")).log[0]["names"] == {}


@pytest.mark.parametrize("cell", ["paper_amzn", "tsla_main"])
def test_egress_takes_what_it_makes_of_the_view_for_no_leak(cell, tmp_path):
    # A share of AMZN cost about 100, as a scaled price does.
    words = ["play", "committee", "--model", SCRIPT, "--cell", cell, "--timesteps", "30", "--json"]
    (tmp_path / "episode.json").write_text(CliRunner().invoke(app, words).stdout)
    done = CliRunner().invoke(app, ["egress", str(tmp_path / "episode.json")])
    assert (done.exit_code, "nothing tells who or when" in done.stdout) == (0, True), done.output


def test_the_hash_covers_every_prompt():
    names = {name for name in vars(pipeline) if name.isupper() and name not in ("WORDS", "SEES", "FINAL")}
    others = {"AGENT_NAMES", "FORMS", "REASONS", "VERDICT"}
    assert {name for name in names if getattr(pipeline, name) not in pipeline.WORDS} == others
    assert module.PROMPTS == (pipeline.WORDS, LAST_WORD, SHAPE, llm.PROMPTS)
    assert play().facts["prompt_sha256"] == PROMPT_SHA256


# ------------------------------------------------------------------------- the same bytes, and no future

TRACE = """
import json, sys
from fintrading_gym.rollout import Player, Task
from fintrading_agents.committee import committee
from fintrading_agents.models import open_model
options = {"debate_rounds": 1, "every": 2, "sources": sys.argv[1], "form": sys.argv[2]}
with Player("committee", committee, "scripted/committee", options).opened() as player:
    episode = player.play(Task("nvda_bull_2023", "risk_averse", timesteps=9))
print(json.dumps([episode.ledger.rows(), episode.log, episode.facts, [repr(d) for d in episode.decisions]]))
"""


@pytest.mark.parametrize("form", ["schema", "prose"])
def test_the_whole_trace_is_the_same_bytes_in_another_process(form, tmp_path):
    text = "Nvidia (NASDAQ: NVDA) closed at $14.31 on January 3, 2023; AMD, Intel and Jensen Huang in May 2019."
    sources = written(
        tmp_path, [Item("2023-01-03", kind, "Chips", text) for kind in KINDS] + [Item(None, "news", "x", "")]
    )
    told = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", TRACE, sources, form],
            capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed},
        )  # fmt: skip
        told.add(done.stdout)
    assert len(told) == 1
    log = json.loads(told.pop())[1]
    assert len(log) == 9
    assert len(json.dumps(log)) > 50_000


def test_what_is_told_at_a_close_and_after_it_differs_by_a_second(tmp_path):
    """In every section, whatever clock the time is of."""
    close = ("2022-10-06T16:00:00-04:00", "2022-10-06T20:00Z", "2022-10-07T05:00:00+09:00", "2022-10-06")
    for kind in KINDS:
        told = []
        for date in (*close, *after_the_close("2022-10-06")):
            path = written(tmp_path, [Item(date, kind, "A plant was opened", "")])
            days = [day[0][1]["content"] for day in prompts(play(Task(timesteps=2), sources=path))]
            told.append(["A plant was opened" in text for text in days])
        assert told == [[True, True]] * 4 + [[False, True]] * 3


@pytest.mark.parametrize("identity", ["real", "masked", "coarse"])
def test_no_prompt_changes_when_later_prices_or_items_change(identity, tmp_path):
    closes = np.array([100 + 7 * ((k * 37) % 11) for k in range(80)], float)
    dates = window_of(closes).load().date
    for day in (0, 3):
        t = 40 + day
        later = closes.copy()
        later[t + 1 :] *= 3
        same = [Item(date, kind, "t", f"on {date}") for date in dates[: t + 1] for kind in KINDS]
        more = [
            Item(date, kind, "boom", "it triples")
            for kind in KINDS
            for date in (dates[t + 1], *after_the_close(dates[t]), None)
        ]
        logs = []
        for prices, items in ((closes, same), (later, same), (later, [*more, *same])):
            task = Task(window_of(prices, skip=40), timesteps=day + 2, identity=identity)
            options = {"debate_rounds": 1, "every": 2, "sources": written(tmp_path, items)}
            logs.append([json.dumps(calls).encode() for calls in prompts(play(task, **options))])
        assert logs[0][: day + 1] == logs[1][: day + 1] == logs[2][: day + 1]
        assert logs[0][day + 1] != logs[1][day + 1]


# ---------------------------------------------------------------------------------------- options and faults


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"debate_rounds": -1}, "debate_rounds=-1 is not a whole number >= 0"),
        ({"every": 0}, "every=0 is not a whole number >= 1"),
        (
            {"form": "schma"},
            r"No form of the last word 'schma'; there are \['schema', 'prose'\]. Did you mean 'schema'",
        ),
        ({"max_nudges": -1}, "max_nudges=-1"),
        ({"form": "prose", "max_nudges": 1}, "max_nudges ask for JSON"),
        ({"sources": "none.jsonl"}, r"none\.jsonl: cannot be read"),
    ],
)
def test_a_wrong_option_is_told_before_the_run(options, told):
    with pytest.raises((ValueError, UnknownName, DataError), match=told):
        play(**options)
    with pytest.raises(ValueError, match=told):
        calls_per_episode(BRIEF, options)


def test_a_committee_without_a_model_is_told():
    with pytest.raises(ValueError, match="committee needs a model: committee:openai/NAME"):
        find_player("committee").play(BRIEF)


def test_sources_do_not_go_into_another_world(tmp_path):
    episode = play(replace(BRIEF, world="mirror"), sources=written(tmp_path, [Item("2022-10-05", "news", "x", "")]))
    assert episode.failure.startswith("before day 1: ValueError: sources tell what happened, and world='mirror'")


def test_an_item_that_cannot_be_masked_is_told_before_the_first_call(tmp_path):
    items = [Item("2031-01-01", "news", "Company-001 is a token", "")]
    episode = play(sources=written(tmp_path, items))
    assert episode.failure.startswith("before day 1: DataError: The item 'Company-001 is a token' cannot be masked: ")
    assert play(replace(BRIEF, identity="real"), sources=written(tmp_path, items)).failure is None


def test_another_tickers_items_are_not_told(tmp_path):
    items = [Item("2022-10-05", "news", "ours", "", "TSLA"), Item("2022-10-05", "news", "theirs", "", "NVDA")]
    episode = play(sources=written(tmp_path, items))
    assert "ours" in json.dumps(prompts(episode))
    assert "theirs" not in json.dumps(prompts(episode))


def test_it_is_told_when_it_is_shown_another_day_or_another_view():
    agent = committee(BRIEF, Scripted(lambda messages: '{"action": "buy"}'))
    env = BRIEF.make(observation="text", identity="masked")
    view, _ = env.reset()
    for shown in ("a day in words", env.step(2)[0], BRIEF.make(observation="text").reset()[0]):
        with pytest.raises(ValueError, match=r"this is not day 1 of TSLA:.* with detail='full', identity='masked'"):
            agent(shown)
    assert agent.log == []
    assert agent({"text": view}).action == "buy"


def test_nudges_are_for_the_last_stage_and_the_plain_days():
    replies = iter(["a", "b", "c", "d", "I would buy.", '{"action": "buy"}', "hm", '{"action": "sell"}'])
    episode = given(lambda messages: next(replies), Task(timesteps=2), every=2, max_nudges=1)
    assert [decision.action for decision in episode.decisions] == ["buy", "sell"]
    assert (episode.facts["format_nudges"], episode.facts["self_heals"]) == (2, 2)


def test_flags_of_the_committee_are_its_own():
    done = CliRunner().invoke(app, ["play", "llm:scripted/buy", "--every", "2"])
    assert "--every is for committee; there are: llm:scripted/buy" in str(done.exception)
    traits = find_player(f"committee:{SCRIPT}").traits
    assert {"debate_rounds", "every", "form", "sources", "max_nudges", "attempts", "pauses"} <= set(traits.options)
    assert traits.concurrent
    assert not find_player("committee:local/smollm2").traits.concurrent


# --------------------------------------------------------------------------------------------- real models

needs_client = pytest.mark.skipif(not (find_spec("openai") and find_spec("tenacity")), reason="extra llm")


def record(rows):
    """What a rerun must repeat byte for byte: all but what was paid for this time."""
    return json.dumps([{k: v for k, v in row.items() if k not in ("cache_hits", "paid_usd")} for row in rows])


def rows_of(player, tasks):
    rows = {place: row for place, row, _ in board.run(board.plan([player], tasks))}
    return [rows[place] for place in sorted(rows)]


@needs_client
def test_a_rerun_pays_nothing_and_a_replay_needs_no_endpoint(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setattr(client_module, "FIRST_PAUSE", 0.001)
    script = find_player(f"committee:{SCRIPT}")

    def answer(body):
        with script.opened() as opened:
            return says(opened.argument._script(body["messages"]))

    options = {"cache_file": str(tmp_path / "replies.sqlite"), "structured": "none", "debate_rounds": 1}
    tasks = [Task(cell, timesteps=2) for cell in EVALUATION]
    rows = {}
    with Stub(answer) as stub:
        for run in ("first", "again"):
            player = Player("committee:openai/stub", committee, "openai/stub", {"base_url": stub.url, **options})
            rows[run] = rows_of(player, tasks)
        assert len(stub.requests) == 1 + 4 * 2 * 7
        url = stub.url
    player = Player("committee:openai/stub", committee, "openai/stub", {"base_url": url, "cache": "replay", **options})
    rows["replay"] = rows_of(player, tasks)
    assert record(rows["first"]) == record(rows["again"]) == record(rows["replay"])
    assert [row["cache_hits"] for row in rows["again"]] == [14] * 4
    assert [row["failure"] for row in rows["first"]] == [None] * 4


@pytest.mark.slow  # it needs the small model
def test_the_small_model_takes_one_decision():
    pytest.importorskip("xllamacpp")
    from fintrading_agents.models.local import present

    if not present("smollm2"):
        pytest.skip("fintrading models add smollm2")
    episode = play(Task(timesteps=1), "local/smollm2", cache="off")
    assert episode.failure is None
    (decision,) = episode.decisions
    assert decision == Decision(decision.action, confidence=decision.confidence, target_price=decision.target_price)
    assert None not in (decision.action, decision.confidence, decision.target_price)
    assert [call["stage"] for call in episode.log[0]["calls"]] == ["analyst", "bull", "bear", "judge", "risk"]
    assert all(call["usage"]["input"] + 64 < 2048 for call in episode.log[0]["calls"])
    assert (episode.facts["leaks"], episode.facts["detail"]) == (0, "brief")
