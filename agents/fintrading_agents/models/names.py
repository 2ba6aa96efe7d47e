"""Models by name, `provider/model`: any OpenAI-compatible endpoint, the bundled small one, and scripted ones."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from fintrading_agents.models import local
from fintrading_agents.models.client import Client
from fintrading_agents.models.prices import find_price, free
from fintrading_agents.models.reply import Model, ModelFailure
from fintrading_agents.models.scripted import SCRIPTS, Scripted
from fintrading_agents.models.session import Session, Settings, session, wait
from fintrading_gym.errors import RunStopped, lookup

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
            if settings.usd_limit is not None and client.price is None:
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


def _openai(name: str, shared: Session) -> Client:
    named = shared.settings.base_url or os.environ.get("OPENAI_BASE_URL")
    url, api_key = named or OPENAI_URL, os.environ.get("OPENAI_API_KEY")
    parts = urlsplit(url)
    if "@" in parts.netloc or parts.query:
        raise ValueError("base_url may hold no user, password or query, for it is shown and logged: set OPENAI_API_KEY")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError(f"base_url={url!r} is no URL; it looks like http://127.0.0.1:8000/v1")
    if not api_key and url == OPENAI_URL:
        raise ValueError(f"{name} needs a key: set OPENAI_API_KEY, or name another endpoint with base_url")
    price = find_price(name, url, shared.settings.prices)
    return Client(name, url, api_key, shared, price)


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
