"""Is an episode what it says: its numbers by its ledger, its ledger by the prices, its decisions by the replies?"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from fintrading_gym import __version__
from fintrading_gym.counts import counts
from fintrading_gym.errors import DataError, MissingExtra, UnknownName, one_line
from fintrading_gym.ledger import Ledger, evaluate
from fintrading_gym.metrics import earned
from fintrading_gym.recipes import task_of
from fintrading_gym.replies import Decision, parse
from fintrading_gym.rollout import Task, load, registered
from fintrading_gym.store import Row
from fintrading_gym.stored import OF_THE_RUN, Stored, decision_of

TOLERANCE = 1e-9  # between numbers of one ledger on two machines
MALFORMED = (ValueError, TypeError, KeyError, IndexError, AttributeError)
OF_RECIPE = ("cell", "persona", "seed", "timesteps", "hold", "fill", "cost_bps", "world")  # in the row, of its task


def rescore(stored: Stored) -> tuple[list[str], str]:
    """What of an episode differs from what it is made of, and why the rest cannot be told ("": it can)."""
    recipe, row, episode = stored.recipe, stored.row, stored.episode
    if recipe["version"] != __version__:
        return [], f"it was played by version {recipe['version']}, and this is {__version__}"
    try:
        rules = recipe["task"]
        found = [*_of_recipe(stored), *_numbers(row, episode.ledger, rules), *_settled(episode.ledger, rules)]
        found += [*_facts(row, episode.log), *_decided(stored), *_read_again(stored)]
        try:
            task = task_of(recipe)
            here = task.window.load().sha256
        except (UnknownName, DataError) as fault:
            return found, f"its prices are not here: {fault}"
        if here != recipe["data_sha256"]:
            return found, f"the prices of {task.cell} that are here are others"
        if episode.failure is None and len(episode.ledger.date) != task.decisions:
            found.append(f"it has {len(episode.ledger.date)} decisions, and its task {task.decisions}")
        return found + ([] if found else differences(episode.ledger, task)), ""
    except MALFORMED as fault:  # no board of this package writes such a thing
        return [f"it cannot be computed again ({one_line(fault)})"], ""


def differences(ledger: Ledger, task: Task) -> list[str]:
    """Where a ledger is not what its decisions give on the task's prices."""
    if len(ledger.date) > task.decisions:
        return [f"it has {len(ledger.date)} decisions, and its task {task.decisions}"]
    game: Any = task.make(observation="vector").unwrapped
    game.reset(seed=task.seed)
    for action, valid in zip(ledger.action, ledger.valid, strict=True):
        game.step(action if valid else None)
    days = zip(ledger.rows(), game.ledger().rows(), strict=True)
    return [
        f"{name} of {true['date']} is {told[name]}, but its decisions give {value}"
        for told, true in days
        for name, value in true.items()
        if not same(told[name], value)
    ]


def same(one: Any, other: Any) -> bool:
    """Whether two values agree, numbers that are not whole to `TOLERANCE`."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(one == other)


def _of_recipe(stored: Stored) -> Iterator[str]:
    """What the row says of agent and task."""
    recipe, row = stored.recipe, stored.row
    told = {name: recipe["task"][name] for name in OF_RECIPE} | {
        name: recipe[name] for name in ("data_sha256", "version")
    }
    for name, value in told.items():
        if not same(row.get(name), value):
            yield f"{name} is {row.get(name)}, but it was played with {value}"
    if row["agent"] != recipe["agent"] and not row["agent"].startswith(f"{recipe['agent']} ["):
        yield f"the agent is {row['agent']}, but {recipe['agent']} played it"


def _numbers(row: Row, ledger: Ledger, rules: Mapping[str, Any]) -> Iterator[str]:
    """The row's numbers."""
    if row["failure"] is not None:
        if row["score"] is not None or row["coverage"]:
            yield f"it failed, and has a score of {row['score']} and a coverage of {row['coverage']}"
        return
    numbers = evaluate(ledger, rules["hold"], rules["cost_bps"])
    for name, value in {**numbers, "coverage": numbers["discipline"]}.items():
        if not same(row.get(name), value):
            yield f"{name} is {row.get(name)}, but its ledger gives {value}"


def _facts(row: Row, log: tuple[Any, ...]) -> Iterator[str]:
    """What the row says of its calls; of an agent that keeps something else of its days, nothing."""
    if "calls" not in row or not all(isinstance(day, Mapping) and "calls" in day for day in log):
        return
    for name, value in counts(log).items():
        if name not in OF_THE_RUN and name in row and not same(row[name], value):
            yield f"{name} is {row[name]}, but its calls give {value}"


def _settled(ledger: Ledger, rules: Mapping[str, Any]) -> Iterator[str]:
    """Positions by the rule of holding, and what they earned, whatever the prices were."""
    if not ledger.date:
        return
    by_rules = {"overnight": np.array(ledger.overnight), "hold": rules["hold"], "cost_bps": rules["cost_bps"]}
    position, log_return = earned(np.array(ledger.market), np.array(ledger.action), **by_rules)
    columns = {"position": (ledger.position, position.tolist()), "log_return": (ledger.log_return, log_return.tolist())}
    for name, (told, true) in columns.items():
        for date, one, other in zip(ledger.date, told, true, strict=True):
            if not same(float(one), float(other)):
                yield f"{name} of {date} is {one}, but its actions give {other}"


def _decided(stored: Stored) -> Iterator[str]:
    """Each decision is the action that was carried out, and the last that was read on its day."""
    ledger, log = stored.episode.ledger, stored.episode.log
    for k, decision in enumerate(stored.episode.decisions):
        index = None if decision is None else decision.index
        if (1 if index is None else index, index is not None) != (ledger.action[k], ledger.valid[k]):
            yield f"the action of {ledger.date[k]} is {ledger.action[k]}, but the agent decided {decision}"
        verdicts = [call["verdict"] for call in _calls(log[k] if k < len(log) else None) if "verdict" in call]
        if verdicts and (decision is None or verdicts[-1]["action"] != decision.action):
            yield f"the decision of {ledger.date[k]} is {decision}, but its last reply was read as {verdicts[-1]}"


def _read_again(stored: Stored) -> Iterator[str]:
    """Each verdict is what its reply says."""
    read = _reader(stored.recipe)
    for day, entry in enumerate(stored.episode.log, 1):
        for number, call in enumerate(_calls(entry), 1):
            if "verdict" in call and "outcome" in call:
                decision = read({**call, "reasoning_content": call["reasoning"]})
                if decision != decision_of(call["verdict"]):
                    yield f"day {day}, call {number}: it was read as {call['verdict']}, but its reply says {decision}"


def _calls(entry: Any) -> list[Mapping[str, Any]]:
    return entry.get("calls", []) if isinstance(entry, Mapping) else []


def _reader(recipe: Mapping[str, Any]) -> Callable[[Any], Decision]:
    """What reads a decision out of an agent's replies: what its factory names as `reader`, else `replies.parse`.

    Only of agents that installed packages bring: a board from elsewhere must not make this machine import a module.
    """
    point = registered().get(recipe["agent"].partition(":")[0])
    try:
        reader = getattr(load(point), "reader", None) if point else None
    except (MissingExtra, UnknownName):
        return parse
    return reader(recipe["options"]) if reader else parse
