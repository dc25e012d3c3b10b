"""Small JSON documents of one owner as rows; each names the memories that it is about."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from triskele.errors import StoreDamaged
from triskele.server.postgres.connections import Connection, OwnerTransactions
from triskele.store.protocols import Document
from triskele.store.rows import row_hash

_TRIM = """
DELETE FROM documents WHERE owner = %(owner)s AND kind = %(kind)s AND key <= (
    SELECT key FROM documents WHERE owner = %(owner)s AND kind = %(kind)s ORDER BY key DESC LIMIT 1 OFFSET %(most)s)
"""
# A memory may have been erased while a document about it was being written.
_PUT = """
INSERT INTO documents (owner, kind, key, value, about, row_hash)
SELECT %(owner)s, %(kind)s, %(key)s, %(value)s, %(about)s, %(hash)s
WHERE NOT EXISTS (SELECT 1 FROM unnest(%(ids)s::text[]) AS named (id)
                  WHERE NOT EXISTS (SELECT 1 FROM versions WHERE owner = %(owner)s AND versions.id = named.id))
ON CONFLICT (owner, kind, key) DO UPDATE
SET value = excluded.value, about = excluded.about, row_hash = excluded.row_hash
"""


class PostgresDocuments:
    """The documents of one owner."""

    def __init__(self, transactions: OwnerTransactions) -> None:
        self._transactions = transactions
        self._owner = transactions.owner

    def put(
        self, kind: str, documents: Mapping[str, Document], *, most: int | None = None, durable: bool = True
    ) -> None:
        """Write documents by key and keep the `most` highest keys of the kind."""
        with self._transactions.writing() if durable else self._transactions.noting() as connection:
            self._put(connection, kind, documents)
            if most is not None:
                connection.execute(_TRIM, {"owner": self._owner, "kind": kind, "most": most})

    def all(self, kind: str) -> dict[str, Any]:
        """The values of a kind, ordered by key."""
        start = self._transactions.snapshot_start
        if start is not None and kind in start.documents:
            return _values(kind, start.documents[kind].items())
        return self._read(kind, "")

    def some(self, kind: str, keys: Iterable[str]) -> dict[str, Any]:
        """The values under some keys of a kind, ordered by key; unknown keys are left out."""
        return self._read(kind, "AND key = ANY(%s)", list(keys))

    def get(self, kind: str, key: str) -> Any:
        """One value, or None."""
        return self._read(kind, "AND key = %s", key).get(key)

    def delete(self, kind: str, keys: Iterable[str]) -> None:
        """Delete documents; unknown keys are ignored."""
        with self._transactions.writing() as connection:
            connection.execute(
                "DELETE FROM documents WHERE owner = %s AND kind = %s AND key = ANY(%s)",
                [self._owner, kind, list(keys)],
            )

    def swap(self, kind: str, key: str, before: Any, after: Any) -> bool:
        """Replace a document if its value is still `before` (None: it does not exist); False if it is not."""
        with self._transactions.writing() as connection:
            if self.get(kind, key) != before:
                return False
            self._put(connection, kind, {key: Document(after)})
            return True

    def _put(self, connection: Connection, kind: str, documents: Mapping[str, Document]) -> None:
        for key, document in documents.items():
            ids = sorted(set(document.about))
            value, about = _text(document.value), _text(ids)
            digest = row_hash([self._owner, kind, key, value, about])
            named = {"owner": self._owner, "kind": kind, "key": key, "value": value, "about": about}
            connection.execute(_PUT, {**named, "ids": ids, "hash": digest})

    def _read(self, kind: str, which: str, *bindings: Any) -> dict[str, Any]:
        sql = f"SELECT key, value FROM documents WHERE owner = %s AND kind = %s {which} ORDER BY key"
        return _values(kind, self._transactions.all(sql, [self._owner, kind, *bindings]))


def _values(kind: str, rows: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    try:
        return {str(key): json.loads(str(value)) for key, value in rows}
    except ValueError as error:
        raise StoreDamaged(f"a document of kind {kind} is damaged ({error}): restore a backup") from error


def delete_about(connection: Connection, owner: str, ids: Iterable[str]) -> None:
    """Delete every document that is about any of some memories."""
    connection.execute(
        "DELETE FROM documents WHERE owner = %s AND about <> '[]' AND jsonb_exists_any(about::jsonb, %s)",
        [owner, list(ids)],
    )


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
