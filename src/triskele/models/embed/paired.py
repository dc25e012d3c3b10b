"""Sentence vectors of one model and token vectors of another: late interaction works with any model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from triskele.models.embed.protocol import Embedder, Encoding


@dataclass(frozen=True, slots=True)
class PairedEmbedder:
    """An Embedder made of two that both run here."""

    sentences: Embedder
    tokens: Embedder

    @property
    def fingerprint(self) -> str:
        """Both, for vectors of either compare only under the same pair."""
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
        """Encode one question."""
        return _joined(self.sentences.encode_query(text), self.tokens.encode_query(text))

    def encode_documents(self, texts: Sequence[str]) -> list[Encoding]:
        """Encode texts to be found, in their order."""
        pairs = zip(self.sentences.encode_documents(texts), self.tokens.encode_documents(texts), strict=True)
        return [_joined(*pair) for pair in pairs]


def _joined(whole: Encoding, parts: Encoding) -> Encoding:
    return Encoding(whole.sentence, parts.tokens, parts.token_ids, parts.spans)
