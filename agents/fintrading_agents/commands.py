"""The sub-commands of `fintrading` that the players bring."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fintrading_agents.rl import HYPERPARAMETERS, keep, trained_path
