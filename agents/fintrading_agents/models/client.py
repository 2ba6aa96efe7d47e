"""The one client of OpenAI-compatible endpoints: one retry policy around the SDK, in front of it the cache."""

import asyncio
import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fintrading_agents.models import faults
from fintrading_agents.models.cache import key
from fintrading_agents.models.prices import Price
from fintrading_agents.models.reply import KINDS, STRUCTURED, Form, Messages, ModelFailure, Reply
from fintrading_agents.models.session import MAX_TOKENS, Flight, Session
from fintrading_gym.errors import MissingExtra, RunStopped, one_line

if TYPE_CHECKING:
    import tenacity

log = logging.getLogger(__name__)

# Seconds between attempts, where the endpoint asks for none: see session.PAUSES.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
RATE_LIMIT_STEP, OTHER_STEP = 10.0, 5.0

CONNECT = 5.0  # seconds until a connection stands
PREFLIGHT, PREFLIGHT_ATTEMPTS = 15.0, 2  # seconds in all, and of each request: whoever starts a run is waiting
# What fails the first request fails all: the run ends, and not each of its episodes.
HOPELESS = ("bad_key", "forbidden", "not_found", "quota")

# What an endpoint is asked once, to see what it takes. A model that is not held to the form cannot know the bird.
PROBE = [{"role": "user", "content": "How are you today? (If a format such as JSON is asked of you, keep to it.)"}]
PROBE_FORM = Form(
    "probe",
    {
        "type": "object",
        "properties": {"bird": {"type": "string", "enum": ["kingfisher"]}},
        "required": ["bird"],
        "additionalProperties": False,
    },
)


class Client:
    """A model at an endpoint; see `reply.Model`."""

    def __init__(
        self,
        name: str,
        base_url: str,
        api_key: str | None,
        shared: Session,
        price: Price | None,
        *,
        temperature: float = 0.7,
        max_tokens: int = MAX_TOKENS,
        structured: str = "auto",
        in_flight: int | None = None,
        preflight_seconds: float = PREFLIGHT,
        identity: str | None = None,
        note: str = "",
    ):
        """Prepare connections; nothing is sent before `preflight`.

        Args:
            name: provider/model.
            base_url: of the endpoint, fit to be shown: without user, password and query.
            api_key: None: it wants none.
            shared: of the run.
            price: None: unknown.
            temperature, max_tokens, structured: as in `Settings`, which come first.
            in_flight: requests at a time; None: as the run's settings say.
            preflight_seconds: in which `preflight` succeeds or fails.
            identity: who answers, for the cache; None: the URL.
            note: see `reply.Model`.
        """
        try:
            import openai
            import tenacity  # noqa: F401 - found missing now, not at the first call
        except ModuleNotFoundError as fault:
            raise MissingExtra(name, "llm") from fault
        settings = shared.settings
        here = urlsplit(base_url).hostname in ("127.0.0.1", "localhost", "::1")
        self._sdk = openai.AsyncOpenAI(
            base_url=base_url,
            api_key=api_key or "none",
            max_retries=0,
            timeout=openai.Timeout(settings.timeout, connect=min(CONNECT, settings.timeout)),
            http_client=openai.DefaultAsyncHttpxClient(trust_env=False) if here else None,  # no proxy to oneself
        )
        self.name, self.price, self.note = name, price, note
        self.structured = structured if settings.structured == "auto" else settings.structured
        self._shared, self._settings, self._model = shared, settings, name.partition("/")[2]
        self._hide = faults.hider(api_key)
        shared.at_end.append(self._sdk.close)  # not in `close`: another handle may wait for a call made by this one
        self._preflight_seconds = preflight_seconds
        self._proven = False  # True: the endpoint has answered
        self._url = base_url.rstrip("/")
        self._identity = identity or self._url
        self._endpoint = shared.endpoint(self._url, in_flight or settings.in_flight)
        self._plain = {
            "temperature": temperature if settings.temperature is None else settings.temperature,
            "max_tokens": settings.max_tokens or max_tokens,
        }
        self._quirks: dict[str, Any] = {"dropped": [], "structured": None}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def preflight(self) -> None:
        """Find out what the endpoint takes, unless the cache remembers. A wrong key, URL or name fails here.

        Raises:
            ModelFailure: nothing can be had from this endpoint.
        """
        settings, seconds = self._settings, self._preflight_seconds
        attempts, patience = min(settings.attempts, PREFLIGHT_ATTEMPTS), min(settings.patience, seconds)
        self._settings = replace(settings, attempts=attempts, patience=patience)
        try:
            async with asyncio.timeout(seconds):
                await self._find_out()
        except TimeoutError:
            raise ModelFailure("timeout", f"none within {seconds:g} s", url=self._url) from None
        finally:
            self._settings = settings

    async def _find_out(self) -> None:
        cache, mode, auto = self._shared.cache, self._settings.cache, self.structured == "auto"
        known = cache.quirks(self._identity, self._model) if cache and mode != "refresh" else None
        self._quirks = known or self._quirks
        if known is None or (auto and known["structured"] is None):
            found = await self._probe(("json_schema", "json_object", "none") if auto else (self.structured,))
            self._quirks["structured"] = found if auto else None
            self._remember()
        if auto:
            self.structured = self._quirks["structured"]

    async def complete(self, messages: Messages, *, sample: int = 0, form: Form | None = None) -> Reply:
        """One answer; see `reply.Model`."""
        with self._under_way():
            return await self._ask(messages, sample, form, self.structured)

    async def embed(self, texts: Sequence[str]) -> tuple[list[list[float]], Reply]:
        """A vector a text, and the reply they came in; the endpoint is asked as for an answer.

        Raises:
            ModelFailure, RunStopped: as `complete`.
        """
        wished = {"model": self._model, "input": list(texts), "encoding_format": "float"}
        with self._under_way():
            reply = await self._answer(wished)
        return json.loads(str(reply.content)), reply

    @contextmanager
    def _under_way(self) -> Iterator[None]:
        """The call of the current task, which `close` cancels."""
        if self._closed:
            raise RunStopped(f"{self.name} was closed")
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)

    async def close(self) -> None:
        """Cancel what is under way; the connections are closed with the session."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # What is asked: the request, by what the endpoint takes

    async def _probe(self, modes: tuple[str, ...]) -> str:
        """The first of the modes that the endpoint takes and keeps to; the last needs only be taken."""
        for mode in modes[:-1]:
            try:
                reply = await self._ask(PROBE, 0, PROBE_FORM, mode)
            except ModelFailure as fault:
                if fault.parameter != "response_format":
                    raise
                continue
            if _keeps_to(mode, reply.content):
                return mode
        await self._ask(PROBE, 0, PROBE_FORM, modes[-1])
        return modes[-1]

    async def _ask(self, messages: Messages, sample: int, form: Form | None, mode: str) -> Reply:
        held = STRUCTURED[mode](form) if form else {}
        return await self._answer(
            {"model": self._model, "messages": list(messages), "seed": sample, **self._plain, **held}
        )

    def _taken(self, wished: Mapping[str, Any]) -> dict[str, Any]:
        """The request without what the endpoint does not take."""
        dropped, body = self._quirks["dropped"], dict(wished)
        if "max_tokens" in dropped:  # OpenAI's newer name
            body["max_completion_tokens"] = body["max_tokens"]
        return {name: value for name, value in body.items() if name not in dropped}

    def _adapted(self, fault: ModelFailure, body: Mapping[str, Any]) -> bool:
        """Whether the request can be made without what the endpoint does not take; remembered for this model."""
        name, dropped = fault.parameter, self._quirks["dropped"]
        if name not in body or name in ("response_format", "grammar"):  # without its form it is another question
            return False
        if name not in dropped:  # a call beside this one may have been told the same
            dropped.append(name)
            log.warning("%s does not take %s: left out from now on (%s)", self.name, name, fault)
            self._remember()
        return True

    def _remember(self) -> None:
        if self._shared.cache and self._settings.cache != "replay":
            self._shared.cache.put_quirks(self._identity, self._model, self._quirks)

    # How it is answered: from the cache, by a call under way, or by a new one

    async def _answer(self, wished: dict[str, Any]) -> Reply:
        cache, mode, flights = self._shared.cache, self._settings.cache, self._shared.flights
        if cache is None:
            return await self._buy(wished)
        # By what is wished: what an endpoint turns out not to take must not rename the calls before.
        name = key(self._identity, wished, wished.get("seed", 0))
        # A reply that is no answer was part of an earlier run's days, which are to come out the same; in the run that
        # bought it, whoever asks again wants another.
        kept = cache.get(name, any_outcome=name not in self._shared.unanswered) if mode != "refresh" else None
        if kept is not None and mode == "replay":
            return kept  # with the cost that was kept: the prices here and now are not those of the board
        if kept is not None:
            priced = self._priced(kept)
            if priced.cost != kept.cost:
                cache.put(name, replace(priced, cached=False), replace=True)
            return priced
        if mode == "replay":
            raise ModelFailure("replay", str(cache.path))

        async def buy_and_keep() -> Reply:
            reply = cache.put(name, await self._buy(wished), replace=mode == "refresh")
            if reply.outcome != "ok":
                self._shared.unanswered.add(name)
            return reply

        first = name not in flights
        if first:
            flights[name] = Flight(asyncio.ensure_future(buy_and_keep()))
        flight = flights[name]
        flight.waiters += 1
        try:
            reply = await asyncio.shield(flight.call)
        finally:
            flight.waiters -= 1
            if not flight.waiters:
                del flights[name]
                flight.call.cancel()
                await asyncio.gather(flight.call, return_exceptions=True)
        return reply if first else replace(reply, cached=True)

    async def _buy(self, wished: dict[str, Any]) -> Reply:
        """Ask until there is an answer, or no more hope of one, or no more time in the run."""
        try:
            async with asyncio.timeout(self._shared.seconds_left()):
                while True:
                    body = self._taken(wished)
                    try:
                        return await self._insist(body)
                    except ModelFailure as fault:
                        if self._adapted(fault, body):
                            continue
                        if fault.kind in HOPELESS and not self._proven:
                            raise RunStopped(f"{self.name} cannot be had: {fault}") from None
                        raise
        except TimeoutError:
            self._shared.check()
            raise

    async def _insist(self, body: dict[str, Any]) -> Reply:
        import tenacity

        settings = self._settings
        policy = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(lambda fault: isinstance(fault, ModelFailure) and KINDS[fault.kind][0]),
            wait=_PAUSES[settings.pauses],
            stop=tenacity.stop_after_attempt(settings.attempts) | tenacity.stop_before_delay(settings.patience),
            before_sleep=self._tell,
            reraise=True,
        )
        try:
            reply: Reply = await policy(self._attempt, body)
        except ModelFailure as fault:
            fault.attempts = policy.statistics["attempt_number"]
            raise
        self._proven = True
        sent = {name: value for name, value in body.items() if name not in ("messages", "input")}
        return replace(reply, attempts=policy.statistics["attempt_number"], sent=sent)

    async def _attempt(self, body: dict[str, Any]) -> Reply:
        import openai

        async with self._endpoint.slots:
            await self._endpoint.opened(self._settings.patience, self._url)
            self._shared.check()  # here, for those that were in flight meanwhile have spent
            started = time.perf_counter()
            try:
                async with asyncio.timeout(self._settings.timeout):  # the SDK's own bounds each read, not their sum
                    raw = await self._sent(body)
            except TimeoutError:
                failure = ModelFailure("timeout", url=self._url)
            except openai.OpenAIError as fault:
                failure = faults.failure(fault, self._url, self._hide)
            else:
                latency = round(time.perf_counter() - started, 6)
                # Read as it came: the SDK makes a string of a web page, and a completion of an error in a 200.
                texts = len(body.get("input", ()))
                read = partial(faults.read_vectors, texts) if texts else faults.read
                reply = read(raw.http_response.text, self._url, self._hide)
                reply = self._priced(replace(reply, latency=latency))
                self._shared.spend(reply)
                return reply
            self._endpoint.close_for(failure.retry_after or 0.0)
        raise failure  # not from inside the handler: the SDK's exception holds the request, and that its key

    async def _sent(self, body: Mapping[str, Any]) -> Any:
        """The SDK's raw response."""
        if "input" in body:
            return await self._sdk.embeddings.with_raw_response.create(**body)
        rest = {name: value for name, value in body.items() if name not in ("model", "messages")}
        return await self._sdk.chat.completions.with_raw_response.create(
            model=body["model"], messages=body["messages"], extra_body=rest
        )

    def _tell(self, state: "tenacity.RetryCallState") -> None:
        fault, seconds = _fault(state), state.upcoming_sleep
        log.info("%s, attempt %d: %s; again in %.1f s", self.name, state.attempt_number, fault, seconds)

    def _priced(self, reply: Reply) -> Reply:
        if reply.cost is not None or reply.usage is None or self.price is None:
            return reply
        try:
            return replace(reply, cost=self.price(reply.usage))
        except Exception as fault:  # of the price list: the reply is paid for, and good
            log.warning("what a reply of %s cost is not known: %s", self.name, one_line(fault))
            return reply


def _growing(state: "tenacity.RetryCallState") -> float:
    import tenacity

    asked = _fault(state).retry_after
    if asked is not None:
        return asked
    doubling = tenacity.wait_exponential(multiplier=FIRST_PAUSE, max=LONGEST_PAUSE)
    return float((doubling + tenacity.wait_random(0, FIRST_PAUSE))(state))


def _stepped(state: "tenacity.RetryCallState") -> float:
    fault = _fault(state)
    if fault.retry_after is not None:
        return fault.retry_after
    return RATE_LIMIT_STEP * state.attempt_number if fault.kind == "rate_limit" else OTHER_STEP


_PAUSES = {"growing": _growing, "stepped": _stepped}


def _fault(state: "tenacity.RetryCallState") -> ModelFailure:
    assert state.outcome is not None
    fault = state.outcome.exception()
    assert isinstance(fault, ModelFailure)  # nothing else is retried
    return fault


def _keeps_to(mode: str, content: object) -> bool:
    try:
        said = json.loads(content) if isinstance(content, str) else None
    except ValueError:
        return False
    return said == {"bird": "kingfisher"} if mode == "json_schema" else isinstance(said, dict)
