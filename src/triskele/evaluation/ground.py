"""The ground of a benchmark: the same windows behind every arm, and what each arm asks of them."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from triskele import config
from triskele.engine import Engine
from triskele.evaluation.arms import Arm
from triskele.evaluation.baseline import Found, FtsBaseline
from triskele.evaluation.windows import Window
from triskele.index.semantic import SemanticIndex
from triskele.models.embedders import Embedder, Encoding
from triskele.recall import reasons
from triskele.recall.fusion import Candidate
from triskele.recall.pipeline import Sources, query_terms, retrieve
from triskele.recall.plan import CROSS, Plan
from triskele.recall.supersession import Priors, resolve
from triskele.types import Add, Memory, Origin, Query, Sensitivity, Sort

_BATCH = 2000
GROUND_FORMAT = 2

Step = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Ranked:
    """Rows with their scores, best first, and what each leg gave to them."""

    rows: Found
    fused: Sequence[Candidate] = ()


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer that was ranked; how it is served, and how sure it is, is worked out when asked for."""

    ranked: Callable[[], Ranked]
    confidence: Callable[[], float] = lambda: 0.0


class Searcher(Protocol):
    """What an arm asks: rows by number, best first."""

    def search(self, text: str, scope: str | None, depth: int) -> Answered:
        """The best rows with their scores."""
        ...

    def bytes(self) -> int:
        """The size of everything that the answers need."""
        ...


class Ground:
    """The same windows behind every arm: FTS5 for the baseline, a store of its own for the product's legs."""

    def __init__(self, windows: Sequence[Window], questions: Sequence[str], folder: Path, step: Step) -> None:
        self._windows = windows
        self._questions = questions
        self._folder = folder
        self._step = step
        self._fts: FtsBaseline | None = None
        self._memory: StoredWindows | None = None

    @staticmethod
    @contextmanager
    def laid(
        windows: Sequence[Window], questions: Sequence[str] = (), step: Step = lambda _what, _done, _total: None
    ) -> Iterator[Ground]:
        """A ground in the cache, where the next run over the same windows finds it again."""
        digest = hashlib.sha256(repr(windows).encode("utf-8", "surrogatepass")).hexdigest()[:16]
        ground = Ground(windows, questions, cache_folder() / f"ground-{GROUND_FORMAT}-{digest}", step)
        try:
            yield ground
        finally:
            ground.close()

    def searcher(self, arm: Arm) -> Searcher:
        """What this arm asks; indexes are built once, when the first arm wants them."""
        if arm.plan is None:
            self._fts = self._fts or FtsBaseline(self._windows)
            return WordSearcher(self._fts)
        self._memory = self._memory or StoredWindows(self._windows, self._folder, self._step)
        if arm.plan.asks_meaning:
            self._memory.embed(self._step)
            self._recite()
        return PlanSearcher(self._memory, arm.plan, arm.sort)

    def _recite(self) -> None:
        meaning = self._memory.meaning() if self._memory else None
        if meaning is not None:
            for done, text in enumerate(self._questions, start=1):
                meaning.embedder.encode_query(text)
                self._step("encoding questions", done, len(self._questions))

    def close(self) -> None:
        """Let go of files and memory."""
        for opened in (self._fts, self._memory):
            if opened is not None:
                opened.close()


def cache_folder() -> Path:
    """Where stores of benchmarks are kept between runs: TRISKELE_BENCH_CACHE, or the user's cache."""
    import platformdirs

    return Path(os.environ.get("TRISKELE_BENCH_CACHE") or platformdirs.user_cache_dir("triskele", appauthor=False))


class StoredWindows:
    """Windows as memories in a store of their own, in their order; a scope is a project."""

    def __init__(self, windows: Sequence[Window], folder: Path, step: Step) -> None:
        # Nothing of the user's own settings may change what is measured, but for the cross-encoder that only they name.
        settings = replace(config.load({"TRISKELE_HOME": str(folder)}), rerank=config.load().rerank)
        self.engine = Engine(settings, folder)
        self._meaning: SemanticIndex | None = None
        self.weighs = len({window.importance for window in windows}) > 1
        if self.engine.census().versions != len(windows):
            self.engine.close()
            shutil.rmtree(folder, ignore_errors=True)
            self.engine = Engine(settings, folder)
            self._fill(windows, step)
        self.numbers = {row: number for number, (row, _) in enumerate(self.engine.store.versions())}

    def _fill(self, windows: Sequence[Window], step: Step) -> None:
        for start in range(0, len(windows), _BATCH):
            memories = [_drafted(window, self.engine) for window in windows[start : start + _BATCH]]
            self.engine.apply([Add(memory, verbatim=True) for memory in memories])
            step("indexing", start + len(memories), len(windows))
        self.engine.lexical.catch_up()

    def embed(self, step: Step) -> None:
        """Give vectors to what has none yet; an interrupted run goes on where it stopped."""
        total = self.engine.store.vectors.count_waiting()
        self.engine.embed(progress=lambda done: step("embedding", done, total))

    def meaning(self) -> SemanticIndex | None:
        """The model and its indexes, with the questions by heart."""
        opened = self.engine.meaning()
        if self._meaning is None and opened is not None:
            self._meaning = replace(opened, embedder=RecitedQuestions(opened.embedder))
        return self._meaning

    def bytes(self) -> int:
        """The size of the store and its indexes."""
        home = self.engine.settings.home
        return sum(file.stat().st_size for file in home.rglob("*") if file.is_file())

    def close(self) -> None:
        """Let go of the store."""
        self.engine.close()


class RecitedQuestions:
    """An embedder that has every question by heart, so that arms share the encodings and are timed without them."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._known: dict[str, Encoding] = {}
        self.fingerprint = embedder.fingerprint
        self.dimensions = embedder.dimensions
        self.token_dimensions = embedder.token_dimensions

    def encode_query(self, text: str) -> Encoding:
        """The encoding of a question, made once."""
        if text not in self._known:
            self._known[text] = self._embedder.encode_query(text)
        return self._known[text]

    def encode_documents(self, texts: Sequence[str]) -> list[Encoding]:
        """Encode texts to be found, in their order."""
        return self._embedder.encode_documents(texts)


@dataclass(frozen=True, slots=True)
class WordSearcher:
    """The baseline, which knows nothing but words."""

    words: FtsBaseline

    def search(self, text: str, scope: str | None, depth: int) -> Answered:
        """The best rows with their scores."""
        found = Ranked(self.words.search(text, scope, depth))
        return Answered(lambda: found)

    def bytes(self) -> int:
        """The size of rows and index together."""
        return self.words.bytes()


@dataclass(frozen=True, slots=True)
class PlanSearcher:
    """The product's ranking by a plan, over stored windows."""

    stored: StoredWindows
    plan: Plan
    sort: Sort

    def search(self, text: str, scope: str | None, depth: int) -> Answered:
        """Rank as recall does."""
        engine = self.stored.engine
        inside = engine.scope(project=scope) if scope is not None else engine.scope(all_projects=True)
        query = Query(text=text, scope=inside, depth=depth, sort=self.sort)
        meaning = self.stored.meaning() if self.plan.asks_meaning else None
        reranker = engine.mind.reviewer() if self.plan.rerank == CROSS else None
        analyzer, embedder = engine.lexical.analyzer, meaning.embedder if meaning is not None else None
        sources = Sources(engine.store, engine.mind.indexes(meaning).corpus, analyzer, embedder, reranker=reranker)
        corpus = sources.corpus(inside)
        terms = query_terms(text, corpus, analyzer)
        fused = retrieve(query, self.plan, terms, corpus, sources).fused
        coverage = reasons.Coverage(terms, analyzer)
        priors = Priors(self.plan.prior, self.plan.exact, coverage.is_whole)
        return Answered(
            lambda: self._ranked(fused, query, priors),
            lambda: reasons.confidence(resolve(fused, query, engine.store, priors=priors), coverage),
        )

    def _ranked(self, found: Sequence[Candidate], query: Query, priors: Priors) -> Ranked:
        """All that was found in the order that it is served in; nothing here has a successor."""
        pairs = [(each, each.score) for each in found]
        # Where all are equally important, importance moves nothing, and serving hundreds takes longer than ranking.
        counts = (priors.importance and self.stored.weighs) or priors.exact
        if query.sort is Sort.RELEVANCE and counts:
            deep = replace(query, limit=len(found))
            pairs = [(each.fused, each.score) for each in resolve(found, deep, self.stored.engine.store, priors=priors)]
        numbers = self.stored.numbers
        fused = [each._replace(row=numbers[each.row]) for each, _ in pairs]
        return Ranked([(each.row, score) for each, (_, score) in zip(fused, pairs, strict=True)], fused)

    def bytes(self) -> int:
        """The size of the store and its indexes."""
        return self.stored.bytes()


def _drafted(window: Window, engine: Engine) -> Memory:
    draft = engine.draft(
        window.text,
        project=window.scope or "",
        importance=window.importance,
        origin=Origin.IMPORT,
        # A benchmark measures ranking, whatever its texts hold.
        sensitivity=Sensitivity.OPEN,
        session=window.session,
        created_at=window.created,
    )
    return replace(draft, position=window.position)
