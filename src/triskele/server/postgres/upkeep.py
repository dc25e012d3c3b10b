"""Care for a Postgres store: checks, backups and erasing, of all owners, one owner after the other.

No role bypasses row-level security, not even here: each owner's rows are read as that owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count as counter
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from triskele.errors import Conflict, StoreDamaged, StoreUnavailable
from triskele.server import shares
from triskele.server.postgres import dump, migrations
from triskele.server.postgres.connections import (
    Connection,
    Connections,
    OwnerTransactions,
    become,
    every_owner,
    explain,
)
from triskele.server.postgres.migrations import EMBEDDINGS, SCHEMA
from triskele.server.postgres.truth_rows import DIALECT, UNSCRUBBED
from triskele.store import integrity
from triskele.store.archive import Values
from triskele.store.owner import Maintenance
from triskele.store.values import IntegrityIssue
from triskele.text import timestamps
from triskele.types import Action

_OWNED = "owner = %(owner)s"
_OUT_OF_REACH = (
    "the write-ahead log of Postgres and its archive, until they are recycled",
    "replicas, until they have replayed the log",
    "base backups and dumps of the database",
    "free space in the pages of its tables, until it is reused or `VACUUM FULL` is run",
    "index files of other instances, until they next answer this owner's questions",
)
_BEFORE_RESTORE = "before-restore-*.backup"
# The tables that can hold words of a memory, or what was made of them.
_TABLES = (
    *("versions", "secrets", "documents", "vectors", "names", "mentions", "usage_counts", "given", "echoes"),
    *("postings", "terms", "term_lengths"),
)


class PostgresMaintenance(Maintenance):
    """Checks, copies and scrubs one database; `folder` takes what a restore replaces."""

    def __init__(self, connections: Connections, folder: Path) -> None:
        self._connections = connections
        self._folder = folder
        self.archive = PostgresArchive(connections)

    def check(self, *, deep: bool = False) -> list[IntegrityIssue]:
        """What is wrong with the truth; `deep` recomputes every hash."""
        with self._connections.as_of_now() as connection:
            return _issues(connection, every_owner(connection), deep=deep)

    def backup(self, target: Path) -> None:
        """Write every row, as of one moment, to a new file; a damaged store gives no backup."""
        with self._connections.as_of_now() as connection:
            if issues := _issues(connection, every_owner(connection), deep=True):
                raise StoreDamaged(
                    f"the store {self._connections.address} is damaged ({issues[0].subject}: {issues[0].problem}):"
                    " no backup was written"
                )
            _write(connection, target)
        self._note_backup(target)

    def restore(self, source: Path) -> Path | None:
        """Replace everything by the content of a backup whose digest holds; a backup of what was there before."""
        owners = dump.verify(source)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        previous = self._folder / f"before-restore-{timestamps.now():%Y%m%dT%H%M%S%f}.backup"
        with self._connections.as_of_now() as connection:
            _write(connection, previous)
        with explain(self._connections.address), self._connections.direct() as connection, connection.transaction():
            connection.execute("SELECT set_config('search_path', %s, true)", [f"{SCHEMA}, public"])
            dump.load(connection, source, owners)
            shares.settle_restored(connection, owners)
            # A new epoch invalidates the stamp of every derived index.
            migrations.note(connection, migrations.EPOCH, migrations.new_epoch(connection))
            if issues := _issues(connection, owners, deep=True):
                raise StoreDamaged(f"the backup {source} is damaged ({issues[0].problem}): nothing was changed")
        return previous

    def erase_from_copies(self, ids: Sequence[str], owner: str) -> list[Path]:  # noqa: ARG002 - ids are unique
        """Remove backups that restores kept here if they contain any of these memories; returns those removed."""
        removed = [copy for copy in self._kept() if dump.names_any(copy, set(ids))]
        for copy in removed:
            copy.unlink(missing_ok=True)
        return removed

    def earlier_copies(self) -> list[Path]:
        """The copies that may hold erased memories: what restores replaced, and backups made from here."""
        with self._connections.as_of_now() as connection:
            rows = connection.execute("SELECT substr(name, 8) FROM meta WHERE starts_with(name, 'backup ')").fetchall()
        return [*self._kept(), *(Path(name) for (name,) in rows if Path(name).is_file())]

    def out_of_reach(self) -> list[str]:
        """The copies that the database and its administrators make."""
        return list(_OUT_OF_REACH)

    def scrub(self) -> None:
        """Rewrite the tables that hold texts: no byte of deleted rows stays in their files."""
        with explain(self._connections.address):
            vacuum_tables(self._connections, full=True)
        with self._connections.as_of_now() as connection:
            owners = every_owner(connection)
        for owner in owners:
            with self._connections.transaction("BEGIN", owner) as (connection, _):
                connection.execute("DELETE FROM marks WHERE owner = %s AND name = %s", [owner, UNSCRUBBED])
                connection.execute("COMMIT")

    def is_scrubbed(self) -> bool:
        """Whether the tables were vacuumed after every erasure so far."""
        sql = "SELECT 1 FROM marks WHERE owner = %s AND name = %s"
        with self._connections.as_of_now() as connection:
            for owner in every_owner(connection):
                become(connection, owner)
                if connection.execute(sql, [owner, UNSCRUBBED]).fetchone():
                    return False
        return True

    def _kept(self) -> list[Path]:
        return sorted(self._folder.glob(_BEFORE_RESTORE))

    def _note_backup(self, target: Path) -> None:
        with explain(self._connections.address), self._connections.direct() as connection, connection.transaction():
            connection.execute("SELECT set_config('search_path', %s, true)", [SCHEMA])
            migrations.note(connection, f"backup {target.absolute()}", "")


def _write(connection: Connection, target: Path) -> None:
    def rows_of(owner: str, table: str) -> Iterator[dict[str, Any]]:
        become(connection, owner)
        with connection.cursor(f"dump_{table}", row_factory=dict_row) as cursor:
            # Conversations before what they were given, and everything in a settled order.
            order = dump.NUMBERED.get(table, "1, 2, 3")
            cursor.execute(f"SELECT * FROM {table} WHERE owner = %s ORDER BY {order}", [owner])
            yield from cursor

    dump.write(target, every_owner(connection), rows_of)


def _issues(connection: Connection, owners: Iterable[str], *, deep: bool) -> list[IntegrityIssue]:
    issues: list[IntegrityIssue] = []
    for owner in owners:
        become(connection, owner)
        read = partial(_read, connection, owner)
        issues += integrity.misplaced(read, _OWNED)
        if deep:
            issues += integrity.wrong_hashes(read, _OWNED)
            issues += integrity.broken_journal(read, _OWNED, DIALECT.own)
    return issues


def _read(connection: Connection, owner: str, sql: str) -> Iterator[Sequence[Any]]:
    with connection.cursor("check") as cursor:
        cursor.execute(sql, {"owner": owner})
        yield from cursor


def vacuum(transactions: OwnerTransactions, done: str) -> None:
    """Take deleted rows out of the tables; the change is committed, whatever happens here."""
    try:
        vacuum_tables(transactions.connections)
        with transactions.writing() as connection:
            connection.execute("DELETE FROM marks WHERE owner = %s AND name = %s", [transactions.owner, UNSCRUBBED])
    except (psycopg.Error, StoreUnavailable) as error:
        raise StoreUnavailable(
            f"{done}, but the deleted rows are still in the tables ({error}): run `triskele doctor`"
        ) from error


def vacuum_tables(connections: Connections, *, full: bool = False) -> None:
    """Vacuum every table that holds words; `full` rewrites them, and locks each while it runs."""
    with connections.direct() as connection:
        has_embeddings = connection.execute("SELECT to_regclass(%s)", [f"{SCHEMA}.{EMBEDDINGS}"]).fetchone() != (None,)
        for table in (*_TABLES, *([EMBEDDINGS] if has_embeddings else [])):
            connection.execute(f"VACUUM {'FULL ' if full else ''}{SCHEMA}.{table}")


# Archives: the rows as of one moment, and the transaction that takes them

_PAGE = 500
# Several owners: a lock on the list of them all keeps other writers out, however many there are.
_LOCK_ALL = "LOCK TABLE owners IN SHARE ROW EXCLUSIVE MODE"
# The owner's own rows under the names of the tables, without the copies of memories that others share.
_OWN = f"""
WITH versions AS (SELECT * FROM {SCHEMA}.versions WHERE owner = {{owner}} AND shared_by IS NULL),
links AS (SELECT * FROM {SCHEMA}.links WHERE owner = {{owner}} AND source IN (SELECT id FROM versions)
          AND target IN (SELECT id FROM versions)),
vectors AS (SELECT * FROM {SCHEMA}.vectors WHERE owner = {{owner}}
            AND content_hash IN (SELECT content_hash FROM versions)),
mentions AS (SELECT * FROM {SCHEMA}.mentions WHERE owner = {{owner}} AND row IN (SELECT row FROM versions)),
jobs AS (SELECT * FROM {SCHEMA}.jobs WHERE owner = {{owner}} AND key IN (SELECT row::text FROM versions)),
journal AS (SELECT * FROM {SCHEMA}.journal WHERE owner = {{owner}} AND id NOT IN (
    SELECT id FROM {SCHEMA}.journal WHERE owner = {{owner}} GROUP BY id
    HAVING (array_agg(action ORDER BY seq))[1] = '{Action.SHARED.value}'))
"""
_SEQUENCE = "pg_get_serial_sequence('{schema}.{table}', '{column}')"


class PostgresArchive:
    """Makes archives of one database and takes them."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    @contextmanager
    def reading(self) -> Iterator[_ArchiveReader]:
        """Read the database as of one moment."""
        with self._connections.as_of_now() as connection:
            yield _ArchiveReader(connection)

    @contextmanager
    def writing(self, owner: str | None) -> Iterator[_ArchiveWriter]:
        """Write the rows of one owner, or of several, in one transaction, all or none."""
        if owner is not None:
            with OwnerTransactions(self._connections, owner).writing() as connection:
                yield _ArchiveWriter(self._connections, connection)
            return
        with explain(self._connections.address), self._connections.transaction("BEGIN", "") as (connection, _):
            connection.execute(_LOCK_ALL)
            yield _ArchiveWriter(self._connections, connection)
            connection.execute("COMMIT")


class _ArchiveReader:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._names = counter()

    def owners(self) -> list[str]:
        return every_owner(self._connection)

    def rows(self, owner: str, sql: str) -> Iterator[Sequence[Any]]:
        become(self._connection, owner)
        with self._connection.cursor(f"archive_{next(self._names)}") as cursor:
            cursor.itersize = _PAGE
            cursor.execute((_OWN + sql).replace("{owner}", "%(owner)s"), {"owner": owner})
            yield from cursor


class _ArchiveWriter:
    def __init__(self, connections: Connections, connection: Connection) -> None:
        self._connections = connections
        self._connection = connection

    def reserve(self, table: str, column: str, count: int) -> int:
        """The lock is held for a moment: inserts of others wait for it, and so none takes a number in between."""
        sequence = _SEQUENCE.format(schema=SCHEMA, table=table, column=column)
        with self._connections.direct() as connection, connection.transaction():
            connection.execute(f"LOCK TABLE {SCHEMA}.{table} IN SHARE ROW EXCLUSIVE MODE")
            row = connection.execute(
                f"SELECT coalesce(last_value, 0) FROM pg_sequences"
                f" WHERE quote_ident(schemaname) || '.' || quote_ident(sequencename) = {sequence}"
            ).fetchone()
            taken = int(row[0]) if row else 0
            if count:
                connection.execute(f"SELECT setval({sequence}, %s)", [taken + count])
        return taken

    def begin(self, owner: str, tables: Iterable[str]) -> None:
        become(self._connection, owner)
        self._connection.execute("INSERT INTO owners VALUES (%s) ON CONFLICT DO NOTHING", [owner])
        if self._connection.execute("SELECT 1 FROM journal WHERE owner = %s LIMIT 1", [owner]).fetchone():
            raise Conflict(f"the store has memories of {owner!r}: an archive goes where its owner has none")
        for table in ("marks", *reversed([*tables])):
            self._connection.execute(f"DELETE FROM {table} WHERE owner = %s", [owner])

    def insert(self, table: str, rows: Sequence[Values]) -> None:
        names = list(rows[0])
        sql = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(['%s'] * len(names))})"
        try:
            self._connection.cursor().executemany(sql, [[row[name] for name in names] for row in rows])
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            raise ValueError(f"rows that {table} refuses") from error
