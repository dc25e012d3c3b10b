"""The SQLite file of a store: one connection per thread, transactions and snapshots, and what one owner sees of it."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

import apsw

from triskele.errors import StoreClosed, StoreDamaged, StoreUnavailable
from triskele.store.sqlite import lost_writes, schema, store_file
from triskele.store.statements import Dialect, OwnerDatabase, Rows, head_columns
from triskele.text.files import file_lock, has_no_room, is_full
from triskele.types import LinkKind

_NO_FILE = (0, 0)
_CLOSE_TRIES, _CLOSE_PAUSE_S = 500, 0.01


DIALECT = Dialect(
    # A list is bound as JSON: one text for lists of any length, so that the statement is prepared once.
    listed="IN (SELECT value FROM json_each(?))",
    listed_as="IN (SELECT value FROM json_each({}))",
    elements="json_each({})",
    has_tag=lambda tag: ("EXISTS (SELECT 1 FROM json_each(versions.tags) WHERE value = ?)", [tag]),
    unindexed="+",
    by_model=" INDEXED BY vector_model",
    in_row_order=" NOT INDEXED",
    # The planner would rather walk through the whole project.
    by_content=" INDEXED BY version_content",
)

_HEADS = head_columns("readings", DIALECT.by_model)


def bound(values: Iterable[Any]) -> list[Any]:
    """The values of a statement, in which a list is one value."""
    return [json.dumps(value) if isinstance(value, list) else value for value in values]


class _OfThread(threading.local):
    """What a thread has of a file: its connection, and small answers that hold until the file changes."""

    def __init__(self) -> None:
        self.connection: apsw.Connection | None = None
        self.file = _NO_FILE
        self.state: tuple[int, int] | None = None
        self.is_still = False
        self.kept: dict[tuple[Any, ...], list[Any]] = {}


class Database:
    """One SQLite file; every thread has its own connection.

    If there is no file, one of `traces` shows that it is lost rather than new.
    """

    def __init__(self, path: Path, *, busy_timeout_s: float, traces: Sequence[Path]) -> None:
        self.path = path
        self._busy_timeout_s = busy_timeout_s
        self._traces = tuple(traces)
        self._local = _OfThread()
        # Weak, so that a thread's connection goes when the thread does.
        self._opened: WeakSet[apsw.Connection] = WeakSet()
        self._opened_lock = threading.Lock()
        self._is_closed = False
        self._open_address = str(path)
        self._file = _NO_FILE
        with explain(path):
            self._open()

    def _open(self) -> None:
        """Open the file at the path; a new one gets its tables."""
        path = self.path
        store_file.refuse_lost(path, self._traces)
        is_restored = store_file.committed_restore(path).exists()
        if not is_restored:
            schema.refuse_other_file(path)
        if store_file.cannot_be_written(path):
            self._open_address = store_file.read_only_address(path)
            self._file = _file_number(path)
            self.connection()
            return
        if not (is_restored or store_file.looks_like_one(path)):
            # Checked before a lock file is written next to a file of another program.
            raise apsw.NotADBError("file is not a database")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Several processes may find an empty folder at once; only one creates the tables.
        with file_lock(store_file.lock_of(path), timeout_s=self._busy_timeout_s) as is_held:
            if not is_held:
                raise StoreUnavailable(f"the store {path} is being set up by another process: try again")
            store_file.finish(path)
            if not path.exists():
                # Only for the user; the write-ahead log takes the mode of the file.
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
            self._file = _file_number(path)
            try:
                schema.create(self.connection())
                lost_writes.set_aside(self.connection(), path)
            except BaseException:
                # Closed late, a connection would meddle with the files that replace these.
                self._disconnect(is_sound=False)
                raise

    @property
    def is_read_only(self) -> bool:
        """Whether the file could not be written when it was opened."""
        return self._open_address != str(self.path)

    def connection(self) -> apsw.Connection:
        """The connection of this thread."""
        connection = self._local.connection
        if connection is not None and self._local.file != self._file:
            self._drop(connection)
            connection = None
        if connection is None:
            with self._opened_lock:
                self._refuse_closed()
                connection = self._connect()
                self._opened.add(connection)
            connection.set_busy_timeout(int(self._busy_timeout_s * 1000))
            # Before anything is written: another program's file stays as it is.
            schema.refuse_other_format(connection)
            if not self.is_read_only:
                connection.pragma("journal_mode", "wal")
            connection.pragma("synchronous", "full")
            connection.pragma("foreign_keys", True)
            self._local.connection, self._local.file = connection, self._file
            self._local.state = None
        return connection

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise _closed(self.path)

    def _drop(self, connection: apsw.Connection) -> None:
        """Close a connection to a file that another one has replaced; the log at the path belongs to the new one."""
        self._local.connection = None
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.close()

    def _renew(self) -> None:
        """Reopen the file if another one replaced it; raise if it is gone."""
        self._refuse_closed()
        number = _file_number(self.path)
        if number == self._file:
            return
        if number == _NO_FILE:
            raise StoreDamaged(
                f"the database {self.path} was removed while it was open, and nothing was written:"
                " put it back, or run `triskele restore FILE`"
            )
        with self._opened_lock:
            self._file = number
        self._open()

    def _connect(self) -> apsw.Connection:
        if self.is_read_only:
            return apsw.Connection(self._open_address, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        return apsw.Connection(self._open_address)

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """The connection of this thread, to read from."""
        with self._explained():
            yield self.connection()

    def all(self, sql: str, bindings: Sequence[Any] = ()) -> list[Any]:
        """The rows of a query."""
        try:
            return self.connection().execute(sql, bindings).fetchall()
        except Exception:
            # Every recall checks this dozens of times: only a failure computes its explanation.
            with self._explained():
                raise

    def kept(self, sql: str, bindings: Sequence[Any] = ()) -> list[Any]:
        """The rows of a query, asked again only after a change: for the few small answers that every recall needs."""
        connection = self.connection()
        if connection.txn_state() == apsw.SQLITE_TXN_WRITE:
            # What is not committed may be rolled back.
            return self.all(sql, bindings)
        if not self._local.is_still:
            self._note_state(connection)
        answers, question = self._local.kept, (sql, *bindings)
        if question not in answers:
            answers[question] = self.all(sql, bindings)
        return list(answers[question])

    def _note_state(self, connection: apsw.Connection) -> None:
        """Forget what was kept if the file has changed."""
        with self._explained():
            state = self._state(connection)
        if state != self._local.state:
            self._local.kept, self._local.state = {}, state

    def _state(self, connection: apsw.Connection) -> tuple[int, int]:
        """Two numbers that change with the file: the one by other connections, the other by this one."""
        return connection.execute("PRAGMA data_version").get, connection.total_changes()

    def forget_kept(self) -> None:
        """Ask everything again: neither number tells of pages that are copied over this connection."""
        self._local.state = None

    def all_now(self, sql: str, bindings: Sequence[Any] = ()) -> list[Any]:
        """The rows of a query as of now, inside a snapshot too."""
        if not self.connection().in_transaction:
            return self.all(sql, bindings)
        with self._explained():
            other = self._connect()
            try:
                other.set_busy_timeout(int(self._busy_timeout_s * 1000))
                return other.execute(sql, bindings).fetchall()
            finally:
                other.close()

    @contextmanager
    def writing(self, *, wait: bool = True) -> Iterator[apsw.Connection]:
        """A transaction, durable once it ends; without `wait` a store that is being written refuses at once."""
        with self._explained():
            if self.is_read_only:
                raise apsw.ReadOnlyError
            self._renew()
            connection = self.connection()
            self._begin(connection, wait=wait)
            try:
                # Another program may have changed the format since the file was opened.
                self._refuse_other_format(connection)
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def noting(self, *, keeps: bool = False) -> Iterator[apsw.Connection]:
        """A transaction that waits for neither writers nor the disk: a power failure may lose it, and nothing else.

        `keeps`: it writes nothing that an answer in `kept` depends on, so that they still hold.
        """
        with self._explained():
            self._renew()
            connection = self.connection()
            connection.pragma("synchronous", "normal")
        try:
            with self.writing(wait=False):
                before = self._state(connection)
                yield connection
            if keeps and self._local.state == before:
                # Not asked again: another connection may have written since.
                self._local.state = before[0], connection.total_changes()
        finally:
            with self._explained():
                connection.pragma("synchronous", "full")

    def epoch(self) -> str:
        """A name for this run of the journal; a restored store begins another."""
        return str(self.epoch_and()[0])

    def epoch_and(self, *columns: str, bindings: Sequence[Any] = ()) -> Sequence[Any]:
        """The epoch and further values, all of one moment."""
        rows = self.kept(f"SELECT {', '.join(('value', *columns))} FROM meta WHERE name = 'epoch'", bindings)
        if not rows:
            raise StoreUnavailable(
                f"the store {self.path} is damaged (its epoch is missing): run `triskele restore FILE`"
            )
        row: Sequence[Any] = rows[0]
        return row

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let this thread read the file as of one moment; inside, nothing may be written.

        One inside another is part of it.
        """
        if self._local.is_still:
            yield
            return
        with self._explained():
            self._renew()
            connection = self.connection()
            connection.execute("BEGIN")
        try:
            self._note_state(connection)
            self._local.is_still = True
            with self._explained():
                self._refuse_other_format(connection)
            yield
        finally:
            self._local.is_still = False
            with self._explained():
                connection.execute("ROLLBACK")

    def replace(self, fresh: Path) -> Path | None:
        """Put a verified database in the place of this damaged one; the folder that keeps its files."""
        self._disconnect(is_sound=False)
        folder = store_file.replace(self.path, fresh, timeout_s=self._busy_timeout_s)
        self._file = _file_number(self.path)
        return folder

    def close(self) -> None:
        """Close every connection, of this thread and of others, and open none from now on."""
        self._is_closed = True
        self._disconnect(is_sound=True)

    def _disconnect(self, *, is_sound: bool) -> None:
        with self._opened_lock:
            for connection in list(self._opened):
                if not is_sound:
                    # The log of a damaged store stays as it is.
                    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                _close(connection)
            self._opened.clear()
        self._local = _OfThread()

    def _refuse_other_format(self, connection: apsw.Connection) -> None:
        # Not by `pragma`, which would parse the statement again at every recall.
        if self.kept("PRAGMA user_version") != [(schema.FORMAT,)]:
            schema.refuse_other_format(connection)

    def _begin(self, connection: apsw.Connection, *, wait: bool) -> None:
        if wait:
            connection.execute("BEGIN IMMEDIATE")
            return
        connection.set_busy_timeout(0)
        try:
            connection.execute("BEGIN IMMEDIATE")
        finally:
            connection.set_busy_timeout(int(self._busy_timeout_s * 1000))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Distinguish a file whose format another program has changed from a damaged one."""
        with explain(self.path):
            try:
                yield
            except apsw.SQLError:
                self._refuse_other_format(self.connection())
                raise


class SqliteOwner(OwnerDatabase):
    """A file as one owner uses it."""

    dialect = DIALECT

    def __init__(self, database: Database, owner: str, rows: Callable[[apsw.Connection, str], Rows]) -> None:
        self.owner = owner
        self._database = database
        self._rows = rows

    def all(self, sql: str, *bindings: Any) -> list[Any]:
        """The rows of a query whose first mark is the owner."""
        return self._database.all(sql, [self.owner, *bound(bindings)])

    def all_now(self, sql: str, *bindings: Any) -> list[Any]:
        """The rows of such a query as of now, inside a snapshot too."""
        return self._database.all_now(sql, [self.owner, *bound(bindings)])

    @contextmanager
    def writing(self, *, wait: bool = True) -> Iterator[Rows]:
        """A durable transaction; without `wait` a store that is being written refuses at once."""
        with self._database.writing(wait=wait) as connection:
            yield self._rows(connection, self.owner)

    @contextmanager
    def noting(self, *, keeps: bool = False) -> Iterator[Rows]:
        """A transaction that waits for neither writers nor the disk; `keeps` says that it writes usage only."""
        with self._database.noting(keeps=keeps) as connection:
            yield self._rows(connection, self.owner)

    def documents(self, kind: str) -> Iterable[tuple[str, str]]:
        """The keys and values of a kind, ordered by key."""
        # Every recall asks for kinds that most owners have none of.
        sql = "SELECT EXISTS (SELECT 1 FROM documents WHERE owner = ? AND kind = ?)"
        return [] if self._database.kept(sql, [self.owner, kind]) == [(0,)] else super().documents(kind)

    def may_have_links(self, ids: Sequence[str], kind: LinkKind | None) -> Sequence[str]:  # noqa: ARG002
        """The ids without those that certainly have no links of a kind."""
        return ids if self.may_supersede() else []

    def may_supersede(self) -> bool:
        """Whether a memory may ever have replaced another."""
        # Many stores have no links at all: one look saves two for each memory.
        sql = "SELECT EXISTS (SELECT 1 FROM links WHERE owner = ?)"
        return self._database.kept(sql, [self.owner]) != [(0,)]

    def heads(self, fingerprint: str) -> Sequence[Any]:
        """The columns of heads for a model, as of one moment."""
        return self._database.epoch_and(*_HEADS, bindings=[self.owner, fingerprint])


def _close(connection: apsw.Connection) -> None:
    """Close a connection; another thread may still read for a request that has timed out."""
    for _ in range(_CLOSE_TRIES):
        with suppress(apsw.ThreadingViolationError):
            connection.close()
            return
        time.sleep(_CLOSE_PAUSE_S)
    connection.close()


def _file_number(path: Path) -> tuple[int, int]:
    """The number that distinguishes a file from a later one of the same name."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return _NO_FILE
    return status.st_dev, status.st_ino


def _closed(path: Path) -> StoreClosed:
    return StoreClosed(f"the store {path} was closed: open it again to use it")


@contextmanager
def explain(path: Path) -> Iterator[None]:
    """Turn errors of the database into one clear line each."""
    try:
        yield
    except (apsw.ConnectionClosedError, apsw.CursorClosedError) as error:
        # Closed while a thread that was not waited for still read or wrote.
        raise _closed(path) from error
    except (apsw.BusyError, apsw.LockedError) as error:
        raise StoreUnavailable(f"the store {path} is busy with other writers: try again") from error
    except (apsw.ReadOnlyError, apsw.PermissionsError, PermissionError) as error:
        raise StoreUnavailable(f"the store {path} is read-only") from error
    except apsw.FullError as error:
        raise StoreUnavailable(f"no space left for the store {path}: nothing was changed") from error
    except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError, UnicodeDecodeError) as error:
        raise StoreDamaged(
            f"the store {path} is damaged or not a triskele store ({error}): run `triskele restore FILE` with a backup"
        ) from error
    except (apsw.CantOpenError, apsw.IOError, OSError) as error:
        if isinstance(error, OSError) and error.errno == errno.EROFS:
            raise StoreUnavailable(f"the store {path} is read-only") from error
        # SQLite reports an I/O error if there is no space for the index of its log.
        if is_full(error) if isinstance(error, OSError) else has_no_room(path.parent):
            raise StoreUnavailable(f"no space left for the store {path}: nothing was changed") from error
        raise StoreUnavailable(f"cannot use {path} as a store: {error}") from error
