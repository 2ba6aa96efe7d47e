"""Models whose answers are written down: for examples and tests, without a key or a network."""

import re
from collections.abc import Callable, Iterable

from fintrading_agents.models.reply import Form, Messages, Reply

Answer = str | Reply
Script = Callable[[Messages], Answer]


class Scripted:
    """A model that answers by a function of the conversation, or with each of a list in turn."""

    structured = "none"
    note = "a script, and no language model"

    def __init__(self, answers: Script | Iterable[Answer], name: str = "scripted/given"):
        self.name = name
        if callable(answers):
            self._script: Script = answers
        else:
            coming = iter(answers)
            self._script = lambda messages: next(coming)

    async def complete(self, messages: Messages, *, sample: int = 0, form: Form | None = None) -> Reply:
        """The written answer; `sample` and `form` change nothing."""
        answer = self._script(messages)
        if isinstance(answer, Reply):
            return answer
        return Reply(answer, "ok" if answer.strip() else "empty", finish_reason="stop", cost=0.0)


def _last(messages: Messages) -> str:
    return str(messages[-1]["content"])


def _momentum(messages: Messages) -> str:
    """Buys while the view's 3-day momentum is above zero, sells while it is below, and holds without one."""
    shown = re.search(r"3-day momentum: ([+-])(\S+)", _last(messages))
    if shown is None or float(shown[2]) == 0:
        return '{"action": "hold"}'
    return '{"action": "buy"}' if shown[1] == "+" else '{"action": "sell"}'


SCRIPTS: dict[str, Script] = {
    "buy": lambda messages: '{"action": "buy"}',
    "momentum": _momentum,
    "prose": lambda messages: "I would rather buy than sell here.",
    "silent": lambda messages: "",
}
