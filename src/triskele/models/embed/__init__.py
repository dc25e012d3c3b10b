"""Meaning as vectors: the Embedder protocol and the model that ships with the package."""

from __future__ import annotations

from triskele.models.embed.bundled import bundled
from triskele.models.embed.protocol import Embedder, Encoding

__all__ = ["Embedder", "Encoding", "bundled"]
