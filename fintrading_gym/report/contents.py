"""What the page shows at once, as one object that is ready for JSON: the board, its markets, each day's numbers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any

import numpy as np

from fintrading_gym import metrics
from fintrading_gym.errors import MissingExtra
from fintrading_gym.ledger import Ledger
from fintrading_gym.ranking import GAME, Standing, by_agent, by_world, left_out, place, rank
from fintrading_gym.replies import ACTIONS, REASONS
from fintrading_gym.statistics import analyse, in_words
from fintrading_gym.store import digest_of
from fintrading_gym.stored import OF_THE_RUN, Row, Stored
from fintrading_gym.worlds import WORLDS

TEXTS = {  # how much of what was said goes into the page
    "all": "what was sent, and what was answered",
    "replies": "what was answered",
    "none": "nothing",
}
OF_THE_TASK = {"world", "ticker", "first_day", "last_day", *GAME}  # columns that a market has, not an agent
RULES = ("timesteps", "hold", "fill", "cost_bps")


def contents(stored: Sequence[Stored], title: str, audits: Sequence[Mapping[str, Any]], texts: str) -> dict[str, Any]:
    """Everything but the texts of the days.

    Args:
        stored: of `store.episodes`, at least one.
        title: the page's heading.
        audits: what `fintrading audit --json` wrote.
        texts: of `TEXTS`.
    """
    rows = [one.row for one in stored]
    markets = _markets(stored)
    places = list(markets)
    worlds = [
        {"name": world, "told": WORLDS[world.partition(":")[0]], **_board(part)}
        for world, part in by_world(rows).items()
    ]
    its = by_agent(rows)
    # In the order of the ranking, the agents of the real world first.
    agents = list(dict.fromkeys(s["agent"] for world in worlds for s in world["parts"][0]["standings"]))
    told: dict[str, Any] = rounded(
        {
            "title": title,
            "texts": texts,
            "sha256": digest_of(stored),
            "versions": _each(rows, "version"),
            "identities": _each(rows, "identity"),
            "rules": {name: _each(rows, name) for name in RULES},
            "reasons": REASONS | {"none": "The agent gave none."},
            "actions": ACTIONS,
            "worlds": worlds,
            "agents": [_agent(name, its[name]) for name in agents],
            "markets": list(markets.values()),
            "episodes": [_episode(one, agents, places) for one in stored],
            "audits": audits,
        }
    )
    return told


def rounded(data: Any) -> Any:
    """The same with floats of seven digits: nobody reads more, and each costs space."""
    if isinstance(data, float):
        return float(f"{data:.7g}")
    if isinstance(data, Mapping):
        return {name: rounded(value) for name, value in data.items()}
    return [rounded(value) for value in data] if isinstance(data, list | tuple) else data


def _each(rows: Iterable[Row], name: str) -> list[Any]:
    return list(dict.fromkeys(row[name] for row in rows if row[name] is not None))


# ------------------------------------------------------------------------------------------- the board


def _board(rows: list[Row]) -> dict[str, Any]:
    """One world's ranking and what it allows to conclude, then the means of each part that the filters can choose."""
    cells, personas, identities = (_each(rows, name) for name in ("cell", "persona", "identity"))
    parts = [{"cell": None, "persona": None, "identity": None, **_concluded(rows)}]
    for cell, persona, identity in list(product((None, *cells), (None, *personas), (None, *identities)))[1:]:
        # An agent that ignores the persona has played for each of them.
        chosen = [
            row
            for row in rows
            if cell in (None, row["cell"])
            and (persona is None or row["persona"] in (None, persona))
            and identity in (None, row["identity"])
        ]
        if chosen:
            parts.append(
                {"cell": cell, "persona": persona, "identity": identity, "standings": _told(rank(chosen), chosen)}
            )
    return {"cells": cells, "personas": personas, "identities": identities, "parts": parts}


def _concluded(rows: list[Row]) -> dict[str, Any]:
    """The whole ranking with its statistics; without what they need, the ranking and the line that installs it."""
    others = left_out(rows)
    try:
        found = analyse(rows)
    except MissingExtra as missing:
        return {"standings": _told(rank(rows), rows), "comparisons": [], "words": [str(missing)], "left_out": others}
    return {
        "standings": _told(found.standings, rows),
        "comparisons": [asdict(one) for one in found.comparisons],
        "words": in_words(found),
        "trials": found.trials,
        "windows": found.windows,
        "left_out": others,
    }


def _told(standings: Iterable[Standing], rows: list[Row]) -> list[dict[str, Any]]:
    its = by_agent(rows)
    return [asdict(s) | _counted(its[s.agent]) for s in standings]


def _counted(rows: list[Row]) -> dict[str, Any]:
    """What an agent decided, was shown and used in these episodes; None where a number is unknown."""
    whole = [row for row in rows if row["failure"] is None]
    asking = [row for row in rows if "model" in row]
    return {
        "shares": [float(np.mean([row[f"{name}_share"] for row in whole])) for name in ACTIONS] if whole else None,
        "identities": _each(rows, "identity"),
        "asks": bool(asking),
        "tokens": _sum(asking, "tokens_in", "tokens_out"),
        "cost_usd": _sum(asking, "cost_usd"),
        "calls": _sum(asking, "calls"),
        "leaks": _sum(asking, "leaks"),
    }


def _sum(rows: list[Row], *names: str) -> float | None:
    numbers = [row.get(name) for row in rows for name in names]
    return None if None in numbers else sum(number for number in numbers if number is not None)


def _agent(name: str, rows: list[Row]) -> dict[str, Any]:
    """What is the same in all rows of an agent and no number: its model, its prompts' hash, until when it learned."""
    same = {key: value for key, value in rows[0].items() if isinstance(value, str) and key not in OF_THE_TASK}
    same = {key: value for key, value in same.items() if all(row.get(key) == value for row in rows)}
    leaks = [row["first_leak"] for row in rows if row.get("first_leak")]
    return {"name": name, "facts": same, "first_leak": leaks[0] if leaks else None}


# ----------------------------------------------------------------------------------- markets and days


def _market_of(row: Row) -> tuple[Any, ...]:
    return (row["world"], *place(row))


def _markets(stored: Iterable[Stored]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The days that were played, once for all who played them by the same rules: prices, and what they allowed."""
    longest: dict[tuple[Any, ...], Stored] = {}
    for one in stored:  # of an episode that was broken off the days are the first ones
        there = longest.setdefault(_market_of(one.row), one)
        if len(one.episode.ledger.date) > len(there.episode.ledger.date):
            longest[_market_of(one.row)] = one
    markets = {place: _market(one.row, one.episode.ledger) for place, one in longest.items()}
    for market in markets.values():
        twins = [
            other for other in markets.values() if other["world"] == market["world"] and other["cell"] == market["cell"]
        ]
        apart = [name for name in (*RULES, "data_sha256") if len({other[name] for other in twins}) > 1]
        market["name"] = " ".join([market["cell"], *(f"{name}={str(market[name])[:12]}" for name in apart)])
    return markets


def _market(row: Row, days: Ledger) -> dict[str, Any]:
    move = np.array(days.market)
    rules: dict[str, Any] = {"overnight": days.overnight, "hold": row["hold"], "cost_bps": row["cost_bps"]}
    best_positions, best_earned = metrics.earned(move, metrics.hindsight(move, **rules)[0], **rules)
    always = np.full(len(move), ACTIONS.index("buy"))
    told = {name: row[name] for name in ("world", "ticker", *GAME)}
    return told | {
        "dates": days.date,
        "closes": [*days.price, *(days.price[-1] * np.exp(move[-1:])).tolist()] if days.date else [],
        "buy_and_hold": _whole(metrics.earned(move, always, **rules)[1].tolist()),
        "oracle": _whole(best_earned.tolist()),
        "oracle_positions": _signs(best_positions.tolist()),
    }


def _episode(one: Stored, agents: list[str], places: list[tuple[Any, ...]]) -> dict[str, Any]:
    ledger, row = one.episode.ledger, one.row
    apart = {*OF_THE_TASK, *OF_THE_RUN, "agent", "persona", "seed", "identity", "failure"}
    return {
        "agent": agents.index(row["agent"]),
        "market": places.index(_market_of(row)),
        "persona": row["persona"],
        "seed": row["seed"],
        "identity": row["identity"],
        "failure": row["failure"],
        "days": max(len(ledger.date), len(one.episode.log)),
        "actions": "".join(map(str, ledger.action)),
        "valid": "".join(str(int(valid)) for valid in ledger.valid),
        "positions": _signs(ledger.position),
        "earned": _whole(ledger.log_return),
        "row": {name: value for name, value in row.items() if name not in apart and not isinstance(value, list)},
    }


def _signs(positions: Iterable[int]) -> str:
    return "".join("-0+"[position + 1] for position in positions)


def _whole(log_returns: Iterable[float]) -> list[int]:
    """In units of 1e-8: shorter than a fraction, and the sum of 200 is still right to six digits."""
    return [round(r * 1e8) for r in log_returns]
