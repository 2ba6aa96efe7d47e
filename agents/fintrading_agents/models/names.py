"""Models by name, `provider/model`: any OpenAI-compatible endpoint, the bundled small one, and scripted ones."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from fintrading_agents.models import local
from fintrading_agents.models.client import Client
from fintrading_agents.models.prices import Price, find_price, free
from fintrading_agents.models.reply import Model, ModelFailure
from fintrading_agents.models.scripted import SCRIPTS, Scripted
from fintrading_agents.models.session import Session, Settings, session, wait
from fintrading_gym.errors import RunStopped, brief, lookup

OPENAI_URL = "https://api.openai.com/v1"
NOWHERE = "http://127.0.0.1:9/v1"  # of a local model that is only replayed: it needs neither weights nor server


@contextmanager
def open_model(name: str, settings: Settings | None = None) -> Iterator[Model]:
    """A model, for as long as the block lasts; see `reply.Model`.

    Args:
        name: `openai/NAME` at `settings.base_url`, `local/NAME`, `scripted/NAME`.
        settings: how it is called; models opened at the same time with equal settings share limits and cache.

    Raises:
        UnknownName, ValueError: no such provider or script; no key; a limit in USD without a price.
        MissingExtra: what it runs on is not installed.
        RunStopped: it cannot be had: a wrong key, URL or name, found out before anything is played.
    """
    provider, _, model = name.partition("/")
    open_client = lookup("model provider", provider, PROVIDERS)
    if not model:
        raise ValueError(f"{name!r} names no model; write {provider}/NAME")
    if open_client is None:
        yield Scripted(lookup("scripted model", model, SCRIPTS), name)
        return
    settings = settings or Settings()
    with session(settings) as shared:
        client = open_client(name, shared)
        try:
            if settings.usd_limit is not None and client.price is None and settings.cache != "replay":
                raise ValueError(
                    f"usd_limit={settings.usd_limit}: nobody knows the price of {name}; "
                    "run pip install 'fintrading-gym[cost]', or name a table with prices"
                )
            try:
                wait(client.preflight())
            except ModelFailure as fault:
                raise RunStopped(f"{name} cannot be had: {fault}") from None
            yield client
        finally:
            wait(client.close())


def model_name(agent: str, model: str | Model | None) -> str:
    """The name of an agent's model.

    Raises:
        ValueError: it was given none.
    """
    if model is None:
        raise ValueError(
            f"{agent} needs a model: {agent}:openai/NAME, {agent}:local/smollm2 or {agent}:scripted/momentum"
        )
    return model if isinstance(model, str) else model.name


def price_of(name: str, settings: Settings) -> Price | None:
    """What a model's calls would cost; None: nobody knows. Nothing is asked.

    Raises:
        UnknownName, ValueError: as `open_model`.
    """
    provider, _, model = name.partition("/")
    lookup("model provider", provider, PROVIDERS)
    if not model:
        raise ValueError(f"{name!r} names no model; write {provider}/NAME")
    return find_price(name, _url(settings), settings.prices) if provider == "openai" else free


def _url(settings: Settings) -> str:
    return _checked(settings.base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL)


def _openai(name: str, shared: Session) -> Client:
    url = _url(shared.settings)
    replayed = shared.settings.cache == "replay"
    api_key = None if replayed else _key()
    if not api_key and url == OPENAI_URL and not replayed:
        raise ValueError(f"{name} needs a key: set OPENAI_API_KEY, or name another endpoint with base_url")
    price = find_price(name, url, shared.settings.prices)
    return Client(name, url, api_key, shared, price)


def _checked(url: str) -> str:
    """The URL, if it is one that may be shown; what may hold a secret is refused without being told."""
    if any(mark in url for mark in "@?#"):
        raise ValueError(
            "base_url may hold no user, password or query, and no fragment (none of @ ? #), for it is shown and "
            "logged: set OPENAI_API_KEY"
        )
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, a bracket too many
        good = False
    if not good or not _is_visible_ascii(url):
        raise ValueError(f"base_url={brief(url)} is no URL; it looks like http://127.0.0.1:8000/v1")
    return url


def _key() -> str | None:
    """The key of the environment; an error must not tell it, and one that no header can hold would be told in it."""
    api_key = os.environ.get("OPENAI_API_KEY", "").strip()
    if not _is_visible_ascii(api_key):
        raise ValueError("OPENAI_API_KEY holds white space, a control character or one beyond ASCII: set it again")
    return api_key or None


def _is_visible_ascii(text: str) -> bool:
    return all("!" <= character <= "~" for character in text)


def _local(name: str, shared: Session) -> Client:
    model = name.partition("/")[2]
    facts = lookup("local model", model, local.MODELS)
    try:
        url = local.serve(model) if shared.settings.cache != "replay" else NOWHERE
    except RuntimeError as fault:
        raise RunStopped(f"{name} cannot be had: {fault}") from None
    return Client(
        name,
        url,
        None,
        shared,
        free,
        temperature=local.SETTINGS["temperature"],
        max_tokens=local.SETTINGS["max_tokens"],
        structured="grammar",  # held to a schema, it may fill its reply with white space
        in_flight=1,  # it answers one at a time, and a request that waits there counts as slow
        identity=f"local {facts.file_sha256}",  # the URL is another one each time
        note=facts.about,
    )


PROVIDERS: dict[str, Callable[[str, Session], Client] | None] = {"openai": _openai, "local": _local, "scripted": None}
