"""What an audit means, on a page of Markdown."""

from typing import Any

from fintrading_agents.audit.intervals import is_above_chance
from fintrading_agents.audit.invariance import most_ids

IDENTIFIED = ("ticker", "sector", "date")
RECALLED = {
    "close_1pct": "close on a date, within 1 %",
    "close_3pct": "close on a date, within 3 %",
    "direction": "the next day's direction",
}


def card(told: dict[str, Any]) -> str:
    """The page of what `report.audit` measured."""
    plan, samples = told["plan"], told["plan"]["samples"]
    lines = [f"# Memory audit of {told['agent']}", "", told["sentence"], "", *_knowledge(told)]
    lines += ["| world | identity | PC | CI | IDS |", "|---|---|---|---|---|"]
    for level, worlds in told["invariance"].items():
        for world, numbers in worlds.items():
            ci = "unknown" if numbers["ci"] is None else _mean(numbers["ci"])
            lines.append(f"| {world} | {level} | {_mean(numbers['pc'])} | {ci} | {_mean(numbers['ids'])} |")
    lines += [
        "",
        "PC: share of decisions that are those of the real world. Near 1 where prices are others, it does not decide",
        "by them; below 1 for `renamed`, it decides by the name. CI: how little its confidence changes, the stated one",
        "or the share of a day's samples that agree. IDS: how far the decisions lie apart, in nats; with",
        f"{samples} of them a day {most_ids(samples):.2f} is the most.",
        *(["`again` is the real world with other draws: so much luck alone changes."] if samples > 1 else []),
        "",
        "| foresight | the real world | other paths | difference |",
        "|---|---|---|---|",
        *(
            f"| identity={level} | {' | '.join(_mean(part) for part in foresight.values())} |"
            for level, foresight in told["foresight"].items()
        ),
        "",
        "Foresight: 1 where every buy and sell comes true, 0 by luck. More of it in the real world is memory.",
        "",
    ]
    lines += _gap_table("all stretches", told["gap"], plan["identity"])
    for name, part in (told["cutoff"] or {}).items():
        lines += _gap_table(f"{name} the cutoff {plan['cutoff']}", part, plan["identity"])
    coverage = told["gap"]["coverage"]["hidden"]["mean"]
    if coverage < 1:
        lines += [f"It took {coverage:.0%} of its decisions itself; the rest are the environment's holds.", ""]
    lines += [
        "An audit finds memory that is used; it cannot prove that there is none. docs/guard.md has what rescaling",
        "cannot hide, and what these numbers mean.",
    ]
    return "\n".join(lines) + "\n"


def _knowledge(told: dict[str, Any]) -> list[str]:
    """What the model could name and recall."""
    if told["identification"] is None:
        return ["It asks no model, so there is nobody to ask what it remembers.", ""]
    levels = told["identification"].items()
    rates = {f"{what}, identity={level}": named[what] for level, named in levels for what in IDENTIFIED}
    rates |= {name: told["recall"][what] for what, name in RECALLED.items()}
    lines = ["| named or recalled | right | 95 % interval | chance | p | questions |", "|---|---|---|---|---|---|"]
    for name, rate in rates.items():
        interval = f"{rate['low']:.0%}..{rate['high']:.0%}"
        chance = "unknown" if rate["chance"] is None else f"{rate['chance']:.0%}"
        p = "unknown" if rate["p"] is None else f"{rate['p']:.3f}"
        lines.append(f"| {name} | {rate['share']:.0%} | {interval} | {chance} | {p} | {rate['n']} |")
    above = [name for name, rate in rates.items() if is_above_chance(rate)]
    lines += ["", f"Above chance: {'; '.join(above)}." if above else "Nothing is above chance."]
    parts = [*told["identification"].values(), told["recall"]]
    silent = sum(part["unanswered"] for part in parts)
    if silent:
        asked = sum(rate["n"] for rate in (next(iter(part.values())) for part in parts))
        lines.append(f"To {silent} of {asked} questions it gave no answer that could be read.")
    return [*lines, ""]


def _gap_table(title: str, numbers: dict[str, Any], identity: str) -> list[str]:
    if not numbers["score"]["real"]["n"]:
        return [f"There is no stretch {title}.", ""]
    lines = [f"| {title} | shown | identity={identity} | difference |", "|---|---|---|---|"]
    for name in ("score", "cumulative_return", "excess"):
        real, hidden, difference = (numbers[name][part] for part in ("real", "hidden", "difference"))
        lines.append(f"| {name} | {real['mean']:.3f} | {hidden['mean']:.3f} | {_mean(difference)} |")
    return [*lines, ""]


def _mean(number: dict[str, Any]) -> str:
    interval = "" if number["low"] is None else f" ({number['low']:.2f}..{number['high']:.2f})"
    return f"{number['mean']:.2f}{interval}"
