"""What a model answers, and what is told when it does not."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

Messages = Sequence[Mapping[str, Any]]  # OpenAI's shape: {"role": "system", "content": "..."}, ...
Outcome = Literal["ok", "empty", "truncated", "refused", "filtered"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call, as the endpoint counted them."""

    input: int
    output: int
    cached: int = 0  # of the input: read from the endpoint's own prompt cache


@dataclass(frozen=True, slots=True)
class Form:
    """The shape an answer should have, for endpoints that can hold a model to it."""

    name: str
    schema: Mapping[str, Any]  # JSON schema
    grammar: str | None = None  # the same in llama.cpp's GBNF, where no white space is free; None: only the schema


# How a model is held to a form: what the request says beside its messages.
STRUCTURED: dict[str, Callable[[Form], dict[str, Any]]] = {
    "json_schema": lambda form: {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": form.name, "strict": True, "schema": dict(form.schema)},
        }
    },
    "json_object": lambda form: {"response_format": {"type": "json_object"}},
    "grammar": lambda form: {"grammar": form.grammar} if form.grammar else STRUCTURED["json_schema"](form),
    "none": lambda form: {},
}


def held(sent: Mapping[str, Any]) -> str:
    """A key of `STRUCTURED`: what a request said, by what is sent beside its messages."""
    if "grammar" in sent:
        return "grammar"
    return str(sent.get("response_format", {}).get("type", "none"))


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's answer. `fintrading_gym.replies.parse` takes it as it is; nobody else looks for a decision in it."""

    content: str | list[Any] | None
    outcome: Outcome
    """`ok`; `empty`: nothing but perhaps reasoning; `truncated`: the token limit struck; `refused`; `filtered`."""
    reasoning: str | list[Any] | None = None
    """What the model thought, to be read by people: never parsed, never sent again."""
    refusal: str | None = None
    tool_calls: tuple[dict[str, Any], ...] = ()
    finish_reason: str | None = None
    usage: Usage | None = None  # None: the endpoint did not say
    latency: float = 0.0  # seconds of the attempt that was answered
    attempts: int = 1
    cost: float | None = None  # USD; None: no price is known
    price: str | None = None  # whose it is, and of which date; None: no price is known, or none is asked for
    sent: Mapping[str, Any] | None = None  # the request beside its messages: what was asked for, not what was wished
    cached: bool = False  # True: not paid for again. All other fields are those of the call that was paid

    def model_dump(self) -> dict[str, Any]:
        """The reply as an API message."""
        return {
            "role": "assistant",
            "content": self.content,
            "reasoning_content": self.reasoning,
            "refusal": self.refusal,
            "tool_calls": list(self.tool_calls),
            "finish_reason": self.finish_reason,
        }

    def as_json(self) -> dict[str, Any]:
        """Every field, ready for JSON; `price` only where there is one."""
        fields = asdict(self)
        return {name: value for name, value in fields.items() if value is not None or name != "price"}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any], **changes: Any) -> "Reply":
        """The reply that `as_json` wrote, with `changes`."""
        usage = stored["usage"]
        made = {"usage": usage and Usage(**usage), "tool_calls": tuple(stored["tool_calls"])}
        return cls(**{**stored, **made, **changes})


class Model(Protocol):
    """What an agent sees of a model."""

    name: str  # provider/model
    structured: str  # how it is held to a `Form`: a key of `STRUCTURED`
    note: str  # what a reader of its results must know; mostly nothing

    async def complete(self, messages: Messages, *, sample: int = 0, form: Form | None = None) -> Reply:
        """One answer.

        Args:
            messages: the whole conversation; nothing is remembered between calls.
            sample: numbers repeated answers to one conversation; it is sent as the seed where the endpoint takes one.
            form: the shape the answer should have.

        Raises:
            ModelFailure: there is no answer.
            RunStopped: a limit of the run is reached.
        """
        ...


# Why a call has no answer: whether asking again may help, and what to do about it.
KINDS: dict[str, tuple[bool, str]] = {
    "timeout": (True, "no answer in time"),
    "connection": (True, "no connection; is the URL right, and the server running?"),
    "server": (True, "the endpoint cannot answer now"),
    "rate_limit": (True, "too many requests"),
    "malformed": (True, "the answer is no chat completion; is the URL right (it often ends in /v1)?"),
    "bad_key": (False, "the key is not accepted; it is read from OPENAI_API_KEY"),
    "forbidden": (False, "the key may not use this"),
    "not_found": (False, "no such model, or a wrong URL (it often ends in /v1)"),
    "quota": (False, "the account has no credit left"),
    "context": (False, "the conversation is longer than the model can read"),
    "reply_length": (False, "the model has no room for so long a reply; lower --max-tokens"),
    "unsupported": (False, "the endpoint does not take a parameter"),
    "bad_request": (False, "the endpoint does not take this request"),
    "replay": (False, "the cache holds no such call, and replay makes none"),
}


class ModelFailure(Exception):  # noqa: N818 - reads as a sentence where it is raised and caught
    """A call that has no answer. Its message tells kind, status, URL and attempts, and never a key."""

    def __init__(
        self,
        kind: str,
        told: str = "",
        *,
        url: str = "",
        status: int | None = None,
        retry_after: float | None = None,
        parameter: str | None = None,
    ):
        # An endpoint may tell a page, or colours for a terminal: its words are shown on one line.
        told = " ".join("".join(c if c.isprintable() else " " for c in told).split())
        self.kind, self.told, self.url, self.status = kind, told, url, status
        self.retry_after = retry_after  # seconds, as the endpoint asked
        self.parameter = parameter  # that is not supported
        self.attempts = 1
        super().__init__(kind, told)

    def __str__(self) -> str:
        parts = [KINDS[self.kind][1]]
        if self.status is not None:
            parts.append(f"status {self.status}")
        if self.url:
            parts.append(f"at {self.url}")
        if self.attempts > 1:
            parts.append(f"after {self.attempts} attempts")
        return f"{self.kind}: {', '.join(parts)}" + (f" ({self.told})" if self.told else "")
