"""The sub-commands of `fintrading` that the players bring."""

from math import isnan
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from fintrading_agents.policies import cached, refuse_unfit, save, title
from fintrading_agents.rl import HYPERPARAMETERS, recipe_for
from fintrading_agents.rl import train as learn
from fintrading_gym.cli import CostBps, Fill, Hold
from fintrading_gym.errors import lookup
from fintrading_gym.rollout import Task

BAR = (
    TextColumn("{task.description}"),
    BarColumn(),
    TextColumn("{task.fields[told]}"),
    TimeRemainingColumn(),
)


def train(
    algorithm: Annotated[str, typer.Argument(help=f"One of {', '.join(HYPERPARAMETERS)}.")],
    cell: Annotated[str, typer.Option(help="What is to be played; learned from are the days before it.")] = "tsla_main",
    seeds: Annotated[int, typer.Option(min=1, help="Policies to train: seeds 0, 1, ...")] = 1,
    steps: Annotated[int | None, typer.Option(min=1, help="Days to play in training; else as the table says.")] = None,
    tickers: Annotated[str, typer.Option(help="Other tickers, by commas, whose same days are learned from too.")] = "",
    hold: Hold = "keep",
    fill: Fill = "close",
    cost_bps: CostBps = 0.0,
    out: Annotated[Path | None, typer.Option(help="Folder for the policies; else the cache that boards use.")] = None,
    tensorboard: Annotated[Path | None, typer.Option(help="Folder for TensorBoard's log.")] = None,
) -> None:
    """Train policies on the days before a cell.

    Examples: [dim]fintrading train ppo --cell tsla_main --seeds 5[/],
    [dim]fintrading train dqn --cell spy_bear_2022 --out policies --tensorboard logs[/]
    """
    chosen = dict(lookup("algorithm", algorithm, HYPERPARAMETERS))
    chosen["steps"] = steps or chosen["steps"]
    tasks = [Task(cell, seed=seed, hold=hold, fill=fill, cost_bps=cost_bps) for seed in range(seeds)]
    tasks[0].make(observation="vector").close()  # a wrong setting fails before the first training
    others = tuple(name.strip() for name in tickers.split(",") if name.strip())
    recipes = [recipe_for(algorithm, task, others, chosen) for task in tasks]
    refuse_unfit(recipes[0], tasks[0])  # what may not play the cell is not trained for it
    paths = [out / f"{title(recipe)}.npz" if out else cached(recipe) for recipe in recipes]
    paths[0].parent.mkdir(parents=True, exist_ok=True)  # one that cannot be written fails before the first training
    with Progress(*BAR, console=Console(stderr=True), transient=True) as progress:
        for task, path in zip(tasks, paths, strict=True):
            bar = progress.add_task(f"{algorithm} seed {task.seed}", total=chosen["steps"], told="")

            def report(done: int, fps: float, mean: float, bar: Any = bar) -> None:
                told = "no episode has ended" if isnan(mean) else f"mean return {mean:+.3f}"
                progress.update(bar, completed=done, told=f"{fps:,.0f} steps/s, {told}")

            policy = learn(algorithm, task, others, chosen, report, tensorboard)
            save(policy, path)
            told = progress.tasks[bar].fields["told"]
            print(f"{algorithm}:{path}   {told} in training, learned until {policy.last_day}")
