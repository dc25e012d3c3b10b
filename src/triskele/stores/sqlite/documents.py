"""The shelf: small JSON documents beside the memories, each knowing which memories it is about."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import apsw

from triskele.errors import StoreDamaged
from triskele.stores.protocol import Document
from triskele.stores.sqlite.rows import row_hash

SHELF_COLUMNS = "kind, key, value, about"


def put(connection: apsw.Connection, kind: str, documents: Mapping[str, Document], most: int | None) -> None:
    """Write documents over those of the same key, and keep no more than the `most` highest keys."""
    for key, document in documents.items():
        values = [kind, key, _text(document.value), _text(sorted(set(document.about)))]
        # A memory may have been erased while a document about it was being written.
        connection.execute(
            "INSERT OR REPLACE INTO shelf SELECT ?1, ?2, ?3, ?4, ?5"
            " WHERE NOT EXISTS (SELECT 1 FROM json_each(?4) AS named"
            " WHERE NOT EXISTS (SELECT 1 FROM versions WHERE id = named.value))",
            [*values, row_hash(values)],
        )
    if most is not None:
        connection.execute(
            "DELETE FROM shelf WHERE kind = ?1 AND key <="
            " (SELECT key FROM shelf WHERE kind = ?1 ORDER BY key DESC LIMIT 1 OFFSET ?2)",
            [kind, most],
        )


def swap(connection: apsw.Connection, kind: str, key: str, before: Any, after: Any) -> bool:
    """Write a document in the place of one that is still as it was; None stands for none."""
    if _read(connection, kind, "AND key = ?", [key]).get(key) != before:
        return False
    put(connection, kind, {key: Document(after)}, None)
    return True


def read(connection: apsw.Connection, kind: str) -> dict[str, Any]:
    """The documents of a kind in the order of their keys."""
    return _read(connection, kind, "ORDER BY key", [])


def take(connection: apsw.Connection, kind: str, keys: Iterable[str]) -> None:
    """Remove documents; keys that nobody knows are no matter."""
    connection.executemany("DELETE FROM shelf WHERE kind = ? AND key = ?", [(kind, key) for key in keys])


def take_about(connection: apsw.Connection, id: str) -> None:
    """Remove every document that is about a memory."""
    connection.execute("DELETE FROM shelf WHERE EXISTS (SELECT 1 FROM json_each(about) WHERE value = ?)", [id])


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _read(connection: apsw.Connection, kind: str, which: str, bindings: list[str]) -> dict[str, Any]:
    rows = connection.execute(f"SELECT key, value FROM shelf WHERE kind = ? {which}", [kind, *bindings]).fetchall()
    try:
        return {str(key): json.loads(str(value)) for key, value in rows}
    except ValueError as error:
        raise StoreDamaged(f"a document of kind {kind} is damaged ({error}): restore a backup") from error
