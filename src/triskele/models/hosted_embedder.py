"""Hosted embedding models: formats of services, and the client over egress."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from triskele.config import HOSTED
from triskele.errors import BadInput, ModelUnavailable
from triskele.models.egress import EgressClient, Endpoint, Joined, ServiceModel
from triskele.models.embedder import Family, averaged, checked_vectors, family
from triskele.privacy.clearance import ClearedText

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# What is sent instead of a blank text, which most services refuse.
_BLANK = "."
_MOST_WINDOWS = 64
# In some scripts a character is more than one token: this keeps batches below the limits on tokens.
_MOST_CHARACTERS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingService:
    """A service: address, limits, fields of a request, and where responses hold vectors."""

    url: str
    path: str = "/embeddings"
    texts_field: str = "input"
    # The same in every request.
    fields: Mapping[str, bool | str | tuple[str, ...]]
    # The `input_type` by role, if the service wants one.
    roles: Mapping[str, str] = field(default_factory=dict)
    # Empty if the service may refuse it: then the dimensions are only checked.
    dimensions_field: str = ""
    vectors: Callable[[Any], list[Any]]
    tokens: Callable[[Any], object]
    most_texts: int
    window_characters: int
    dimensions: Mapping[str, int] = field(default_factory=dict)
    wants_prompts: bool = False

    def body(self, model: str, texts: Sequence[object], role: str, dimensions: int) -> dict[str, Any]:
        """The request for the vectors of texts; without `dimensions` the usual number."""
        body: dict[str, Any] = {"model": model, self.texts_field: list(texts), **self.fields}
        if self.roles:
            body["input_type"] = self.roles[role]
        if dimensions and self.dimensions_field:
            body[self.dimensions_field] = dimensions
        return body

    @property
    def words(self) -> frozenset[str]:
        """The words that requests hold besides model, texts and prompts."""
        words = {self.path, "model", self.texts_field, self.dimensions_field, *self.fields}
        if self.roles:
            words |= {"input_type", *self.roles.values()}
        for value in self.fields.values():
            if isinstance(value, str):
                words.add(value)
            elif isinstance(value, tuple):
                words.update(value)
        return frozenset(words)


def _listed(answer: Any) -> list[Any]:
    """The vectors in the order of their indexes."""
    try:
        vectors = {int(entry["index"]): entry["embedding"] for entry in answer["data"]}
        return [vectors[number] for number in range(len(answer["data"]))]
    except (LookupError, TypeError, ValueError):
        raise ModelUnavailable("the service did not return exactly one vector per text") from None


def _cohere_vectors(answer: Any) -> list[Any]:
    try:
        return list(answer["embeddings"]["float"])
    except (LookupError, TypeError):
        raise ModelUnavailable("the service returned no vectors") from None


def _total_tokens(answer: Any) -> object:
    return answer["usage"]["total_tokens"]


SERVICES: Mapping[str, EmbeddingService] = {
    "openai": EmbeddingService(
        url="https://api.openai.com/v1",
        fields={"encoding_format": "float"},
        dimensions_field="dimensions",
        vectors=_listed,
        tokens=_total_tokens,
        most_texts=256,
        window_characters=6_000,
        dimensions={"text-embedding-3-small": 1536, "text-embedding-3-large": 3072, "text-embedding-ada-002": 1536},
    ),
    "voyage": EmbeddingService(
        url="https://api.voyageai.com/v1",
        fields={"truncation": True},
        roles={"query": "query", "document": "document"},
        dimensions_field="output_dimension",
        vectors=_listed,
        tokens=_total_tokens,
        most_texts=128,
        window_characters=12_000,
        dimensions=dict.fromkeys(("voyage-3.5", "voyage-3.5-lite", "voyage-3-large", "voyage-code-3"), 1024),
    ),
    "cohere": EmbeddingService(
        url="https://api.cohere.com/v2",
        path="/embed",
        texts_field="texts",
        fields={"embedding_types": ("float",), "truncate": "END"},
        roles={"query": "search_query", "document": "search_document"},
        dimensions_field="output_dimension",
        vectors=_cohere_vectors,
        tokens=lambda answer: answer["meta"]["billed_units"]["input_tokens"],
        most_texts=96,
        window_characters=1_600,
        dimensions={"embed-v4.0": 1536, "embed-english-v3.0": 1024, "embed-multilingual-v3.0": 1024},
    ),
    # Ollama, llama.cpp, vLLM, text-embeddings-inference and other servers with OpenAI's interface; many of them refuse
    # unknown fields.
    "compatible": EmbeddingService(
        url="",
        fields={"encoding_format": "float"},
        vectors=_listed,
        tokens=_total_tokens,
        most_texts=32,
        window_characters=1_500,
        wants_prompts=True,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedModel(ServiceModel):
    """A hosted embedding model from the user's settings."""

    dimensions: int = 0

    def __post_init__(self) -> None:
        """Refuse an unknown service and a missing model."""
        if self.service not in SERVICES:
            raise BadInput(f"unknown embedding service {self.service!r}: choose one of {', '.join(SERVICES)}")
        if not self.model:
            raise BadInput(f"no model of {self.service} is set: name one in your settings")

    @property
    def protocol(self) -> EmbeddingService:
        """The request and response format of its service."""
        return SERVICES[self.service]

    @property
    def prompts(self) -> Family:
        """The prompts of the model's family, unless the service adds them."""
        return family(self.model) if self.protocol.wants_prompts else Family()

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint for the egress client."""
        prompts = self.prompts
        return Endpoint(
            url=self.url or self.protocol.url,
            words=self.protocol.words | {self.model, prompts.query, prompts.document, _BLANK},
            key=self.key,
            timeout_s=self.timeout_s,
        )


class EndpointEmbedder:
    """Embeds cleared texts by an endpoint of the egress client."""

    def __init__(self, client: EgressClient, name: str, model: HostedModel) -> None:
        self._client = client
        self._name = name
        self._model = model

    @cached_property
    def fingerprint(self) -> str:
        """Service, model, dimensions and prompt; other fingerprints are not comparable."""
        settings = "\n".join([self._model.endpoint.host, self._model.prompts.document, str(self._window)])
        name = re.sub(r"[^\w.-]", "-", f"{self._model.service}-{self._model.model}")
        return f"{HOSTED}{name}-{self.dimensions}d@{hashlib.sha256(settings.encode()).hexdigest()[:16]}"

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        dimensions = self._model.dimensions or self._model.protocol.dimensions.get(self._model.model, 0)
        if not dimensions:
            raise BadInput(f"the dimensions of {self._model.model} are unknown: set them in your settings")
        return dimensions

    def encode_query(self, text: ClearedText) -> NDArray[np.float32]:
        """Encode one query; characters beyond the first window are dropped."""
        vector: NDArray[np.float32] = self._vectors([text.part(0, self._window)], "query")[0]
        return vector

    def encode_documents(self, texts: Sequence[ClearedText]) -> NDArray[np.float32]:
        """Encode documents in order; long ones are read in windows."""
        import numpy as np

        pieces = [_windows(text, self._window) for text in texts]
        if not pieces:
            return np.empty((0, self.dimensions), dtype=np.float32)
        flat = [piece for parts in pieces for piece in parts]
        vectors = self._vectors(flat, "document")
        ends = np.cumsum([len(parts) for parts in pieces]).tolist()
        return np.stack(
            [
                averaged(self._name, vectors[end - len(parts) : end], [len(part.text) for part in parts])
                for parts, end in zip(pieces, ends, strict=True)
            ]
        )

    @property
    def _window(self) -> int:
        return self._model.protocol.window_characters

    def _vectors(self, texts: Sequence[ClearedText], role: str) -> NDArray[np.float32]:
        import numpy as np

        prompt = self._model.prompts.query if role == "query" else self._model.prompts.document
        parts = []
        for batch in _batches(texts, self._model.protocol):
            answer = self._post([_prompted(prompt, text) for text in batch], role)
            rows = self._model.protocol.vectors(answer)
            parts.append(checked_vectors(self._name, rows, len(batch), self.dimensions))
        return np.concatenate(parts)

    def _post(self, texts: Sequence[object], role: str) -> Any:
        protocol = self._model.protocol
        dimensions = self._model.dimensions
        if dimensions == protocol.dimensions.get(self._model.model):
            dimensions = 0
        body = protocol.body(self._model.model, texts, role, dimensions)
        return self._client.post(self._name, protocol.path, body, protocol.tokens)


def _prompted(prompt: str, text: ClearedText) -> object:
    content: str | ClearedText = text if text.text.strip() else _BLANK
    return Joined((prompt, content)) if prompt else content


def _windows(text: ClearedText, size: int) -> list[ClearedText]:
    starts = range(0, max(1, len(text.text)), size)[:_MOST_WINDOWS]
    return [text.part(start, start + size) for start in starts]


def _batches(texts: Sequence[ClearedText], service: EmbeddingService) -> Iterator[list[ClearedText]]:
    """Consecutive texts, as many as a request may hold."""
    batch: list[ClearedText] = []
    characters = 0
    for text in texts:
        size = len(text.text)
        if batch and (len(batch) == service.most_texts or characters + size > _MOST_CHARACTERS):
            yield batch
            batch, characters = [], 0
        batch.append(text)
        characters += size
    if batch:
        yield batch
