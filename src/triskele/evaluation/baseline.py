"""The reference that every arm is measured against: plain FTS5 with the blend of importance.

Words are asked for together first, each quoted; only if no row holds all of them, any of them will do; a question
that FTS5 refuses is looked for as a substring. Score: -bm25 * 0.7 + importance * 0.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import apsw

from triskele.evaluation.windows import Window

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

Found = list[tuple[int, float]]


class FtsBaseline:
    """FTS5 with its default tokenizer, in memory."""

    def __init__(self, windows: Iterable[Window]) -> None:
        self._connection = apsw.Connection(":memory:")
        self._connection.execute(_TABLES)
        rows = [(row, w.text, w.importance, w.scope or "") for row, w in enumerate(windows)]
        with self._connection:
            self._connection.executemany("INSERT INTO memories (id, content, importance, scope) VALUES (?,?,?,?)", rows)
            self._connection.execute("INSERT INTO memories_fts (memories_fts) VALUES ('rebuild')")

    def search(self, text: str, scope: str | None, depth: int) -> Found:
        """The best rows with their scores."""
        words = [word.replace('"', "") for word in text.split()]
        try:
            for operator in (" AND ", " OR "):
                asked = operator.join(f'"{word}"' for word in words)
                found = self._rows(_MATCH, [asked], scope, depth)
                if found:
                    return found
            return []
        except apsw.SQLError:
            return self._rows(_LIKE, [f"%{text}%"] * 2, scope, depth)

    def bytes(self) -> int:
        """The size of rows and index together."""
        return int(self._connection.pragma("page_count")) * int(self._connection.pragma("page_size"))

    def close(self) -> None:
        """Let the memory go."""
        self._connection.close()

    def _rows(self, sql: str, bindings: list[Any], scope: str | None, depth: int) -> Found:
        condition = "1" if scope is None else "memories.scope IN (?, '')"
        named = [] if scope is None else [scope]
        rows = self._connection.execute(sql.format(scope=condition), [*bindings, *named, depth])
        return [(int(row), float(score)) for row, score in rows]
