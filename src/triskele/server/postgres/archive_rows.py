"""Archives of a Postgres store: the rows of its owners as of one moment, and the transaction that takes one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count as counter
from typing import Any

import psycopg

from triskele.errors import Conflict
from triskele.server.postgres.connections import (
    SNAPSHOT,
    Connection,
    Connections,
    OwnerTransactions,
    every_owner,
    explain,
)
from triskele.server.postgres.migrations import SCHEMA
from triskele.store.archive import Values
from triskele.types import Action

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
    def reading(self) -> Iterator[_Reader]:
        """Read the database as of one moment."""
        with explain(self._connections.address), self._connections.transaction(SNAPSHOT, "") as (connection, _):
            yield _Reader(connection)

    @contextmanager
    def writing(self, owner: str | None) -> Iterator[_Writer]:
        """Write the rows of one owner, or of several, in one transaction, all or none."""
        if owner is not None:
            with OwnerTransactions(self._connections, owner).writing() as connection:
                yield _Writer(self._connections, connection)
            return
        with explain(self._connections.address), self._connections.transaction("BEGIN", "") as (connection, _):
            connection.execute(_LOCK_ALL)
            yield _Writer(self._connections, connection)
            connection.execute("COMMIT")


class _Reader:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._names = counter()

    def owners(self) -> list[str]:
        return every_owner(self._connection)

    def rows(self, owner: str, sql: str) -> Iterator[Sequence[Any]]:
        _become(self._connection, owner)
        with self._connection.cursor(f"archive_{next(self._names)}") as cursor:
            cursor.itersize = _PAGE
            cursor.execute((_OWN + sql).replace("{owner}", "%(owner)s"), {"owner": owner})
            yield from cursor


class _Writer:
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
        _become(self._connection, owner)
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


def _become(connection: Connection, owner: str) -> None:
    connection.execute("SELECT set_config('triskele.owner', %s, true)", [owner])
