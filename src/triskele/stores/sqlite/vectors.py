"""Vectors as rows: what is still to be embedded, and what the models said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apsw

from triskele.config import HOSTED
from triskele.types import Sensitivity

_PAGE = 1000
_MODEL = "model"
_CATALOG = """
SELECT versions.row, owner, project, category, tags, importance, session, position, valid_from, valid_to,
       known_from, known_to, coalesce(vectors.slot, -1)
FROM versions LEFT JOIN vectors ON vectors.content_hash = versions.content_hash AND vectors.fingerprint = ?
"""


def enqueue(connection: apsw.Connection, content_hash: str) -> None:
    """Let a content wait for a vector, unless the model in use has seen it already."""
    connection.execute(
        "INSERT OR IGNORE INTO pending (content_hash) SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM vectors"
        " WHERE content_hash = ?1 AND fingerprint = (SELECT value FROM meta WHERE name = ?2))",
        [content_hash, _MODEL],
    )


def is_queued_for(connection: apsw.Connection, fingerprint: str) -> bool:
    """Whether the queue is that of a model."""
    found = connection.execute("SELECT value FROM meta WHERE name = ?", [_MODEL]).fetchone()
    return found is not None and found[0] == fingerprint


def queue_for(connection: apsw.Connection, fingerprint: str) -> None:
    """Make the queue that of a model: everything it has not seen waits, and nothing else."""
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", [_MODEL, fingerprint])
    seen = "(SELECT content_hash FROM vectors WHERE fingerprint = ?)"
    connection.execute(f"DELETE FROM pending WHERE content_hash IN {seen}", [fingerprint])
    connection.execute(
        f"INSERT OR IGNORE INTO pending SELECT DISTINCT content_hash FROM versions WHERE content_hash NOT IN {seen}",
        [fingerprint],
    )


def waiting(connection: apsw.Connection, limit: int) -> list[tuple[str, str]]:
    """Contents that wait for a vector, oldest first, as (hash, text)."""
    rows = connection.execute(
        "SELECT pending.content_hash, (SELECT content FROM versions WHERE versions.content_hash = pending.content_hash)"
        " FROM pending ORDER BY pending.rowid LIMIT ?",
        [limit],
    ).fetchall()
    return [(str(digest), str(content or "")) for digest, content in rows]


def count_waiting(connection: apsw.Connection) -> int:
    """How many contents wait."""
    return int(connection.execute("SELECT count(*) FROM pending").get)


def keep(connection: apsw.Connection, fingerprint: str, found: Mapping[str, bytes]) -> dict[str, int]:
    """Write vectors and take their contents off the queue, in the transaction of the caller."""
    for digest, vector in found.items():
        # A content may have been erased while it was being embedded.
        connection.execute(
            "INSERT OR IGNORE INTO vectors (content_hash, fingerprint, vector) SELECT ?1, ?2, ?3"
            " WHERE EXISTS (SELECT 1 FROM versions WHERE content_hash = ?1)",
            [digest, fingerprint, vector],
        )
    queue = connection.execute("SELECT value FROM meta WHERE name = ?", [_MODEL]).fetchone()
    if queue[0] == fingerprint if queue else not fingerprint.startswith(HOSTED):
        connection.executemany("DELETE FROM pending WHERE content_hash = ?", [(digest,) for digest in found])
    marks = ",".join("?" * len(found))
    rows = connection.execute(
        f"SELECT content_hash, slot FROM vectors WHERE fingerprint = ? AND content_hash IN ({marks})",
        [fingerprint, *found],
    ).fetchall()
    return {str(digest): int(slot) for digest, slot in rows}  # type: ignore[arg-type]


def last_slot(connection: apsw.Connection, fingerprint: str) -> int:
    """The slot of a model's newest vector; 0 where it has none."""
    # Asked with every recall: the newest vector of all is nearly always this model's, and found at once.
    newest = connection.execute("SELECT slot, fingerprint FROM vectors ORDER BY slot DESC LIMIT 1").fetchone()
    if newest is None or newest[1] == fingerprint:
        return int(newest[0]) if newest else 0
    return int(
        connection.execute("SELECT coalesce(max(slot), 0) FROM vectors WHERE fingerprint = ?", [fingerprint]).get
    )


def read(connection: apsw.Connection, fingerprint: str, after: int) -> list[tuple[int, str, bytes]]:
    """A page of vectors past a slot, in order of slots, as (slot, hash, bytes)."""
    # The plus keeps SQLite from walking every vector of the model for each page.
    return connection.execute(  # type: ignore[return-value]
        "SELECT slot, content_hash, vector FROM vectors WHERE +fingerprint = ? AND slot > ? ORDER BY slot LIMIT ?",
        [fingerprint, after, _PAGE],
    ).fetchall()


def contents(connection: apsw.Connection, slots: Sequence[int]) -> dict[int, str]:
    """The texts behind some slots."""
    found: dict[int, str] = {}
    for start in range(0, len(slots), _PAGE):
        chunk = list(slots[start : start + _PAGE])
        marks = ",".join("?" * len(chunk))
        rows = connection.execute(
            "SELECT slot, (SELECT content FROM versions WHERE versions.content_hash = vectors.content_hash) AS content"
            f" FROM vectors WHERE slot IN ({marks}) AND content IS NOT NULL ORDER BY slot",
            chunk,
        ).fetchall()
        found |= {int(slot): str(content) for slot, content in rows}  # type: ignore[arg-type]
    return found


def catalog(connection: apsw.Connection, fingerprint: str, ids: Sequence[str] | None) -> Iterator[tuple[Any, ...]]:
    """What filters and ranking need of every version, in order of rows, each with the slot of its vector."""
    if ids is None:
        yield from connection.execute(_CATALOG + " ORDER BY versions.row", [fingerprint]).fetchall()
        return
    found: list[tuple[Any, ...]] = []
    for start in range(0, len(ids), _PAGE):
        chunk = list(ids[start : start + _PAGE])
        marks = ",".join("?" * len(chunk))
        found += connection.execute(_CATALOG + f" WHERE versions.id IN ({marks})", [fingerprint, *chunk]).fetchall()
    yield from sorted(found, key=lambda entry: int(entry[0]))


def newly_placed(connection: apsw.Connection, fingerprint: str, after: int) -> list[tuple[int, int]]:
    """Rows that got a vector past a slot, as (row, slot)."""
    return connection.execute(  # type: ignore[return-value]
        "SELECT versions.row, vectors.slot FROM vectors JOIN versions USING (content_hash)"
        " WHERE +vectors.fingerprint = ? AND vectors.slot > ?",
        [fingerprint, after],
    ).fetchall()


def drop(connection: apsw.Connection, slots: Sequence[int]) -> None:
    """Delete vectors and let their contents wait again."""
    for slot in slots:
        connection.execute(
            "INSERT OR IGNORE INTO pending (content_hash) SELECT content_hash FROM vectors WHERE slot = ?", [slot]
        )
        connection.execute("DELETE FROM vectors WHERE slot = ?", [slot])


def take_back(connection: apsw.Connection, id: str) -> None:
    """Delete what hosted models made of the texts of a memory that others may not read any more."""
    connection.execute(
        "DELETE FROM vectors WHERE fingerprint GLOB ? AND content_hash IN"
        " (SELECT content_hash FROM versions WHERE id = ? AND sensitivity != ?)",
        [f"{HOSTED}*", id, Sensitivity.OPEN.value],
    )


def drop_unused(connection: apsw.Connection) -> None:
    """Delete vectors and queue entries whose content is gone."""
    for table in ("vectors", "pending"):
        connection.execute(f"DELETE FROM {table} WHERE content_hash NOT IN (SELECT content_hash FROM versions)")
