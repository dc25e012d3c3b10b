"""Models that somebody else runs: they read cleared text only, and it reaches them through the door."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from triskele.config import HOSTED
from triskele.errors import BadInput, ModelUnavailable
from triskele.models.egress import EgressClient, Endpoint, EndpointUnavailable, Joined
from triskele.models.embed.families import Family, family
from triskele.models.embed.services import SERVICES, Service
from triskele.privacy.clearance import Cleared

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# What stands for a text of blanks, which most services refuse, and for a text at all when only the length is asked.
_BLANK, _PROBE = ".", "dimensions"
_MOST_WINDOWS = 64


class HostedEmbedder(Protocol):
    """The sibling of Embedder for models elsewhere: it cannot be handed a text that was not cleared."""

    @property
    def fingerprint(self) -> str:
        """Service, model, dimensions and prompt: vectors compare only under the same one."""

    @property
    def dimensions(self) -> int:
        """Length of a vector."""

    def encode_query(self, text: Cleared) -> NDArray[np.float32]:
        """The unit vector of one question."""

    def encode_documents(self, texts: Sequence[Cleared]) -> NDArray[np.float32]:
        """The unit vectors of texts to be found, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedModel:
    """A hosted model as the user's settings name it."""

    service: str
    model: str
    url: str = ""
    key: str = field(default="", repr=False)
    dimensions: int = 0
    query_prompt: str | None = None
    document_prompt: str | None = None
    window_characters: int = 0
    timeout_s: float = 10.0
    price_per_million: float | None = None

    def __post_init__(self) -> None:
        """Refuse a service that nobody here speaks to."""
        if self.service not in SERVICES:
            raise BadInput(f"no service is called {self.service!r}: choose one of {', '.join(SERVICES)}")
        if not self.model:
            raise BadInput(f"which model of {self.service}? Name it in your settings")

    @property
    def spoken(self) -> Service:
        """How its service is spoken to."""
        return SERVICES[self.service]

    @property
    def prompts(self) -> Family:
        """What stands before a question and before a text: as set, or as the family of the model wants it."""
        known = family(self.model) if self.spoken.wants_prompts else Family()
        query = known.query if self.query_prompt is None else self.query_prompt
        return Family(query, known.document if self.document_prompt is None else self.document_prompt)

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint to open the door for."""
        prompts = self.prompts
        return Endpoint(
            url=self.url or self.spoken.url,
            words=self.spoken.words | {self.model, prompts.query, prompts.document, _BLANK, _PROBE},
            key=self.key,
            timeout_s=self.timeout_s,
            price_per_million=self.price_per_million,
        )


class DoorEmbedder:
    """A HostedEmbedder that asks an endpoint of the door, in batches."""

    def __init__(self, door: EgressClient, name: str, model: HostedModel) -> None:
        self._door = door
        self._name = name
        self._model = model

    @cached_property
    def fingerprint(self) -> str:
        """Service, model, dimensions and prompt: vectors compare only under the same one."""
        told = "\n".join([self._model.endpoint.host, self._model.prompts.document, str(self._window)])
        name = re.sub(r"[^\w.-]", "-", f"{self._model.service}-{self._model.model}")
        return f"{HOSTED}{name}-{self.dimensions}d@{hashlib.sha256(told.encode()).hexdigest()[:16]}"

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        found = self._model.dimensions or self._model.spoken.dimensions.get(self._model.model, 0)
        if not found:
            raise BadInput(f"how many numbers has a vector of {self._model.model}? Set its dimensions")
        return found

    def probe(self) -> int:
        """Ask the model for a vector of a fixed word, and tell its length."""
        found = self._model.spoken.vectors(self._post([_PROBE], "document"))
        if not (found and isinstance(found[0], list) and found[0]):
            raise ModelUnavailable(f"{self._name} answers without a vector")
        return len(found[0])

    def encode_query(self, text: Cleared) -> NDArray[np.float32]:
        """The unit vector of one question; what goes beyond one window is not read."""
        found: NDArray[np.float32] = self._vectors([text.part(0, self._window)], "query")[0]
        return found

    def encode_documents(self, texts: Sequence[Cleared]) -> NDArray[np.float32]:
        """The unit vectors of texts to be found, in their order; long ones by windows."""
        import numpy as np

        from triskele.models.embed.vectors import averaged

        pieces = [_windows(text, self._window) for text in texts]
        if not pieces:
            return np.empty((0, self.dimensions), dtype=np.float32)
        flat = [piece for parts in pieces for piece in parts]
        found = self._vectors(flat, "document")
        ends = np.cumsum([len(parts) for parts in pieces]).tolist()
        return np.stack(
            [
                averaged(self._name, found[end - len(parts) : end], [len(part.text) for part in parts])
                for parts, end in zip(pieces, ends, strict=True)
            ]
        )

    @property
    def _window(self) -> int:
        return self._model.window_characters or self._model.spoken.window_characters

    def _vectors(self, texts: Sequence[Cleared], role: str) -> NDArray[np.float32]:
        import numpy as np

        from triskele.models.embed.vectors import checked

        prompt = self._model.prompts.query if role == "query" else self._model.prompts.document
        made = []
        for batch in _batches(texts, self._model.spoken):
            answer = self._post([_prompted(prompt, text) for text in batch], role)
            rows = self._model.spoken.vectors(answer)
            made.append(checked(self._name, rows, len(batch), self.dimensions))
        return np.concatenate(made)

    def _post(self, texts: Sequence[object], role: str) -> Any:
        spoken = self._model.spoken
        asked = self._model.dimensions
        if asked == spoken.dimensions.get(self._model.model):
            asked = 0
        body = spoken.body(self._model.model, texts, role, asked)
        try:
            return self._door.post(self._name, spoken.path, body, spoken.tokens)
        except EndpointUnavailable as error:
            raise ModelUnavailable(str(error)) from None


def _prompted(prompt: str, text: Cleared) -> object:
    said: str | Cleared = text if text.text.strip() else _BLANK
    return Joined((prompt, said)) if prompt else said


def _windows(text: Cleared, size: int) -> list[Cleared]:
    starts = range(0, max(1, len(text.text)), size)[:_MOST_WINDOWS]
    return [text.part(start, start + size) for start in starts]


def _batches(texts: Sequence[Cleared], spoken: Service) -> Iterator[list[Cleared]]:
    """Consecutive texts, as many as a request may hold."""
    batch: list[Cleared] = []
    characters = 0
    for text in texts:
        size = len(text.text)
        if batch and (len(batch) == spoken.most_texts or characters + size > spoken.most_characters):
            yield batch
            batch, characters = [], 0
        batch.append(text)
        characters += size
    if batch:
        yield batch
