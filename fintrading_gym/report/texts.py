"""What agents saw and said, day by day, in blocks that the page unpacks when a day of theirs is opened."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fintrading_gym.observations import PERSONAS
from fintrading_gym.rollout import Task
from fintrading_gym.store import Stored

OTHER_PRICES = "The day cannot be shown again: the table of prices that was played is not here any more."
OTHER_NUMBERS = "The day cannot be shown again: played again, its numbers are others than those of the board."


def texts_of(stored: Sequence[Stored], episodes: Sequence[Mapping[str, Any]], texts: str) -> list[dict[str, Any]]:
    """A block for each market, in the order of the markets.

    A block holds `lines`, each line of any text once; `texts`, each the numbers of its lines; and `days`, which gives
    for the number of an episode one packed entry a day: see `Shared.pack`.

    Args:
        stored: the board.
        episodes: the same as `contents` tells them, with their market.
        texts: of `contents.TEXTS`.
    """
    blocks = [Shared() for _ in range(1 + max(episode["market"] for episode in episodes))]
    days: list[dict[int, list[Any]]] = [{} for _ in blocks]
    if texts != "none":
        for number, (one, episode) in enumerate(zip(stored, episodes, strict=True)):
            block = blocks[episode["market"]]
            days[episode["market"]][number] = [block.pack(entry) for entry in _days(one, texts == "all")]
    return [
        {"lines": list(block.lines), "texts": list(block.texts), "days": its}
        for block, its in zip(blocks, days, strict=True)
    ]


class Shared:
    """Texts that repeat one another: a prompt differs little from that of the day before, or of another agent."""

    def __init__(self) -> None:
        self.lines: dict[str, int] = {}
        self.texts: dict[tuple[int, ...], int] = {}

    def pack(self, data: Any) -> Any:
        """JSON with each text as its number, an integer, and each number as a text that writes it.

        Only what is empty is left out.
        """
        if isinstance(data, str):
            lines = tuple(self.lines.setdefault(line, len(self.lines)) for line in data.split("\n"))
            return self.texts.setdefault(lines, len(self.texts))
        if isinstance(data, Mapping):
            return {name: self.pack(value) for name, value in data.items() if not _is_empty(value)}
        if isinstance(data, list | tuple):
            return [self.pack(value) for value in data]
        return data if data is None or isinstance(data, bool) else f"{data:.7g}"


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, list | tuple | Mapping | str) and not value)


def _days(one: Stored, with_prompts: bool) -> Iterator[dict[str, Any]]:
    """Of a day the `decision` as it was given, the `calls`, what else was kept as `log`, without calls the `view`."""
    episode = one.episode
    asks = any(entry.get("calls") for entry in episode.log)
    views, why = ((), "") if asks or not with_prompts else _views(one)
    for k in range(max(len(episode.ledger.date), len(episode.log))):
        entry = episode.log[k] if k < len(episode.log) else {}
        decision = episode.decisions[k] if k < len(episode.decisions) else None
        yield {
            "decision": decision and asdict(decision),
            "calls": [_call(call, with_prompts) for call in entry.get("calls", ())],
            "log": {name: value for name, value in entry.items() if name != "calls"},
            "view": views[k] if k < len(views) else None,
            "no_view": why,
        }


def _call(call: Mapping[str, Any], with_prompts: bool) -> dict[str, Any]:
    return {name: value for name, value in call.items() if with_prompts or name not in ("messages", "sent")}


def _views(one: Stored) -> tuple[tuple[str, ...], str]:
    """The text of each day as the environment gives it to who plays the episode again; or none, and why."""
    told, ledger = one.recipe["task"], one.episode.ledger
    usual = {name: value for name, value in {"persona": "adaptive", "seed": 0}.items() if told[name] is None}
    task = Task(**told | usual)
    try:
        if task.window.load().sha256 != one.row["data_sha256"]:
            return (), OTHER_PRICES
        shown = {
            "identity": one.episode.identity or "real",
            "detail": one.row.get("detail") or told["detail"] or "full",
        }
        game = task.make(observation="text", **shown).unwrapped
    except (ValueError, OSError):  # the file is gone, or holds another table
        return (), OTHER_PRICES
    texts = [game.reset()[0]]
    for action, valid, earned in zip(ledger.action, ledger.valid, ledger.log_return, strict=True):
        text, reward, *_ = game.step(action if valid else None)
        if reward != earned:
            return (), OTHER_NUMBERS
        texts.append(text)
    stances = {f"your profile: {stance}\n" for stance in PERSONAS["adaptive"]} if "persona" in usual else set()
    return tuple(_without(text, stances) for text in texts[: len(ledger.date)]), ""


def _without(text: str, ends: set[str]) -> str:
    """The text without the line that an agent is not shown for what it is: it ignores the persona."""
    return next((text.removesuffix(end) for end in ends if text.endswith(end)), text)
