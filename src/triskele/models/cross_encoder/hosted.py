"""Rerankers that somebody else runs: they read cleared text only, and it reaches them through the door."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from triskele.errors import BadInput, ModelUnavailable
from triskele.models.egress import EgressClient, Endpoint, EndpointUnavailable
from triskele.privacy.clearance import Cleared

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# About 512 tokens of English; the services cut what is longer in their own way.
_MOST_CHARACTERS = 2_000


@dataclass(frozen=True, slots=True)
class _Service:
    url: str
    entries: str
    tokens: Callable[[Any], object]


SERVICES: Mapping[str, _Service] = {
    "voyage": _Service("https://api.voyageai.com/v1", "data", lambda answer: answer["usage"]["total_tokens"]),
    # Billed by searches, not by tokens: one of up to a hundred texts is one unit.
    "cohere": _Service("https://api.cohere.com/v2", "results", lambda _: None),
}
_PATH = "/rerank"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedReranker:
    """A hosted reranker as the user's settings name it."""

    service: str
    model: str
    url: str = ""
    key: str = field(default="", repr=False)
    timeout_s: float = 2.0
    price_per_million: float | None = None

    def __post_init__(self) -> None:
        """Refuse a service that nobody here speaks to."""
        if self.service not in SERVICES:
            raise BadInput(f"no reranking service is called {self.service!r}: choose one of {', '.join(SERVICES)}")

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint to open the door for; it is asked once, for whoever waits cannot wait for a second try."""
        return Endpoint(
            url=self.url or SERVICES[self.service].url,
            words=frozenset({_PATH, "model", self.model, "query", "documents"}),
            key=self.key,
            timeout_s=self.timeout_s,
            attempts=1,
            price_per_million=self.price_per_million,
        )


class DoorCrossEncoder:
    """A CrossEncoder of cleared texts that asks an endpoint of the door."""

    def __init__(self, door: EgressClient, endpoint: str, reranker: HostedReranker) -> None:
        self._door = door
        self._endpoint = endpoint
        self._reranker = reranker

    @property
    def name(self) -> str:
        """Service and model."""
        return f"{self._reranker.service} {self._reranker.model}"

    def prepare(self) -> None:
        """Nothing is loaded here."""

    def score(self, question: Cleared, texts: Sequence[Cleared]) -> NDArray[np.float32]:
        """Let the service read the question with every text, in one request."""
        from triskele.models.cross_encoder.scores import checked

        service = SERVICES[self._reranker.service]
        documents = [text.part(0, _MOST_CHARACTERS) for text in texts]
        body = {"model": self._reranker.model, "query": question.part(0, _MOST_CHARACTERS), "documents": documents}
        try:
            answer = self._door.post(self._endpoint, _PATH, body, service.tokens)
        except EndpointUnavailable as error:
            raise ModelUnavailable(str(error)) from None
        return checked(self.name, self._in_order(answer, service.entries, len(texts)), len(texts))

    def _in_order(self, answer: Any, entries: str, count: int) -> list[Any]:
        """The scores in the order of the texts; the services answer best first."""
        try:
            found = {int(entry["index"]): entry["relevance_score"] for entry in answer[entries]}
            return [found[number] for number in range(count)]
        except (LookupError, TypeError, ValueError):
            raise ModelUnavailable(f"{self.name} answers without a score for every text") from None
