"""How each kind of embedding service is spoken to: a table of requests and answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from triskele.errors import ModelUnavailable

Body = Callable[[str, Sequence[object], str, int], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One kind of service: where it is, what it takes, and where in its answer the vectors and the tokens stand."""

    url: str
    path: str
    words: frozenset[str]
    body: Body
    vectors: Callable[[Any], list[Any]]
    tokens: Callable[[Any], object]
    most_texts: int
    # A character may be more than a token in some scripts: this keeps batches below the limits on tokens.
    most_characters: int = 100_000
    window_characters: int
    dimensions: Mapping[str, int] = field(default_factory=dict)
    wants_prompts: bool = False


def _openai_body(model: str, texts: Sequence[object], role: str, dimensions: int) -> dict[str, Any]:  # noqa: ARG001
    body: dict[str, Any] = {"model": model, "input": list(texts), "encoding_format": "float"}
    return body | ({"dimensions": dimensions} if dimensions else {})


def _compatible_body(model: str, texts: Sequence[object], role: str, dimensions: int) -> dict[str, Any]:  # noqa: ARG001
    # Many of these servers refuse a field that they do not know, so the length is checked and not asked for.
    return {"model": model, "input": list(texts), "encoding_format": "float"}


def _voyage_body(model: str, texts: Sequence[object], role: str, dimensions: int) -> dict[str, Any]:
    body: dict[str, Any] = {"model": model, "input": list(texts), "input_type": role, "truncation": True}
    return body | ({"output_dimension": dimensions} if dimensions else {})


def _cohere_body(model: str, texts: Sequence[object], role: str, dimensions: int) -> dict[str, Any]:
    kinds = {"input_type": f"search_{role}", "embedding_types": ["float"], "truncate": "END"}
    return {"model": model, "texts": list(texts)} | kinds | ({"output_dimension": dimensions} if dimensions else {})


def _listed(answer: Any) -> list[Any]:
    """Vectors in the order that their numbers tell."""
    try:
        found = {int(entry["index"]): entry["embedding"] for entry in answer["data"]}
        return [found[number] for number in range(len(answer["data"]))]
    except (LookupError, TypeError, ValueError):
        raise ModelUnavailable("the service answers without vectors, or with two for one text") from None


def _cohere_vectors(answer: Any) -> list[Any]:
    try:
        return list(answer["embeddings"]["float"])
    except (LookupError, TypeError):
        raise ModelUnavailable("the service answers without vectors") from None


def _total_tokens(answer: Any) -> object:
    return answer["usage"]["total_tokens"]


_OPENAI_WORDS = frozenset({"/embeddings", "model", "input", "encoding_format", "float", "dimensions"})

SERVICES: Mapping[str, Service] = {
    "openai": Service(
        url="https://api.openai.com/v1",
        path="/embeddings",
        words=_OPENAI_WORDS,
        body=_openai_body,
        vectors=_listed,
        tokens=_total_tokens,
        most_texts=256,
        window_characters=6_000,
        dimensions={
            "text-embedding-3-small": 1536,
            "text-embedding-3-large": 3072,
            "text-embedding-ada-002": 1536,
        },
    ),
    "voyage": Service(
        url="https://api.voyageai.com/v1",
        path="/embeddings",
        words=frozenset({"/embeddings", "model", "input", "input_type", "query", "document", "truncation"})
        | {"output_dimension"},
        body=_voyage_body,
        vectors=_listed,
        tokens=_total_tokens,
        most_texts=128,
        window_characters=12_000,
        dimensions=dict.fromkeys(("voyage-3.5", "voyage-3.5-lite", "voyage-3-large", "voyage-code-3"), 1024),
    ),
    "cohere": Service(
        url="https://api.cohere.com/v2",
        path="/embed",
        words=frozenset({"/embed", "model", "texts", "input_type", "search_query", "search_document", "float"})
        | {"embedding_types", "truncate", "END", "output_dimension"},
        body=_cohere_body,
        vectors=_cohere_vectors,
        tokens=lambda answer: answer["meta"]["billed_units"]["input_tokens"],
        most_texts=96,
        window_characters=1_600,
        dimensions={"embed-v4.0": 1536, "embed-english-v3.0": 1024, "embed-multilingual-v3.0": 1024},
    ),
    # Ollama, llama.cpp, vLLM, text-embeddings-inference and whoever else speaks as OpenAI does.
    "compatible": Service(
        url="",
        path="/embeddings",
        words=_OPENAI_WORDS,
        body=_compatible_body,
        vectors=_listed,
        tokens=_total_tokens,
        most_texts=32,
        window_characters=1_500,
        wants_prompts=True,
    ),
}
