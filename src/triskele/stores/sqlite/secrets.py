"""Sealed texts of one owner, stored separately from their versions; only the vault can read them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apsw

from triskele.base.ids import content_hash
from triskele.errors import BadInput, Conflict
from triskele.stores.protocols import VAULT, IntegrityIssue, SealedRow
from triskele.stores.sqlite.rows import row_hash
from triskele.types import Memory, Sealed, Sensitivity

SECRET_COLUMNS = "id, version, sealed_as, sealed"


def keep(connection: apsw.Connection, memory: Memory, sealed: Sealed | None) -> None:
    """Write the sealed text of a new version; refuse a secret without one, and one on anything else."""
    if (memory.sensitivity is Sensitivity.SECRET) != (sealed is not None):
        raise BadInput(f"memory {memory.id} is {memory.sensitivity}: exactly the secret ones have a sealed text")
    if sealed is not None:
        if _state_of_keys(connection, memory.owner) != sealed.keys:
            raise Conflict("the keys of the vault were changed meanwhile: try again")
        _insert(connection, memory.owner, SealedRow(memory.id, memory.version, memory.version, sealed.blob))


def copy(connection: apsw.Connection, owner: str, id: str, source: int, target: int) -> None:
    """Give a new version the sealed text of an older one; it stays bound to the version that it was sealed as."""
    found = one(connection, owner, id, source)
    if found is None:
        raise Conflict(f"version {source} of {id} has no sealed text that could be kept")
    _insert(connection, owner, found._replace(version=target))


def one(connection: apsw.Connection, owner: str, id: str, version: int) -> SealedRow | None:
    """The sealed text of one version."""
    sql = f"SELECT {SECRET_COLUMNS} FROM secrets WHERE owner = ? AND id = ? AND version = ?"
    found: Any = connection.execute(sql, [owner, id, version]).fetchone()
    return SealedRow(*found) if found else None


def read(connection: apsw.Connection, owner: str, ids: Sequence[str] | None) -> list[SealedRow]:
    """The sealed texts of some memories, or of all, by id and version."""
    condition = "" if ids is None else " AND id IN (SELECT value FROM json_each(?))"
    rows: Any = connection.execute(
        f"SELECT {SECRET_COLUMNS} FROM secrets WHERE owner = ?{condition} ORDER BY id, version",
        [owner] if ids is None else [owner, json.dumps(ids)],
    ).fetchall()
    return [SealedRow(*row) for row in rows]


def replace(connection: apsw.Connection, owner: str, blobs: Mapping[tuple[str, int], bytes]) -> None:
    """Replace sealed texts by the same texts under another key; those erased meanwhile stay erased."""
    for (id, version), blob in blobs.items():
        found = one(connection, owner, id, version)
        if found is not None:
            values = [owner, *found._replace(blob=blob)]
            connection.execute(
                "UPDATE secrets SET sealed = ?, row_hash = ? WHERE owner = ? AND id = ? AND version = ?",
                [blob, row_hash(values), owner, id, version],
            )


def drop(connection: apsw.Connection, owner: str, id: str) -> None:
    """Delete the sealed texts of a memory."""
    connection.execute("DELETE FROM secrets WHERE owner = ? AND id = ?", [owner, id])


def misplaced(connection: apsw.Connection) -> Iterator[IntegrityIssue]:
    """Secrets without a sealed text, and sealed texts without a secret, of all owners."""
    same = "secrets.owner = versions.owner AND secrets.id = versions.id AND secrets.version = versions.version"
    for id, version, problem in connection.execute(
        "SELECT id, version, 'its sealed text is missing' FROM versions WHERE sensitivity = 'secret'"
        f" AND NOT EXISTS (SELECT 1 FROM secrets WHERE {same})"
        " UNION ALL SELECT id, version, 'has a sealed text and is no secret' FROM secrets WHERE NOT EXISTS"
        f" (SELECT 1 FROM versions WHERE {same} AND sensitivity = 'secret')"
    ).fetchall():
        yield IntegrityIssue(f"memory {id} version {version}", str(problem))


def _insert(connection: apsw.Connection, owner: str, row: SealedRow) -> None:
    values = [owner, *row]
    connection.execute(
        f"INSERT INTO secrets (owner, {SECRET_COLUMNS}, row_hash) VALUES (?,?,?,?,?,?)", [*values, row_hash(values)]
    )


def _state_of_keys(connection: apsw.Connection, owner: str) -> str | None:
    found: Any = connection.execute(
        "SELECT value FROM documents WHERE owner = ? AND kind = ?", [owner, VAULT]
    ).fetchone()
    return content_hash(json.loads(found[0])) if found else None
