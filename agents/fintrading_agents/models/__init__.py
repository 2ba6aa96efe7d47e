"""Models: the one door through which agents ask a language model.

`with open_model("openai/gpt-4o-mini") as model:` gives a `Model`; an agent calls `wait(model.complete(messages))`
from its own thread, or gathers several calls in one coroutine.
"""

from fintrading_agents.models.names import open_model
from fintrading_agents.models.reply import Form, Messages, Model, ModelFailure, Reply, Usage
from fintrading_agents.models.scripted import Scripted
from fintrading_agents.models.session import Settings, wait

__all__ = [
    "Form",
    "Messages",
    "Model",
    "ModelFailure",
    "Reply",
    "Scripted",
    "Settings",
    "Usage",
    "open_model",
    "wait",
]
