"""What a model's reply decides: buy, sell or hold where it says so, and otherwise None with the reason why not."""

import json
import math
import re
import string
import sys
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Action = Literal["sell", "hold", "buy"]

ACTIONS: tuple[Action, ...] = ("sell", "hold", "buy")  # the position in this tuple is the environment's action
KEYS = ("action", "decision", "investment_decision")  # the last is FinMem's own
LIMIT = 64 * 1024  # bytes of UTF-8 a reply may hold once its reasoning is cut

# Each sentence can be sent back to the model as a nudge.
REASONS = {
    "empty": "The reply was empty.",
    "only_reasoning": "The reply held reasoning but no answer after it.",
    "refusal": "The reply declined to answer.",
    "filtered": "A content filter stopped the reply.",
    "truncated": "The reply was cut off before its JSON object was complete.",
    "too_long": "The reply was longer than 64 KiB.",
    "no_object": "The reply held no JSON object that could be read.",
    "no_decision": 'No JSON object in the reply had the key "action" with one decision.',
    "bad_value": 'The value of "action" was not exactly one of "buy", "sell" and "hold".',
    "conflict": "The reply held more than one decision, and they did not agree.",
    "error": "There was no reply to read.",
    "stage_failed": "A stage that comes before the decision failed.",  # of an agent that asks in stages; not of `parse`
}

REPAIRS = (
    "fence",  # the object lay in Markdown code
    "zero_width",  # a BOM, zero-width or no-break space where JSON allows none
    "smart_quotes",
    "single_quotes",  # Python's way of writing a dict, with its None, True and False
    "trailing_comma",
    "comment",  # // or /* */
    "raw_newline",  # a newline or tab inside a string
    "nan",  # NaN or Infinity
    "encoded",  # JSON inside a JSON string, once
    "text_after",  # the object
)

WARNINGS = (
    "confidence_out_of_range",  # not between 0 and 1
    "confidence_unreadable",  # not a number
    "confidence_conflict",  # two confidences for one decision
    "target_price_not_positive",
    "target_price_unreadable",  # not a number
    "target_price_conflict",  # two target prices for one decision
    "confidence_missing",  # this and the next only from agents that ask for one
    "target_price_missing",
    "finish_length",  # the token limit struck after the object was complete
)


@dataclass(frozen=True, slots=True)
class Decision:
    """One day's decision, or why there is none."""

    action: Action | None
    """The decision; None where the reply made none. Only the environment turns None into hold."""
    reason: str = ""
    """Why `action` is None, a key of `REASONS`; empty for a decision."""
    confidence: float | None = None
    """Between 0 and 1 as the reply gave it; None where it gave none that can be used."""
    repaired: tuple[str, ...] = ()
    """What was mended to read the decision, names from `REPAIRS` in that order."""
    warnings: tuple[str, ...] = ()
    """What was odd and did not touch the action, names from `WARNINGS`."""
    target_price: float | None = None
    """Above zero, in the unit in which the reply gave it; None where it gave none that can be used."""

    @property
    def index(self) -> int | None:
        """The action as the environment numbers it (0 sell, 1 hold, 2 buy); None where there is none."""
        return None if self.action is None else ACTIONS.index(self.action)


_Beside = Mapping[str, list[object]]  # what stands beside a decision under the names of `_BESIDE`, as it was written
_Vote = tuple[Action | None, _Beside]  # None: no word


@dataclass(slots=True)
class _Found:
    """A text as read, before it is judged."""

    votes: list[_Vote] = field(default_factory=list)
    repaired: set[str] = field(default_factory=set)
    reason: str = ""  # why there are no votes


def parse(reply: object) -> Decision:
    """Read the one decision a model's reply makes.

    Never raises and never guesses; takes time linear in the reply's length.

    Args:
        reply: the text, or an API message: a dict of OpenAI's shape (`content`, `tool_calls`, `refusal`, and
            `finish_reason` if the caller puts it there), or an object whose `model_dump()` is one. Its reasoning
            fields are never parsed.
    """
    if isinstance(reply, str):
        return _judge(_answer(reply))
    message = _as_dict(reply)
    if message is None or not message.keys() & {"content", "tool_calls", "function_call", "refusal"}:
        return Decision(None, "error")
    finish = message.get("finish_reason")
    finish = finish if isinstance(finish, str) else ""
    if _filled(message.get("refusal")):
        return Decision(None, "refusal")
    if finish == "content_filter":
        return Decision(None, "filtered")
    found = called = _called(message)
    if not called.votes and called.reason != "truncated":
        found = _spoken(message)
        if called.reason and found.reason in ("empty", "only_reasoning"):
            found = called
    return _judge(found, cut=finish == "length")


def prose(reply: object) -> tuple[str, str]:
    """What a reply says in words, with its reasoning cut; and why there is nothing, a key of `REASONS`, else "".

    A text that the token limit cut off is given as far as it goes.

    Args:
        reply: as for `parse`.
    """
    message: dict[object, object] | None = {"content": reply} if isinstance(reply, str) else _as_dict(reply)
    if message is None or "content" not in message:
        return "", "error"
    if _filled(message.get("refusal")):
        return "", "refusal"
    if message.get("finish_reason") == "content_filter":
        return "", "filtered"
    written, thought, reason = _written(message)
    if reason or _oversize(written):
        return "", reason or "too_long"
    text = _without_reasoning(_final_channel(written)).strip(_BLANK)
    empty = "only_reasoning" if thought or written.strip(_BLANK) else "empty"
    return text, "" if text else empty


def _judge(found: _Found, cut: bool = False) -> Decision:
    words = {word for word, _ in found.votes}
    if not words:
        return Decision(None, "truncated" if cut and found.reason in ("no_object", "no_decision") else found.reason)
    if len(words) > 1:
        return Decision(None, "conflict")
    (action,) = words
    if action is None:
        return Decision(None, "bad_value")
    odd = {"finish_length"} if cut else set()
    numbers: dict[str, float | None] = {}
    for name, read in _BESIDE.items():
        given = {read(raw) for _, beside in found.votes for raw in beside.get(name, ()) if raw is not None}
        numbers[name], warning = given.pop() if len(given) == 1 else (None, f"{name}_conflict" if given else "")
        odd.add(warning)
    repaired = tuple(name for name in REPAIRS if name in found.repaired)
    warnings = tuple(name for name in WARNINGS if name in odd)
    return Decision(action, "", repaired=repaired, warnings=warnings, **numbers)


def _confidence(raw: object) -> tuple[float | None, str]:
    """The confidence, or the name of what is wrong with it. 85 is out of range: only "85%" says percent."""
    percent = False
    if isinstance(raw, str):
        written = _fold(raw)
        percent = written.endswith("%")
        try:
            raw = float(written.removesuffix("%").replace("_", "?"))  # float() would read 0_5
        except ValueError:
            return None, "confidence_unreadable"
    if not isinstance(raw, float):
        return None, "confidence_unreadable"
    value = raw / 100 if percent else raw
    return (value, "") if 0 <= value <= 1 else (None, "confidence_out_of_range")


def _target_price(raw: object) -> tuple[float | None, str]:
    """The price, or the name of what is wrong with it. A dollar sign and commas between thousands are allowed."""
    if isinstance(raw, str):
        written = _fold(raw).removeprefix("$").lstrip()
        raw = float(written.replace(",", "")) if _PRICE.fullmatch(written) else raw
    if not isinstance(raw, float) or not math.isfinite(raw):
        return None, "target_price_unreadable"
    return (raw, "") if raw > 0 else (None, "target_price_not_positive")


_PRICE = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d{1,15})(?:\.\d{1,15})?", re.ASCII)
_BESIDE: dict[str, Callable[[object], tuple[float | None, str]]] = {
    "confidence": _confidence,
    "target_price": _target_price,
}


# Messages


def _as_dict(thing: object) -> dict[object, object] | None:
    if isinstance(thing, dict):
        return thing
    dump = getattr(type(thing), "model_dump", None)
    for options in ({"warnings": False}, {}):  # pydantic's own warnings are about types that nothing here relies on
        try:
            dumped = dump(thing, **options) if callable(dump) else None
        except TypeError:
            continue
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, ValueError, Warning):
            return None  # what cannot be written out is no message
        return dumped if isinstance(dumped, dict) else None
    return None


def _filled(value: object) -> bool:
    return bool(value.strip()) if isinstance(value, str) else isinstance(value, list | dict) and bool(value)


def _called(message: dict[object, object]) -> _Found:
    """What the arguments of all tool calls decide together."""
    calls = message.get("tool_calls")
    functions = [(_as_dict(call) or {}).get("function") for call in (calls if isinstance(calls, list | tuple) else ())]
    found = _Found()
    for function in [*functions, message.get("function_call")]:
        arguments = (_as_dict(function) or {}).get("arguments")
        try:  # some servers decode the arguments
            written = json.dumps(arguments) if isinstance(arguments, dict) else arguments
        except (RecursionError, TypeError, ValueError):
            continue
        if isinstance(written, str):
            call = _answer(written)
            if call.reason == "truncated":
                return call
            found.votes += call.votes
            found.repaired |= call.repaired
            found.reason = found.reason or call.reason
    return found


def _spoken(message: dict[object, object]) -> _Found:
    """What the content decides."""
    content, thought, reason = _written(message)
    if reason:
        return _Found(reason=reason)
    found = _answer(content)
    return _Found(reason="only_reasoning") if thought and found.reason == "empty" else found


def _written(message: Mapping[object, object]) -> tuple[str, bool, str]:
    """The content as text, of typed parts those that answer; whether there is reasoning beside it; why it is none."""
    content = message.get("content")
    thought = any(_filled(message.get(name)) for name in ("reasoning_content", "reasoning", "reasoning_details"))
    if isinstance(content, list | tuple):
        texts = []
        for part in content:
            typed = {"type": "text", "text": part} if isinstance(part, str) else _as_dict(part) or {}
            kind, text = typed.get("type"), typed.get("text")
            if not isinstance(kind, str):
                continue
            if kind == "refusal" and _filled(typed.get("refusal")):
                return "", thought, "refusal"
            thought = thought or kind in ("thinking", "reasoning")
            if kind in ("text", "output_text") and isinstance(text, str):
                texts.append(text)
        content = "".join(texts)
    if content is not None and not isinstance(content, str):
        return "", thought, "error"
    return content or "", thought, ""


# Reasoning

_ZERO_WIDTH = "\u180e\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
_NO_BREAK = "\u00a0\u2007\u202f"
_BLANK = string.whitespace + _NO_BREAK + "\x85\u2028\u2029\u3000" + _ZERO_WIDTH
_INVISIBLE = re.compile(f"[{_ZERO_WIDTH}]")
_HARMONY = re.compile(r"<\|(start|end|return|call|channel|message)\|>")
_FINAL = re.compile(r"\s*final\b", re.IGNORECASE)
_TAG = re.compile(  # attributes end at the next "<" at the latest, so that no text is searched twice
    r"<(/?)(think|thinking|reasoning|thought|analysis|scratchpad)((?:[\s/][^<>]*+)?)>", re.IGNORECASE
)


def _answer(text: str) -> _Found:
    """What a text decides once its reasoning is cut, which JSON as a whole is spared whatever its strings mention."""
    if not text.strip(_BLANK):
        return _Found(reason="empty")
    seen = ""
    for cut in (None, _final_channel, _without_reasoning):
        text = cut(text) if cut else text
        if text == seen:
            continue
        seen, body = text, _unfenced(text)
        decoded = _load(body, set()) if body.startswith('"') else None
        if isinstance(decoded, str):
            return _decoded(decoded, text)
        if _is_json(body):
            break
    return _scan(text) if text.strip(_BLANK) else _Found(reason="only_reasoning")


def _decoded(decoded: str, text: str) -> _Found:
    """What JSON inside a JSON string decides. A string inside that string is one too many."""
    if _oversize(text):
        return _Found(reason="too_long")
    if not _is_json(decoded.strip(_BLANK)):
        return _Found(reason="no_object")
    found = _scan(decoded)
    found.repaired |= {"encoded"} | _packaging(text[: text.index('"')], "")
    return found


def _final_channel(text: str) -> str:
    """The final channel's messages if the text is in OpenAI's harmony markup, else the text."""
    if "<|channel|>" not in text:
        return text
    pieces = _HARMONY.split(text)
    finals, final = [], False
    for token, piece in zip(pieces[1::2], pieces[2::2], strict=True):
        if token != "message":
            final = token == "channel" and bool(_FINAL.match(piece))
        elif final:
            finals.append(piece)
    return "\n".join(finals)


def _without_reasoning(text: str) -> str:
    """The text outside reasoning tags. Inside a block, only the innermost opener's own closer closes anything."""
    kept: list[str] = []
    inside: list[str] = []
    start = 0
    for tag in _TAG.finditer(text):
        name = sys.intern(tag[2].lower())  # ten million openers share six strings
        if tag[1] and not inside:
            kept.clear()
        elif tag[1]:
            if inside[-1] == name:
                inside.pop()
        else:
            if not inside:
                kept.append(text[start : tag.start()])
            if not tag[3].endswith("/"):
                inside.append(name)
        start = tag.end()
    return " ".join(piece for piece in (kept if inside else [*kept, text[start:]]) if piece)


# Objects

_STRING = (
    r'"(?:[^"\\]++|\\.)*+"'
    r"|(?<!\w)'(?:[^'\\]++|\\.)*+'"  # after a letter it is an apostrophe
    r"|[\u201c-\u201e][^\u201c\u201d]*+[\u201c\u201d]|\u2018[^\u2019]*+\u2019"
)
_COMMENT = r"//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+\*/"
_UNCLOSED = r"""["\u201c-\u201e\u2018]|(?<!\w)'|/\*"""  # what is left when no string or comment matched
_TOKEN = re.compile(rf"{_STRING}|{_COMMENT}|[{{}}\[\]]|(?P<unclosed>{_UNCLOSED})", re.DOTALL)
_MENDED = re.compile(
    rf"(?P<string>{_STRING})|(?P<comment>{_COMMENT})|(?P<zero_width>[{_ZERO_WIDTH}{_NO_BREAK}])"
    rf"|(?P<trailing_comma>,(?=(?:[\s{_ZERO_WIDTH}]|{_COMMENT})*+[}}\]]))|(?P<constant>\b(?:None|True|False)\b)",
    re.DOTALL,
)
_CONSTANTS = {"None": "null", "True": "true", "False": "false"}
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\'": "'"}
_RAW = re.compile(r"[\n\r\t]")
_REQUOTED = re.compile(r'\\.|[\n\r\t"]', re.DOTALL)  # an escape is taken whole, with its quote
_NAMED_KEY = re.compile(r"""\b(?:action|decision|investment_decision)\b["'\u201d\u2019]?\s*+:""", re.IGNORECASE)
_TEMPLATE = re.compile(r"[|\uff5c]")  # "buy|sell|hold" lists what is allowed
_LIST_OF_OBJECTS = re.compile(r"\[\s*+\{")
_LANGUAGE = string.ascii_letters + string.digits + "_+-."  # of an opening fence
_REFUSAL = re.compile(
    r"\W{0,9}(?:(?:i['\u2019]m|i am) (?:very |so )?(?:sorry|unable|not able)|sorry\b|as an ai\b"
    r"|i (?:can['\u2019]t|cannot|can not|won['\u2019]t|will not|must decline|decline|refuse)\b)",
    re.IGNORECASE,
)


def _scan(text: str) -> _Found:
    """What the objects in a text decide together; each that carries a decision key has a vote."""
    if _oversize(text):
        return _Found(reason="too_long")
    spans = _spans(text)
    if spans is None:
        return _Found(reason="truncated")
    found, broken = _Found(), False
    for start, end in spans:
        span = text[start:end]
        if len(span) < len('{"action":0}'):  # 64 KiB of {} must not cost 30,000 readings
            found.reason = "no_decision" if span[1:].lstrip()[0] in "\"'}" else found.reason
            continue
        repaired: set[str] = set()
        value = _read(span, repaired)
        votes = _votes(value, repaired)
        if votes:
            found.repaired |= repaired if found.votes else repaired | _packaging(text[:start], text[end:])
            found.votes += votes
        elif value is not None:
            found.reason = "no_decision"
        else:
            broken = broken or (bool(_NAMED_KEY.search(span)) and "|" not in span)
    if broken and found.votes:  # what cannot be read may have decided otherwise
        found.votes.append((None, {}))
    found.reason = found.reason or ("refusal" if _REFUSAL.match(text) else "no_object")
    return found


def _is_json(body: str) -> bool:
    outermost = body.startswith(("{", "[")) and body.endswith(("}", "]")) and _end(body) == len(body)
    return outermost and _read(body, set()) is not None


def _spans(text: str) -> list[tuple[int, int]] | None:
    """Where each outermost object lies; None if one of them, or the list that is the reply, is cut off."""
    body = _unfenced(text)
    if _LIST_OF_OBJECTS.match(body) and body.endswith(("}", ",")) and _end(body) is None:
        return None
    spans, end = [], 0
    while (start := text.find("{", end)) >= 0:
        closed = _end(text, start)
        if closed is None:
            return None
        end = closed
        spans.append((start, end))
    return spans


def _end(text: str, start: int = 0) -> int | None:
    """Where the object or list that opens at `start` ends; brackets in strings and comments do not count."""
    opener = text[start]
    closer = "}" if opener == "{" else "]"
    depth = 0
    for token in _TOKEN.finditer(text, start):
        lexeme = token[0]
        if lexeme == opener:
            depth += 1
        elif lexeme == closer:
            depth -= 1
            if not depth:
                return token.end()
        elif token["unclosed"]:
            return None
    return None


def _votes(value: object, repaired: set[str]) -> list[_Vote]:
    """Each decision, with what stands beside it. An object with a decision key outranks what it nests."""
    votes: list[_Vote] = []
    stack: list[tuple[object, _Beside]] = [(value, {})]
    while stack:
        node, beside = stack.pop()
        if isinstance(node, list):
            stack.extend((item, beside) for item in node)
        if not isinstance(node, tuple):
            continue
        named = [(_fold(key), key, item) for key, item in node]
        for name in _BESIDE:
            if here := [item for folded, _, item in named if folded == name]:
                beside = {**beside, name: here}
        own = [(key, item) for folded, key, item in named if folded in KEYS and not _is_template(item)]
        if not own:
            stack.extend((item, beside) for _, item in node)
        for key, item in own:
            if isinstance(item, tuple) and any(_fold(inner) in KEYS for inner, _ in item):
                stack.append((item, beside))  # {"decision": {"action": "buy"}}
                continue
            votes.append((_word(item), beside))
            if _INVISIBLE.search(key) or (isinstance(item, str) and _INVISIBLE.search(item)):
                repaired.add("zero_width")
    return votes


def _is_template(value: object) -> bool:
    return isinstance(value, str) and bool(_TEMPLATE.search(value))


def _word(value: object) -> Action | None:
    word = _fold(value).removesuffix(".") if isinstance(value, str) else ""
    return next((action for action in ACTIONS if action == word), None)


def _fold(text: str) -> str:
    short = _INVISIBLE.sub("", text).strip()
    if len(short) > 32:  # no word is; and normalising a long run of combining marks is quadratic
        return ""
    return unicodedata.normalize("NFKC", short).strip().casefold()


def _read(span: str, repaired: set[str]) -> object:
    """The span's value, mended if need be; objects as tuples of pairs, so that no key is lost. None if unreadable."""
    value = _load(span, repaired)
    if value is None:
        mended: set[str] = set()
        value = _load(_mend(span, mended), mended)
        repaired |= mended
    return value


def _load(span: str, repaired: set[str]) -> object:
    def constant(name: str) -> float:
        repaired.add("nan")
        return float(name)

    try:  # int() refuses, or takes quadratic time for, what float() reads at once
        return json.loads(span, object_pairs_hook=tuple, parse_int=float, parse_constant=constant)
    except (ValueError, RecursionError):
        return None


def _mend(span: str, repaired: set[str]) -> str:
    def mended(match: re.Match[str]) -> str:
        kind, lexeme = str(match.lastgroup), match[0]
        if kind == "string":
            return _requoted(lexeme, repaired)
        if kind == "constant":  # a key comes first, so its quotes have been seen
            return _CONSTANTS[lexeme] if "single_quotes" in repaired else lexeme
        repaired.add(kind)
        return "" if kind == "trailing_comma" else " "

    return _MENDED.sub(mended, span)


def _requoted(quoted: str, repaired: set[str]) -> str:
    content = quoted[1:-1]
    if _RAW.search(content):
        repaired.add("raw_newline")
    if quoted[0] != '"':
        repaired.add("single_quotes" if quoted[0] == "'" else "smart_quotes")
    return '"' + _REQUOTED.sub(lambda match: _ESCAPES.get(match[0], match[0]), content) + '"'


def _packaging(head: str, tail: str) -> set[str]:
    """The repairs that what lies around an object stands for. Prose in front of it is none."""
    lead = head.rstrip(_BLANK + "[").rstrip(_LANGUAGE).rstrip(_BLANK)
    after = tail.strip(_BLANK + "]")
    found = set()
    if lead.endswith(("`", "~~~")):
        found.add("fence")
        after = after.strip("`~").strip(_BLANK)
    if after:
        found.add("text_after")
    if _INVISIBLE.search(("" if lead.strip("`~" + _BLANK) else head) + ("" if after else tail)):
        found.add("zero_width")
    return found


def _unfenced(text: str) -> str:
    body = text.strip(_BLANK)
    if body.startswith(("`", "~~~")):
        body = body.strip("`~").lstrip(_LANGUAGE).strip(_BLANK)
    return body


def _oversize(text: str) -> bool:
    return len(text) > LIMIT or (3 * len(text) > LIMIT and len(text.encode("utf-8", "surrogatepass")) > LIMIT)
