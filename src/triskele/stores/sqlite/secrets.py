"""Sealed texts beside the versions they belong to; what they say is known to the vault alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apsw

from triskele.base.ids import content_hash
from triskele.errors import BadInput, Conflict
from triskele.stores.protocol import VAULT, Finding, SealedRow
from triskele.stores.sqlite.rows import row_hash
from triskele.types import Memory, Sealed, Sensitivity

SECRET_COLUMNS = "id, version, sealed_as, sealed"


def keep(connection: apsw.Connection, memory: Memory, sealed: Sealed | None) -> None:
    """Write the sealed text of a new version; a secret without one, or anything else with one, is refused."""
    if (memory.sensitivity is Sensitivity.SECRET) != (sealed is not None):
        raise BadInput(f"memory {memory.id} is {memory.sensitivity}: exactly the secret ones have a sealed text")
    if sealed is not None:
        if _state_of_keys(connection) != sealed.keys:
            raise Conflict("the keys of the vault were changed meanwhile: try again")
        _insert(connection, memory.id, memory.version, memory.version, sealed.blob)


def copy(connection: apsw.Connection, id: str, source: int, target: int) -> None:
    """Let a new version have the sealed text of an older one; it stays bound to the version it was sealed as."""
    found = one(connection, id, source)
    if found is None:
        raise Conflict(f"version {source} of {id} has no sealed text that could be kept")
    _insert(connection, id, target, found.sealed_as, found.blob)


def one(connection: apsw.Connection, id: str, version: int) -> SealedRow | None:
    """The sealed text of one version."""
    sql = f"SELECT {SECRET_COLUMNS} FROM secrets WHERE id = ? AND version = ?"
    found: Any = connection.execute(sql, [id, version]).fetchone()
    return SealedRow(*found) if found else None


def read(connection: apsw.Connection, ids: Sequence[str] | None) -> list[SealedRow]:
    """The sealed texts of some memories, or of all, by id and version."""
    condition = "" if ids is None else " WHERE id IN (SELECT value FROM json_each(?))"
    rows: Any = connection.execute(
        f"SELECT {SECRET_COLUMNS} FROM secrets{condition} ORDER BY id, version",
        [] if ids is None else [json.dumps(ids)],
    ).fetchall()
    return [SealedRow(*row) for row in rows]


def replace(connection: apsw.Connection, blobs: Mapping[tuple[str, int], bytes]) -> None:
    """Put the same texts, sealed anew, in the place of the old ones; those erased meanwhile stay erased."""
    for (id, version), blob in blobs.items():
        found = one(connection, id, version)
        if found is not None:
            values = [id, version, found.sealed_as, blob]
            connection.execute(
                "UPDATE secrets SET sealed = ?, row_hash = ? WHERE id = ? AND version = ?",
                [blob, row_hash(values), id, version],
            )


def drop(connection: apsw.Connection, id: str) -> None:
    """Delete the sealed texts of a memory."""
    connection.execute("DELETE FROM secrets WHERE id = ?", [id])


def misplaced(connection: apsw.Connection) -> Iterator[Finding]:
    """Secrets without a sealed text, and sealed texts without a secret."""
    for id, version, problem in connection.execute(
        "SELECT id, version, 'its sealed text is missing' FROM versions WHERE sensitivity = 'secret'"
        " AND NOT EXISTS (SELECT 1 FROM secrets WHERE secrets.id = versions.id AND secrets.version = versions.version)"
        " UNION ALL SELECT id, version, 'has a sealed text and is no secret' FROM secrets WHERE NOT EXISTS"
        " (SELECT 1 FROM versions WHERE secrets.id = versions.id AND secrets.version = versions.version"
        " AND sensitivity = 'secret')"
    ).fetchall():
        yield Finding(f"memory {id} version {version}", str(problem))


def _insert(connection: apsw.Connection, id: str, version: int, sealed_as: int, blob: bytes) -> None:
    values = [id, version, sealed_as, blob]
    connection.execute(
        f"INSERT INTO secrets ({SECRET_COLUMNS}, row_hash) VALUES (?,?,?,?,?)", [*values, row_hash(values)]
    )


def _state_of_keys(connection: apsw.Connection) -> str | None:
    found: Any = connection.execute("SELECT value FROM shelf WHERE kind = ?", [VAULT]).fetchone()
    return content_hash(json.loads(found[0])) if found else None
