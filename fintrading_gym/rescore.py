"""Is an episode what it says: its numbers by its ledger, its ledger by the prices, its decisions by the replies?"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fintrading_gym import __version__
from fintrading_gym.counts import counts
from fintrading_gym.errors import DataError, MissingExtra, UnknownName, one_line
from fintrading_gym.leaderboard import days_of
from fintrading_gym.ledger import Ledger, evaluate
from fintrading_gym.metrics import earned
from fintrading_gym.recipes import task_of
from fintrading_gym.replies import Decision, parse
from fintrading_gym.rollout import Player, Task, find_player, registered
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
        player = _player(recipe)
        found = [*_of_recipe(stored, player), *_numbers(row, episode.ledger, rules), *_settled(episode.ledger, rules)]
        found += [*_facts(row, episode.log), *_decided(stored), *_read_again(stored, player)]
        try:
            task = task_of(recipe)
            here = task.window.load().sha256
        except (UnknownName, DataError) as fault:
            return found, f"its prices are not here: {fault}"
        if here != recipe["data_sha256"]:
            return found, f"the prices of {task.cell} that are here are others"
        if episode.failure is None and len(episode.ledger.date) != task.decisions:
            found.append(f"it has {len(episode.ledger.date)} decisions, and its task {task.decisions}")
        found += _differing(row, days_of(task), "but its task gives")
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


def _of_recipe(stored: Stored, player: Player | None) -> Iterator[str]:
    """What the row says of agent and task."""
    recipe, row = stored.recipe, stored.row
    told = {name: recipe["task"][name] for name in OF_RECIPE}
    told |= {name: recipe[name] for name in ("data_sha256", "version")}
    if player:
        told |= {"agent": player.label, "ranked": player.traits.ranked}
    elif row["agent"] != recipe["agent"] and not row["agent"].startswith(f"{recipe['agent']} ["):
        yield f"agent is {row['agent']}, but it was played with {recipe['agent']}"
    yield from _differing(row, told, "but it was played with")


def _differing(row: Row, told: Mapping[str, Any], why: str) -> Iterator[str]:
    for name, value in told.items():
        if not same(row.get(name), value):
            yield f"{name} is {row.get(name)}, {why} {value}"


def _numbers(row: Row, ledger: Ledger, rules: Mapping[str, Any]) -> Iterator[str]:
    """The row's numbers."""
    if row.get("log_returns") != list(ledger.log_return):
        yield "log_returns are not those of its ledger"
    if row["failure"] is not None:
        if row["score"] is not None or row["coverage"]:
            yield f"it failed, and has a score of {row['score']} and a coverage of {row['coverage']}"
        return
    numbers = evaluate(ledger, rules["hold"], rules["cost_bps"])
    yield from _differing(row, {**numbers, "coverage": numbers["discipline"]}, "but its ledger gives")


def _facts(row: Row, log: tuple[Any, ...]) -> Iterator[str]:
    """What the row says of its calls; of an agent that keeps something else of its days, nothing."""
    if "calls" not in row or not all(isinstance(day, Mapping) and "calls" in day for day in log):
        return
    counted = {name: value for name, value in counts(log).items() if name not in OF_THE_RUN and name in row}
    yield from _differing(row, counted, "but its calls give")


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


def _read_again(stored: Stored, player: Player | None) -> Iterator[str]:
    """Each verdict is what its reply says, as `replies.parse` reads it, or the agent's own reader of that stage.

    A factory names its own as `readers`: a function of the options that gives them by stage.
    """
    own = getattr(player.factory, "readers", None) if player else None
    readers: Mapping[str, Callable[[Any], Decision]] = own(stored.recipe["options"]) if own else {}
    for day, entry in enumerate(stored.episode.log, 1):
        for number, call in enumerate(_calls(entry), 1):
            if "verdict" in call and "outcome" in call:
                decision = readers.get(call["stage"], parse)(Told(call))
                if decision != decision_of(call["verdict"]):
                    yield f"day {day}, call {number}: it was read as {call['verdict']}, but its reply says {decision}"


class Told:
    """A reply as it was kept, to be read again."""

    def __init__(self, call: Mapping[str, Any]):
        self.outcome = call["outcome"]
        self._message = {**call, "reasoning_content": call["reasoning"]}

    def model_dump(self) -> dict[str, Any]:
        """The reply as an API message."""
        return self._message


def _calls(entry: Any) -> list[Mapping[str, Any]]:
    return entry.get("calls", []) if isinstance(entry, Mapping) else []


def _player(recipe: Mapping[str, Any]) -> Player | None:
    """Who played, if an installed package brings it: a board from elsewhere must not make us import a module."""
    if recipe["agent"].partition(":")[0] not in registered():
        return None
    try:
        return replace(find_player(recipe["agent"]), options=recipe["options"])
    except (MissingExtra, UnknownName):
        return None
