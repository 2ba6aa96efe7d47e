"""The command line: what it prints, what it writes, and how it ends."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import typer
from conftest import fintrading as run
from conftest import table_of

from fintrading_gym import __version__, cli
from fintrading_gym.cli import LEARNERS, ON_BOARD
from fintrading_gym.rollout import registered
from fintrading_gym.windows import CELLS, DATA, bundled

FINTRADING = str(Path(sys.executable).with_name("fintrading"))

AGENTS = """
import time

def contrarian(task):
    return lambda observation: 0

def broken(task):
    def decide(observation):
        raise RuntimeError("no model")
    return decide

def slow(task):
    open("slow_agent_began", "w").close()

    def decide(observation):
        time.sleep(0.2)
        return 2
    return decide
"""


def process(*words, cwd=None, code=0):
    """`run` in a process of its own."""
    done = subprocess.run(
        [FINTRADING, *map(str, words)], capture_output=True, text=True, cwd=cwd, env={**os.environ, "COLUMNS": "120"}
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "my_agents.py").write_text(AGENTS)
    return tmp_path


def test_cells_tasks_and_agents_are_listed():
    listed = run("cells").stdout
    assert all(name in listed for name in CELLS)
    assert "-0.2551" in listed
    assert run("tasks").stdout.count("adaptive") == 8  # task and persona, four cells
    listed = run("agents").stdout
    assert "buy_and_hold" in listed
    assert "Long every day." in listed


@pytest.mark.parametrize("words", [(), ("play",), ("leaderboard",), ("data",)])
def test_help_has_examples_or_commands(words):
    text = process(*words, "--help").stdout
    assert "Usage: fintrading" in text
    assert "fintrading play" in text or "fintrading leaderboard" in text or "Commands" in text


def test_play_prints_each_day_and_a_summary():
    text = run("play", "momentum", "--cell", "nvda_bull_2023", "--timesteps", "5", "--verbose").stdout
    assert "2023-01-03" in text
    assert "2023-01-09" in text
    assert "score" in text
    assert "luck" in text


def test_play_gives_json(folder):
    data = json.loads(run("play", "my_agents:contrarian", "--timesteps", "3", "--json", cwd=folder).stdout)
    assert [row["position"] for row in data["ledger"]] == [-1, -1, -1]
    assert data["ledger"][0]["date"] == "2022-10-06"
    assert data["summary"]["cumulative_return"] == pytest.approx(sum(row["log_return"] for row in data["ledger"]))
    assert (data["cell"], data["persona"], data["timesteps"], data["failure"]) == ("tsla_main", "adaptive", 3, None)
    assert len(data["data_sha256"]) == 64


def test_play_to_the_windows_end_on_ones_own_table(folder):
    table_of([10.0, 11.0, 12.0, 11.5, 13.0]).to_csv(folder / "mine.csv", index=False)
    words = ("play", "buy_and_hold", "--cell", "mine.csv:2022-01-04:2022-01-07", "--timesteps", "all", "--json")
    data = json.loads(run(*words, cwd=folder).stdout)
    assert [row["date"] for row in data["ledger"]] == ["2022-01-04", "2022-01-05", "2022-01-06"]


def test_leaderboard_prints_and_writes_rows(folder):
    words = ("--agents", "flat,random,my_agents:contrarian,oracle", "--cells", "tsla_main,spy_bear_2022")
    more = ("--seeds", 2, "--personas", "adaptive,risk_averse", "--timesteps", 10, "--csv", "r.csv", "--json", "r.json")
    text = run("leaderboard", *words, *more, cwd=folder).stdout
    assert "these ignore the persona and play once for all personas: flat, oracle, random" in text
    assert "oracle is not ranked: knows the future" in text
    rows = json.loads((folder / "r.json").read_text())
    with (folder / "r.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(rows) == 2 + 4 + 8 + 2
    assert {row["persona"] for row in rows if row["agent"] == "my_agents:contrarian"} == {"adaptive", "risk_averse"}


def test_each_world_prints_a_board_and_play_knows_worlds_and_levels_too(tmp_path):
    words = ("--agents", "flat,momentum", "--cells", "tsla_main", "--worlds", "real,mirror", "--seeds", 1)
    text = run("leaderboard", *words, "--json", tmp_path / "r.json").stdout
    assert text.count("means over n episodes") == 2
    assert "Leaderboard (mirror world)" in text
    assert "mirror world: every move of a price with its sign flipped" in text
    rows = json.loads((tmp_path / "r.json").read_text())
    assert [(row["agent"], row["world"]) for row in rows] == [
        ("flat", "real"), ("momentum", "real"), ("flat", "mirror"), ("momentum", "mirror"),
    ]  # fmt: skip
    told = json.loads(run("play", "flat", "--world", "shuffled:3", "--identity", "coarse", "--json").stdout)
    assert (told["world"], told["identity"]) == ("shuffled:3", "coarse")
    assert json.loads(run("play", "flat", "--json").stdout)["identity"] == "real"


def test_two_boards_are_the_same_bytes(tmp_path):
    for name in ("a.json", "b.json"):
        process("leaderboard", "--agents", "random,sma_cross", "--cells", "tsla_main", "--json", tmp_path / name)
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_a_failed_agent_ends_with_1_and_the_others_are_ranked(folder):
    done = run("leaderboard", "--agents", "my_agents:broken,flat", "--cells", "tsla_main", cwd=folder, code=1)
    assert "broken is not ranked: 5 of 5 episodes failed (day 1: RuntimeError: no model)" in done.stdout
    assert "0.708" in done.stdout
    done = run("play", "my_agents:broken", cwd=folder, code=1)
    assert "broke off: day 1: RuntimeError: no model" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("play", "buy_and_hld"), "Did you mean 'buy_and_hold'"),
        (("play", "flat", "--cell", "tsla_man"), "Did you mean 'tsla_main'"),
        (("play", "flat", "--persona", "adaptve"), "Did you mean 'adaptive'"),
        (("play", "flat", "--identity", "mask"), "Did you mean 'masked'"),
        (("play", "flat", "--world", "miror"), "Did you mean 'mirror'"),
        (("leaderboard", "--worlds", "real,miror"), "Did you mean 'mirror'"),
        (("play", "flat", "--timesteps", "0"), "--timesteps '0'"),
        (("play", "flat", "--timesteps", "many"), "nor 'all'"),
        (("play", "flat", "--hold", "kep"), "Did you mean 'keep'"),
        (("play", "flat", "--fill", "closed"), "Did you mean 'close'"),
        (("play", "flat", "--cost-bps", "-1"), "cost_bps=-1.0"),
        (("play", "flat", "--cell", "no.csv:2022-01-03:2022-02-03"), "no.csv: cannot be read"),
        (("play", "flat", "--cell", "TSLA:2022-01-03:2032-02-03"), "2021-01-04..2023-06-30"),
        (("leaderboard", "--agents", ","), "names nothing"),
        (("leaderboard", "--agents", "flat", "--cells", "tsla_main,spy"), "No cell 'spy'"),
        (("leaderboard", "--agents", "flat", "--csv", "no/such/folder/rows.csv"), "No such file or directory"),
        (("leaderboard", "--hold", "kept"), "Did you mean 'keep'"),
        (("leaderboard", "--executor", "process"), "Did you mean 'processes'"),
        (("leaderboard", "--ray-address", "10.0.0.7:6379"), "is for --executor ray"),
    ],
)
def test_bad_usage_is_one_line_and_ends_with_2(words, told, tmp_path):
    done = run(*words, cwd=tmp_path, code=2)
    assert told in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


def test_an_unknown_flag_ends_with_2():
    process("play", "flat", "--cel", "tsla_main", code=2)


def test_an_interrupt_keeps_what_is_finished_and_ends_with_130(folder):
    words = ["leaderboard", "--agents", "flat,my_agents:slow", "--cells", "tsla_main", "--csv", "rows.csv"]
    process = subprocess.Popen(
        [FINTRADING, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not (folder / "slow_agent_began").exists():  # it plays after flat
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "flat" in out
    assert len((folder / "rows.csv").read_text().splitlines()) == 2


def test_data_check_verifies_the_bundled_tables():
    text = run("data", "check").stdout
    assert text.count("ok ") == 10
    assert "TSLA.csv: 627 days, 2021-01-04..2023-06-30" in text


def test_data_check_notes_what_a_person_should_look_at(tmp_path):
    table = table_of([100.0, 101.0, 20.0, 20.5, 21.0], first="2022-01-06")  # a Thursday
    table.loc[4, "date"] = "2022-01-20"
    table.to_csv(tmp_path / "odd.csv", index=False)
    text = run("data", "check", tmp_path / "odd.csv").stdout
    assert "ok   odd.csv" in text
    assert "odd.csv: the close moves by -80% on 2022-01-08; is it adjusted for splits?" in text
    assert "odd.csv: 2022-01-08 is a weekend day" in text
    assert "odd.csv: no quotes for 10 days before 2022-01-20" in text


def test_the_module_is_the_command_line():
    done = subprocess.run([sys.executable, "-m", "fintrading_gym", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, __version__)
    assert process("--version").stdout.strip() == __version__


def test_a_board_fits_into_80_columns():
    agents = ON_BOARD.replace(LEARNERS, "")
    words = ["leaderboard", "--agents", agents, "--cells", "tsla_main", "--timesteps", "5", "--seeds", "1"]
    done = subprocess.run([FINTRADING, *words], capture_output=True, text=True, env={**os.environ, "COLUMNS": "80"})
    assert (done.returncode, done.stderr.strip()) == (0, "")
    assert "…" not in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not LEARNERS, reason="needs the extra rl")
def test_the_usual_board_trains_the_learners_once_and_tells_of_their_days(folder, monkeypatch):
    monkeypatch.setenv("FINTRADING_CACHE", str(folder / "cache"))
    boards = [
        process("leaderboard", "--cells", "spy_bear_2022", "--seeds", 2, "--json", name, cwd=folder).stdout
        for name in ("a.json", "b.json")
    ]
    assert boards[0] == boards[1]
    assert (folder / "a.json").read_bytes() == (folder / "b.json").read_bytes()
    rows = [row for row in json.loads((folder / "a.json").read_text()) if row["agent"] in LEARNERS.split(",")[:-1]]
    assert [(row["seed"], row["policy_seed"], row["trained_until"]) for row in rows] == [
        (seed, seed, "2021-12-31") for _ in range(3) for seed in range(2)
    ]
    assert len(list((folder / "cache/policies").glob("*.npz"))) == 6


def test_all_personas_can_be_asked_for():
    done = run("leaderboard", "--agents", "flat,random", "--cells", "tsla_main", "--personas", "all", "--seeds", 1)
    assert "0.708" in done.stdout


def test_data_check_holds_the_bundled_tables_against_the_manifest(monkeypatch, tmp_path, capsys):
    for path in DATA.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "SPY.csv").write_text((DATA / "SPY.csv").read_text().replace("368.79", "368.78", 1))
    monkeypatch.setattr("fintrading_gym.windows.DATA", tmp_path)
    with pytest.raises(typer.Exit) as end:
        cli.data_check(None)
    assert end.value.exit_code == 1
    assert "BAD  SPY.csv: sha256" in capsys.readouterr().out


def test_data_fetch_writes_where_it_is_told(monkeypatch, tmp_path, capsys):
    asked = []

    def fetch(ticker, first, last, path):
        asked.append((ticker, first, last, path))
        return bundled("SPY")

    monkeypatch.setattr("fintrading_gym.fetch.fetch", fetch)
    cli.data_fetch("IBM", "2024-01-02", "2024-06-28", tmp_path / "x.csv")
    cli.data_fetch("IBM", "2024-01-02", "2024-06-28", None)
    assert [call[3] for call in asked] == [tmp_path / "x.csv", Path("IBM.csv")]
    assert "627 days" in capsys.readouterr().out


def test_agents_lists_a_broken_plugin_with_its_fault(monkeypatch, capsys):
    point = EntryPoint("evil", "no_such_module_at_all:agent", "fintrading_gym.agents")
    monkeypatch.setattr(cli, "registered", lambda: {"evil": point, **registered()})
    cli.agents()
    told = capsys.readouterr().out
    assert "cannot be loaded" in " ".join(told.split())
    assert "buy_and_hold" in told


def test_the_seed_of_play_reaches_the_agent():
    plays = [run("play", "random", "--seed", seed, "--timesteps", 20, "--json").stdout for seed in (1, 1, 2)]
    assert plays[0] == plays[1] != plays[2]


def test_data_check_tells_every_bad_file_and_ends_with_1(tmp_path):
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    good.write_bytes((DATA / "SPY.csv").read_bytes())
    bad.write_text((DATA / "SPY.csv").read_text().replace("368.79", "-368.79", 1))
    done = run("data", "check", bad, good, tmp_path / "none.csv", code=1)
    assert "BAD  bad.csv, row 1 (2021-01-04), column close: -368.79 is not a positive price" in done.stdout
    assert "ok   good.csv" in done.stdout
    assert "none.csv: cannot be read" in done.stdout
