"""What an episode's model calls come to, counted from the agent's log."""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

SILENT = ("empty", "only_reasoning")  # of replies.REASONS: nothing was said
EMPTY = "empty"  # the outcome of a call in which no decision was looked for


def counts(log: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Calls, tokens, money and what went wrong.

    Args:
        log: an entry a day, with its `calls` as `fintrading_agents.transcript` keeps them.

    `cost_usd` is what the calls cost when they were paid for; `paid_usd` and `cache_hits` tell of one run alone, and
    all else is the same when the episode is replayed.
    """
    days = [[call for call in day["calls"] if "outcome" in call] for day in log]
    calls = list(chain.from_iterable(days))
    verdicts = [[call["verdict"] for call in day if "verdict" in call] for day in days]
    silent = [call["verdict"]["reason"] in SILENT if "verdict" in call else call["outcome"] == EMPTY for call in calls]
    usages = [call["usage"] or {} for call in calls]
    return {
        "calls": len(calls),
        "tokens_in": _sum([usage.get("input") for usage in usages]),
        "tokens_out": _sum([usage.get("output") for usage in usages]),
        "cost_usd": _sum([call["cost"] for call in calls]),
        "paid_usd": _sum([call["cost"] for call in calls if not call["cached"]]),
        "cache_hits": sum(call["cached"] for call in calls),
        "empty_replies": sum(silent),
        "format_nudges": sum(len(day) - 1 for day in verdicts if day),
        "self_heals": sum(len(day) > 1 and day[-1]["action"] is not None for day in verdicts),
    }


def _sum(numbers: list[Any]) -> Any:
    """The sum; None where one of them is unknown."""
    return None if None in numbers else sum(numbers)
