"""Store of one owner: reads in statements that every database understands, and the writes of each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from triskele.errors import BadInput
from triskele.replies import Census
from triskele.store.derived_rows import JobStore, ModelStore, VectorStore
from triskele.store.documents import DocumentStore
from triskele.store.name_rows import NameStore
from triskele.store.rows import (
    FOLDERS,
    JOURNAL_COLUMNS,
    LINK_COLUMNS,
    SEALED_COLUMNS,
    VERSION_COLUMNS,
    to_entry,
    to_folder,
    to_link,
    to_memory,
)
from triskele.store.statements import NEWEST_ENTRY, Dialect, OwnerDatabase
from triskele.store.usage import UsageStore
from triskele.store.values import START, ChangePage, Cursor, FolderRow, Heads, IntegrityIssue, LostWrites, SealedRow
from triskele.text.timestamps import to_micros
from triskele.types import USER, Change, JournalEntry, Link, LinkKind, Memory, Outcome, Scope, Sealed, Sort

if TYPE_CHECKING:
    from triskele.store.archive import ArchiveStore
    from triskele.store.corpus_protocol import CorpusStore
    from triskele.store.sharing import OwnerShares

# A condition on rows, and the values of its marks.
Condition = tuple[str, list[Any]]

_PAGE = 500
_ENDS = ("source", "target")
_NEVER = 2**62
_ORDERS = {
    Sort.RECENCY: "updated_at DESC, id DESC",
    Sort.IMPORTANCE: "importance DESC, updated_at DESC, id DESC",
}


class OwnerStore(ABC):
    """The memories of one owner in all their versions, links and the journal, changed only by `apply`.

    `vectors` are what models made of the contents, with the catalog, `models` what models have seen, `names` what
    memories mention, `jobs` work that waits, `documents` small JSON documents. `corpus` is None if only files next to
    the store can rank, `shares` if nothing is shared with other users.
    """

    # The columns of a version as its owner sees it, and the bytes that an owner takes.
    _COLUMNS: ClassVar[str] = VERSION_COLUMNS
    _SIZE: ClassVar[str]

    # Lets this thread read the store as of one moment; inside, nothing may be written.
    snapshot: Callable[[], AbstractContextManager[None]]
    # Names this run of the journal; a restored store begins another, in which older cursors mean nothing.
    epoch: Callable[[], str]
    vectors: VectorStore
    jobs: JobStore
    models: ModelStore
    documents: DocumentStore
    usage: UsageStore
    names: NameStore
    corpus: CorpusStore | None = None
    shares: OwnerShares | None = None

    def __init__(self, database: OwnerDatabase) -> None:
        self.owner = database.owner
        self._owner_database = database
        self._dialect = database.dialect
        self.vectors = VectorStore(database)
        self.jobs = JobStore(database)
        self.models = ModelStore(database)
        self.documents = DocumentStore(database)
        self.usage = UsageStore(database)

    @abstractmethod
    def apply(
        self, changes: Sequence[Change], *, batch: str, actor: str = USER, undoes: int | None = None
    ) -> list[Outcome]:
        """Carry out the changes and journal them, all in one durable transaction or none."""

    @abstractmethod
    def erase(self, ids: Sequence[str], *, batch: str, actor: str = USER) -> list[Outcome]:
        """Remove these memories, their links and the documents about them from every byte of the store."""

    @abstractmethod
    def seal(self, versions: Sequence[tuple[Memory, Sealed]], *, batch: str, actor: str = USER) -> Outcome:
        """Replace every version of a memory by its title and sealed text, and erase all that was derived."""

    @abstractmethod
    def reseal(self, blobs: Mapping[tuple[str, int], bytes]) -> None:
        """Replace sealed texts by the same texts under another key, and leave no byte of the old ones."""

    @abstractmethod
    def register_folder(self, keys: Sequence[str], choose: Callable[[Sequence[FolderRow]], str]) -> str:
        """Give keys without a project the one that `choose` finds for the known folders; return it."""

    def shorten(self, ids: Iterable[str], shortest: int = 8) -> dict[str, str]:
        """The shortest prefix of each id that no other id shares."""
        own = "FROM versions WHERE owner = ?1 AND id"
        rows = self._owner_database.all(
            f"SELECT value, (SELECT max(id) {own} < value), (SELECT min(id) {own} > value)"
            f" FROM {self._dialect.elements.format('?2')} ORDER BY key",
            list(ids),
        )
        return {id: _unique_prefix(id, neighbours, shortest) for id, *neighbours in rows}

    def sealed(self, ids: Sequence[str] | None = None) -> list[SealedRow]:
        """The sealed texts of some memories, or of all."""
        condition, bindings = ("", []) if ids is None else (f" AND id {self._dialect.listed}", [list(ids)])
        sql = f"SELECT {SEALED_COLUMNS} FROM secrets WHERE owner = ?{condition} ORDER BY id, version"
        return [SealedRow(*row) for row in self._owner_database.all(sql, *bindings)]

    def folders(self) -> list[FolderRow]:
        """The folders whose project is known, oldest first."""
        return [to_folder(row) for row in self._owner_database.all(FOLDERS)]

    def find(self, prefix: str, limit: int = 5) -> list[str]:
        """The ids that start with a prefix, forgotten ones included."""
        sql = "SELECT DISTINCT id FROM versions WHERE owner = ? AND id >= ? AND id < ? ORDER BY id LIMIT ?"
        return [row[0] for row in self._owner_database.all(sql, prefix, prefix + "\U0010ffff", limit)]

    def history(self, id: str) -> list[Memory]:
        """Every version of a memory, oldest first."""
        rows = self._owner_database.all(
            f"SELECT {self._COLUMNS} FROM versions WHERE owner = ? AND id = ? ORDER BY version", id
        )
        return [to_memory(row) for row in rows]

    def browse(self, scope: Scope, *, sort: Sort = Sort.RECENCY, limit: int = 50, offset: int = 0) -> list[Memory]:
        """Memories of a scope in order of recency or importance; none if the scope names another owner."""
        if sort not in _ORDERS:
            raise BadInput(f"memories cannot be listed by {sort}: choose one of {', '.join(_ORDERS)}")
        condition, bindings = in_scope(scope, self._dialect)
        rows = self._owner_database.all(
            f"SELECT {self._COLUMNS} FROM versions WHERE owner = ? AND {condition} ORDER BY {_ORDERS[sort]}"
            " LIMIT ? OFFSET ?",
            *bindings,
            limit,
            offset,
        )
        return [to_memory(row) for row in rows]

    def count(self, scope: Scope) -> int:
        """The number of memories that a scope contains."""
        condition, bindings = in_scope(scope, self._dialect)
        return int(
            self._owner_database.all(f"SELECT count(*) FROM versions WHERE owner = ? AND {condition}", *bindings)[0][0]
        )

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
        """The journal entries that became visible after a cursor: an owner has one writer at a time, so by number."""
        entries = self._entries(" AND seq > ? ORDER BY seq LIMIT ?", _seq(cursor), limit)
        if not entries:
            return ChangePage(entries, cursor)
        # A cursor names the time too: a number is given out again where writes were lost.
        return ChangePage(entries, Cursor(f"{entries[-1].seq}@{to_micros(entries[-1].at)}"))

    def holds(self, cursor: Cursor) -> bool:
        """Whether the journal has the entry that a cursor follows; it has not where writes were lost."""
        if cursor == START:
            return True
        _, _, at = cursor.partition("@")
        question = ("SELECT at FROM journal WHERE owner = ? AND seq = ?", _seq(cursor))
        # Another process may have written after the snapshot of this one.
        rows = self._owner_database.all(*question) or self._owner_database.all_now(*question)
        return bool(rows) and at in ("", str(rows[0][0]))

    def memories(self, ids: Iterable[str], *, known_at: datetime | None = None) -> dict[str, Memory]:
        """The versions that are current now, or were at a moment; forgotten and unknown ids are left out."""
        if not (wanted := list(ids)):
            return {}
        condition, bindings = standing(known_at)
        sql = f"SELECT {self._COLUMNS} FROM versions WHERE owner = ? AND id {self._dialect.listed} AND {condition}"
        rows = self._owner_database.all(f"{sql} ORDER BY version, id", wanted, *bindings)
        return {row[0]: to_memory(row) for row in rows}

    def rows(self, rows: Iterable[int]) -> dict[int, Memory]:
        """The versions behind the row numbers of an index."""
        listed, unindexed = self._dialect.listed, self._dialect.unindexed
        sql = f"SELECT row, {self._COLUMNS} FROM versions WHERE {unindexed}owner = ? AND row {listed} ORDER BY row"
        return {row[0]: to_memory(row[1:]) for row in self._owner_database.all(sql, list(map(int, rows)))}

    def heads(self, fingerprint: str = "") -> Heads:
        """How far the journal, the vectors of a model, mentions and jobs have come, all at one moment."""
        epoch, journal, *numbers = self._owner_database.heads(fingerprint)
        return Heads(epoch, Cursor(journal), *numbers)

    def superseding_ids(self, rows: Iterable[int]) -> dict[int, str]:
        """The ids behind those row numbers of an index whose memories replace others or were replaced, at any time."""
        if not self._owner_database.may_supersede():
            return {}
        links = "SELECT 1 FROM links WHERE links.owner = ?1 AND kind = 'supersedes'"
        ends = " OR ".join(f"EXISTS ({links} AND {end} = versions.id)" for end in _ENDS)
        listed = self._dialect.listed_as.format("?2")
        sql = f"SELECT row, id FROM versions WHERE {self._dialect.unindexed}owner = ?1 AND row {listed} AND ({ends})"
        return dict(self._owner_database.all(f"{sql} ORDER BY row", list(map(int, rows))))

    def versions(self, ids: Sequence[str] | None = None) -> Iterator[tuple[int, Memory]]:
        """Every version with its row number, of some memories or of all, in row order."""
        select, unindexed = f"SELECT row, {self._COLUMNS} FROM versions WHERE", self._dialect.unindexed
        if ids is not None:
            sql = f"{select} owner = ? AND id {self._dialect.listed} ORDER BY {unindexed}row"
            rows = self._owner_database.all(sql, list(ids)) if ids else ()
            yield from ((row[0], to_memory(row[1:])) for row in rows)
            return
        last = 0
        # Pages instead of one open statement: a slow consumer must not hold a transaction.
        while page := self._owner_database.all(
            f"{select} {unindexed}owner = ? AND row > ? ORDER BY row LIMIT ?", last, _PAGE
        ):
            yield from ((row[0], to_memory(row[1:])) for row in page)
            last = page[-1][0]

    def links(
        self, ids: Sequence[str], *, kind: LinkKind | None = None, known_at: datetime | None = None
    ) -> list[Link]:
        """The links of any of these memories that are open now, or were at a moment."""
        ids = self._owner_database.may_have_links(ids, kind)
        return [to_link(row) for row in self._link_rows(ids, kind, known_at)]

    def succession(self, ids: Iterable[str], depth: int, *, known_at: datetime | None = None) -> list[Link]:
        """The supersedes links of memories and of those up to a depth away, the nearest first."""
        links: dict[Any, None] = {}
        fringe, seen = set(ids), set[str]()
        for _ in range(depth + 1):
            rows = self._link_rows(sorted(fringe), LinkKind.SUPERSEDES, known_at)
            links |= dict.fromkeys(rows)
            seen |= fringe
            fringe = {end for source, _, target, *_ in rows for end in (source, target)} - seen
        return [to_link(row) for row in links]

    def _link_rows(self, ids: Sequence[str], kind: LinkKind | None, known_at: datetime | None) -> list[Any]:
        if not ids:
            return []
        condition, bindings = standing(known_at)
        if kind is not None:
            condition, bindings = condition + " AND kind = ?", [*bindings, kind.value]
        # Two lookups by index: a single one with OR reads every link of the owner.
        listed, value = self._dialect.listed, list(ids)
        ends = " UNION ".join(f"SELECT row FROM links WHERE owner = ? AND {end} {listed}" for end in _ENDS)
        sql = (
            f"SELECT {LINK_COLUMNS} FROM links WHERE {self._dialect.unindexed}owner = ? AND row IN ({ends})"
            f" AND {condition} ORDER BY row"
        )
        return self._owner_database.all(sql, self.owner, value, self.owner, value, *bindings)

    def all_links(self) -> Iterator[Link]:
        """Every link ever made, closed ones too, oldest first."""
        owned = f"{self._dialect.unindexed}owner = ?"
        for row in self._owner_database.all(f"SELECT {LINK_COLUMNS} FROM links WHERE {owned} ORDER BY row"):
            yield to_link(row)

    def position(self) -> Cursor:
        """The cursor after the newest journal entry; equal cursors mean an unchanged journal."""
        [[newest]] = self._owner_database.all(f"SELECT {NEWEST_ENTRY}")
        return Cursor(newest)

    def census(self) -> Census:
        """Counts of what is stored; `bytes` are the owner's part of them."""
        own = f"FROM versions WHERE owner = ?1{self._dialect.own}"
        current = f"SELECT id {own} AND known_to IS NULL"
        [row] = self._owner_database.all(
            f"SELECT (SELECT count(*) {own} AND known_to IS NULL), (SELECT count(DISTINCT id) {own}),"
            " (SELECT count(DISTINCT target) FROM links WHERE owner = ?1 AND kind = 'supersedes' AND known_to IS NULL"
            f" AND source IN ({current}) AND target IN ({current})), (SELECT count(*) {own}),"
            " (SELECT count(*) FROM links WHERE owner = ?1 AND known_to IS NULL),"
            f" (SELECT count(*) FROM journal WHERE owner = ?1), {self._SIZE}"
        )
        memories, ids, superseded, versions, links, journal, size = map(int, row)
        return Census(
            memories=memories,
            forgotten=ids - memories,
            superseded=superseded,
            versions=versions,
            links=links,
            journal=journal,
            bytes=size,
            by_category=self._groups("category"),
            by_project=self._groups("project"),
        )

    def _groups(self, column: str) -> dict[str, int]:
        rows = self._owner_database.all(
            f"SELECT {column}, count(*) FROM versions WHERE owner = ?{self._dialect.own} AND known_to IS NULL"
            " GROUP BY 1 ORDER BY 2 DESC, 1"
        )
        return {str(name): int(number) for name, number in rows}

    def _entries(self, condition: str, *bindings: Any) -> list[JournalEntry]:
        rows = self._owner_database.all(
            f"SELECT seq, {JOURNAL_COLUMNS} FROM journal WHERE owner = ?{condition}", *bindings
        )
        return [to_entry(row) for row in rows]


class Maintenance(ABC):
    """Care for the files of a store, of all owners together; `archive` makes archives of it and takes them."""

    archive: ArchiveStore

    @abstractmethod
    def check(self, *, deep: bool = False) -> list[IntegrityIssue]:
        """What is wrong with the truth; `deep` recomputes every hash."""

    @abstractmethod
    def backup(self, target: Path) -> None:
        """Write a consistent copy of the live store to a new file."""

    @abstractmethod
    def restore(self, source: Path) -> Path | None:
        """Replace everything by the content of a backup whose every hash matches; returns the path of the old content.

        An undamaged store is backed up first; the files of a damaged one are moved to a folder next to it.
        """

    def leftovers(self) -> list[Path]:
        """The copies that killed backups and restores left."""
        return []

    def remove_leftovers(self) -> list[Path]:
        """Remove the copies that killed backups and restores left; what was removed."""
        return []

    @abstractmethod
    def erase_from_copies(self, ids: Sequence[str], owner: str) -> list[Path]:
        """Erase memories from the copies next to the store, or remove whole copies; returns the copies concerned."""

    @abstractmethod
    def earlier_copies(self) -> list[Path]:
        """The copies that may hold erased memories: of restores, of killed processes, and backups made here."""

    def out_of_reach(self) -> list[str]:
        """Places besides files that an erasure cannot reach, in words; nothing if everything is in files."""
        return []

    def lost(self) -> list[LostWrites]:
        """Acknowledged writes that were lost, with what is still known of them."""
        return []

    @abstractmethod
    def scrub(self) -> None:
        """Leave no byte of deleted rows in the files."""

    @abstractmethod
    def is_scrubbed(self) -> bool:
        """Whether every erasure so far has reached the bytes of the files."""


class Store(Protocol):
    """A store that is bound to no owner yet."""

    @property
    def maintenance(self) -> Maintenance | None:
        """Care for its files; None if it has none."""

    def for_owner(self, owner: str) -> OwnerStore:
        """What one owner sees of the store."""

    def close(self) -> None:
        """Close every connection, of this thread and of others."""


def _seq(cursor: Cursor) -> int:
    return int(cursor.partition("@")[0] or 0)


def standing(known_at: datetime | None) -> Condition:
    """Rows that are current now, or were at a moment."""
    if known_at is None:
        return "known_to IS NULL", []
    moment = to_micros(known_at)
    return "known_from <= ? AND (known_to IS NULL OR known_to > ?)", [moment, moment]


def in_scope(scope: Scope, dialect: Dialect) -> Condition:
    """Versions that a scope contains."""
    condition, bindings = standing(scope.known_at)
    conditions, bindings = [condition, "owner = ?"], [*bindings, scope.owner]
    limits = {"project": scope.projects, "sensitivity": scope.sensitivities, "origin": scope.origins}
    for column, allowed in limits.items():
        if allowed is not None:
            conditions.append(f"{column} {dialect.listed}")
            bindings.append(sorted(map(str, allowed)))
    if scope.category is not None:
        conditions.append("category = ?")
        bindings.append(scope.category)
    for tag in sorted(scope.tags):
        condition, values = dialect.has_tag(tag)
        conditions.append(condition)
        bindings += values
    if not scope.any_time:
        moment = to_micros(scope.as_of)
        conditions.append("coalesce(valid_from, ?) <= ? AND (valid_to IS NULL OR valid_to > ?)")
        bindings += [moment, moment, moment]
    for sign, bound in ((">=", scope.since), ("<", scope.until)):
        if bound is not None:
            conditions.append(f"coalesce(valid_from, created_at) {sign} ?")
            bindings.append(to_micros(bound))
    return " AND ".join(conditions), bindings


def _unique_prefix(id: str, neighbours: Sequence[str | None], shortest: int) -> str:
    """The shortest prefix of an id that its neighbours in the order of ids do not share."""
    for length in range(shortest, len(id)):
        if not any(other is not None and other.startswith(id[:length]) for other in neighbours):
            return id[:length]
    return id
