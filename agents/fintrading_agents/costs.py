"""What an episode of an agent that asks a model will cost: it is played with models that only stand in for one.

One decides at once in the fewest words, the other never decides and fills every reply. Between what the two use lies
what a model will use, if it charges what it was asked and answered; what a cache holds already is not taken off.
"""

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from fintrading_agents.models.local import SETTINGS as SMALL
from fintrading_agents.models.names import model_name, price_of
from fintrading_agents.models.prices import Price
from fintrading_agents.models.reply import Form, Messages, Reply, Usage
from fintrading_agents.models.session import MAX_TOKENS, Settings
from fintrading_gym.costs import NOTHING, Costs
from fintrading_gym.rollout import Player, Task

# Characters a token, at most and at least. Measured on the system prompts and on views of both lengths, real and
# masked: 2.5 to 4.1 with GPT-4o's vocabulary, 2.7 to 3.9 with Claude's, 1.8 to 3.9 with Gemini's and Llama 2's, which
# spell numbers digit by digit; English prose has up to 4.7.
CHARACTERS = (5.0, 1.7)
AROUND = (0, 20)  # tokens around a request, which say whose turn it is
DECISION = '{"action": "buy"}'
FEWEST = 5  # tokens of it
LONG = "zqlongzq"  # a reply as long as it may be, told in one word: where it is sent again, its length counts


class StandIn:
    """A model that costs nothing, and counts what it is asked as a real one might."""

    note = ""

    def __init__(self, name: str, max_tokens: int, price: Price | None, most: bool):
        self.name, self.structured = name, "none"
        self._price, self._most = price, most
        self._reply, self._output = (LONG, max_tokens) if most else (DECISION, FEWEST)

    async def complete(self, messages: Messages, *, sample: int = 0, form: Form | None = None) -> Reply:
        """Its one answer."""
        texts = [str(message["content"]) for message in messages]
        if form and self._most:
            texts.append(json.dumps(dict(form.schema)))
        asked = sum(len(text) + text.count(LONG) * self._output * CHARACTERS[0] for text in texts)
        usage = Usage(round(asked / CHARACTERS[self._most]) + AROUND[self._most], self._output)
        return Reply(self._reply, "ok", usage=usage, cost=None if self._price is None else self._price(usage))


def costs(player: Player, task: Task) -> Costs:
    """Of one episode of a player whose argument is a model. Nothing is asked.

    Raises:
        UnknownName, ValueError: there is no such model; see `models.open_model`.
    """
    name = model_name(player.name, player.argument)
    if name.startswith("scripted/"):
        return NOTHING
    taken = {f.name for f in fields(Settings)}
    settings = Settings(**{option: value for option, value in player.options.items() if option in taken})
    price = price_of(name, settings)
    longest = settings.max_tokens or (SMALL["max_tokens"] if name.startswith("local/") else MAX_TOKENS)
    least, most = (_facts(player, task, StandIn(name, longest, price, most)) for most in (False, True))
    if least is None or most is None:
        return Costs()
    bounds = {part: (least[part], most[part]) for part in ("calls", "tokens_in", "tokens_out", "cost_usd")}
    return Costs(bounds["calls"], bounds["tokens_in"], bounds["tokens_out"], bounds["cost_usd"] if price else None)


def _facts(player: Player, task: Task, model: StandIn) -> Mapping[str, Any] | None:
    """What the agent tells of its calls; None where it could not play."""
    episode = replace(player, argument=model).play(task)
    return episode.facts if episode.failure is None else None
