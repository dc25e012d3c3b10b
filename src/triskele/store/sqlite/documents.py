"""Small JSON documents of one owner as rows; each names the memories that it is about."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import apsw

from triskele.errors import StoreDamaged
from triskele.store.protocols import Document
from triskele.store.rows import row_hash
from triskele.store.sqlite.database import Database, listed

DOCUMENT_COLUMNS = "kind, key, value, about"


class SqliteDocuments:
    """The documents of one owner."""

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self._owner = owner

    def put(
        self, kind: str, documents: Mapping[str, Document], *, most: int | None = None, durable: bool = True
    ) -> None:
        """Write documents by key and keep the `most` highest keys of the kind."""
        with self._database.writing() if durable else self._database.noting() as connection:
            self._put(connection, kind, documents)
            if most is not None:
                connection.execute(
                    "DELETE FROM documents WHERE owner = ?1 AND kind = ?2 AND key <= (SELECT key FROM documents"
                    " WHERE owner = ?1 AND kind = ?2 ORDER BY key DESC LIMIT 1 OFFSET ?3)",
                    [self._owner, kind, most],
                )

    def all(self, kind: str) -> dict[str, Any]:
        """The values of a kind, ordered by key."""
        # Every recall asks for kinds that most owners have none of.
        has_any = "SELECT EXISTS (SELECT 1 FROM documents WHERE owner = ? AND kind = ?)"
        if self._database.kept(has_any, [self._owner, kind]) == [(0,)]:
            return {}
        return self._read(kind, "ORDER BY key")

    def some(self, kind: str, keys: Iterable[str]) -> dict[str, Any]:
        """The values under some keys of a kind, ordered by key; unknown keys are left out."""
        # As one JSON list, because a statement has a limited number of bindings.
        return self._read(kind, f"AND key {listed()} ORDER BY key", _text(list(keys)))

    def get(self, kind: str, key: str) -> Any:
        """One value, or None."""
        return self._read(kind, "AND key = ?", key).get(key)

    def delete(self, kind: str, keys: Iterable[str]) -> None:
        """Delete documents; unknown keys are ignored."""
        with self._database.writing() as connection:
            connection.executemany(
                "DELETE FROM documents WHERE owner = ? AND kind = ? AND key = ?",
                [(self._owner, kind, key) for key in keys],
            )

    def swap(self, kind: str, key: str, before: Any, after: Any) -> bool:
        """Replace a document if its value is still `before` (None: it does not exist); False if it is not."""
        with self._database.writing() as connection:
            if self._read(kind, "AND key = ?", key).get(key) != before:
                return False
            self._put(connection, kind, {key: Document(after)})
            return True

    def _put(self, connection: apsw.Connection, kind: str, documents: Mapping[str, Document]) -> None:
        for key, document in documents.items():
            values = [self._owner, kind, key, _text(document.value), _text(sorted(set(document.about)))]
            # A memory may have been erased while a document about it was being written.
            connection.execute(
                "INSERT OR REPLACE INTO documents SELECT ?1, ?2, ?3, ?4, ?5, ?6"
                " WHERE NOT EXISTS (SELECT 1 FROM json_each(?5) AS named"
                " WHERE NOT EXISTS (SELECT 1 FROM versions WHERE owner = ?1 AND id = named.value))",
                [*values, row_hash(values)],
            )

    def _read(self, kind: str, which: str, *bindings: str) -> dict[str, Any]:
        sql = f"SELECT key, value FROM documents WHERE owner = ? AND kind = ? {which}"
        rows = self._database.all(sql, [self._owner, kind, *bindings])
        try:
            return {str(key): json.loads(str(value)) for key, value in rows}
        except ValueError as error:
            raise StoreDamaged(f"a document of kind {kind} is damaged ({error}): restore a backup") from error


def delete_about(connection: apsw.Connection, owner: str, id: str) -> None:
    """Delete every document that is about a memory."""
    connection.execute(
        "DELETE FROM documents WHERE owner = ? AND EXISTS (SELECT 1 FROM json_each(about) WHERE value = ?)", [owner, id]
    )


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
