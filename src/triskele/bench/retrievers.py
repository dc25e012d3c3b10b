"""The retrievers of arms: recall through the engine, or the plain FTS5 baseline.

`RecallRetriever` is the only place where evaluation calls recall, and it calls nothing but `LocalEngine.ask`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

import apsw

from triskele.bench.datasets import Window
from triskele.types import LegEvidence, Sort

if TYPE_CHECKING:
    from triskele.engine.local import LocalEngine
    from triskele.index.local import SemanticIndex
    from triskele.models.embedder import Embedder, Encoding
    from triskele.recall.plan import Plan

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


@dataclass(frozen=True, slots=True)
class RankedDocument:
    """A document at its rank; `relevance` is the score before importance, to which each leg contributed."""

    document: str
    score: float
    relevance: float
    legs: Mapping[str, LegEvidence] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RankedList:
    """The documents that were retrieved for a query, best first, and the confidence in the first one."""

    documents: Sequence[RankedDocument]
    confidence: float = 0.0


class Retriever(Protocol):
    """Ranks documents for a query."""

    def search(self, text: str, project: str | None) -> RankedList:
        """The ranking of a query inside a project, or over all projects."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallRetriever:
    """Recall by a plan: `limit` and `depth` go to `LocalEngine.ask`, `document` maps memory ids to documents.

    `moments` are the times at which queries of a project are asked; others are asked now.
    """

    engine: LocalEngine
    plan: Plan
    sort: Sort
    limit: int
    depth: int | None
    model: SemanticIndex | None
    document: Callable[[str], str]
    moments: Mapping[str | None, datetime] = field(default_factory=dict)

    def search(self, text: str, project: str | None) -> RankedList:
        """Recall without reasons; hosted services are not asked."""
        answer = self.engine.ask(
            text,
            self.plan,
            limit=self.limit,
            depth=self.depth,
            sort=self.sort,
            project=project,
            all_projects=project is None,
            as_of=self.moments.get(project),
            model=self.model,
            local_only=True,
        )
        documents = [
            RankedDocument(self.document(hit.memory.id), hit.score, hit.score / (hit.prior or 1.0), hit.legs)
            for hit in answer.hits
        ]
        return RankedList(documents, answer.confidence)


def with_precomputed_queries(model: SemanticIndex | None) -> SemanticIndex | None:
    """The same model, which encodes every query once; arms share the encodings and are timed without them."""
    return replace(model, embedder=PrecomputedQueries(model.embedder)) if model is not None else None


class PrecomputedQueries:
    """An embedder that keeps the encoding of every query."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._known: dict[str, Encoding] = {}
        self.fingerprint = embedder.fingerprint
        self.dimensions = embedder.dimensions
        self.token_dimensions = embedder.token_dimensions

    def encode_query(self, text: str) -> Encoding:
        """The encoding of a query, computed once."""
        if text not in self._known:
            self._known[text] = self._embedder.encode_query(text)
        return self._known[text]

    def encode_documents(self, texts: Sequence[str]) -> list[Encoding]:
        """The encodings of texts to retrieve, in their order."""
        return self._embedder.encode_documents(texts)


class FtsBaseline:
    """FTS5 with its default tokenizer, in memory: the reference that every arm is compared with.

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


@dataclass(frozen=True, slots=True)
class FtsRetriever:
    """The baseline over windows."""

    baseline: FtsBaseline
    windows: Sequence[Window]
    limit: int

    def search(self, text: str, project: str | None) -> RankedList:
        """The best windows; the baseline has no confidence."""
        rows = self.baseline.search(text, project, self.limit)
        return RankedList([RankedDocument(self.windows[row].document, score, score) for row, score in rows])
