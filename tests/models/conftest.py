"""Loopback services that answer as the hosted ones do, and a door to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import loopback
import pytest
from loopback import Book

from triskele.models.egress import EgressClient
from triskele.models.hosted_embedder import EndpointEmbedder, HostedModel
from triskele.privacy.clearance import ClearedText, clear_memory
from triskele.types import Memory


def refused(message: str) -> loopback.Answer:
    return 400, {"error": {"message": message, "type": "invalid_request_error"}}


def as_openai(path: str, body: dict[str, Any]) -> loopback.Answer:
    """POST /embeddings; entries come in any order, each with its number."""
    if path != "/v1/embeddings":
        return 404, {"error": {"message": "unknown address", "code": "unknown_url"}}
    if set(body) - {"model", "input", "encoding_format", "dimensions"} or body["encoding_format"] != "float":
        return refused("unknown field")
    texts = body["input"]
    if not texts or len(texts) > 2048 or not all(isinstance(text, str) and text for text in texts):
        return refused("input must be texts")
    size = body.get("dimensions", loopback.DIMENSIONS)
    rows = [
        {"object": "embedding", "index": number, "embedding": loopback.vector(text, size)}
        for number, text in reversed(list(enumerate(texts)))
    ]
    used = sum(len(text) for text in texts)
    usage = {"prompt_tokens": used, "total_tokens": used}
    return 200, {"object": "list", "data": rows, "model": body["model"], "usage": usage}


def as_voyage(path: str, body: dict[str, Any]) -> loopback.Answer:
    """POST /embeddings with the role of the texts."""
    if (
        path != "/v1/embeddings"
        or body.get("input_type") not in ("query", "document")
        or body["truncation"] is not True
    ):
        return refused("bad request")
    if set(body) - {"model", "input", "input_type", "truncation", "output_dimension"} or len(body["input"]) > 128:
        return refused("bad request")
    size = body.get("output_dimension", loopback.DIMENSIONS)
    made = [loopback.vector(f"{body['input_type']} {text}", size) for text in body["input"]]
    rows = [{"object": "embedding", "embedding": row, "index": number} for number, row in enumerate(made)]
    usage = {"total_tokens": sum(len(text) for text in body["input"])}
    return 200, {"object": "list", "data": rows, "model": body["model"], "usage": usage}


def as_cohere(path: str, body: dict[str, Any]) -> loopback.Answer:
    """POST /embed, version 2."""
    known = {"model", "texts", "input_type", "embedding_types", "truncate", "output_dimension"}
    if path != "/v1/embed" or set(body) - known or body["embedding_types"] != ["float"] or len(body["texts"]) > 96:
        return 400, {"id": "1", "message": "invalid request"}
    if body["input_type"] not in ("search_query", "search_document") or body["truncate"] not in (
        "NONE",
        "START",
        "END",
    ):
        return 400, {"id": "1", "message": "invalid request"}
    size = body.get("output_dimension", loopback.DIMENSIONS)
    rows = [loopback.vector(f"{body['input_type']} {text}", size) for text in body["texts"]]
    units = {"input_tokens": sum(len(text) for text in body["texts"])}
    meta = {"api_version": {"version": "2"}, "billed_units": units}
    return 200, {"id": "1", "texts": body["texts"], "embeddings": {"float": rows}, "meta": meta}


def as_compatible(path: str, body: dict[str, Any]) -> loopback.Answer:
    """As OpenAI, but a field too many is an error and 32 texts are the most."""
    if set(body) != {"model", "input", "encoding_format"} or len(body["input"]) > 32:
        return 422, {"error": "batch size > maximum allowed batch size", "error_type": "validation"}
    return as_openai(path, body)


SERVICES = {"openai": as_openai, "voyage": as_voyage, "cohere": as_cohere, "compatible": as_compatible}


@pytest.fixture
def clear(make_memory: Callable[..., Memory]) -> Callable[..., list[ClearedText]]:
    """Texts of open memories, cleared."""

    def cleared(*texts: str) -> list[ClearedText]:
        found = [clear_memory(make_memory(text)) for text in texts]
        return [text for text in found if text is not None]

    return cleared


@pytest.fixture
def book() -> Book:
    return Book()


@pytest.fixture
def hosted(book: Book) -> Iterator[Callable[..., tuple[EndpointEmbedder, loopback.Loopback]]]:
    """Starts a service of a kind and an embedder that speaks to it."""
    with_server: list[Any] = []

    def start(service: str, **details: Any) -> tuple[EndpointEmbedder, loopback.Loopback]:
        serving = loopback.serving(SERVICES[service])
        state = serving.__enter__()
        values = {"model": "tiny", "key": loopback.KEY, "dimensions": loopback.DIMENSIONS} | details
        model = HostedModel(service=service, url=f"{state.url}/v1", **values)
        door = EgressClient({"far": model.endpoint}, book, pause=lambda seconds: None)
        with_server.append((serving, door))
        return EndpointEmbedder(door, "far", model), state

    yield start
    for serving, door in with_server:
        door.close()
        serving.__exit__(None, None, None)
