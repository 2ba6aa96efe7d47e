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
from fintrading_agents.models.cache import key, key_within
from fintrading_agents.models.prices import Price
from fintrading_agents.models.reply import KINDS, STRUCTURED, Form, Messages, ModelFailure, Reply
from fintrading_agents.models.session import MAX_TOKENS, Asker, Flight, Session, asker
from fintrading_gym.errors import MissingExtra, RunStopped, one_line

if TYPE_CHECKING:
    import tenacity

log = logging.getLogger(__name__)

# Seconds between attempts, where the endpoint asks for none: see session.PAUSES.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
RATE_LIMIT_STEP, OTHER_STEP = 10.0, 5.0

CONNECT = 5.0  # seconds until a connection stands
# Before the run, whoever starts it is waiting: what does not pass by itself is tried no more often than that.
PREFLIGHT_ATTEMPTS, PASSING = 2, ("rate_limit", "server")
QUIET = 15.0  # seconds of silence, after which it is told what is waited for
# What fails the first request fails all: the run ends, and not each of its episodes.
HOPELESS = ("bad_key", "forbidden", "not_found", "quota")

AUTO = ("json_schema", "json_object", "none")  # in the order in which they are tried
HOLDING, RENAMED = ("response_format", "grammar"), "max_completion_tokens"  # OpenAI's newer name of max_tokens
Asked = tuple[Mapping[str, Any], Form | None]  # a request as it is wished, and the form that it wishes for

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
        self._wished = self.structured  # as calls are named; `structured` is another if the endpoint has changed
        self._auto, self._relearnt, self._learning = self.structured == "auto", False, asyncio.Lock()
        self._shared, self._settings, self._model = shared, settings, name.partition("/")[2]
        self._hide = faults.hider(api_key)
        shared.at_end.append(self._sdk.close)  # not in `close`: another handle may wait for a call made by this one
        self._proven = False  # True: the endpoint has answered
        self._before_the_run = False
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

        That takes seconds. A model that is slow has the time of any request, and a limit that passes is waited for.

        Raises:
            ModelFailure: nothing can be had from this endpoint.
        """
        told = "%s has not answered yet; a request has %g s (--timeout)"
        quiet = asyncio.get_running_loop().call_later(QUIET, log.warning, told, self.name, self._settings.timeout)
        self._before_the_run = True
        try:
            await self._find_out()
        finally:
            self._before_the_run = False
            quiet.cancel()

    async def _find_out(self) -> None:
        cache, mode, auto = self._shared.cache, self._settings.cache, self._auto
        known = cache.quirks(self._identity, self._model) if cache and mode != "refresh" else None
        self._quirks = known or self._quirks
        if known is None or (auto and known["structured"] is None):
            found = await self._probe(AUTO if auto else (self.structured,))
            self._quirks["structured"] = found if auto else None
            self._remember()
        if auto:
            self._wished = self._quirks["structured"]
            self.structured = self._quirks.get("instead") or self._wished

    async def complete(self, messages: Messages, *, sample: int = 0, form: Form | None = None) -> Reply:
        """One answer; see `reply.Model`."""
        with self._under_way():
            wished, who = self._request(messages, sample, form, self._wished), asker.get()
            try:
                return self._noted(await self._answer(wished, form, who))
            except ModelFailure:
                if who:
                    who.failed = True
                raise

    async def embed(self, texts: Sequence[str]) -> tuple[list[list[float]], Reply]:
        """A vector a text, and the reply they came in; the endpoint is asked as for an answer.

        Raises:
            ModelFailure, RunStopped: as `complete`.
        """
        wished = {"model": self._model, "input": list(texts), "encoding_format": "float"}
        with self._under_way():
            reply = await self._answer(wished, None, None)
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

    async def _probe(self, modes: tuple[str, ...], anew: bool = False) -> str:
        """The first of the modes that the endpoint takes and keeps to; the last needs only be taken.

        Args:
            modes: keys of `STRUCTURED`.
            anew: whether the endpoint is asked, whatever the cache holds.
        """

        async def ask(mode: str) -> Reply:
            wished = self._request(PROBE, 0, PROBE_FORM, mode)
            return await (self._buy(wished, None, learn=False) if anew else self._answer(wished, None, None))

        for mode in modes[:-1]:
            try:
                reply = await ask(mode)
            except ModelFailure as fault:
                if fault.parameter != "response_format":
                    raise
                continue
            if _keeps_to(mode, reply.content):
                return mode
        await ask(modes[-1])
        return modes[-1]

    def _request(self, messages: Messages, sample: int, form: Form | None, mode: str) -> dict[str, Any]:
        """The request as it is wished, which names the call."""
        held = STRUCTURED[mode](form) if form else {}
        return {"model": self._model, "messages": list(messages), "seed": sample, **self._plain, **held}

    def _taken(self, wished: Mapping[str, Any], form: Form | None) -> dict[str, Any]:
        """The request as the endpoint takes it."""
        dropped, body = self._quirks["dropped"], dict(wished)
        if form and self.structured != self._wished:
            body = {name: value for name, value in body.items() if name not in HOLDING}
            body |= STRUCTURED[self.structured](form)
        if "max_tokens" in dropped and "max_tokens" in body:
            body[RENAMED] = body["max_tokens"]
        return {name: value for name, value in body.items() if name not in dropped}

    async def _adapted(self, fault: ModelFailure, body: Mapping[str, Any], asked: Asked, learn: bool) -> bool:
        """Whether the request can be made otherwise, as the endpoint takes it; remembered for this model.

        Args:
            fault: why it was refused.
            body: as it was sent.
            asked: as it is wished.
            learn: whether what was remembered of the endpoint may be given up.
        """
        name, dropped = fault.parameter, self._quirks["dropped"]
        if name not in body:
            return False
        learn = learn and not self._before_the_run and name in (*HOLDING, RENAMED)
        if learn and await self._relearn(fault, body, asked):
            return True
        if name in HOLDING:  # without its form it is another question
            return False
        if name not in dropped:  # a call beside this one may have been told the same
            dropped.append(name)
            log.warning("%s does not take %s: left out from now on (%s)", self.name, name, fault)
            self._remember()
        return True

    async def _relearn(self, fault: ModelFailure, body: Mapping[str, Any], asked: Asked) -> bool:
        """Whether an endpoint that has changed takes the request in another form; it is probed again once a run."""
        async with self._learning:
            if self._relearnt or self._taken(*asked) != body:
                return self._taken(*asked) != body  # a call beside this one has found out
            if fault.parameter in HOLDING and not self._auto:
                return False
            self._relearnt = True
            log.warning("%s does not take what it took before; it is asked what it takes now (%s)", self.name, fault)
            self._quirks["dropped"] = []
            if self._auto:
                self.structured = self._quirks["instead"] = await self._probe(AUTO, anew=True)
            self._remember()
            return self._taken(*asked) != body

    def _remember(self) -> None:
        if self._shared.cache and self._settings.cache != "replay":
            self._shared.cache.put_quirks(self._identity, self._model, self._quirks)

    # How it is answered: from the cache, by a call under way, or by a new one

    async def _answer(self, wished: dict[str, Any], form: Form | None, who: Asker | None) -> Reply:
        cache, mode = self._shared.cache, self._settings.cache
        if cache is None:
            return await self._buy(wished, form)
        # By what is wished: what an endpoint turns out not to take must not rename the calls before.
        name = key(self._identity, wished, wished.get("seed", 0))
        own = key_within(name, who.episode, who.turns[name]) if who else name
        if mode == "replay":
            # With the cost that was kept: the prices here and now are not those of the board.
            kept = cache.get(own, any_outcome=True) or cache.get(name, any_outcome=True)
            if kept is None:
                raise ModelFailure("replay", str(cache.path))
            reply = kept
        else:
            kept = self._kept(name, own if who else None) if mode == "readwrite" else None
            reply = kept or await self._flown(name, own, wished, form)
            if who and reply.outcome == "ok":
                cache.drop(own)
            elif who:
                if kept is None and own not in self._shared.apart:  # it came when the call was answered already
                    cache.put_unfinished(own, replace(reply, cached=False))
                self._shared.apart.discard(own)
                who.kept[own] = cache
                self._shared.askers.add(who)
        if who:
            who.turns[name] += 1
        return reply

    def _noted(self, reply: Reply) -> Reply:
        if reply.outcome != "ok":
            self._shared.no_answers[reply.outcome] += 1
        return reply

    def _kept(self, name: str, own: str | None) -> Reply | None:
        """An answer that was bought; or what an interrupted episode got instead, which goes on as it began."""
        cache = self._shared.cache
        assert cache is not None
        for held in (own and cache.get_unfinished(own), cache.get(name, any_outcome=False)):
            if held:
                priced = self._priced(held)
                if priced.cost != held.cost:
                    there = name if held.outcome == "ok" else str(own)
                    cache.put(there, replace(priced, cached=False), replace=True)
                return priced
        return None

    async def _flown(self, name: str, own: str, wished: dict[str, Any], form: Form | None) -> Reply:
        """The reply to a call that is under way for all who wait for it, or is made now; it is kept at once."""
        cache, flights, waiting = self._shared.cache, self._shared.flights, {own}
        assert cache is not None

        async def buy_and_keep() -> Reply:
            reply = await self._buy(wished, form)
            for apart in waiting - {name} if reply.outcome != "ok" else ():  # see `cache.TABLES`
                cache.put_unfinished(apart, reply)
                self._shared.apart.add(apart)
            if reply.outcome == "ok" or name in waiting:
                reply = cache.put(name, reply, replace=self._settings.cache == "refresh")
            return reply

        first = name not in flights
        if first:
            flights[name] = Flight(asyncio.ensure_future(buy_and_keep()), waiting)
        flight = flights[name]
        flight.own.add(own)
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

    async def _buy(self, wished: dict[str, Any], form: Form | None, learn: bool = True) -> Reply:
        """Ask until there is an answer, or no more hope of one, or no more time in the run."""
        try:
            async with asyncio.timeout(self._shared.seconds_left()):
                while True:
                    body = self._taken(wished, form)
                    try:
                        return await self._insist(body)
                    except ModelFailure as fault:
                        if await self._adapted(fault, body, (wished, form), learn):
                            continue
                        if fault.kind in HOPELESS and not self._proven:
                            raise RunStopped(f"{self.name} cannot be had: {fault}") from None
                        raise
        except TimeoutError:
            self._shared.check()
            raise

    async def _insist(self, body: dict[str, Any]) -> Reply:
        import tenacity

        policy = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(lambda fault: isinstance(fault, ModelFailure) and KINDS[fault.kind][0]),
            wait=_PAUSES[self._settings.pauses],
            stop=self._enough,
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

    def _enough(self, state: "tenacity.RetryCallState") -> bool:
        """Whether a request was tried as often, or waited for as long, as it may be."""
        passing = not self._before_the_run or _fault(state).kind in PASSING
        most = self._settings.attempts if passing else min(self._settings.attempts, PREFLIGHT_ATTEMPTS)
        return state.attempt_number >= most or state.idle_for + state.upcoming_sleep > self._settings.patience

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
        level = logging.WARNING if self._before_the_run and seconds > QUIET else logging.INFO
        log.log(level, "%s, attempt %d: %s; again in %.1f s", self.name, state.attempt_number, fault, seconds)

    def _priced(self, reply: Reply) -> Reply:
        if reply.cost is not None or reply.usage is None or self.price is None:
            return reply
        try:
            return replace(reply, cost=self.price(reply.usage), price=self.price.source())
        except Exception as fault:  # of the price list: the reply is paid for, and good
            log.warning("what a reply of %s cost is not known: %s", self.name, one_line(fault))
            return reply


def _growing(state: "tenacity.RetryCallState") -> float:
    import tenacity

    if asked := _asked_for(_fault(state)):
        return asked
    doubling = tenacity.wait_exponential(multiplier=FIRST_PAUSE, max=LONGEST_PAUSE)
    return float((doubling + tenacity.wait_random(0, FIRST_PAUSE))(state))


def _asked_for(fault: ModelFailure) -> float | None:
    """What the endpoint asks for, at least the shortest pause of ours; None: nothing, or to be asked again at once."""
    return max(fault.retry_after, FIRST_PAUSE) if fault.retry_after else None


def _stepped(state: "tenacity.RetryCallState") -> float:
    fault = _fault(state)
    if asked := _asked_for(fault):
        return asked
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
