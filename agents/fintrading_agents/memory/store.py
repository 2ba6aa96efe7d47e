"""The layered memory itself: what is remembered, how it fades, what is recalled."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fintrading_agents.memory.constants import Constants
from fintrading_gym.windows import Floats

Vectors = NDArray[np.int16]  # (n, dimensions) or one (dimensions,): unit vectors times embeddings.UNIT, rounded

ROUNDS = 2  # a memory may rise or sink by two layers a day
FULL = 100.0  # the importance that counts as 1 in a score; more counts no more
DIGITS = 9  # of a score: what differs less is equal, and the newer memory comes first
BORN = 256  # memories for which there is room at first
FORGOTTEN = -1  # for a layer

# What changes of a memory. Recency and importance are no part of it: they follow from these and the day, so that
# nothing has to be rewritten from day to day and nothing sorted can fall out of order.
STATE = np.dtype(
    [
        ("layer", "i2"),  # its place among the constants' layers, or FORGOTTEN
        ("known", "i4"),  # day on which it became known
        ("since", "i4"),  # day from which its recency counts: when it became known, or was promoted
        ("base", "f8"),  # its importance
        ("based", "i4"),  # on this day, and fading from it on
        ("merits", "i4"),  # how often it was cited before a profitable decision
    ]
)


class Recalled(NamedTuple):
    """A memory that was looked up."""

    id: int
    layer: str
    age: int  # days since it became known
    recency: float  # in [0, 1], here and below
    relevance: float
    importance: float
    score: float  # the sum
    text: str

    def as_json(self) -> dict[str, Any]:
        """Every field, numbers to six digits."""
        return {name: round(value, 6) if isinstance(value, float) else value for name, value in self._asdict().items()}


@dataclass(frozen=True)
class Moves:
    """What a day did: numbers of memories."""

    promoted: list[int]
    demoted: list[int]
    forgotten: list[int]


class Memory:
    """All memories of one episode, those that were forgotten too. A memory's id is its number, from 0 on.

    Days are whole numbers, trading days one apart.
    """

    def __init__(self, constants: Constants, layers: Sequence[str], dimensions: int, seed: Sequence[int] = (0,)):
        """Begin empty.

        Args:
            constants: of `constants.CONSTANTS`, or one's own.
            layers: of the constants', those that are on. What belongs to another is not remembered.
            dimensions: of the vectors.
            seed: of the importance that new memories are given.
        """
        self.constants, self.layers, self.dimensions, self._seed = constants, tuple(layers), dimensions, list(seed)
        self._names = list(constants.layers)
        rows = list(constants.layers.values())
        self._stability = np.array([row.stability for row in rows])
        self._decay = np.array([row.decay for row in rows])
        on = np.array([name in layers for name in self._names])
        # A layer that is off neither takes nor loses any.
        up = [_threshold(row.up, np.inf) for row in rows]
        down = [_threshold(row.down, -np.inf) for row in rows]
        self._up = np.where(on & np.roll(on, -1), up, np.inf)
        self._down = np.where(on & np.roll(on, 1), down, -np.inf)
        self.texts: list[str] = []
        self.kinds: list[str] = []
        self._state = np.zeros(BORN, STATE)
        self._vectors = np.zeros((BORN, dimensions), np.float32)
        self._lengths = np.zeros(BORN)
        self.changed: set[int] = set()
        """Numbers of the memories that are new or changed since somebody emptied this."""

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def state(self) -> NDArray[np.void]:
        """(n,) of STATE: a copy."""
        return self._state[: len(self)].copy()

    def vector(self, number: int) -> Vectors:
        """(dimensions,) of one memory."""
        vector: Vectors = self._vectors[number].astype(np.int16)
        return vector

    def sizes(self) -> dict[str, int]:
        """How many memories each layer that is on holds now."""
        count = np.bincount(self._state["layer"][: len(self)] + 1, minlength=len(self._names) + 1)[1:]
        return {name: int(count[k]) for k, name in enumerate(self._names) if name in self.layers}

    def add(self, kind: str, text: str, vector: Vectors, layer: str, known: int) -> int | None:
        """Remember something; its importance is drawn.

        Args:
            kind: what it is.
            text: as it may be shown: masked where the episode is.
            vector: (dimensions,).
            layer: where it begins.
            known: day on which it became known.

        Returns:
            Its number; None if the layer is off.
        """
        if layer not in self.layers:
            return None
        number, row = len(self), self.constants.layers[layer]
        draw = np.random.default_rng([*self._seed, number]).random()
        value = row.values[min(int(np.searchsorted(np.cumsum(row.chances), draw, side="right")), len(row.values) - 1)]
        self.restore(kind, text, vector, (self._names.index(layer), known, known, value, known, 0))
        self.changed.add(number)
        return number

    def restore(self, kind: str, text: str, vector: Vectors, state: tuple[int, int, int, float, int, int]) -> None:
        """Remember something as it was before, the fields of STATE included."""
        number = len(self)
        if number == len(self._state):
            self._state = np.concatenate([self._state, np.zeros_like(self._state)])
            self._vectors = np.concatenate([self._vectors, np.zeros_like(self._vectors)])
            self._lengths = np.concatenate([self._lengths, np.zeros_like(self._lengths)])
        self._state[number], self._vectors[number] = state, vector
        self._lengths[number] = np.sqrt(np.sum(self._vectors[number].astype(np.float64) ** 2))
        self.texts.append(text)
        self.kinds.append(kind)

    def reward(self, numbers: Iterable[int], day: int) -> list[int]:
        """Make memories that led to a profitable decision more important; those that are still there are returned."""
        importance = self.importance(day)
        there = [k for k in dict.fromkeys(numbers) if self._state["layer"][k] != FORGOTTEN]
        for k in there:
            self._state["base"][k] = importance[k] + self.constants.reward
            self._state["based"][k] = day
            self._state["merits"][k] += 1
        self.changed.update(there)
        return there

    def pass_to(self, day: int) -> Moves:
        """What has faded by this day is forgotten; then memories rise and sink."""
        state, constants = self._state[: len(self)], self.constants
        alive = state["layer"] != FORGOTTEN
        faded = (self.recency(day) < constants.least_recency) | (self.importance(day) < constants.least_importance)
        forgotten = np.flatnonzero(alive & faded).tolist()
        state["layer"][forgotten] = FORGOTTEN
        before = state["layer"].copy()
        for _ in range(ROUNDS):
            layer, importance = state["layer"].copy(), self.importance(day)
            alive = layer != FORGOTTEN
            rising = alive & (importance >= self._up[layer])
            if constants.by_merit:
                rising &= state["merits"] > 0
            sinking = alive & ~rising & (importance < self._down[layer])
            moved = rising | sinking
            state["base"][moved], state["based"][moved] = importance[moved], day
            state["layer"] += rising.astype(np.int16) - sinking.astype(np.int16)
            state["since"][rising] = day
        after = state["layer"]
        promoted, demoted = (np.flatnonzero(found).tolist() for found in (after > before, after < before))
        self.changed.update(forgotten, np.flatnonzero(state["based"] == day).tolist())
        return Moves(promoted, demoted, forgotten)

    def recency(self, day: int) -> Floats:
        """(n,): exp(-age / Q) of each memory's layer, 1 for what is new or was just promoted."""
        state = self._state[: len(self)]
        faded: Floats = np.exp(-(day - state["since"]) / self._stability[state["layer"]])
        return faded

    def importance(self, day: int) -> Floats:
        """(n,): as it was drawn, faded by alpha a day, with what was added."""
        state = self._state[: len(self)]
        faded: Floats = state["base"] * self._decay[state["layer"]] ** (day - state["based"])
        return faded

    def recall(self, query: Vectors, day: int, top_k: int) -> list[Recalled]:
        """The `top_k` memories of each layer with the highest scores, layer by layer, the highest first.

        Args:
            query: (dimensions,): the vector of what is asked.
            day: today.
            top_k: of each layer; where a layer has fewer, all.
        """
        length = float(np.sqrt(np.sum(query.astype(np.float64) ** 2)))
        # Whole numbers small enough that their products' sums are exact, whatever the order of the summation. Not by
        # BLAS: its threads wait for one another on a busy machine.
        products = np.einsum("ij,j->i", self._vectors[: len(self)], query.astype(np.float32)).astype(np.float64)
        lengths = self._lengths[: len(self)] * length
        cosine = np.divide(products, lengths, out=np.zeros(len(self)), where=lengths > 0)
        recency, relevance = self.recency(day), np.clip(cosine, 0, 1)
        importance = np.minimum(self.importance(day) / FULL, 1)
        score = np.round(recency + relevance + importance, DIGITS)
        layer, known = self._state["layer"][: len(self)], self._state["known"]
        recalled = []
        for place, name in enumerate(self._names):
            here = np.flatnonzero(layer == place)
            if len(here) > top_k:  # only those that tie with the last one need to be sorted
                here = here[score[here] >= np.partition(score[here], -top_k)[-top_k]]
            best = here[np.lexsort((-here, -score[here]))[:top_k]]
            for k in best.tolist():
                parts = recency[k].item(), relevance[k].item(), importance[k].item(), score[k].item()
                recalled.append(Recalled(k, name, day - int(known[k]), *parts, text=self.texts[k]))
        return recalled


def _threshold(given: float | None, never: float) -> float:
    return never if given is None else given
