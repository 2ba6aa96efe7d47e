"""`fintrading report`."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fintrading_gym import store
from fintrading_gym.errors import brief, did_you_mean, lookup
from fintrading_gym.export import keep_apart
from fintrading_gym.report.contents import TEXTS, contents
from fintrading_gym.report.page import page
from fintrading_gym.report.texts import texts_of

AUDIT = {"agent": str, "sentence": str, "verdict": str, "plan": dict, "invariance": dict, "gap": dict}
LARGE = 6_000_000  # bytes; what a browser opens at once, and a mail or a page server still takes


def report(
    board: Annotated[Path, typer.Argument(help="What `fintrading leaderboard --out` wrote.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write; else BOARD.html.")] = None,
    audits: Annotated[
        list[Path] | None, typer.Option("--audit", help="What `fintrading audit --json` wrote; one for each model.")
    ] = None,
    title: Annotated[str, typer.Option(help="The page's heading.")] = "Can it trade, or does it only remember?",
    texts: Annotated[str, typer.Option(help=f"Of the days: {'; '.join(map(': '.join, TEXTS.items()))}.")] = "all",
) -> None:
    """A board as one page that needs no network: ranking, curves, and every day with what was asked and answered.

    Examples: [dim]fintrading report board.db[/],
    [dim]fintrading report board.db --out board.html --audit audit.json[/]
    """
    lookup("texts", texts, TEXTS)
    path = out or board.with_suffix(".html")
    keep_apart([path], [board, *(audits or ())])
    stored = list(store.episodes(board))
    if not stored:
        raise ValueError(f"{board} holds no episode yet; fintrading leaderboard --out {board} plays some")
    told = contents(stored, title, [_read_audit(file, stored) for file in audits or ()], texts)
    content = page(told, texts_of(stored, told["episodes"], texts))
    path.write_bytes(content)
    print(f"{path}: {len(stored)} episodes of {len(told['agents'])} agents, {len(content) / 1e6:.1f} MB")
    if len(content) > LARGE and texts != "none":
        print("A large page opens slowly; --texts replies leaves out what was sent, --texts none what was said too.")


def _read_audit(file: Path, stored: list[store.Stored]) -> dict[str, Any]:
    """An audit of one of the board's agents.

    Raises:
        ValueError: it is none.
    """
    audit: Any
    try:
        audit = json.loads(file.read_text())
    except ValueError as fault:
        raise ValueError(f"{file} is no JSON ({fault}); give what `fintrading audit --json` wrote") from None
    if not isinstance(audit, dict) or not all(isinstance(audit.get(name), kind) for name, kind in AUDIT.items()):
        raise ValueError(f"{file} is no audit; give what `fintrading audit --json` wrote")
    agents = list(dict.fromkeys(one.row["agent"] for one in stored))
    # A board adds the options to the name of an agent that has other ones than usual.
    if not any(agent == audit["agent"] or agent.startswith(f"{audit['agent']} [") for agent in agents):
        near = did_you_mean(audit["agent"], agents)
        raise ValueError(f"{file} audits {brief(audit['agent'])}; the board has {agents}.{near}")
    return dict(audit)
