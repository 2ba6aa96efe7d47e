"""The door to a model, and the guard in it: whatever an agent sends, no name and no date of the table gets through."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from fintrading_agents.models import Form, Messages, Model, Reply
from fintrading_agents.neutering import EntityMap

# Parts of a message that say how it is to be read, and are no text.
STRUCTURE = ("role", "type", "id", "tool_call_id")


class Guarded:
    """A model behind the guard, for one episode. An agent gives it the model's place and asks as before."""

    def __init__(self, model: Model, entity_map: EntityMap):
        self.name, self.note = model.name, model.note
        self._model, self._entity_map = model, entity_map

    @property
    def structured(self) -> str:
        """How the model is held to a form now."""
        return self._model.structured

    def told(self, messages: Messages) -> list[dict[str, Any]]:
        """The messages as the model gets them, tool calls and all. Telling twice changes nothing more."""
        return [dict(texts_changed(message, self._hidden, STRUCTURE)) for message in messages]

    async def complete(self, messages: Messages, *, sample: int = 0, form: Form | None = None) -> Reply:
        """One answer, to the messages as they are `told`; see `models.Model`.

        The prices that it quotes are known from then on to be on the view's scale, and are sent again as they are.
        """
        reply = await self._model.complete(self.told(messages), sample=sample, form=form)
        texts_changed([reply.content, *reply.tool_calls], self._heard)
        return reply

    def _hidden(self, text: str) -> str:
        return self._entity_map.neuter(text, keep_tokens=True)

    def _heard(self, text: str) -> str:
        self._entity_map.heard(text)
        return text


def texts_changed(data: Any, change: Callable[[str], str], but: Collection[str] = ()) -> Any:
    """Nested data, as JSON has it, with every text in it changed, those that are keys too.

    Args:
        data: left as it is.
        change: of a text.
        but: keys that stay, with their values.
    """
    if isinstance(data, str):
        return change(data)
    if isinstance(data, Mapping):
        changed = {change(key): texts_changed(value, change, but) for key, value in data.items() if key not in but}
        return {key: value for key, value in data.items() if key in but} | changed
    if isinstance(data, Sequence):
        return [texts_changed(value, change, but) for value in data]
    return data
