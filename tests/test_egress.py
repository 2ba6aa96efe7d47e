"""What got out of a masked run: found wherever it stands, and told where."""

import asyncio
import json

import numpy as np
import pytest
from conftest import window_of
from typer.testing import CliRunner

from fintrading_agents.egress import LUCK, Egress, printed
from fintrading_agents.llm import llm
from fintrading_agents.models import ModelFailure, Reply, Scripted
from fintrading_agents.transcript import Transcript
from fintrading_gym import leaderboard as board
from fintrading_gym.cli import app
from fintrading_gym.masking import SCALED, mask
from fintrading_gym.ranking import rank
from fintrading_gym.rollout import Player, Task, find_player
from fintrading_gym.windows import CELLS

BUY = '{"action": "buy"}'
TASK = Task("tsla_main", timesteps=4, identity="masked")


def leaks(text, task=TASK, identity="masked"):
    return [(kind, written) for _, kind, written in Egress(task, identity).leaks("here", text)]


@pytest.mark.parametrize("identity", SCALED)
@pytest.mark.parametrize("cell", CELLS)
def test_a_masked_episode_lets_nothing_out(cell, identity):
    task = Task(cell, timesteps=None, identity=identity)
    episode = find_player("llm:scripted/momentum").play(task)
    assert episode.failure is None
    assert Egress(task, identity).of_log(episode.log) == []
    assert episode.facts["leaks"] == 0


def test_a_real_view_in_a_masked_run_is_found():
    episode = find_player("llm:scripted/momentum").play(Task("tsla_main", timesteps=2, identity="real"))
    found = Egress(TASK, "masked").of_log(episode.log)
    assert {leak.kind for leak in found} == {"Company", "Date", "Close"}
    assert "day 1, calls 1, messages 2, content: company 'TSLA'" in map(str, found)
    assert episode.facts["leaks"] == 0  # in a run that hides nothing, nothing leaks


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("This looks like Tesla.", [("Company", "Tesla")]),
        (r'{"why": "It fell.\nTesla, I think"}', [("Company", "Tesla")]),
        (
            "#TeslaStock or $tsla or TSLA230120C00250000",
            [("Company", t) for t in ("TeslaStock", "tsla", "TSLA230120C00250000")],
        ),
        ("as Elon Musk said in March 2023", [("Person", "Elon Musk"), ("Date", "March 2023")]),
        ('{"TSLA": 1}', [("Company", "TSLA")]),
        ("Company-001 on Day 37, Date-0007, 3-day momentum: +1.00 %", []),
        ("It closed at 216.50, after 222.96 and 223.07", [("Close", t) for t in ("223.07", "222.96", "216.50")]),
        (
            '{"prices": [223.07000732421875, 222.9600067138672, 216.5]}',
            [("Close", t) for t in ("223.07", "222.96", "216.50")],
        ),
        ("222.96-223.07; 216.50", [("Close", t) for t in ("223.07", "222.96", "216.50")]),
        ("It closed at 222.96 after 223.07", []),  # two may be chance
        ("from 238.13 to 222.96 and 217.24", []),  # not of days in a row
        ("up +222.96 and 223.07 % and 216.50", []),
        ("1222.96 or 222.971 or 223.080, 216.50", []),
        ("3M momentum. Block trades on Monday in May, in the Technology sector. Chase it.", []),
        ("Q3: Best Buy Signal? Risk 08/10, in March or the third quarter.", []),
        (
            "the October 2022 low, or Oct. 7, or FY22, or 2022",
            [("Date", t) for t in ("October 2022", "Oct. 7", "FY22", "2022")],
        ),
    ],
)
def test_names_dates_and_raw_closes_are_found(text, found):
    assert leaks(text) == found


@pytest.mark.parametrize("identity", SCALED)
@pytest.mark.parametrize("cell", CELLS)
def test_a_raw_view_among_other_numbers_is_found_and_numbers_alone_are_not(cell, identity):
    """Where a stock costs about 100, as a scaled one does, some numbers are closes by chance; 7 in a row are not."""
    task = Task(cell, timesteps=None, identity=identity)
    egress, window = Egress(task, identity), task.window
    (first, days), closes, rng = window.span(), window.load().close, np.random.default_rng(0)
    scaled = mask(window, 7, identity).close
    for _ in range(100):
        today = first + int(rng.integers(6, days))
        others = [f"{number:.2f}" for number in scaled[today] * np.exp(rng.normal(0, 0.08, 30))]
        assert egress.leaks("here", " ".join(others)) == []
        week = [f"{close:.2f}" for close in closes[today - 6 : today + 1]]
        assert {leak.kind for leak in egress.leaks("here", " ".join(rng.permutation(others + week)))} == {"Close"}


def test_a_world_has_its_own_closes_and_those_that_happened_and_newspapers_had():
    task = Task("paper_msft", world="mirror", identity="masked")
    first = task.window.span()[0]
    happened = Task("paper_msft").window.load().close
    assert f"{happened[first]:.2f}" != f"{printed('MSFT')[first]:.2f}"  # a dividend was paid since
    for closes in (task.window.load().close, happened, printed("MSFT")):
        text = ", ".join(f"{close:.2f}" for close in closes[first : first + 3])
        assert [kind for kind, _ in leaks(text, task)] == ["Close"] * 3


def test_prompts_that_hold_the_close_of_their_own_day_again_and_again_are_found():
    task = Task("paper_amzn", timesteps=20, identity="masked")
    window, rng = task.window, np.random.default_rng(0)
    first, closes = window.span()[0], window.load().close

    def log(*offsets):
        days = []
        for day in range(20):
            numbers = [f"{x:.2f}" for x in 100 * np.exp(rng.normal(0, 0.1, 10))]
            raw = [f"{closes[first + day]:.2f}"] if day in offsets else []
            days.append({"calls": [{"messages": [{"role": "user", "content": " ".join(numbers + raw)}]}]})
        return days

    egress = Egress(task, "masked")
    assert egress.of_log(log()) == egress.of_log(log(4)) == []
    found = egress.of_log(log(*range(0, 20, 3)))
    assert len(found) >= 7
    assert str(found[0]) == f"day 1, calls 1, messages 1, content: close '{closes[first]:.2f}'"


def test_where_the_masked_view_is_the_real_one_it_is_no_leak():
    closes = [100.0, 101.37, 99.81, 104.52, 103.33, 105.71, 102.18]
    task = Task(window_of(closes), timesteps=None, identity="masked")
    env = task.make(observation="text")
    for text in [env.reset()[0]] + [env.step(2)[0] for _ in closes[2:]]:
        assert leaks(text, task) == []
    other = Task(window_of([3 * close for close in closes]), timesteps=None, identity="masked")
    assert len(leaks("304.11, 299.43, 313.56, 309.99", other)) == 4


def test_levels_decide_what_counts():
    text = "TSLA closed at 222.96, 223.07 and 216.50 on 2022-10-10"
    assert [kind for kind, _ in leaks(text, identity="names")] == ["Company"]
    assert [kind for kind, _ in leaks(text, identity="names+dates")] == ["Company", "Date"]
    assert [kind for kind, _ in leaks(text)] == ["Company", "Date", "Close", "Close", "Close"]
    assert leaks(text, identity="real") == []


def test_replies_reasoning_and_tool_calls_are_searched():
    reply = Reply(
        BUY,
        "ok",
        reasoning="I remember that Tesla fell",
        tool_calls=({"function": {"name": "news", "arguments": '{"ticker": "TSLA"}'}},),
        sent={"model": "some-model-2024-07-18"},
    )
    episode = Player("llm:given", llm, Scripted(lambda messages: reply)).play(TASK)
    assert episode.facts["leaks"] == 8
    assert episode.facts["first_leak"] == "day 1, calls 1, reasoning: company 'Tesla'"


def test_what_an_agent_notes_for_its_readers_is_not_searched_and_what_a_failed_call_sent_is():
    egress = Egress(TASK, "masked")
    call = {
        "messages": [{"role": "user", "content": "x"}],
        "verdict": {"reason": "Tesla"},
        "sent": {"model": "m-2024-07-18"},
    }
    assert egress.of_log([{"calls": [call], "report": "Tesla fell on 2022-10-07"}]) == []
    found = egress.of_log([{"calls": [call | {"content": [{"type": "text", "cost": "Tesla"}]}]}])
    assert list(map(str, found)) == ["day 1, calls 1, content: company 'Tesla'"]

    class Gone(Scripted):
        async def complete(self, messages, *, sample=0, form=None):
            raise ModelFailure("quota")

    said = Transcript(TASK, Gone([]))
    said.new_day()
    with pytest.raises(ModelFailure):
        asyncio.run(said.ask([{"role": "user", "content": "so a Tesla"}]))
    assert said.facts["leaks"] == 0  # the guard took it out
    said.log[0]["calls"][0]["messages"][0]["content"] = "so a Tesla"
    assert said.facts["leaks"] == 1


def test_a_run_that_tells_is_not_ranked_and_the_board_says_where():
    tells = Player("llm:tells", llm, Scripted(lambda messages: f"Tesla, I think. {BUY}"))
    silent = Player("llm:silent", llm, Scripted(lambda messages: BUY))
    rows = [row for _, row, _ in board.run([(tells, TASK), (silent, TASK)])]
    standings = {standing.agent: standing for standing in rank(rows)}
    assert standings["llm:silent"].rank == 1
    assert standings["llm:tells"].rank is None
    assert standings["llm:tells"].why == (
        "1 of 1 episodes tell who or when (day 1, calls 1, content: company 'Tesla')"
    )  # fmt: skip


def run(*words):
    return CliRunner().invoke(app, list(map(str, words)))


def test_the_command_searches_files_and_ends_with_1_where_it_finds_something(tmp_path):
    episode, again, page = tmp_path / "episode.json", tmp_path / "again.json", tmp_path / "page.md"
    episode.write_text(run("play", "llm:scripted/momentum", "--timesteps", 3, "--json").stdout)
    assert run("egress", episode).stdout == f"{episode}: nothing tells who or when\n"
    real = json.loads(run("play", "llm:scripted/momentum", "--timesteps", 3, "--identity", "real", "--json").stdout)
    again.write_text(json.dumps({**real, "identity": "masked"}))
    page.write_text("Company-001 rose.\nSo did Apple.\n")
    done = run("egress", episode, again, page, "--cell", "tsla_main")
    assert done.exit_code != 0
    assert f"{again}: day 3, calls 1, messages 2, content: company 'TSLA'" in done.stdout
    assert f"{page}: line 2: company 'Apple'" in done.stdout
    assert "not to be published" in str(done.exception)
    assert "say with --cell what was played" in str(run("egress", page).exception)
    (tmp_path / "rows.parquet").write_bytes(b"PAR1\0\1Tesla")  # what is packed cannot be cleared
    packed = run("egress", tmp_path / "rows.parquet", "--cell", "tsla_main")
    assert "no text that can be searched; export it as CSV or JSONL" in str(packed.exception)


def test_closes_on_lines_of_their_own_are_found_as_an_exported_table_has_them(tmp_path):
    table = tmp_path / "table.csv"
    closes = TASK.window.load().close[-100:]
    table.write_text("day,close\n" + "".join(f"{k},{close!r}\n" for k, close in enumerate(closes.tolist())))
    done = run("egress", table, "--cell", "TSLA:2023-02-06:2023-06-30")
    assert done.exit_code != 0
    assert f"{table}: lines 1 to 40: close '{closes[0]:.2f}'" in done.stdout
    assert sum("close" in line for line in done.stdout.splitlines()) == len({f"{close:.2f}" for close in closes})


def test_every_episode_of_a_board_is_searched(tmp_path):
    board_file, told = tmp_path / "board.sqlite", tmp_path / "told.py"
    words = ("--cells", "tsla_main,nvda_bull_2023", "--timesteps", 2, "--seeds", 1, "--out", board_file)
    assert run("leaderboard", "--agents", "flat,llm:scripted/momentum", *words).exit_code == 0
    assert run("egress", board_file).stdout == f"{board_file}: nothing tells who or when\n"
    told.write_text(
        "from fintrading_agents.llm import llm\nfrom fintrading_agents.models import Scripted\n"
        'def tells(task): return llm(task, Scripted(lambda messages: \'Nvidia? {"action": "buy"}\'))\n'
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        assert run("leaderboard", "--agents", "told:tells", *words).exit_code == 0
    done = run("egress", board_file)
    assert done.exit_code != 0
    where = "told:tells, nvda_bull_2023, adaptive, seed 0, day 2, calls 1, content: company 'Nvidia'"
    assert f"{board_file}: {where}" in done.stdout
    assert "4 leaks" in str(done.exception)
    assert LUCK < 1e-4
