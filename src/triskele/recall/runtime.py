"""The models of one memory: the local one, those elsewhere that the settings name, and the work they do meanwhile."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from triskele.config import HOSTED, NO_MODEL, Settings
from triskele.errors import BadInput
from triskele.index.lexical import LexicalIndex
from triskele.recall import model_choice
from triskele.recall.plan import CROSS, Plan
from triskele.stores.protocol import Store

if TYPE_CHECKING:
    from triskele.index.semantic import SemanticIndex
    from triskele.index.worker import Worker
    from triskele.recall.hosted.egress_policy import EgressPolicy
    from triskele.recall.hosted.reranking import CandidateReranker
    from triskele.recall.hosted.services import HostedServices
    from triskele.recall.pipeline import Readers
    from triskele.stores.vault import StoreVault

# Numpy, a model's runtime and an HTTP client cost more than most commands do: each is imported when first needed.


class ModelRuntime:
    """Opens models when they are first needed and lets them read what was written."""

    def __init__(
        self, settings: Settings, folder: Path, store: Store, lexical: LexicalIndex, safe: Callable[[], StoreVault]
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._store = store
        self._lexical = lexical
        self._safe = safe
        self._lock = threading.RLock()
        self._meaning: SemanticIndex | None = None
        self._opened = ""
        self._outside: HostedServices | None = None
        self._worker: Worker | None = None

    @property
    def model(self) -> str:
        """The name of the local model in force."""
        return model_choice.in_force(self._store, self._settings)

    @property
    def is_at_work(self) -> bool:
        """Whether a thread of this process embeds what is written."""
        return self._worker is not None

    def meaning(self) -> SemanticIndex | None:
        """The local model and its indexes; None where there is none."""
        from triskele.index.semantic import SemanticIndex

        with self._lock:
            model = self.model
            if self._meaning is not None and model != self._opened:
                # Switched meanwhile, perhaps by another process.
                self._meaning.close()
                self._meaning = None
            if self._meaning is None and model != NO_MODEL:
                cap = self._settings.index.tail_cap
                try:
                    self._meaning = SemanticIndex.open(self._folder, self._store, model=model, tail_cap=cap)
                except BadInput:
                    # A folder that was switched to may be gone: words answer until somebody switches back.
                    if model_choice.is_set(self._settings):
                        raise
                self._opened = model
            return self._meaning

    def warm_up(self) -> None:
        """Load side by side what the first question would wait for."""
        from concurrent.futures import ThreadPoolExecutor

        if (meaning := self.meaning()) is not None:
            loads = (
                lambda: meaning.embedder.encode_query("anything"),
                meaning.catalog.columns,
                meaning.mentions.layers,
            )
            with ThreadPoolExecutor(len(loads), "triskele-warm-up") as pool:
                for loaded in [pool.submit(load) for load in loads]:
                    loaded.result()

    def rival(self, name: str) -> SemanticIndex:
        """Another local model over the same store, beside the one in force; one of the hub is fetched."""
        from triskele.index.semantic import SemanticIndex
        from triskele.models.embed.choosing import local_embedder

        embedder = local_embedder(name, may_download=True)
        return SemanticIndex.of(embedder, self._folder, self._store, tail_cap=self._settings.index.tail_cap)

    def outside(self) -> HostedServices | None:
        """The models that the settings name besides the local one; None where they name none, as they do at first."""
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
        """What tells which texts quote something private or secret."""
        from triskele.recall.hosted.egress_policy import EgressPolicy

        return EgressPolicy(self._store, self._safe())

    def hosts(self) -> dict[str, str]:
        """The machines that texts may be sent to, by what for."""
        outside = self.outside()
        return outside.hosts if outside is not None else {}

    def problems(self) -> tuple[str, ...]:
        """Why somebody whom the settings name cannot be asked."""
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
        """Whether the settings want every answer read again, and name somebody who can."""
        outside = self.outside() if self._settings.rerank.always else None
        return outside is not None and outside.reviewer is not None

    def readers(
        self,
        text: str,
        plan: Plan,
        *,
        is_by_relevance: bool,
        alone: bool = False,
        model: SemanticIndex | None = None,
    ) -> Readers:
        """What answers a question by a plan or by another `model`; a hosted model reads it first, if it may."""
        from triskele.recall.pipeline import Readers

        meaning = (model or self.meaning()) if plan.asks_meaning and is_by_relevance else None
        reviewer = self.reviewer() if plan.rerank == CROSS and is_by_relevance else None
        outside = self.outside() if is_by_relevance and not alone else None
        readers = Readers(self._store, self._lexical, meaning, reviewer=reviewer)
        if outside is None:
            return readers
        readers = replace(readers, rewording=outside.rewording, missing=outside.problems)
        if outside.hosted is None or meaning is None or "dense" not in plan.legs:
            return readers
        elsewhere, kept = outside.hosted.asked(text)
        return replace(readers, elsewhere=elsewhere, missing=(*outside.problems, *((kept,) if kept else ())))

    def embed(self, *, limit: int | None, wait: bool, progress: Callable[[int], None] | None) -> int:
        """Give vectors to memories that wait for them, and read the names in those that were not read yet."""
        from triskele.index.entity_linking import read_names
        from triskele.index.worker import embed_waiting, restore_tokens

        meaning = self.meaning()
        if meaning is None:
            return 0
        done = embed_waiting(self._store, meaning, limit=limit, wait=wait, progress=progress)
        read_names(self._store, self._lexical, limit=limit, wait=wait)
        return done + restore_tokens(self._store, meaning, limit=limit, wait=wait)

    def embed_elsewhere(self, limit: int | None = None) -> int:
        """Let the hosted model read open memories that it has not seen; returns how many."""
        outside = self.outside()
        return outside.hosted.embed(limit=limit) if outside is not None and outside.hosted is not None else 0

    def work_in_background(self) -> None:
        """Embed what waits, now and after every write, in a thread of this process."""
        from triskele.index.worker import Worker

        with self._lock:
            self._worker = self._worker or Worker(self._store, self._lexical, self.meaning, self.embed_elsewhere)
        self._worker.wake()

    def wake(self) -> None:
        """Something was written."""
        if self._worker is not None:
            self._worker.wake()

    def take_back(self) -> None:
        """Leave no file with what a hosted model said: the next question makes it anew from what it may still know."""
        if self._outside is not None and self._outside.hosted is not None:
            self._outside.hosted.close()
        for path in self._folder.glob(f"dense-*-{HOSTED}*"):
            shutil.rmtree(path, ignore_errors=True)

    def rebuild(self) -> None:
        """Write the files of the vectors anew with what the store still holds."""
        from triskele.index.semantic import SemanticIndex

        if SemanticIndex.files(self._folder):
            if (meaning := self.meaning()) is not None:
                meaning.rebuild()
            else:
                SemanticIndex.remove_files(self._folder)

    def forget(self) -> None:
        """Open everything anew when next needed: the store's content was replaced."""
        with self._lock:
            self._meaning = None

    def close(self) -> None:
        """Let go of files, threads and connections."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None
        if self._meaning is not None:
            self._meaning.close()
            self._meaning = None
        if self._outside is not None:
            self._outside.close()
            self._outside = None
