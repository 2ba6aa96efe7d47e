"""`fintrading analyse`: the committee's analysis of one day, outside any episode."""

import hashlib
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markdown import Markdown

from fintrading_agents.committee import PROMPT_SHA256, analysed, check_items, committee
from fintrading_agents.models import Model, ModelFailure, wait
from fintrading_agents.neutering import for_task
from fintrading_agents.pipeline import calls_of_one
from fintrading_agents.research import research
from fintrading_agents.sources import Item, fingerprint, read_sources
from fintrading_agents.transcript import Transcript
from fintrading_gym import __version__
from fintrading_gym.cli import Detail, fail
from fintrading_gym.errors import DataError, RunStopped, lookup
from fintrading_gym.export import keep_apart
from fintrading_gym.flags import AGENT_NAMES, given, with_model_flags, with_options
from fintrading_gym.masking import mask
from fintrading_gym.observations import DETAILS, PERSONAS, Sight, percent_text, price_text
from fintrading_gym.replies import prose
from fintrading_gym.rollout import Player, Task
from fintrading_gym.windows import Prices, Window, bundled, iso_date, read_prices

TITLES = {"analyst": "Analyst", "bull": "Bull", "bear": "Bear", "judge": "Judge", "risk": "Risk committee"}


@with_model_flags
def analyse(
    ticker: Annotated[str, typer.Argument(help="A bundled ticker, or what the table of --prices is to be called.")],
    day: Annotated[str, typer.Option(help="The trading day at whose close it is done, YYYY-MM-DD.")],
    model: Annotated[
        str | None, typer.Option(help="provider/NAME, such as openai/gpt-4o-mini or local/smollm2.")
    ] = None,
    prices: Annotated[Path | None, typer.Option(help="A CSV table of daily bars; else the bundled one.")] = None,
    live: Annotated[bool, typer.Option("--live/--backtest", help="Send names, dates and prices as they are.")] = False,
    persona: Annotated[str, typer.Option(help=f"Of the risk committee: {', '.join(PERSONAS)}.")] = "adaptive",
    detail: Detail = None,
    model_prices: Annotated[str | None, typer.Option(help="A TOML table of prices per million tokens.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all that was sent and got here.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the reports here, as Markdown.")] = None,
    **flags: Any,
) -> None:
    """Ask the committee about one day: five reports and a verdict.

    What lies in the past is masked, and the reports come back with names (--backtest, the default).

    Examples: [dim]fintrading analyse TSLA --day 2022-10-06 --model openai/gpt-4o-mini[/],
    [dim]fintrading analyse IBM --day 2024-06-28 --prices IBM.csv --sources news.jsonl --live --json ibm.json[/]
    """
    options = given({**flags, "prices": model_prices})
    if "every" in options:
        raise ValueError("--every is for episodes; this is the analysis of one day")
    (player,) = with_options([Player("committee", committee, model)], options)
    lookup("persona", persona, PERSONAS)
    lookup("detail", detail or DETAILS[0], dict.fromkeys(DETAILS))
    window, later = until(ticker, day, prices)
    task = Task(window, persona, timesteps=1, detail=detail, identity="real" if live else "masked")
    read = [Path(path) for path in (prices, model_prices, options.get("sources")) if path]
    keep_apart([json_file, out], read)
    for path in filter(None, (json_file, out)):
        path.open("a").close()  # one that cannot be written is told before anything is paid for
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if live and later:
        console.print(f"{day} lies in the past: a model that is told so may remember what followed.")
    with player.opened() as opened:
        record = _asked(task, opened.argument, opened.options, console)
    if json_file:
        json_file.write_text(json.dumps(record, indent=1) + "\n")
    report = markdown(record)
    if out:
        out.write_text(report)
    if Console().is_terminal:
        Console().print(Markdown(report))
    else:
        print(report, end="")
    console.print(used(record["facts"]))
    if record["invalid"]:
        fail(f"no verdict: {record['invalid']}")


def until(ticker: str, day: str, prices: Path | None = None) -> tuple[Window, bool]:
    """The day and the one before it as a window whose table ends with the day, and whether the whole one goes on.

    Raises:
        DataError: no such table, or the day is none of its trading days but the first.
        UnknownName: no such ticker.
    """
    table = read_prices(prices) if prices else bundled(ticker)
    if iso_date(day) is None:
        raise DataError(f"--day {day!r} is not a date of the form YYYY-MM-DD")
    end = bisect_right(table.date, day)
    if end < 2 or table.date[end - 1] != day:
        raise DataError(
            f"{day} is no trading day of {table.source} that has one before it ({table.date[0]}..{table.date[-1]});"
            f" the nearest is {table.date[max(end - 1, 1)]}"
        )
    bars = {name: getattr(table, name)[:end] for name in ("date", "open", "high", "low", "close", "volume")}
    sha256 = hashlib.sha256(f"{table.sha256} until {day}".encode()).hexdigest()
    cut = Prices(**bars, sha256=sha256, source=f"{table.source} until {day}")
    return Window(ticker, cut.date[-2], day, cut), end < len(table.date)


def _asked(task: Task, model: Model, options: Mapping[str, Any], console: Console) -> dict[str, Any]:
    how = dict(options)
    sources = how.pop("sources", None)
    items = read_sources(sources, task.window.ticker) if sources else []
    rounds = how.get("debate_rounds", 0)
    console.print(f"{calls_of_one(rounds)} calls to {model.name}: {AGENT_NAMES['debate_rounds'](rounds)}")
    try:
        return record_of(task, model, items, lambda stage: console.print(f"{stage} ..."), **how)
    except ModelFailure as failure:
        raise RunStopped(str(failure)) from None


def record_of(
    task: Task, model: Model, items: Sequence[Item], on_stage: Callable[[str], None] = lambda stage: None, **how: Any
) -> dict[str, Any]:
    """The analysis of a task's last day: what was sent and got, and in `restored` what people are to read.

    `restored` has an entry a call: its text with names, dates and quoted prices put back, or None where that changes
    nothing.

    Args:
        task: of two days, the second of which is asked about.
        model: opened.
        items: of the user.
        on_stage: called as a stage begins.
        how: `debate_rounds`, `form` and `max_nudges` of `pipeline.Analysis`.

    Raises:
        ModelFailure, RunStopped: nothing more can be had of the model.
    """
    said = Transcript(task, model)
    window, bars = task.window, mask(task.window, task.lookback, said.identity)
    sight = Sight(window, task.lookback, said.detail, said.identity)
    check_items(items, for_task(task, said.identity))
    found = research(sight, 1, items, said.entity_map.neuter)
    decision, _ = wait(analysed(said, task, found, on_stage=on_stage, **how))
    (entry,) = said.log
    texts = [prose(call)[0] for call in entry["calls"]]
    restored = [said.entity_map.restore(text) for text in texts]
    return {
        "ticker": window.ticker,
        "day": window.last,
        "close": float(window.load().close[-1]),
        "identity": said.identity,
        "dollars": 1 / bars.scale,  # that a price of 1 in the texts stands for
        "verdict": asdict(decision),  # as it was told: its target price is one of the texts'
        "target_price": entry.get("target", {}).get("usd"),
        "invalid": entry.get("invalid"),
        "restored": [text if text != told else None for text, told in zip(restored, texts, strict=True)],
        **entry,
        "facts": {
            **said.facts,
            "debate_rounds": how.get("debate_rounds", 0),
            "prompt_sha256": PROMPT_SHA256,
            "sources_sha256": fingerprint(items) if items else None,
        },
        "data_sha256": window.load().sha256,
        "version": __version__,
    }


# ------------------------------------------------------------------------------------- for people


def markdown(record: Mapping[str, Any]) -> str:
    """The record as a page: the verdict, then each stage with the names put back."""
    parts = [f"# {record['ticker']} at the close of {record['day']}", _verdict(record), _told(record)]
    for call, restored in zip(record["calls"], record["restored"], strict=True):
        who, _, n = call["stage"].partition(" ")
        parts.append(f"## {TITLES[who]}{f', round {n}' if n else ''}")
        text = restored or prose(call)[0] or f"*{call.get('failure', 'nothing')}*"
        parts.append(
            f"```json\n{text}\n```" if text.startswith("{") else re.sub("^(#{1,4} )", r"##\1", text, flags=re.M)
        )
    return "\n\n".join(parts) + "\n"


def _verdict(record: Mapping[str, Any]) -> str:
    if record["invalid"]:
        return f"**No verdict**: {record['invalid']}"
    verdict, target, close = record["verdict"], record["target_price"], record["close"]
    sure = "not stated" if verdict["confidence"] is None else f"{verdict['confidence']:.2f}"
    aim = "not stated" if target is None else f"{price_text(target)} USD ({percent_text(target / close - 1)})"
    odd = f"; {', '.join(verdict['warnings'])}" if verdict["warnings"] else ""
    word = verdict["action"].capitalize()
    return f"**{word}**, confidence {sure}, target price {aim}, close {price_text(close)} USD{odd}"


def _told(record: Mapping[str, Any]) -> str:
    """What a reader must know of the texts."""
    facts, unsupported = record["facts"], record["unsupported"]
    lines = [f"Model: {facts['model']}" + (f" ({facts['note']})" if facts["note"] else "")]
    apart = "" if facts["debate_rounds"] else ": bull and bear did not read each other"
    lines.append(f"{record['manner'].capitalize()}{apart}.")
    if record["identity"] != "real":
        lines.append(
            "The model was told neither names nor dates. Prices behind a dollar sign, and those that it was shown, are "
            "in USD here; of other prices, which stand as it wrote them, 100 are "
            f"{price_text(100 * record['dollars'])} USD."
        )
    what = record["research"]
    lines.append(
        f"Sources: {what['items']} items told, {what['left_out']} over the budget, {what['excluded']} not known then."
    )
    wrong = "; ".join(f"{who} {', '.join(found)}" for who, found in unsupported.items() if found)
    count = sum(map(len, unsupported.values()))
    lines.append(f"Unsupported figures: {count} of {record['figures']}" + (f" ({wrong})" if wrong else ""))
    if facts["leaks"]:
        lines.append(
            f"The model was told, or told itself, who or when; times: {facts['leaks']} ({facts['first_leak']})"
        )
    return "\n".join(f"* {line}" for line in lines)


def used(facts: Mapping[str, Any]) -> str:
    """What the calls took, and what of it was paid for now."""
    tokens = [facts["tokens_in"], facts["tokens_out"]]
    told = "unknown" if None in tokens else f"{tokens[0]:,} in and {tokens[1]:,} out"
    paid = "an unknown sum" if facts["paid_usd"] is None else f"{facts['paid_usd']:.4f} USD"
    return f"{facts['calls']} calls, {facts['cache_hits']} of them from the cache; tokens: {told}; paid: {paid}"
