"""A hosted model beside a local one: the local one reads everything, the hosted one only what was cleared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from triskele.embed.hosted import HostedEmbedder
from triskele.embed.protocol import Embedder, Encoding
from triskele.errors import Unavailable
from triskele.privacy.clearance import Cleared

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A question in both models; without the hosted vector where it was not cleared or not answered."""

    local: Encoding
    hosted: NDArray[np.float32] | None = None
    missing: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """Texts in both models, by their keys; whoever was not cleared has a local encoding only."""

    local: Mapping[str, Encoding]
    hosted: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Beside:
    """Both models; the local one alone whenever the other may not read or cannot answer."""

    local: Embedder
    hosted: HostedEmbedder

    def encode_query(self, text: str, cleared: Cleared | None) -> Asked:
        """Encode one question."""
        here = self.local.encode_query(text)
        if cleared is None:
            return Asked(here, missing="the question stays here: it quotes something private")
        try:
            return Asked(here, self.hosted.encode_query(cleared))
        except Unavailable as error:
            return Asked(here, missing=str(error))

    def encode_documents(self, texts: Mapping[str, str], cleared: Mapping[str, Cleared | None]) -> Made:
        """Encode texts by their keys; of the cleared ones, those that `texts` names."""
        here = dict(zip(texts, self.local.encode_documents(list(texts.values())), strict=True))
        allowed = {key: text for key in texts if (text := cleared.get(key)) is not None}
        if not allowed:
            return Made(here)
        try:
            found = self.hosted.encode_documents(list(allowed.values()))
        except Unavailable as error:
            return Made(here, missing=str(error))
        return Made(here, dict(zip(allowed, found, strict=True)))
