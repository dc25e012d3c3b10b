"""The store of a server: one Postgres database, bound to one owner before it is used."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from triskele.replies import Census
from triskele.server.fan_out import Performer, carry_out, refuse_shared, run_with_owner_locks, spread
from triskele.server.postgres import erasure
from triskele.server.postgres.connections import Connections, OwnerTransactions
from triskele.server.postgres.corpus_rows import PostgresCorpus
from triskele.server.postgres.documents import PostgresDocuments
from triskele.server.postgres.heads import HEADS, NEWEST_ENTRY, KeptVersions, LinkEnds, to_heads
from triskele.server.postgres.jobs import PostgresJobs
from triskele.server.postgres.names import PostgresNames
from triskele.server.postgres.replicas import OWNER_EPOCH
from triskele.server.postgres.truth_rows import READ_COLUMNS, WORDING, PostgresRows, PostgresWriter, marked
from triskele.server.postgres.upkeep import PostgresMaintenance
from triskele.server.postgres.usage import PostgresUsage
from triskele.server.postgres.vectors import PostgresModels, PostgresVectors
from triskele.server.shares import PostgresShares
from triskele.store.protocols import Cursor, FolderRow, Heads, SealedRow
from triskele.store.reads import OwnerReads, common_prefix, standing
from triskele.store.rows import LINK_COLUMNS, to_link, to_memory
from triskele.store.writer import MemoryLimits, register_folders, replace_sealed
from triskele.text import timestamps
from triskele.types import USER, Change, Link, LinkKind, Memory, Outcome, Sealed

Result = TypeVar("Result")
_PAGE = 500
_ENDS = ("source", "target")
# What others share is counted for them.
_OWN = "FROM versions WHERE owner = %(owner)s AND shared_by IS NULL"
_CURRENT = f"SELECT id {_OWN} AND known_to IS NULL"
_CENSUS = f"""
SELECT (SELECT count(*) FROM ({_CURRENT}) AS standing),
       (SELECT count(DISTINCT id) {_OWN}),
       (SELECT count(DISTINCT target) FROM links WHERE owner = %(owner)s AND kind = 'supersedes' AND known_to IS NULL
        AND source IN ({_CURRENT}) AND target IN ({_CURRENT})),
       (SELECT count(*) {_OWN}),
       (SELECT count(*) FROM links WHERE owner = %(owner)s AND known_to IS NULL),
       (SELECT count(*) FROM journal WHERE owner = %(owner)s),
       (SELECT coalesce(sum(pg_column_size(versions.*)), 0) {_OWN})
       + (SELECT coalesce(sum(pg_column_size(vector) + coalesce(pg_column_size(tokens), 0)), 0) FROM vectors
          WHERE owner = %(owner)s)
"""


class PostgresStore:
    """One database with the memories of any number of owners; `folder` takes what a restore replaces."""

    def __init__(
        self,
        url: str,
        *,
        folder: Path,
        busy_timeout_s: float = 30.0,
        read_url: str = "",
        limits: MemoryLimits | None = None,
    ) -> None:
        self._limits = limits
        self._connections = Connections(url, timeout_s=busy_timeout_s, read_url=read_url)
        self._bound: dict[str, PostgresOwnerStore] = {}
        self._lock = threading.Lock()
        self.maintenance = PostgresMaintenance(self._connections, folder)

    def for_owner(self, owner: str) -> PostgresOwnerStore:
        """What one owner sees of the store."""
        with self._lock:
            if owner not in self._bound:
                self._bound[owner] = PostgresOwnerStore(self._connections, owner, self._limits)
            return self._bound[owner]

    def close(self) -> None:
        """Write the usage that waits, and close every connection."""
        if self._connections.is_open:
            for bound in self._bound.values():
                bound.usage.flush()
        self._connections.close()


class PostgresOwnerStore(OwnerReads):
    """The memories of one owner; every statement names the owner, and row-level security is a second guard."""

    _COLUMNS = READ_COLUMNS
    _WORDING = WORDING

    def __init__(self, connections: Connections, owner: str, limits: MemoryLimits | None = None) -> None:
        self.owner = owner
        self._limits = limits
        self._transactions = transactions = OwnerTransactions(connections, owner)
        self._model = ""
        self._link_ends = LinkEnds(transactions.all, owner)
        self._versions = KeptVersions(self._read_rows)
        self.written = transactions.written
        self.vectors = PostgresVectors(transactions)
        self.names = PostgresNames(transactions)
        self.corpus = PostgresCorpus(transactions)
        self.jobs = PostgresJobs(transactions)
        self.models = PostgresModels(transactions)
        self.documents = PostgresDocuments(transactions)
        self.usage = PostgresUsage(transactions)
        self.shares = PostgresShares(transactions)

    def snapshot(self) -> AbstractContextManager[None]:
        """Let this thread read the store as of one moment; inside, nothing may be written."""
        return self._transactions.snapshot(self._model)

    def apply(
        self, changes: Sequence[Change], *, batch: str, actor: str = USER, undoes: int | None = None
    ) -> list[Outcome]:
        """Carry out the changes and journal them, all in one durable transaction or none."""

        def work(writer: PostgresWriter, locked: frozenset[str]) -> list[Outcome]:
            nonlocal changes
            # Taken inside the transaction, and only once.
            changes = list(changes)
            return carry_out(writer, changes, locked)

        return self._written(batch, actor, work, undoes)

    def erase(self, ids: Sequence[str], *, batch: str, actor: str = USER) -> list[Outcome]:
        """Remove these memories, their links and the documents about them; the tables are vacuumed afterwards."""

        def work(writer: PostgresWriter, locked: frozenset[str]) -> list[Outcome]:
            refuse_shared(writer, ids, "erase")
            outcomes = writer.erase(ids)
            spread(writer, Performer(self.owner, actor, locked))
            return outcomes

        outcomes = self._written(batch, actor, work)
        erasure.vacuum(self._transactions, "erased")
        return outcomes

    def seal(self, versions: Sequence[tuple[Memory, Sealed]], *, batch: str, actor: str = USER) -> Outcome:
        """Replace every version of a memory by its title and sealed text, and erase all that was derived."""

        def work(writer: PostgresWriter, locked: frozenset[str]) -> Outcome:
            refuse_shared(writer, [memory.id for memory, _ in versions], "seal")
            outcome = writer.seal(versions)
            spread(writer, Performer(self.owner, actor, locked))
            return outcome

        outcome = self._written(batch, actor, work)
        erasure.vacuum(self._transactions, "sealed")
        return outcome

    def _written(
        self,
        batch: str,
        actor: str,
        work: Callable[[PostgresWriter, frozenset[str]], Result],
        undoes: int | None = None,
    ) -> Result:
        """Write under the locks of this owner and of those that its changes reach."""
        # The time is read under the locks: numbers and times of a journal rise together.
        return run_with_owner_locks(
            self._transactions,
            lambda connection, locked: work(
                PostgresWriter(connection, self.owner, timestamps.now(), batch, actor, undoes, self._limits), locked
            ),
        )

    def sealed(self, ids: Sequence[str] | None = None) -> list[SealedRow]:
        """The sealed texts of some memories, or of all."""
        return self._transactions.read(lambda connection: PostgresRows(connection, self.owner).sealed_texts(ids))

    def reseal(self, blobs: Mapping[tuple[str, int], bytes]) -> None:
        """Replace sealed texts by the same texts under another key; the tables are vacuumed afterwards."""
        with self._transactions.writing() as connection:
            replace_sealed(PostgresRows(connection, self.owner), blobs)
        erasure.vacuum(self._transactions, "encrypted again")

    def folders(self) -> list[FolderRow]:
        """The places whose project is known, oldest first."""
        return self._transactions.read(lambda connection: PostgresRows(connection, self.owner).folders())

    def register_folder(self, keys: Sequence[str], choose: Callable[[Sequence[FolderRow]], str]) -> str:
        """Give keys without a project the one that is chosen among the places of that moment, and return it."""
        with self._transactions.writing() as connection:
            return register_folders(PostgresRows(connection, self.owner), keys, choose, timestamps.now())

    def shorten(self, ids: Iterable[str], shortest: int = 8) -> dict[str, str]:
        """The shortest prefix of each id that no other id shares."""
        wanted = list(ids)
        own = "FROM versions WHERE owner = %(owner)s AND id"
        rows = self._transactions.all(
            f"SELECT asked, (SELECT max(id) {own} < asked), (SELECT min(id) {own} > asked)"
            ' FROM unnest(%(ids)s::text[] COLLATE "C") AS one (asked)',
            {"owner": self.owner, "ids": wanted},
        )
        shared = {id: max((common_prefix(id, other) for other in pair if other), default=0) for id, *pair in rows}
        return {id: id[: max(shortest, shared[id] + 1)] for id in wanted}

    def memories(self, ids: Iterable[str], *, known_at: datetime | None = None) -> dict[str, Memory]:
        """The versions that are current now, or were at a moment; forgotten and unknown ids are left out."""
        condition, bindings = standing(known_at)
        if not (listed := list(ids)):
            return {}
        sql = f"SELECT {READ_COLUMNS} FROM versions WHERE owner = ? AND id = ANY(?) AND {condition}"
        rows = self._all(f"{sql} ORDER BY row", listed, *bindings)
        return {row[0]: to_memory(row) for row in sorted(rows, key=lambda row: row[1])}

    def rows(self, rows: Iterable[int]) -> dict[int, Memory]:
        """The versions behind the row numbers of an index."""
        return self._versions.of(rows, self._transactions.snapshot_start)

    def _read_rows(self, rows: list[int]) -> dict[int, Memory]:
        sql = f"SELECT row, {READ_COLUMNS} FROM versions WHERE owner = %s AND row = ANY(%s::bigint[]) ORDER BY row"
        return {row[0]: to_memory(row[1:]) for row in self._transactions.asked(sql, [self.owner, _array(rows)])}

    def superseding_ids(self, rows: Iterable[int]) -> dict[int, str]:
        """The ids behind those row numbers of an index whose memories replace others or were replaced, at any time."""
        start = self._transactions.snapshot_start
        if start is not None and not self._link_ends.has_chains(start):
            return {}
        links = "SELECT 1 FROM links WHERE links.owner = ? AND kind = 'supersedes'"
        ends = " OR ".join(f"EXISTS ({links} AND {end} = versions.id)" for end in _ENDS)
        sql = f"SELECT row, id FROM versions WHERE owner = ? AND row = ANY(?::bigint[]) AND ({ends}) ORDER BY row"
        return dict(self._all(sql, _array(rows), self.owner, self.owner))

    def versions(self, ids: Sequence[str] | None = None) -> Iterator[tuple[int, Memory]]:
        """Every version with its row number, of some memories or of all, in row order."""
        if ids is not None:
            sql = f"SELECT row, {READ_COLUMNS} FROM versions WHERE owner = ? AND id = ANY(?) ORDER BY row"
            yield from ((row[0], to_memory(row[1:])) for row in self._all(sql, list(ids)))
            return
        last = 0
        # Pages instead of one open statement: a slow consumer must not hold a transaction.
        while page := self._all(
            f"SELECT row, {READ_COLUMNS} FROM versions WHERE owner = ? AND row > ? ORDER BY row LIMIT ?",
            last,
            _PAGE,
        ):
            yield from ((row[0], to_memory(row[1:])) for row in page)
            last = page[-1][0]

    def links(
        self, ids: Sequence[str], *, kind: LinkKind | None = None, known_at: datetime | None = None
    ) -> list[Link]:
        """The links of any of these memories that are open now, or were at a moment."""
        if (start := self._transactions.snapshot_start) is not None:
            ids = self._link_ends.among(ids, kind, start)
        if not ids:
            return []
        condition, bindings = standing(known_at)
        if kind is not None:
            condition, bindings = condition + " AND kind = ?", [*bindings, kind.value]
        # Two lookups by index: a single one with OR reads every link of the owner.
        ends = " UNION ".join(f"SELECT row FROM links WHERE owner = ? AND {end} = ANY(?)" for end in _ENDS)
        sql = f"SELECT {LINK_COLUMNS} FROM links WHERE owner = ? AND row IN ({ends}) AND {condition} ORDER BY row"
        listed = list(ids)
        return [to_link(row) for row in self._all(sql, self.owner, listed, self.owner, listed, *bindings)]

    def all_links(self) -> Iterator[Link]:
        """Every link ever made, closed ones too, oldest first."""
        for row in self._all(f"SELECT {LINK_COLUMNS} FROM links WHERE owner = ? ORDER BY row"):
            yield to_link(row)

    def position(self) -> Cursor:
        """The cursor after the newest journal entry."""
        [[newest]] = self._transactions.all(f"SELECT {NEWEST_ENTRY}", {"owner": self.owner})
        return Cursor(newest)

    def epoch(self) -> str:
        """A name for this run of the journal; a restored store begins another."""
        [[epoch]] = self._transactions.all(f"SELECT {OWNER_EPOCH}", {"owner": self.owner})
        return str(epoch)

    def heads(self, fingerprint: str = "") -> Heads:
        """How far the journal, the vectors of a model, mentions and jobs have come, all at one moment."""
        if (start := self._transactions.snapshot_start) is not None:
            if start.model == fingerprint:
                return start.heads
            # The next snapshot probably asks for the same.
            self._model = fingerprint
        return to_heads(self._transactions.all(f"SELECT {HEADS}", {"owner": self.owner, "model": fingerprint})[0])

    def census(self) -> Census:
        """Counts of what is stored; `bytes` are those of the owner's own rows."""
        with self._transactions.reading():
            [row] = self._transactions.all(_CENSUS, {"owner": self.owner})
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
        sql = (
            f"SELECT {column}, count(*) FROM versions WHERE owner = ? AND shared_by IS NULL AND known_to IS NULL"
            " GROUP BY 1 ORDER BY 2 DESC, 1"
        )
        return {str(name): int(number) for name, number in self._all(sql)}

    def _all(self, sql: str, *bindings: Any) -> list[Any]:
        return self._transactions.all(marked(sql), [self.owner, *bindings])

    def _all_now(self, sql: str, *bindings: Any) -> list[Any]:
        return self._transactions.all_now(marked(sql), [self.owner, *bindings])


def _array(numbers: Iterable[int]) -> str:
    """Numbers as Postgres reads an array: the driver takes longer over a list than the server over its rows."""
    return f"{{{','.join(map(str, map(int, numbers)))}}}"
