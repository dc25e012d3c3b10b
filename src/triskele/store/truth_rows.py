"""The rows of one owner in one transaction, for the rules of writing: statements that every database understands.

A value is marked by `?`; a database with another mark translates. What differs in more than that is its own.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar

from triskele.store.protocols import VAULT, FolderRow, SealedRow
from triskele.store.rows import (
    JOURNAL_COLUMNS,
    LINK_COLUMNS,
    PLACE_COLUMNS,
    SEALED_COLUMNS,
    VERSION_COLUMNS,
    Row,
    from_link,
    from_memory,
    row_hash,
    to_link,
    to_memory,
    version_hash,
)
from triskele.text.ids import content_hash
from triskele.text.timestamps import from_micros, to_micros
from triskele.types import Action, Link, Memory, Sensitivity

FOLDERS = f"SELECT place, {PLACE_COLUMNS} FROM places WHERE owner = ? ORDER BY place"
_JOURNAL_MARKS = ",".join("?" * (len(JOURNAL_COLUMNS.split(",")) + 2))


class TruthRows(ABC):
    """Reads and writes rows for `Writer`; nothing is decided here."""

    # Takes the owner, a content hash and all else that makes two memories the same.
    _SAME_CONTENT: ClassVar[str]
    # An id as a value that is compared with ids of rows.
    ID_PARAMETER: ClassVar[str] = "?"
    # Whether a value is in the list that `_listed` makes.
    _LISTED: ClassVar[str]
    # Leaves out the versions that others share.
    _OWN: ClassVar[str] = ""

    def __init__(self, owner: str) -> None:
        self.owner = owner

    @abstractmethod
    def _run(self, sql: str, bindings: Sequence[Any]) -> Any:
        """Execute a statement; its cursor."""

    @abstractmethod
    def _listed(self, values: Sequence[Any]) -> Any:
        """A list as one value."""

    @abstractmethod
    def _insert_entry(self, sql: str, bindings: Sequence[Any]) -> int:
        """Insert a journal entry; its number."""

    @abstractmethod
    def clash(self, memory: Memory) -> int | None:
        """The version with the same number as a new one, else the current one if the new one is to be current too."""

    @abstractmethod
    def insert_version(self, memory: Memory) -> None:
        """Write one version with its hash, and queue what is to be derived from it."""

    @abstractmethod
    def withdraw(self, id: str) -> None:
        """Delete what hosted models and documents hold of the texts of a memory that must not leave any more."""

    @abstractmethod
    def mark_unscrubbed(self) -> None:
        """Remember that bytes of deleted rows may still be there."""

    @abstractmethod
    def delete_links(self, id: str) -> None:
        """Delete the links from and to a memory."""

    @abstractmethod
    def delete_memory(self, id: str) -> None:
        """Delete the versions of a memory, its sealed texts, its usage and the documents about it."""

    @abstractmethod
    def drop_unused(self) -> None:
        """Delete vectors, jobs and names that no version has any more."""

    def memory_limit(self, usual: int) -> int:
        """How many current memories the owner may have; 0 is no limit."""
        return usual

    def count_current(self) -> int:
        """How many memories of the owner are current."""
        [count] = self._one(f"SELECT count(*) FROM versions WHERE owner = ? AND known_to IS NULL{self._OWN}") or [0]
        return int(count)

    def additions_after(self, seq: int, batch: str) -> int | None:
        """How many memories were added or restored after a journal entry; None if the entry is not there."""
        found = self._one(
            "SELECT (SELECT count(*) FROM journal WHERE owner = ? AND seq > ?"
            f" AND action IN ('{Action.ADDED}', '{Action.RESTORED}'))"
            " FROM journal WHERE owner = ? AND seq = ? AND batch = ?",
            seq,
            self.owner,
            seq,
            batch,
        )
        return int(found[0]) if found else None

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

    def same_content(self, memory: Memory) -> Memory | None:
        """A current memory with the same content in the same place, secrets left out."""
        return self._memory(
            self._SAME_CONTENT,
            memory.content_hash,
            memory.project,
            memory.session,
            memory.position,
            memory.speaker,
            memory.role and memory.role.value,
            memory.valid_from and to_micros(memory.valid_from),
            memory.valid_to and to_micros(memory.valid_to),
            memory.content,
        )

    def version_numbers(self, id: str) -> list[int]:
        """The numbers of every version of a memory, oldest first."""
        sql = "SELECT version FROM versions WHERE owner = ? AND id = ? ORDER BY version"
        return [int(version) for (version,) in self._all(sql, id)]

    def end_version(self, memory: Memory) -> None:
        """Write when a version ended."""
        ended = memory.known_to and to_micros(memory.known_to)
        self._run(
            "UPDATE versions SET known_to = ?, row_hash = ? WHERE owner = ? AND id = ? AND version = ?",
            [ended, version_hash(from_memory(memory)), self.owner, memory.id, memory.version],
        )

    def close(self, id: str) -> None:
        """Make every open version of a memory private."""
        sql = f"SELECT {VERSION_COLUMNS} FROM versions WHERE owner = ? AND id = ? AND sensitivity = ?"
        for values in self._all(sql, id, Sensitivity.OPEN.value):
            closed = replace(to_memory(values), sensitivity=Sensitivity.PRIVATE)
            self._run(
                "UPDATE versions SET sensitivity = ?, row_hash = ? WHERE owner = ? AND id = ? AND version = ?",
                [closed.sensitivity.value, version_hash(from_memory(closed)), self.owner, id, closed.version],
            )

    def open_link(self, link: Link) -> tuple[int, Link] | None:
        """The open link of the same kind between the same memories, and its row number."""
        values = self._one(
            f"SELECT row, {LINK_COLUMNS} FROM links WHERE owner = ? AND source = ? AND kind = ? AND target = ?"
            " AND known_to IS NULL",
            link.source,
            link.kind.value,
            link.target,
        )
        return (values[0], to_link(values[1:])) if values else None

    def insert_link(self, link: Link) -> None:
        """Write a link with its hash."""
        values = [self.owner, *from_link(link)]
        self._run(
            f"INSERT INTO links (owner, {LINK_COLUMNS}, row_hash) VALUES (?,?,?,?,?,?,?)", [*values, row_hash(values)]
        )

    def end_link(self, row: int, link: Link) -> None:
        """Write when the link of a row ended."""
        values = [self.owner, *from_link(link)]
        self._run(
            "UPDATE links SET known_to = ?, row_hash = ? WHERE owner = ? AND row = ?",
            [values[-1], row_hash(values), self.owner, row],
        )

    def is_superseded_by(self, id: str, suspect: str) -> bool:
        """Whether `suspect` is a direct or indirect successor of `id`."""
        sql = (
            f"WITH RECURSIVE above (id) AS (SELECT {self.ID_PARAMETER} UNION SELECT links.source FROM links JOIN above"
            " ON links.owner = ? AND links.target = above.id WHERE links.kind = 'supersedes'"
            " AND links.known_to IS NULL) SELECT 1 FROM above WHERE id = ?"
        )
        return self._run(sql, [id, self.owner, suspect]).fetchone() is not None

    def folders(self) -> list[FolderRow]:
        """Every place whose project is known, oldest first."""
        return [to_folder(row) for row in self._all(FOLDERS)]

    def folder(self, number: int) -> FolderRow | None:
        """A place by its number."""
        found = self._one(f"SELECT place, {PLACE_COLUMNS} FROM places WHERE owner = ? AND place = ?", number)
        return to_folder(found) if found else None

    def insert_folder(self, key: str, project: str, at: datetime) -> None:
        """Write the project of a new place."""
        values = [self.owner, key, project, to_micros(at)]
        self._run(
            f"INSERT INTO places (owner, {PLACE_COLUMNS}, row_hash) VALUES (?,?,?,?,?)", [*values, row_hash(values)]
        )

    def move_folder(self, place: FolderRow) -> None:
        """Write the new project of a place."""
        values = [self.owner, place.key, place.project, to_micros(place.at)]
        self._run(
            "UPDATE places SET project = ?, row_hash = ? WHERE owner = ? AND place = ?",
            [place.project, row_hash(values), self.owner, place.number],
        )

    def insert_entry(self, at: datetime, told: Sequence[Any]) -> int:
        """Write one journal entry with its hash; its number."""
        values = [self.owner, to_micros(at), *told]
        sql = f"INSERT INTO journal (owner, {JOURNAL_COLUMNS}, row_hash) VALUES ({_JOURNAL_MARKS})"
        return self._insert_entry(sql, [*values, row_hash(values)])

    def sealed_text(self, id: str, version: int) -> SealedRow | None:
        """The sealed text of one version."""
        found = self._one(
            f"SELECT {SEALED_COLUMNS} FROM secrets WHERE owner = ? AND id = ? AND version = ?", id, version
        )
        return SealedRow(*found) if found else None

    def sealed_texts(self, ids: Sequence[str] | None) -> list[SealedRow]:
        """The sealed texts of some memories, or of all, by id and version."""
        condition, bindings = ("", []) if ids is None else (f" AND id {self._LISTED}", [self._listed(ids)])
        sql = f"SELECT {SEALED_COLUMNS} FROM secrets WHERE owner = ?{condition} ORDER BY id, version"
        return [SealedRow(*row) for row in self._all(sql, *bindings)]

    def insert_sealed(self, row: SealedRow) -> None:
        """Write a sealed text with its hash."""
        values = [self.owner, *row]
        self._run(
            f"INSERT INTO secrets (owner, {SEALED_COLUMNS}, row_hash) VALUES (?,?,?,?,?,?)", [*values, row_hash(values)]
        )

    def replace_sealed(self, row: SealedRow) -> None:
        """Write the same sealed text under another key."""
        self._run(
            "UPDATE secrets SET sealed = ?, row_hash = ? WHERE owner = ? AND id = ? AND version = ?",
            [row.blob, row_hash([self.owner, *row]), self.owner, row.id, row.version],
        )

    def state_of_keys(self) -> str | None:
        """A hash of the keys of the vault, where there are any."""
        found = self._one("SELECT value FROM documents WHERE owner = ? AND kind = ?", VAULT)
        return content_hash(json.loads(found[0])) if found else None

    def _memory(self, sql: str, *bindings: Any) -> Memory | None:
        values = self._one(sql, *bindings)
        return to_memory(values) if values else None

    def _one(self, sql: str, *bindings: Any) -> Row | None:
        found: Row | None = self._run(sql, [self.owner, *bindings]).fetchone()
        return found

    def _all(self, sql: str, *bindings: Any) -> list[Row]:
        found: list[Row] = self._run(sql, [self.owner, *bindings]).fetchall()
        return found


def to_folder(row: Row) -> FolderRow:
    """A place from its number and its columns."""
    return FolderRow(row[0], row[1], row[2], from_micros(row[3]))
