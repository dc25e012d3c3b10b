"""Memories, links, folders and secrets of one owner in one transaction, for the rules of writing."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar

from triskele.store.derived_rows import drop_hosted_vectors, queue_version
from triskele.store.rows import (
    FOLDERS,
    JOURNAL_COLUMNS,
    LINK_COLUMNS,
    PLACE_COLUMNS,
    SEALED_COLUMNS,
    VERSION_COLUMNS,
    VERSION_NAMES,
    from_link,
    from_memory,
    row_hash,
    to_folder,
    to_link,
    to_memory,
    version_hash,
)
from triskele.store.statements import Rows
from triskele.store.values import VAULT, FolderRow, SealedRow
from triskele.text.ids import content_hash
from triskele.text.timestamps import to_micros
from triskele.types import CONTEXT, Action, Link, Memory, Sensitivity

_SAME_CONTEXT = " AND ".join(f"{name} IS NOT DISTINCT FROM ?" for name in CONTEXT)


class TruthRows(Rows):
    """Reads and writes rows for `Writer`; nothing is decided here."""

    # An id as a value that is compared with ids of rows.
    ID_PARAMETER: ClassVar[str] = "?1"
    # The columns of a version that its hash does not guard.
    UNGUARDED: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def _insert(self, sql: str, bindings: Sequence[Any], number: str) -> int:
        """Insert a row; the number in one of its columns."""

    @abstractmethod
    def clash(self, memory: Memory) -> int | None:
        """The version with the same number as a new one, else the current one if the new one is to be current too."""

    @abstractmethod
    def mark_unscrubbed(self) -> None:
        """Remember that bytes of deleted rows may still be there."""

    @abstractmethod
    def delete_about(self, ids: Sequence[str]) -> None:
        """Delete every document that is about any of some memories."""

    def insert_version(self, memory: Memory) -> None:
        """Write one version with its hash, and queue what is to be derived from it."""
        values = from_memory(memory)
        values += [version_hash(values), *(getattr(memory, name) for name in self.UNGUARDED)]
        columns = ", ".join((VERSION_COLUMNS, "row_hash", *self.UNGUARDED))
        row = self._insert(f"INSERT INTO versions ({columns}) VALUES ({_marks(values)})", values, "row")
        queue_version(self, row, memory.content_hash)
        if memory.sensitivity is not Sensitivity.OPEN:
            drop_hosted_vectors(self, memory.id)

    def drop_copies(self, id: str) -> None:
        """Delete what hosted models and documents hold of the texts of a memory that must not leave any more."""
        drop_hosted_vectors(self, id)
        self.delete_about([id])

    def delete_links(self, ids: Sequence[str]) -> None:
        """Delete the links from and to some memories."""
        listed = self.dialect.listed_as.format("?2")
        sql = f"DELETE FROM links WHERE owner = ?1 AND (source {listed} OR target {listed})"
        self.run(sql, [self.owner, list(ids)])

    def delete_memories(self, ids: Sequence[str]) -> None:
        """Delete the versions of some memories, their sealed texts, their usage and the documents about them."""
        for table in ("versions", "secrets", "usage_counts", "given", "echoes"):
            sql = f"DELETE FROM {table} WHERE owner = ? AND id {self.dialect.listed}"
            self.run(sql, [self.owner, list(ids)])
        self.delete_about(ids)

    def memory_limit(self, usual: int) -> int:
        """How many current memories the owner may have; 0 is no limit."""
        return usual

    def count_current(self) -> int:
        """How many memories of the owner are current."""
        [[count]] = self.all(f"SELECT count(*) FROM versions WHERE owner = ? AND known_to IS NULL{self.dialect.own}")
        return int(count)

    def additions_after(self, seq: int, batch: str) -> int | None:
        """How many memories were added or restored after a journal entry; None if the entry is not there."""
        row = self.one(
            "SELECT (SELECT count(*) FROM journal WHERE owner = ? AND seq > ?"
            f" AND action IN ('{Action.ADDED}', '{Action.RESTORED}'))"
            " FROM journal WHERE owner = ? AND seq = ? AND batch = ?",
            seq,
            self.owner,
            seq,
            batch,
        )
        return int(row[0]) if row else None

    def current(self, id: str) -> Memory | None:
        """The current version of a memory."""
        return self._memory(
            f"SELECT {VERSION_COLUMNS} FROM versions WHERE owner = ? AND id = ? AND known_to IS NULL", id
        )

    def latest(self, id: str) -> Memory | None:
        """The newest version of a memory, current or not."""
        return self._memory(
            f"SELECT {VERSION_COLUMNS} FROM versions WHERE owner = ? AND id = ? ORDER BY version DESC LIMIT 1", id
        )

    def same_content(self, memory: Memory, *, but_private: bool = False) -> Memory | None:
        """A current memory with the same content in the same place; secrets, or also private ones, are left out."""
        closed = " AND sensitivity <> 'private'" * but_private
        values = dict(zip(VERSION_NAMES, from_memory(memory), strict=True))
        return self._memory(
            f"SELECT {VERSION_COLUMNS} FROM versions{self.dialect.by_content} WHERE owner = ? AND content_hash = ?"
            f" AND known_to IS NULL{self.dialect.own} AND sensitivity <> 'secret'{closed}"
            f" AND {_SAME_CONTEXT} AND content = ?",
            memory.content_hash,
            *(values[name] for name in CONTEXT),
            memory.content,
        )

    def version_numbers(self, id: str) -> list[int]:
        """The numbers of every version of a memory, oldest first."""
        sql = "SELECT version FROM versions WHERE owner = ? AND id = ? ORDER BY version"
        return [int(version) for (version,) in self.all(sql, id)]

    def end_version(self, memory: Memory) -> None:
        """Write when a version ended."""
        ended = memory.known_to and to_micros(memory.known_to)
        self.run(
            "UPDATE versions SET known_to = ?, row_hash = ? WHERE owner = ? AND id = ? AND version = ?",
            [ended, version_hash(from_memory(memory)), self.owner, memory.id, memory.version],
        )

    def close(self, id: str) -> None:
        """Make every open version of a memory private."""
        sql = f"SELECT {VERSION_COLUMNS} FROM versions WHERE owner = ? AND id = ? AND sensitivity = ?"
        for values in self.all(sql, id, Sensitivity.OPEN.value):
            closed = replace(to_memory(values), sensitivity=Sensitivity.PRIVATE)
            self.run(
                "UPDATE versions SET sensitivity = ?, row_hash = ? WHERE owner = ? AND id = ? AND version = ?",
                [closed.sensitivity.value, version_hash(from_memory(closed)), self.owner, id, closed.version],
            )

    def open_link(self, link: Link) -> tuple[int, Link] | None:
        """The open link of the same kind between the same memories, and its row number."""
        values = self.one(
            f"SELECT row, {LINK_COLUMNS} FROM links WHERE owner = ? AND source = ? AND kind = ? AND target = ?"
            " AND known_to IS NULL",
            link.source,
            link.kind.value,
            link.target,
        )
        return (values[0], to_link(values[1:])) if values else None

    def insert_link(self, link: Link) -> None:
        """Write a link with its hash."""
        self.run(*self._guarded("links", LINK_COLUMNS, from_link(link)))

    def end_link(self, row: int, link: Link) -> None:
        """Write when the link of a row ended."""
        values = [self.owner, *from_link(link)]
        self.run(
            "UPDATE links SET known_to = ?, row_hash = ? WHERE owner = ? AND row = ?",
            [values[-1], row_hash(values), self.owner, row],
        )

    def is_superseded_by(self, id: str, suspect: str) -> bool:
        """Whether `suspect` is a direct or indirect successor of `id`."""
        sql = (
            f"WITH RECURSIVE above (id) AS (SELECT {self.ID_PARAMETER} UNION SELECT links.source FROM links JOIN above"
            " ON links.owner = ?2 AND links.target = above.id WHERE links.kind = 'supersedes'"
            " AND links.known_to IS NULL) SELECT 1 FROM above WHERE id = ?3"
        )
        return self.run(sql, [id, self.owner, suspect]).fetchone() is not None

    def folders(self) -> list[FolderRow]:
        """Every folder whose project is known, oldest first."""
        return [to_folder(row) for row in self.all(FOLDERS)]

    def folder(self, number: int) -> FolderRow | None:
        """A folder by its number."""
        row = self.one(f"SELECT place, {PLACE_COLUMNS} FROM places WHERE owner = ? AND place = ?", number)
        return to_folder(row) if row else None

    def insert_folder(self, key: str, project: str, at: datetime) -> None:
        """Write the project of a new folder."""
        self.run(*self._guarded("places", PLACE_COLUMNS, [key, project, to_micros(at)]))

    def move_folder(self, place: FolderRow) -> None:
        """Write the new project of a folder."""
        values = [self.owner, place.key, place.project, to_micros(place.at)]
        self.run(
            "UPDATE places SET project = ?, row_hash = ? WHERE owner = ? AND place = ?",
            [place.project, row_hash(values), self.owner, place.number],
        )

    def insert_entry(self, at: datetime, details: Sequence[Any]) -> int:
        """Write one journal entry with its hash; its number."""
        return self._insert(*self._guarded("journal", JOURNAL_COLUMNS, [to_micros(at), *details]), "seq")

    def sealed_text(self, id: str, version: int) -> SealedRow | None:
        """The sealed text of one version."""
        row = self.one(f"SELECT {SEALED_COLUMNS} FROM secrets WHERE owner = ? AND id = ? AND version = ?", id, version)
        return SealedRow(*row) if row else None

    def insert_sealed(self, row: SealedRow) -> None:
        """Write a sealed text with its hash."""
        self.run(*self._guarded("secrets", SEALED_COLUMNS, row))

    def replace_sealed(self, row: SealedRow) -> None:
        """Write the same sealed text under another key."""
        self.run(
            "UPDATE secrets SET sealed = ?, row_hash = ? WHERE owner = ? AND id = ? AND version = ?",
            [row.blob, row_hash([self.owner, *row]), self.owner, row.id, row.version],
        )

    def state_of_keys(self) -> str | None:
        """A hash of the keys of the vault, where there are any."""
        row = self.one("SELECT value FROM documents WHERE owner = ? AND kind = ?", VAULT)
        return content_hash(json.loads(row[0])) if row else None

    def _guarded(self, table: str, columns: str, values: Sequence[Any]) -> tuple[str, list[Any]]:
        """The statement that inserts a row with its hash, and its values."""
        row = [self.owner, *values]
        row.append(row_hash(row))
        return f"INSERT INTO {table} (owner, {columns}, row_hash) VALUES ({_marks(row)})", row

    def _memory(self, sql: str, *bindings: Any) -> Memory | None:
        values = self.one(sql, *bindings)
        return to_memory(values) if values else None


def _marks(values: Sequence[Any]) -> str:
    return ",".join("?" * len(values))
