"""`fintrading train`, and how packages bring commands."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from importlib.util import find_spec

import pytest
import typer
from conftest import fintrading
from typer.testing import CliRunner

from fintrading_agents import commands
from fintrading_agents.policies import load
from fintrading_gym import cli
from fintrading_gym.rollout import Task, find_player

LEARNS = pytest.mark.skipif(not find_spec("stable_baselines3"), reason="needs the extra rl")


def run(*words):
    return CliRunner().invoke(cli.app, [str(word) for word in words])


@LEARNS
def test_train_writes_a_policy_a_seed_and_says_how_to_play_it(tmp_path):
    words = ("--cell", "spy_bear_2022", "--seeds", 2, "--steps", 300, "--tickers", "NVDA, TSLA", "--cost-bps", 2)
    done = run("train", "a2c", *words, "--out", tmp_path / "mine", "--tensorboard", tmp_path / "logs")
    assert done.exit_code == 0, done.output
    files = sorted((tmp_path / "mine").iterdir())
    assert len(files) == 2
    for seed, path in enumerate(files):
        recipe = load(path).recipe
        assert (recipe["seed"], recipe["game"]["cost_bps"], recipe["hyperparameters"]["steps"]) == (seed, 2.0, 300)
        assert [span["ticker"] for span in recipe["days"]] == ["SPY", "NVDA", "TSLA"]
        assert f"a2c:{path}" in done.stdout
        assert find_player(f"a2c:{path}").play(Task("spy_bear_2022", cost_bps=2.0)).failure is None
    assert "learned until 2021-12-31" in done.stdout
    assert len(list((tmp_path / "logs").rglob("events.out.tfevents.*"))) == 2


@LEARNS
def test_without_a_folder_it_fills_the_cache_that_boards_look_into(tmp_path, monkeypatch):
    monkeypatch.setenv("FINTRADING_CACHE", str(tmp_path))
    assert run("train", "ppo", "--steps", 300).exit_code == 0
    assert len(list((tmp_path / "policies").iterdir())) == 1


def test_an_interrupt_keeps_the_policies_that_are_finished_and_ends_with_130(tmp_path, monkeypatch):
    from test_policies import policy_of

    def learned(algorithm, task, *_):
        if task.seed == 1:
            raise KeyboardInterrupt
        return policy_of(task)

    monkeypatch.setattr(commands, "learn", learned)
    done = run("train", "ppo", "--seeds", 3, "--out", tmp_path)
    assert done.exit_code == 130
    assert [load(path).recipe["seed"] for path in tmp_path.iterdir()] == [0]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("pp0",), "Did you mean 'ppo'"),
        (("ppo", "--cell", "tsla_man"), "Did you mean 'tsla_main'"),
        (("ppo", "--tickers", "NVD"), "Did you mean 'NVDA'"),
        (("ppo", "--hold", "kep"), "Did you mean 'keep'"),
        (("ppo", "--cell", "TSLA:2021-02-01:2021-06-01"), "has 19 days before it in TSLA.csv"),
        (("a2c", "--cell", "TSLA:2021-10-01:2022-06-01"), "were chosen on days up to 2021-12-31"),
    ],
)
def test_bad_usage_is_one_line_and_ends_with_2(words, told, tmp_path):
    done = fintrading("train", *words, "--out", tmp_path / "new", code=2)
    assert told in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "new").exists()


def test_without_the_extra_it_says_what_to_install(tmp_path):
    code = "import sys; sys.modules['stable_baselines3'] = None; from fintrading_gym.cli import main; main()"
    words = [sys.executable, "-c", code, "train", "ppo", "--out", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2
    told = "fintrading: Training ppo needs an extra that is not installed. Run: pip install 'fintrading-gym[rl]'"
    assert done.stderr.strip() == told


# ----------------------------------------------------------------------------------- commands of packages


def greet(name: str) -> None:
    """Says hello."""
    print(f"hello {name}")


several = typer.Typer(help="Two of them.")


@several.command()
def one() -> None:
    """The first."""
    print("one")


@several.command()
def two() -> None:
    """The second."""


def test_a_package_brings_a_function_or_a_typer_and_nothing_is_loaded_before_it_is_asked_for(monkeypatch):
    brought = {
        "greet": EntryPoint("greet", f"{__name__}:greet", cli.COMMANDS),
        "several": EntryPoint("several", f"{__name__}:several", cli.COMMANDS),
        "broken": EntryPoint("broken", "no_such_module:f", cli.COMMANDS),
    }
    monkeypatch.setattr(cli, "_brought", lambda: brought)
    assert run("greet", "you").stdout == "hello you\n"
    assert run("several", "one").stdout == "one\n"
    assert "Says hello." in run("greet", "--help").stdout
    assert run("cells").exit_code == 0  # the broken one is not in the way
    assert isinstance(run("broken").exception, ModuleNotFoundError)
