"""One episode's memory at work: it lives through the days of a stock, learns, and is asked."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

from fintrading_agents.folders import cache_folder
from fintrading_agents.memory import file
from fintrading_agents.memory.constants import LAYER_OF, REFLECTION, Constants
from fintrading_agents.memory.embeddings import Embedded, Embedding, total
from fintrading_agents.memory.feed import Feed, News
from fintrading_agents.memory.store import Memory, Recalled, Vectors
from fintrading_agents.neutering import EntityMap
from fintrading_agents.sources import Item, known
from fintrading_gym.masking import Mask
from fintrading_gym.rollout import Task


@dataclass(frozen=True)
class Habits:
    """How a memory works."""

    constants: Constants
    layers: tuple[str, ...]  # that are on
    top_k: int
    embedding: Embedding


class Mind:
    """Rows are those of the stock's table; the memory counts days as the masked view does."""

    def __init__(self, task: Task, identity: str, bars: Mask, items: Sequence[Item], guard: EntityMap, habits: Habits):
        """Begin without a memory.

        Args:
            task: of the episode.
            identity: as in the view.
            bars: of the whole table, as the view shows them.
            items: of the user's file.
            guard: takes out of a text what tells who and when.
            habits: of the memory.
        """
        window = task.window
        self.first, _ = window.span()
        self._oldest = max(0, self.first - task.lookback + 1)  # day 1
        self._dates, self._guard, self._habits, self._items = window.load().date, guard, habits, items
        self._feed = Feed(bars, self._dates, items, self.hide)
        self._place = self._named(task, identity)
        seed = (task.seed, crc32(str(window).encode()))
        self._memory = Memory(habits.constants, habits.layers, habits.embedding.dimensions, seed)
        self._coming: dict[int, tuple[list[News], Vectors]] = {}  # what days that are prepared bring
        self._embedded: list[Embedded] = []
        self._file: file.MemoryFile | None = None
        self.lived = 0  # days before the first of the window
        self.moved = {"promoted": 0, "demoted": 0, "forgotten": 0}

    def _named(self, task: Task, identity: str) -> str:
        """The sha256 of all that is known here before the window, and of how it is remembered."""
        window, prices, habits = task.window, task.window.load(), self._habits
        rows = max(self.first, self._oldest + 1)  # the scale of a masked price is that of day 1
        columns = (prices.open, prices.high, prices.low, prices.close, prices.volume)
        told = {
            "stock": [window.ticker, self._dates[:rows], [column[:rows].tolist() for column in columns]],
            "view": [task.lookback, identity, task.world],
            "items": known(self._items, self._dates[self.first - 1])[0] if self.first else [],
            "memory": [asdict(habits.constants), habits.layers, habits.embedding.name, task.seed],
        }
        return _sha256(told)

    def day(self, row: int) -> int:
        """The number of a day: 1 is the first that the view shows."""
        return row - self._oldest + 1

    def prepare(self, rows: range) -> None:
        """Find out what days bring before they are lived, and embed all of it at once."""
        news = {row: self._feed.of_day(row) for row in rows}
        vectors = self._vectors([told.text for row in rows for told in news[row]])
        for row in rows:
            self._coming[row], vectors = (news[row], vectors[: len(news[row])]), vectors[len(news[row]) :]

    def live(self, row: int) -> tuple[dict[str, list[int]], list[str]]:
        """Go on to the next day: what has faded is forgotten, memories move, and what is new is remembered.

        Returns:
            The numbers of the memories that were promoted, demoted, forgotten and added; and what today tells.
        """
        moves = asdict(self._memory.pass_to(self.day(row)))
        for name, numbers in moves.items():
            self.moved[name] += len(numbers)
        if row not in self._coming:
            self.prepare(range(row, row + 1))
        news, vectors = self._coming.pop(row)
        added = [
            self._memory.add(told.kind, told.text, vector, LAYER_OF[told.kind], self.day(told.row))
            for told, vector in zip(news, vectors, strict=True)
        ]
        today = [told.text for told in news if told.row == row]
        return moves | {"added": [number for number in added if number is not None]}, today

    def learn(self, text: str, row: int) -> int | None:
        """Remember a reflection, known from this day on; its number, None if its layer is off."""
        text, layer = self.hide(text), self._habits.constants.reflections
        return self._memory.add(REFLECTION, text, self._vectors([text])[0], layer, self.day(row))

    def hide(self, text: str) -> str:
        """The text without what tells who and when; what was hidden before stays."""
        return self._guard.neuter(text, keep_tokens=True)

    def reward(self, numbers: Iterable[int], row: int) -> list[int]:
        """Those memories led to a profitable decision; the ones that are still there are returned."""
        return self._memory.reward(numbers, self.day(row))

    def recall(self, query: str, row: int) -> list[Recalled]:
        """What matters today."""
        (vector,) = self._vectors([self.hide(query)])
        return self._memory.recall(vector, self.day(row), self._habits.top_k)

    # --------------------------------------------------------------------------------- what outlives the process

    def begin(
        self, path: str | None, start: str | None, way: Mapping[str, Any], rest: Any, warm_up: Callable[[], None]
    ) -> None:
        """Have a memory of the days before the window: of an earlier run, or by warming up; and begin to keep it.

        Args:
            path: of the file in which it is kept; None: the one in the cache folder.
            start: of a file whose memory is gone on with, as it was after its warm-up; None: warm up.
            way: to warm up: what makes this memory another one than others of the same place.
            rest: what else makes this episode another one.
            warm_up: lives through days before the window.

        Raises:
            ValueError: a file cannot be used.
        """
        last = self.day(self.first - 1)
        if start is None:
            warm_up()
        else:
            episode, last, way = file.warmed(Path(start), self._place)
            file.load(Path(start), episode, last, self._memory)
            if self.first:
                self._feed.of_day(self.first - 1)  # what it knew is no news; and dates get the same numbers as there
            for text in self._memory.texts:  # and what the model wrote of prices is on the view's scale already
                self._guard.heard(text)
        kept = Path(path) if path else cache_folder() / "memory.sqlite"
        self._file = file.MemoryFile(kept, _sha256([self._place, dict(way), rest]), self._place, way)
        self._file.save(self._memory, last, warmed=True)

    def keep(self, row: int) -> None:
        """Write down what the day has changed."""
        assert self._file is not None
        self._file.save(self._memory, self.day(row))

    # ------------------------------------------------------------------------------------------------- facts

    @property
    def facts(self) -> dict[str, Any]:
        """What the episode's row tells of the memory."""
        sizes = {f"memories_{name}": size for name, size in self._memory.sizes().items()}
        moved = {f"memories_{name}": count for name, count in self.moved.items()}
        return {
            **sizes,
            **moved,
            "memories": len(self._memory),
            "memory_days": self.lived,
            "items_used": len(self._items) - self._feed.excluded,
            "items_excluded": self._feed.excluded,
            "embedding_tokens": total([made.tokens for made in self._embedded]),
            "embedding_usd": total([made.cost for made in self._embedded]),
            "embedding_paid_usd": total([made.paid for made in self._embedded]),
        }

    def _vectors(self, texts: Sequence[str]) -> Vectors:
        self._embedded.append(self._habits.embedding(texts))
        return self._embedded[-1].vectors


def _sha256(told: Any) -> str:
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()
