"""What an endpoint's answer is: a reply, or a failure of which kind."""

import email.utils
import json
import re
import time
from collections.abc import Callable, Mapping
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
# A 429 of these codes, or with these words, is no matter of waiting.
QUOTA = {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "insufficient_balance"}
QUOTA_WORDS = re.compile(r"current quota|billing|insufficient (?:balance|credit|fund)", re.IGNORECASE)
# Of a 400 or 422.
CONTEXT = re.compile(r"context[_ ](?:length|size|window)|maximum context|too many tokens", re.IGNORECASE)
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


def failure(fault: "openai.OpenAIError", url: str, hide: Callable[[str], str]) -> ModelFailure:
    """What the SDK raised, as a failure; `hide` takes the key out of the endpoint's words, which may repeat it."""
    import openai

    if isinstance(fault, openai.APITimeoutError):
        return ModelFailure("timeout", url=url)
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
    message, code, named = hide(str(told.get("message") or "")), told.get("code"), told.get("param")
    kind, parameter = BY_STATUS.get(status, "server" if status >= 500 else "bad_request"), None
    if kind == "rate_limit" and (code in QUOTA or told.get("type") in QUOTA or QUOTA_WORDS.search(message)):
        kind = "quota"
    elif kind == "bad_request":
        if code == "context_length_exceeded" or CONTEXT.search(message):
            kind = "context"
        elif code == "model_not_found" or NO_MODEL.search(message):
            kind = "not_found"
        else:
            parameter = named if named in OPTIONAL else _named(message)
            kind = "unsupported" if parameter and UNSUPPORTED.search(f"{code} {message}") else kind
    return ModelFailure(kind, message[:TOLD], url=url, status=status, retry_after=after, parameter=parameter)


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


def read(text: str, url: str) -> Reply:
    """The reply in the body of a 200.

    Raises:
        ModelFailure: it is none: a web page, broken JSON, an error with status 200, no choices.
    """
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        raise ModelFailure("malformed", text[:TOLD], url=url, status=200) from None
    error = body.get("error") if isinstance(body, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, int) and 400 <= code < 600:
        raise of_status(code, body, url=url)
    try:
        choice = body["choices"][0]
        message = choice["message"]
        content, calls, refusal = message.get("content"), message.get("tool_calls"), message.get("refusal")
    except (AttributeError, IndexError, KeyError, TypeError):
        raise ModelFailure("malformed", text[:TOLD], url=url, status=200) from None
    finish = choice.get("finish_reason")
    return Reply(
        content=content,
        outcome=_outcome(content, calls, refusal, finish),
        reasoning=message.get("reasoning_content") or message.get("reasoning"),
        refusal=refusal,
        tool_calls=tuple(calls or ()),
        finish_reason=finish,
        usage=_usage(body.get("usage")),
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
    try:
        read, written = told["prompt_tokens"], told["completion_tokens"]
        details = told.get("prompt_tokens_details") or {}
        return Usage(int(read), int(written), int(details.get("cached_tokens") or 0))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
