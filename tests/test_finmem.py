"""FinMem's agent: what its model is shown and asked, what it learns, and that nothing of it comes from the future."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from conftest import window_of
from stub_endpoint import Stub, embeds, says

from fintrading_agents.finmem import OPTIONS, Equipped, calls_per_episode, finmem
from fintrading_agents.memory import file, prompts
from fintrading_agents.memory.constants import CONSTANTS
from fintrading_agents.memory.embeddings import open_embedding
from fintrading_agents.models import ModelFailure, Scripted, weights
from fintrading_agents.models import client as client_module
from fintrading_agents.models.scripted import SCRIPTS
from fintrading_agents.sources import KINDS
from fintrading_gym import cli
from fintrading_gym import leaderboard as board
from fintrading_gym.flags import AGENT_FLAGS
from fintrading_gym.masking import IDENTITIES
from fintrading_gym.ranking import rank
from fintrading_gym.rollout import Player, Task, find_player
from fintrading_gym.windows import CELLS, EVALUATION

DIARY = SCRIPTS["diary"]
SHORT = Task(timesteps=6)
QUICK = {"memory_warmup": 60, "memory_warmup_calls": 3}  # days whose events are found out, which takes time


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Where memories are kept."""
    monkeypatch.setenv("FINTRADING_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache/memory.sqlite"


def played(task=SHORT, script=DIARY, **options):
    """An episode, which must have been played to its end."""
    episode = Player("finmem:given", finmem, Scripted(script), {**QUICK, **options}).play(task)
    assert episode.failure is None
    return episode


def calls(episode, stage):
    """Of each call of a stage, what the user said in it."""
    return [call["messages"][-1]["content"] for day in episode.log for call in day["calls"] if call["stage"] == stage]


def sources(folder, *items):
    path = folder / "news.jsonl"
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
    return str(path)


# ---------------------------------------------------------------------------------------------- it plays


@pytest.mark.parametrize("cell", CELLS)
def test_it_plays_every_cell_with_the_guard_on(cell):
    task = Task(cell, timesteps=4)
    episode = played(task)
    assert episode.identity == "masked"
    assert episode.facts["leaks"] == 0
    assert all(episode.ledger.valid)
    assert episode.ledger == find_player("momentum").play(task).ledger  # the script follows the view's number
    assert all(day["memory"] for day in episode.log)


@pytest.mark.parametrize("persona", ["risk_seeking", "risk_averse"])
@pytest.mark.parametrize("cell", EVALUATION)
def test_it_plays_every_task_of_the_evaluation(cell, persona):
    episode = played(Task(cell, persona, timesteps=3))
    assert prompts.llm.PERSONAS[persona] in episode.log[0]["calls"][-1]["messages"][0]["content"]


def test_it_stands_on_the_board_with_cost_tokens_and_coverage():
    player = find_player("finmem:scripted/diary")
    tasks = [Task("tsla_main", seed=seed, timesteps=3) for seed in (0, 1)]
    rows = [row for _, row, _ in board.run(board.plan([player], tasks))]
    (standing,) = rank(rows)
    assert (standing.agent, standing.rank, standing.episodes) == ("finmem:scripted/diary", 1, 2)
    assert standing.means["coverage"] == 1
    assert {"tokens_in", "cost_usd", "calls", "memory_top_k", "prompt_sha256"} <= rows[0].keys()
    assert json.loads(json.dumps(rows)) == rows
    changed = replace(player, options={"memory_top_k": 3, "memory_file": "own.sqlite"})
    assert changed.label == "finmem:scripted/diary [memory_top_k=3]"
    assert changed.calls(tasks[0]) == 13


def test_a_day_shows_the_rules_then_memories_then_the_view():
    episode = played()
    system, user = episode.log[2]["calls"][-1]["messages"]
    assert system["content"] == prompts.system_prompt(SHORT, "full", "cumulative")
    assert user["content"].startswith("You remember:\n1. [shallow, ")
    env = SHORT.make(observation="text", identity="masked")
    env.reset()
    for action in episode.ledger.action[:2]:
        view, *_ = env.step(action)
    assert user["content"].endswith(view)


def test_what_it_recalled_is_in_the_log_and_all_of_it_is_json():
    episode = played()
    for day in episode.log:
        own = {name: value for name, value in day.items() if name != "calls"}
        assert json.loads(json.dumps(day))["calls"]
        assert json.loads(json.dumps(own)) == own
        lines = re.findall(r"^\d+\. \[(\w+), .*?\] (.*)$", day["calls"][-1]["messages"][-1]["content"], re.M)
        assert lines == [(memory["layer"], memory["text"]) for memory in day["memory"]]
        assert day["cited"] == [day["memory"][0]["id"]]
        assert day["reason"].startswith("The momentum of the last days says ")
    by_layer = [memory["layer"] for memory in episode.log[-1]["memory"]]
    assert all(by_layer.count(layer) <= 5 for layer in by_layer)
    assert by_layer == sorted(by_layer, key=list(CONSTANTS["paper"].layers).index)


def test_a_small_model_is_asked_briefly():
    player = Player("finmem", finmem, Scripted(DIARY, "local/smollm2"), QUICK)
    episode = player.play(SHORT)
    told = episode.log[0]["calls"][-1]["messages"]
    assert "open" not in told[1]["content"].splitlines()
    assert len(told[0]["content"] + told[1]["content"]) < 1100
    assert (episode.facts["detail"], episode.facts["memory_top_k"]) == ("brief", 1)
    assert [m["layer"] for m in episode.log[0]["memory"]] == ["shallow", "intermediate", "deep"]
    asked = replace(player, options={**QUICK, "memory_top_k": 3}).play(SHORT)
    assert len(asked.log[0]["memory"]) > 3


# ---------------------------------------------------------------------------------- before the window begins


def test_the_warm_up_explains_days_before_the_window_with_the_next_days_move():
    episode = played(memory_warmup_calls=4)
    told = calls(episode, "warm-up")
    close = CELLS["tsla_main"].load().close
    first, _ = CELLS["tsla_main"].span()
    rows = [first - 46, first - 31, first - 17, first - 2]  # spread over 60 days, the last before the last
    for row, prompt in zip(rows, told, strict=True):
        change = close[row + 1] / close[row] - 1
        sign = "positive" if change > 0 else "negative"
        assert prompt.endswith(f"this day's: {sign} ({100 * change:+.2f} %)\n")
        assert f"3-day momentum: {100 * (close[row] / close[row - 3] - 1):+.2f} %\n" in prompt
    assert episode.log[0]["calls"][:4] == [c for c in episode.log[0]["calls"] if c["stage"] == "warm-up"]
    assert all(call["stage"] != "warm-up" for day in episode.log[1:] for call in day["calls"])


def test_what_was_learned_is_known_from_the_next_day_on_and_what_was_cited_gains(cache):
    played(Task(timesteps=1), memory_warmup_calls=1)
    kept = list(file.remembered(cache, day=6))  # day 7 is the first of the window
    (learned,) = (memory for memory in kept if memory["kind"] == "reflection")
    assert learned["text"].startswith("the next day it fell (-3.46 %): The momentum of the last days says sell.")
    assert (learned["known"], learned["layer"]) == (6, "deep")
    (cited,) = (memory for memory in kept if memory["merits"])
    assert cited["based"] == 6
    faded = 0.9 ** (6 - cited["known"])
    assert [cited["base"] - 5] == [
        pytest.approx(value * faded) for value in (40, 60, 80) if abs(value * faded + 5 - cited["base"]) < 1
    ]


def test_the_warm_up_is_the_same_for_every_persona_and_every_rule_of_the_game():
    one = played(Task(timesteps=2))
    other = played(Task(timesteps=5, persona="risk_averse", hold="flat", fill="next_open", cost_bps=9.0))
    assert [c["messages"] for c in one.log[0]["calls"][:3]] == [c["messages"] for c in other.log[0]["calls"][:3]]


def test_where_the_table_begins_with_the_window_there_is_nothing_to_warm_up_on():
    closes = 100 + np.arange(8.0)
    for skip, lived in ((0, 0), (1, 1), (2, 2)):
        episode = played(Task(window_of(closes, skip=skip), timesteps=3))
        assert episode.facts["memory_days"] == lived
        assert len(calls(episode, "warm-up")) == episode.facts["memory_warmup_calls"] == max(0, lived - 1)
    alone = played(Task(window_of(np.full(9, 100.0)), timesteps=3))
    assert all(text.startswith(prompts.NOTHING) for text in calls(alone, "decision"))


# -------------------------------------------------------------------------------------- no look at the future


def walk(seed, days=130):
    return 100 * np.exp(np.cumsum(0.03 * np.random.default_rng(seed).standard_normal(days)))


def trace(episode, day):
    return json.dumps(episode.log[:day])


def kept_until(cache, day):
    """All that the file says of the days until this one, whichever episode said it."""
    with closing(sqlite3.connect(cache)) as db:
        memories = db.execute("SELECT id, known, kind, text, vector FROM memories WHERE known <= ?", (day,)).fetchall()
        states = db.execute(
            "SELECT id, day, layer, since, base, based, merits FROM states WHERE day <= ?", (day,)
        ).fetchall()
    return sorted(memories), sorted(states, key=str)


@pytest.mark.parametrize(
    ("identity", "options"),
    [
        ("masked", {}),
        ("masked", {"memory_reflect": 2, "persona_rule": "recent"}),
        ("coarse", {"memory_reflect": 0, "persona_rule": "momentum"}),
        ("real", {"memory_constants": "code"}),
    ],
)
def test_no_memory_and_no_prompt_depends_on_a_later_price(cache, identity, options):
    close = walk(3)
    for day in (0, 6):
        found = []
        for factor in (1.0, 2.5):
            later = np.where(np.arange(130) > 100 + day, factor, 1.0)
            cache.unlink(missing_ok=True)
            task = Task(window_of(close * later, skip=100), timesteps=12, identity=identity)
            found.append((played(task, **options), kept_until(cache, 7 + day)))
        assert trace(found[0][0], day + 1) == trace(found[1][0], day + 1)
        assert trace(found[0][0], day + 2) != trace(found[1][0], day + 2)
        assert found[0][1] == found[1][1]
        assert len(found[0][1][0]) > 10


def test_no_memory_and_no_prompt_depends_on_a_later_item_or_on_one_without_a_date(cache, tmp_path):
    early = {"date": "2022-10-05", "kind": "10-k", "title": "The year", "text": "It was a good one."}
    today = {"date": "2022-10-07", "kind": "news", "title": "A plant", "text": "One was opened."}
    later = [
        {"date": "2022-10-10", "kind": "news", "title": "A strike", "text": "It began on March 14, 2021."},
        *[
            {"date": date, "kind": kind, "title": "After the close", "text": "x"}
            for date in ("2022-10-07T16:00:01-04:00", "2022-10-07T23:00Z", "2022-10-08T05:00:01+09:00")
            for kind in KINDS
        ],
        {"kind": "news", "title": "Undated", "text": "x"},
    ]
    found = []
    for more in ([], later, later[:1]):
        cache.unlink(missing_ok=True)
        path = sources(tmp_path, early, *more, today)
        found.append((played(sources=path), kept_until(cache, 8)))  # day 8 is 2022-10-07
    assert len({trace(episode, 2) for episode, _ in found}) == 1
    assert len({trace(episode, 3) for episode, _ in found}) == 3
    assert found[0][1] == found[1][1] == found[2][1]
    assert [episode.facts["items_used"] for episode, _ in found] == [2, 3 + 3 * len(KINDS), 3]
    assert [episode.facts["items_excluded"] for episode, _ in found] == [0, 1, 0]
    told = calls(found[1][0], "decision")
    assert "news: A plant. One was opened" in told[1]
    assert "10-k: The year. It was a good one" in told[0]
    assert not any("Undated" in text for text in told)


def test_the_warm_up_does_not_know_the_windows_first_close():
    close = walk(4)
    other = np.where(np.arange(130) >= 100, 3.0, 1.0) * close
    one, two = (played(Task(window_of(closes, skip=100), timesteps=2)) for closes in (close, other))
    assert calls(one, "warm-up") == calls(two, "warm-up")
    assert calls(one, "decision")[0] != calls(two, "decision")[0]


# ------------------------------------------------------------------------------------------ the guard is on

TELLING = (
    {"date": "2022-03-14", "kind": "news", "title": "Tesla hires", "text": "Elon Musk said so on March 14, 2022."},
    {"date": "2022-10-06", "kind": "10-q", "title": "TSLA 10-Q", "text": "Tesla's price was $242.40; Apple fell."},
    {"date": "2022-10-11", "kind": "news", "title": "Model Y", "text": "Sold in 2022 by Tesla Inc., not in Q3 2021."},
)
NAMES = re.compile(r"tesla|tsla|musk|model y|apple|2022|2021|march|242\.40", re.IGNORECASE)


def careless(messages):
    """A model that knows whom it trades, and says so."""
    told = json.loads(DIARY(messages))
    return json.dumps({**told, "reason": "Tesla fell in October 2022, says Elon Musk."})


def test_the_file_holds_masked_text_alone(cache, tmp_path):
    episode = played(script=careless, sources=sources(tmp_path, *TELLING), memory_reflect=2)
    assert episode.facts["items_used"] == 3
    held = cache.read_bytes().decode("latin-1")
    assert "Company-001" in held
    assert "Person-" in held
    assert NAMES.findall(held) == []
    prompted = json.dumps([call["messages"] for day in episode.log for call in day["calls"]])
    assert NAMES.findall(prompted) == []
    noted = [
        [day["stance"], day["reason"], day.get("reflection"), *(m["text"] for m in day["memory"])]
        for day in episode.log
    ]
    assert NAMES.findall(json.dumps(noted)) == []
    assert episode.facts["leaks"] > 0  # the model's own words, which are told and never sent again


def test_a_quoted_price_is_in_the_scale_of_the_view(tmp_path):
    told = calls(played(sources=sources(tmp_path, TELLING[1])), "decision")[0]
    close = CELLS["tsla_main"].load().close
    first, _ = CELLS["tsla_main"].span()
    assert f"Company-001's price was ${242.40 * 100 / close[first - 6]:.2f}" in told


def test_a_price_that_the_model_quotes_is_on_the_views_scale_and_stays_so(tmp_path):
    def script(messages):
        return json.dumps({**json.loads(DIARY(messages)), "reason": "Nobody sells below $90.00 here."})

    trained = str(tmp_path / "trained.sqlite")
    whole = played(script=script, memory_reflect=0, memory_file=trained)
    again = played(script=script, memory_reflect=0, memory_start=trained)
    for episode in (whole, again):
        quoted = [re.findall(r"\$[\d.]+", text) for text in calls(episode, "decision")]
        assert {price for prices in quoted for price in prices} == {"$90.00"}
        assert all(quoted)


@pytest.mark.parametrize("identity", IDENTITIES)
def test_memories_hide_as_much_as_the_view_does(identity, tmp_path, cache):
    told = calls(played(Task(timesteps=2, identity=identity), sources=sources(tmp_path, TELLING[1])), "decision")[0]
    assert ("TSLA" in told) == (identity == "real")
    assert ("Company-001" in told) == (identity != "real")
    assert ("$242.40" in told) == (identity in ("real", "names", "names+dates"))


def test_items_of_another_company_are_left_out(tmp_path):
    mine = {**TELLING[0], "ticker": "TSLA"}
    assert played(sources=sources(tmp_path, mine, {**mine, "ticker": "AAPL"})).facts["items_used"] == 1


def test_what_happened_is_no_news_of_a_world_in_which_it_did_not(tmp_path):
    path = sources(tmp_path, TELLING[0])
    player = Player("finmem:given", finmem, Scripted(DIARY), {"sources": path})
    told = player.play(Task(world="mirror", timesteps=3)).failure
    assert told.startswith("before day 1: ValueError: sources tell of what happened; in the world 'mirror' it did not")
    assert played(Task(world="mirror", timesteps=3)).facts["leaks"] == 0


# ------------------------------------------------------------------------------------- what it learns as it plays


def test_what_was_cited_before_a_profitable_decision_gains_5_and_before_another_nothing(cache):
    episode = played(memory_warmup_calls=0)
    gains = 0
    for day, (before, entry) in enumerate(zip(episode.log, episode.log[1:], strict=False)):
        earned = episode.ledger.log_return[day]
        assert entry["feedback"]["earned"] == pytest.approx(earned, abs=1e-6)
        rewarded = entry["feedback"]["rewarded"]
        assert rewarded == (before["cited"] if earned > 0 else [])
        if rewarded:
            gains += 1
            then, now = ({m["id"]: m for m in file.remembered(cache, day=7 + day + k)}[rewarded[0]] for k in (0, 1))
            decay = CONSTANTS["paper"].layers[then["layer"]].decay
            assert now["base"] == pytest.approx(then["base"] * decay ** (8 + day - then["based"]) + 5)
            assert now["merits"] == then["merits"] + 1
    assert 0 < gains < len(episode.log) - 1
    assert episode.facts["rewarded"] == gains


def test_a_hold_is_judged_by_the_position_it_leaves():
    answers = iter(["buy", "hold", "hold", "hold"])

    def script(messages):
        return json.dumps({"action": next(answers), "reason": "so", "cited": [1]})

    for hold, alike in (("keep", True), ("flat", False)):
        answers = iter(["buy", "hold", "hold", "hold"])
        episode = played(Task(timesteps=4, hold=hold), script, memory_warmup_calls=0, memory_reflect=0)
        assert [d["feedback"]["earned"] != 0 for d in episode.log[1:]] == [True, alike, alike]


def test_it_looks_back_every_few_days_and_remembers_what_it_learned(cache):
    episode = played(Task(timesteps=7), memory_reflect=3)
    assert [["reflection" in day for day in episode.log]] == [[False] * 3 + [True, False, False, True]]
    told = calls(episode, "reflection")
    assert len(told) == 2
    lines = told[1].splitlines()
    assert [line.partition(":")[0] for line in lines] == ["3 days ago", "2 days ago", "1 day ago"]
    words = {2: "buy", 1: "hold", 0: "sell"}
    for line, day in zip(lines, (3, 4, 5), strict=True):
        market, position = episode.ledger.market[day], episode.ledger.position[day]
        assert f": {words[episode.ledger.action[day]]}, because: The momentum of" in line
        assert f"moved by {prompts.percent(market)}, you earned {prompts.percent(position * market)}." in line
    for day in (3, 6):
        noted = episode.log[day]["reflection"]
        kept = {m["id"]: m for m in file.remembered(cache)}[noted["id"]]
        assert (kept["text"], kept["layer"], kept["known"]) == (noted["text"], "deep", 7 + day)


def test_without_looking_back_its_reasons_are_remembered_and_no_call_is_made_for_it(cache):
    episode = played(memory_reflect=0)
    assert calls(episode, "reflection") == []
    kept = {m["id"]: m for m in file.remembered(cache)}
    for k, day in enumerate(episode.log):
        memory = kept[day["reflection"]["id"]]
        assert memory["text"].endswith(day["reason"])
        assert memory["known"] == 7 + k
    assert any(m["text"].endswith(episode.log[0]["reason"]) for m in episode.log[1]["memory"])
    assert len([m for m in kept.values() if m["kind"] == "reflection"]) == 3 + 6  # of the warm-up, and one a day


def test_an_answer_without_a_reason_teaches_nothing_and_is_counted():
    episode = played(script=SCRIPTS["momentum"])
    assert all(day["cited"] == [] for day in episode.log)
    assert episode.facts["unread"] == 3 + 1  # of the warm-up, and one look back
    assert episode.log[5]["reflection"] == {"id": None, "text": ""}


def test_a_nudge_heals_a_day_and_its_reason_counts():
    answers = iter(["I would buy."])

    def script(messages):
        return next(answers, None) or DIARY(messages)

    episode = played(script=script, memory_warmup_calls=0)
    assert (episode.facts["format_nudges"], episode.facts["self_heals"]) == (1, 1)
    assert episode.log[0]["cited"]


def test_a_day_without_a_decision_is_none_and_holds():
    episode = played(script=lambda messages: "no", max_nudges=0)
    assert {decision.action for decision in episode.decisions} == {None}
    assert not any(episode.ledger.valid)
    assert {day["reason"] for day in episode.log} == {""}
    assert "5 days ago: no decision." in calls(episode, "reflection")[0]


# ---------------------------------------------------------------------------------- persona, and the ablations


def stances(**options):
    """Each day's stance, and the days' numbers that a rule may go by."""
    episode = played(Task("tsla_main", timesteps=12), **options)
    told = calls(episode, "decision")
    numbers = [
        [float(re.search(rf"{name}: ([+-]\S+) %", text)[1]) for text in told]
        for name in ("your return so far", "3-day momentum")
    ]
    for text, day in zip(told, episode.log, strict=True):
        assert text.count("your profile: ") == 1
        assert text.endswith(f"your profile: {day['stance']}\n")
    return ["risk-averse" in day["stance"] for day in episode.log], *numbers


def test_the_adaptive_persona_switches_in_its_three_published_readings():
    averse, returns, _ = stances()
    assert averse == [number < 0 for number in returns]
    averse, _, momentum = stances(persona_rule="momentum")
    assert averse == [number < 0 for number in momentum]
    averse, returns, _ = stances(persona_rule="recent")
    assert averse == [returns[k] - returns[max(0, k - 3)] < 0 for k in range(12)]
    assert len({tuple(stances(persona_rule=rule)[0]) for rule in prompts.RULES}) == 3  # they do differ here


def test_a_fixed_persona_has_no_rule():
    one, other = (
        played(Task(persona="risk_averse", timesteps=3), persona_rule=rule) for rule in ("cumulative", "momentum")
    )
    assert one.log == other.log


def test_without_a_memory_only_the_memory_is_missing():
    episode = played(memory_off=True)
    assert episode.facts["calls"] == 6
    env = SHORT.make(observation="text", identity="masked")
    assert calls(episode, "decision")[0] == env.reset()[0]
    system = episode.log[0]["calls"][0]["messages"][0]["content"]
    assert system == played().log[0]["calls"][-1]["messages"][0]["content"]
    assert not {"memory", "added", "feedback"} & episode.log[3].keys()
    assert episode.facts["memory_off"] is True


@pytest.mark.parametrize("off", CONSTANTS["paper"].layers)
def test_a_layer_can_be_left_out(off):
    on = [layer for layer in CONSTANTS["paper"].layers if layer != off]
    episode = played(memory_layers=",".join(on))
    assert {memory["layer"] for day in episode.log for memory in day["memory"]} == set(on)
    assert f"memories_{off}" not in episode.facts
    assert episode.facts["memory_layers"] == ",".join(on)
    if off == "deep":  # where reflections would go
        assert episode.log[5]["reflection"]["id"] is None


def test_the_released_constants_show_3_and_keep_reflections_apart():
    episode = played(memory_constants="code")
    assert episode.facts["memory_top_k"] == 3
    assert "memories_reflection" in episode.facts
    layers = [memory["layer"] for memory in episode.log[-1]["memory"]]
    assert set(layers) <= set(CONSTANTS["code"].layers)
    assert episode.log != played().log


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"memory_constants": "papr"}, "Did you mean 'paper'"),
        ({"memory_layers": "shallow,dep"}, "No layer 'dep'.*Did you mean 'deep'"),
        ({"memory_layers": "reflection"}, "No layer 'reflection'"),  # of the other constants
        ({"memory_layers": ","}, "names none; memory_off leaves all of them out"),
        ({"memory_top_k": 0}, "memory_top_k=0 is not a whole number >= 1"),
        ({"memory_warmup": -1}, "memory_warmup=-1"),
        ({"memory_reflect": 1.5}, "memory_reflect=1.5"),
        ({"memory_embedding": "hashng"}, "Did you mean 'hashing'"),
        ({"persona_rule": "recnt"}, "Did you mean 'recent'"),
        ({"max_nudges": -1}, "max_nudges=-1"),
        ({"sources": "absent.jsonl"}, "absent.jsonl: cannot be read"),
        ({"memory_start": "absent.sqlite"}, "There is no file absent.sqlite of memories"),
    ],
)
def test_a_wrong_option_is_told_before_the_run(options, said):
    with pytest.raises(ValueError, match=said):
        Player("finmem:scripted/diary", finmem, "scripted/diary", options).play(SHORT)


def test_every_option_has_a_flag_and_a_default():
    assert set(OPTIONS) - {"max_nudges"} == {name for name, (_, whose, _) in AGENT_FLAGS.items() if "finmem" in whose}
    traits = find_player("finmem:openai/x").traits
    assert {*OPTIONS, "base_url", "temperature"} <= set(traits.options)
    assert "memory_file" in traits.indifferent
    assert "memory_top_k" not in traits.indifferent


@pytest.mark.parametrize(
    ("options", "task"),
    [
        ({}, Task(timesteps=4)),
        ({}, Task(timesteps=11)),
        ({"memory_reflect": 2}, Task(timesteps=7)),
        ({"memory_reflect": 0, "memory_warmup_calls": 0}, Task(timesteps=3)),
        ({"memory_warmup": 3, "memory_warmup_calls": 9}, Task(timesteps=3)),
        ({"memory_off": True}, Task(timesteps=3)),
        ({"memory_warmup_calls": 2}, Task(window_of(np.linspace(100, 120, 9), skip=3), timesteps=None)),
    ],
)
def test_the_number_of_calls_is_known_beforehand(options, task):
    given = {**QUICK, **options}
    assert finmem.calls_per_episode(task, given) == played(task, **options).facts["calls"]


def test_by_default_a_board_of_50_days_takes_69_calls_an_episode():
    assert calls_per_episode(Task(), {}) == 10 + 50 + 9


@pytest.mark.parametrize(
    ("model", "options", "uses_seed", "concurrent"),
    [
        ("openai/x", {}, True, True),
        ("local/smollm2", {}, True, False),
        ("scripted/diary", {}, True, True),
        ("scripted/diary", {"memory_off": True}, False, True),
    ],
)
def test_seeds_are_played_because_importance_is_drawn(model, options, uses_seed, concurrent):
    traits = Player("finmem", finmem, model, options).traits
    assert (traits.uses_seed, traits.concurrent, traits.uses_persona) == (uses_seed, concurrent, True)


def test_another_seed_gives_other_importance_and_the_same_seed_the_same():
    one, again, other = (played(replace(SHORT, seed=seed)) for seed in (0, 0, 1))
    assert one.log == again.log
    assert [m["importance"] for m in one.log[0]["memory"]] != [m["importance"] for m in other.log[0]["memory"]]


# --------------------------------------------------------------------------------------- what is kept of it


def test_the_same_episode_is_the_same_bytes_in_another_process(tmp_path):
    news = sources(tmp_path, *TELLING)
    code = (
        "import dataclasses, json; from fintrading_gym.rollout import Task, find_player;"
        f"player = dataclasses.replace(find_player('finmem:scripted/diary'), options={{'sources': {news!r}}});"
        "e = player.play(Task('tsla_main', timesteps=12)); print(json.dumps([e.ledger.rows(), e.log, e.facts]))"
    )
    told, held = set(), set()
    for seed in ("1", "2"):
        cache = tmp_path / f"cache {seed}"
        env = {**os.environ, "PYTHONHASHSEED": seed, "FINTRADING_CACHE": str(cache)}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
        told.add(done.stdout)
        held.add((cache / "memory.sqlite").read_bytes())
    assert len(told) == len(held) == 1
    assert "Company-001" in told.pop()


def test_a_run_may_begin_with_the_memory_of_another(tmp_path, cache):
    trained = str(tmp_path / "trained.sqlite")
    news = sources(tmp_path, *TELLING)
    whole = played(sources=news, memory_file=trained)
    again = played(sources=news, memory_start=trained)
    assert [day["memory"] for day in again.log] == [day["memory"] for day in whole.log]
    assert [day["calls"][-1] for day in again.log] == [day["calls"][-1] for day in whole.log]
    assert again.ledger == whole.ledger
    assert calls(again, "warm-up") == []
    assert again.facts["calls"] == whole.facts["calls"] - 3 == calls_per_episode(SHORT, {"memory_start": trained})
    kept, given = (list(file.remembered(path)) for path in (cache, Path(trained)))
    assert len(kept) == len(given)
    assert kept[0]["told"] == given[0]["told"]  # how it was warmed up
    another = Player("finmem:another", finmem, Scripted(SCRIPTS["buy"], "scripted/buy"), {"sources": news})
    bought = replace(another, options={**another.options, "memory_start": trained}).play(SHORT)
    assert bought.failure is None  # whose model explained, and whose decides, may be two
    assert bought.log[0]["memory"] == whole.log[0]["memory"]
    without = replace(another, options={"memory_start": trained}).play(SHORT)
    assert "none that was warmed up for the same stock, first day, seed, identity, items" in without.failure


def test_a_memory_that_has_seen_later_days_tells_nothing_of_them(tmp_path):
    """Neither of what was learned in the window, nor of what its table and its file of items went on with."""
    close, more = walk(5), {"date": "2022-06-20", "kind": "news", "title": "Later", "text": "It doubled."}
    other = np.where(np.arange(130) > 100, 2.0, 1.0) * close
    told = []
    for number, (closes, days, news) in enumerate(((close, 1, []), (close, 25, []), (other, 25, [more]))):
        trained, path = str(tmp_path / f"{number}.sqlite"), sources(tmp_path, *news)
        played(Task(window_of(closes, skip=100), timesteps=days), memory_file=trained, sources=path)
        task = Task(window_of(close, skip=100), timesteps=9)
        told.append(played(task, memory_start=trained, sources=sources(tmp_path)))
    assert [episode.failure for episode in told] == [None] * 3
    assert len({json.dumps(episode.log) for episode in told}) == 1
    # An episode that begins earlier gets none of it, however much of its warm-up was before that.
    with closing(sqlite3.connect(trained)) as db:
        known = [day for (day,) in db.execute("SELECT known FROM memories")]
    assert min(known) < -5 < 20 < max(known)
    for skip in (90, 99, 101):
        player = Player("finmem:given", finmem, Scripted(DIARY), {**QUICK, "memory_start": trained})
        failure = player.play(Task(window_of(close, skip=skip), timesteps=2)).failure
        assert "none that was warmed up for the same stock, first day" in failure


@pytest.mark.parametrize(
    "change",
    [{"cell": "tsla_ablation"}, {"cell": "nvda_bull_2023"}, {"identity": "real"}, {"seed": 1}, {"lookback": 6},
     {"world": "mirror"}],
)  # fmt: skip
def test_a_memory_of_another_place_is_refused(tmp_path, change):
    trained = str(tmp_path / "trained.sqlite")
    played(memory_file=trained)
    player = Player("finmem:given", finmem, Scripted(DIARY), {**QUICK, "memory_start": trained})
    told = player.play(replace(SHORT, **change)).failure
    assert "holds 1 memories, and none that was warmed up for the same stock, first day" in told


@pytest.mark.parametrize("option", [{"memory_constants": "code"}, {"memory_layers": "deep"}])
def test_a_memory_of_another_kind_is_refused(tmp_path, option):
    trained = str(tmp_path / "trained.sqlite")
    played(memory_file=trained)
    player = Player("finmem:given", finmem, Scripted(DIARY), {**QUICK, "memory_start": trained, **option})
    assert "none that was warmed up" in player.play(SHORT).failure


def test_memories_of_several_episodes_lie_in_one_file(cache):
    for persona in ("adaptive", "risk_averse"):
        played(Task(persona=persona, timesteps=2))
    played(Task(persona="adaptive", timesteps=2))
    assert len({memory["episode"] for memory in file.remembered(cache)}) == 2


# ----------------------------------------------------------------------------------------- what can go wrong


@pytest.mark.parametrize(
    ("at", "failed", "days"), [("Explain that move", "day 1: ModelFailure: server", 0), ("look back", "day 6: ", 5)]
)
def test_a_model_that_does_not_answer_fails_the_episode_wherever_it_is_asked(at, failed, days):
    def script(messages):
        if at in messages[0]["content"]:
            raise ModelFailure("server", "it broke")
        return DIARY(messages)

    episode = Player("finmem:given", finmem, Scripted(script), QUICK).play(SHORT)
    assert episode.failure.startswith(failed)
    assert (len(episode.ledger.date), episode.score) == (days, None)
    assert episode.log[-1]["calls"][-1]["failure"].startswith("server")
    assert episode.facts["calls"] < calls_per_episode(SHORT, QUICK)


def test_a_view_of_another_day_or_another_level_of_identity_is_an_error():
    agent = finmem(SHORT, Scripted(DIARY), **QUICK)
    env = SHORT.make(observation="text", identity="masked")
    today, tomorrow = env.reset()[0], env.step(1)[0]
    for view in (tomorrow, SHORT.make(observation="text", identity="real").reset()[0], "a view of one's own"):
        with pytest.raises(ValueError, match="this is not day 1 of TSLA:2022-10-06:2023-04-10 with detail='full'"):
            agent(view)
    assert agent(today).action


def test_an_agent_made_by_hand_takes_an_embedding_by_name_or_opened():
    assert finmem(SHORT, Scripted(DIARY), **QUICK)(SHORT.make(observation="text", identity="masked").reset()[0]).action
    with pytest.raises(ValueError, match="'openai/small' is opened by a Player"):
        finmem(SHORT, Scripted(DIARY), memory_embedding="openai/small")
    with open_embedding("hashing") as embedding:
        agent = finmem(SHORT, Equipped(Scripted(DIARY), embedding), **QUICK)
    assert agent.facts["memory_embedding"] == "hashing"


# -------------------------------------------------------------------------- at an endpoint, and from the shell

needs_client = pytest.mark.skipif(not (find_spec("openai") and find_spec("tenacity")), reason="extra llm")


@needs_client
def test_model_and_embedding_may_both_be_at_an_endpoint_and_a_replay_needs_none(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted-0123456789abcdef")
    monkeypatch.setattr(client_module, "FIRST_PAUSE", 0.001)
    (tmp_path / "prices.toml").write_text(
        '["openai/stub"]\ninput = 1.0\noutput = 1.0\n["openai/small"]\ninput = 10.0\noutput = 0.0\n'
    )

    def answer(body):
        if "input" in body:
            return embeds(*([len(text), text.count("e"), 1] for text in body["input"]), tokens=len(body["input"]))
        return says(DIARY(body["messages"]), usage=(100, 10, 0))

    options = {**QUICK, "memory_embedding": "openai/small", "prices": str(tmp_path / "prices.toml"), "attempts": 2}
    options |= {"cache_file": str(tmp_path / "replies.sqlite"), "structured": "none"}
    episodes = []
    with Stub(answer) as stub:
        player = Player("finmem:openai/stub", finmem, "openai/stub", {**options, "base_url": stub.url})
        episodes += [player.play(SHORT), player.play(SHORT)]
        asked = stub.requests
    episodes.append(replace(player, options={**player.options, "cache": "replay"}).play(SHORT))
    facts = [episode.facts for episode in episodes]
    assert [episode.failure for episode in episodes] == [None] * 3
    assert all(episode.log[-1]["memory"] == episodes[0].log[-1]["memory"] for episode in episodes)
    asked_for = sum(len(body["input"]) for body in asked if "input" in body) - 1  # but for the probe
    texts = facts[0]["embedding_tokens"]
    assert texts >= asked_for > 20  # a text that comes again is not asked for again
    assert facts[0]["embedding_usd"] == pytest.approx(texts * 1e-5)
    assert facts[0]["cost_usd"] == pytest.approx(facts[0]["calls"] * 110e-6 + texts * 1e-5)
    assert facts[0]["paid_usd"] == pytest.approx(facts[0]["calls"] * 110e-6 + asked_for * 1e-5)
    assert [told["cost_usd"] for told in facts] == [facts[0]["cost_usd"]] * 3
    assert [told["paid_usd"] for told in facts[1:]] == [0, 0]
    assert "Authorization" not in json.dumps(facts)


def test_the_flags_of_the_command_line_reach_it(tmp_path, monkeypatch, capsys):
    def run(*words, code=0):
        monkeypatch.setattr(sys, "argv", ["fintrading", "play", *words])
        monkeypatch.setattr(sys, "path", [*sys.path])
        with pytest.raises(SystemExit) as end:
            cli.main()
        out = capsys.readouterr()
        assert (end.value.code or 0) == code, out.err
        return out

    words = ["finmem:scripted/diary", "--timesteps", "3", "--json", "--memory.top-k", "2", "--memory.warmup", "40"]
    words += ["--memory.layers", "shallow,deep", "--memory.warmup-calls", "1", "--persona-rule", "momentum"]
    told = json.loads(run(*words, "--memory.file", str(tmp_path / "own.sqlite")).out)
    facts = told["facts"]
    assert (facts["memory_top_k"], facts["memory_layers"], facts["persona_rule"]) == (2, "shallow,deep", "momentum")
    assert (facts["memory_days"], facts["calls"]) == (40, 4)
    assert [memory["layer"] for memory in told["log"][2]["memory"]] == ["shallow", "shallow", "deep"]
    assert (tmp_path / "own.sqlite").is_file()
    assert json.loads(run(*words[:4], "--memory.off").out)["facts"]["calls"] == 3
    assert run("flat", "--memory.off", code=2).err == "fintrading: --memory.off is for finmem; there are: flat\n"


# ------------------------------------------------------------------------------------------ the real small model

WEIGHTS = os.environ.get("FINTRADING_CACHE")  # where they are, before the tests have a folder of their own


@pytest.mark.slow
def test_the_real_small_model_plays_some_days_and_is_replayed(tmp_path, monkeypatch):
    monkeypatch.delenv("FINTRADING_CACHE")
    if WEIGHTS:
        monkeypatch.setenv("FINTRADING_CACHE", WEIGHTS)
    if not find_spec("xllamacpp") or not weights.present("smollm2"):
        pytest.skip("needs the extra local, and the weights")
    options = {"memory_warmup_calls": 2, "memory_reflect": 2, "memory_file": str(tmp_path / "memory.sqlite")}
    options |= {"cache_file": str(tmp_path / "replies.sqlite")}
    player = replace(find_player("finmem:local/smollm2"), options=options)
    task = Task(timesteps=4)
    assert calls_per_episode(task, options) == 2 + 4 + 1
    first, again = player.play(task), player.play(task)
    replayed = replace(player, options={**options, "cache": "replay"}).play(task)
    assert [episode.failure for episode in (first, again, replayed)] == [None] * 3
    assert all(first.ledger.valid)
    facts = first.facts
    assert (facts["calls"], facts["format_nudges"], facts["unread"], facts["leaks"]) == (7, 0, 0, 0)
    assert (facts["structured"], facts["detail"], facts["cache_hits"]) == ("grammar", "brief", 0)
    for day in first.log:
        assert day["reason"]
        assert set(day["cited"]) <= {memory["id"] for memory in day["memory"]}
        assert all(call["usage"]["input"] < 300 and call["usage"]["output"] < 50 for call in day["calls"])
    assert any(day["cited"] for day in first.log)
    for other in (again, replayed):
        assert other.ledger == first.ledger
        assert [day["memory"] for day in other.log] == [day["memory"] for day in first.log]
        assert other.facts | {"cache_hits": 0} == facts
