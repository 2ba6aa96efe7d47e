"""How long FinMem's memory takes to recall, with 10,000 memories in it.

    python benchmarks/memory.py

A recall is what a day needs: the scores of all memories, the best of each layer, and their texts. It is to take less
than 5 ms. Right before each the bare product of the same vectors with the same query is timed, which no recall by
meaning can do without, so that both have the machine as it was then: the ratio of the two is that of the pairs.
Beside it stand the passing to a next day and the vector of one text. All are milliseconds, as median (p50) and as what
95 of 100 stay below (p95), of processor time and of a clock, which on a machine with more work than cores also counts
the turns of others. All figures are in `results/memory.json`.
"""

import argparse
import json
import os
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

import numpy as np

from fintrading_agents.memory.constants import PAPER
from fintrading_agents.memory.embeddings import HASHED, Hashing, whole
from fintrading_agents.memory.store import Memory

RESULTS = Path(__file__).parent / "results" / "memory.json"
SIZES = (100, 1_000, 10_000)
TIMES = 400
LIMIT = 5.0  # milliseconds of a recall


def timed(works: dict[str, Callable[[int], Any]]) -> dict[str, np.ndarray]:
    """(TIMES, 2) milliseconds of each, processor and clock; all of them one after another, again and again."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for k in range(TIMES):
        for name, work in works.items():
            start = thread_time(), perf_counter()
            work(k)
            taken[name].append((1000 * (thread_time() - start[0]), 1000 * (perf_counter() - start[1])))
    return {name: np.array(pairs) for name, pairs in taken.items()}


def spread(values: np.ndarray) -> dict[str, float]:
    return {f"p{q}": round(float(np.percentile(values, q)), 3) for q in (50, 95)}


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--out", type=Path, default=RESULTS)
    out = flags.parse_args().out
    rng = np.random.default_rng(0)
    figures: dict[str, Any] = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "dimensions": HASHED,
        "times": TIMES,
        "milliseconds": {},
    }
    vectors = whole(np.abs(rng.standard_normal((max(SIZES), HASHED))))
    layers, hashing = tuple(PAPER.layers), Hashing()
    for size in SIZES:
        memory, plain = Memory(PAPER, layers, HASHED), vectors[:size].astype(np.float32)
        for k in range(size):
            memory.add("news", f"memory {k}", vectors[k], layers[k % 3], k % 3)
        queries = vectors[rng.integers(0, len(vectors), TIMES)]
        works: dict[str, Callable[[int], Any]] = {
            "product": lambda k, plain=plain, queries=queries: np.einsum(
                "ij,j->i", plain, queries[k].astype(np.float32)
            ),
            "recall": lambda k, memory=memory, queries=queries: memory.recall(queries[k], 3, PAPER.top_k),
            "pass to a day": lambda k, memory=memory: memory.pass_to(3),
            "vector of a text": lambda k: hashing([f"closed at its lowest in {k} days"]),
        }
        taken = timed(works)
        processor, clock = taken["recall"].T
        figures["milliseconds"][size] = {
            **{
                name: {"processor": spread(values[:, 0]), "clock": spread(values[:, 1])}
                for name, values in taken.items()
            },
            "recall / product, of pairs": spread(processor / taken["product"][:, 0]),
            f"recalls under {LIMIT:g} ms": {
                "processor": round(float(np.mean(processor < LIMIT)), 4),
                "clock": round(float(np.mean(clock < LIMIT)), 4),
            },
        }
        assert sum(memory.sizes().values()) == size  # nothing was forgotten meanwhile
    out.write_text(json.dumps(figures, indent=1) + "\n")
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
