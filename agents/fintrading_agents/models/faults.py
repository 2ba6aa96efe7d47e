"""What an endpoint's answer is: a reply, or a failure of which kind."""

import email.utils
import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fintrading_agents.models.reply import ModelFailure, Outcome, Reply, Usage

if TYPE_CHECKING:
    import openai

TOLD = 200  # characters of an endpoint's own words that a failure repeats

BY_STATUS = {
    401: "bad_key",
    402: "quota",
    403: "forbidden",
    404: "not_found",
    408: "timeout",
    409: "server",
    425: "server",
    429: "rate_limit",
}
# What an error in a 200 calls itself, as the status it would have come with.
BY_CODE = {
    "invalid_api_key": 401,
    "authentication_error": 401,
    "permission_error": 403,
    "model_not_found": 404,
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "insufficient_quota": 429,
    "billing_hard_limit_reached": 429,
    "billing_not_active": 429,
    "insufficient_balance": 429,
    "context_length_exceeded": 400,
    "invalid_request_error": 400,
    "unsupported_parameter": 400,
    "server_error": 500,
    "overloaded_error": 503,
}
# A 429 of these codes, or with these words, is no matter of waiting.
QUOTA = {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "insufficient_balance"}
QUOTA_WORDS = re.compile(r"current quota|billing|insufficient (?:balance|credit|fund)", re.IGNORECASE)
# Of a 400 or 422.
CONTEXT = re.compile(r"context[_ ](?:length|size|window)|maximum context|too many tokens", re.IGNORECASE)
# The limit that we set on the reply is beyond what the model writes, or has room for behind the conversation.
REPLY_LENGTH = re.compile(
    r"max_(?:completion_)?tokens\b.{0,80}?(?:too (?:large|big|high|long)|exceed|greater|at most|less than|[<>])"
    r"|\d+ (?:in|for) the completion|at most \d+ completion tokens",
    re.IGNORECASE,
)
ROOM, ASKED = (
    re.compile(words, re.IGNORECASE)
    for words in (r"context length is (\d+)", r"(\d+) (?:input tokens|in (?:the|your) (?:messages|prompt))")
)
NO_MODEL = re.compile(
    r"model\W.{0,80}\b(?:does not exist|not found|unknown)|unknown model|invalid model", re.IGNORECASE
)
UNSUPPORTED = re.compile(
    r"unsupported|not supported|does ?n.t support|unrecogni[sz]ed|unknown|unexpected|unavailable|not permitted"
    r"|not allowed|no longer|instead",
    re.IGNORECASE,
)
# Parameters that some endpoints do not take, in the order in which a message is searched for them.
OPTIONAL = ("max_tokens", "max_completion_tokens", "temperature", "response_format", "grammar", "seed")


def hider(api_key: str | None) -> Callable[[str], str]:
    """A function that takes a key out of a text, where an endpoint repeats it as it is or as Python writes it."""
    if not api_key:
        return str
    forms = "|".join(re.escape(form) for form in sorted({repr(api_key)[1:-1], api_key}, key=len, reverse=True))
    # A short one, such as "x" for a server that wants any, is only hidden where it stands alone.
    edges = ("", "") if len(api_key) >= 8 else (r"(?<!\w)", r"(?!\w)")
    pattern = re.compile(f"{edges[0]}(?:{forms}){edges[1]}")
    return lambda text: pattern.sub("***", text)


def failure(fault: "openai.OpenAIError", url: str, hide: Callable[[str], str]) -> ModelFailure:
    """What the SDK raised, as a failure; `hide` takes the key out of the endpoint's words, which may repeat it."""
    import openai

    if isinstance(fault, openai.APITimeoutError):
        # httpx's or, from openai 3 on, httpx2's.
        unconnected = type(fault.__cause__).__name__ == "ConnectTimeout"
        return ModelFailure("connection" if unconnected else "timeout", url=url)
    if isinstance(fault, openai.APIStatusError):
        after = retry_after(fault.response.headers)
        return of_status(fault.status_code, fault.body, url=url, after=after, hide=hide)
    return ModelFailure("connection", hide(str(fault.__cause__ or fault))[:TOLD], url=url)


def of_status(
    status: int, body: object, *, url: str, after: float | None = None, hide: Callable[[str], str] = str
) -> ModelFailure:
    """The failure that an error status and its body tell."""
    told = body.get("error", body) if isinstance(body, Mapping) else body
    told = told if isinstance(told, Mapping) else {"message": told}
    message, code, named = hide(str(told.get("message") or "")), str(told.get("code")), told.get("param")
    kind, parameter = BY_STATUS.get(status, "server" if status >= 500 else "bad_request"), None
    # Limits that pass name billing too, as where to have them raised; they say so in the code, or for how long.
    passing = code == "rate_limit_exceeded" or after is not None
    if kind == "rate_limit" and (
        {code, str(told.get("type"))} & QUOTA or (QUOTA_WORDS.search(message) and not passing)
    ):
        kind = "quota"
    elif kind == "bad_request":
        if REPLY_LENGTH.search(message) and not _too_long_alone(message):
            kind = "reply_length"
        elif code == "context_length_exceeded" or CONTEXT.search(message):
            kind = "context"
        elif code == "model_not_found" or NO_MODEL.search(message):
            kind = "not_found"
        else:
            parameter = named if named in OPTIONAL else _named(message)
            kind = "unsupported" if parameter and UNSUPPORTED.search(f"{code} {message}") else kind
    return ModelFailure(kind, message[:TOLD], url=url, status=status, retry_after=after, parameter=parameter)


def _too_long_alone(message: str) -> bool:
    """Whether the conversation has no room even without a reply, as far as the message tells numbers."""
    room, asked = ROOM.search(message), ASKED.search(message)
    return bool(room and asked) and int(asked[1]) >= int(room[1])  # type: ignore[index]


def _named(message: str) -> str | None:
    return next((name for name in OPTIONAL if re.search(rf"\b{name}\b", message)), None)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the endpoint asks to wait: `retry-after-ms`, or `retry-after` in seconds or as a date."""
    try:
        return max(0.0, float(headers.get("retry-after-ms", "")) / 1000)
    except ValueError:
        pass
    asked = headers.get("retry-after", "")
    try:
        return max(0.0, float(asked))
    except ValueError:
        date = email.utils.parsedate_tz(asked)
        return max(0.0, email.utils.mktime_tz(date) - time.time()) if date else None


def read(text: str, url: str, hide: Callable[[str], str] = str) -> Reply:
    """The reply in the body of a 200; `hide` takes the key out of it.

    Raises:
        ModelFailure: it is none: a web page, broken JSON, an error with status 200, no choices, a wrong type.
    """
    try:
        body = _hidden(json.loads(text), hide)
        choice = body["choices"][0] if body.get("choices") else {}
        _raise_for((body.get("error"), choice.get("error")), url)
        if choice.get("finish_reason") == "error":
            raise ModelFailure("server", "it broke off", url=url, status=200)
        return _reply(choice, _usage(body.get("usage")))
    except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError):
        raise ModelFailure("malformed", hide(text)[:TOLD], url=url, status=200) from None


def read_vectors(count: int, text: str, url: str, hide: Callable[[str], str] = str) -> Reply:
    """So many vectors in the body of a 200, in the order of their texts, as JSON in the reply's content.

    Raises:
        ModelFailure: as `read`; a row without numbers.
    """
    try:
        body = _hidden(json.loads(text), hide)
        _raise_for((body.get("error"),), url)
        rows = [row["embedding"] for row in sorted(body["data"], key=lambda row: int(row["index"]))]
        numbers = [number for row in rows for number in row]
        if len(rows) != count or len({len(row) for row in rows}) != 1 or not all(map(math.isfinite, numbers)):
            raise ValueError("these are not the vectors")
        usage = _usage({**(body.get("usage") or {}), "completion_tokens": 0})
        return Reply(json.dumps(rows), "ok" if rows[0] else "empty", usage=usage)
    except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError):
        raise ModelFailure("malformed", hide(text)[:TOLD], url=url, status=200) from None


def _raise_for(errors: Sequence[object], url: str) -> None:
    """Raise for an error that came with a status of 200."""
    for error in errors:
        if isinstance(error, dict) and (status := _status(error)):
            raise of_status(status, error, url=url)


def _hidden(value: Any, hide: Callable[[str], str]) -> Any:
    """A JSON value with the key taken out of its texts, however they were escaped."""
    if isinstance(value, dict):
        return {name: _hidden(held, hide) for name, held in value.items()}
    if isinstance(value, list):
        return [_hidden(held, hide) for held in value]
    return hide(value) if isinstance(value, str) else value


def _status(error: Mapping[str, Any]) -> int | None:
    """The status that an error in a 200 would have come with; None: it does not say."""
    for told in (error.get("code"), error.get("type")):
        status = BY_CODE.get(str(told)) or (int(str(told)) if re.fullmatch("[45][0-9]{2}", str(told)) else None)
        if status:
            return status
    return None


def _reply(choice: Mapping[str, Any], usage: Usage | None) -> Reply:
    message, finish = choice["message"], choice.get("finish_reason")
    content, calls, refusal = message.get("content"), message.get("tool_calls") or [], message.get("refusal")
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    texts, lists = (refusal, finish), (content, reasoning)
    if not all(isinstance(text, str | None) for text in texts) or not all(
        isinstance(t, str | list | None) for t in lists
    ):
        raise TypeError("a text is none")
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise TypeError("tool_calls are none")
    return Reply(
        content=content,
        outcome=_outcome(content, calls, refusal, finish),
        reasoning=reasoning,
        refusal=refusal,
        tool_calls=tuple(calls),
        finish_reason=finish,
        usage=usage,
    )


def _outcome(content: object, calls: object, refusal: object, finish: object) -> Outcome:
    if finish == "content_filter":
        return "filtered"
    if refusal:
        return "refused"
    if finish == "length":
        return "truncated"
    if isinstance(content, list):
        content = "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return "ok" if calls or (isinstance(content, str) and content.strip()) else "empty"


def _usage(told: Any) -> Usage | None:
    """Tokens; None where the endpoint does not count them.

    Raises:
        AttributeError, TypeError, ValueError, OverflowError: it counts in what are no numbers.
    """
    read, written = ((told or {}).get(name) for name in ("prompt_tokens", "completion_tokens"))
    if read is None or written is None:
        return None
    cached = (told.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    counts = [int(count) for count in (read, written, cached)]
    if min(counts) < 0:
        raise ValueError("a count is negative")
    return Usage(counts[0], counts[1], min(counts[2], counts[0]))  # some count what is cached beside the input
