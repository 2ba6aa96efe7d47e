"""What got out of a masked run: found wherever it stands, and told where."""

import json

import pytest
from typer.testing import CliRunner

from fintrading_agents.egress import CLOSES, Egress
from fintrading_agents.llm import llm
from fintrading_agents.models import Reply, Scripted
from fintrading_gym import leaderboard as board
from fintrading_gym.cli import app
from fintrading_gym.masking import SCALED
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
        ("as Elon Musk said in March 2023", [("Person", "Elon Musk"), ("Date", "March 2023")]),
        ('{"TSLA": 1}', [("Company", "TSLA")]),
        ("Company-001 on Day 37, Date-0007, 3-day momentum: +1.00 %", []),
        ("It closed at 222.96, after 223.07", [("Close", "222.96"), ("Close", "223.07")]),
        ("It closed at 222.96", []),  # one may be chance
        ("up +222.96 and 223.07 %", []),
        ("1222.96 or 222.961 or 223.070", []),
    ],
)
def test_names_dates_and_raw_closes_are_found(text, found):
    assert leaks(text) == found
    assert CLOSES == 2


def test_a_close_that_the_masked_view_shows_by_chance_is_none():
    egress = Egress(TASK, "masked")
    task = TASK
    texts = [task.make(observation="text").reset()[0]]
    assert egress.leaks("here", texts[0]) == []
    assert not any("100.00" in close for close in egress._closes)


def test_levels_decide_what_counts():
    text = "TSLA closed at 222.96 and 223.07 on 2022-10-10"
    assert [kind for kind, _ in leaks(text, identity="names")] == ["Company"]
    assert [kind for kind, _ in leaks(text, identity="names+dates")] == ["Company", "Date"]
    assert [kind for kind, _ in leaks(text)] == ["Company", "Date", "Close", "Close"]
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


def test_the_command_searches_files_and_ends_with_1_where_it_finds_something(tmp_path):
    def run(*words):
        return CliRunner().invoke(app, list(map(str, words)))

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
