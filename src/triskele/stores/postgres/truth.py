"""The store of a server: one Postgres database, bound to one owner before it is used."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from triskele.base import timestamps
from triskele.errors import BadInput
from triskele.stores.derived import EMBED, MOST_TRIES, NAMES
from triskele.stores.postgres import erasure, sealed_texts
from triskele.stores.postgres.connections import Connections, OwnerTransactions
from triskele.stores.postgres.corpus_rows import PostgresCorpus
from triskele.stores.postgres.document_rows import PostgresDocuments
from triskele.stores.postgres.entity_rows import PostgresEntities
from triskele.stores.postgres.fan_out import Performer, carry_out, in_order, refuse_shared, spread
from triskele.stores.postgres.job_rows import PostgresJobs
from triskele.stores.postgres.replicas import OWNER_EPOCH
from triskele.stores.postgres.scopes import READ_COLUMNS, in_scope, standing
from triskele.stores.postgres.shares import PostgresShares
from triskele.stores.postgres.upkeep import PostgresMaintenance
from triskele.stores.postgres.usage_rows import PostgresUsage
from triskele.stores.postgres.vector_rows import PostgresModels, PostgresVectors
from triskele.stores.postgres.writer import PostgresWriter, claim_places, read_places
from triskele.stores.protocols import START, Census, ChangePage, Cursor, Heads, KnownPlace, SealedRow
from triskele.stores.sqlite.rows import JOURNAL_COLUMNS, LINK_COLUMNS, to_entry, to_link, to_memory
from triskele.types import USER, Change, JournalEntry, Link, LinkKind, Memory, Outcome, Scope, Sealed, Sort

Result = TypeVar("Result")
_PAGE = 500
_NEVER = 2**62
_ORDERS = {
    Sort.RECENCY: "updated_at DESC, id DESC",
    Sort.IMPORTANCE: "importance DESC, updated_at DESC, id DESC",
}
_NEWEST_ENTRY = "coalesce((SELECT seq || '@' || at FROM journal WHERE owner = %(owner)s ORDER BY seq DESC LIMIT 1), '')"
_HEADS = ", ".join(
    (
        OWNER_EPOCH,
        _NEWEST_ENTRY,
        "(SELECT coalesce(max(slot), 0) FROM vectors WHERE owner = %(owner)s AND fingerprint = %(model)s)",
        "(SELECT coalesce(max(mention), 0) FROM mentions WHERE owner = %(owner)s)",
        "(SELECT coalesce(max(merge), 0) FROM merges WHERE owner = %(owner)s)",
        *(
            f"(SELECT count(*) FROM jobs WHERE owner = %(owner)s AND kind = '{kind}' AND tries < {MOST_TRIES})"
            for kind in (EMBED, NAMES)
        ),
    )
)
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

    def __init__(self, url: str, *, folder: Path, busy_timeout_s: float = 30.0, read_url: str = "") -> None:
        self._connections = Connections(url, timeout_s=busy_timeout_s, read_url=read_url)
        self._bound: dict[str, PostgresOwnerStore] = {}
        self._lock = threading.Lock()
        self.maintenance = PostgresMaintenance(self._connections, folder)

    def of(self, owner: str) -> PostgresOwnerStore:
        """What one owner sees of the store."""
        with self._lock:
            if owner not in self._bound:
                self._bound[owner] = PostgresOwnerStore(self._connections, owner)
            return self._bound[owner]

    def close(self) -> None:
        """Write the usage that waits, and close every connection."""
        if self._connections.is_open:
            for bound in self._bound.values():
                bound.usage.flush()
        self._connections.close()


class PostgresOwnerStore:
    """The memories of one owner; every statement names the owner, and row-level security is a second guard."""

    def __init__(self, connections: Connections, owner: str) -> None:
        self.owner = owner
        self._transactions = transactions = OwnerTransactions(connections, owner)
        self.snapshot = transactions.snapshot
        self.written = transactions.written
        self.vectors = PostgresVectors(transactions)
        self.entities = PostgresEntities(transactions)
        self.corpus = PostgresCorpus(transactions)
        self.jobs = PostgresJobs(transactions)
        self.models = PostgresModels(transactions)
        self.documents = PostgresDocuments(transactions)
        self.usage = PostgresUsage(transactions)
        self.shares = PostgresShares(transactions)

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
            outcomes = erasure.erase(writer, ids)
            spread(writer, Performer(self.owner, actor, locked))
            return outcomes

        outcomes = self._written(batch, actor, work)
        erasure.vacuum(self._transactions, "erased")
        return outcomes

    def seal(self, versions: Sequence[tuple[Memory, Sealed]], *, batch: str, actor: str = USER) -> Outcome:
        """Replace every version of a memory by its title and sealed text, and erase all that was derived."""

        def work(writer: PostgresWriter, locked: frozenset[str]) -> Outcome:
            refuse_shared(writer, [memory.id for memory, _ in versions], "seal")
            outcome = erasure.seal(writer, versions)
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
        return in_order(
            self._transactions,
            lambda connection, locked: work(
                PostgresWriter(connection, self.owner, timestamps.now(), batch, actor, undoes), locked
            ),
        )

    def sealed(self, ids: Sequence[str] | None = None) -> list[SealedRow]:
        """The sealed texts of some memories, or of all."""
        return self._transactions.read(lambda connection: sealed_texts.read(connection, self.owner, ids))

    def reseal(self, blobs: Mapping[tuple[str, int], bytes]) -> None:
        """Replace sealed texts by the same texts under another key; the tables are vacuumed afterwards."""
        with self._transactions.writing() as connection:
            erasure.mark(connection, self.owner)
            sealed_texts.replace(connection, self.owner, blobs)
        erasure.vacuum(self._transactions, "encrypted again")

    def places(self) -> list[KnownPlace]:
        """The places whose project is known, oldest first."""
        return self._transactions.read(lambda connection: read_places(connection, self.owner))

    def claim(self, keys: Sequence[str], choose: Callable[[Sequence[KnownPlace]], str]) -> str:
        """Give keys without a project the one that is chosen among the places of that moment, and return it."""
        with self._transactions.writing() as connection:
            return claim_places(connection, self.owner, keys, choose, timestamps.now())

    def find(self, prefix: str, limit: int = 5) -> list[str]:
        """The ids that start with a prefix, forgotten ones included."""
        rows = self._all(
            "SELECT DISTINCT id FROM versions WHERE owner = %s AND id >= %s AND id < %s ORDER BY id LIMIT %s",
            prefix,
            prefix + "\U0010ffff",
            limit,
        )
        return [row[0] for row in rows]

    def shorten(self, ids: Iterable[str], shortest: int = 8) -> dict[str, str]:
        """The shortest prefix of each id that no other id shares."""
        wanted = list(ids)
        own = "FROM versions WHERE owner = %(owner)s AND id"
        rows = self._transactions.all(
            f"SELECT asked, (SELECT max(id) {own} < asked), (SELECT min(id) {own} > asked)"
            ' FROM unnest(%(ids)s::text[] COLLATE "C") AS one (asked)',
            {"owner": self.owner, "ids": wanted},
        )
        shared = {id: max((_common_prefix(id, other) for other in pair if other), default=0) for id, *pair in rows}
        return {id: id[: max(shortest, shared[id] + 1)] for id in wanted}

    def memories(self, ids: Iterable[str], *, known_at: datetime | None = None) -> dict[str, Memory]:
        """The versions that are current now, or were at a moment; forgotten and unknown ids are left out."""
        condition, bindings = standing(known_at)
        if not (listed := list(ids)):
            return {}
        sql = f"SELECT {READ_COLUMNS} FROM versions WHERE owner = %s AND id = ANY(%s) AND {condition}"
        rows = self._all(f"{sql} ORDER BY row", listed, *bindings)
        return {row[0]: to_memory(row) for row in sorted(rows, key=lambda row: row[1])}

    def history(self, id: str) -> list[Memory]:
        """Every version of a memory, oldest first."""
        rows = self._all(f"SELECT {READ_COLUMNS} FROM versions WHERE owner = %s AND id = %s ORDER BY version", id)
        return [to_memory(row) for row in rows]

    def rows(self, rows: Iterable[int]) -> dict[int, Memory]:
        """The versions behind the row numbers of an index."""
        sql = f"SELECT row, {READ_COLUMNS} FROM versions WHERE owner = %s AND row = ANY(%s) ORDER BY row"
        return {row[0]: to_memory(row[1:]) for row in self._all(sql, list(map(int, rows)))}

    def importance(self, rows: Iterable[int]) -> dict[int, tuple[str, float]]:
        """The id and the importance of the versions behind the row numbers of an index."""
        sql = "SELECT row, id, importance FROM versions WHERE owner = %s AND row = ANY(%s)"
        return {row: (id, importance) for row, id, importance in self._all(sql, list(map(int, rows)))}

    def versions(self, ids: Sequence[str] | None = None) -> Iterator[tuple[int, Memory]]:
        """Every version with its row number, of some memories or of all, in row order."""
        if ids is not None:
            sql = f"SELECT row, {READ_COLUMNS} FROM versions WHERE owner = %s AND id = ANY(%s) ORDER BY row"
            yield from ((row[0], to_memory(row[1:])) for row in self._all(sql, list(ids)))
            return
        last = 0
        # Pages instead of one open statement: a slow consumer must not hold a transaction.
        while page := self._all(
            f"SELECT row, {READ_COLUMNS} FROM versions WHERE owner = %s AND row > %s ORDER BY row LIMIT %s",
            last,
            _PAGE,
        ):
            yield from ((row[0], to_memory(row[1:])) for row in page)
            last = page[-1][0]

    def links(
        self, ids: Sequence[str], *, kind: LinkKind | None = None, known_at: datetime | None = None
    ) -> list[Link]:
        """The links of any of these memories that are open now, or were at a moment."""
        condition, bindings = standing(known_at)
        if kind is not None:
            condition, bindings = condition + " AND kind = %s", [*bindings, kind.value]
        # Two lookups by index: a single one with OR reads every link of the owner.
        ends = " UNION ".join(f"SELECT row FROM links WHERE owner = %s AND {end} = ANY(%s)" for end in _ENDS)
        sql = f"SELECT {LINK_COLUMNS} FROM links WHERE owner = %s AND row IN ({ends}) AND {condition} ORDER BY row"
        listed = list(ids)
        return [to_link(row) for row in self._all(sql, self.owner, listed, self.owner, listed, *bindings)]

    def all_links(self) -> Iterator[Link]:
        """Every link ever made, closed ones too, oldest first."""
        for row in self._all(f"SELECT {LINK_COLUMNS} FROM links WHERE owner = %s ORDER BY row"):
            yield to_link(row)

    def browse(self, scope: Scope, *, sort: Sort = Sort.RECENCY, limit: int = 50, offset: int = 0) -> list[Memory]:
        """Memories of a scope in order of recency or importance; none if the scope names another owner."""
        if sort not in _ORDERS:
            raise BadInput(f"memories cannot be listed by {sort}: choose one of {', '.join(_ORDERS)}")
        condition, bindings = in_scope(scope)
        rows = self._all(
            f"SELECT {READ_COLUMNS} FROM versions WHERE owner = %s AND {condition} ORDER BY {_ORDERS[sort]}"
            " LIMIT %s OFFSET %s",
            *bindings,
            limit,
            offset,
        )
        return [to_memory(row) for row in rows]

    def journal(self, *, id: str | None = None, batch: str | None = None, limit: int = 1000) -> list[JournalEntry]:
        """Journal entries of all, of one memory or of one batch, oldest first."""
        condition, bindings = "", list[Any]()
        if id is not None:
            condition, bindings = " AND (id = %s OR other = %s)", [id, id]
        if batch is not None:
            condition, bindings = condition + " AND batch = %s", [*bindings, batch]
        return self._entries(f"{condition} ORDER BY seq LIMIT %s", *bindings, limit)

    def newest_entries(self, *, before: int | None = None, limit: int = 1) -> list[JournalEntry]:
        """The newest journal entries, newest first; `before` continues behind an entry, by its number."""
        return self._entries(" AND seq < %s ORDER BY seq DESC LIMIT %s", _NEVER if before is None else before, limit)

    def changes_since(self, cursor: Cursor, limit: int = 1000) -> ChangePage:
        """The journal entries that became visible after a cursor: the owner's lock makes that their order."""
        entries = self._entries(" AND seq > %s ORDER BY seq LIMIT %s", _seq(cursor), limit)
        return ChangePage(entries, _cursor(entries[-1].seq, entries[-1].at) if entries else cursor)

    def position(self) -> Cursor:
        """The cursor after the newest journal entry."""
        [[newest]] = self._transactions.all(f"SELECT {_NEWEST_ENTRY}", {"owner": self.owner})
        return Cursor(newest)

    def holds(self, cursor: Cursor) -> bool:
        """Whether the journal has the entry that a cursor follows; a promoted replica may lack it."""
        if cursor == START:
            return True
        _, _, at = cursor.partition("@")
        question = ("SELECT at FROM journal WHERE owner = %s AND seq = %s", [self.owner, _seq(cursor)])
        # Another process may have written after the snapshot of this one.
        rows = self._transactions.all(*question) or self._transactions.all_now(*question)
        return bool(rows) and at in ("", str(rows[0][0]))

    def epoch(self) -> str:
        """A name for this run of the journal; a restored store begins another."""
        [[epoch]] = self._transactions.all(f"SELECT {OWNER_EPOCH}", {"owner": self.owner})
        return str(epoch)

    def heads(self, fingerprint: str = "") -> Heads:
        """How far the journal, the vectors of a model, mentions and jobs have come, all at one moment."""
        [[epoch, journal, *numbers]] = self._transactions.all(
            f"SELECT {_HEADS}", {"owner": self.owner, "model": fingerprint}
        )
        return Heads(str(epoch), Cursor(journal), *map(int, numbers))

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
            f"SELECT {column}, count(*) FROM versions WHERE owner = %s AND shared_by IS NULL AND known_to IS NULL"
            " GROUP BY 1 ORDER BY 2 DESC, 1"
        )
        return {str(name): int(number) for name, number in self._all(sql)}

    def _entries(self, condition: str, *bindings: Any) -> list[JournalEntry]:
        rows = self._all(f"SELECT seq, {JOURNAL_COLUMNS} FROM journal WHERE owner = %s{condition}", *bindings)
        return [to_entry(row) for row in rows]

    def _all(self, sql: str, *bindings: Any) -> list[Any]:
        return self._transactions.all(sql, [self.owner, *bindings])


_ENDS = ("source", "target")


def _cursor(seq: int, at: datetime) -> Cursor:
    """A cursor names the time too: a number is given out again where writes were lost."""
    return Cursor(f"{seq}@{timestamps.to_micros(at)}")


def _seq(cursor: Cursor) -> int:
    return int(cursor.partition("@")[0] or 0)


def _common_prefix(one: str, other: str) -> int:
    length = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        length += 1
    return length
