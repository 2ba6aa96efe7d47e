"""The pages of docs/: snippets run and print what is said, and tables name all that there is."""

import contextlib
import io
import json
import re
from pathlib import Path

import pytest

from fintrading_agents.models.cache import MODES
from fintrading_agents.models.names import PROVIDERS
from fintrading_agents.models.reply import KINDS, STRUCTURED
from fintrading_agents.models.scripted import SCRIPTS
from fintrading_agents.models.session import Settings
from fintrading_gym.flags import MODEL_FLAGS
from fintrading_gym.inference import EXACT, FEWEST_DAYS, FEWEST_PAIRS
from fintrading_gym.ranking import MIN_COVERAGE, SEEN
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
