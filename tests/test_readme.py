"""Every snippet of the README runs, and prints what the README says."""

import contextlib
import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import fintrading
from scripted_boards import filled

from fintrading_gym.rollout import Task

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
PYTHON = re.findall(r"^```python\n(.*?)^```", README, re.S | re.M)
COMMANDS = [
    line.split("#")[0].strip()
    for block in re.findall(r"^```bash\n(.*?)^```", README, re.S | re.M)
    for line in block.splitlines()
    if line.startswith("fintrading ")
]
# Not run here: what reaches for the network, and what plays the files that it fetched.
NETWORK = ("fintrading data fetch", "IBM.csv", "models add", "local/", "openai/")
TRAINED = ("fintrading train", "ppo:")  # run together, as one needs the other's files


def test_the_first_snippet_is_short_and_prints_what_the_readme_says():
    assert len(PYTHON[0].strip().splitlines()) <= 12
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(PYTHON[0], "README.md", "exec"), {})
    assert printed.getvalue() == re.search(r"```text\n(.*?)```", README, re.S)[1]


@pytest.mark.parametrize("code", [code for code in PYTHON if "# my_agents.py" not in code])
def test_a_snippet_of_the_readme_runs(code, tmp_path, monkeypatch):
    if "stable_baselines3" in code:
        pytest.importorskip("stable_baselines3")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.csv").write_bytes((ROOT / "data/AAPL.csv").read_bytes())
    exec(compile(code, "README.md", "exec"), {})


@pytest.mark.slow
def test_the_commands_of_the_readme_that_train_and_play_what_was_trained_run_in_turn(tmp_path):
    pytest.importorskip("stable_baselines3")
    program = Path(sys.executable).with_name("fintrading")
    commands = [command for command in COMMANDS if any(word in command for word in TRAINED)]
    assert len(commands) == 2
    for command in commands:
        done = subprocess.run([program, *shlex.split(command)[1:]], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("command", [c for c in COMMANDS if not any(word in c for word in NETWORK + TRAINED)])
def test_a_command_of_the_readme_runs(command, tmp_path):
    (tmp_path / "my_agents.py").write_text(next(code for code in PYTHON if "# my_agents.py" in code))
    (tmp_path / "mine.csv").write_bytes((ROOT / "data/AAPL.csv").read_bytes())
    (tmp_path / "outputs/smoke").mkdir(parents=True)
    (tmp_path / "outputs/smoke/traces.jsonl").write_bytes((ROOT / "tests/traces.jsonl").read_bytes())
    if " board.db" in command and "--out board.db" not in command:
        filled(tmp_path / "board.db", ["flat"], [Task(timesteps=5)])
    fintrading(*shlex.split(command)[1:], cwd=tmp_path)


def test_the_papers_table_in_the_readme_is_what_the_benchmark_prints(tmp_path):
    out = tmp_path / "paper.json"
    subprocess.run([sys.executable, ROOT / "benchmarks/paper_table.py", "--json", out], check=True, capture_output=True)
    figures = json.loads(out.read_text())
    assert figures["largest_difference"] < 1e-4
    table = README[README.index("<!-- paper_table: begin -->") : README.index("<!-- paper_table: end -->")]
    rows = [re.split(r" *\| *", line.strip("| ")) for line in table.splitlines()[3:] if line.startswith("|")]
    told = {name: (earned, active, luck) for name, earned, active, luck in rows}
    assert told == {
        name: (f"{row['cumulative_return']:+.1f} %", f"{row['active']:.0%}".replace("%", " %"), f"{row['luck']:.3f}")
        for name, row in figures["tsla"].items()
    }


def test_doing_nothing_scores_what_the_readme_says():
    assert "0.708" in README
    assert "two hold rules" in README.lower()
