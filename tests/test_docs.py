"""The pages of docs/: snippets run and print what is said, and tables name all that there is."""

import contextlib
import inspect
import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fintrading_agents.memory.constants import CONSTANTS, LAYER_OF
from fintrading_agents.memory.embeddings import KINDS as EMBEDDINGS
from fintrading_agents.memory.prompts import RULES
from fintrading_agents.models.cache import MODES
from fintrading_agents.models.names import PROVIDERS
from fintrading_agents.models.reply import KINDS, STRUCTURED
from fintrading_agents.models.scripted import SCRIPTS
from fintrading_agents.models.session import Settings
from fintrading_gym.flags import AGENT_FLAGS, MODEL_FLAGS, written
from fintrading_gym.inference import EXACT, FEWEST_DAYS, FEWEST_PAIRS
from fintrading_gym.ranking import MIN_COVERAGE, SEEN
from fintrading_gym.report.command import report
from fintrading_gym.report.contents import TEXTS
from fintrading_gym.rollout import find_player

MODELS = (Path(__file__).resolve().parent.parent / "docs/models.md").read_text()


def test_the_snippet_about_models_prints_what_the_page_says():
    (code,), (said,) = (re.findall(rf"^```{kind}\n(.*?)^```", MODELS, re.S | re.M) for kind in ("python", "text"))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "models.md", "exec"), {})
    assert printed.getvalue() == said


def test_the_snippet_about_the_statistics_prints_what_the_page_says(capsys):
    page = (Path(__file__).resolve().parent.parent / "docs/leaderboard.md").read_text()
    section = page[page.index("## How to read the statistics") :]
    (code, *_), (said, *_) = (
        re.findall(rf"^```{kind}\n(.*?)^```", section, re.S | re.M) for kind in ("python", "text")
    )
    exec(compile(code, "leaderboard.md", "exec"), {})
    assert capsys.readouterr().out == said


def test_the_page_about_the_board_has_the_limits_of_its_tests_and_gates():
    page = (Path(__file__).resolve().parent.parent / "docs/leaderboard.md").read_text()
    told = [
        f"up to {EXACT} pairs",
        f"fewer than {FEWEST_DAYS} days",
        f"less than {MIN_COVERAGE:.0%}".replace("%", " %"),
    ]
    assert [words for words in (*told, *(f"`{fact}`" for fact in SEEN)) if words not in page] == []
    assert FEWEST_PAIRS == 6  # "It takes six windows"


def test_the_snippet_about_the_guard_hides_names_and_brings_them_back(capsys):
    page = (Path(__file__).resolve().parent.parent / "docs/guard.md").read_text()
    exec(compile(re.search(r"^```python\n(.*?)^```", page, re.S | re.M)[1], "guard.md", "exec"), {})
    hidden, restored = capsys.readouterr().out.splitlines()
    assert hidden.startswith("Company-001 (NASDAQ: Company-001) fell to $92.13 on Date-0001, said Person-")
    assert restored == "Sell **Tesla, Inc.**, target $205.81."


def test_the_page_about_the_guard_has_the_figures_of_its_benchmark():
    root = Path(__file__).resolve().parent.parent
    page = (root / "docs/guard.md").read_text()
    figures = json.loads((root / "benchmarks/results/identify.json").read_text())
    assert [name for name, share in figures.items() if f"| {name} | {share * 100:.1f} % |" not in page] == []


def test_the_snippet_about_processes_plays_four_seeds(tmp_path):
    page = (Path(__file__).resolve().parent.parent / "docs/leaderboard.md").read_text()
    script = tmp_path / "board.py"
    section = page[page.index("## In parallel, and on a cluster") :]
    script.write_text(re.search(r"^```python\n(.*?)^```", section, re.S | re.M)[1])
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert sorted(line.split()[0] for line in done.stdout.splitlines()) == ["0", "1", "2", "3"], done.stderr


@pytest.mark.parametrize("table", [KINDS, MODES, {"auto": 0, **STRUCTURED}])
def test_the_page_about_models_has_a_row_for_every_entry(table):
    assert [name for name in table if f"| `{name}` |" not in MODELS] == []


def test_the_page_about_models_names_every_provider_and_script():
    assert all(f"| `{name}/" in MODELS for name in PROVIDERS)
    assert all(f"`{name}`" in MODELS for name in SCRIPTS)


def test_every_flag_of_models_is_an_option_that_the_seat_takes():
    assert MODEL_FLAGS.keys() <= set(find_player("llm:openai/x").traits.options)
    settings = Settings()
    assert (settings.attempts, settings.timeout, settings.in_flight) == (5, 120, 12)  # as the page says
    assert Settings(pauses="stepped").attempts == 4
    assert Settings(pauses="stepped", attempts=2).attempts == 2
    assert "`--pauses stepped` is another way: four attempts" in MODELS


FINMEM = (Path(__file__).resolve().parent.parent / "docs/finmem.md").read_text()


def test_the_snippet_about_the_memory_prints_what_the_page_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (code,), (said,) = (re.findall(rf"^```{kind}\n(.*?)^```", FINMEM, re.S | re.M) for kind in ("python", "text"))
    exec(compile(code, "finmem.md", "exec"), {})
    assert capsys.readouterr().out == said


def test_the_page_about_the_memory_names_every_flag_and_all_that_a_flag_may_say():
    flags = [name for name, (_, whose, _) in AGENT_FLAGS.items() if "finmem" in whose]
    assert [name for name in flags if f"| `{written(name)}` |" not in FINMEM] == []
    assert [name for name in (*CONSTANTS, *EMBEDDINGS, *RULES) if f"`{name}`" not in FINMEM] == []
    assert [kind for kind in LAYER_OF if "-" in kind and f"`{kind}`" not in FINMEM] == []


def test_the_page_about_the_memory_tells_the_speed_that_lies_beside_the_benchmark():
    found = json.loads((Path(__file__).resolve().parent.parent / "benchmarks/results/memory.json").read_text())
    times = found["milliseconds"]["10000"]
    processor, clock = times["recall"]["processor"], times["recall"]["clock"]
    told = " ".join(FINMEM.split())
    assert f"among 10,000 memories takes {processor['p50']} ms of processor time (p95: {processor['p95']})" in told
    assert f"{times['recall / product, of pairs']['p50']} times the bare product" in told
    assert f"a clock saw {clock['p50']} ms (p95: {clock['p95']})" in told
    assert processor["p95"] < 5


def test_the_page_about_the_memory_has_the_constants_of_the_tables():
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in FINMEM.splitlines() if line[:2] == "| "]
    table = {row[0]: row[1:] for row in rows if len(row) == 3}
    for column, (name, constants) in enumerate(CONSTANTS.items()):
        shallow, intermediate, deep = (constants.layers[layer] for layer in ("shallow", "intermediate", "deep"))

        def told(row, column=column):
            cell = table[row][column]
            return [float(n) for n in re.findall(r"[\d.]*\d", table[row][0] if cell == "the same" else cell)]

        assert f"`{name}`" in table[""][column]
        layers = (shallow, intermediate, deep)
        assert told("Q of recency, exp(-age / Q): shallow, intermediate, deep") == [row.stability for row in layers]
        assert told("daily decay of importance") == [row.decay for row in layers]
        for label, row in (
            ("importance of what is new, shallow", shallow),
            ("intermediate", intermediate),
            ("deep", deep),
        ):
            assert told(label) == [*row.values, *row.chances]
        assert told("forgotten below") == [constants.least_recency, constants.least_importance]
        assert told("promoted from shallow, from intermediate") == [shallow.up, intermediate.up]
        down = [row.down for row in (intermediate, deep) if row.down is not None]
        assert told("demoted from intermediate, from deep") == down
        assert told("K") == [constants.top_k]
        assert constants.reflections in table["reflections"][column]


def the_page():
    """The section about the page of a board."""
    page = (Path(__file__).resolve().parent.parent / "docs/leaderboard.md").read_text()
    return re.search(r"^## The page\n(.*?)(?=^## |\Z)", page, re.S | re.M)[1]


def test_the_commands_that_make_a_page_run_in_turn(tmp_path):
    commands = re.search(r"^```bash\n(.*?)^```", the_page(), re.S | re.M)[1].splitlines()
    program = Path(sys.executable).with_name("fintrading")
    for command in commands:
        words = shlex.split(command, comments=True)[1:]
        done = subprocess.run([program, *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "board.html").read_text().startswith("<!doctype html>")


def test_every_option_of_a_page_is_told():
    options = inspect.signature(report).parameters.keys() - {"board"}
    written = {"audits": "audit"}
    assert [name for name in options if f"`--{written.get(name, name)} " not in the_page()] == []
    assert all(f"`{name}`" in the_page() or f"--texts {name}`" in the_page() for name in TEXTS)
