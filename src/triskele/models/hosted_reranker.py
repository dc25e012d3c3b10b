"""Hosted rerankers: they read cleared text only, sent by the egress client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from triskele.errors import BadInput, ModelUnavailable
from triskele.models.egress import EgressClient, Endpoint, ServiceModel
from triskele.models.embedder import checked_scores
from triskele.privacy.clearance import ClearedText

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# About 512 tokens of English; the services cut longer texts in their own ways.
_MOST_CHARACTERS = 2_000


@dataclass(frozen=True, slots=True)
class _RerankService:
    url: str
    entries: str
    tokens: Callable[[Any], object]


SERVICES: Mapping[str, _RerankService] = {
    "voyage": _RerankService("https://api.voyageai.com/v1", "data", lambda answer: answer["usage"]["total_tokens"]),
    # Billed by searches, not by tokens: one search holds up to a hundred texts.
    "cohere": _RerankService("https://api.cohere.com/v2", "results", lambda _: None),
}
_PATH = "/rerank"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedReranker(ServiceModel):
    """A hosted reranker from the user's settings."""

    timeout_s: float = 2.0

    def __post_init__(self) -> None:
        """Refuse an unknown service."""
        if self.service not in SERVICES:
            raise BadInput(f"unknown reranking service {self.service!r}: choose one of {', '.join(SERVICES)}")

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint, with one attempt because a recall waits."""
        return Endpoint(
            url=self.url or SERVICES[self.service].url,
            words=frozenset({_PATH, "model", self.model, "query", "documents"}),
            key=self.key,
            timeout_s=self.timeout_s,
            attempts=1,
        )


class EndpointCrossEncoder:
    """A CrossEncoder of cleared texts behind an endpoint of the egress client."""

    def __init__(self, client: EgressClient, endpoint: str, reranker: HostedReranker) -> None:
        self._client = client
        self._endpoint = endpoint
        self._reranker = reranker

    @property
    def name(self) -> str:
        """Service and model."""
        return f"{self._reranker.service} {self._reranker.model}"

    def prepare(self) -> None:
        """Do nothing: the weights are on the server."""

    def score(self, question: ClearedText, texts: Sequence[ClearedText]) -> NDArray[np.float32]:
        """Score every text for the query, in one request."""
        service = SERVICES[self._reranker.service]
        documents = [text.part(0, _MOST_CHARACTERS) for text in texts]
        body = {"model": self._reranker.model, "query": question.part(0, _MOST_CHARACTERS), "documents": documents}
        answer = self._client.post(self._endpoint, _PATH, body, service.tokens)
        return checked_scores(self.name, self._in_order(answer, service.entries, len(texts)), len(texts))

    def _in_order(self, answer: Any, entries: str, count: int) -> list[Any]:
        """Scores in the order of the texts; services return the best first."""
        try:
            scores = {int(entry["index"]): entry["relevance_score"] for entry in answer[entries]}
            return [scores[number] for number in range(count)]
        except (LookupError, TypeError, ValueError):
            raise ModelUnavailable(f"{self.name} did not return a score for every text") from None
