"""The layered memory: what it recalls, what it forgets, and which way memories move."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fintrading_agents.memory.constants import CODE, CONSTANTS, LAYER_OF, PAPER
from fintrading_agents.memory.store import BORN, DIGITS, FORGOTTEN, Memory
from fintrading_agents.sources import KINDS

DIMENSIONS = 4
NORTH, EAST = np.array([4000, 0, 0, 0], np.int16), np.array([0, 4000, 0, 0], np.int16)
ALWAYS = (1.0, 0.0, 0.0)


def memory_of(constants=PAPER, layers=None, **changes):
    return Memory(replace(constants, **changes), layers or tuple(constants.layers), DIMENSIONS)


def valued(constants, layer, value):
    """The constants with one importance for all new memories of a layer."""
    row = replace(constants.layers[layer], chances=ALWAYS, values=(value, value, value))
    return replace(constants, layers={**constants.layers, layer: row})


# ------------------------------------------------------------------------------- another way to compute it


class Naive:
    """The same rules on a list of dicts, day by day as the released code does it: everything is multiplied, nothing
    is computed from an age, and all is sorted anew."""

    def __init__(self, constants):
        self.constants, self.names, self.kept = constants, list(constants.layers), []

    def add(self, number, layer, value, vector):
        self.kept.append({"id": number, "layer": layer, "importance": value, "delta": 0, "merits": 0, "vector": vector})

    def reward(self, numbers):
        for memory in self.kept:
            if memory["id"] in numbers:
                memory["importance"] += self.constants.reward
                memory["merits"] += 1

    def fade(self):
        for memory in self.kept:
            memory["delta"] += 1
            memory["importance"] *= self.constants.layers[memory["layer"]].decay

    def recency(self, memory):
        return math.exp(-memory["delta"] / self.constants.layers[memory["layer"]].stability)

    def settle(self):
        self.kept = [m for m in self.kept if self.recency(m) >= 0.05 and m["importance"] >= 5]
        for _ in range(2):
            for memory in self.kept:
                row, place = self.constants.layers[memory["layer"]], self.names.index(memory["layer"])
                merit = memory["merits"] > 0 or not self.constants.by_merit
                if row.up is not None and memory["importance"] >= row.up and merit:
                    memory.update(layer=self.names[place + 1], delta=0)
                elif row.down is not None and memory["importance"] < row.down:
                    memory["layer"] = self.names[place - 1]

    def recall(self, query, top_k):
        def score(memory):
            products = sum(int(a) * int(b) for a, b in zip(memory["vector"], query, strict=True))
            lengths = [math.sqrt(sum(int(a) ** 2 for a in v)) for v in (memory["vector"], query)]
            relevance = max(products / (lengths[0] * lengths[1]), 0) if all(lengths) else 0
            return round(self.recency(memory) + relevance + min(memory["importance"] / 100, 1), DIGITS)

        found = []
        for name in self.names:
            here = sorted((m for m in self.kept if m["layer"] == name), key=lambda m: (-score(m), -m["id"]))
            found += [(m["id"], name, score(m)) for m in here[:top_k]]
        return found


VECTORS = st.lists(st.integers(-3, 3), min_size=DIMENSIONS, max_size=DIMENSIONS)
DAYS = st.lists(
    st.tuples(st.lists(st.tuples(st.integers(0, 3), VECTORS), max_size=6), st.sets(st.integers(0, 30))), max_size=15
)


@pytest.mark.parametrize("name", CONSTANTS)
@settings(max_examples=30)
@given(days=DAYS, query=VECTORS, top_k=st.integers(1, 6))
def test_what_is_recalled_equals_a_brute_force_computation_of_another_make(name, days, query, top_k):
    constants = CONSTANTS[name]
    memory, naive = memory_of(constants), Naive(constants)
    names = list(constants.layers)
    for day, (born, rewarded) in enumerate(days):
        memory.reward([number for number in rewarded if number < len(memory)], day)
        naive.reward(rewarded)
        memory.pass_to(day)
        naive.settle()
        for place, vector in born:
            layer = names[place % len(names)]
            number = memory.add("news", "text", np.array(vector, np.int16), layer, day)
            naive.add(number, layer, float(memory.state["base"][number]), vector)
        recalled = memory.recall(np.array(query, np.int16), day, top_k)
        assert [(m.id, m.layer) for m in recalled] == [
            (number, layer) for number, layer, _ in naive.recall(query, top_k)
        ]
        assert [m.score for m in recalled] == pytest.approx(
            [score for *_, score in naive.recall(query, top_k)], abs=1e-8
        )
        naive.fade()


# ------------------------------------------------------------------------------------------- the equations


def test_recency_and_importance_fade_as_the_paper_says():
    memory = memory_of(valued(PAPER, "shallow", 80.0))
    for layer in PAPER.layers:
        memory.add("news", layer, NORTH, layer, 0)
    days = np.array([14, 90, 365])
    for day, name in zip(days.tolist(), PAPER.layers, strict=True):
        number = list(PAPER.layers).index(name)
        assert memory.recency(day)[number] == pytest.approx(math.exp(-1))
        value = memory.state["base"][number]
        assert memory.importance(day)[number] == pytest.approx(value * {14: 0.9, 90: 0.967, 365: 0.988}[day] ** day)


def test_each_part_of_a_score_lies_between_0_and_1_and_the_score_is_their_sum():
    memory = memory_of(valued(PAPER, "deep", 80.0))
    number = memory.add("10-k", "text", NORTH, "deep", 0)
    for day in range(1, 9):
        memory.reward([number], day)
    (found,) = memory.recall(NORTH, 8, 5)
    assert memory.importance(8)[0] > 100
    assert (found.importance, found.relevance) == (1, 1)
    assert found.score == pytest.approx(found.recency + 2, abs=1e-9)
    (against,) = memory.recall(-NORTH, 8, 5)
    assert against.relevance == 0  # a cosine below zero is no relevance


@pytest.mark.parametrize("name", CONSTANTS)
def test_importance_is_drawn_with_the_chances_of_the_constants(name):
    for layer, row in CONSTANTS[name].layers.items():
        memory = memory_of(CONSTANTS[name])
        for _ in range(2000):
            memory.add("news", "text", NORTH, layer, 0)
        drawn = memory.state["base"].tolist()
        shares = [drawn.count(value) / len(drawn) for value in row.values]
        assert shares == pytest.approx(row.chances, abs=0.04)


@pytest.mark.parametrize(
    ("layer", "value", "lived"),
    [("shallow", 50, 9), ("shallow", 70, 10), ("shallow", 90, 14), ("intermediate", 60, 9), ("intermediate", 80, 10),
     ("deep", 40, 9), ("deep", 60, 9), ("deep", 80, 11)],
)  # fmt: skip
def test_with_the_released_constants_everything_is_forgotten_within_14_days(layer, value, lived):
    memory = memory_of(valued(CODE, layer, float(value)))
    memory.add("10-k", "text", NORTH, layer, 0)
    days = [day for day in range(1, 20) if memory.pass_to(day).forgotten]
    assert days == [lived]


def test_with_the_papers_constants_an_annual_report_lasts_for_months():
    memory = memory_of(valued(PAPER, "deep", 80.0))
    memory.add("10-k", "text", NORTH, "deep", 0)
    assert [day for day in range(1, 400) if memory.pass_to(day).forgotten] == [230]


# ------------------------------------------------------------------------------------- up, down, and out


def test_a_memory_of_merit_rises_and_its_recency_begins_anew():
    memory = memory_of(valued(PAPER, "shallow", 80.0))
    first, second = (memory.add("news", "text", NORTH, "shallow", 0) for _ in range(2))
    assert memory.pass_to(1).promoted == []  # important enough, and never of use
    memory.reward([first], 2)
    assert memory.pass_to(2).promoted == [first]
    layers = {m.id: (m.layer, m.recency, m.age) for m in memory.recall(NORTH, 2, 5)}
    assert layers[first] == ("intermediate", 1, 2)
    assert layers[second][0] == "shallow"
    assert layers[second][1] < 1


def test_with_the_released_constants_a_memory_may_rise_two_layers_in_a_day_and_sinks_again():
    memory = memory_of(valued(CODE, "shallow", 90.0))
    number = memory.add("news", "text", NORTH, "shallow", 0)
    assert memory.pass_to(1).promoted == [number]
    assert memory.sizes() == {"shallow": 0, "intermediate": 0, "deep": 1, "reflection": 0}
    moves = [memory.pass_to(day) for day in range(2, 15)]
    assert [k + 2 for k, moved in enumerate(moves) if moved.demoted] == [4, 13]
    assert moves[-1].forgotten == [number]


def test_a_layer_that_is_off_takes_nothing_and_nobody_passes_through_it():
    memory = memory_of(valued(CODE, "shallow", 90.0), layers=("shallow", "deep"))
    assert memory.add("10-q", "text", NORTH, "intermediate", 0) is None
    memory.add("news", "text", NORTH, "shallow", 0)
    deep = memory.add("10-k", "text", NORTH, "deep", 0)
    assert memory.pass_to(1).promoted == []
    assert memory.sizes() == {"shallow": 1, "deep": 1}
    assert [m.id for m in memory.recall(NORTH, 1, 5)] == [0, deep]


def test_what_is_forgotten_is_neither_recalled_nor_rewarded_and_keeps_its_number():
    memory = memory_of(valued(PAPER, "shallow", 40.0))
    old = memory.add("news", "old", NORTH, "shallow", 0)
    assert memory.pass_to(25).forgotten == [old]
    new = memory.add("news", "new", NORTH, "shallow", 25)
    assert memory.reward([old, new], 25) == [new]
    assert [m.text for m in memory.recall(NORTH, 25, 5)] == ["new"]
    assert memory.texts == ["old", "new"]
    assert memory.state["layer"].tolist() == [FORGOTTEN, 0]


def test_there_is_room_for_more_than_there_was_at_first():
    memory = memory_of()
    for k in range(3 * BORN):
        memory.add("news", f"text {k}", NORTH if k % 2 else EAST, "deep", k)
    assert [m.id for m in memory.recall(EAST, 3 * BORN, 2)] == [3 * BORN - 2, 3 * BORN - 4]
    assert memory.vector(1).tolist() == NORTH.tolist()


def test_where_scores_are_equal_the_newer_memory_comes_first():
    memory = memory_of(valued(PAPER, "shallow", 40.0))
    for _ in range(5):
        memory.add("news", "the same", NORTH, "shallow", 3)
    assert [m.id for m in memory.recall(NORTH, 3, 3)] == [4, 3, 2]


def test_an_empty_memory_and_an_empty_text_are_no_error():
    memory = memory_of()
    assert memory.recall(NORTH, 0, 5) == []
    assert memory.pass_to(1).forgotten == []
    memory.add("news", "", np.zeros(DIMENSIONS, np.int16), "shallow", 1)
    assert memory.recall(NORTH, 1, 5)[0].relevance == 0


def test_every_kind_of_a_users_items_has_a_layer():
    assert LAYER_OF.keys() >= KINDS.keys()
    assert set(LAYER_OF.values()) == set(PAPER.layers)
    assert (LAYER_OF["news"], LAYER_OF["10-q"], LAYER_OF["10-k"]) == ("shallow", "intermediate", "deep")
