"""The rule of the design: imports point one way, and importing the game is light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# From the top to the ground: a package may import itself and what stands right of it.
ORDER = ("benchmarks", "fintrading_eval", "fintrading_agents", "fintrading_gym")
CLIENTS = ("openai", "tenacity", "genai_prices", "xllamacpp")
HEAVY = (
    "pandas",
    "matplotlib",
    "torch",
    "stable_baselines3",
    "typer",
    "rich",
    "yfinance",
    "numba",
    "scipy",
    "arch",
    *CLIENTS,
)
# Inside the game: what each of the low modules may import of the package.
GROUND = {
    "errors": set(),
    "metrics": set(),
    "replies": set(),
    "windows": {"errors"},
    "masking": {"errors", "windows"},
    "worlds": {"errors", "windows"},
    "observations": {"masking", "windows"},
    "ledger": {"metrics", "replies"},
    "inference": {"errors"},
}


def _sources(package: str) -> list[Path]:
    folder = {"fintrading_agents": "agents/fintrading_agents", "fintrading_eval": "agents/fintrading_eval"}
    return sorted((ROOT / folder.get(package, package)).rglob("*.py"))


def _imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("package", ORDER)
def test_imports_point_one_way(package):
    above = set(ORDER[: ORDER.index(package)])
    for path in _sources(package):
        assert not {name.split(".")[0] for name in _imported(path)} & above, path


@pytest.mark.parametrize("module", GROUND)
def test_the_ground_modules_stand_on_what_the_design_allows(module):
    inside = {
        name.split(".")[1]
        for name in _imported(ROOT / f"fintrading_gym/{module}.py")
        if name.startswith("fintrading_gym.")
    }
    known = {path.stem for path in _sources("fintrading_gym")}
    assert inside & known <= GROUND[module]


def test_metrics_need_numpy_alone_and_replies_the_standard_library():
    allowed = set(sys.stdlib_module_names)
    assert {n.split(".")[0] for n in _imported(ROOT / "fintrading_gym/replies.py")} <= allowed
    assert {n.split(".")[0] for n in _imported(ROOT / "fintrading_gym/metrics.py")} <= allowed | {"numpy"}


def test_importing_the_game_loads_nothing_heavy():
    code = f"import sys, fintrading_gym; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_importing_the_game_costs_little_beside_gymnasium():
    # Counted in modules, not seconds: what is loaded is the same on every machine.
    code = (
        "import sys, gymnasium; before = set(sys.modules); import fintrading_gym;"
        "print(sorted(m for m in set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ast.literal_eval(done.stdout) == ["fintrading_gym"]


def test_importing_the_statistics_loads_no_library_of_statistics():
    code = "import sys, fintrading_gym.statistics; print('scipy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_board_loads_of_scipy_what_is_quick_to_load():
    code = (
        "import atexit, sys; from fintrading_gym import cli;"
        "atexit.register(lambda: print([m for m in ('scipy.special', 'scipy.stats', 'arch') if m in sys.modules]));"
        "sys.argv[1:] = 'leaderboard --agents flat,momentum --cells tsla_main --seeds 1'.split(); cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "['scipy.special']"


def test_importing_the_seat_loads_no_model_client():
    code = f"import sys, fintrading_agents.llm; print([m for m in {CLIENTS!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
