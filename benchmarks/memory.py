"""How long FinMem's memory takes to recall, with 10,000 memories in it.

    python benchmarks/memory.py

Milliseconds of one recall (scores of all memories, the best of each layer), of one passing to the next day, and of
the vector of one text, as medians over 200: processor time, and the shortest that a clock saw, for on a machine with
more work than cores the clock also counts the turns of others. All figures are in `results/memory.json`.
"""

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import perf_counter, thread_time
from typing import Any

import numpy as np

from fintrading_agents.memory.constants import PAPER
from fintrading_agents.memory.embeddings import HASHED, Hashing, whole
from fintrading_agents.memory.store import Memory

RESULTS = Path(__file__).parent / "results" / "memory.json"
SIZES = (100, 1_000, 10_000)
TIMES = 200


def milliseconds(work: Any) -> dict[str, float]:
    processor, clock = [], []
    for k in range(TIMES):
        start = thread_time(), perf_counter()
        work(k)
        processor.append(1000 * (thread_time() - start[0]))
        clock.append(1000 * (perf_counter() - start[1]))
    return {"processor": round(median(processor), 3), "clock, shortest": round(min(clock), 3)}


def main() -> None:
    rng = np.random.default_rng(0)
    figures: dict[str, Any] = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "dimensions": HASHED,
        "milliseconds": {},
    }
    vectors = whole(np.abs(rng.standard_normal((max(SIZES), HASHED))))
    layers, hashing = tuple(PAPER.layers), Hashing()
    for size in SIZES:
        memory = Memory(PAPER, layers, HASHED)
        for k in range(size):
            memory.add("news", f"memory {k}", vectors[k], layers[k % 3], k % 3)
        figures["milliseconds"][size] = {
            "recall": milliseconds(lambda k, memory=memory: memory.recall(vectors[k], 3, PAPER.top_k)),
            "pass to a day": milliseconds(lambda k, memory=memory: memory.pass_to(3)),
            "vector of a text": milliseconds(lambda k: hashing([f"closed at its lowest in {k} days"])),
        }
        assert sum(memory.sizes().values()) == size  # nothing was forgotten meanwhile
    RESULTS.write_text(json.dumps(figures, indent=1) + "\n")
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
