"""The harness: one store behind every arm.

`Harness.search` is the only place where the benchmark calls recall, and it calls nothing but `LocalEngine.ask`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import apsw

from triskele import config
from triskele.bench import measure
from triskele.bench.arms import Arm
from triskele.bench.datasets import BenchQuery, Qrels, Window
from triskele.bench.measure import Measured, Progress, RankedDocument, quiet
from triskele.engine.local import LocalEngine
from triskele.types import SPOKEN, Add, Memory, Origin, Sensitivity

if TYPE_CHECKING:
    from triskele.index.local import ModelIndexes
    from triskele.models.embedder import Embedder

ALL = 2**31
_TABLES = """
CREATE TABLE memories (
    id INTEGER PRIMARY KEY, content TEXT NOT NULL, category TEXT NOT NULL DEFAULT '', tags TEXT NOT NULL DEFAULT '',
    expanded_keywords TEXT NOT NULL DEFAULT '', importance REAL NOT NULL, scope TEXT NOT NULL
);
CREATE VIRTUAL TABLE memories_fts USING fts5(
    content, category, tags, expanded_keywords, content='memories', content_rowid='id', tokenize='unicode61'
);
"""
_MATCH = """
SELECT memories.id, -bm25(memories_fts) * 0.7 + memories.importance * 0.3 AS blend
FROM memories_fts JOIN memories ON memories.id = memories_fts.rowid
WHERE memories_fts MATCH ? AND {scope} ORDER BY blend DESC, memories.id LIMIT ?
"""
_LIKE = """
SELECT id, importance FROM memories
WHERE (content LIKE ? OR tags LIKE ?) AND {scope} ORDER BY importance DESC, id LIMIT ?
"""

Rows = list[tuple[int, float]]
RUN_DEPTH = 100
# As deep as recall@30 needs; deeper lists would make recall rescore more candidates than it does for a user.
OWN_DEPTH = 30
FORMAT = 5
_BATCH = 2000
_PROGRESS_EVERY = 50
_IDS = "ids.txt"
_DATABASE = {".db", ".db-wal", ".db-shm"}


@dataclass(frozen=True, slots=True)
class RankedList:
    """Documents retrieved for a query, best first, with the first's confidence."""

    documents: Sequence[RankedDocument]
    confidence: float = 0.0


class PrecomputedQueries:
    """An embedder that keeps the encoding of every query."""

    def __init__(self, embedder: Embedder) -> None:
        self.fingerprint = embedder.fingerprint
        self.dimensions = embedder.dimensions
        self.token_dimensions = embedder.token_dimensions
        self.encode_query = cache(embedder.encode_query)
        self.encode_documents = embedder.encode_documents


class FtsBaseline:
    """FTS5 with its default tokenizer in memory: every arm's reference.

    First all words are required, each quoted; if no row has all of them, any word matches. A query that FTS5 refuses
    is searched as a substring. Score: -bm25 * 0.7 + importance * 0.3.
    """

    def __init__(self, windows: Iterable[Window]) -> None:
        self._connection = apsw.Connection(":memory:")
        self._connection.execute(_TABLES)
        rows = [(row, w.text, w.importance, w.scope or "") for row, w in enumerate(windows)]
        with self._connection:
            self._connection.executemany("INSERT INTO memories (id, content, importance, scope) VALUES (?,?,?,?)", rows)
            self._connection.execute("INSERT INTO memories_fts (memories_fts) VALUES ('rebuild')")

    def search(self, text: str, scope: str | None, limit: int) -> Rows:
        """The best rows with their scores."""
        words = [word.replace('"', "") for word in text.split()]
        try:
            for operator in (" AND ", " OR "):
                query = operator.join(f'"{word}"' for word in words)
                rows = self._rows(_MATCH, [query], scope, limit)
                if rows:
                    return rows
            return []
        except apsw.SQLError:
            return self._rows(_LIKE, [f"%{text}%"] * 2, scope, limit)

    def bytes(self) -> int:
        """The size of rows and index together."""
        return int(self._connection.pragma("page_count")) * int(self._connection.pragma("page_size"))

    def close(self) -> None:
        """Free the memory."""
        self._connection.close()

    def _rows(self, sql: str, bindings: list[Any], scope: str | None, limit: int) -> Rows:
        condition = "1" if scope is None else "memories.scope IN (?, '')"
        named = [] if scope is None else [scope]
        rows = self._connection.execute(sql.format(scope=condition), [*bindings, *named, limit])
        return [(int(row), float(score)) for row, score in rows]


class Harness(ABC):
    """Answers queries by any arm over one collection of memories.

    The baseline returns `baseline_limit` results and recall `limit`, from `depth` candidates per leg (None: as many
    as for users).
    """

    windows: Sequence[Window]
    baseline_limit: int
    limit: int
    depth: int | None

    def __init__(self, progress: Progress, model: ModelIndexes | None = None) -> None:
        self._progress = progress
        self._other_model = model

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    @abstractmethod
    def engine(self) -> LocalEngine:
        """The engine over the memories."""

    @abstractmethod
    def document(self, memory: str) -> str:
        """The document that a memory belongs to."""

    @abstractmethod
    def ranking(self, documents: Sequence[RankedDocument]) -> list[tuple[str, float]]:
        """The documents of a run with their scores, best first, each once."""

    @cached_property
    def moments(self) -> Mapping[str | None, datetime]:
        """When the queries of a project are asked; empty means now."""
        return {}

    def search(self, arm: Arm, text: str, project: str | None, *, limit: int | None = None) -> RankedList:
        """Retrieve documents by an arm; a `limit` replaces the number of results.

        Recall gives no reasons and asks no hosted services; the baseline has no confidence.
        """
        plan = arm.plan
        if plan is None:
            rows = self._baseline.search(text, project, limit or self.baseline_limit)
            return RankedList([RankedDocument(self.windows[row].document, score, score) for row, score in rows])
        answer = self.engine.ask(
            text,
            plan,
            limit=limit or self.limit,
            depth=self.depth,
            sort=arm.sort,
            project=project,
            all_projects=project is None,
            as_of=self.moments.get(project),
            model=self._model if plan.needs_model else None,
            local_only=True,
        )
        documents = [
            RankedDocument(self.document(hit.memory.id), hit.score, hit.score / (hit.prior or 1.0), hit.legs)
            for hit in answer.hits
        ]
        return RankedList(documents, answer.confidence)

    def precompute(self, queries: Sequence[str]) -> None:
        """Encode queries before any clock runs."""
        if self._model is None:
            return
        for done, text in enumerate(queries, start=1):
            self._model.embedder.encode_query(text)
            self._progress("encoding questions", done, len(queries))

    @property
    def fingerprint(self) -> str | None:
        """The model of the vectors, None without a model."""
        return self._model.embedder.fingerprint if self._model is not None else None

    def bytes_per_memory(self, arm: Arm) -> float:
        """Size of store and indexes, or of the baseline, per memory."""
        if arm.plan is None:
            return self._baseline.bytes() / max(1, len(self.windows))
        # By its pages: while a database is open, some of them are in its log too, which goes when it is closed.
        database = self.engine.store.census().bytes
        files = [path for path in self.engine.settings.home.rglob("*") if path.suffix not in _DATABASE]
        beside = sum(path.stat().st_size for path in files if path.is_file() and path.name != _IDS)
        return (database + beside) / max(1, len(self.windows))

    def close(self) -> None:
        """Free the index of the baseline."""
        if "_baseline" in vars(self):
            self._baseline.close()

    @cached_property
    def _baseline(self) -> FtsBaseline:
        return FtsBaseline(self.windows)

    @cached_property
    def _model(self) -> ModelIndexes | None:
        """The model, after embedding what has no vectors yet."""
        total = self.engine.store.heads().unembedded
        self.engine.upkeep.embed(progress=lambda done: self._progress("embedding", done, total))
        model = self._other_model or self.engine.semantic()
        # Queries are encoded once, and before any clock runs.
        return replace(model, embedder=PrecomputedQueries(model.embedder)) if model is not None else None


class BenchHarness(Harness):
    """Windows of a data set as memories; scopes become projects."""

    def __init__(self, windows: Sequence[Window], progress: Progress = quiet, folder: Path | None = None) -> None:
        super().__init__(progress)
        digest = hashlib.sha256(repr(windows).encode("utf-8", "surrogatepass")).hexdigest()[:16]
        self.windows = windows
        self.folder = folder or cache_folder() / f"harness-{FORMAT}-{digest}"
        self.limit = ALL
        self.depth = self.baseline_limit = depth_of(windows)
        self.windows_by_memory: dict[str, Window] = {}

    def document(self, memory: str) -> str:
        """The document that a window was cut from."""
        return self.windows_by_memory[memory].document

    @cached_property
    def moments(self) -> Mapping[str | None, datetime]:
        """The newest date of each scope, from which `last week` counts."""
        newest: dict[str | None, datetime] = {}
        for window in self.windows:
            if window.created is not None:
                for scope in {window.scope, None}:
                    newest[scope] = max(newest.get(scope, window.created), window.created)
        return newest

    def ranking(self, documents: Sequence[RankedDocument]) -> list[tuple[str, float]]:
        """Documents with the score of their best window, ties by id."""
        return best_documents(documents, RUN_DEPTH)

    def close(self) -> None:
        """Free the index of the baseline and close the store."""
        super().close()
        if "engine" in vars(self):
            self.engine.close()

    @cached_property
    def engine(self) -> LocalEngine:
        """The engine over the cached store, filled on first use."""
        # The user's own settings must not change what is measured, except the cross-encoder, which has no default.
        # Curation is off: what is measured is recall over the texts as they are.
        settings = replace(
            config.load({"TRISKELE_HOME": str(self.folder)}), rerank=config.load().rerank, curation=config.CURATION_OFF
        )
        engine, ids = LocalEngine(settings, self.folder), self._cached_ids()
        if not len(ids) == engine.store.census().versions == len(self.windows):
            engine.close()
            shutil.rmtree(self.folder, ignore_errors=True)
            engine = LocalEngine(settings, self.folder)
            ids = self._fill(engine)
        self.windows_by_memory = dict(zip(ids, self.windows, strict=True))
        return engine

    def _cached_ids(self) -> list[str]:
        """Memory ids in the order of windows; empty for a new store."""
        path = self.folder / _IDS
        return path.read_text(encoding="utf-8").split() if path.is_file() else []

    def _fill(self, engine: LocalEngine) -> list[str]:
        ids: list[str] = []
        for start in range(0, len(self.windows), _BATCH):
            memories = [_memory(window, engine) for window in self.windows[start : start + _BATCH]]
            ids += [outcome.id for outcome in engine.apply([Add(memory, verbatim=True) for memory in memories])]
            self._progress("indexing", len(ids), len(self.windows))
        (self.folder / _IDS).write_text("\n".join(ids), encoding="utf-8")
        return ids


class OwnHarness(Harness):
    """The user's store; arms rank to the depth that recall uses."""

    def __init__(self, engine: LocalEngine, progress: Progress = quiet, *, model: ModelIndexes | None = None) -> None:
        super().__init__(progress, model)
        self._user_engine = engine
        self.limit = self.baseline_limit = OWN_DEPTH
        self.depth = None
        self.memories = in_use(engine)
        self.windows = [
            Window(memory.id, memory.content, memory.project or None, None, None, memory.importance)
            for memory in self.memories.values()
        ]

    @property
    def engine(self) -> LocalEngine:
        """The user's engine, which stays open."""
        return self._user_engine

    def document(self, memory: str) -> str:
        """The memory itself."""
        return memory

    def ranking(self, documents: Sequence[RankedDocument]) -> list[tuple[str, float]]:
        """The memories in the order in which recall returns them."""
        return [(each.document, each.score) for each in documents]

    def ids(self, arm: Arm, text: str, project: str | None) -> list[str]:
        """The ids of the memories that an arm retrieves, best first."""
        return [each.document for each in self.search(arm, text, project).documents]


def cache_folder() -> Path:
    """Folder of benchmark stores: TRISKELE_BENCH_CACHE, or the user's cache."""
    import platformdirs

    return Path(os.environ.get("TRISKELE_BENCH_CACHE") or platformdirs.user_cache_dir("triskele", appauthor=False))


def depth_of(windows: Sequence[Window]) -> int:
    """Candidates per leg, more where documents have several windows."""
    return RUN_DEPTH * -(-len(windows) // max(1, len({window.document for window in windows})))


def best_documents(documents: Iterable[RankedDocument], depth: int) -> list[tuple[str, float]]:
    """Documents with the score of their best window, ties by id."""
    scores: dict[str, float] = {}
    for document in documents:
        scores[document.document] = max(document.score, scores.get(document.document, document.score))
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:depth]


def in_use(engine: LocalEngine) -> dict[str, Memory]:
    """Memories that recall can return now, by id."""
    memories = engine.store.browse(engine.scope(all_projects=True), limit=ALL)
    superseded = engine.superseded([memory.id for memory in memories])
    return {memory.id: memory for memory in memories if memory.id not in superseded}


def _memory(window: Window, engine: LocalEngine) -> Memory:
    draft = engine.draft(
        window.text,
        project=window.scope or "",
        importance=window.importance,
        origin=Origin.IMPORT,
        # A benchmark measures ranking, whatever its texts contain.
        sensitivity=Sensitivity.OPEN,
        session=window.session,
        created_at=window.created,
    )
    # As the set has them: a name is not checked for secrets either.
    return replace(draft, **{name: getattr(window, name) for name in ("position", *SPOKEN)})


def measure_arm(
    harness: Harness,
    arm: Arm,
    queries: Sequence[BenchQuery],
    qrels: Qrels,
    *,
    unanswerable: Sequence[BenchQuery] = (),
    progress: Progress = quiet,
) -> Measured:
    """Run every query through one arm, then time the first ones."""
    run: dict[str, Sequence[tuple[str, float]]] = {}
    confidence: dict[str, float] = {}
    statistics = measure.LegStatistics()
    has_confidence = arm.has_confidence and bool(unanswerable)
    for done, query in enumerate(queries, start=1):
        answer = harness.search(arm, query.text, query.scope)
        run[query.id] = harness.ranking(answer.documents)
        if arm.plan is not None:
            statistics.add(query.id, answer.documents, measure.relevant(query.id, qrels))
        if has_confidence:
            confidence[query.id] = answer.confidence
        if done % _PROGRESS_EVERY == 0 or done == len(queries):
            progress(arm.name, done, len(queries))
    if has_confidence:
        confidence |= {query.id: harness.search(arm, query.text, query.scope).confidence for query in unanswerable}
    latencies_ms = _latencies_ms(harness, arm, queries[: measure.MAX_TIMED])
    size = harness.bytes_per_memory(arm)
    scores = measure.score(queries, qrels, run)
    return Measured(run, scores, latencies_ms, size, statistics.to_json(), statistics.relevant, confidence)


def _latencies_ms(harness: Harness, arm: Arm, queries: Sequence[BenchQuery]) -> list[float]:
    latencies_ms = []
    for query in queries:
        started = time.perf_counter()
        harness.search(arm, query.text, query.scope, limit=measure.TIMED_LIMIT)
        latencies_ms.append((time.perf_counter() - started) * 1000)
    return latencies_ms
