"""Connections to a Postgres database: a bounded pool, the transactions of one owner, and what failures mean.

Everything that a transaction needs to know (owner, role, search path, timeouts) is set inside it, so that a pooler that
gives every transaction another connection changes nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from triskele.config import shown_url
from triskele.errors import BadInput, StoreClosed, StoreDamaged, StoreNewer, StoreUnavailable, TriskeleError
from triskele.server.postgres import migrations, round_trips
from triskele.server.postgres.heads import SNAPSHOT_START, SnapshotStart
from triskele.server.postgres.replicas import OWNER_EPOCH, WRITTEN, Positions, Replica, epoch_of, give_back

SCHEMA = migrations.SCHEMA
# The interval of retries after the server was killed.
_POLL_S = 0.1
_TURN_S = 1.0
_CONNECT_TIMEOUT_S = 10
# So long a primary that does not answer keeps a read from its replica.
_PATIENCE_S = 1.0
_READ, _WRITE = "BEGIN READ ONLY", "BEGIN"
SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_SETTINGS = (
    "SELECT set_config('role', %s, true), set_config('search_path', %s, true), set_config('triskele.owner', %s, true),"
    " set_config('lock_timeout', %s, true),"
    " set_config('synchronous_commit', coalesce(%s, current_setting('synchronous_commit')), true)"
)
SEE_ACCOUNTS = "SELECT set_config('triskele.accounts', 'on', true)"
HIDE_ACCOUNTS = "SELECT set_config('triskele.accounts', '', true)"
# Takes the locks of some owners, one after the other, then makes sure that they are listed.
_LOCK = (
    "WITH locked AS MATERIALIZED (SELECT one, {take}(hashtextextended('triskele owner ' || one, 0)) AS taken"
    " FROM unnest(%(owners)s::text[]) AS one),"
    " listed AS (INSERT INTO owners SELECT one FROM locked ON CONFLICT DO NOTHING)"
    " SELECT taken, (SELECT value FROM meta WHERE name = %(least)s) FROM locked"
)
# The same lock of one owner, for transactions that do not run as that owner.
LOCK_OWNER = "SELECT pg_advisory_xact_lock(hashtextextended('triskele owner ' || %s, 0))"

Connection = round_trips.Connection
Bindings = Sequence[Any] | Mapping[str, Any]
Result = TypeVar("Result")


@contextmanager
def seeing_accounts(connection: Connection) -> Iterator[None]:
    """Let a transaction of an owner see users, groups and all owners for a while."""
    connection.execute(SEE_ACCOUNTS)
    yield
    connection.execute(HIDE_ACCOUNTS)


def every_owner(connection: Connection) -> list[str]:
    """The owners in the database, in order."""
    with seeing_accounts(connection):
        return [str(owner) for (owner,) in connection.execute("SELECT owner FROM owners ORDER BY owner").fetchall()]


def become(connection: Connection, owner: str) -> None:
    """Let a transaction read and write the rows of another owner from now on."""
    connection.execute("SELECT set_config('triskele.owner', %s, true)", [owner])


class Connections:
    """A pool of connections to one database; opening it brings the database up to this version.

    With a `read_url`, snapshots are taken from a replica that has replayed what their owner has `written`.
    """

    def __init__(self, url: str, *, timeout_s: float = 30.0, most: int = 10, read_url: str = "") -> None:
        self.address = shown_url(url)
        self.timeout_s = timeout_s
        with explain(self.address), connect(url) as connection:
            self.role = migrations.prepare(connection)
            self.replica = Replica(read_url, _POOL, epoch_of(connection), most=most) if read_url else None
        self._url = url
        self._pool: ConnectionPool[Connection] = ConnectionPool(url, max_size=most, open=True, **_POOL)
        self.written = Positions(self._newest_position)

    @contextmanager
    def transaction(
        self, begin: str, owner: str, first: str = "", bindings: Bindings = (), **how: Any
    ) -> Iterator[tuple[Connection, list[Any]]]:
        """A connection inside a transaction of one owner, and the rows of its first statement, if any.

        The caller commits, and whatever is left is rolled back. `how` is that of `_begun`.
        """
        connection, rows = self._begun(begin, owner, first, bindings, **how)
        try:
            yield connection, rows
        finally:
            give_back(self._pool, connection)

    @contextmanager
    def as_of_now(self) -> Iterator[Connection]:
        """A transaction that reads the database as of one moment, for one owner after the other."""
        with explain(self.address), self.transaction(SNAPSHOT, "") as (connection, _):
            yield connection

    @contextmanager
    def accounts(self) -> Iterator[Connection]:
        """A transaction that sees users, keys and groups instead of an owner's rows, durable once it ends."""
        with explain(self.address), self.transaction(_WRITE, "", SEE_ACCOUNTS) as (connection, _):
            yield connection
            connection.execute("COMMIT")

    def account_rows(self, sql: str, bindings: Bindings = ()) -> list[Any]:
        """The rows of a query over users and keys in one round trip: every request of a server makes one."""
        with (
            explain(self.address),
            self.transaction(_READ, "", sql, bindings, ends=True, sees_accounts=True) as (_, rows),
        ):
            return rows

    def close(self) -> None:
        """Close every connection."""
        if self.replica is not None:
            self.replica.close()
        self._pool.close()

    def settings_of(self, owner: str, *, durable: bool = True) -> tuple[str, list[str | None]]:
        """The statement that prepares a transaction of an owner."""
        # A durable write commits as the database is set up to; it may wait for its replicas.
        sync = None if durable else "off"
        return _SETTINGS, [self.role, f"{SCHEMA}, public", owner, str(round(self.timeout_s * 1000)), sync]

    def direct(self) -> Connection:
        """A separate connection in autocommit mode, for statements that cannot run in a transaction."""
        with explain(self.address):
            return connect(self._url)

    def _begun(
        self,
        begin: str,
        owner: str,
        first: str,
        bindings: Bindings,
        *,
        durable: bool = True,
        ends: bool = False,
        sees_accounts: bool = False,
        patience_s: float | None = None,
    ) -> tuple[Connection, list[Any]]:
        """A connection on which a transaction has begun, or began and `ends`, and the rows of its first statement.

        Only one that writes nothing may end here. All of that goes in one round trip, but for the end behind a pooler.
        A connection that a killed server left behind is replaced.
        """
        settings = self.settings_of(owner, durable=durable)
        until = time.monotonic() + (self.timeout_s if patience_s is None else patience_s)
        while True:
            connection = self._borrowed(until)
            try:
                if first is SNAPSHOT_START and is_direct(connection):
                    return connection, round_trips.fetch(connection, (begin, ()), settings, (first, bindings))
                with connection.pipeline():
                    connection.execute(begin)
                    cursor = connection.execute(*settings)
                    if sees_accounts:
                        connection.execute(SEE_ACCOUNTS)
                    if first:
                        cursor = connection.execute(first, bindings)
                    # Behind a pooler `give_back` ends it: see `is_direct`.
                    if ends and is_direct(connection):
                        connection.execute("COMMIT")
                return connection, cursor.fetchall() if first else []
            except psycopg.OperationalError as error:
                give_back(self._pool, connection)
                if not is_lost(error) or time.monotonic() > until:
                    raise
            except BaseException:
                give_back(self._pool, connection)
                raise

    def _newest_position(self) -> str:
        with explain(self.address), self.transaction(_READ, "", WRITTEN, ends=True) as (_, [[position]]):
            return str(position)

    def _borrowed(self, ends: float) -> Connection:
        """A connection of the pool; waits for a server that is starting again."""
        while True:
            try:
                return self._pool.getconn(timeout=self._turn_s())
            except PoolTimeout:
                if time.monotonic() > ends:
                    # The pool does not report the cause: a separate connection does.
                    with explain(self.address):
                        connect(self._url).close()
                    raise StoreUnavailable(
                        f"every connection to the store {self.address} is in use: try again"
                    ) from None

    def _turn_s(self) -> float:
        """How long to wait for a connection: a second request goes to the end of the line."""
        return _TURN_S if self._pool.get_stats()["pool_size"] >= self._pool.max_size else _POLL_S


class OwnerTransactions:
    """The transactions of one owner; inside one, everything this thread reads comes from it."""

    def __init__(self, connections: Connections, owner: str) -> None:
        self.owner = owner
        self.connections = connections
        self.written = connections.written[owner]
        self._local = threading.local()

    @property
    def address(self) -> str:
        """The address of the database without its password."""
        return self.connections.address

    @property
    def snapshot_start(self) -> SnapshotStart | None:
        """What the snapshot of this thread has read as it began; None outside of one, and on a replica."""
        start: SnapshotStart | None = getattr(self._local, "snapshot_start", None)
        return start

    def all(self, sql: str, bindings: Bindings = ()) -> list[Any]:
        """The rows of a query; repeated if a killed server broke the connection."""
        if self._current() is None:
            return self.all_now(sql, bindings)
        return self.read(lambda connection: connection.execute(sql, bindings).fetchall())

    def fetch(self, sql: str, bindings: round_trips.Texts) -> list[Any]:
        """The rows of a query that every recall makes, with texts as values."""
        connection = self._current()
        if connection is None or not is_direct(connection) or getattr(self._local, "instead", None) is not None:
            return self.all(sql, bindings)
        with explain(self.address):
            return round_trips.fetch(connection, (sql, bindings))

    def read(self, work: Callable[[Connection], Result]) -> Result:
        """Run some reads as of one moment; if a replica fails, all of them are repeated on the primary."""
        with self.reading() as connection:
            try:
                return work(connection)
            except psycopg.OperationalError:
                if not self._leaves_replica():
                    raise
        return self.read(work)

    def all_now(self, sql: str, bindings: Bindings = ()) -> list[Any]:
        """The rows of a query as of now, inside a snapshot too."""
        with (
            explain(self.address),
            self.connections.transaction(_READ, self.owner, sql, bindings, ends=True) as (_, rows),
        ):
            return rows

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection to read several things from, as of one moment; a replica may break it off, see `read`."""
        connection = self._current()
        if connection is not None:
            with explain(self.address):
                yield connection
            return
        with self._entered(SNAPSHOT) as (connection, _):
            yield connection

    @contextmanager
    def snapshot(self, model: str = "") -> Iterator[None]:
        """Let this thread read the database as of one moment, or a replica; inside, nothing may be written.

        `snapshot_start` is read with it for a model. One inside another is part of it.
        """
        if self._current() is not None:
            yield
            return
        replica = self.connections.replica
        connection = None if replica is None else self._begun_at(replica)
        if replica is None or connection is None:
            with self._entered(SNAPSHOT, SNAPSHOT_START, {"owner": self.owner, "model": model}) as (_, [row]):
                self._local.snapshot_start = SnapshotStart.of(model, row)
                try:
                    yield
                finally:
                    self._local.snapshot_start = None
            return
        with ExitStack() as instead:
            self._local.connection, self._local.instead = connection, instead
            try:
                yield
            finally:
                self._local.connection = self._local.instead = None
                replica.give_back(connection)

    def _begun_at(self, replica: Replica) -> Connection | None:
        """A snapshot of the replica, if it has every erasure and every end of a share that the primary has."""
        query = f"SELECT {OWNER_EPOCH}", {"owner": self.owner}
        try:
            with (
                explain(self.address),
                self.connections.transaction(_READ, self.owner, *query, ends=True, patience_s=_PATIENCE_S) as (_, rows),
            ):
                newest: list[Any] | None = rows
        except StoreClosed:
            raise
        except StoreUnavailable as error:
            if not isinstance(error.__cause__, psycopg.Error) or not is_lost(error.__cause__):
                return None
            # Without a primary no share can end: read the replica as it is.
            newest = None
        settings = self.connections.settings_of(self.owner)
        return replica.begun(SNAPSHOT, settings, str(self.written), query, newest)

    def _leaves_replica(self) -> bool:
        """Continue a snapshot that the replica broke off on the primary; False if none is in progress."""
        instead: ExitStack | None = getattr(self._local, "instead", None)
        if instead is None or self.connections.replica is None:
            return False
        self.connections.replica.rest()
        self._local.instead = None
        self._local.connection, _ = instead.enter_context(self.connections.transaction(SNAPSHOT, self.owner))
        return True

    @contextmanager
    def writing(self, *, wait: bool = True, durable: bool = True, others: Iterable[str] = ()) -> Iterator[Connection]:
        """A transaction, durable once it ends; without `wait` an owner whose rows are being written refuses at once.

        The owner's lock orders the transactions, so that journal entries become visible in the order of their numbers.
        The locks of `others`, whose rows are written too, are taken with it in one order, so there is no deadlock.
        """
        if self._current() is not None:
            raise StoreUnavailable("nothing can be written inside a snapshot of the store")
        take = "pg_advisory_xact_lock" if wait else "pg_try_advisory_xact_lock"
        bindings = {"owners": sorted({self.owner, *others}), "least": migrations.LEAST}
        with self._entered(_WRITE, _LOCK.format(take=take), bindings, durable=durable) as (connection, rows):
            if any(taken is False for taken, _ in rows):
                raise StoreUnavailable(f"the store {self.address} is busy with other writers: try again")
            migrations.refuse_newer(int(rows[0][1] or 0))
            yield connection
            self._commit(connection, [self.owner, *others] if durable else [])

    def _commit(self, connection: Connection, owners: Sequence[str]) -> None:
        """Commit, and let reads of these owners from now on see it."""
        try:
            if not owners or self.connections.replica is None:
                connection.execute("COMMIT")
                return
            with connection.pipeline() if is_direct(connection) else nullcontext():
                connection.execute("COMMIT")
                cursor = connection.execute(WRITTEN)
            [[position]] = cursor.fetchall()
            for owner in owners:
                self.connections.written[owner].advance(str(position))
        except psycopg.OperationalError as error:
            if not is_lost(error):
                raise
            raise StoreUnavailable(
                f"the connection to the store {self.address} was lost during the commit: whether the change was"
                " written is unknown; look before you repeat it"
            ) from error

    @contextmanager
    def _entered(
        self, begin: str, first: str = "", bindings: Bindings = (), **how: bool
    ) -> Iterator[tuple[Connection, list[Any]]]:
        with (
            explain(self.address),
            self.connections.transaction(begin, self.owner, first, bindings, **how) as (connection, rows),
        ):
            self._local.connection = connection
            try:
                yield connection, rows
            finally:
                self._local.connection = None

    def _current(self) -> Connection | None:
        connection: Connection | None = getattr(self._local, "connection", None)
        return connection


# No prepared statements: they belong to a connection, which a pooler may exchange at any time.
_OPTIONS: dict[str, Any] = {"autocommit": True, "prepare_threshold": None, "connect_timeout": _CONNECT_TIMEOUT_S}
# A statement that a connection to the server itself has seen so often is prepared: planning it again costs more than
# running it.
_PREPARED_AFTER = 5


def prepare_if_direct(connection: Connection) -> None:
    """Let statements be prepared, unless a pooler is in between: it names another process than the one that answers."""
    [process] = connection.execute("SELECT pg_backend_pid()").fetchone() or [None]
    if process == connection.info.backend_pid:
        connection.prepare_threshold = _PREPARED_AFTER


def is_direct(connection: Connection) -> bool:
    """Whether a pipeline may end a transaction: only where `prepare_if_direct` has found no pooler in between.

    The driver sends a Flush after the Sync of a pipeline. If the transaction has ended by then, PgBouncer takes another
    connection to the server for that Flush alone, and keeps it from all others until this client asks again.
    """
    return connection.prepare_threshold is not None


# The loop in `_borrowed` tries again; the pool itself would wait ever longer.
_POOL: dict[str, Any] = {"min_size": 0, "reconnect_timeout": 0, "kwargs": _OPTIONS, "configure": prepare_if_direct}


def connect(url: str) -> Connection:
    """A connection outside of every pool; the caller closes it."""
    try:
        return psycopg.connect(url, **_OPTIONS)
    except psycopg.ProgrammingError:
        # Its own message would show the password.
        raise BadInput("not a store address (write postgresql://user@host:5432/database)") from None


def is_lost(error: psycopg.Error) -> bool:
    """Whether an error means a lost connection, not a refused statement."""
    return isinstance(error, errors.AdminShutdown | errors.CrashShutdown | errors.CannotConnectNow) or (
        isinstance(error, psycopg.OperationalError) and error.sqlstate is None
    )


@contextmanager
def explain(address: str) -> Iterator[None]:
    """Turn errors of the database into one clear line each."""
    try:
        yield
    except psycopg.Error as error:
        raise _explained(error, address) from error


def _explained(error: psycopg.Error, address: str) -> TriskeleError:
    # Only the primary message: details may quote rows.
    reason = error.diag.message_primary or str(error).strip().partition("\n")[0]
    if isinstance(error, PoolClosed):
        return StoreClosed(f"the store {address} was closed: open it again to use it")
    if isinstance(error, errors.LockNotAvailable | errors.DeadlockDetected | errors.QueryCanceled):
        return StoreUnavailable(f"the store {address} is busy with other writers: try again")
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return StoreUnavailable(f"the store {address} is read-only")
    if isinstance(error, errors.DiskFull | errors.OutOfMemory):
        return StoreUnavailable(f"no space left for the store {address}: nothing was changed")
    if isinstance(error, errors.DataCorrupted | errors.IndexCorrupted):
        return StoreDamaged(f"the store {address} is damaged ({reason}): restore a backup")
    if isinstance(error, errors.UndefinedTable | errors.UndefinedColumn):
        return StoreNewer(f"the tables of {address} are not those of this version ({reason}): upgrade triskele")
    if is_lost(error):
        return StoreUnavailable(f"the store {address} does not answer ({reason}): nothing was written; try again")
    return StoreUnavailable(f"the store {address} refused: {reason}")
