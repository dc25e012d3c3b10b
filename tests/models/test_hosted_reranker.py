"""Hosted rerankers read cleared text only; whatever they do, there is an order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import loopback
import pytest
from loopback import Book

from triskele.errors import BadInput, ModelUnavailable
from triskele.models.cross_encoder import Reranker
from triskele.models.egress import EgressClient, NotCleared
from triskele.models.hosted_reranker import SERVICES, EndpointCrossEncoder, HostedReranker
from triskele.privacy.clearance import ClearedText, clear_memory
from triskele.types import Memory, Sensitivity

Start = Callable[..., tuple[EndpointCrossEncoder, loopback.Loopback]]
EVERY = sorted(SERVICES)
NAN = float("nan")


def _ranked(body: dict[str, Any]) -> list[dict[str, Any]]:
    scored = [{"index": number, "relevance_score": len(text) / 100} for number, text in enumerate(body["documents"])]
    return sorted(scored, key=lambda entry: -float(entry["relevance_score"]))


def _scored(*scores: object) -> dict[str, Any]:
    entries = [{"index": number, "relevance_score": score} for number, score in enumerate(scores)]
    return {"data": entries, "results": entries}


def as_voyage(path: str, body: dict[str, Any]) -> loopback.Answer:
    if path != "/v1/rerank" or set(body) != {"model", "query", "documents"}:
        return 400, {"detail": "bad request"}
    return 200, {"object": "list", "data": _ranked(body), "model": body["model"], "usage": {"total_tokens": 26}}


def as_cohere(path: str, body: dict[str, Any]) -> loopback.Answer:
    if path != "/v1/rerank" or set(body) != {"model", "query", "documents"}:
        return 400, {"message": "bad request"}
    return 200, {"id": "1", "results": _ranked(body), "meta": {"billed_units": {"search_units": 1}}}


@pytest.fixture
def book() -> Book:
    return Book()


@pytest.fixture
def start(book: Book) -> Iterator[Start]:
    opened: list[Any] = []

    def make(service: str, **details: Any) -> tuple[EndpointCrossEncoder, loopback.Loopback]:
        serving = loopback.serving({"voyage": as_voyage, "cohere": as_cohere}[service])
        state = serving.__enter__()
        values = {"model": "rerank-tiny", "key": loopback.KEY} | details
        reranker = HostedReranker(service=service, url=f"{state.url}/v1", **values)
        door = EgressClient({"far": reranker.endpoint}, book, pause=lambda seconds: None)
        opened.append((serving, door))
        return EndpointCrossEncoder(door, "far", reranker), state

    yield make
    for serving, door in opened:
        door.close()
        serving.__exit__(None, None, None)


@pytest.fixture
def clear(make_memory: Callable[..., Memory]) -> Callable[..., Any]:
    def cleared(text: str, **details: Any) -> ClearedText | None:
        return clear_memory(make_memory(text, **details))

    return cleared


@pytest.mark.parametrize("service", EVERY)
def test_scores_come_back_in_the_order_of_the_texts(start: Start, clear: Callable[..., Any], service: str) -> None:
    encoder, server = start(service)
    scores = encoder.score(clear("who?"), [clear("a"), clear("ccc"), clear("bb")])
    assert scores.tolist() == pytest.approx([0.01, 0.03, 0.02])
    assert server.seen[0].body == {"model": "rerank-tiny", "query": "who?", "documents": ["a", "ccc", "bb"]}


@pytest.mark.parametrize("service", EVERY)
def test_private_rows_stay_here_and_in_their_places(
    start: Start, clear: Callable[..., Any], book: Book, service: str
) -> None:
    encoder, server = start(service)
    private = clear("a private note", sensitivity=Sensitivity.PRIVATE)
    verdict = Reranker(encoder).rerank(clear("who?"), {1: clear("a"), 2: private, 3: clear("ccc")})
    assert verdict.order == (3, 2, 1) and verdict.agreement is not None
    assert "private" not in server.sent
    assert book.departures[0].texts == 3
    assert [bill.tokens for bill in book.bills] == ([26] if service == "voyage" else [])


@pytest.mark.parametrize("service", EVERY)
@pytest.mark.parametrize(
    "turn",
    [
        *(loopback.refuse(status) for status in (401, 429, 500)),
        loopback.half,
        loopback.say(b"<html>"),
        *(loopback.say(answer) for answer in ({}, _scored(), _scored(1.0), _scored(1, NAN), _scored("x", 1))),
    ],
)
def test_whatever_goes_wrong_the_ranking_stands(
    start: Start, clear: Callable[..., Any], service: str, turn: loopback.Turn
) -> None:
    encoder, server = start(service)
    server.turns.append(turn)
    verdict = Reranker(encoder).rerank(clear("who?"), {1: clear("a"), 2: clear("bb")})
    assert verdict.order == (1, 2) and verdict.missing and len(server.seen) == 1


def test_a_service_that_hangs_is_left(start: Start, clear: Callable[..., Any]) -> None:
    encoder, server = start("voyage", timeout_s=0.2)
    server.turns.append(loopback.hang)
    with pytest.raises(ModelUnavailable, match=r"within 0\.2 s"):
        encoder.score(clear("who?"), [clear("a"), clear("b")])


def test_long_texts_are_cut(start: Start, clear: Callable[..., Any]) -> None:
    encoder, server = start("cohere")
    encoder.score(clear("q" * 9000), [clear("x" * 9000), clear("y")])
    assert [len(text) for text in server.seen[0].body["documents"]] == [2000, 1]
    assert len(server.seen[0].body["query"]) == 2000


class Lookalike(str):
    def part(self, start: int, end: int) -> Lookalike:
        return self


@pytest.mark.parametrize("service", EVERY)
def test_plain_texts_cannot_be_handed_over(start: Start, clear: Callable[..., Any], service: str) -> None:
    encoder, server = start(service)
    good = clear("fine")
    for question, text in ((Lookalike("secret"), good), (good, Lookalike("secret"))):
        with pytest.raises(NotCleared):
            encoder.score(question, [good, text])  # type: ignore[arg-type,list-item]
    with pytest.raises(AttributeError):
        encoder.score("secret", [good])  # type: ignore[arg-type]
    assert server.seen == []


def test_settings() -> None:
    with pytest.raises(BadInput, match="choose one of voyage, cohere"):
        HostedReranker(service="acme", model="x")
    endpoint = HostedReranker(service="voyage", model="rerank-2.5", key="sk-hidden").endpoint
    assert endpoint.url.startswith("https://") and "sk-hidden" not in repr(endpoint)
    assert "sk-hidden" not in repr(HostedReranker(service="voyage", model="rerank-2.5", key="sk-hidden"))
