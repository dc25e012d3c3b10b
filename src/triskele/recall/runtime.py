"""The models of one store: the local one, those that the settings name besides, and their background work."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triskele.base import timestamps
from triskele.config import BUNDLED, DATABASE, HOSTED, NO_MODEL, Settings, source_of
from triskele.errors import BadInput, Conflict, NotFound, Unavailable
from triskele.recall.plan import CROSS, DEFAULT, GATED, Plan
from triskele.stores.derived import EMBED, MODEL_IN_FORCE
from triskele.stores.protocols import Document, OwnerStore
from triskele.types import Query, Scope, Sort

if TYPE_CHECKING:
    from triskele.index.corpus import Corpus
    from triskele.index.database import DatabaseIndexes
    from triskele.index.lexical import LexicalIndex
    from triskele.index.local import LocalIndexes, SemanticIndex
    from triskele.index.worker import Worker
    from triskele.recall.hosted.egress_policy import EgressPolicy
    from triskele.recall.hosted.services import CandidateReranker, HostedServices
    from triskele.recall.pipeline import Sources
    from triskele.recall.second_stage import SecondStage
    from triskele.stores.vault import StoreVault

# Numpy, the model runtime and an HTTP client take longer to import than most commands: each is imported when needed.

_KEY = "now"
# So few are embedded before the clock is looked at again.
_STEP = 16
_UPDATING = "an update brought another model: until it has read {}, answers use the vectors of the one before"


@dataclass(frozen=True, slots=True, kw_only=True)
class Switched:
    """A switch of models with its evidence; a rollback returns to `before`."""

    name: str
    before: str
    at: str
    evidence: dict[str, Any]


def switched(store: OwnerStore) -> Switched | None:
    """The last switch of models; None if there was none."""
    found = store.documents.all(MODEL_IN_FORCE).get(_KEY)
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
    if not store.documents.swap(MODEL_IN_FORCE, _KEY, store.documents.all(MODEL_IN_FORCE).get(_KEY), asdict(change)):
        raise Conflict("the model was switched meanwhile: check with `triskele models list`")
    return change


def roll_back(store: OwnerStore, earlier: str = "") -> Switched:
    """Return to the model before the last switch, or to `earlier` if there was none; its vectors are still kept."""
    found = switched(store)
    if found is None and not earlier:
        raise NotFound("no model was switched: there is nothing to return to")
    name, before = (found.before, found.name) if found else (earlier, BUNDLED)
    back = Switched(name=name, before=before, at=timestamps.to_text(timestamps.now()), evidence={})
    store.documents.put(MODEL_IN_FORCE, {_KEY: Document(asdict(back))})
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
        self._earlier: SemanticIndex | None = None
        self._opened = ""
        self._services: HostedServices | None = None
        self._worker: Worker | None = None
        self._plain: LocalIndexes | None = None
        self._databases: dict[str, DatabaseIndexes] = {}
        self.watch: Callable[[Sources], Sources] | None = None
        """what measures a recall wraps what it reads"""

    @property
    def model(self) -> str:
        """The name of the local model in force."""
        return in_force(self._store, self._settings)

    @property
    def is_at_work(self) -> bool:
        """Whether a thread of this process embeds what is written."""
        return self._worker is not None

    def moment(self, text: str = "") -> AbstractContextManager[None]:
        """One snapshot for plan, model and ranking where nothing in a recall writes; otherwise each reads as of now.

        A model that is open, and can, begins to encode the text before: most probably it is still the one in force.
        """
        settings, semantic = self._settings.store, self._semantic
        begin = getattr(semantic.embedder, "begin_query", None) if semantic is not None else None
        if begin is not None and self._earlier is None and isinstance(text, str) and text:
            begin(text)
        is_open = self._worker is not None and semantic is not None
        is_reading = is_open and settings.corpus != DATABASE and self.services() is None
        return self._store.snapshot() if is_reading else nullcontext()

    def semantic(self) -> SemanticIndex | None:
        """The local model and its indexes; None if no model is in force."""
        return self._opened_as(self.model)

    def _opened_as(self, model: str) -> SemanticIndex | None:
        from triskele.index.local import SemanticIndex
        from triskele.models.bundled import place_of

        with self._lock:
            if self._semantic is not None and model != self._opened:
                # Switched meanwhile, perhaps by another process.
                self._close_models()
            if self._semantic is None and model != NO_MODEL:
                cap, place = self._settings.index.tail_cap, place_of(model, self._settings.home)
                try:
                    self._semantic = SemanticIndex.open(self._folder, self._store, model=place, tail_cap=cap)
                    if self._semantic is not None and place == BUNDLED:
                        self._earlier = self._fitting(self._semantic)
                except BadInput as error:
                    # The folder of the model may be missing: only the lexical leg works until another switch.
                    if is_set(self._settings):
                        raise BadInput(f"{error}{source_of(self._settings.origins, 'recall.model')}") from error
                self._opened = model
            return self._semantic

    def _fitting(self, semantic: SemanticIndex) -> SemanticIndex | None:
        """The vectors of earlier weights to answer from, if an update put weights in force that have read less."""
        from triskele.models.bundled import BundledEmbedder, FittingEmbedder, earlier_weights

        # Not by the queue: a store that cannot be written now has none for this model.
        seen, model = self._store.models.seen(), semantic.embedder
        ahead = {name: count for name, count in seen.items() if count > seen.get(model.fingerprint, 0)}
        earlier, folder = next(earlier_weights(self._settings.home, ahead), ("", None))
        if not earlier:
            return None
        before = FittingEmbedder(model, earlier) if folder is None else BundledEmbedder(folder)
        return type(semantic).of(before, self._folder, self._store, tail_cap=self._settings.index.tail_cap)

    def _readable(self, semantic: SemanticIndex | None) -> SemanticIndex | None:
        """The model in force, or the vectors from before an update until it has read everything that it can."""
        with self._lock:
            if self._earlier is None or semantic is not self._semantic or semantic is None:
                return semantic
            if not self._store.vectors.count_waiting():
                # A process of the earlier version may have taken the queue: an empty one alone says nothing.
                lacking = self._store.models.count_lacking(semantic.embedder.fingerprint)
                if lacking <= len(self._store.jobs.given_up(EMBED)):
                    self._earlier.close()
                    self._earlier = None
            return self._earlier or semantic

    def warm_up(self, *others: Callable[[], object]) -> None:
        """Load in parallel what the first query would wait for, and `others`."""
        from concurrent.futures import ThreadPoolExecutor

        loads: list[Callable[[], object]] = [partial(import_module, "triskele.recall.pipeline"), *others]
        if (semantic := self.semantic()) is not None:
            # First the model: most of its loading leaves the interpreter to the others.
            model = partial(semantic.embedder.encode_query, "anything")
            loads = [model, semantic.catalog.view, semantic.mentions.view, *loads]
        with ThreadPoolExecutor(len(loads), "triskele-warm-up") as pool:
            for loaded in [pool.submit(load) for load in loads]:
                loaded.result()

    def rival(self, name: str) -> SemanticIndex:
        """Another local model over the same store, next to the one in use; a model of the hub is downloaded."""
        from triskele.index.local import SemanticIndex
        from triskele.models.bundled import place_of
        from triskele.models.local import local_embedder

        embedder = local_embedder(place_of(name, self._settings.home), may_download=True)
        return SemanticIndex.of(embedder, self._folder, self._store, tail_cap=self._settings.index.tail_cap)

    def services(self) -> HostedServices | None:
        """The models that the settings name besides the local one; None if they name none, the default."""
        settings = self._settings
        if not (settings.hosted.service or settings.rerank.service or settings.rerank.model or settings.llm.service):
            return None
        from triskele.recall.hosted.services import HostedServices

        with self._lock:
            if self._services is None:
                self._services = HostedServices.open(settings, self._folder, self._store, self.egress_policy)
            return self._services

    @cached_property
    def egress_policy(self) -> EgressPolicy:
        """Decides which texts may leave this machine: none that quotes something private or secret."""
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
        asking = {"curation.llm": self._settings.curation.llm, "llm.expand": self._settings.llm.expand}
        idle = [] if self._settings.llm.service else [name for name, is_set in asking.items() if is_set]
        remedy = "no language model is named (llm.service: openai, anthropic, compatible or command)"
        return (*found, *(f"{name} has no effect: {remedy}" for name in idle))

    def reranker(self) -> CandidateReranker:
        """The cross-encoder that the settings name."""
        services = self.services()
        if services is None or services.reranker is None:
            problem = next((each for each in self.problems() if each.startswith("[rerank]")), "")
            raise BadInput(problem or "no cross-encoder is set: write `bundled` or a folder into [rerank] model")
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
        model: SemanticIndex | None = None,
        embed_first: int = 0,
    ) -> Sources:
        """The sources of recall for a query, with another `model` if given; a hosted model encodes it if allowed."""
        from triskele.recall.pipeline import WITHOUT_MODEL, Sources

        is_by_relevance = query.sort is Sort.RELEVANCE
        name = self.model if model is None else ""
        uses_models = is_by_relevance and name != NO_MODEL
        asks_meaning = uses_models and plan.asks_meaning
        semantic = (model or self._opened_as(name)) if asks_meaning else None
        if embed_first and semantic is not None and self._worker is None:
            # A failure does not prevent the answer.
            with suppress(Unavailable, OSError):
                self._embed(semantic, limit=embed_first, wait=False)
        services = self.services() if is_by_relevance and not local_only else None
        readable = self._readable(semantic) if self._earlier is not None else semantic
        sources = Sources(
            self._store,
            self._corpus(readable, is_in_force=model is None),
            self._lexical().analyzer,
            readable.embedder if readable is not None else None,
            reranker=self.reranker() if plan.rerank == CROSS and uses_models else None,
            second_stage=_second_stage(plan) if asks_meaning else None,
            missing=(WITHOUT_MODEL,) if asks_meaning and semantic is None else (),
            half_life_days=self._settings.recall.half_life_days,
        )
        if readable is not None and semantic is not None and readable is not semantic:
            seen = self._store.models.seen()
            ahead = seen.get(readable.embedder.fingerprint, 0) - seen.get(semantic.embedder.fingerprint, 0)
            # Counted by the queue, which is cheap; a program of the earlier version may have taken it.
            left = max(self._store.vectors.count_waiting(), ahead)
            sources = replace(
                sources,
                waiting=max(left - ahead, 0),
                missing=(_UPDATING.format(f"{left:,} more text{'s' * (left != 1)}"),),
            )
        if self.watch is not None:
            sources = self.watch(sources)
        if services is None:
            return sources
        missing = (*sources.missing, *services.problems)
        if services.hosted is None or semantic is None or "dense" not in plan.legs:
            return replace(sources, rewriter=services.rewriter, missing=missing)
        hosted, problem = services.hosted.asked(query.text, query.scope)
        missing = (*missing, *((problem,) if problem else ()))
        return replace(sources, rewriter=services.rewriter, hosted=hosted, missing=missing)

    def _corpus(self, semantic: SemanticIndex | None, *, is_in_force: bool) -> Callable[[Scope], Corpus]:
        """What opens the corpus of a scope; another model than the one in force is ranked on this machine."""
        database = None
        # A database that cannot be written now is read as it is, or the local corpus serves.
        with suppress(Unavailable):
            if is_in_force and (database := self.database(semantic)) is not None:
                database.catch_up()
        return database.corpus if database is not None else self.indexes(semantic).corpus

    def database(self, semantic: SemanticIndex | None) -> DatabaseIndexes | None:
        """The words and vectors inside the database, if the settings say so and the database can rank."""
        rows = self._store.corpus
        if self._settings.store.corpus != DATABASE or rows is None or rows.problem:
            return None
        fingerprint = semantic.embedder.fingerprint if semantic is not None else ""
        with self._lock:
            if fingerprint not in self._databases:
                from triskele.index.database import DatabaseIndexes

                mentions, analyzer = self.indexes(semantic).mentions, self._lexical().analyzer
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
            from triskele.models.bundled import is_known

            # A program of an earlier version or with another model may have taken the queue since it was opened.
            self._store.vectors.queue_for(semantic.embedder.fingerprint, taking=is_known)
        return self._embed(semantic, limit=limit, wait=wait, progress=progress)

    def _embed(
        self,
        semantic: SemanticIndex,
        *,
        limit: int | None,
        wait: bool,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        heads = self._store.heads(semantic.catalog.fingerprint)
        is_waiting = heads.unembedded or heads.unread
        if not is_waiting and not len(semantic.tokens.missing(semantic.catalog.view(heads).slots, heads)):
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
        heads = self._store.heads()
        return heads.unembedded + heads.unread

    def embed_hosted(self, limit: int | None = None) -> int:
        """Embed open memories with the hosted model; returns how many."""
        services = self.services()
        return services.hosted.embed(limit=limit) if services is not None and services.hosted is not None else 0

    def work_in_background(self) -> None:
        """Embed what waits, now and after every write, in a thread of this process."""
        from triskele.index.worker import Worker

        with self._lock:
            self._worker = self._worker or Worker(self._store, self._lexical(), self.semantic, self.embed_hosted)
        self._worker.wake()

    def wake(self) -> None:
        """Something was written."""
        if self._settings.store.corpus == DATABASE:
            # What cannot be written now is written by the next recall.
            with suppress(Unavailable):
                if (database := self.database(self._semantic)) is not None:
                    database.catch_up()
        if self._worker is not None:
            self._worker.wake()

    def take_back(self) -> None:
        """Delete the files with hosted vectors: the next query builds them from what the model may still read."""
        if self._services is not None and self._services.hosted is not None:
            self._services.hosted.close()
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
            self._semantic = self._earlier = None

    def _close_models(self) -> None:
        for opened in (self._semantic, self._earlier):
            if opened is not None:
                opened.close()
        self._semantic = self._earlier = None

    def close(self) -> None:
        """Close files, threads and connections."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None
        self._close_models()
        if self._services is not None:
            self._services.close()
            self._services = None


def _second_stage(plan: Plan) -> SecondStage | None:
    """The bundled cross-encoder, if the plan says so."""
    if plan.rerank != GATED:
        return None
    from triskele.models.bundled import bundled_cross_encoder
    from triskele.recall.second_stage import SecondStage

    return SecondStage(bundled_cross_encoder(), plan.patience_s)
