"""Who is ranked beside whom: the tasks of a board, every gate, and the order of the rest."""

import pytest
from conftest import board_row
from hypothesis import given
from hypothesis import strategies as st

from fintrading_gym.leaderboard import as_row, plan, run
from fintrading_gym.observations import PERSONAS
from fintrading_gym.ranking import AVERAGED, board_tasks, by_world, left_out, rank
from fintrading_gym.rollout import Player, Task, find_player
from fintrading_gym.windows import EVALUATION

FAILED = {"coverage": 0.0, "failure": "day 3: OSError: gone"}


def test_agents_are_ranked_by_their_mean_score_and_equals_share_a_rank():
    scores = {"c": (0.5, 0.5), "a": (0.9, 0.3), "b": (0.6, 0.6), "d": (0.1, 0.1)}
    rows = [
        board_row(agent, score, cell) for agent, its in scores.items() for cell, score in zip("xy", its, strict=True)
    ]
    assert [(s.agent, s.rank) for s in rank(rows)] == [("a", 1), ("b", 1), ("c", 3), ("d", 4)]
    assert rank(rows)[0].cells == {"x": 0.9, "y": 0.3}
    assert [s.spread for s in rank(rows)] == [pytest.approx(0.6 / 2**0.5), 0, 0, 0]
    assert rank([board_row("a", 0.5)])[0].spread is None
    assert rank([]) == []


def test_a_standing_is_the_mean_over_personas_and_never_the_best_of_them():
    mine = [
        board_row("finmem", score, cell, persona)
        for cell in "xy"
        for persona, score in zip(PERSONAS, (0.9, 0.2, 0.1), strict=True)
    ]
    rule = [board_row("rule", 0.5, cell) for cell in "xy"]
    first, second = rank(mine + rule)
    assert (first.agent, second.agent, second.episodes) == ("rule", "finmem", 6)
    assert second.means["score"] == pytest.approx(0.4)
    assert second.cells == {cell: pytest.approx(0.4) for cell in "xy"}


def test_who_plays_only_the_persona_that_does_best_has_no_rank_beside_those_who_played_all():
    rows = [board_row(agent, 0.4, "x", persona) for agent in ("a", "b") for persona in PERSONAS]
    rows += [board_row("picked", 0.9, "x", "adaptive"), board_row("rule", 0.3, "x")]
    standings = {s.agent: s for s in rank(rows)}
    assert standings["picked"].why == "has not played 2 of the board's 3 tasks (x/risk_averse)"
    assert [s.agent for s in rank(rows) if s.rank] == ["a", "b", "rule"]


def test_a_mean_is_one_over_tasks_however_many_seeds_each_has():
    rows = [board_row("a", 1.0, "x", seed=seed) for seed in range(9)] + [board_row("a", 0.0, "y", seed=0)]
    assert rank(rows)[0].means["score"] == pytest.approx(0.5)
    # A cell that others play by three personas weighs three tasks for who ignores them too.
    rows = [board_row("a", 0.5, "x", persona) for persona in PERSONAS] + [board_row("a", 0.5, "y", "adaptive")]
    rows += [board_row("rule", 1.0, "x"), board_row("rule", 0.0, "y")]
    assert rank(rows)[0].means["score"] == pytest.approx(0.75)


def test_the_boards_tasks_are_those_that_most_agents_played():
    rows = [board_row(agent, 0.5, cell) for agent in "abc" for cell in "xy"]
    rows += [board_row("a", 1.0, "extra")]  # it takes nobody's rank, and gives a none
    rows += [board_row("d", 0.9, "x")]  # broken off, or sent where it does well
    assert {place[0] for place, _ in board_tasks(rows)} == {"x", "y"}
    standings = {s.agent: s for s in rank(rows)}
    assert [(s.agent, s.rank) for s in rank(rows) if s.rank] == [("a", 1), ("b", 1), ("c", 1)]
    assert (standings["a"].means["score"], standings["a"].episodes) == (0.5, 2)
    assert standings["d"].why == "has not played 1 of the board's 2 tasks (y)"
    assert left_out(rows) == ["extra"]
    assert left_out(rows[:6]) == []


def test_agents_without_a_task_in_common_are_not_ranked():
    rows = [board_row("a", 0.5, "x"), board_row("b", 0.6, "y")]
    assert {s.why for s in rank(rows)} == {"no task was played by more than half of the agents"}
    assert left_out(rows) == ["x", "y"]


@pytest.mark.parametrize(
    "other", [{"timesteps": 20}, {"hold": "flat"}, {"fill": "next_open"}, {"cost_bps": 5.0}, {"data_sha256": "b"}]
)
def test_a_task_is_not_the_same_by_other_rules_or_on_other_data(other):
    rows = [board_row("a", 0.5), board_row("b", 0.5), board_row("c", 0.9, **other)]
    assert [(s.agent, s.rank) for s in rank(rows)] == [("a", 1), ("b", 1), ("c", None)]


GATES = {
    "knows the future": {"ranked": False},
    "1 of 2 episodes failed (day 3: OSError: gone)": FAILED,
    "1 of 2 episodes tell who or when (day 3: Tesla)": {"leaks": 2, "first_leak": "day 3: Tesla"},
    "was trained on days up to 2022-01-03, and x begins on 2022-01-03": {"trained_until": "2022-01-03"},
    "had its hyperparameters selected on days up to 2022-06-30, and x begins on 2022-01-03": {
        "trained_until": "2022-01-02",
        "selected_until": "2022-06-30",
    },
    "is several players under one name, shown identity=masked and real": {"identity": "masked"},
    "says trained_until='last year', which is no day YYYY-MM-DD": {"trained_until": "last year"},
    "decided only 90% of its days, and 95% are needed": {"coverage": 0.8},
}


@pytest.mark.parametrize("why", GATES)
def test_who_does_not_pass_a_gate_is_shown_without_a_rank_and_with_the_reason(why):
    rows = [board_row("good", 0.4, cell) for cell in "xy"]
    score = None if "failure" in GATES[why] else 0.9
    rows += [board_row("bad", score, "x", **GATES[why]), board_row("bad", 0.9, "y")]
    first, second = rank(rows)
    assert (first.agent, first.rank, first.why) == ("good", 1, "")
    assert (second.agent, second.rank, second.why) == ("bad", None, why)
    assert second.means["score"] == pytest.approx(0.9)  # shown all the same


def test_who_passes_the_gates_by_a_day_or_a_decision_is_ranked():
    fine = {"trained_until": "2022-01-02", "selected_until": "2021-12-31", "leaks": 0, "first_leak": None}
    assert rank([board_row("a", 0.5, coverage=0.95, **fine)])[0].rank == 1
    assert rank([board_row("a", 0.5, coverage=0.9499, **fine)])[0].rank is None


def test_an_agent_whose_every_episode_failed_has_no_numbers():
    dead = {key: value for key, value in board_row("dead", None, **FAILED).items() if key not in AVERAGED[1:-1]}
    (standing,) = (s for s in rank([board_row("a", 0.5), dead]) if s.agent == "dead")
    assert (standing.means, standing.cells, standing.spread) == ({}, {}, None)


def test_each_world_has_a_board_of_its_own_and_only_the_real_one_ranks():
    rows = [board_row("a", 0.5), board_row("b", 0.6), board_row("a", 0.9, world="mirror")]
    boards = {world: [(s.agent, s.rank) for s in rank(its)] for world, its in by_world(rows).items()}
    assert boards == {"real": [("b", 1), ("a", 2)], "mirror": [("a", None)]}
    assert rank(by_world(rows)["mirror"])[0].why == "the mirror world never happened"
    with pytest.raises(ValueError, match=r"worlds \['real', 'mirror'\] make no one board"):
        rank(rows)


ROWS = st.lists(
    st.builds(
        board_row,
        st.sampled_from("abcd"),
        st.floats(0, 1),
        st.sampled_from("xyz"),
        st.sampled_from([None, "adaptive", "risk_averse"]),
        st.integers(0, 3),
    ),
    max_size=30,
)


@given(ROWS, st.randoms())
def test_the_order_of_the_rows_does_not_matter(rows, random):
    shuffled = random.sample(rows, len(rows))
    for one, other in zip(rank(rows), rank(shuffled), strict=True):
        assert (one.agent, one.rank, one.why) == (other.agent, other.rank, other.why)
        assert one.means == pytest.approx(other.means)


@given(ROWS)
def test_ranked_are_only_agents_that_played_every_task_of_the_board(rows):
    tasks = board_tasks(rows)
    for s in rank(rows):
        played = {(row["cell"], row["persona"]) for row in rows if row["agent"] == s.agent}
        whole = all((place[0], persona) in played or (place[0], None) in played for place, persona in tasks)
        assert (s.rank is not None) == (whole and bool(tasks))
        assert s.rank is None or 1 <= s.rank <= 4


def test_the_whole_first_board_ranks_seven_and_shows_the_oracle():
    names = ["buy_and_hold", "short_and_hold", "flat", "random", "momentum", "mean_reversion", "sma_cross", "oracle"]
    rows = [row for _, row, _ in run(plan([find_player(name) for name in names], [Task(cell) for cell in EVALUATION]))]
    standings = rank(rows)
    assert [s.rank for s in standings] == [1, 2, 3, 4, 5, 6, 7, None]
    assert (standings[-1].agent, standings[-1].why) == ("oracle", "knows the future")
    assert standings[-1].means["regret"] == pytest.approx(0, abs=1e-9)


def test_what_an_agent_says_of_its_making_reaches_the_gate():
    class Learned:
        facts = {"trained_until": "2021-08-31", "selected_until": "2021-12-31"}  # noqa: RUF012

        def __call__(self, observation):
            return 2

    player = Player("learned", lambda task: Learned())
    for first, why in (("2021-12-31", "had its hyperparameters selected on days up to 2021-12-31"), ("2022-01-03", "")):
        task = Task(f"TSLA:{first}:2022-03-31", timesteps=20)
        (standing,) = rank([as_row(player, task, player.play(task))])
        assert standing.why.startswith(why)
        assert (standing.rank is None) == bool(why)


def test_an_agent_cannot_say_of_itself_that_it_does_not_know_the_future():
    class Boast:
        facts = {"ranked": True, "first_day": "2030-01-01", "log_returns": [9.0]}  # noqa: RUF012

        def __call__(self, observation):
            return 2

    oracle = find_player("oracle")
    boasting = lambda task: Boast()  # noqa: E731
    boasting.traits = oracle.traits
    ((_, row, _),) = run([(Player("boast", boasting), Task(timesteps=5))])
    assert (row["ranked"], row["first_day"], len(row["log_returns"])) == (False, "2022-10-06", 5)
