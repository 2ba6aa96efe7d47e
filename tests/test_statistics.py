"""What a board's rows allow to conclude: laws that must hold whatever the scores, and boards that are known."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from conftest import board_row
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from fintrading_gym import metrics
from fintrading_gym.inference import holm, signed_rank
from fintrading_gym.leaderboard import plan, run
from fintrading_gym.observations import PERSONAS
from fintrading_gym.rollout import Task, find_player
from fintrading_gym.statistics import analyse, count_trials, in_words, measured
from fintrading_gym.windows import EVALUATION

RNG = np.random.default_rng


def seeded(agent, cell, scores, persona=None):
    return [board_row(agent, score, cell, persona, seed) for seed, score in enumerate(scores)]


def board(agents=("a", "b", "c"), cells="wxyz", seeds=5, seed=0, **better):
    """Each agent's scores on each cell, drawn alike but for what `better` adds to an agent's."""
    rng = RNG(seed)
    return [
        row
        for agent in agents
        for cell in cells
        for row in seeded(agent, cell, rng.normal(0.5, 0.05, seeds) + better.get(agent, 0.0))
    ]


def of(found, *agents):
    """The comparison of two agents, or the standing of one."""
    if len(agents) == 1:
        return next(s for s in found.standings if s.agent == agents[0])
    return next(c for c in found.comparisons if {c.better, c.worse} == set(agents))


# -------------------------------------------------------------------------------------- the laws

SCORES = st.floats(0, 1).map(lambda score: round(score, 3))


@st.composite
def boards(draw):
    """Rows of two to four agents; some ignore the persona, some the seed, some fail."""
    rows = []
    for agent in "abcd"[: draw(st.integers(2, 4))]:
        personas = draw(st.sampled_from([(None,), PERSONAS]))
        seeds = draw(st.sampled_from([(None,), (0, 1), (0, 1, 2)]))
        fails = draw(st.booleans()) and draw(st.booleans())
        rows += [
            board_row(agent, draw(SCORES), cell, persona, seed, failure="gone" if fails else None)
            for cell in "uvwxyz"
            for persona in personas
            for seed in seeds
        ]
    return rows


@settings(max_examples=20)
@given(boards(), st.randoms())
def test_the_order_of_the_rows_changes_no_bit(rows, random):
    assert analyse(rows, resamples=50) == analyse(random.sample(rows, len(rows)), resamples=50)


@settings(max_examples=20)
@given(boards(), st.permutations("abcd"))
def test_names_decide_nothing_but_the_order_of_equals(rows, names):
    known = dict(zip("abcd", names, strict=True))
    found, renamed = (
        analyse(its, resamples=50) for its in (rows, [row | {"agent": known[row["agent"]]} for row in rows])
    )
    means = [s.means["score"] for s in found.standings if s.means]
    assume(len(set(means)) == len(means))
    for s in found.standings:
        other = of(renamed, known[s.agent])
        assert replace(other, agent=s.agent) == s
    for c in found.comparisons:
        other = of(renamed, known[c.better], known[c.worse])
        if c.difference > 1e-9:
            told = replace(other, better=c.better, worse=c.worse, why=c.why)
            assert (told.p, told.p_holm) == (pytest.approx(c.p), pytest.approx(c.p_holm))
            assert replace(told, p=c.p, p_holm=c.p_holm) == c


@settings(max_examples=20)
@given(boards(), st.floats(-5, 5))
def test_what_all_scores_are_raised_by_raises_the_means_and_decides_nothing(rows, more):
    found, raised = (
        analyse(its, resamples=50) for its in (rows, [row | {"score": row["score"] + more} for row in rows])
    )
    means = sorted(s.means["score"] for s in found.standings if s.means)
    assume(all(abs(low - high) > 1e-6 for low, high in pairwise(means)))
    for s in found.standings:
        other = of(raised, s.agent)
        assert (other.rank, other.rank_low, other.rank_high, other.over) == (s.rank, s.rank_low, s.rank_high, s.over)
        assert other.means.get("score", more) == pytest.approx(s.means.get("score", 0) + more)
        if "score" in s.intervals:
            ends, moved = s.intervals["score"], other.intervals["score"]
            assert (moved.low, moved.high) == pytest.approx((ends.low + more, ends.high + more), abs=1e-6)
    for c in found.comparisons:
        other = of(raised, c.better, c.worse)
        assert (other.p, other.p_holm, other.significant) == (c.p, c.p_holm, c.significant)
        assert other.pairs == c.pairs


@settings(max_examples=20)
@given(boards())
def test_statistics_are_ready_for_json_and_every_number_is_one(rows):
    text = json.dumps(asdict(analyse(rows, resamples=20)), allow_nan=False)
    assert json.loads(text)["windows"] == 6


@settings(max_examples=20)
@given(boards())
def test_no_interval_of_a_difference_holds_one_that_cannot_be(rows):
    for c in analyse(rows, resamples=0).comparisons:
        assert c.interval is None or -1 <= c.interval.low <= c.difference <= c.interval.high <= 1


@settings(max_examples=20)
@given(boards())
def test_ranks_lie_within_what_the_comparisons_leave_open(rows):
    found = analyse(rows, resamples=0)
    ranked = [s for s in found.standings if s.rank]
    for s in found.standings:
        assert (s.rank is None) == (s.rank_low is None) == (s.rank_high is None)
        assert s.rank is None or 1 <= s.rank_low <= s.rank_high <= len(ranked)


# --------------------------------------------------------------------------- equal and unequal agents


@pytest.fixture(scope="module")
def lucky():
    """The scores of real random policies on each cell's first 50 days, (4, 1500)."""
    rng = RNG(0)
    of_cells = []
    for cell in EVALUATION:
        market, _ = Task(cell).market()
        earned = [metrics.earned(market, rng.integers(3, size=len(market)))[1] for _ in range(1500)]
        of_cells.append(measured(np.array(earned), 1.0)["score"])
    return np.array(of_cells)


def equal_agents(lucky, rng, agents=20, seeds=5):
    """(agents, cells, seeds) scores."""
    return np.stack([rng.choice(scores, (agents, seeds)) for scores in lucky], axis=1)


def as_rows(scores):
    return [
        board_row(f"random{k}", score, cell, None, seed)
        for k, of_agent in enumerate(scores.tolist())
        for cell, of_cell in zip(EVALUATION, of_agent, strict=True)
        for seed, score in enumerate(of_cell)
    ]


def test_of_boards_of_twenty_equal_agents_at_most_one_in_twenty_finds_any_difference(lucky):
    # Holm's correction finds a difference if and only if the smallest of the 190 p-values, times 190, is at most 0.05.
    # About 4 % of the boards do. With 2500 of them the bound means something: had the true rate been above 5 %, so few
    # as are allowed here (Clopper-Pearson: 106) would be an event of less than 5 %.
    rng, boards, found = RNG(1), 2500, 0
    a, b = np.array(list(combinations(range(20), 2))).T
    for _ in range(boards):
        scores = equal_agents(lucky, rng).reshape(20, -1)
        differences = scores[a] - scores[b]
        ranks = np.argsort(np.argsort(abs(differences), axis=1), axis=1) + 1
        farthest = np.argmax(abs((np.sign(differences) * ranks).sum(axis=1)))
        found += int(signed_rank(differences[farthest])[0] * len(a) <= 0.05)
    assert binomtest(found, boards).proportion_ci(0.9, "exact").high <= 0.05, found


def test_a_boards_tests_are_those_and_twenty_equal_agents_keep_every_rank_open(lucky):
    scores = equal_agents(lucky, RNG(4))  # a board as most are; see above how often one is not
    found = analyse(as_rows(scores), resamples=0)
    p_values = {
        frozenset((f"random{a}", f"random{b}")): signed_rank((scores[a] - scores[b]).ravel())[0]
        for a, b in combinations(range(20), 2)
    }
    assert {frozenset((c.better, c.worse)): c.p for c in found.comparisons} == pytest.approx(p_values)
    assert sorted(c.p_holm for c in found.comparisons) == pytest.approx(sorted(holm(list(p_values.values()))))
    assert {(s.rank_low, s.rank_high) for s in found.standings} == {(1, 20)}
    assert in_words(found)[0].startswith("None of the tested pairs of agents, 190, differ by more than chance")


@pytest.mark.slow
def test_of_whole_boards_of_equal_agents_hardly_one_calls_a_difference_significant(lucky):
    # Through `analyse`, with agents that ignore seeds, personas or both among them, on sixteen windows: 100 boards. At
    # 5 % more than 9 of them would be an event of 3 %.
    rng, found = RNG(3), 0
    for _ in range(100):
        rows = []
        for k in range(8):
            personas, seeds = (PERSONAS if k % 2 else (None,)), (range(5) if k % 4 < 2 else (None,))
            rows += [
                board_row(f"random{k}", float(rng.choice(lucky[cell % 4])), f"w{cell}", persona, seed)
                for cell in range(16)
                for persona in personas
                for seed in seeds
            ]
        found += any(c.significant for c in analyse(rows, resamples=0).comparisons)
    assert found <= 9


def test_an_agent_that_is_really_better_is_found_and_its_rank_is_closed():
    found = analyse(board(b=0.2))
    for other in "ac":
        c = of(found, "b", other)
        assert (c.better, c.pair, c.pairs, c.significant, c.why) == ("b", "episodes", 20, True, "")
        assert c.p_holm >= c.p
        assert c.interval.low < 0.2 < c.interval.high
        assert (c.windows, c.windows_ahead) == (4, 4)
        assert c.improvement_interval.low <= c.improvement <= c.improvement_interval.high
    assert not of(found, "a", "c").significant
    assert (found.standings[0].agent, found.standings[0].rank_low, found.standings[0].rank_high) == ("b", 1, 1)
    assert {(s.rank_low, s.rank_high) for s in found.standings[1:]} == {(2, 3)}
    assert in_words(found)[0].startswith("2 of the tested pairs of agents, 3, differ by more than chance")
    assert in_words(found)[-1].endswith("takes many, and here there are 4")


# -------------------------------------------------------------------------------- what a pair is


def test_two_that_ignore_the_seed_meet_once_a_window_and_four_windows_are_too_few():
    rows = [board_row(agent, score, cell) for agent, score in (("a", 0.9), ("b", 0.1)) for cell in "wxyz"]
    (c,) = analyse(rows).comparisons
    assert (c.pair, c.pairs, c.p, c.significant) == ("windows", 4, None, False)
    assert c.why == "4 windows (a and b played each task once), and 6 are needed"
    assert c.improvement == 1.0
    assert c.improvement_interval is None
    (c,) = analyse(
        [*rows, *(board_row(agent, score, cell) for agent, score in (("a", 0.91), ("b", 0.1)) for cell in "uv")]
    ).comparisons
    assert (c.pairs, c.p, c.significant) == (6, 2 / 2**6, True)


def test_who_ignores_seed_and_persona_is_compared_with_the_mean_of_the_others_episodes():
    rng = RNG(0)
    mine = {cell: rng.random((3, 5)) for cell in "uvwxyz"}
    rows = [
        row
        for cell, scores in mine.items()
        for k, persona in enumerate(PERSONAS)
        for row in seeded("llm", cell, scores[k], persona)
    ]
    rows += [board_row("rule", 0.4, cell) for cell in mine]
    (c,) = analyse(rows).comparisons
    gaps = np.array([scores.mean() - 0.4 for scores in mine.values()])
    assert (c.pair, c.pairs) == ("windows", 6)
    assert c.difference == pytest.approx(abs(gaps.mean()))
    assert c.p == signed_rank(gaps)[0]
    assert c.why == ""


def test_who_ignores_the_persona_alone_meets_the_mean_over_the_others_personas_seed_by_seed():
    rng = RNG(1)
    llm, ppo = rng.random((2, 3, 4)), rng.random((2, 4))
    rows = [
        row
        for cell in range(2)
        for k, persona in enumerate(PERSONAS)
        for row in seeded("llm", f"c{cell}", llm[cell, k], persona)
    ]
    rows += [row for cell in range(2) for row in seeded("ppo", f"c{cell}", ppo[cell])]
    (c,) = analyse(rows).comparisons
    assert (c.pair, c.pairs) == ("episodes", 8)
    assert c.p == signed_rank((llm.mean(axis=1) - ppo).ravel())[0]


def test_two_that_use_both_meet_on_each_window_and_seed_since_personas_may_be_copies():
    rng = RNG(2)
    scores = rng.random((2, 4, 3, 5))
    rows = [
        row
        for agent in range(2)
        for cell in range(4)
        for k, persona in enumerate(PERSONAS)
        for row in seeded("ab"[agent], f"c{cell}", scores[agent, cell, k], persona)
    ]
    (c,) = analyse(rows).comparisons
    assert (c.pair, c.pairs) == ("episodes", 20)
    assert c.p == pytest.approx(signed_rank((scores[0] - scores[1]).mean(axis=1).ravel())[0])
    # Agents that pay no heed to the persona, and do not say so, are no surer of anything.
    once = [row for row in rows if row["persona"] == next(iter(PERSONAS))]
    copied = [row | {"persona": persona} for row in once for persona in PERSONAS]
    (alone,), (threefold,) = analyse(once).comparisons, analyse(copied).comparisons
    assert (threefold.pairs, threefold.p) == (alone.pairs, alone.p)
    assert threefold.improvement_interval == alone.improvement_interval


def test_copies_of_an_episode_are_no_evidence():
    # A stored policy says that it uses the seed, and plays one episode at every seed: five copies are one.
    rows = [
        row for agent, score in (("a", 0.9), ("b", 0.1)) for cell in "wxyz" for row in seeded(agent, cell, [score] * 5)
    ]
    (c,) = analyse(rows).comparisons
    assert (c.pair, c.pairs, c.p) == ("windows", 4, None)
    # Neither are personas that an agent pays no heed to.
    rows = [
        board_row(agent, score, cell, persona)
        for agent, score in (("a", 0.9), ("b", 0.1))
        for cell in "wxyz"
        for persona in PERSONAS
    ]
    (c,) = analyse(rows).comparisons
    assert (c.pair, c.pairs, c.p) == ("windows", 4, None)


def test_where_one_plays_the_same_at_every_seed_its_seeds_are_one_pair_a_window_and_elsewhere_they_count():
    # A model that buys every day but for one of its twelve tasks, where its seeds differ.
    rng = RNG(5)
    tasks = [(cell, persona) for cell in "wxyz" for persona in PERSONAS]
    rows = [row for cell, persona in tasks for row in seeded("b", cell, rng.random(5), persona)]
    rows += [row for cell, persona in tasks[1:] for row in seeded("a", cell, [0.6] * 5, persona)]
    rows += seeded("a", tasks[0][0], rng.random(5), tasks[0][1])
    (c,) = analyse(rows).comparisons
    assert (c.pair, c.pairs) == ("episodes", 5 + 3)


def test_windows_of_one_ticker_that_share_days_are_one():
    cells = {"tsla_main": ("TSLA", "2022-10-06", "2022-12-16"), "paper_tsla": ("TSLA", "2022-10-10", "2022-12-20")}
    cells |= {"later": ("TSLA", "2022-12-20", "2023-03-01"), "nflx": ("NFLX", "2022-10-06", "2022-12-16")}
    rows = [
        board_row(agent, score, cell, ticker=ticker, first_day=first, last_day=last)
        for agent, score in (("a", 0.9), ("b", 0.1))
        for cell, (ticker, first, last) in cells.items()
    ]
    found = analyse(rows)
    assert (found.windows, found.comparisons[0].pairs) == (3, 3)


def test_seeds_that_only_one_has_played_make_no_pair():
    rows = board(("a",), seeds=5) + board(("b",), seeds=3, seed=1)
    assert analyse(rows).comparisons[0].pairs == 12
    apart = [row | {"seed": row["seed"] + (10 if row["agent"] == "b" else 0)} for row in rows]
    assert analyse(apart).comparisons[0].why == "4 windows (they have no seed in common), and 6 are needed"


def test_scores_are_compared_and_never_what_the_days_earned():
    rows, rng = board(b=0.05), RNG(0)
    paths = [row | {"log_returns": (rng.normal(0.01 * (row["agent"] == "c"), 0.02, 50)).tolist()} for row in rows]
    assert analyse(rows).comparisons == analyse(paths).comparisons


def test_who_is_not_ranked_is_not_compared():
    rows = board() + [board_row("oracle", 1.0, cell, ranked=False) for cell in "wxyz"]
    found = analyse(rows)
    assert len(found.comparisons) == 3
    assert of(found, "oracle").rank_low is None
    with pytest.raises(ValueError, match="make no one board"):
        analyse([*rows, board_row("a", 0.5, world="mirror")])
    assert analyse([]).standings == ()


def test_means_and_ranks_that_disagree_are_no_finding():
    # a loses a little on most windows and wins a lot on one: by the mean it is ahead, by the ranks behind.
    rows = [board_row("a", 0.4 + 1e-3 * k, f"w{k}") for k in range(19)] + [
        board_row("a", 0.9, "x"),
        board_row("b", 0.1, "x"),
    ]
    rows += [board_row("b", 0.42 + 1e-3 * k * 1.01, f"w{k}") for k in range(19)]
    (c,) = analyse(rows).comparisons
    assert c.better == "a"
    assert c.p_holm < 0.05
    assert (c.significant, c.why) == (False, "its pairs' ranks do not favour who has the higher mean")


# ------------------------------------------------------------------------------- one agent's numbers


def test_the_interval_over_seeds_is_students_over_the_seeds_means():
    scores = RNG(0).random((4, 5))
    rows = [row for cell, of_cell in zip("wxyz", scores, strict=True) for row in seeded("a", cell, of_cell)]
    (s,) = analyse(rows).standings
    means, t = scores.mean(axis=0), 2.776445105
    half = t * means.std(ddof=1) / 5**0.5
    assert s.over == "5 seeds"
    assert (s.intervals["score"].low, s.intervals["score"].high) == pytest.approx(
        (means.mean() - half, means.mean() + half)
    )


@pytest.fixture(scope="module")
def rules():
    names = ("buy_and_hold", "flat", "momentum", "random", "oracle")
    tasks = [Task(cell, seed=seed) for cell in EVALUATION for seed in range(3)]
    return [row for _, row, _ in run(plan([find_player(name) for name in names], tasks))]


def test_who_plays_once_has_an_interval_over_days_that_holds_its_score(rules):
    found = analyse(rules)
    assert {s.agent: s.over for s in found.standings} == {
        **dict.fromkeys(("buy_and_hold", "flat", "momentum", "oracle"), "days"),
        "random": "3 seeds",
    }
    for s in found.standings:
        ends = s.intervals["score"]
        assert ends.low - 1e-12 <= s.means["score"] <= ends.high + 1e-12
        assert ends.low >= 0.0
        assert ends.high <= 1.0 or s.agent == "random"
    assert of(found, "flat").intervals["score"].high == pytest.approx(17 / 24)  # it risks nothing, whatever the days
    assert "excess" not in of(found, "momentum").intervals  # the market's days are not in the rows
    assert "excess" in of(found, "random").intervals


def test_one_episode_says_so_and_without_daily_returns_there_is_no_interval(rules):
    alone = [row for row in rules if row["agent"] == "momentum"]
    assert analyse(alone[:1]).standings[0].over == "the days of one episode"
    told = analyse([{key: value for key, value in row.items() if key != "log_returns"} for row in alone]).standings[0]
    assert (told.intervals, told.over, told.deflated_sharpe) == ({}, "one seed, and no daily returns", None)
    short = analyse([row | {"log_returns": row["log_returns"][:9]} for row in alone]).standings[0]
    assert (short.intervals, short.over) == ({}, "one seed, and fewer than 10 days")


def test_personas_that_live_through_the_same_days_do_not_make_them_more(rules):
    alone = [row for row in rules if row["agent"] == "momentum"]
    thrice = [row | {"persona": persona} for row in alone for persona in PERSONAS]
    one, three = (analyse(rows).standings[0] for rows in (alone, thrice))
    assert {name: asdict(ends) for name, ends in three.intervals.items()} == {
        name: pytest.approx(asdict(ends)) for name, ends in one.intervals.items()
    }
    assert three.deflated_sharpe == pytest.approx(one.deflated_sharpe)


def test_the_interval_over_days_covers_the_expected_score_about_as_often_as_it_says():
    # Of 100 episodes of 50 normal days, whose expected score is known, 95 should be covered.
    rng = RNG(0)
    truth = measured(rng.normal(0.001, 0.03, (50_000, 50)), 1.0)["score"].mean()
    covered = 0
    for r in rng.normal(0.001, 0.03, (100, 50)):
        row = board_row("a", 0.5, log_returns=r.tolist(), score_discipline=1.0)
        ends = analyse([row], resamples=200).standings[0].intervals["score"]
        covered += ends.low <= truth <= ends.high
    assert covered >= 88


def test_many_series_are_measured_as_metrics_measures_one():
    rng = RNG(0)
    series = np.array([*rng.normal(0, 0.03, (5, 50)), np.zeros(50), np.full(50, -0.01), rng.normal(0.5, 0.1, 50)])
    found = measured(series, 0.9)
    for k, r in enumerate(series):
        valid = [True] * 45 + [False] * 5
        whole = metrics.summary(r, np.zeros(50), valid)
        assert {name: values[k] for name, values in found.items()} == pytest.approx(
            {name: whole[name] for name in found}
        )


def test_the_deflated_sharpe_ratio_falls_with_what_was_tried(rules):
    found = analyse(rules, resamples=0)
    assert found.trials == count_trials(rules) == 4  # the oracle was no try
    more = analyse(rules, trials=50, resamples=0)
    for agent in ("buy_and_hold", "momentum", "random"):
        assert of(more, agent).deflated_sharpe < of(found, agent).deflated_sharpe
    assert of(found, "oracle").deflated_sharpe > 0.999
    assert of(found, "flat").deflated_sharpe is None  # no variance, no ratio
    assert analyse(rules, trials=1, resamples=0).trials == 4


def test_tries_are_agents_and_settings_the_failed_and_the_unranked_too():
    rows = [board_row("a", 0.5), board_row("a", 0.5, "b"), board_row("llm", 0.5, coverage=0.1)]
    rows += [board_row("llm", 0.5, identity="coarse"), board_row("dead", None, failure="gone", identity=None)]
    rows += [board_row("a", None, "c", failure="gone", identity=None), board_row("oracle", 1.0, ranked=False)]
    assert count_trials(rows) == 4


def test_the_same_bytes_in_every_process(rules, tmp_path):
    (tmp_path / "rows.json").write_text(json.dumps(rules))
    code = (
        "import json, sys; from dataclasses import asdict; from fintrading_gym.statistics import analyse;"
        "print(json.dumps(asdict(analyse(json.load(open(sys.argv[1])), resamples=100))))"
    )
    command = [sys.executable, "-c", code, tmp_path / "rows.json"]
    hashed = {**os.environ, "PYTHONHASHSEED": "7"}  # sets in another order
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=hashed)
    assert done.stdout == json.dumps(asdict(analyse(rules, resamples=100))) + "\n"
