"""What an embedding model takes and gives; free of heavy imports."""

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
    """Anything that turns texts into vectors."""

    @property
    def fingerprint(self) -> str:
        """The model's name and a hash of its weights: vectors compare only under the same one."""

    @property
    def dimensions(self) -> int:
        """Length of a sentence vector."""

    @property
    def token_dimensions(self) -> int:
        """Length of a token vector."""

    def encode_query(self, text: str) -> Encoding:
        """Encode one question."""

    def encode_documents(self, texts: Sequence[str]) -> list[Encoding]:
        """Encode texts to be found, in their order."""
