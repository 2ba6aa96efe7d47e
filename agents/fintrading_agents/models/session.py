"""What the models of one run share: settings, one event loop, the cache, bounds and limits."""

import asyncio
import concurrent.futures
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache as once
from pathlib import Path
from typing import Any, TypeVar

from fintrading_agents.folders import cache_folder
from fintrading_agents.models.cache import MODES, Cache
from fintrading_agents.models.reply import STRUCTURED, ModelFailure, Reply
from fintrading_gym.errors import RunStopped, lookup

T = TypeVar("T")
log = logging.getLogger(__name__)

MAX_TOKENS = 4096  # of a reply: enough to think first, for one that its own reasoning cuts off decides nothing


PAUSES = {  # ways to try again
    "growing": "half a second, doubled from one to the next, at most 30 seconds; and up to half a second by chance",
    "stepped": "10, 20, 30 seconds and so on after a rate limit, 5 seconds after anything else",
}
ATTEMPTS = {"growing": 5, "stepped": 4}


@dataclass(frozen=True)
class Settings:
    """How models are called in a run. The command line's flags have the same names."""

    base_url: str | None = None  # of openai/...; None: OPENAI_BASE_URL, else OpenAI's own
    temperature: float | None = None  # None: 0.7, FinMem's; of a local model 0, so that it is the same every time
    max_tokens: int | None = None  # of a reply, reasoning included; None: 4096, of a local model 64
    structured: str = "auto"  # a key of reply.STRUCTURED; "auto": the best that the endpoint takes
    cache: str = "readwrite"  # a key of cache.MODES
    cache_file: str | None = None  # None: replies.sqlite in the user's cache folder
    prices: str | None = None  # a TOML table over the published prices; see prices.find_price
    in_flight: int = 12  # requests at a time to one endpoint
    attempts: int = None  # type: ignore[assignment]  # of one call; None: ATTEMPTS of its pauses
    pauses: str = "growing"  # between them, a key of PAUSES; what an endpoint asks for comes first
    timeout: float = 120.0  # seconds of one attempt
    patience: float = 600.0  # seconds of the pauses between the attempts of one call
    token_limit: int | None = None  # of the whole run, input and output; None: no limit
    usd_limit: float | None = None
    seconds_limit: float | None = None

    def __post_init__(self) -> None:
        lookup("cache mode", self.cache, MODES)
        lookup("kind of pauses", self.pauses, PAUSES)
        if self.attempts is None:
            object.__setattr__(self, "attempts", ATTEMPTS[self.pauses])
        lookup("structured output", self.structured, {"auto": None, **STRUCTURED})
        if self.temperature is not None and not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature={self.temperature!r} is not a number >= 0")
        for name in ("max_tokens", "in_flight", "attempts", "timeout", "patience", *LIMITS):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name}={value!r} is not a number > 0")


LIMITS = ("token_limit", "usd_limit", "seconds_limit")


@dataclass(eq=False)
class Asker:
    """An episode that asks a model, for what is kept for it alone; see `cache.TABLES`."""

    episode: str  # the same whenever it is played
    turns: Counter[str] = field(default_factory=Counter)  # replies it got, by cache key
    failed: bool = False  # a call of it
    kept: dict[str, Cache] = field(default_factory=dict)  # its replies that are no answers, by name; see `cache.TABLES`

    def end(self) -> None:
        """Its last decision is made: played again, it is asked again what it got no answer to."""
        for name, cache in self.kept.items():
            cache.finish([name])


# Of the calls that a coroutine makes; None: of no episode. Set by `transcript.Transcript`.
asker: ContextVar[Asker | None] = ContextVar("asker", default=None)


@once
def _loop() -> asyncio.AbstractEventLoop:
    """The loop on which every model call of the process runs, in a thread of its own."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="fintrading-models", daemon=True).start()
    return loop


def wait(call: Coroutine[Any, Any, T]) -> T:
    """Run a model's coroutine on the loop of all models, and wait for it in an agent's own thread.

    Raises:
        RunStopped: the model was closed meanwhile.
    """
    future = asyncio.run_coroutine_threadsafe(call, _loop())
    try:
        return future.result()
    except concurrent.futures.CancelledError:
        raise RunStopped("the model was closed") from None
    except BaseException:  # an interrupt: nobody waits for the answer any more
        future.cancel()
        raise


class Endpoint:
    """One endpoint's bound on requests in flight, and the time at which it wants to hear from us again."""

    def __init__(self, in_flight: int):
        self.slots = asyncio.Semaphore(in_flight)
        self._opens = 0.0  # time.monotonic

    def close_for(self, seconds: float) -> None:
        """Nobody asks for so long: what one call was told holds for all."""
        self._opens = max(self._opens, time.monotonic() + seconds)

    async def opened(self, patience: float, url: str) -> None:
        """Wait until one may ask.

        Raises:
            ModelFailure: that takes more than `patience` seconds.
        """
        while (seconds := self._opens - time.monotonic()) > 0:
            if seconds > patience:
                told = f"it wants no request for {seconds:.0f} s"
                raise ModelFailure("rate_limit", told, url=url, retry_after=seconds)
            await asyncio.sleep(seconds)


@dataclass
class Flight:
    """A call under way, and how many wait for its reply; it ends when the last of them leaves."""

    call: asyncio.Task[Reply]
    own: set[str]  # the waiters' names for it, of `cache.key_within`
    waiters: int = 0


class Session:
    """A run's cache, endpoints, calls under way, and what it has spent. Used on the models' loop alone."""

    def __init__(self, settings: Settings):
        self.settings = settings
        path = Path(settings.cache_file) if settings.cache_file else cache_folder() / "replies.sqlite"
        self.cache = None if settings.cache == "off" else Cache(path, create=settings.cache != "replay")
        self.flights: dict[str, Flight] = {}  # by cache key
        self.apart: set[str] = set()  # names under which replies that are no answers were kept as they came
        self.askers: set[Asker] = set()  # that got such replies
        self.no_answers: Counter[str] = Counter()  # calls of this run whose reply was none, by outcome
        self.broken_off = False  # True: by a limit, an interrupt or a fault
        self.at_end: list[Callable[[], Coroutine[Any, Any, None]]] = []  # closes connections, which flights share
        self.users = 0
        self._endpoints: dict[str, Endpoint] = {}
        self._tokens, self._usd, self._started = 0, 0.0, time.monotonic()
        self._unkept: dict[str, str] = {}  # limits that cannot be kept, and why

    def endpoint(self, url: str, in_flight: int) -> Endpoint:
        """The endpoint's own bound."""
        return self._endpoints.setdefault(url, Endpoint(in_flight))

    def check(self) -> None:
        """Before a request: may more be spent? Calls in flight can still pass the limit, by what they use.

        Raises:
            RunStopped: no.
        """
        spent = (self._tokens, self._usd, time.monotonic() - self._started)
        for name, used in zip(LIMITS, spent, strict=True):
            limit, used = getattr(self.settings, name), round(used, 6)
            if limit is not None and used >= limit:
                kept = f"; what was paid for is kept in {self.cache.path}" if self.cache else ""
                raise RunStopped(f"{name}={limit} is reached ({used} used){kept}")
            if limit is not None and name in self._unkept:
                raise RunStopped(f"{name}={limit} cannot be kept: {self._unkept[name]}")

    def seconds_left(self) -> float | None:
        """Until `seconds_limit` is reached; None: there is no such limit."""
        limit = self.settings.seconds_limit
        return None if limit is None else limit - (time.monotonic() - self._started)

    def spend(self, reply: Reply) -> None:
        """Count a call that was paid for."""
        if reply.usage is None:
            self._unkept["token_limit"] = "the endpoint does not say what a reply used"
        if reply.cost is None:
            self._unkept["usd_limit"] = "what a reply cost is not known"
        self._tokens += reply.usage.input + reply.usage.output if reply.usage else 0
        self._usd += reply.cost or 0.0

    async def close(self) -> None:
        """Close the connections and the cache."""
        for end in self.at_end:
            await end()
        if self.no_answers:
            told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.no_answers.items()))
            log.warning("replies that were no answers: %s; %s", told, NO_ANSWERS[self.settings.cache])
        if self.cache:
            try:
                for who in () if self.broken_off else self.askers:
                    if not who.failed:  # else it is to be played again, and goes on as it began
                        who.end()
            finally:
                self.cache.close()


# What becomes of replies that are no answers, by the cache's mode.
NO_ANSWERS = {
    "readwrite": "a later run asks again, and --cache replay gives them as they were",
    "refresh": "a later run asks again, and --cache replay gives them as they were",
    "replay": "as they were kept",
    "off": "nothing is kept",
}


_open: dict[Settings, Session] = {}
_opening = threading.Lock()


@contextmanager
def session(settings: Settings) -> Iterator[Session]:
    """The session of these settings, one for all who have it open at the same time."""
    with _opening:
        shared = _open.get(settings) or _open.setdefault(settings, Session(settings))
        shared.users += 1
    try:
        yield shared
    except BaseException:
        shared.broken_off = True
        raise
    finally:
        with _opening:
            shared.users -= 1
            if not shared.users:
                _open.pop(settings, None)  # in a forked child it is gone already
                wait(shared.close())


def _forget() -> None:
    """In a forked child: the loop's thread stayed with the parent, and so do its sessions."""
    global _opening
    _opening = threading.Lock()
    _open.clear()
    _loop.cache_clear()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_forget)
