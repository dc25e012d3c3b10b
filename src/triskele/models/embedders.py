"""The Embedder protocol, and two embedders joined into one; free of heavy imports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Encoding:
    """One text as a unit sentence vector and unit token vectors, special tokens left out."""

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
        """The model's name and a hash of its weights; only vectors with the same fingerprint are comparable."""

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


@dataclass(frozen=True, slots=True)
class PairedEmbedder:
    """Sentence vectors of one local model and token vectors of another: late interaction works with any model."""

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
