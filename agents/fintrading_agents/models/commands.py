"""`fintrading models`: what the command line does for models beside playing them."""

import typer

from fintrading_agents.models.local import add

app = typer.Typer(no_args_is_help=True, help="Fetch the weights of a model that runs on this machine.")
app.command()(add)
app.callback()(lambda: None)  # with a command of its own, or Typer would take `add` for the group itself
