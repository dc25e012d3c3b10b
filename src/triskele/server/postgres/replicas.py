"""Read from a replica, only if it has replayed the writes of the owner.

A position is that of the write-ahead log after a write. A read waits for the replica only for a moment; if it is
behind, lost or refuses, the primary is used.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool, PoolTimeout

from triskele.errors import BadInput
from triskele.server.postgres.migrations import EPOCH, ERASURES, SCHEMA
from triskele.server.postgres.round_trips import Connection

# How long a read waits for a connection, and how long a replica without a connection is not used.
_PATIENCE_S = 1.0
_REST_S = 10.0
_POSITION = re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}")
# A replica that was promoted is the end of its own log.
_REACHED = (
    "SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END"
    " >= %s::pg_lsn"
)
# After the commit: everything that it wrote lies before.
WRITTEN = "SELECT pg_current_wal_insert_lsn()::text"
# A run of an owner's journal. An erasure and the end of a share begin another: no replica that is behind may answer,
# and the files of every instance that hold what is gone are made again.
OWNER_EPOCH = (
    f"(SELECT value FROM meta WHERE name = '{EPOCH}')"
    f" || coalesce((SELECT '-' || value FROM marks WHERE owner = %(owner)s AND name = '{ERASURES}'), '')"
)


class Position:
    """The furthest position that reads of an owner must have reached; empty if nothing was written."""

    def __init__(self, newest: Callable[[], str]) -> None:
        self._text = ""
        self._newest = newest
        self._mutex = threading.Lock()

    def __str__(self) -> str:
        return self._text

    def advance(self, text: str) -> None:
        """Let reads be as new as another position, if it is further."""
        with self._mutex:
            if _number(text) > _number(self._text):
                self._text = text

    def follow(self, text: str) -> None:
        """Make reads at least as new as a client's position; positions beyond the primary's are ignored."""
        if not _POSITION.fullmatch(text) or _number(text) <= _number(self._text):
            return
        # Of another database, or made up: no read would go to the replica ever again.
        if _number(text) <= _number(self._newest()):
            self.advance(text)


class Positions(dict[str, Position]):
    """The position of each owner, shared by all threads; `newest` reads that of the primary."""

    def __init__(self, newest: Callable[[], str]) -> None:
        super().__init__()
        self._newest = newest

    def __missing__(self, owner: str) -> Position:
        return self.setdefault(owner, Position(self._newest))


def _number(position: str) -> int:
    if not position:
        return 0
    if not _POSITION.fullmatch(position):
        raise BadInput("not a position of the store: use the one that an answer gave, or none")
    high, _, low = position.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def epoch_of(connection: Connection) -> str:
    """An identifier of a database and of each epoch of its journals."""
    row = connection.execute(f"SELECT value FROM {SCHEMA}.meta WHERE name = %s", [EPOCH]).fetchone()
    return str(row[0]) if row else ""


def give_back(pool: ConnectionPool[Connection], connection: Connection) -> None:
    """End what is left of a transaction, and let others use the connection."""
    status, now = psycopg.pq.TransactionStatus, connection.pgconn.transaction_status
    if not connection.closed and now != status.IDLE:
        if now == status.INERROR:
            # The driver counts a statement as prepared where an error before it in a pipeline kept it from the server,
            # and keeps one whose plan is no longer valid: both would fail for as long as the connection lives.
            connection.prepare_threshold = None
        with suppress(psycopg.Error):
            connection.pgconn.exec_(b"ROLLBACK")
    pool.putconn(connection)


class Replica:
    """A bounded pool of connections to a replica, which never gets a write."""

    def __init__(self, url: str, pool: dict[str, Any], epoch: str, *, most: int = 10) -> None:
        try:
            conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            # Its own message would show the password.
            raise BadInput(
                "setting store.read_url is not an address (write postgresql://user@host:5432/database)"
            ) from None
        self._epoch: str | None = epoch
        self._pool: ConnectionPool[Connection] = ConnectionPool(url, max_size=most, open=True, **pool)
        self._rests_until = 0.0

    def begun(
        self, begin: str, settings: tuple[str, Sequence[Any]], position: str, asked: tuple[str, Any], rows: Any
    ) -> Connection | None:
        """A connection with an open transaction that sees a position; None if the primary has to be used.

        Also None if the statement `asked` returns other rows here than `rows`; None as `rows` accepts any.
        """
        if time.monotonic() < self._rests_until:
            return None
        try:
            connection = self._pool.getconn(timeout=_PATIENCE_S)
        except PoolTimeout:
            self.rest()
            return None
        try:
            self._recognise(connection)
            # Before the transaction: its snapshot must not be older than the answer.
            if not position or connection.execute(_REACHED, [position]).fetchall() == [(True,)]:
                with connection.pipeline():
                    connection.execute(begin)
                    connection.execute(*settings)
                    cursor = connection.execute(*asked)
                if rows is None or cursor.fetchall() == rows:
                    return connection
        except psycopg.Error:
            self.rest()
        self.give_back(connection)
        return None

    def _recognise(self, connection: Connection) -> None:
        """Refuse, until it was right once, a database that is not the primary's or has none of its tables yet."""
        if self._epoch is not None and epoch_of(connection) != self._epoch:
            raise psycopg.OperationalError("another database")
        self._epoch = None

    def rest(self) -> None:
        """Stop using the replica for a while."""
        self._rests_until = time.monotonic() + _REST_S

    def give_back(self, connection: Connection) -> None:
        """End the transaction, and let others use the connection."""
        give_back(self._pool, connection)

    def close(self) -> None:
        """Close every connection."""
        self._pool.close()
