"""Opens the local and hosted models of a store, and what a recall reads of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from triskele.config import BUNDLED, DATABASE, NO_MODEL, Settings, source_of
from triskele.errors import BadInput, Unavailable
from triskele.index.catalog import Catalog
from triskele.index.lexical import LexicalIndex
from triskele.index.local import LocalIndexes, ModelIndexes
from triskele.index.mentions import MentionIndex
from triskele.index.name_linking import read_names
from triskele.index.worker import Worker, embed_beside, embed_waiting, restore_tokens, take_queue
from triskele.models.bundled import bundled, bundled_cross_encoder, keep_weights, place_of, release
from triskele.models.local import local_embedder
from triskele.recall.model_switch import chosen, earlier_weights, finish_update, is_set
from triskele.recall.plan import CROSS, DEFAULT, GATED, Plan
from triskele.recall.question import WITHOUT_MODEL, CandidateReranker, Sources
from triskele.store.owner import OwnerStore
from triskele.store.values import EMBED, MODEL_IN_FORCE, Heads
from triskele.text.analysis import Analyzer
from triskele.types import Query, Scope, Sort

if TYPE_CHECKING:
    from triskele.index.corpus import Corpus
    from triskele.recall.hosted.egress_policy import EgressPolicy
    from triskele.recall.hosted.services import HostedServices
    from triskele.server.corpus import DatabaseIndexes
    from triskele.store.vault import StoreVault

_NO_RERANKER = "no cross-encoder is set: `triskele config set rerank.model bundled` sets the bundled one"


class Models:
    """Opens models when they are first needed and keeps vectors up to date."""

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        store: OwnerStore,
        analyzer: Analyzer,
        vault: Callable[[], StoreVault],
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._store = store
        self.lexical = LexicalIndex(folder, store, analyzer)
        self._vault = vault
        self._lock = threading.RLock()
        self._semantic: ModelIndexes | None = None
        # What an update brought, and the texts that it refuses.
        self._successor: ModelIndexes | None = None
        self._refused: set[str] = set()
        self._opened = ""
        self._earlier_weights = cache(partial(earlier_weights, store, settings.home))
        self._services: HostedServices | None = None
        self.has_worker = False
        """whether a thread of this process embeds what is written"""
        self._plain: LocalIndexes | None = None
        self._databases: dict[str, DatabaseIndexes] = {}

    @property
    def model(self) -> str:
        """The name of the local model in force: a fingerprint if it is that of kept weights."""
        # Most stores have never switched.
        has_switched = bool(self._store.documents.all(MODEL_IN_FORCE))
        name, weights = chosen(self._store, self._settings) if has_switched else (self._settings.recall.model, None)
        return (self._earlier_weights(weights) if name == BUNDLED else "") or name

    def snapshot(self) -> AbstractContextManager[None]:
        """One snapshot for plan, model and ranking where nothing in a recall writes; otherwise each reads as of now."""
        is_open = self.has_worker and self._semantic is not None
        is_reading = is_open and self._settings.store.corpus != DATABASE and self.services() is None
        return self._store.snapshot() if is_reading else nullcontext()

    def semantic(self) -> ModelIndexes | None:
        """The local model and its indexes; None if no model is in force."""
        return self._opened_as(self.model)

    def _opened_as(self, model: str) -> ModelIndexes | None:
        with self._lock:
            if self._semantic is not None and model != self._opened:
                # Switched meanwhile, perhaps by another process.
                self._close_models()
            if self._semantic is None and model != NO_MODEL:
                source = place_of(model, self._settings.home)
                try:
                    self._semantic = ModelIndexes.open(self._folder, self._store, model=source)
                    if self._semantic is not None and self._is_replaced(model):
                        self._successor = self.candidate_model(BUNDLED)
                except BadInput as error:
                    # The folder of the model may be missing: only the lexical leg works until another switch.
                    if is_set(self._settings):
                        raise BadInput(f"{error}{source_of(self._settings.origins, 'recall.model')}") from error
                self._opened = model
            return self._semantic

    def _is_replaced(self, model: str) -> bool:
        """Whether kept weights answer only until an update is over, and are not those of a later version."""
        is_update = model != BUNDLED and chosen(self._store, self._settings)[0] == BUNDLED
        return is_update and release(model) <= release(bundled().fingerprint)

    def update(self) -> tuple[str, int] | None:
        """The weights of an update that has begun, by their fingerprint, and how many texts they have not read."""
        successor = self._successor if self.semantic() is not None else None
        if successor is None:
            return None
        fingerprint = successor.embedder.fingerprint
        return fingerprint, self._store.models.count_lacking(fingerprint)

    def advance_update(
        self, limit: int | None = None, *, wait: bool = True, progress: Callable[[int], None] | None = None
    ) -> int | None:
        """Let the weights of an update read what they lack, and put them in force once that is everything.

        Returns how many texts they read; None without an update.
        """
        with self._lock:
            successor, earlier = self._successor, self._opened
        if successor is None:
            return None
        done = embed_beside(self._store, successor, self._refused, limit=limit, wait=wait, progress=progress)
        fingerprint = successor.embedder.fingerprint
        is_end = limit is None or done < limit
        if is_end and self._store.models.count_lacking(fingerprint) <= len(self._refused):
            # Programs of the earlier version go on with them.
            with suppress(OSError):
                keep_weights(self._settings.home)
            finish_update(self._store, earlier)
            self.semantic()
        return done

    def warm_up(self) -> None:
        """Load the model and, in parallel, what a query reads with it."""
        from concurrent.futures import ThreadPoolExecutor

        if (semantic := self.semantic()) is None:
            return
        # First the model: most of its loading leaves the interpreter to the others.
        model = partial(semantic.embedder.encode_query, "anything")
        loads: list[Callable[[], object]] = [model, semantic.catalog.view, semantic.mentions.view]
        with ThreadPoolExecutor(len(loads), "triskele-warm-up") as pool:
            for loaded in [pool.submit(load) for load in loads]:
                loaded.result()

    def candidate_model(self, name: str) -> ModelIndexes:
        """Another local model over the same store, next to the one in use; a model of the hub is downloaded."""
        embedder = local_embedder(place_of(name, self._settings.home), may_download=True)
        return ModelIndexes.of(embedder, self._folder, self._store)

    def services(self) -> HostedServices | None:
        """The models that the settings name besides the local one; None if they name none, the default."""
        settings = self._settings
        if not (settings.hosted.service or settings.rerank.service or settings.rerank.model or settings.llm.service):
            return None
        # An HTTP client, which most stores never need.
        from triskele.recall.hosted.services import HostedServices

        with self._lock:
            if self._services is None:
                self._services = HostedServices.open(settings, self._folder, self._store, self.egress_policy)
            return self._services

    @cached_property
    def egress_policy(self) -> EgressPolicy:
        """Decides which texts may leave this machine: none that quotes something private or secret."""
        # The rules of secrets, which a prompt does not need.
        from triskele.recall.hosted.egress_policy import EgressPolicy

        return EgressPolicy(self._store, self._vault())

    def hosts(self) -> dict[str, str]:
        """The hosts that texts may be sent to, by purpose."""
        services = self.services()
        return services.hosts if services is not None else {}

    def problems(self) -> tuple[str, ...]:
        """Why a model that the settings name cannot be used."""
        services = self.services()
        found = services.problems if services is not None else ()
        asking = {"curation.llm_calls": self._settings.curation.llm_calls, "llm.expand": self._settings.llm.expand}
        idle = [] if self._settings.llm.service else [name for name, is_set in asking.items() if is_set]
        remedy = "no language model is named (llm.service: openai, anthropic, compatible or command)"
        return (*found, *(f"{name} has no effect: {remedy}" for name in idle))

    def reranker(self) -> CandidateReranker:
        """The cross-encoder that the settings name."""
        services = self.services()
        if services is None or services.reranker is None:
            problem = next((each for each in self.problems() if each.startswith("[rerank]")), "")
            raise BadInput(problem or _NO_RERANKER)
        return services.reranker

    def usual_rerank(self) -> str:
        """How answers are reranked unless asked otherwise: by the cross-encoder that the settings name for `always`."""
        settings = self._settings.rerank
        if not settings.always:
            return DEFAULT
        if settings.model == BUNDLED and not settings.service:
            return GATED
        services = self.services()
        return CROSS if services is not None and services.reranker is not None else DEFAULT

    def sources(
        self,
        query: Query,
        plan: Plan,
        *,
        local_only: bool = False,
        model: ModelIndexes | None = None,
        embed_first: int = 0,
    ) -> Sources:
        """The sources of recall for a query, with another `model` if given; a hosted model encodes it if allowed."""
        is_by_relevance = query.sort is Sort.RELEVANCE
        name = self.model if model is None else ""
        uses_models = is_by_relevance and name != NO_MODEL
        needs_model = uses_models and plan.needs_model
        semantic = (model or self._opened_as(name)) if needs_model else None
        if embed_first and semantic is not None and not self.has_worker:
            # A failure does not prevent the answer.
            with suppress(Unavailable, OSError):
                self._embed(semantic, limit=embed_first, wait=False)
        services = self.services() if is_by_relevance and not local_only else None
        sources = Sources(
            self._store,
            self._corpus(semantic, is_in_force=model is None),
            self.lexical.analyzer,
            semantic.embedder if semantic is not None else None,
            cross_encoder=self.reranker() if plan.rerank == CROSS and uses_models else None,
            scorer=bundled_cross_encoder() if needs_model and plan.rerank == GATED else None,
            missing=(WITHOUT_MODEL,) if needs_model and semantic is None else (),
            half_life_days=self._settings.recall.half_life_days,
        )
        if services is None:
            return sources
        missing = (*sources.missing, *services.problems)
        if services.hosted is None or semantic is None or "dense" not in plan.legs:
            return replace(sources, rewriter=services.rewriter, missing=missing)
        hosted, problem = services.hosted.nearness(query.text, query.scope)
        missing = (*missing, *((problem,) if problem else ()))
        return replace(sources, rewriter=services.rewriter, hosted=hosted, missing=missing)

    def open_sources(self) -> Sources:
        """The sources of what is open now; loads no model."""
        return Sources(self._store, self._corpus(self._semantic, is_in_force=True), self.lexical.analyzer)

    def _corpus(self, semantic: ModelIndexes | None, *, is_in_force: bool) -> Callable[[Scope], Corpus]:
        """What opens the corpus of a scope; another model than the one in force is ranked on this machine."""
        database = None
        # A database that cannot be written now is read as it is, or the local corpus serves.
        with suppress(Unavailable):
            if is_in_force and (database := self.database(semantic)) is not None:
                database.catch_up()
        return database.open_corpus if database is not None else self.indexes(semantic).open_corpus

    def database(self, semantic: ModelIndexes | None) -> DatabaseIndexes | None:
        """The words and vectors inside the database, if the settings say so and the database can rank."""
        rows = self._store.corpus
        if self._settings.store.corpus != DATABASE or rows is None or rows.problem:
            return None
        fingerprint = semantic.embedder.fingerprint if semantic is not None else ""
        with self._lock:
            if fingerprint not in self._databases:
                from triskele.server.corpus import DatabaseIndexes

                mentions, analyzer = self.indexes(semantic).mentions, self.lexical.analyzer
                made = DatabaseIndexes(self._store, rows, analyzer, mentions, {})
                if semantic is not None:
                    model = semantic.embedder
                    made = replace(made, fingerprint=fingerprint, dimensions=model.dimensions)
                    made = replace(made, token_dimensions=model.token_dimensions)
                made.prepare()
                self._databases[fingerprint] = made
            return self._databases[fingerprint]

    def corpus_notes(self) -> tuple[str, ...]:
        """Problems and warnings if the settings choose the corpus inside the database."""
        rows = self._store.corpus
        if self._settings.store.corpus != DATABASE or rows is None:
            return ()
        return (f"{rows.problem}: the local corpus is used",) if rows.problem else (rows.warning,) * bool(rows.warning)

    def open_indexes(self) -> LocalIndexes:
        """The indexes of the model if it is open, else those that need none."""
        return self.indexes(self._semantic)

    def indexes(self, semantic: ModelIndexes | None) -> LocalIndexes:
        """The indexes of the store with the vectors of a model, or without any."""
        if semantic is not None:
            return LocalIndexes(
                self._store, self.lexical, semantic.catalog, semantic.mentions, semantic.dense, semantic.tokens
            )
        if self._plain is None:
            self._plain = LocalIndexes(
                self._store, self.lexical, Catalog(self._store, ""), MentionIndex(self._folder, self._store)
            )
        return self._plain

    def embed(self, *, limit: int | None, wait: bool, progress: Callable[[int], None] | None) -> int:
        """Embed the memories that wait, and link the names in those that were not read yet."""
        semantic = self.semantic()
        if semantic is None:
            return 0
        if limit is None and wait:
            self._store.jobs.retry(EMBED)
            # A program of an earlier version or with another model may have taken the queue since it was opened.
            take_queue(self._store, semantic)
        return self._embed(semantic, limit=limit, wait=wait, progress=progress)

    def _embed(
        self,
        semantic: ModelIndexes,
        *,
        limit: int | None,
        wait: bool,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        heads = self._store.heads(semantic.catalog.fingerprint)
        if not (heads.unembedded or heads.unread or self._has_lost_tokens(semantic, heads)):
            return 0
        done = embed_waiting(self._store, semantic, limit=limit, wait=wait, progress=progress)
        read_names(self._store, self.lexical, limit=limit, wait=wait)
        return done + restore_tokens(self._store, semantic, limit=limit, wait=wait)

    @staticmethod
    def _has_lost_tokens(semantic: ModelIndexes, heads: Heads) -> bool:
        return len(semantic.tokens.missing(semantic.catalog.view(heads).slots, heads)) > 0

    def is_unfinished(self) -> bool:
        """Whether an update waits for its end, or token vectors are lost."""
        if self._successor is not None:
            return True
        # As after a restore: a backup has no token vectors.
        semantic = self._semantic
        return semantic is not None and self._has_lost_tokens(semantic, self._store.heads(semantic.catalog.fingerprint))

    def open_worker(self) -> Worker:
        """A thread that embeds what is written."""
        self.has_worker = True
        return Worker(self._store, self.lexical, self.semantic, self.embed_hosted, self.advance_update)

    def index_writes(self) -> None:
        """Write what the corpus inside the database lacks; the next recall writes what cannot be written now."""
        with suppress(Unavailable):
            if (database := self.database(self._semantic)) is not None:
                database.catch_up()

    def embed_hosted(self, limit: int | None = None) -> int:
        """Embed open memories with the hosted model; returns how many."""
        services = self.services()
        return services.hosted.embed(limit=limit) if services is not None and services.hosted is not None else 0

    def close_hosted(self) -> None:
        """Close the files with hosted vectors."""
        if self._services is not None and self._services.hosted is not None:
            self._services.hosted.close()

    def rebuild(self) -> None:
        """Rebuild the files of vectors from what the store still holds."""
        if ModelIndexes.files(self._folder):
            if (semantic := self.semantic()) is not None:
                semantic.rebuild()
            else:
                ModelIndexes.remove_files(self._folder)

    def forget(self) -> None:
        """Reopen everything when next needed: the content of the store was replaced."""
        with self._lock:
            self._semantic = self._successor = None
            self._earlier_weights.cache_clear()

    def _close_models(self) -> None:
        for opened in (self._semantic, self._successor):
            if opened is not None:
                opened.close()
        self._semantic = self._successor = None
        self._refused = set()

    def close(self) -> None:
        """Close files and connections."""
        self._close_models()
        if self._services is not None:
            self._services.close()
            self._services = None
        self.lexical.close()
