"""The rows of one owner in one SQLite transaction: the statements that are specific to SQLite."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import apsw

from triskele.store.rows import VERSION_COLUMNS, from_memory, version_hash
from triskele.store.sqlite import usage, vectors
from triskele.store.sqlite.database import listed
from triskele.store.sqlite.documents import delete_about
from triskele.store.sqlite.names import drop_unused_names
from triskele.store.truth_rows import TruthRows
from triskele.types import Memory, Sensitivity

# The name of the mark of a file that may still hold bytes of deleted rows.
UNSCRUBBED = "unscrubbed"
_VERSION_MARKS = ",".join("?" * (len(VERSION_COLUMNS.split(",")) + 1))


class SqliteRows(TruthRows):
    """Rows of a file."""

    _SAME_CONTENT = (
        # Named, because the planner would rather walk through the whole project.
        f"SELECT {VERSION_COLUMNS} FROM versions INDEXED BY version_content WHERE owner = ? AND content_hash = ?"
        " AND known_to IS NULL AND sensitivity <> 'secret' AND project = ? AND session IS ? AND position IS ?"
        " AND speaker IS ? AND role IS ? AND valid_from IS ? AND valid_to IS ? AND content = ?"
    )
    _LISTED = listed()

    def __init__(self, connection: apsw.Connection, owner: str) -> None:
        super().__init__(owner)
        self.connection = connection

    def clash(self, memory: Memory) -> int | None:
        """The version with the same number as a new one, else the current one if the new one is to be current too."""
        # Two lookups by index cost a quarter of one that sorts what either finds.
        if self._one("SELECT 1 FROM versions WHERE owner = ? AND id = ? AND version = ?", memory.id, memory.version):
            return memory.version
        standing = self.current(memory.id) if memory.known_to is None else None
        return None if standing is None else standing.version

    def insert_version(self, memory: Memory) -> None:
        """Write one version with its hash, and queue what is to be derived from it."""
        values = from_memory(memory)
        sql = f"INSERT INTO versions ({VERSION_COLUMNS}, row_hash) VALUES ({_VERSION_MARKS})"
        self.connection.execute(sql, [*values, version_hash(values)])
        vectors.queue_names(self.connection, memory.owner, self.connection.last_insert_rowid())
        vectors.queue_content(self.connection, memory.owner, memory.content_hash)
        if memory.sensitivity is not Sensitivity.OPEN:
            vectors.withdraw(self.connection, memory.owner, memory.id)

    def withdraw(self, id: str) -> None:
        """Delete what hosted models and documents hold of the texts of a memory that must not leave any more."""
        vectors.withdraw(self.connection, self.owner, id)
        delete_about(self.connection, self.owner, id)

    def mark_unscrubbed(self) -> None:
        """Remember that bytes of deleted rows may still be in the files."""
        self._run("INSERT OR REPLACE INTO meta VALUES (?, '')", [UNSCRUBBED])

    def delete_links(self, id: str) -> None:
        """Delete the links from and to a memory."""
        self._run("DELETE FROM links WHERE owner = ?1 AND (source = ?2 OR target = ?2)", [self.owner, id])

    def delete_memory(self, id: str) -> None:
        """Delete the versions of a memory, its sealed texts, its usage and the documents about it."""
        for table in ("versions", "secrets"):
            self._run(f"DELETE FROM {table} WHERE owner = ? AND id = ?", [self.owner, id])
        delete_about(self.connection, self.owner, id)
        usage.drop(self.connection, self.owner, id)

    def drop_unused(self) -> None:
        """Delete vectors, jobs and names that no version has any more."""
        vectors.drop_unused(self.connection, self.owner)
        drop_unused_names(self.connection, self.owner)

    def _listed(self, values: Sequence[Any]) -> str:
        return json.dumps(values)

    def _run(self, sql: str, bindings: Sequence[Any]) -> apsw.Cursor:
        return self.connection.execute(sql, bindings)

    def _insert_entry(self, sql: str, bindings: Sequence[Any]) -> int:
        self.connection.execute(sql, bindings)
        return self.connection.last_insert_rowid()
