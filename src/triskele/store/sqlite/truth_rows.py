"""The rows of one owner in one SQLite file: the statements that are specific to SQLite."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import apsw

from triskele.store.sqlite.database import DIALECT, bound
from triskele.store.truth_rows import TruthRows
from triskele.store.values import Named
from triskele.types import Memory

# The name of the mark of a file that may still hold bytes of deleted rows.
UNSCRUBBED = "unscrubbed"
_LISTED = DIALECT.listed_as.format("?2")


class SqliteRows(TruthRows):
    """Rows of a file."""

    dialect = DIALECT

    def __init__(self, connection: apsw.Connection, owner: str) -> None:
        super().__init__(owner)
        self.connection = connection

    def run(self, sql: str, bindings: Sequence[Any]) -> apsw.Cursor:
        """Execute a statement; its cursor."""
        return self.connection.execute(sql, bound(bindings))

    def changed(self, sql: str, bindings: Sequence[Any]) -> int:
        """Execute a statement; how many rows it changed."""
        self.connection.execute(sql, bound(bindings))
        return self.connection.changes()

    def _insert(self, sql: str, bindings: Sequence[Any], number: str) -> int:  # noqa: ARG002 - every number is a rowid
        self.connection.execute(sql, bindings)
        return self.connection.last_insert_rowid()

    def clash(self, memory: Memory) -> int | None:
        """The version with the same number as a new one, else the current one if the new one is to be current too."""
        # Two lookups by index cost a quarter of one that sorts what either finds.
        if self.one("SELECT 1 FROM versions WHERE owner = ? AND id = ? AND version = ?", memory.id, memory.version):
            return memory.version
        current = self.current(memory.id) if memory.known_to is None else None
        return None if current is None else current.version

    def mark_unscrubbed(self) -> None:
        """Remember that bytes of deleted rows may still be in the files."""
        self.run("INSERT OR REPLACE INTO meta VALUES (?, '')", [UNSCRUBBED])

    def delete_about(self, ids: Sequence[str]) -> None:
        """Delete every document that is about any of some memories."""
        self.run(
            f"DELETE FROM documents WHERE owner = ?1 AND EXISTS (SELECT 1 FROM json_each(about) WHERE value {_LISTED})",
            [self.owner, list(ids)],
        )

    def insert_vectors(
        self,
        fingerprint: str,
        vectors: Mapping[str, bytes],
        tokens: Mapping[str, bytes],  # noqa: ARG002 - not kept here
    ) -> None:
        """Write a model's vectors by content hash, without contents erased meanwhile."""
        self.connection.executemany(
            "INSERT OR IGNORE INTO vectors (owner, content_hash, fingerprint, vector) SELECT ?1, ?2, ?3, ?4"
            " WHERE EXISTS (SELECT 1 FROM versions WHERE owner = ?1 AND content_hash = ?2)",
            [(self.owner, digest, fingerprint, vector) for digest, vector in vectors.items()],
        )

    def put_name(self, named: Named) -> int:
        """Write a name, or what is new about it; its number."""
        row = self.one("SELECT name, any_case, spread FROM names WHERE owner = ? AND key = ?", named.key)
        if row is None:
            name = self._insert(
                "INSERT INTO names (owner, key, block, text, any_case, spread, concept) VALUES (?, ?, ?, ?, ?, ?, 0)",
                [self.owner, named.key, named.block, named.text, named.any_case, named.spread],
                "name",
            )
            self.run("UPDATE names SET concept = name WHERE name = ?", [name])
            return name
        number, any_case, spread = row
        if (named.any_case and not any_case) or named.spread > spread:
            self.run(
                "UPDATE names SET any_case = max(any_case, ?), spread = max(spread, ?) WHERE name = ?",
                [named.any_case, named.spread, number],
            )
        return int(number)

    def add_mentions(self, row: int, mentions: Sequence[tuple[int, str]]) -> None:
        """Write what a version mentions, as (name, kind), without the names that it mentions already."""
        readings: list[Any] = self.run("SELECT names FROM readings WHERE row = ?", [row]).fetchall()
        mentioned = {name for (names,) in readings for numbers in json.loads(names).values() for name in numbers}
        fresh: dict[str, list[int]] = {}
        for name, kind in mentions:
            if name not in mentioned:
                mentioned.add(name)
                fresh.setdefault(kind, []).append(name)
        if fresh:
            self.run(
                "INSERT INTO readings SELECT coalesce(max(seq), 0) + ?, ?, ?, ? FROM sqlite_sequence"
                " WHERE name = 'readings'",
                [sum(map(len, fresh.values())), self.owner, row, json.dumps(fresh, separators=(",", ":"))],
            )

    def drop_mentions(self) -> list[int]:
        """Delete the mentions of erased versions, and names without mentions; the names that were mentioned."""
        gone = "SELECT row FROM readings WHERE owner = ?1 EXCEPT SELECT row FROM versions"
        names = [name for (name,) in self.all(f"SELECT DISTINCT name FROM mentions WHERE row IN ({gone})")]
        self.run(f"DELETE FROM readings WHERE row IN ({gone})", [self.owner])
        self.run(
            "DELETE FROM names WHERE owner = ?1 AND name NOT IN (SELECT name FROM mentions WHERE owner = ?1)",
            [self.owner],
        )
        return names

    def respell(self, names: Sequence[int]) -> None:
        """Replace the spelling of names that no version holds any more by their key."""
        self.run(
            # Mentions are looked through once for all of these names.
            f"WITH holders AS MATERIALIZED (SELECT row, name FROM mentions WHERE owner = ?1 AND name {_LISTED})"
            f" UPDATE names SET text = key WHERE name {_LISTED} AND NOT EXISTS (SELECT 1 FROM holders"
            " JOIN versions USING (row) WHERE holders.name = names.name AND"
            " instr(content || char(10) || keywords || char(10) || tags, text))",
            [self.owner, list(names)],
        )

    def has_old_conversations(self, kept: int, kept_when_over: int, most: int) -> bool:
        """Whether conversations may be older than two moments, or more than a number."""
        # A look is cheaper than the deletion, which sorts all of them and looks through all fingerprints: some more
        # than `most` may gather, so that a full table is not swept at every new conversation.
        due = "SELECT count(*) > ? OR min(at) < ? OR min(iif(ended, at, NULL)) < ? FROM conversations WHERE owner = ?"
        return bool(self.run(due, [most + most // 10, kept, kept_when_over, self.owner]).get)
