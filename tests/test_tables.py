"""What is printed of a board: how sure each rank is, what differs, what does not, and why somebody is not ranked."""

import numpy as np
import pytest
from conftest import board_row

from fintrading_gym import inference, tables
from fintrading_gym.observations import PERSONAS


@pytest.fixture
def printed(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "120")

    def prints(rows):
        tables.print_boards(rows)
        text = capsys.readouterr().out
        assert max(map(len, text.splitlines())) <= 120
        return text

    return prints


def _seeded(agents, personas=(None,), cells="wxyz", seeds=5):
    rng = np.random.default_rng(0)
    return [
        board_row(agent, more + rng.normal(0.5, 0.05), cell, persona, seed)
        for agent, more in agents.items()
        for cell in cells
        for persona in personas
        for seed in range(seeds)
    ]


def line(text, start):
    return next(line.split() for line in text.splitlines() if line.startswith(start))


def test_a_board_shows_intervals_open_ranks_and_the_differences_that_are_significant(printed):
    text = printed(_seeded({"llm": 0.2, "ppo": 0.0, "dqn": 0.0}))
    sure = text[text.index("How sure that is") :]
    assert line(sure, " 1")[:3] == ["1", "1-1", "llm"]
    assert line(sure, " 2")[1] == line(sure, " 3")[1] == "2-3"
    assert line(sure, " 1")[3].startswith("0.6")
    assert line(sure, " 1")[-3:-1] == ["5", "seeds"]
    differ = text[text.index("What differs by more than chance") :]
    assert line(differ, " llm")[:2] in (["llm", "ppo"], ["llm", "dqn"])
    assert "4 of 4" in differ
    assert "20 episodes" in differ
    assert "2 of the tested pairs of agents, 3, differ by more than chance" in text
    assert "here there are 4" in " ".join(text.split())


def test_a_board_without_a_difference_says_so_in_a_sentence(printed):
    text = printed(_seeded({"a": 0.0, "b": 0.0}))
    assert "What differs by more than chance" not in text
    assert "None of the tested pairs of agents, 1, differ by more than chance" in text
    assert "Not shown to be worse than the first" in text


def test_too_few_pairs_are_told(printed):
    text = printed([board_row(agent, score, cell) for agent, score in (("a", 0.9), ("b", 0.1)) for cell in "wxyz"])
    assert "No agent is shown to be better than another\n" in text
    told = "One pair of agents is not tested: it takes 6 windows, or as many seeds where both play anew at each seed"
    assert told in text
    assert "- (one seed, and no daily returns)" in text


def test_without_the_extra_a_board_is_printed_as_before_and_names_the_install(printed, monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(inference, "import_module", missing)
    text = printed(_seeded({"a": 0.1, "b": 0.0}))
    assert "sd: of the score over" in text
    assert text.count("pip install 'fintrading-gym[stats]'") == 1
    assert "a gap within the sd is no difference in skill" in text
    assert "How sure" not in text


def test_a_counterfactual_board_ranks_nobody_and_says_so_once(printed):
    text = printed([row | {"world": "mirror"} for row in _seeded({"a": 0.2, "b": 0.0})])
    assert "Leaderboard (mirror world)" in text
    assert text.count("nobody is ranked here: the mirror world never happened") == 1
    assert "is not ranked" not in text
    assert line(text, " -")[:2] == ["-", "a"]


def test_whoever_is_not_ranked_stands_apart_with_the_reason(printed):
    rows = _seeded({"a": 0.1, "b": 0.0})
    rows += [board_row("late", 0.9, cell, trained_until="2022-06-30") for cell in "wxyz"]
    rows += [board_row("oracle", 1.0, cell, ranked=False) for cell in "wxyz"] + [board_row("a", 0.1, "extra", seed=0)]
    text = printed(rows)
    assert "late is not ranked: was trained on days up to 2022-06-30, and w begins on 2022-01-03" in text
    assert "oracle is not ranked: knows the future" in text
    assert "left out, since most of the agents have not played it: extra" in text
    assert [row.split()[1] for row in text.splitlines()[4:8]] == ["a", "b", "oracle", "late"]


def test_long_boards_stay_within_120_columns(printed):
    names = {f"llm:openai/a-model-of-some-name-{k}": k / 20 for k in range(5)}
    text = printed(_seeded(names, PERSONAS, cells=("tsla_main", "tsla_ablation", "spy_bear_2022", "nvda_bull_2023")))
    assert "…" not in text
    assert "[context=full]" in printed(_seeded({"llm:x [context=full]": 0.1, "b": 0.0}))
