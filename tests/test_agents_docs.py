"""docs/agents.md: its agents play, under both kinds of names, and its tables and commands are what there is."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fintrading_agents.figures import figures, unsupported
from fintrading_agents.pipeline import SEES
from fintrading_agents.sources import KINDS, read_sources
from fintrading_agents.verdict import read_labelled, read_schema
from fintrading_gym.cli import app
from fintrading_gym.replies import Decision
from fintrading_gym.rollout import Task, find_player

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/agents.md").read_text()
FILES = {
    re.match(r"# (\S+)\n", code)[1]: code for code in re.findall(r"^```(?:python|toml)\n(.*?)^```", PAGE, re.S | re.M)
}
COMMANDS = [
    line
    for block in re.findall(r"^```bash\n(.*?)^```", PAGE, re.S | re.M)
    for line in block.splitlines()
    if line.startswith("fintrading ") and "openai/" not in line
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The files of the page, in the folder where one stands."""
    for name, code in FILES.items():
        (tmp_path / name).write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("my_agents", "my_models"):
        sys.modules.pop(name, None)


def run(command):
    done = CliRunner().invoke(app, shlex.split(command)[1:])
    assert done.exit_code == 0, done.output + repr(done.exception)
    return done.stdout


def test_the_agent_has_fifteen_lines_and_no_more():
    lines = [line for line in FILES["my_agents.py"].splitlines() if line and not line.startswith("#")]
    assert len(lines) <= 15


@pytest.mark.parametrize("command", [command for command in COMMANDS if command != "fintrading play breakout"])
def test_a_command_of_the_page_runs(command, folder):
    run(command)


@pytest.mark.slow  # it builds and installs a package
def test_the_agent_plays_as_an_entry_point_too_and_the_same(folder, monkeypatch):
    pytest.importorskip("pip")
    named = json.loads(run("fintrading play my_agents:breakout --cell nvda_bull_2023 --json"))
    sys.modules.pop("my_agents")
    build = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*build, "--target", folder / "installed", folder], capture_output=True, check=True)
    (folder / "my_agents.py").unlink()
    monkeypatch.syspath_prepend(folder / "installed")
    installed = json.loads(run("fintrading play breakout --cell nvda_bull_2023 --json"))
    assert installed["ledger"] == named["ledger"]
    assert {row["action"] for row in named["ledger"]} == {0, 1, 2}
    assert "Buy above the highs" in run("fintrading agents")


def test_the_agent_does_what_it_says(folder):
    task = Task("nvda_bull_2023", timesteps=40)
    episode = find_player("my_agents:breakout").play(task)
    bars, start = task.window.load(), task.window.span()[0]
    for day, decision in enumerate(episode.decisions):
        before, close = slice(start + day - 6, start + day), bars.close[start + day]
        above, below = close > bars.high[before].max(), close < bars.low[before].min()
        assert decision.action == ("buy" if above else "sell" if below else "hold")


def test_the_agent_that_asks_a_model_is_guarded_and_logged(folder):
    told = json.loads(run("fintrading play my_models:second_thoughts --model scripted/momentum --timesteps 3 --json"))
    assert [[call["stage"] for call in day["calls"]] for day in told["log"]] == [["doubts", "decision"]] * 3
    assert (told["identity"], told["facts"]["calls"], told["facts"]["leaks"]) == ("masked", 6, 0)


def test_the_tables_have_a_row_for_every_stage_and_kind():
    assert [kind for kind, what in KINDS.items() if f"| `{kind}` | {what} |" not in PAGE] == []
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| [a-z]", PAGE, re.M)
    named = {name for row in rows for name in re.findall(r"\w+", row)}
    assert SEES.keys() - {"answer"} <= named


def test_the_examples_of_the_last_word_and_of_sources_are_read(tmp_path):
    decision = Decision("buy", confidence=0.6, target_price=101.5)
    assert read_schema(re.search(r"`(\{\"action\".*?\})`; its", PAGE)[1]) == decision
    assert read_labelled(re.search(r"```text\n(.*?)```", PAGE, re.S)[1]) == decision
    (tmp_path / "news.jsonl").write_text(re.search(r"```json\n(.*?)```", PAGE, re.S)[1])
    assert [(item.date, item.kind) for item in read_sources(tmp_path / "news.jsonl")] == [
        ("2022-10-05", "news"),
        ("2022-10-07", "rating"),
    ]


def test_the_audit_of_figures_is_as_the_page_says():
    rows = re.findall(r"^\| (`.+`) \| ([^|]+) \| ((?:un)?supported)", PAGE, re.M)
    assert len(rows) == 6
    for texts, research, verdict in rows:
        for text in re.findall("`(.+?)`", texts):
            assert bool(unsupported(text, research)) == (verdict == "unsupported"), text
    left_out = PAGE[PAGE.index("Left out, since") : PAGE.index("It does not ask what a figure is of")]
    assert figures(left_out) == []
    assert unsupported("82.74 %", "close 82.74") == []
