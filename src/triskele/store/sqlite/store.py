"""The store of a personal machine: one SQLite file, through apsw, bound to one owner before it is used."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import apsw

from triskele.errors import StoreUnavailable
from triskele.replies import Census
from triskele.store.derived import EMBED, MOST_TRIES, NAMES
from triskele.store.protocols import Cursor, FolderRow, Heads, SealedRow
from triskele.store.reads import Condition, OwnerReads, Wording, common_prefix, standing
from triskele.store.rows import LINK_COLUMNS, VERSION_COLUMNS, to_link, to_memory
from triskele.store.sqlite import lost_writes, maintenance
from triskele.store.sqlite.database import Database, listed
from triskele.store.sqlite.documents import SqliteDocuments
from triskele.store.sqlite.maintenance import SqliteMaintenance
from triskele.store.sqlite.names import SqliteNames
from triskele.store.sqlite.truth_rows import SqliteRows
from triskele.store.sqlite.usage import SqliteUsage
from triskele.store.sqlite.vectors import SqliteJobs, SqliteModels, SqliteVectors
from triskele.store.truth_rows import FOLDERS, to_folder
from triskele.store.writer import MemoryLimits, Writer, register_folders, replace_sealed
from triskele.text import timestamps
from triskele.types import USER, Change, Link, LinkKind, Memory, Outcome, Sealed

_PAGE = 500
_LISTED, _IDS = listed(), listed("?2")
# What a recall asks of links and memories; other moments are rare.
_NOW = standing(None)

_NEWEST_ENTRY = "coalesce((SELECT seq || '@' || at FROM journal WHERE owner = ?1 ORDER BY seq DESC LIMIT 1), '')"
_HEADS = (
    _NEWEST_ENTRY,
    "(SELECT coalesce(max(slot), 0) FROM vectors INDEXED BY vector_model WHERE owner = ?1 AND fingerprint = ?2)",
    "(SELECT coalesce(max(mention), 0) FROM readings WHERE owner = ?1)",
    "(SELECT coalesce(max(merge), 0) FROM merges WHERE owner = ?1)",
    *(
        f"(SELECT count(*) FROM jobs WHERE owner = ?1 AND kind = '{kind}' AND tries < {MOST_TRIES})"
        for kind in (EMBED, NAMES)
    ),
)

# How long a writer waits for another one.
BUSY_TIMEOUT_S = 30.0


class SqliteStore:
    """One file with the memories of any number of owners."""

    def __init__(
        self,
        path: Path,
        *,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        traces: Sequence[Path] = (),
        limits: MemoryLimits | None = None,
    ) -> None:
        self._limits = limits
        self._database = Database(path, busy_timeout_s=busy_timeout_s, traces=traces)
        self._bound: dict[str, SqliteOwnerStore] = {}
        self._lock = threading.Lock()
        self.maintenance = SqliteMaintenance(self._database)
        self.maintenance.give_back()

    def for_owner(self, owner: str) -> SqliteOwnerStore:
        """What one owner sees of the store."""
        with self._lock:
            if owner not in self._bound:
                self._bound[owner] = SqliteOwnerStore(self._database, owner, self._limits)
            return self._bound[owner]

    def close(self) -> None:
        """Write the usage that waits, and close every connection."""
        for bound in self._bound.values():
            bound.usage.flush()
        self._database.close()


def _one_of(column: str, values: Sequence[str]) -> Condition:
    return f"{column} IN ({','.join('?' * len(values))})", list(values)


def _has_tag(tag: str) -> Condition:
    return "EXISTS (SELECT 1 FROM json_each(versions.tags) WHERE value = ?)", [tag]


class SqliteOwnerStore(OwnerReads):
    """The memories of one owner; every statement names the owner."""

    _WORDING = Wording(_one_of, _has_tag)

    def __init__(self, database: Database, owner: str, limits: MemoryLimits | None = None) -> None:
        self.owner = owner
        self._limits = limits
        self._database = database
        # These concern the file: they are the same for every owner.
        self.epoch = database.epoch
        self.snapshot = database.snapshot
        self.vectors = SqliteVectors(database, owner)
        self.names = SqliteNames(database, owner)
        self.corpus = None
        self.shares = None
        self.jobs = SqliteJobs(database, owner)
        self.models = SqliteModels(database, owner)
        self.documents = SqliteDocuments(database, owner)
        self.usage = SqliteUsage(database, owner)

    def apply(
        self, changes: Sequence[Change], *, batch: str, actor: str = USER, undoes: int | None = None
    ) -> list[Outcome]:
        """Carry out the changes and journal them, all in one durable transaction or none."""
        with self._journaled() as (rows, at, outcomes):
            writer = Writer(rows, at, batch, actor, undoes, self._limits)
            outcomes += [writer.apply(change) for change in changes]
            writer.hold_limit()
        return outcomes

    def erase(self, ids: Sequence[str], *, batch: str, actor: str = USER) -> list[Outcome]:
        """Remove these memories, their links and the documents about them from every byte of the store."""
        with self._journaled() as (rows, at, outcomes):
            outcomes += Writer(rows, at, batch, actor).erase(ids)
        self._scrub("erased")
        return outcomes

    def seal(self, versions: Sequence[tuple[Memory, Sealed]], *, batch: str, actor: str = USER) -> Outcome:
        """Replace every version of a memory by its title and sealed text, and erase all that was derived."""
        with self._journaled() as (rows, at, outcomes):
            outcomes.append(Writer(rows, at, batch, actor).seal(versions))
        self._scrub("sealed")
        return outcomes[0]

    @contextmanager
    def _journaled(self) -> Iterator[tuple[SqliteRows, datetime, list[Outcome]]]:
        """A transaction whose outcomes go to the ledger once it is durable."""
        at, outcomes = timestamps.now(), list[Outcome]()
        with self._database.writing() as connection:
            yield SqliteRows(connection, self.owner), at, outcomes
        lost_writes.note(self._database.path, self.epoch(), at, outcomes)

    def sealed(self, ids: Sequence[str] | None = None) -> list[SealedRow]:
        """The sealed texts of some memories, or of all."""
        with self._database.reading() as connection:
            return SqliteRows(connection, self.owner).sealed_texts(ids)

    def reseal(self, blobs: Mapping[tuple[str, int], bytes]) -> None:
        """Replace sealed texts by the same texts under another key, and leave no byte of the old ones."""
        with self._database.writing() as connection:
            replace_sealed(SqliteRows(connection, self.owner), blobs)
        self._scrub("encrypted again")

    def folders(self) -> list[FolderRow]:
        """The places whose project is known, oldest first."""
        return [to_folder(row) for row in self._database.kept(FOLDERS, [self.owner])]

    def register_folder(self, keys: Sequence[str], choose: Callable[[Sequence[FolderRow]], str]) -> str:
        """Give keys without a project the one that is chosen among the places of that moment, and return it."""
        with self._database.writing() as connection:
            return register_folders(SqliteRows(connection, self.owner), keys, choose, timestamps.now())

    def shorten(self, ids: Iterable[str], shortest: int = 8) -> dict[str, str]:
        """The shortest prefix of each id that no other id shares."""
        return {id: id[: max(shortest, self._shared_with_neighbours(id) + 1)] for id in ids}

    def memories(self, ids: Iterable[str], *, known_at: datetime | None = None) -> dict[str, Memory]:
        """The versions that are current now, or were at a moment; forgotten and unknown ids are left out."""
        condition, bindings = _NOW if known_at is None else standing(known_at)
        if not (listed := list(ids)):
            return {}
        sql = (
            f"SELECT {VERSION_COLUMNS} FROM versions WHERE owner = ? AND id {_LISTED} AND {condition} ORDER BY version"
        )
        return {row[0]: to_memory(row) for row in self._all(sql, json.dumps(listed), *bindings)}

    def rows(self, rows: Iterable[int]) -> dict[int, Memory]:
        """The versions behind the row numbers of an index."""
        sql = f"SELECT row, {VERSION_COLUMNS} FROM versions WHERE +owner = ? AND row {_LISTED}"
        return {row[0]: to_memory(row[1:]) for row in self._all(sql, json.dumps(list(rows)))}

    def superseding_ids(self, rows: Iterable[int]) -> dict[int, str]:
        """The ids behind those row numbers of an index whose memories replace others or were replaced, at any time."""
        if not self._has_links():
            return {}
        links = "SELECT 1 FROM links WHERE links.owner = ?1 AND kind = 'supersedes'"
        ends = " OR ".join(f"EXISTS ({links} AND {end} = versions.id)" for end in ("source", "target"))
        sql = f"SELECT row, id FROM versions WHERE +owner = ?1 AND row {_IDS} AND ({ends})"
        return dict(self._all(sql, json.dumps(list(rows))))

    def _has_links(self) -> bool:
        """Many stores have none at all: one look saves two for each memory."""
        sql = "SELECT EXISTS (SELECT 1 FROM links WHERE owner = ?)"
        return self._database.kept(sql, [self.owner]) != [(0,)]

    def versions(self, ids: Sequence[str] | None = None) -> Iterator[tuple[int, Memory]]:
        """Every version with its row number, of some memories or of all, in row order."""
        if ids is not None:
            sql = f"SELECT row, {VERSION_COLUMNS} FROM versions WHERE owner = ? AND id {_LISTED} ORDER BY +row"
            yield from ((row[0], to_memory(row[1:])) for row in self._all(sql, json.dumps(list(ids))))
            return
        last = 0
        # Pages instead of one open statement: a slow consumer must not hold a read transaction.
        # The plus keeps SQLite from reading by owner and sorting: most files have one owner.
        while page := self._all(
            f"SELECT row, {VERSION_COLUMNS} FROM versions WHERE +owner = ? AND row > ? ORDER BY row LIMIT ?",
            last,
            _PAGE,
        ):
            yield from ((row[0], to_memory(row[1:])) for row in page)
            last = page[-1][0]

    def links(
        self, ids: Sequence[str], *, kind: LinkKind | None = None, known_at: datetime | None = None
    ) -> list[Link]:
        """The links of any of these memories that are open now, or were at a moment."""
        if not self._has_links():
            return []
        condition, bindings = _NOW if known_at is None else standing(known_at)
        if kind is not None:
            condition, bindings = condition + " AND kind = ?", [*bindings, kind.value]
        # Two lookups by index: a single one with OR reads every link of the owner.
        ends = (f"SELECT row FROM links WHERE owner = ?1 AND {end} {_IDS}" for end in ("source", "target"))
        sql = f"SELECT {LINK_COLUMNS} FROM links WHERE row IN ({' UNION '.join(ends)}) AND {condition} ORDER BY row"
        return [to_link(row) for row in self._all(sql, json.dumps(list(ids)), *bindings)]

    def all_links(self) -> Iterator[Link]:
        """Every link ever made, closed ones too, oldest first."""
        for row in self._all(f"SELECT {LINK_COLUMNS} FROM links WHERE +owner = ? ORDER BY row"):
            yield to_link(row)

    def position(self) -> Cursor:
        """The cursor after the newest journal entry."""
        [[newest]] = self._all(f"SELECT {_NEWEST_ENTRY}")
        return Cursor(newest)

    def heads(self, fingerprint: str = "") -> Heads:
        """How far the journal, the vectors of a model, mentions and jobs have come, all at one moment."""
        epoch, journal, *numbers = self._database.epoch_and(*_HEADS, bindings=[self.owner, fingerprint])
        return Heads(str(epoch), Cursor(journal), *map(int, numbers))

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

    def _scrub(self, done: str) -> None:
        """Leave no byte of what was deleted; the change is committed, whatever happens here."""
        try:
            with self._database.reading() as connection:
                maintenance.scrub(connection, done)
        except StoreUnavailable as error:
            if not isinstance(error.__cause__, apsw.Error):
                raise
            raise StoreUnavailable(
                f"{done}, but old bytes are still in the file ({error.__cause__}; no space left?):"
                " make room and run `triskele doctor`"
            ) from error

    def _all(self, sql: str, *bindings: Any) -> list[Any]:
        return self._database.all(sql, [self.owner, *bindings])

    def _all_now(self, sql: str, *bindings: Any) -> list[Any]:
        return self._database.all_now(sql, [self.owner, *bindings])

    def _shared_with_neighbours(self, id: str) -> int:
        own = "FROM versions WHERE owner = ?1 AND id"
        rows = self._all(f"SELECT (SELECT max(id) {own} < ?2), (SELECT min(id) {own} > ?2)", id)
        return max((common_prefix(id, other) for other in rows[0] if other), default=0)
