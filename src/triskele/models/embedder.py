"""The Embedder protocol, local models, prompts of model families, and checks of model outputs."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from triskele.errors import ModelUnavailable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Loaded = TypeVar("Loaded")

_TASK = "Given a web search query, retrieve relevant passages that answer the query"
_SEARCHING = "Represent this sentence for searching relevant passages: "


@dataclass(frozen=True, slots=True)
class Family:
    """Prompts before queries and documents, and the pooling of a family."""

    query: str = ""
    document: str = ""
    pooling: str = ""


# The first matching pattern wins, so specific patterns come before general ones.
_FAMILIES = (
    (r"bge-m3", Family(pooling="cls")),
    (r"bge-.*-zh", Family("为这个句子生成表示以用于检索相关文章：", pooling="cls")),
    (r"bge-(small|base|large)", Family(_SEARCHING, pooling="cls")),
    (r"e5-mistral", Family(f"Instruct: {_TASK}\nQuery: ", pooling="last")),
    (r"e5-.*instruct", Family(f"Instruct: {_TASK}\nQuery: ", pooling="mean")),
    (r"(^|[-_/])e5-", Family("query: ", "passage: ", "mean")),
    (r"nomic-embed-text", Family("search_query: ", "search_document: ", "mean")),
    (r"gte-qwen2", Family(f"Instruct: {_TASK}\nQuery: ", pooling="last")),
    (r"qwen3-embedding", Family(f"Instruct: {_TASK}\nQuery:", pooling="last")),
    (r"gte-.*-v1\.5|gte-modernbert|gte-multilingual", Family(pooling="cls")),
    (r"(^|[-_/])gte-", Family(pooling="mean")),
    (r"mxbai-embed", Family(_SEARCHING, pooling="cls")),
    (r"arctic-embed.*v2", Family("query: ", pooling="cls")),
    (r"arctic-embed", Family(_SEARCHING, pooling="cls")),
    (r"embeddinggemma", Family("task: search result | query: ", "title: none | text: ", "mean")),
    (r"minilm|all-mpnet|paraphrase-", Family(pooling="mean")),
)


def family(*names: str) -> Family:
    """The family of the first name that matches; empty if none does."""
    for name in names:
        for pattern, known_family in _FAMILIES:
            if re.search(pattern, name.lower()):
                return known_family
    return Family()


@dataclass(frozen=True, slots=True, eq=False)
class Encoding:
    """A text as unit sentence vector and token vectors, without special tokens."""

    sentence: NDArray[np.float32]
    """(dimensions,)"""
    tokens: NDArray[np.float32]
    """(n, token dimensions)"""
    token_ids: NDArray[np.int32]
    """(n,)"""
    spans: NDArray[np.int32]
    """(n, 2): where each token starts and ends in the text, in characters"""


class Embedder(Protocol):
    """A model that turns texts into vectors."""

    @property
    def fingerprint(self) -> str:
        """Model name and hash of its weights; other fingerprints are not comparable."""

    @property
    def dimensions(self) -> int:
        """Length of a sentence vector."""

    @property
    def token_dimensions(self) -> int:
        """Length of a token vector."""

    def encode_query(self, text: str) -> Encoding:
        """Encode one query."""

    def encode_documents(self, texts: Sequence[str]) -> list[Encoding]:
        """Encode documents, in their order."""


class LazyModel(ABC, Generic[Loaded]):
    """A model on this machine; its weights are loaded at the first use."""

    def __init__(self) -> None:
        self._loading = Lock()
        self._loaded: Loaded | None = None

    def prepare(self) -> None:
        """Load the weights if they are not loaded."""
        self._runtime()

    def _runtime(self) -> Loaded:
        with self._loading:
            if self._loaded is None:
                self._loaded = self._load()
            return self._loaded

    @abstractmethod
    def _load(self) -> Loaded:
        """Read the weights; heavy libraries are imported here."""


class LocalEmbedder(LazyModel[Loaded]):
    """The identity of an embedder on this machine."""

    def __init__(self, fingerprint: str, dimensions: int, token_dimensions: int = 0) -> None:
        super().__init__()
        self._fingerprint = fingerprint
        self._dimensions = dimensions
        self._token_dimensions = token_dimensions

    @property
    def fingerprint(self) -> str:
        """Model name and hash of everything that its document vectors depend on."""
        return self._fingerprint

    @property
    def dimensions(self) -> int:
        """Length of a sentence vector."""
        return self._dimensions

    @property
    def token_dimensions(self) -> int:
        """Length of a token vector; 0 without meaningful ones."""
        return self._token_dimensions


@dataclass(frozen=True, slots=True)
class PairedEmbedder:
    """Sentence vectors of one local model with token vectors of another."""

    sentences: Embedder
    tokens: Embedder

    @property
    def fingerprint(self) -> str:
        """Both fingerprints: vectors are comparable only if both models are the same."""
        return f"{self.sentences.fingerprint}+{self.tokens.fingerprint}"

    @property
    def dimensions(self) -> int:
        """Length of a sentence vector."""
        return self.sentences.dimensions

    @property
    def token_dimensions(self) -> int:
        """Length of a token vector."""
        return self.tokens.token_dimensions

    def encode_query(self, text: str) -> Encoding:
        """Encode one query."""
        return _joined(self.sentences.encode_query(text), self.tokens.encode_query(text))

    def encode_documents(self, texts: Sequence[str]) -> list[Encoding]:
        """Encode documents, in their order."""
        pairs = zip(self.sentences.encode_documents(texts), self.tokens.encode_documents(texts), strict=True)
        return [_joined(*pair) for pair in pairs]


def _joined(sentences: Encoding, tokens: Encoding) -> Encoding:
    return Encoding(sentences.sentence, tokens.tokens, tokens.token_ids, tokens.spans)


def checked_vectors(model: str, rows: object, count: int, dimensions: int) -> NDArray[np.float32]:
    """Check number, length and values; return unit vectors."""
    import numpy as np

    try:
        with np.errstate(over="ignore"):
            vectors = np.asarray(rows, dtype=np.float32)
    except (ValueError, TypeError, OverflowError):
        raise ModelUnavailable(f"{model} returned vectors that are not lists of numbers") from None
    if vectors.ndim != 2 or len(vectors) != count:
        raise ModelUnavailable(f"{model} returned {len(vectors) if vectors.ndim else 0} vectors for {count} texts")
    if vectors.shape[1] != dimensions:
        raise ModelUnavailable(
            f"{model} returned vectors of {vectors.shape[1]} dimensions, expected {dimensions}:"
            f" set its dimensions to {vectors.shape[1]} and run `triskele reindex`"
        )
    return unit(model, vectors)


def unit(model: str, found: NDArray[np.float32]) -> NDArray[np.float32]:
    """The vectors scaled to length 1; zero vectors and NaN are refused."""
    import numpy as np

    # Scaled first: the squares of large numbers overflow.
    largest = np.abs(found).max(axis=-1, keepdims=True, initial=0.0)
    if not (np.isfinite(largest).all() and (largest > 0).all()):
        raise ModelUnavailable(f"{model} returned a vector of zeros, NaN or infinite values")
    scaled = found / largest
    return np.asarray(scaled / np.linalg.norm(scaled, axis=-1, keepdims=True), dtype=np.float32)


def averaged(model: str, vectors: NDArray[np.float32], lengths: Sequence[int]) -> NDArray[np.float32]:
    """The mean of a text's window vectors, weighted by length."""
    import numpy as np

    return vectors[0] if len(vectors) == 1 else unit(model, np.asarray(lengths, dtype=np.float32) @ vectors)


def without_tokens(sentence: NDArray[np.float32]) -> Encoding:
    """The encoding of a model without token vectors."""
    import numpy as np

    return Encoding(
        sentence=sentence,
        tokens=np.empty((0, 0), dtype=np.float32),
        token_ids=np.empty(0, dtype=np.int32),
        spans=np.empty((0, 2), dtype=np.int32),
    )


def checked_scores(model: str, found: object, count: int) -> NDArray[np.float32]:
    """One finite score per text; two logits become their difference."""
    import numpy as np

    try:
        scores = np.asarray(found, dtype=np.float32)
    except (ValueError, TypeError):
        raise ModelUnavailable(f"{model} returned scores that are not numbers") from None
    if scores.ndim == 2 and scores.shape[1] == 2:
        scores = scores[:, 1] - scores[:, 0]
    if scores.ndim == 2 and scores.shape[1] == 1:
        scores = scores[:, 0]
    if scores.shape != (count,):
        raise ModelUnavailable(f"{model} returned scores of the shape {scores.shape} for {count} texts")
    if not np.isfinite(scores).all():
        raise ModelUnavailable(f"{model} returned a score that is NaN or infinite")
    return scores
