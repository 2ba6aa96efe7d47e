"""The wheel: what it owns, and that it plays where there is no checkout."""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OWNED = {"fintrading_gym", "fintrading_agents", "fintrading_eval"}

# Another distribution's top-level packages of the names that ours must not take.
NEIGHBOUR = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "neighbour"
version = "1.0"
[tool.hatch.build.targets.wheel]
packages = ["agents", "data"]
"""

EPISODE = """
import gymnasium as gym, pathlib, fintrading_gym
from fintrading_gym.rollout import Task, find_player
from fintrading_gym.windows import DATA, TICKERS, bundled
assert DATA.parent == pathlib.Path(fintrading_gym.__file__).parent, DATA
assert [len(bundled(t).date) for t in TICKERS].count(627) == 9
episode = find_player("buy_and_hold").play(Task("nvda_bull_2023", timesteps=None))
print(round(sum(episode.ledger.log_return), 4))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


@pytest.mark.slow
def test_the_wheel_owns_its_packages_alone_and_carries_the_data(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == OWNED
    assert sum(name.startswith("fintrading_gym/data/") and name.endswith(".csv") for name in names) == 10
    assert {"fintrading_gym/data/manifest.json", "fintrading_gym/data/README.md", "fintrading_gym/py.typed"} <= set(
        names
    )
    page = {f"fintrading_gym/report/{file}" for file in ("page.html", "page.css", "script/main.js")}
    assert page <= set(names)


@pytest.mark.slow
def test_the_wheel_plays_in_a_fresh_environment_beside_packages_called_agents_and_data(wheel, tmp_path):
    neighbour = tmp_path / "neighbour"
    for package in ("agents", "data"):
        (neighbour / package).mkdir(parents=True)
        (neighbour / package / "__init__.py").write_text("MINE = True\n")
    (neighbour / "pyproject.toml").write_text(NEIGHBOUR)
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv/bin/python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt"]
    subprocess.run([*pip, wheel, neighbour], check=True, capture_output=True)
    played = subprocess.run([python, "-c", EPISODE], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert played.stdout.strip() == "1.0838"
    theirs = "import agents, data; print(agents.MINE and data.MINE)"
    assert subprocess.run([python, "-c", theirs], cwd=tmp_path, check=True, capture_output=True).stdout == b"True\n"
    listed = subprocess.run([tmp_path / "venv/bin/fintrading", "cells"], cwd=tmp_path, check=True, capture_output=True)
    assert b"tsla_main" in listed.stdout


@pytest.mark.slow
def test_a_bare_checkout_finds_its_tables():
    code = "from fintrading_gym.windows import DATA, bundled; print(DATA, len(bundled('TSLA').date))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == [str(ROOT / "data"), "627"]
