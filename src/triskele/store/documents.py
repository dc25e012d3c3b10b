"""Documents of one owner in statements that every database understands."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from triskele.errors import StoreDamaged
from triskele.store.rows import row_hash
from triskele.store.statements import OwnerDatabase, Rows
from triskele.store.values import Document

DOCUMENT_COLUMNS = "kind, key, value, about"
_TRIM = """
DELETE FROM documents WHERE owner = ?1 AND kind = ?2 AND key <= (
    SELECT key FROM documents WHERE owner = ?1 AND kind = ?2 ORDER BY key DESC LIMIT 1 OFFSET ?3)
"""
# A memory may have been erased while a document about it was being written.
_PUT = f"""
INSERT INTO documents (owner, {DOCUMENT_COLUMNS}, row_hash) SELECT ?1, ?2, ?3, ?4, ?5, ?6
WHERE (SELECT count(DISTINCT id) FROM versions WHERE owner = ?1 AND id {{about}}) = ?8
ON CONFLICT (owner, kind, key) DO UPDATE
SET value = excluded.value, about = excluded.about, row_hash = excluded.row_hash
"""


class DocumentStore:
    """Small JSON documents of one owner by kind and key: keys, plans, the recall log, evaluation sets."""

    def __init__(self, database: OwnerDatabase) -> None:
        self._database = database

    def put(
        self, kind: str, documents: Mapping[str, Document], *, most: int | None = None, durable: bool = True
    ) -> None:
        """Write documents by key and keep the `most` highest keys of the kind.

        A write that need not be durable waits for neither other writers nor the disk: a busy store refuses it.
        """
        with self._database.writing() if durable else self._database.noting() as rows:
            _put_documents(rows, kind, documents)
            if most is not None:
                rows.run(_TRIM, [rows.owner, kind, most])

    def all(self, kind: str) -> dict[str, Any]:
        """The values of a kind, ordered by key."""
        rows = self._database.documents(kind)
        return _values(kind, rows) if rows else {}

    def some(self, kind: str, keys: Iterable[str]) -> dict[str, Any]:
        """The values under some keys of a kind, ordered by key; unknown keys are left out."""
        wanted = list(keys)
        return self._read(kind, f"AND key {self._database.dialect.listed}", wanted) if wanted else {}

    def get(self, kind: str, key: str) -> Any:
        """One value, or None."""
        return self._read(kind, "AND key = ?", key).get(key)

    def delete(self, kind: str, keys: Iterable[str]) -> None:
        """Delete documents; unknown keys are ignored."""
        with self._database.writing() as rows:
            sql = f"DELETE FROM documents WHERE owner = ? AND kind = ? AND key {rows.dialect.listed}"
            rows.run(sql, [rows.owner, kind, list(keys)])

    def swap(self, kind: str, key: str, before: Any, after: Any) -> bool:
        """Replace a document if its value is still `before` (None: it does not exist); False if it is not."""
        with self._database.writing() as rows:
            if self.get(kind, key) != before:
                return False
            _put_documents(rows, kind, {key: Document(after)})
            return True

    def _read(self, kind: str, which: str, *bindings: Any) -> dict[str, Any]:
        sql = f"SELECT key, value FROM documents WHERE owner = ? AND kind = ? {which} ORDER BY key"
        return _values(kind, self._database.all(sql, kind, *bindings))


def _put_documents(rows: Rows, kind: str, documents: Mapping[str, Document]) -> None:
    sql = _PUT.format(about=rows.dialect.listed_as.format("?7"))
    for key, document in documents.items():
        ids = sorted(set(document.about))
        values = [rows.owner, kind, key, _text(document.value), _text(ids)]
        rows.run(sql, [*values, row_hash(values), ids, len(ids)])


def _values(kind: str, rows: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    try:
        return {str(key): json.loads(str(value)) for key, value in rows}
    except ValueError as error:
        raise StoreDamaged(f"a document of kind {kind} is damaged ({error}): restore a backup") from error


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
