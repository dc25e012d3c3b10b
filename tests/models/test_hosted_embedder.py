"""Hosted models: every service is spoken to in its own way, and none is trusted to answer well."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import loopback
import numpy as np
import pytest
from loopback import Book

from triskele.errors import BadInput, ModelUnavailable
from triskele.models import hosted_embedder
from triskele.models.egress import Endpoint, NotCleared
from triskele.models.embedder import Family
from triskele.models.hosted_embedder import SERVICES, EndpointEmbedder, HostedModel
from triskele.privacy.clearance import ClearedText

Start = Callable[..., tuple[EndpointEmbedder, loopback.Loopback]]
Clear = Callable[..., list[ClearedText]]
EVERY = sorted(SERVICES)


def right(text: str) -> Any:
    vector = np.array(loopback.vector(text))
    return vector / np.linalg.norm(vector)


ROLES = {
    "openai": ("{}", "{}"),
    "voyage": ("query {}", "document {}"),
    "cohere": ("search_query {}", "search_document {}"),
    "compatible": ("{}", "{}"),
}


@pytest.mark.parametrize("service", EVERY)
def test_questions_and_texts_come_back_as_unit_vectors_in_order(
    hosted: Start, clear: Clear, book: Book, service: str
) -> None:
    embedder, server = hosted(service)
    as_query, as_document = ROLES[service]
    texts = [f"note {number}" for number in range(5)]
    vectors = embedder.encode_documents(clear(*texts))
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, [right(as_document.format(text)) for text in texts], atol=1e-6)
    (question,) = clear("which note?")
    np.testing.assert_allclose(embedder.encode_query(question), right(as_query.format("which note?")), atol=1e-6)
    assert sum(bill.tokens for bill in book.bills) == sum(map(len, texts)) + len("which note?")
    assert [departure.texts for departure in book.departures] == [5, 1]
    assert len(server.seen) == 2


@pytest.mark.parametrize(("service", "most"), [("openai", 256), ("voyage", 128), ("cohere", 96), ("compatible", 32)])
def test_texts_go_in_batches(hosted: Start, clear: Clear, service: str, most: int) -> None:
    embedder, server = hosted(service)
    texts = [f"note {number}" for number in range(most + 1)]
    vectors = embedder.encode_documents(clear(*texts))
    assert len(server.seen) == 2
    np.testing.assert_allclose(vectors[-1], right(ROLES[service][1].format(texts[-1])), atol=1e-6)


def test_a_batch_is_bounded_in_characters(hosted: Start, clear: Clear) -> None:
    embedder, server = hosted("voyage")
    embedder.encode_documents(clear(*["x" * 12_000] * 10))
    assert [len("".join(seen.body["input"])) for seen in server.seen] == [96_000, 24_000]


@pytest.mark.parametrize("service", EVERY)
def test_a_failure_passes(hosted: Start, clear: Clear, book: Book, service: str) -> None:
    embedder, server = hosted(service)
    server.turns.extend([loopback.refuse(429, Retry_After="1"), loopback.refuse(500)])
    assert len(embedder.encode_documents(clear("a"))) == 1
    assert [departure.attempt for departure in book.departures] == [1, 2, 3]


BAD: dict[str, loopback.Turn] = {
    "half": loopback.half,
    "too much to do": loopback.refuse(429, Retry_After="999"),
    "broken": loopback.refuse(500),
    "nothing": loopback.say({}),
    "a list": loopback.say([1]),
    "no vectors": loopback.say({"data": [], "embeddings": {"float": []}}),
    "text": loopback.say(b"<html>"),
    "oversize": loopback.say(b"[" + b"0," * 20_000_000),
}


@pytest.mark.parametrize("service", EVERY)
@pytest.mark.parametrize("turn", BAD, ids=lambda name: name.replace(" ", "-"))
def test_malformed_answer_is_an_error_of_the_model(hosted: Start, clear: Clear, service: str, turn: str) -> None:
    embedder, server = hosted(service)
    server.turns.extend([BAD[turn]] * 3)
    with pytest.raises(ModelUnavailable) as caught:
        embedder.encode_documents(clear("a private word"))
    assert "\n" not in str(caught.value) and "private" not in str(caught.value)


def _with_rows(service: str, rows: list[Any]) -> Any:
    if service == "cohere":
        return {"embeddings": {"float": rows}}
    return {"data": [{"index": number, "embedding": row} for number, row in enumerate(rows)]}


NAN = float("nan")
GOOD = [1.0] * loopback.DIMENSIONS
ROWS: dict[str, tuple[list[Any], str]] = {
    "nan": ([[NAN, *GOOD[1:]], GOOD], "NaN or infinite"),
    "null": ([[None, *GOOD[1:]], GOOD], "NaN or infinite"),
    "infinite": ([[1e39, *GOOD[1:]], GOOD], "NaN or infinite"),
    "zeros": ([[0.0] * loopback.DIMENSIONS, GOOD], "zeros"),
    "short": ([GOOD[1:], GOOD[1:]], "7 dimensions, expected 8"),
    "long": ([[*GOOD, 1.0], [*GOOD, 1.0]], "9 dimensions, expected 8"),
    "ragged": ([GOOD, GOOD[1:]], "not lists of numbers"),
    "one too few": ([GOOD], "1 vectors for 2 texts"),
    "one too many": ([GOOD] * 3, "3 vectors for 2 texts"),
    "words": ([["a"] * 8, GOOD], "not lists of numbers"),
    "nested": ([[GOOD], [GOOD]], "vectors for 2 texts"),
}


@pytest.mark.parametrize("service", ["openai", "cohere"])
@pytest.mark.parametrize("kind", ROWS, ids=lambda name: name.replace(" ", "-"))
def test_wrong_vectors_are_refused(hosted: Start, clear: Clear, service: str, kind: str) -> None:
    rows, expected = ROWS[kind]
    embedder, server = hosted(service)
    server.turns.append(loopback.say(_with_rows(service, rows)))
    with pytest.raises(ModelUnavailable, match=expected):
        embedder.encode_documents(clear("a", "b"))


def test_two_vectors_for_one_text_are_refused(hosted: Start, clear: Clear) -> None:
    embedder, server = hosted("openai")
    server.turns.append(loopback.say({"data": [{"index": 0, "embedding": GOOD}] * 2}))
    with pytest.raises(ModelUnavailable, match="exactly one vector per text"):
        embedder.encode_documents(clear("a", "b"))


def test_large_numbers_still_have_a_direction(hosted: Start, clear: Clear) -> None:
    embedder, server = hosted("openai")
    server.turns.append(loopback.say(_with_rows("openai", [[1e30] * 8])))
    np.testing.assert_allclose(np.linalg.norm(embedder.encode_documents(clear("a"))), 1, atol=1e-6)


@pytest.mark.parametrize("service", EVERY)
def test_wrong_key_is_reported_once_and_not_shown(hosted: Start, clear: Clear, service: str) -> None:
    embedder, server = hosted(service, key="sk-wrong-key-9931")
    with pytest.raises(ModelUnavailable, match="refused the key") as caught:
        embedder.encode_query(clear("a")[0])
    assert "9931" not in str(caught.value) + repr(embedder._model) + repr(embedder._model.endpoint)
    assert len(server.seen) == 1


def test_a_service_that_hangs_is_left(hosted: Start, clear: Clear) -> None:
    embedder, server = hosted("voyage", timeout_s=0.3)
    server.turns.append(loopback.hang)
    with pytest.raises(ModelUnavailable, match=r"did not answer within 0\.3 s"):
        embedder.encode_query(clear("a")[0])


@pytest.mark.parametrize("service", EVERY)
def test_a_plain_text_cannot_be_handed_over(hosted: Start, service: str) -> None:
    embedder, server = hosted(service)
    for text in ("secret", b"secret", None):
        with pytest.raises((NotCleared, AttributeError, TypeError)):
            embedder.encode_documents([text])  # type: ignore[list-item]
        with pytest.raises((NotCleared, AttributeError, TypeError)):
            embedder.encode_query(text)  # type: ignore[arg-type]
    assert server.seen == []


class Lookalike(str):
    """A text with everything that the embedder asks of a cleared one."""

    @property
    def text(self) -> str:
        return str(self)

    def part(self, start: int, end: int) -> Lookalike:
        return Lookalike(self[start:end])


@pytest.mark.parametrize("service", EVERY)
def test_nor_one_that_looks_cleared(hosted: Start, service: str) -> None:
    embedder, server = hosted(service)
    with pytest.raises(NotCleared):
        embedder.encode_documents([Lookalike("secret")])  # type: ignore[list-item]
    with pytest.raises(NotCleared):
        embedder.encode_query(Lookalike("secret"))  # type: ignore[arg-type]
    assert server.seen == []


@pytest.mark.parametrize(
    ("model", "query", "document"),
    [
        ("nomic-embed-text", "search_query: ", "search_document: "),
        ("intfloat/multilingual-e5-small", "query: ", "passage: "),
        ("BAAI/bge-large-en-v1.5", "Represent this sentence for searching relevant passages: ", ""),
        ("Alibaba-NLP/gte-Qwen2-7B-instruct", "Instruct: Given a web search query, retrieve", ""),
        ("somebody/else", "", ""),
    ],
)
def test_an_open_model_is_prompted_as_its_family_wants(
    hosted: Start, clear: Clear, model: str, query: str, document: str
) -> None:
    embedder, server = hosted("compatible", model=model)
    embedder.encode_query(clear("who?")[0])
    embedder.encode_documents(clear("me"))
    asked, told = (seen.body["input"][0] for seen in server.seen)
    assert asked.startswith(query) and asked.endswith("who?") and (query or asked == "who?")
    assert told == document + "me"


@pytest.fixture
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of four characters."""
    monkeypatch.setitem(SERVICES, "openai", replace(SERVICES["openai"], window_characters=4))  # type: ignore[misc]


@pytest.mark.usefixtures("short_windows")
def test_long_texts_are_read_by_windows_and_averaged(hosted: Start, clear: Clear) -> None:
    embedder, server = hosted("openai")
    vectors = embedder.encode_documents(clear("aaaabb", "c"))
    assert server.seen[0].body["input"] == ["aaaa", "bb", "c"]
    mixed = 4 * right("aaaa") + 2 * right("bb")
    np.testing.assert_allclose(vectors, [mixed / np.linalg.norm(mixed), right("c")], atol=1e-6)
    embedder.encode_query(clear("aaaabb")[0])
    assert server.seen[1].body["input"] == ["aaaa"]
    embedder.encode_documents(clear("x" * 1000))
    assert len(server.seen[2].body["input"]) == 64


@pytest.mark.usefixtures("short_windows")
def test_blanks_and_nothing(hosted: Start, clear: Clear) -> None:
    embedder, server = hosted("openai")
    assert embedder.encode_documents([]).shape == (0, loopback.DIMENSIONS)
    assert server.seen == []
    assert len(embedder.encode_documents(clear("a      b"))) == 1
    assert server.seen[0].body["input"] == ["a   ", "   b"]
    embedder.encode_documents(clear("    a"))
    assert server.seen[1].body["input"] == [".", "a"]


@pytest.mark.parametrize(
    ("service", "model", "name"),
    [
        ("openai", "text-embedding-3-large", "dimensions"),
        ("voyage", "voyage-3.5", "output_dimension"),
        ("cohere", "embed-v4.0", "output_dimension"),
    ],
)
def test_only_an_unusual_length_is_requested(hosted: Start, clear: Clear, service: str, model: str, name: str) -> None:
    embedder, server = hosted(service, model=model, dimensions=256)
    assert embedder.encode_documents(clear("a")).shape == (1, 256)
    assert server.seen[0].body[name] == 256
    usual = SERVICES[service].dimensions[model]
    embedder, server = hosted(service, model=model, dimensions=0)
    assert embedder.dimensions == usual
    with pytest.raises(ModelUnavailable, match=f"8 dimensions, expected {usual}"):
        embedder.encode_documents(clear("a"))
    assert name not in server.seen[0].body


def test_unknown_length_is_asked_of_the_user(hosted: Start) -> None:
    embedder, server = hosted("compatible", dimensions=0)
    with pytest.raises(BadInput, match="set them in your settings"):
        _ = embedder.dimensions
    assert server.seen == []


def test_fingerprint_follows_the_vectors_and_is_a_file_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def mark(**details: Any) -> str:
        values = {
            "service": "compatible",
            "model": "BAAI/bge-m3",
            "dimensions": 8,
            "url": "http://localhost:1",
        } | details
        return EndpointEmbedder(None, "x", HostedModel(**values)).fingerprint  # type: ignore[arg-type]

    assert mark() == mark(key="k", timeout_s=3)
    changed = [{"model": "b"}, {"model": "e5-base"}, {"dimensions": 9}, {"url": "http://127.0.0.1:1"}]
    marks = {mark(), *(mark(**details) for details in changed)}
    monkeypatch.setitem(SERVICES, "compatible", replace(SERVICES["compatible"], window_characters=9))  # type: ignore[misc]
    in_windows = mark()
    assert len({*marks, in_windows}) == 6
    monkeypatch.setattr(hosted_embedder, "family", lambda _: Family(document="d"))
    assert mark() != in_windows
    assert not set(mark()) & set('/\\:*?"<>| ')


def test_settings_that_lead_nowhere_are_refused() -> None:
    with pytest.raises(BadInput, match="choose one of"):
        HostedModel(service="acme", model="x")
    with pytest.raises(BadInput, match="name one in your settings"):
        HostedModel(service="openai", model="")
    with pytest.raises(BadInput, match="address"):
        _ = HostedModel(service="compatible", model="x").endpoint


@pytest.mark.parametrize("service", ["openai", "voyage", "cohere"])
def test_hosted_services_are_spoken_to_over_https(service: str) -> None:
    endpoint = HostedModel(service=service, model="x", key="k").endpoint
    assert isinstance(endpoint, Endpoint) and endpoint.url.startswith("https://") and not endpoint.is_loopback
    assert endpoint.timeout_s == 10.0
