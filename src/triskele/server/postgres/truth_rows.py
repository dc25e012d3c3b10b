"""The rows of one owner in one Postgres transaction, and the conditions on versions that only Postgres words so.

`PostgresWriter` records the changes for the copies of shared memories (`fan_out`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple, Unpack

from triskele.server.postgres import erasure, jobs, vectors
from triskele.server.postgres.connections import HIDE_ACCOUNTS, SEE_ACCOUNTS, Connection
from triskele.server.postgres.documents import delete_about
from triskele.store import reads
from triskele.store.reads import Condition, Wording
from triskele.store.rows import VERSION_COLUMNS, from_memory, version_hash
from triskele.store.truth_rows import TruthRows
from triskele.store.writer import EntryDetails, MemoryLimits, Writer
from triskele.types import Action, Memory, Outcome, Scope, Sensitivity

# A version as a reader sees it.
READ_COLUMNS = f"{VERSION_COLUMNS}, shared_by"
_VERSION_MARKS = ",".join("?" * (len(VERSION_COLUMNS.split(",")) + 2))
_SAME = " AND ".join(
    f"{column} IS NOT DISTINCT FROM ?"
    for column in ("session", "position", "speaker", "role", "valid_from", "valid_to")
)


class WrittenEntry(NamedTuple):
    """A journal entry of this transaction, and its number."""

    seq: int
    action: Action
    id: str
    version: int | None = None
    previous: int | None = None
    kind: str | None = None
    other: str | None = None


class PostgresRows(TruthRows):
    """Rows of a database."""

    _SAME_CONTENT = (
        f"SELECT {VERSION_COLUMNS} FROM versions WHERE owner = ? AND content_hash = ?"
        " AND known_to IS NULL AND shared_by IS NULL AND sensitivity <> 'secret' AND project = ?"
        f" AND {_SAME} AND content = ?"
    )
    ID_PARAMETER = '?::text COLLATE "C"'
    _LISTED = "= ANY(?)"
    _OWN = " AND shared_by IS NULL"

    def __init__(self, connection: Connection, owner: str) -> None:
        super().__init__(owner)
        self.connection = connection

    def clash(self, memory: Memory) -> int | None:
        """The version with the same number as a new one, else the current one if the new one is to be current too."""
        found = self._one(
            "SELECT version FROM versions WHERE owner = ? AND id = ? AND (version = ? OR known_to IS NULL)"
            " ORDER BY version = ? DESC LIMIT 1",
            memory.id,
            memory.version,
            memory.version,
        )
        return int(found[0]) if found and (found[0] == memory.version or memory.known_to is None) else None

    def insert_version(self, memory: Memory) -> None:
        """Write one version with its hash, and queue what is to be derived from it."""
        values = from_memory(memory)
        sql = f"INSERT INTO versions ({VERSION_COLUMNS}, row_hash, shared_by) VALUES ({_VERSION_MARKS}) RETURNING row"
        row = self._run(sql, [*values, version_hash(values), memory.shared_by]).fetchone()[0]
        jobs.queue_version(self.connection, memory.owner, int(row), memory.content_hash)
        if memory.sensitivity is not Sensitivity.OPEN:
            vectors.withdraw(self.connection, memory.owner, memory.id)

    def withdraw(self, id: str) -> None:
        """Delete what hosted models and documents hold of the texts of a memory that must not leave any more."""
        vectors.withdraw(self.connection, self.owner, id)
        delete_about(self.connection, self.owner, [id])

    def mark_unscrubbed(self) -> None:
        """Remember that deleted rows may still be in the tables, and in files of other instances."""
        erasure.mark(self.connection, self.owner)

    def delete_links(self, id: str) -> None:
        """Delete the links from and to a memory."""
        erasure.delete_links(self.connection, self.owner, [id])

    def delete_memory(self, id: str) -> None:
        """Delete the versions of a memory, its sealed texts, its usage and the documents about it."""
        erasure.delete_memories(self.connection, self.owner, [id])

    def drop_unused(self) -> None:
        """Delete vectors, jobs and names that no version has any more."""
        erasure.drop_unused(self.connection, self.owner)

    def memory_limit(self, usual: int) -> int:
        """The user's quota of current memories, or the usual one."""
        with self.connection.pipeline():
            self.connection.execute(SEE_ACCOUNTS)
            cursor = self.connection.execute("SELECT memories FROM users WHERE name = %s", [self.owner])
            self.connection.execute(HIDE_ACCOUNTS)
        [own] = cursor.fetchone() or [None]
        return usual if own is None else int(own)

    def _listed(self, values: Sequence[Any]) -> list[Any]:
        return list(values)

    def _run(self, sql: str, bindings: Sequence[Any]) -> Any:
        return self.connection.execute(marked(sql), bindings)

    def _insert_entry(self, sql: str, bindings: Sequence[Any]) -> int:
        return int(self._run(f"{sql} RETURNING seq", bindings).fetchone()[0])


class PostgresWriter(Writer):
    """A writer that records in `entries` and `touched` what it did so far."""

    def __init__(
        self,
        connection: Connection,
        owner: str,
        at: datetime,
        batch: str,
        actor: str,
        undoes: int | None = None,
        limits: MemoryLimits | None = None,
    ) -> None:
        self.connection = connection
        self.rows = PostgresRows(connection, owner)
        self.entries: list[WrittenEntry] = []
        self.touched: set[str] = set()
        super().__init__(self.rows, at, batch, actor, undoes, limits)

    def acting_for(self, owner: str, *, actor: str, undoes: int | None) -> PostgresWriter:
        """The same transaction in the rows of another owner."""
        return PostgresWriter(self.connection, owner, self.at, self.batch, actor, undoes, self._limits)

    def write_entry(self, action: Action, id: str, **details: Unpack[EntryDetails]) -> int:
        """Write one journal entry and record it; its number."""
        entry = WrittenEntry(super().write_entry(action, id, **details), action, id, **details)
        self.entries.append(entry)
        self.touched.update((id,) if entry.other is None or entry.kind is None else (id, entry.other))
        return entry.seq

    def _make_private(self, id: str) -> Outcome:
        self.touched.add(id)
        return super()._make_private(id)


@lru_cache(maxsize=1024)
def marked(sql: str) -> str:
    """A statement with the marks of this database; once for each text."""
    return sql.replace("?", "%s")


def _has_tag(tag: str) -> Condition:
    # Most rows have other tags: looking for its text costs far less than reading them as JSON.
    return "strpos(tags, ?) > 0 AND jsonb_exists(tags::jsonb, ?)", [json.dumps(tag, ensure_ascii=False), tag]


WORDING = Wording(lambda column, values: (f"{column} = ANY(?)", [list(values)]), _has_tag)


def in_scope(scope: Scope) -> Condition:
    """Versions that a scope contains."""
    condition, bindings = reads.in_scope(scope, WORDING)
    return marked(condition), bindings


def may_read(scope: Scope) -> Condition:
    """Versions that the reader of a scope may read at all."""
    allowed = {"sensitivity": scope.sensitivities, "origin": scope.origins}
    limits = {column: sorted(map(str, values)) for column, values in allowed.items() if values is not None}
    return " AND ".join(f"{column} = ANY(%s)" for column in limits) or "true", list(limits.values())
