"""The store of a personal machine: one SQLite file, through apsw, bound to one owner before it is used."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from triskele.base import timestamps
from triskele.errors import BadInput
from triskele.stores.protocols import START, Census, ChangePage, Cursor, SealedRow
from triskele.stores.sqlite import maintenance, secrets
from triskele.stores.sqlite.changes import Writer
from triskele.stores.sqlite.database import Database
from triskele.stores.sqlite.documents import SqliteDocuments
from triskele.stores.sqlite.entities import SqliteEntities
from triskele.stores.sqlite.maintenance import SqliteMaintenance
from triskele.stores.sqlite.ownership import FIRST
from triskele.stores.sqlite.rows import JOURNAL_COLUMNS, LINK_COLUMNS, VERSION_COLUMNS, to_entry, to_link, to_memory
from triskele.stores.sqlite.usage import SqliteUsage
from triskele.stores.sqlite.vectors import SqliteJobs, SqliteModels, SqliteVectors
from triskele.types import USER, Change, JournalEntry, Link, LinkKind, Memory, Outcome, Scope, Sealed, Sort

_CHUNK = 500
_NEVER = 2**62
# One text for lists of any length, so that the statement is prepared once.
_LISTED = "SELECT value FROM json_each(?)"
_ORDERS = {
    Sort.RECENCY: "updated_at DESC, id DESC",
    Sort.IMPORTANCE: "importance DESC, updated_at DESC, id DESC",
}


class SqliteStore:
    """One file with the memories of any number of owners; `owner` gets the rows of an older format that had none."""

    def __init__(
        self, path: Path, *, busy_timeout_s: float = 30.0, owner: str = FIRST, traces: Sequence[Path] = ()
    ) -> None:
        self._database = Database(path, busy_timeout_s=busy_timeout_s, owner=owner, traces=traces)
        self._bound: dict[str, SqliteOwnerStore] = {}
        self._lock = threading.Lock()
        self.maintenance = SqliteMaintenance(self._database, owner)

    def of(self, owner: str) -> SqliteOwnerStore:
        """What one owner sees of the store."""
        with self._lock:
            if owner not in self._bound:
                self._bound[owner] = SqliteOwnerStore(self._database, owner)
            return self._bound[owner]

    def close(self) -> None:
        """Write the usage that waits, and close every connection."""
        for bound in self._bound.values():
            bound.usage.flush()
        self._database.close()


class SqliteOwnerStore:
    """The memories of one owner; every statement names the owner."""

    def __init__(self, database: Database, owner: str) -> None:
        self.owner = owner
        self._database = database
        # These concern the file: they are the same for every owner.
        self.epoch = database.epoch
        self.snapshot = database.snapshot
        self.vectors = SqliteVectors(database, owner)
        self.entities = SqliteEntities(database, owner)
        self.jobs = SqliteJobs(database, owner)
        self.models = SqliteModels(database, owner)
        self.documents = SqliteDocuments(database, owner)
        self.usage = SqliteUsage(database, owner)

    def apply(
        self, changes: Sequence[Change], *, batch: str, actor: str = USER, undoes: int | None = None
    ) -> list[Outcome]:
        """Carry out the changes and journal them, all in one durable transaction or none."""
        with self._database.writing() as connection:
            writer = Writer(connection, self.owner, timestamps.now(), batch, actor, undoes)
            return [writer.apply(change) for change in changes]

    def erase(self, ids: Sequence[str], *, batch: str, actor: str = USER) -> list[Outcome]:
        """Remove these memories, their links and the documents about them from every byte of the store."""
        with self._database.writing() as connection:
            outcomes = maintenance.erase(Writer(connection, self.owner, timestamps.now(), batch, actor), ids)
        self._scrub()
        return outcomes

    def seal(self, versions: Sequence[tuple[Memory, Sealed]], *, batch: str, actor: str = USER) -> Outcome:
        """Replace every version of a memory by its title and sealed text, and erase all that was derived."""
        with self._database.writing() as connection:
            outcome = maintenance.seal(Writer(connection, self.owner, timestamps.now(), batch, actor), versions)
        self._scrub()
        return outcome

    def sealed(self, ids: Sequence[str] | None = None) -> list[SealedRow]:
        """The sealed texts of some memories, or of all."""
        with self._database.reading() as connection:
            return secrets.read(connection, self.owner, ids)

    def reseal(self, blobs: Mapping[tuple[str, int], bytes]) -> None:
        """Replace sealed texts by the same texts under another key, and leave no byte of the old ones."""
        with self._database.writing() as connection:
            maintenance.mark_unscrubbed(connection)
            secrets.replace(connection, self.owner, blobs)
        self._scrub()

    def find(self, prefix: str, limit: int = 5) -> list[str]:
        """The ids that start with a prefix, forgotten ones included."""
        rows = self._all(
            "SELECT DISTINCT id FROM versions WHERE owner = ? AND id >= ? AND id < ? ORDER BY id LIMIT ?",
            prefix,
            prefix + "\U0010ffff",
            limit,
        )
        return [row[0] for row in rows]

    def shorten(self, ids: Iterable[str], shortest: int = 8) -> dict[str, str]:
        """The shortest prefix of each id that no other id shares."""
        return {id: id[: max(shortest, self._shared_with_neighbours(id) + 1)] for id in ids}

    def memories(self, ids: Iterable[str], *, known_at: datetime | None = None) -> dict[str, Memory]:
        """The versions that stand now, or stood at a moment; forgotten and unknown ids are left out."""
        condition, bindings = _standing(known_at)
        found: dict[str, Memory] = {}
        for chunk in _chunks(list(ids)):
            sql = (
                f"SELECT {VERSION_COLUMNS} FROM versions WHERE owner = ? AND id IN ({_marks(chunk)}) AND {condition}"
                " ORDER BY version"
            )
            found |= {row[0]: to_memory(row) for row in self._all(sql, *chunk, *bindings)}
        return found

    def history(self, id: str) -> list[Memory]:
        """Every version of a memory, oldest first."""
        rows = self._all(f"SELECT {VERSION_COLUMNS} FROM versions WHERE owner = ? AND id = ? ORDER BY version", id)
        return [to_memory(row) for row in rows]

    def rows(self, rows: Iterable[int]) -> dict[int, Memory]:
        """The versions behind the row numbers of an index."""
        found: dict[int, Memory] = {}
        for chunk in _chunks(list(rows)):
            sql = f"SELECT row, {VERSION_COLUMNS} FROM versions WHERE +owner = ? AND row IN ({_LISTED})"
            found |= {row[0]: to_memory(row[1:]) for row in self._all(sql, json.dumps(chunk))}
        return found

    def importance(self, rows: Iterable[int]) -> dict[int, tuple[str, float]]:
        """The id and the importance of the versions behind the row numbers of an index."""
        sql = f"SELECT row, id, importance FROM versions WHERE +owner = ? AND row IN ({_LISTED})"
        return {row: (id, importance) for row, id, importance in self._all(sql, json.dumps(list(rows)))}

    def versions(self, ids: Sequence[str] | None = None) -> Iterator[tuple[int, Memory]]:
        """Every version with its row number, of some memories or of all, in row order."""
        if ids is not None:
            sql = f"SELECT row, {VERSION_COLUMNS} FROM versions WHERE owner = ? AND id IN "
            found = [row for chunk in _chunks(ids) for row in self._all(f"{sql} ({_marks(chunk)})", *chunk)]
            yield from ((row[0], to_memory(row[1:])) for row in sorted(found))
            return
        last = 0
        # Pages instead of one open statement: a slow consumer must not hold a read transaction.
        # The plus keeps SQLite from reading by owner and sorting: most files have one owner.
        while page := self._all(
            f"SELECT row, {VERSION_COLUMNS} FROM versions WHERE +owner = ? AND row > ? ORDER BY row LIMIT ?",
            last,
            _CHUNK,
        ):
            yield from ((row[0], to_memory(row[1:])) for row in page)
            last = page[-1][0]

    def links(
        self, ids: Sequence[str], *, kind: LinkKind | None = None, known_at: datetime | None = None
    ) -> list[Link]:
        """The links that touch any of these memories and stand now, or stood at a moment."""
        condition, bindings = _standing(known_at)
        if kind is not None:
            condition, bindings = condition + " AND kind = ?", [*bindings, kind.value]
        found: dict[int, Link] = {}
        for chunk in _chunks(ids):
            for end in ("source", "target"):
                sql = f"SELECT row, {LINK_COLUMNS} FROM links WHERE owner = ? AND {end} IN ({_LISTED}) AND {condition}"
                found |= {row[0]: to_link(row[1:]) for row in self._all(sql, json.dumps(list(chunk)), *bindings)}
        return [found[row] for row in sorted(found)]

    def all_links(self) -> Iterator[Link]:
        """Every link ever made, closed ones too, oldest first."""
        for row in self._all(f"SELECT {LINK_COLUMNS} FROM links WHERE +owner = ? ORDER BY row"):
            yield to_link(row)

    def browse(self, scope: Scope, *, sort: Sort = Sort.RECENCY, limit: int = 50, offset: int = 0) -> list[Memory]:
        """Memories of a scope in order of recency or importance; none where the scope names another owner."""
        if sort not in _ORDERS:
            raise BadInput(f"memories cannot be listed by {sort}: choose one of {', '.join(_ORDERS)}")
        condition, bindings = _in_scope(scope)
        rows = self._all(
            f"SELECT {VERSION_COLUMNS} FROM versions WHERE owner = ? AND {condition} ORDER BY {_ORDERS[sort]}"
            " LIMIT ? OFFSET ?",
            *bindings,
            limit,
            offset,
        )
        return [to_memory(row) for row in rows]

    def journal(self, *, id: str | None = None, batch: str | None = None, limit: int = 1000) -> list[JournalEntry]:
        """Journal entries of all, of one memory or of one batch, oldest first."""
        condition, bindings = "", list[Any]()
        if id is not None:
            condition, bindings = " AND (id = ? OR other = ?)", [id, id]
        if batch is not None:
            condition, bindings = condition + " AND batch = ?", [*bindings, batch]
        return self._entries(f"{condition} ORDER BY seq LIMIT ?", *bindings, limit)

    def newest_entries(self, *, before: int | None = None, limit: int = 1) -> list[JournalEntry]:
        """The newest journal entries, newest first; `before` continues behind an entry, by its number."""
        return self._entries(" AND seq < ? ORDER BY seq DESC LIMIT ?", _NEVER if before is None else before, limit)

    def changes_since(self, cursor: Cursor, limit: int = 1000) -> ChangePage:
        """The journal entries that became visible after a cursor: a file has one writer, so in order of numbers."""
        entries = self._entries(" AND seq > ? ORDER BY seq LIMIT ?", int(cursor or 0), limit)
        return ChangePage(entries, Cursor(entries[-1].seq) if entries else cursor)

    def position(self) -> Cursor:
        """The cursor after the newest journal entry."""
        newest = self._database.once("SELECT max(seq) FROM journal WHERE owner = ?", [self.owner])[0][0]
        return START if newest is None else Cursor(newest)

    def census(self) -> Census:
        """Counts of what is stored."""

        def count(sql: str, *bindings: str) -> int:
            return int(self._all(sql, *bindings)[0][0])

        current = "FROM versions WHERE owner = ?1 AND known_to IS NULL"
        memories, versions = count(f"SELECT count(*) {current}"), count("SELECT count(*) FROM versions WHERE owner = ?")
        return Census(
            memories=memories,
            forgotten=count("SELECT count(DISTINCT id) FROM versions WHERE owner = ?") - memories,
            superseded=count(
                "SELECT count(DISTINCT target) FROM links WHERE owner = ?1 AND kind = 'supersedes' AND known_to IS NULL"
                f" AND source IN (SELECT id {current}) AND target IN (SELECT id {current})"
            ),
            versions=versions,
            links=count("SELECT count(*) FROM links WHERE owner = ? AND known_to IS NULL"),
            journal=count("SELECT count(*) FROM journal WHERE owner = ?"),
            bytes=self._share(versions),
            by_category=self._groups("category"),
            by_project=self._groups("project"),
        )

    def _groups(self, column: str) -> dict[str, int]:
        sql = (
            f"SELECT {column}, count(*) FROM versions WHERE owner = ? AND known_to IS NULL GROUP BY 1"
            " ORDER BY 2 DESC, 1"
        )
        return {str(name): int(number) for name, number in self._all(sql)}

    def _share(self, versions: int) -> int:
        """The part of the file that belongs to this owner, by the number of versions; all of it for a sole owner."""
        with self._database.reading() as connection:
            size: int = connection.pragma("page_count") * connection.pragma("page_size")
            total = int(connection.execute("SELECT count(*) FROM versions").get)
        return size if versions == total else round(size * versions / total)

    def _scrub(self) -> None:
        with self._database.reading() as connection:
            maintenance.scrub(connection)

    def _entries(self, condition: str, *bindings: Any) -> list[JournalEntry]:
        rows = self._all(f"SELECT seq, {JOURNAL_COLUMNS} FROM journal WHERE owner = ?{condition}", *bindings)
        return [to_entry(row) for row in rows]

    def _all(self, sql: str, *bindings: Any) -> list[Any]:
        return self._database.all(sql, [self.owner, *bindings])

    def _shared_with_neighbours(self, id: str) -> int:
        own = "FROM versions WHERE owner = ?1 AND id"
        rows = self._all(f"SELECT (SELECT max(id) {own} < ?2), (SELECT min(id) {own} > ?2)", id)
        return max((_common_prefix(id, other) for other in rows[0] if other), default=0)


def _standing(known_at: datetime | None) -> tuple[str, list[Any]]:
    if known_at is None:
        return "known_to IS NULL", []
    moment = timestamps.to_micros(known_at)
    return "known_from <= ? AND (known_to IS NULL OR known_to > ?)", [moment, moment]


def _in_scope(scope: Scope) -> tuple[str, list[Any]]:
    condition, bindings = _standing(scope.known_at)
    conditions, bindings = [condition, "owner = ?"], [*bindings, scope.owner]
    if scope.projects is not None:
        projects = sorted(scope.projects)
        conditions.append(f"project IN ({_marks(projects)})")
        bindings += projects
    for column, allowed in (("sensitivity", scope.sensitivities), ("origin", scope.origins)):
        if allowed is not None:
            conditions.append(f"{column} IN ({_marks(sorted(allowed))})")
            bindings += sorted(map(str, allowed))
    if scope.category is not None:
        conditions.append("category = ?")
        bindings.append(scope.category)
    for tag in sorted(scope.tags):
        conditions.append("EXISTS (SELECT 1 FROM json_each(versions.tags) WHERE value = ?)")
        bindings.append(tag)
    if not scope.any_time:
        moment = timestamps.to_micros(scope.as_of)
        conditions.append("coalesce(valid_from, ?) <= ? AND (valid_to IS NULL OR valid_to > ?)")
        bindings += [moment, moment, moment]
    return " AND ".join(conditions), bindings


def _marks(values: Sequence[Any]) -> str:
    return ",".join("?" * len(values))


def _chunks(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(values), _CHUNK):
        yield values[start : start + _CHUNK]


def _common_prefix(one: str, other: str) -> int:
    length = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        length += 1
    return length
