"""The reference board: what the bundled players score on the twelve tasks and on the paper's windows.

    make board                                        # or, with the extras llm, local, rl and stats:
    python benchmarks/reference_board.py --readme

Rules, `linear` and the learners play five seeds, the three agents that ask a model one, with the small model of this
machine. The twelve tasks are played as the evaluation has them, where hold keeps; the paper's windows by the paper's
rule, where a hold day is flat, by the adaptive persona; 50 decisions of each. All of it is one board, on which windows
of one ticker that share days count once.

The small model answers some three thousand times: on two cores that takes more than an hour. Whatever ends it, the same
command goes on where it was, and what was answered is not asked again. The board stays in `--board`; what others read
goes to `results/`: the rows as CSV, the statistics as JSON, and the page, without texts if these make it large.
"""

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import in_readme

from fintrading_gym import __version__
from fintrading_gym.export import write_csv
from fintrading_gym.inference import ALPHA
from fintrading_gym.ranking import Interval, Standing
from fintrading_gym.statistics import Statistics, analyse
from fintrading_gym.store import digest, rows
from fintrading_gym.windows import EVALUATION

RESULTS = Path(__file__).parent / "results"
MODEL = "local/smollm2"
LEARNERS = "ppo,a2c,dqn"
RULES = f"buy_and_hold,short_and_hold,flat,random,momentum,mean_reversion,sma_cross,linear,{LEARNERS},oracle"
PAPER = ("paper_tsla", "paper_nflx", "paper_amzn", "paper_msft", "paper_coin", "paper_tsla_ablation")
GAMES = (  # cells, personas and rules
    ("--cells", ",".join(EVALUATION), "--personas", "all", "--timesteps", "50", "--hold", "keep"),
    ("--cells", ",".join(PAPER), "--personas", "adaptive", "--timesteps", "50", "--hold", "flat"),
)
PLAYERS = (  # agents, seeds and options; a whole analysis every 25 days is two in an episode of the twelve tasks
    ("--agents", RULES, "--seeds", "5"),
    ("--agents", f"llm:{MODEL}", "--seeds", "1"),
    ("--agents", f"committee:{MODEL}", "--seeds", "1", "--every", "25"),
    ("--agents", f"finmem:{MODEL}", "--seeds", "1"),
)
SMALL = 3_000_000  # bytes of a page that is kept with its texts
SKILL = 0.95  # of the deflated Sharpe ratio


def commands(board: Path) -> Iterator[tuple[str, ...]]:
    """What is played, as words for `fintrading`."""
    for players in PLAYERS:
        for game in GAMES:
            yield ("leaderboard", *players, *game, "--out", str(board))


def fintrading(*words: str) -> bool:
    """Run a command of ours: whether all went well. Bad usage and an interrupt end this script too."""
    done = subprocess.run([str(Path(sys.executable).with_name("fintrading")), *words])
    if done.returncode not in (0, 1):
        sys.exit(done.returncode)
    return done.returncode == 0


def table(found: Statistics) -> str:
    """The README's table."""
    lines = ["| # | ranks | agent | score | 95 % | CR | excess | Sharpe | luck | DSR |", "|" + "---|" * 10]
    lines += [row(standing) for standing in found.standings]
    return "\n".join(lines) + "\n"


def row(standing: Standing) -> str:
    """One agent's line."""
    s, means = standing, standing.means
    place = ("-", "-") if s.rank is None else (str(s.rank), f"{s.rank_low}-{s.rank_high}")
    interval = "-" if (ends := s.intervals.get("score")) is None else f"{told(ends)} over {s.over}"
    numbers = (f"{means['cumulative_return']:+.2f}", f"{means['excess']:+.2f}", f"{means['sharpe_ratio']:+.2f}")
    dsr = "-" if s.deflated_sharpe is None else f"{s.deflated_sharpe:.2f}"
    cells = (*place, f"`{s.agent}`", f"{means['score']:.3f}", interval, *numbers, f"{means['luck']:.2f}", dsr)
    return f"| {' | '.join(cells)} |"


def told(ends: Interval) -> str:
    """An interval, in two digits."""
    return f"{ends.low:.2f}..{ends.high:.2f}"


def verdict(found: Statistics) -> str:
    """What is significant on the board, and what is not, in two sentences."""
    tested = [c for c in found.comparisons if c.p is not None]
    differ = [f"`{c.better}` over `{c.worse}`" for c in tested if c.significant]
    skilled = [f"`{s.agent}`" for s in found.standings if s.rank is not None and (s.deflated_sharpe or 0) > SKILL]
    first = " and ".join(f"`{s.agent}`" for s in found.standings if s.rank == 1)
    level = sum(s.rank_low == 1 for s in found.standings)
    by_window, smallest = sum(c.pair == "windows" for c in tested), 2 / 2**found.windows
    alone = f"is {first}'s" if level == 1 else f"is open to {level} agents, {first} at their head by its mean alone"
    too_few = (
        f"; {by_window} pairs meet once a window, and no p from {found.windows} windows is below {smallest:.2g}, which"
        " among so many tests can show nothing"
    )
    return (
        f"Significant after Holm's correction: {len(differ)} of the {len(tested)} tested pairs of agents"
        f" ({'; '.join(differ) or 'none'}), and of {found.trials} tries {', '.join(skilled) or 'none'} has a Sharpe"
        " ratio above what the luckiest shows without skill.\n"
        f"Not significant: everything else the table seems to say; the first rank {alone}"
        f"{too_few if by_window and smallest * len(tested) > ALPHA else ''}.\n"
    )


def readme(found: Statistics) -> str:
    """What the README shows of the board."""
    unranked = [f"Not ranked: `{s.agent}` {s.why}.\n" for s in found.standings if s.why]
    return f"{table(found)}\n{''.join(unranked)}\n{verdict(found)}"


def main() -> int:
    """Play what the board lacks, and write what it shows; 1 if an episode failed or the run was stopped."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--board", type=Path, default=Path("reference_board.db"), help="the board's file")
    options.add_argument("--readme", action="store_true", help="write the README's table as well")
    chosen = options.parse_args()
    well = True
    for words in commands(chosen.board):
        print("fintrading", *words, flush=True)
        well &= fintrading(*words)
    if not well:
        print("The board is not whole; call again to go on with it. Nothing else is written.", file=sys.stderr)
        return 1
    played = rows(chosen.board)
    found = analyse(played)
    page = RESULTS / "reference_board.html"
    for texts in ("all", "none"):
        well &= fintrading(
            "report", str(chosen.board), "--out", str(page), "--title", "The reference board", "--texts", texts
        )
        if page.stat().st_size <= SMALL:
            break
    write_csv(RESULTS / "reference_board.csv", played)
    figures = {
        "version": __version__,
        "machine": platform.machine(),
        "python": platform.python_version(),
        "commands": [" ".join(("fintrading", *words)) for words in commands(Path("board.db"))],
        "episodes": len(played),
        "sha256": digest(chosen.board),
        **asdict(found),
    }
    (RESULTS / "reference_board.json").write_text(json.dumps(figures, indent=1) + "\n")
    print(readme(found))
    if chosen.readme:
        in_readme.show("reference_board", readme(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
