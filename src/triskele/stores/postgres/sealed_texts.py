"""Sealed texts of one owner, stored separately from their versions; only the vault can read them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from triskele.base.ids import content_hash
from triskele.errors import BadInput, Conflict
from triskele.stores.postgres.connections import Connection
from triskele.stores.protocols import VAULT, IntegrityIssue, SealedRow
from triskele.stores.sqlite.rows import row_hash
from triskele.types import Memory, Sealed, Sensitivity

SEALED_COLUMNS = "id, version, sealed_as, sealed"
_MISPLACED = """
SELECT id, version, 'its sealed text is missing' FROM versions WHERE owner = %(owner)s AND sensitivity = 'secret'
AND NOT EXISTS (SELECT 1 FROM secrets WHERE secrets.owner = versions.owner AND secrets.id = versions.id
                AND secrets.version = versions.version)
UNION ALL SELECT id, version, 'has a sealed text and is no secret' FROM secrets WHERE owner = %(owner)s
AND NOT EXISTS (SELECT 1 FROM versions WHERE secrets.owner = versions.owner AND secrets.id = versions.id
                AND secrets.version = versions.version AND sensitivity = 'secret')
"""


def keep(connection: Connection, memory: Memory, sealed: Sealed | None) -> None:
    """Write the sealed text of a new version; refuse a secret without one, and one on anything else."""
    if (memory.sensitivity is Sensitivity.SECRET) != (sealed is not None):
        raise BadInput(f"memory {memory.id} is {memory.sensitivity}: exactly the secret ones have a sealed text")
    if sealed is not None:
        if _state_of_keys(connection, memory.owner) != sealed.keys:
            raise Conflict("the keys of the vault were changed meanwhile: try again")
        _insert(connection, memory.owner, SealedRow(memory.id, memory.version, memory.version, sealed.blob))


def copy(connection: Connection, owner: str, id: str, source: int, target: int) -> None:
    """Give a new version the sealed text of an older one; it stays bound to the version that it was sealed as."""
    found = one(connection, owner, id, source)
    if found is None:
        raise Conflict(f"version {source} of {id} has no sealed text that could be kept")
    _insert(connection, owner, found._replace(version=target))


def one(connection: Connection, owner: str, id: str, version: int) -> SealedRow | None:
    """The sealed text of one version."""
    sql = f"SELECT {SEALED_COLUMNS} FROM secrets WHERE owner = %s AND id = %s AND version = %s"
    found: Any = connection.execute(sql, [owner, id, version]).fetchone()
    return SealedRow(*found) if found else None


def read(connection: Connection, owner: str, ids: Sequence[str] | None) -> list[SealedRow]:
    """The sealed texts of some memories, or of all, by id and version."""
    condition = "" if ids is None else " AND id = ANY(%s)"
    rows: Any = connection.execute(
        f"SELECT {SEALED_COLUMNS} FROM secrets WHERE owner = %s{condition} ORDER BY id, version",
        [owner] if ids is None else [owner, list(ids)],
    ).fetchall()
    return [SealedRow(*row) for row in rows]


def replace(connection: Connection, owner: str, blobs: Mapping[tuple[str, int], bytes]) -> None:
    """Replace sealed texts by the same texts under another key; those erased meanwhile stay erased."""
    for (id, version), blob in blobs.items():
        found = one(connection, owner, id, version)
        if found is not None:
            values = [owner, *found._replace(blob=blob)]
            connection.execute(
                "UPDATE secrets SET sealed = %s, row_hash = %s WHERE owner = %s AND id = %s AND version = %s",
                [blob, row_hash(values), owner, id, version],
            )


def misplaced(connection: Connection, owner: str) -> list[IntegrityIssue]:
    """Secrets of an owner without a sealed text, and sealed texts without a secret."""
    rows = connection.execute(_MISPLACED, {"owner": owner}).fetchall()
    return [IntegrityIssue(f"memory {id} version {version}", str(problem)) for id, version, problem in rows]


def _insert(connection: Connection, owner: str, row: SealedRow) -> None:
    values = [owner, *row]
    connection.execute(
        f"INSERT INTO secrets (owner, {SEALED_COLUMNS}, row_hash) VALUES (%s,%s,%s,%s,%s,%s)",
        [*values, row_hash(values)],
    )


def _state_of_keys(connection: Connection, owner: str) -> str | None:
    found: Any = connection.execute(
        "SELECT value FROM documents WHERE owner = %s AND kind = %s", [owner, VAULT]
    ).fetchone()
    return content_hash(json.loads(found[0])) if found else None
