"""The models of one store: the local one, those that the settings name besides, and their background work."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triskele.base import timestamps
from triskele.config import HOSTED, NO_MODEL, Settings
from triskele.errors import BadInput, Conflict, NotFound
from triskele.recall.plan import CROSS, Plan
from triskele.stores.derived import EMBED, NAMES
from triskele.stores.protocols import Document, OwnerStore
from triskele.types import Query, Sort

if TYPE_CHECKING:
    from triskele.index.lexical import LexicalIndex
    from triskele.index.local import LocalIndexes, SemanticIndex
    from triskele.index.worker import Worker
    from triskele.recall.hosted.egress_policy import EgressPolicy
    from triskele.recall.hosted.services import CandidateReranker, HostedServices
    from triskele.recall.pipeline import Sources
    from triskele.stores.vault import StoreVault

# Numpy, the model runtime and an HTTP client take longer to import than most commands: each is imported when needed.

_KIND, _KEY = "model in force", "now"
# So few are embedded before the clock is looked at again.
_STEP = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Switched:
    """A switch of models with its evidence; a rollback returns to `before`."""

    name: str
    before: str
    at: str
    evidence: dict[str, Any]


def switched(store: OwnerStore) -> Switched | None:
    """The last switch of models; None where there was none."""
    found = store.documents.all(_KIND).get(_KEY)
    return Switched(**found) if found else None


def in_force(store: OwnerStore, settings: Settings) -> str:
    """The name of the model to use: a settings file or the environment overrides every switch."""
    if is_set(settings):
        return settings.recall.model
    found = switched(store)
    return found.name if found else settings.recall.model


def refuse_if_set(settings: Settings) -> None:
    """Refuse a switch that the settings would override."""
    if is_set(settings):
        origin = settings.origins["recall.model"]
        raise BadInput(f"recall.model is set ({origin}), and a setting overrides a switch: remove it there first")


def put_in_force(store: OwnerStore, name: str, before: str, evidence: dict[str, Any]) -> Switched:
    """Use another model from now on."""
    change = Switched(name=name, before=before, at=timestamps.to_text(timestamps.now()), evidence=evidence)
    if not store.documents.swap(_KIND, _KEY, store.documents.all(_KIND).get(_KEY), asdict(change)):
        raise Conflict("the model was switched meanwhile: check with `triskele models list`")
    return change


def roll_back(store: OwnerStore) -> Switched:
    """Return to the model before the last switch; its vectors are still in the store."""
    found = switched(store)
    if found is None:
        raise NotFound("no model was switched: there is nothing to return to")
    back = Switched(name=found.before, before=found.name, at=timestamps.to_text(timestamps.now()), evidence={})
    store.documents.put(_KIND, {_KEY: Document(asdict(back))})
    return back


def is_set(settings: Settings) -> bool:
    """Whether the settings name a model."""
    return settings.origins.get("recall.model", "default") != "default"


class ModelRuntime:
    """Opens models when they are first needed and keeps vectors up to date."""

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        store: OwnerStore,
        lexical: Callable[[], LexicalIndex],
        vault: Callable[[], StoreVault],
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._store = store
        self._lexical = lexical
        self._vault = vault
        self._lock = threading.RLock()
        self._semantic: SemanticIndex | None = None
        self._opened = ""
        self._outside: HostedServices | None = None
        self._worker: Worker | None = None
        self._plain: LocalIndexes | None = None

    @property
    def model(self) -> str:
        """The name of the local model in force."""
        return in_force(self._store, self._settings)

    @property
    def is_at_work(self) -> bool:
        """Whether a thread of this process embeds what is written."""
        return self._worker is not None

    def semantic(self) -> SemanticIndex | None:
        """The local model and its indexes; None where no model is in force."""
        from triskele.index.local import SemanticIndex

        with self._lock:
            model = self.model
            if self._semantic is not None and model != self._opened:
                # Switched meanwhile, perhaps by another process.
                self._semantic.close()
                self._semantic = None
            if self._semantic is None and model != NO_MODEL:
                cap = self._settings.index.tail_cap
                try:
                    self._semantic = SemanticIndex.open(self._folder, self._store, model=model, tail_cap=cap)
                except BadInput:
                    # The folder of the model may be gone: the lexical leg answers alone until another switch.
                    if is_set(self._settings):
                        raise
                self._opened = model
            return self._semantic

    def warm_up(self) -> None:
        """Load in parallel what the first query would wait for."""
        from concurrent.futures import ThreadPoolExecutor

        if (semantic := self.semantic()) is not None:
            loads = (
                lambda: semantic.embedder.encode_query("anything"),
                semantic.catalog.columns,
                semantic.mentions.layers,
            )
            with ThreadPoolExecutor(len(loads), "triskele-warm-up") as pool:
                for loaded in [pool.submit(load) for load in loads]:
                    loaded.result()

    def rival(self, name: str) -> SemanticIndex:
        """Another local model over the same store, beside the one in force; one of the hub is downloaded."""
        from triskele.index.local import SemanticIndex
        from triskele.models.local import local_embedder

        embedder = local_embedder(name, may_download=True)
        return SemanticIndex.of(embedder, self._folder, self._store, tail_cap=self._settings.index.tail_cap)

    def outside(self) -> HostedServices | None:
        """The models that the settings name besides the local one; None where they name none, the default."""
        settings = self._settings
        if not (settings.hosted.service or settings.rerank.service or settings.rerank.model or settings.llm.service):
            return None
        from triskele.recall.hosted.services import HostedServices

        with self._lock:
            if self._outside is None:
                self._outside = HostedServices.open(settings, self._folder, self._store, self.clearing)
            return self._outside

    @cached_property
    def clearing(self) -> EgressPolicy:
        """Which texts may leave this machine: it knows what quotes something private or secret."""
        from triskele.recall.hosted.egress_policy import EgressPolicy

        return EgressPolicy(self._store, self._vault())

    def hosts(self) -> dict[str, str]:
        """The hosts that texts may be sent to, by purpose."""
        outside = self.outside()
        return outside.hosts if outside is not None else {}

    def problems(self) -> tuple[str, ...]:
        """Why a model that the settings name cannot be used."""
        outside = self.outside()
        return outside.problems if outside is not None else ()

    def reviewer(self) -> CandidateReranker:
        """The cross-encoder that the settings name."""
        outside = self.outside()
        if outside is None or outside.reviewer is None:
            problem = next((each for each in self.problems() if each.startswith("[rerank]")), "")
            raise BadInput(problem or "no cross-encoder is set: name a folder in [rerank] model of your settings file")
        return outside.reviewer

    def always_reviews(self) -> bool:
        """Whether the settings ask for reranking of every answer, and name a cross-encoder."""
        outside = self.outside() if self._settings.rerank.always else None
        return outside is not None and outside.reviewer is not None

    def sources(
        self, query: Query, plan: Plan, *, local_only: bool = False, model: SemanticIndex | None = None
    ) -> Sources:
        """What recall reads and asks for a query, by another `model` if given; a hosted model encodes it if it may."""
        from triskele.recall.pipeline import Sources

        is_by_relevance = query.sort is Sort.RELEVANCE
        semantic = (model or self.semantic()) if plan.asks_meaning and is_by_relevance else None
        reranker = self.reviewer() if plan.rerank == CROSS and is_by_relevance else None
        outside = self.outside() if is_by_relevance and not local_only else None
        sources = Sources(
            self._store,
            self.indexes(semantic).corpus,
            self._lexical().analyzer,
            semantic.embedder if semantic is not None else None,
            reranker=reranker,
        )
        if outside is None:
            return sources
        sources = replace(sources, rewriter=outside.rewording, missing=outside.problems)
        if outside.hosted is None or semantic is None or "dense" not in plan.legs:
            return sources
        hosted, problem = outside.hosted.asked(query.text, query.scope)
        return replace(sources, hosted=hosted, missing=(*outside.problems, *((problem,) if problem else ())))

    def indexes(self, semantic: SemanticIndex | None) -> LocalIndexes:
        """The indexes of the store with the vectors of a model, or without any."""
        from triskele.index.local import LocalIndexes

        if semantic is not None:
            return LocalIndexes(
                self._store, self._lexical(), semantic.catalog, semantic.mentions, semantic.dense, semantic.tokens
            )
        if self._plain is None:
            from triskele.index.catalog import Catalog
            from triskele.index.mentions import MentionIndex

            self._plain = LocalIndexes(
                self._store, self._lexical(), Catalog(self._store, ""), MentionIndex(self._folder, self._store)
            )
        return self._plain

    def embed(self, *, limit: int | None, wait: bool, progress: Callable[[int], None] | None) -> int:
        """Embed the memories that wait, and link the names in those that were not read yet."""
        semantic = self.semantic()
        if semantic is None:
            return 0
        if limit is None and wait:
            self._store.jobs.retry(EMBED)
        if not self._jobs() and not len(semantic.tokens.missing(semantic.catalog.columns().slots)):
            return 0
        from triskele.index.entity_linking import read_names
        from triskele.index.worker import embed_waiting, restore_tokens

        done = embed_waiting(self._store, semantic, limit=limit, wait=wait, progress=progress)
        read_names(self._store, self._lexical(), limit=limit, wait=wait)
        return done + restore_tokens(self._store, semantic, limit=limit, wait=wait)

    def has_jobs(self) -> bool:
        """Whether anything waits that the model in force can work off."""
        return self.model != NO_MODEL and self._jobs() > 0

    def work_off(self, seconds: float) -> None:
        """Work off what waits for so long; other writers go first."""
        ends, left = time.monotonic() + seconds, -1
        while time.monotonic() < ends and left != (left := self._jobs()) > 0:
            self.embed(limit=_STEP, wait=False, progress=None)

    def _jobs(self) -> int:
        return self._store.jobs.count(EMBED) + self._store.jobs.count(NAMES)

    def embed_elsewhere(self, limit: int | None = None) -> int:
        """Embed open memories with the hosted model; returns how many."""
        outside = self.outside()
        return outside.hosted.embed(limit=limit) if outside is not None and outside.hosted is not None else 0

    def work_in_background(self) -> None:
        """Embed what waits, now and after every write, in a thread of this process."""
        from triskele.index.worker import Worker

        with self._lock:
            self._worker = self._worker or Worker(self._store, self._lexical(), self.semantic, self.embed_elsewhere)
        self._worker.wake()

    def wake(self) -> None:
        """Something was written."""
        if self._worker is not None:
            self._worker.wake()

    def take_back(self) -> None:
        """Delete the files with hosted vectors: the next query builds them from what the model may still read."""
        if self._outside is not None and self._outside.hosted is not None:
            self._outside.hosted.close()
        for path in self._folder.glob(f"dense-*-{HOSTED}*"):
            shutil.rmtree(path, ignore_errors=True)

    def rebuild(self) -> None:
        """Rebuild the files of vectors from what the store still holds."""
        from triskele.index.local import SemanticIndex

        if SemanticIndex.files(self._folder):
            if (semantic := self.semantic()) is not None:
                semantic.rebuild()
            else:
                SemanticIndex.remove_files(self._folder)

    def forget(self) -> None:
        """Reopen everything when next needed: the content of the store was replaced."""
        with self._lock:
            self._semantic = None

    def close(self) -> None:
        """Close files, threads and connections."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None
        if self._semantic is not None:
            self._semantic.close()
            self._semantic = None
        if self._outside is not None:
            self._outside.close()
            self._outside = None
