"""The store of a server: one Postgres database, bound to one owner before it is used."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

from triskele.replies import Census
from triskele.server.fan_out import Performer, carry_out, refuse_shared, run_with_owner_locks, spread
from triskele.server.postgres.connections import Connection, Connections, OwnerTransactions
from triskele.server.postgres.corpus_rows import PostgresCorpus
from triskele.server.postgres.heads import KeptVersions, KnownKeys
from triskele.server.postgres.replicas import OWNER_EPOCH
from triskele.server.postgres.truth_rows import READ_COLUMNS, PostgresOwner, PostgresWriter, array
from triskele.server.postgres.upkeep import PostgresMaintenance, vacuum
from triskele.server.shares import PostgresShares
from triskele.store.name_rows import EDGE_COLUMNS, NAME_COLUMNS, NameStore
from triskele.store.owner import OwnerStore
from triskele.store.rows import to_memory
from triskele.store.values import FolderRow, Heads, Mentioned, Name
from triskele.store.writer import MemoryLimits
from triskele.text import timestamps
from triskele.types import USER, Change, Memory, Outcome, Sealed

Result = TypeVar("Result")
_MENTIONS_PAGE = 20_000
_OF_CONCEPT = """
SELECT subject.concept AS source, 'mentions' AS kind, other.concept AS target, 1.0::float8 AS weight,
       versions.id AS evidence, versions.valid_from, versions.valid_to, versions.known_from,
       coalesce(versions.known_to, (
           SELECT min(links.known_from) FROM links
           WHERE links.owner = versions.owner AND links.target = versions.id AND links.kind = 'supersedes'
             AND links.known_to IS NULL
       )) AS known_to, versions.project
FROM mentions AS about
JOIN names AS subject ON subject.owner = about.owner AND subject.name = about.name
JOIN mentions AS said ON said.owner = about.owner AND said.row = about.row AND said.name <> about.name
JOIN names AS other ON other.owner = said.owner AND other.name = said.name
JOIN versions ON versions.owner = about.owner AND versions.row = about.row
WHERE about.owner = ?1 AND about.kind IN ('title', 'lead') AND other.concept <> subject.concept
"""
# Each end separately: with OR every edge of the owner would be computed.
_EDGES = f"""
SELECT DISTINCT {EDGE_COLUMNS}, known_to IS NOT NULL AS is_closed FROM (
    {_OF_CONCEPT} AND subject.concept = ?2 UNION ALL {_OF_CONCEPT} AND other.concept = ?2
) AS both_ends
WHERE (?3 OR known_to IS NULL) AND (?4::text[] IS NULL OR evidence IN (
    SELECT id FROM versions WHERE owner = ?1 AND project = ANY(?4)))
ORDER BY is_closed, known_from DESC, evidence, source, target LIMIT ?5
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
        for bound in self._bound.values():
            bound.usage.flush()
        self._connections.close()


class PostgresOwnerStore(OwnerStore):
    """The memories of one owner; every statement names the owner, and row-level security is a second guard."""

    _COLUMNS = READ_COLUMNS
    # The bytes of the owner's own rows: what others share is counted for them.
    _SIZE = (
        "(SELECT coalesce(sum(pg_column_size(versions.*)), 0) FROM versions WHERE owner = ?1 AND shared_by IS NULL)"
        " + (SELECT coalesce(sum(pg_column_size(vector) + coalesce(pg_column_size(tokens), 0)), 0) FROM vectors"
        " WHERE owner = ?1)"
    )

    def __init__(self, connections: Connections, owner: str, limits: MemoryLimits | None = None) -> None:
        self._transactions = transactions = OwnerTransactions(connections, owner)
        database = PostgresOwner(transactions)
        super().__init__(database)
        self._limits = limits
        self._model = ""
        self._versions = KeptVersions(self._read_rows)
        self.written = transactions.written
        self.names = PostgresNames(database)
        self.corpus = PostgresCorpus(transactions)
        self.shares = PostgresShares(transactions)

    def snapshot(self) -> AbstractContextManager[None]:
        """Let this thread read the store as of one moment; inside, nothing may be written."""
        return self._transactions.snapshot(self._model)

    def apply(
        self, changes: Sequence[Change], *, batch: str, actor: str = USER, undoes: int | None = None
    ) -> list[Outcome]:
        """Carry out the changes and journal them, all in one durable transaction or none."""

        def carry(connection: Connection, locked: frozenset[str]) -> list[Outcome]:
            nonlocal changes
            # Taken inside the transaction, and only once.
            changes = list(changes)
            return carry_out(self._writer(connection, batch, actor, undoes), changes, locked)

        return run_with_owner_locks(self._transactions, carry)

    def erase(self, ids: Sequence[str], *, batch: str, actor: str = USER) -> list[Outcome]:
        """Remove these memories, their links and the documents about them; the tables are vacuumed afterwards."""
        outcomes = self._delete("erase", ids, lambda writer: writer.erase(ids), batch, actor)
        vacuum(self._transactions, "erased")
        return outcomes

    def seal(self, versions: Sequence[tuple[Memory, Sealed]], *, batch: str, actor: str = USER) -> Outcome:
        """Replace every version of a memory by its title and sealed text, and erase all that was derived."""
        ids = [memory.id for memory, _ in versions]
        outcome = self._delete("seal", ids, lambda writer: writer.seal(versions), batch, actor)
        vacuum(self._transactions, "sealed")
        return outcome

    def _delete(
        self, what: str, ids: Sequence[str], work: Callable[[PostgresWriter], Result], batch: str, actor: str
    ) -> Result:
        """Delete texts of own memories, and the copies that readers have of them."""

        def delete(connection: Connection, locked: frozenset[str]) -> Result:
            writer = self._writer(connection, batch, actor)
            refuse_shared(writer, ids, what)
            result = work(writer)
            spread(writer, Performer(self.owner, actor, locked))
            return result

        return run_with_owner_locks(self._transactions, delete)

    def reseal(self, blobs: Mapping[tuple[str, int], bytes]) -> None:
        """Replace sealed texts by the same texts under another key; the tables are vacuumed afterwards."""
        with self._transactions.writing() as connection:
            self._writer(connection).reseal(blobs)
        vacuum(self._transactions, "encrypted again")

    def register_folder(self, keys: Sequence[str], choose: Callable[[Sequence[FolderRow]], str]) -> str:
        """Give keys without a project the one that `choose` finds for the known folders; return it."""
        with self._transactions.writing() as connection:
            return self._writer(connection).register_folders(keys, choose)

    def _writer(
        self, connection: Connection, batch: str = "", actor: str = USER, undoes: int | None = None
    ) -> PostgresWriter:
        # The time is read under the locks: numbers and times of a journal rise together.
        return PostgresWriter(connection, self.owner, timestamps.now(), batch, actor, undoes, self._limits)

    def rows(self, rows: Iterable[int]) -> dict[int, Memory]:
        """The versions behind the row numbers of an index."""
        return self._versions.of(rows, self._transactions.snapshot_start)

    def _read_rows(self, rows: list[int]) -> dict[int, Memory]:
        sql = f"SELECT row, {READ_COLUMNS} FROM versions WHERE owner = %s AND row = ANY(%s::bigint[]) ORDER BY row"
        return {row[0]: to_memory(row[1:]) for row in self._transactions.fetch(sql, [self.owner, array(rows)])}

    def census(self) -> Census:
        """Counts of what is stored, as of one moment."""
        with self._transactions.reading():
            return super().census()

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
        return super().heads(fingerprint)


class PostgresNames(NameStore):
    """Names in a database."""

    _FIND = f"SELECT {NAME_COLUMNS} FROM names WHERE owner = ?1 AND key = ANY(?2) ORDER BY name"
    _SIZE = " + ".join(
        f"(SELECT coalesce(sum(pg_column_size({table}.*)), 0) FROM {table} WHERE owner = ?1)"
        for table in ("names", "mentions", "merges")
    )

    def __init__(self, database: PostgresOwner) -> None:
        super().__init__(database)
        self._transactions = database.transactions
        self._keys = KnownKeys(self._transactions.all, database.owner)

    def find(self, keys: Iterable[str]) -> dict[str, Name]:
        """The names that are known under some keys."""
        start = self._transactions.snapshot_start
        wanted = list(keys) if start is None else self._keys.among(keys, start)
        return super().find(wanted) if wanted else {}

    def mentions(self, *, after: int = 0) -> list[Mentioned]:
        """A page of mentions past a number, in their order."""
        sql = "SELECT mention, row, name, kind FROM mentions WHERE owner = ? AND mention > ? ORDER BY 1 LIMIT ?"
        return [Mentioned(*row) for row in self._database.all(sql, after, _MENTIONS_PAGE)]

    def _edges(self, concept: int, projects: Any, *, closed: bool, limit: int) -> list[Any]:
        return [row[:-1] for row in self._database.all(_EDGES, concept, closed, projects, limit)]
