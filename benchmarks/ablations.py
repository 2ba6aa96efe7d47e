"""What each part of FinMem's memory does to an episode, one part changed at a time.

    pip install -e '.[local]'
    fintrading models add smollm2
    python benchmarks/ablations.py                    # on the small model of this machine
    python benchmarks/ablations.py --model openai/gpt-4o-mini --timesteps 50 --seeds 5 --usd-limit 5

Each row is the agent `finmem` with one setting changed from the first row's, on the same cell and the same seeds. The
small model says buy whatever it is shown, so on it the scores are alike and the table shows that each part runs and
what it costs in calls and tokens; with another model it is an ablation study, to be read with the spread over seeds
beside it. What was asked before is not asked again. All figures are in `results/ablations.json`, or in `--out`.
"""

import argparse
import json
import platform
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from fintrading_agents.memory.constants import PAPER
from fintrading_agents.memory.prompts import RULES
from fintrading_gym.observations import PERSONAS
from fintrading_gym.rollout import Task, find_player

RESULTS = Path(__file__).parent / "results" / "ablations.json"
USUAL: dict[str, Any] = {"memory_warmup_calls": 1, "memory_reflect": 1}  # so that two days show every part at work
# What is changed: options of the agent, or the persona of the task.
ABLATIONS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "no memory": {"memory_off": True},
    **{f"top K {k}": {"memory_top_k": k} for k in (1, 3, 5, 10)},
    **{
        f"without {off}": {"memory_layers": ",".join(layer for layer in PAPER.layers if layer != off)}
        for off in PAPER.layers
    },
    "no warm-up": {"memory_warmup": 0},
    "never looks back": {"memory_reflect": 0},
    "released constants": {"memory_constants": "code"},
    **{f"persona {name}": {"persona": name} for name in PERSONAS if name != "adaptive"},
    **{f"switches by {rule}": {"persona_rule": rule} for rule in RULES if rule != "cumulative"},
}
COLUMNS = {
    "score": ".3f",
    "sd": ".3f",
    "CR": "+.3f",
    "buy": ".0%",
    "sell": ".0%",
    "calls": ".0f",
    "tokens": ",.0f",
    "cited": ".1f",
}


def played(model: str, cell: str, timesteps: int, seeds: int, changed: dict[str, Any], how: dict[str, Any]) -> Any:
    """Means over the seeds of one row."""
    options = {**USUAL, **how, **{name: value for name, value in changed.items() if name != "persona"}}
    player = replace(find_player(f"finmem:{model}"), options=options)
    rows = []
    with player.opened() as opened:
        for seed in range(seeds):
            episode = opened.play(Task(cell, changed.get("persona", "adaptive"), seed, timesteps))
            if episode.failure is not None:
                raise SystemExit(f"{changed}: {episode.failure}")
            facts, actions = episode.facts, np.array(episode.ledger.action)
            tokens = None if facts["tokens_in"] is None else facts["tokens_in"] + facts["tokens_out"]
            rows.append(
                {
                    "score": episode.score,
                    "CR": sum(episode.ledger.log_return),
                    "buy": float(np.mean(actions == 2)),
                    "sell": float(np.mean(actions == 0)),
                    "calls": facts["calls"],
                    "tokens": tokens,
                    "cited": facts.get("cited", 0),
                }
            )
    means = {name: _mean([row[name] for row in rows]) for name in COLUMNS if name != "sd"}
    spread = round(float(np.std([row["score"] for row in rows], ddof=1)), 6) if len(rows) > 1 else None
    return {**means, "sd": spread}


def _mean(numbers: list[Any]) -> float | None:
    return None if None in numbers else round(float(np.mean(numbers)), 6)


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--model", default="local/smollm2")
    flags.add_argument("--cell", default="tsla_main")
    flags.add_argument("--timesteps", type=int, default=2)
    flags.add_argument("--seeds", type=int, default=1)
    flags.add_argument("--usd-limit", type=float)
    flags.add_argument("--out", type=Path, default=RESULTS)
    given = flags.parse_args()
    figures: dict[str, Any] = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": platform.machine(),
        "model": given.model,
        "cell": given.cell,
        "timesteps": given.timesteps,
        "seeds": given.seeds,
        "settings": USUAL,
        "rows": {},
    }
    print(f"{'':22}" + "".join(f"{name:>9}" for name in COLUMNS))
    with tempfile.TemporaryDirectory() as folder:
        how = {"memory_file": f"{folder}/memory.sqlite"} | ({"usd_limit": given.usd_limit} if given.usd_limit else {})
        for name, changed in ABLATIONS.items():
            row = played(given.model, given.cell, given.timesteps, given.seeds, changed, how)
            figures["rows"][name] = {"changed": changed, **row}
            told = ["-" if row[column] is None else format(row[column], form) for column, form in COLUMNS.items()]
            print(f"{name:22}" + "".join(f"{text:>9}" for text in told), flush=True)
    given.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
