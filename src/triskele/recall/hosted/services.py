"""Models that the settings name besides the local one: embedding, reranking and language models, mostly hosted."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from triskele.config import LlmSettings, RerankSettings, ServiceSettings, Settings, is_path
from triskele.errors import BadInput, ModelUnavailable, Unavailable
from triskele.index.catalog import Catalog
from triskele.index.corpus import Floats, Vectors
from triskele.index.dense import DenseIndex
from triskele.index.local import LocalVectors
from triskele.models import llm_replies
from triskele.models.cross_encoder import Readable, Reranker, Reranking
from triskele.models.egress import EgressClient, Endpoint
from triskele.models.hosted_embedder import EndpointEmbedder, HostedModel
from triskele.models.hosted_reranker import EndpointCrossEncoder, HostedReranker
from triskele.models.llm import COMMAND, CommandLlm, EndpointLlm, HostedLlm, Llm, LlmCommand
from triskele.privacy.clearance import ClearedText
from triskele.recall.hosted.egress_log import StoreLedger
from triskele.recall.hosted.egress_policy import EgressPolicy
from triskele.recall.question import CandidateReranker
from triskele.recall.rewording import WORDS, QueryRewriter
from triskele.store.owner import OwnerStore
from triskele.store.vector_bytes import row_of
from triskele.types import Memory, Scope

BATCH = 64
# Texts are embedded in the background: a batch of them may take so many times as long as a question.
_TEXTS_PATIENCE = 5
TEXTS, QUESTIONS, RERANK, LLM = "hosted", "hosted questions", "rerank", "llm"
# All prompts that a language model may get.
_WORDS = WORDS | llm_replies.WORDS
_Made = TypeVar("_Made")
_Hosted = TypeVar("_Hosted", HostedModel, HostedReranker, HostedLlm)
_VARIABLES = {
    "openai": "OPENAI_API_KEY",
    "voyage": "VOYAGE_API_KEY",
    "cohere": "COHERE_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
}


@dataclass(frozen=True, slots=True)
class _Reviewer(Generic[Readable]):
    judge: Reranker[Readable]

    @property
    def name(self) -> str:
        """The name to show."""
        return self.judge.name

    @property
    def depth(self) -> int:
        """How many candidates it reads."""
        return self.judge.depth


@dataclass(frozen=True, slots=True)
class LocalReviewer(_Reviewer[str]):
    """A cross-encoder on this machine: it may read everything, but only the title of a secret."""

    def review(self, question: str, memories: Mapping[int, Memory]) -> Reranking:
        """Order memories, given by row and best first."""
        return self.judge.rerank(question, {row: memory.content for row, memory in memories.items()})


@dataclass(frozen=True, slots=True)
class HostedReviewer(_Reviewer[ClearedText]):
    """A hosted cross-encoder: it reads open memories and cleared queries; other memories keep their places."""

    egress_policy: EgressPolicy

    def review(self, question: str, memories: Mapping[int, Memory]) -> Reranking:
        """Order memories, given by row and best first."""
        cleared, kept = self.egress_policy.question(question)
        if cleared is None:
            return Reranking(tuple(memories), {}, missing=kept)
        return self.judge.rerank(cleared, {row: self.egress_policy.memory(memory) for row, memory in memories.items()})


@dataclass(frozen=True, slots=True)
class Hosted:
    """A hosted embedding model, with one timeout for texts and a shorter one for queries, and its vectors."""

    texts: EndpointEmbedder
    questions: EndpointEmbedder
    store: OwnerStore
    egress_policy: EgressPolicy
    catalog: Catalog
    dense: DenseIndex

    @staticmethod
    def open(
        folder: Path,
        store: OwnerStore,
        texts: EndpointEmbedder,
        questions: EndpointEmbedder,
        egress_policy: EgressPolicy,
    ) -> Hosted:
        """The model over a store."""
        mark = texts.fingerprint
        dense = DenseIndex(folder, store, mark, texts.dimensions)
        return Hosted(texts, questions, store, egress_policy, Catalog(store, mark), dense)

    def nearness(self, text: str, scope: Scope) -> tuple[Callable[[], Vectors] | None, str]:
        """What opens the cosines of this model with a question, or None with the reason.

        A model without vectors is not used.
        """
        if not self.store.heads(self.texts.fingerprint).slot:
            return None, "the hosted model was not used: it has embedded nothing yet (run `triskele reindex`)"
        cleared, kept = self.egress_policy.question(text)
        if cleared is None:
            return None, kept
        try:
            vector = self.questions.encode_query(cleared)
            return partial(self._opened, scope, vector), ""
        except Unavailable as error:
            return None, f"the hosted model was not used: {error}"

    def _opened(self, scope: Scope, vector: Floats) -> LocalVectors:
        columns = self.catalog.view()
        return LocalVectors(columns, scope, self.dense.over(columns), vector)

    def embed(self, *, limit: int | None = None) -> int:
        """Embed open memories that the model has not read, batch by batch; returns how many."""
        done, after = 0, 0
        while limit is None or done < limit:
            batch = self.store.models.clear_for(self.texts.fingerprint, BATCH, after=after)
            if not batch:
                break
            after = batch[-1][0]
            texts = {
                each.content_hash: text for _, each in batch if (text := self.egress_policy.memory(each)) is not None
            }
            if texts:
                vectors = self.texts.encode_documents(list(texts.values()))
                kept = {digest: row_of(v) for digest, v in zip(texts, vectors, strict=True)}
                self.store.models.save(self.texts.fingerprint, kept)
            done += len(texts)
        return done

    def close(self) -> None:
        """Close the files."""
        self.dense.close()


@dataclass(frozen=True, slots=True)
class HostedServices:
    """Models besides the local one; None for those that the settings do not name."""

    client: EgressClient
    hosted: Hosted | None = None
    reranker: CandidateReranker | None = None
    rewriter: QueryRewriter | None = None
    judge: Llm | None = None
    command: str = ""
    problems: tuple[str, ...] = ()

    @staticmethod
    def open(settings: Settings, folder: Path, store: OwnerStore, egress_policy: EgressPolicy) -> HostedServices:
        """Everything that the settings name, behind an egress client that allows only these endpoints."""
        problems: list[str] = []
        model = _usable("hosted", HostedModel, settings.hosted, problems, dimensions=settings.hosted.dimensions)
        endpoint = _usable("rerank", HostedReranker, settings.rerank, problems)
        asks = settings.llm.expand or bool(settings.curation.llm_calls)
        details = {"words": _WORDS, "price_per_million": settings.llm.price_per_million or None}
        language = _usable("llm", HostedLlm, settings.llm, problems, **details) if asks else None
        endpoints: dict[str, Endpoint] = {}
        if model is not None:
            usual = model.endpoint
            endpoints[TEXTS] = replace(usual, timeout_s=usual.timeout_s * _TEXTS_PATIENCE)
            endpoints[QUESTIONS] = replace(usual, attempts=1)
        if endpoint is not None:
            endpoints[RERANK] = endpoint.endpoint
        if language is not None:
            endpoints[LLM] = language.endpoint
        ledger = StoreLedger(store)
        client = EgressClient(endpoints, ledger)
        hosted = None
        if model is not None:
            both = EndpointEmbedder(client, TEXTS, model), EndpointEmbedder(client, QUESTIONS, model)
            hosted = _tried("hosted", lambda: Hosted.open(folder, store, *both, egress_policy), problems)
        llm: Llm | None = EndpointLlm(client, LLM, language) if language is not None else None
        if asks and llm is None:
            llm = _tried("llm", lambda: _command(settings.llm, ledger), problems)
        rewriter = QueryRewriter(llm, egress_policy) if llm is not None and settings.llm.expand else None
        judge = llm if settings.curation.llm_calls else None
        reranker = _tried("rerank", lambda: _reranker(settings.rerank, endpoint, client, egress_policy), problems)
        command = llm.name if isinstance(llm, CommandLlm) else ""
        return HostedServices(client, hosted, reranker, rewriter, judge, command, tuple(problems))

    @property
    def hosts(self) -> dict[str, str]:
        """The hosts that texts may be sent to, by purpose; a command counts, because it may send them anywhere."""
        return self.client.hosts | ({LLM: self.command} if self.command else {})

    def close(self) -> None:
        """Close files and connections."""
        if self.hosted is not None:
            self.hosted.close()
        self.client.close()


def _usable(
    section: str, kind: type[_Hosted], settings: ServiceSettings, problems: list[str], **details: Any
) -> _Hosted | None:
    """What the settings name, if it can be used: a mistake in them, or a missing key, does not prevent an answer."""
    if settings.service in ("", COMMAND):
        return None

    def make() -> _Hosted:
        given: dict[str, Any] = {
            "service": settings.service,
            "model": settings.model,
            "url": settings.url,
            "key": _key(section, settings),
            "timeout_s": settings.timeout_s,
        }
        made = kind(**given, **details)
        # Refuses an address that nothing may be sent to.
        _ = made.endpoint
        return made

    return _tried(section, make, problems)


def _tried(section: str, make: Callable[[], _Made | None], problems: list[str]) -> _Made | None:
    try:
        return make()
    except (BadInput, Unavailable) as error:
        problems.append(f"[{section}] of your settings is not used: {error}")
        return None


def _command(settings: LlmSettings, ledger: StoreLedger) -> CommandLlm | None:
    if settings.service != COMMAND:
        return None
    return CommandLlm(ledger, LLM, LlmCommand(arguments=settings.command, words=_WORDS, timeout_s=settings.timeout_s))


def _reranker(
    settings: RerankSettings, hosted: HostedReranker | None, client: EgressClient, egress_policy: EgressPolicy
) -> CandidateReranker | None:
    if hosted is not None:
        encoder = EndpointCrossEncoder(client, RERANK, hosted)
        return HostedReviewer(Reranker(encoder, timeout_s=settings.timeout_s), egress_policy)
    if not settings.model or settings.service:
        return None
    from triskele.models.local import local_cross_encoder

    return LocalReviewer(Reranker(local_cross_encoder(settings.model), timeout_s=settings.timeout_s))


def _key(section: str, settings: ServiceSettings) -> str:
    """The API key from the file or the environment variable that the settings name."""
    source = settings.key or _VARIABLES.get(settings.service, "")
    if is_path(source):
        try:
            return Path(source).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            raise ModelUnavailable(f"{section}.key: the file {source} cannot be read") from None
    key = os.environ.get(source, "") if source else ""
    if source and not key:
        raise ModelUnavailable(f"{section}.key: the environment has no {source}")
    return key
