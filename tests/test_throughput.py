"""The benchmark's arithmetic, and that the README shows what was measured."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import batched
    import throughput

    yield throughput, batched
    for name in ("batched", "throughput"):
        sys.modules.pop(name)


def test_the_readme_shows_the_results_that_lie_beside_the_benchmark(benchmarks):
    throughput, _ = benchmarks
    found = json.loads((ROOT / "benchmarks/results/throughput.json").read_text())
    text = (ROOT / "README.md").read_text()
    table = text[text.index("<!-- throughput: begin -->\n") : text.index("<!-- throughput: end -->")]
    assert table == "<!-- throughput: begin -->\n" + throughput.readme(found)


def test_batched_ratios_are_medians_over_rounds_to_the_bound_of_their_size_and_the_peers_best(benchmarks):
    _, batched = benchmarks
    samples = {
        "gather of the rows, no game, N=64": [100.0, 100.0, 100.0],
        "gather of the rows, no game, N=1024": [200.0, 400.0, 200.0],
        "ours, numpy, N=64": [10.0, 30.0, 20.0],
        "ours, compiled, N=1024": [100.0, 100.0, 120.0],
        "gym-anytrading in SyncVectorEnv, N=64": [1.0, 9.0, 1.0],
        "gym-anytrading in SyncVectorEnv, N=1024": [2.0, 2.0, 5.0],
    }
    rows = {row["name"]: row for row in batched.rows(samples, "gym-anytrading")}
    assert rows["ours, numpy, N=64"]["of_gather"] == 0.2
    assert rows["ours, numpy, N=64"]["over_anytrading"] == 5.0
    assert rows["ours, compiled, N=1024"]["of_gather"] == 0.5
    assert rows["ours, compiled, N=1024"]["over_anytrading"] == 50.0
    assert "of_gather" not in rows["gym-anytrading in SyncVectorEnv, N=64"]


@pytest.mark.parametrize("compiled", [False, True])
def test_8192_environments_take_less_than_64_megabytes(benchmarks, compiled):
    if compiled:
        pytest.importorskip("numba")
    _, batched = benchmarks
    assert batched.megabytes(compiled) < batched.MEMORY_TARGET
