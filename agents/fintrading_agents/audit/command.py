"""`fintrading audit` and `fintrading egress`."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markdown import Markdown

from fintrading_agents.audit.card import card
from fintrading_agents.audit.report import Plan
from fintrading_agents.audit.report import audit as measure
from fintrading_agents.egress import Egress, Leak
from fintrading_agents.models import ModelFailure
from fintrading_gym.errors import RunStopped
from fintrading_gym.export import keep_apart
from fintrading_gym.flags import given, with_model_flags, with_options
from fintrading_gym.masking import IDENTITIES
from fintrading_gym.recipes import task_of
from fintrading_gym.rollout import Task, find_player
from fintrading_gym.store import episodes, is_board
from fintrading_gym.stored import name_of
from fintrading_gym.windows import files_of

DEFAULT = Plan()


@with_model_flags
def audit(
    agent: Annotated[str, typer.Argument(help="A registered agent, or module:callable.")],
    model: Annotated[str | None, typer.Option(help="For llm: provider/NAME; the same as llm:provider/NAME.")] = None,
    cutoff: Annotated[str | None, typer.Option(help="The day the model's knowledge ends, YYYY-MM-DD.")] = None,
    identity: Annotated[str, typer.Option(help=f"What is set against real: {', '.join(IDENTITIES)}.")] = "masked",
    cells: Annotated[str, typer.Option(help="Cells, by commas.")] = ",".join(DEFAULT.cells),
    persona: Annotated[str, typer.Option(help="Of all episodes.")] = DEFAULT.persona,
    views: Annotated[int, typer.Option(help="Views to be named, at each of two levels.")] = DEFAULT.views,
    recalls: Annotated[int, typer.Option(help="Closes to be recalled.")] = DEFAULT.recalls,
    points: Annotated[int, typer.Option(help="Days decided on in five worlds, at two levels.")] = DEFAULT.points,
    samples: Annotated[int, typer.Option(help="Decisions on each, of an agent that draws.")] = DEFAULT.samples,
    stretches: Annotated[int, typer.Option(help="Of each cell, played masked and real.")] = DEFAULT.stretches,
    steps: Annotated[int, typer.Option(help="Decisions in a stretch.")] = DEFAULT.steps,
    seeds: Annotated[int, typer.Option(help="Episodes of each, of an agent that draws.")] = DEFAULT.seeds,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write every number to this file.")] = None,
    card_file: Annotated[Path | None, typer.Option("--card", help="Write the card to this file, as Markdown.")] = None,
    **model_flags: Any,
) -> None:
    """How much of an agent's score may be memory?

    Examples: [dim]fintrading audit llm:scripted/recogniser[/],
    [dim]fintrading audit llm --model openai/gpt-4o-mini --cutoff 2023-10-01 --usd-limit 1 --card card.md[/]
    """
    (player,) = with_options([find_player(f"{agent}:{model}" if model else agent)], given(model_flags))
    named = tuple(name.strip() for name in cells.split(",") if name.strip())
    plan = Plan(named, persona, identity, views, recalls, points, samples, stretches, steps, seeds, cutoff=cutoff)
    for cell in plan.cells:
        Task(cell, persona).make(observation="vector").close()  # a wrong setting is told before the first question
    keep_apart([json_file, card_file], files_of(plan.cells))
    for path in filter(None, (json_file, card_file)):
        path.open("a").close()  # the same for a file that cannot be written
    with Console(stderr=True).status("") as status:
        try:
            told = measure(player, plan, lambda part: status.update(f"{part} ..."))
        except ModelFailure as failure:
            raise RunStopped(str(failure)) from None
    if json_file:
        json_file.write_text(json.dumps(told, indent=1) + "\n")
    if card_file:
        card_file.write_text(card(told))
    Console().print(Markdown(card(told)))


def egress(
    files: Annotated[
        list[Path], typer.Argument(help="Boards, episodes of `fintrading play --json`, or any texts of a run.")
    ],
    cell: Annotated[str | None, typer.Option(help="What was played, for files that do not say so.")] = None,
    identity: Annotated[str, typer.Option(help="What was shown, for files that do not say so.")] = "masked",
) -> None:
    """Look for names, tickers, dates and raw closes in what a masked run sent, got and wrote; exit 1 if there are any.

    Examples: [dim]fintrading egress board.db[/],
    [dim]fintrading play llm:scripted/momentum --json > episode.json; fintrading egress episode.json[/],
    [dim]fintrading egress report.md --cell tsla_main[/]
    """
    found = {path: _of_board(path) if is_board(path) else _leaks(path, cell, identity) for path in files}
    for path, leaks in found.items():
        for leak in leaks:
            print(f"{path}: {leak}")
        if not leaks:
            print(f"{path}: nothing tells who or when")
    if any(found.values()):
        raise RunStopped(f"{sum(map(len, found.values()))} leaks: this run is not to be published as a masked one")


def _of_board(path: Path) -> list[Leak]:
    """In what the masked episodes of a board sent, got and kept.

    Raises:
        DataError, UnknownName: the prices of one are not here, so that nobody can tell them in a text.
    """
    found = []
    for stored in episodes(path):
        if (stored.episode.identity or "real") != "real":
            leaks = Egress(task_of(stored.recipe), stored.row["identity"]).of_log(stored.episode.log)
            found += [leak._replace(where=f"{name_of(stored.row)}, {leak.where}") for leak in leaks]
    return found


def _leaks(path: Path, cell: str | None, identity: str) -> list[Leak]:
    content = path.read_bytes()
    if b"\0" in content:
        raise ValueError(f"{path} is no board and no text that can be searched; export it as CSV or JSONL")
    text = content.decode(errors="replace")
    try:
        episode = json.loads(text)
    except ValueError:
        episode = None
    if isinstance(episode, dict) and "log" in episode:
        task = Task(**{f.name: episode[f.name] for f in fields(Task)})
        return Egress(task, episode["identity"]).of_log(episode["log"])
    if cell is None:
        raise ValueError(f"{path} is no board and no episode of `play --json`; say with --cell what was played")
    return Egress(Task(cell, timesteps=None), identity).of_lines(text)
