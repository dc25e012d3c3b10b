"""A hosted embedding model beside the local one: it reads open memories and cleared questions, under its own mark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from triskele.errors import Unavailable
from triskele.index.catalog import Catalog
from triskele.index.dense import DenseIndex
from triskele.models.hosted_embedder import EndpointEmbedder
from triskele.recall.hosted.egress_policy import EgressPolicy
from triskele.recall.legs.dense import HostedVectors
from triskele.stores.protocol import Store

BATCH = 64


@dataclass(frozen=True, slots=True)
class Hosted:
    """The model, once with patience for texts and once without for questions, and what it said about a store."""

    texts: EndpointEmbedder
    questions: EndpointEmbedder
    store: Store
    clearing: EgressPolicy
    catalog: Catalog
    dense: DenseIndex

    @staticmethod
    def open(
        folder: Path,
        store: Store,
        texts: EndpointEmbedder,
        questions: EndpointEmbedder,
        clearing: EgressPolicy,
        tail_cap: int,
    ) -> Hosted:
        """The model over a store."""
        mark = texts.fingerprint
        dense = DenseIndex(folder, store, mark, texts.dimensions, tail_cap=tail_cap)
        return Hosted(texts, questions, store, clearing, Catalog(store, mark), dense)

    def asked(self, text: str) -> tuple[HostedVectors | None, str]:
        """The question as this model reads it, or None with the reason; where it has read nothing, nobody asks it."""
        if not self.store.last_slot(self.texts.fingerprint):
            return None, "the hosted model was not asked: it has read nothing yet (`triskele reindex` lets it)"
        cleared, kept = self.clearing.question(text)
        if cleared is None:
            return None, kept
        try:
            return HostedVectors(self.questions.encode_query(cleared), self.dense, self.catalog), ""
        except Unavailable as error:
            return None, f"the hosted model was not asked: {error}"

    def embed(self, *, limit: int | None = None) -> int:
        """Let the model read open memories that it has not seen, batch by batch; returns how many."""
        done, after = 0, 0
        while limit is None or done < limit:
            batch = self.store.models.clear_for(self.texts.fingerprint, BATCH, after=after)
            if not batch:
                break
            after = batch[-1][0]
            texts = {each.content_hash: text for _, each in batch if (text := self.clearing.memory(each)) is not None}
            if texts:
                vectors = self.texts.encode_documents(list(texts.values()))
                kept = {digest: v.astype("<f4").tobytes() for digest, v in zip(texts, vectors, strict=True)}
                self.store.models.keep(self.texts.fingerprint, kept)
            done += len(texts)
        return done

    def close(self) -> None:
        """Let go of the files."""
        self.dense.close()
