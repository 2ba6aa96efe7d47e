"""Flags of the command line that go to the players that take them: how a model is asked, and how an agent asks it."""

import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, TypeVar

import typer

from fintrading_gym.rollout import Player

C = TypeVar("C", bound=Callable[..., None])

# The names are those of the options that players name in their traits; a flag that is left out is theirs to decide.
MODEL_FLAGS: dict[str, tuple[type, str]] = {
    "base_url": (str, "Endpoint of openai/NAME, such as http://127.0.0.1:8000/v1; else OPENAI_BASE_URL, else OpenAI."),
    "temperature": (float, "Of the model's choice of words; 0: none."),
    "max_tokens": (int, "Of a reply, reasoning included."),
    "structured": (str, "How replies are held to JSON: auto, json_schema, json_object, grammar, none."),
    "context": (str, "Days the model sees: last (today's view), window:K, full."),
    "max_nudges": (int, "How often a day it is told that its reply was no decision."),
    "cache": (
        str,
        "Replies paid for: readwrite (what was refused, filtered, cut or empty is asked for again), refresh (all is), "
        "replay (all as it was, no request; a miss is an error), off.",
    ),
    "cache_file": (str, "Where they are kept; else in the user's cache folder."),
    "prices": (str, "A TOML table of prices, in USD per million tokens, over the published ones."),
    "in_flight": (int, "Requests at a time to one endpoint, and episodes at a time."),
    "attempts": (int, "Of one request, where it makes sense to ask again; else as --pauses says."),
    "pauses": (str, "growing (5 attempts, 0.5 s, doubling), stepped (4; 10, 20, 30 s at a rate limit, else 5 s)."),
    "timeout": (float, "Seconds of one attempt, before the run too; connecting has 5."),
    "token_limit": (int, "The run stops when so many tokens are used; what is finished stays."),
    "usd_limit": (float, "The same for money."),
    "seconds_limit": (float, "The same for time."),
}


# Of some of those players: type, whose, what it says.
AGENT_FLAGS: dict[str, tuple[type, str, str]] = {
    "debate_rounds": (int, "committee", "Rounds in which bull and bear answer each other; 0: one-shot construction."),
    "every": (int, "committee", "Days from one whole analysis to the next; in between one plain question a day."),
    "form": (str, "committee", "How the last stage answers: schema (JSON) or prose (labelled lines)."),
    "sources": (str, "committee and finmem", "A JSONL file of news, filings and the like: date, kind, title, text."),
    "persona_rule": (
        str,
        "finmem",
        "What the adaptive persona goes by: cumulative, recent (both of its returns), momentum.",
    ),
    "memory_off": (bool, "finmem", "No memory, and no warm-up."),
    "memory_constants": (str, "finmem", "How memories fade and move: paper, code."),
    "memory_top_k": (int, "finmem", "Memories of each layer that the model is shown."),
    "memory_layers": (str, "finmem", "Those that are on, by commas: shallow, intermediate, deep; all."),
    "memory_embedding": (str, "finmem", "What tells how relevant a memory is: hashing, minilm, openai/NAME."),
    "memory_warmup": (int, "finmem", "Trading days before the window that are lived through first."),
    "memory_warmup_calls": (int, "finmem", "Of these, how many the model explains, knowing the next day's move."),
    "memory_reflect": (int, "finmem", "After so many days each the model looks back on them; 0: never."),
    "memory_file": (str, "finmem", "SQLite file in which memories are kept; else in the user's cache folder."),
    "memory_start": (str, "finmem", "Such a file, whose memory is gone on with instead of a warm-up."),
}

# What the values of some of those flags are called, where a number alone would mislead.
AGENT_NAMES: dict[str, Callable[[Any], str]] = {
    "debate_rounds": lambda n: f"a debate of {n} round{'s' * (n > 1)}" if n else "one-shot construction",
}

# What is meant where a flag is left out: said either way, it is the same agent.
VARIABLES = {"base_url": "OPENAI_BASE_URL"}


def with_model_flags(command: C) -> C:
    """Add the flags of `MODEL_FLAGS` and `AGENT_FLAGS` to a command that takes what is given of them as keywords.

    One that the command has itself stays as it is.
    """
    signature = inspect.signature(command)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    flags = [_flag(name, kind, told, "Players that ask a model") for name, (kind, told) in MODEL_FLAGS.items()]
    flags += [_flag(name, kind, told, f"Of {whose}") for name, (kind, whose, told) in AGENT_FLAGS.items()]
    flags = [flag for flag in flags if flag.name not in signature.parameters]
    command.__signature__ = signature.replace(parameters=own + flags)  # type: ignore[attr-defined]
    return command


def _flag(name: str, kind: type, told: str, panel: str) -> inspect.Parameter:
    spelt = typer.Option(written(name), help=told, rich_help_panel=panel)
    option = Annotated[kind | None, spelt]  # type: ignore[valid-type]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)


def written(name: str) -> str:
    """An option's flag: `--max-nudges`, `--memory.top-k`."""
    return "--" + name.replace("memory_", "memory.", 1).replace("_", "-")


def called(player: Player) -> str:
    """The `AGENT_NAMES` of what a player's options say, or leave as it is; empty if none of them has one."""
    usual = inspect.signature(player.factory).parameters
    return ", ".join(
        name(player.options.get(option, usual[option].default))
        for option, name in AGENT_NAMES.items()
        if option in player.traits.options and option in usual
    )


def given(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a command's flags that the user gave."""
    return {name: value for name, value in flags.items() if value is not None}


def with_options(players: Iterable[Player], options: Mapping[str, Any]) -> list[Player]:
    """The players, each with those of the options that it takes.

    Raises:
        ValueError: none of them takes one.
    """
    players = list(players)
    usual = {name: os.environ[variable] for name, variable in VARIABLES.items() if os.environ.get(variable)}
    taken = {name for player in players for name in player.traits.options}
    for name in [name for name in options if name not in taken]:
        names = ", ".join(player.name for player in players)
        whose = AGENT_FLAGS[name][1] if name in AGENT_FLAGS else "players that ask a model, such as llm"
        raise ValueError(f"{written(name)} is for {whose}; there are: {names}")
    there = {**usual, **options}
    return [
        replace(player, options={name: there[name] for name in player.traits.options if name in there})
        for player in players
    ]
