"""Care for a SQLite store: checks and copies of the file, and erasing so that no byte stays."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw

from triskele.errors import (
    BEFORE_RELEASE,
    BadInput,
    Conflict,
    StoreDamaged,
    StoreNewer,
    StoreOlder,
    StoreUnavailable,
    TriskeleError,
)
from triskele.store import integrity
from triskele.store.owner import Maintenance
from triskele.store.sqlite import copies, lost_writes
from triskele.store.sqlite.database import Database, explain
from triskele.store.sqlite.schema import is_empty, refuse_other_format
from triskele.store.sqlite.store_file import replace
from triskele.store.sqlite.truth_rows import UNSCRUBBED, SqliteRows
from triskele.store.values import IntegrityIssue, LostWrites, WrittenEntry
from triskele.store.writer import Writer
from triskele.text import timestamps
from triskele.text.files import settle_folder
from triskele.text.timestamps import from_micros
from triskele.types import USER, Action

if TYPE_CHECKING:
    from triskele.store.archive import Values

# A check is of the rows of all owners.
_OF_ALL = "true"
_KNOWN = "SELECT 1 FROM versions WHERE owner = ? AND id = ?"
# A store with more free pages than this part of it is rewritten without them.
_MOST_FREE = 1 / 4


class SqliteMaintenance(Maintenance):
    """Checks, copies and scrubs one file."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.archive = SqliteArchive(database)

    def check(self, *, deep: bool = False) -> list[IntegrityIssue]:
        """What is wrong with the truth; `deep` recomputes every hash."""
        with self._database.reading() as connection:
            return check(connection, deep=deep)

    def backup(self, target: Path) -> None:
        """Copy the live database page by page into a new file and check every hash of the copy."""
        if target.exists():
            raise BadInput(f"{target} exists already: a backup never overwrites")
        if not target.parent.is_dir():
            raise BadInput(f"the folder {target.parent} does not exist: create it, or mount its disk, first")
        # A store that cannot be written now is backed up all the same.
        with suppress(TriskeleError), self._database.noting() as connection:
            copies.note_backup(connection, target)
        with explain(target), copies.staging(copies.BACKUP, target.parent) as folder:
            staged = folder / target.name
            with closing(apsw.Connection(str(staged))) as copy:
                self._copy_to(copy)
                copy.pragma("journal_mode", "delete")
            staged.chmod(0o600)
            staged.rename(target)
            settle_folder(target.parent)

    def _copy_to(self, copy: apsw.Connection) -> None:
        """Copy every page and check every hash; what is wrong with the copy is wrong with the store."""
        path = self._database.path
        try:
            _copy_pages(self._database.connection(), copy)
            findings = check(copy, deep=True)
        except (apsw.CorruptError, apsw.NotADBError, UnicodeDecodeError) as error:
            raise _not_backed_up(path, str(error)) from error
        if findings:
            raise _not_backed_up(path, f"{findings[0].subject}: {findings[0].problem}")

    def restore(self, source: Path) -> Path | None:
        """Replace everything by the content of a backup whose every hash matches; returns the path of the old content.

        An undamaged store is backed up first; the files of a damaged one are moved to a folder next to it.
        """
        path = self._database.path
        previous = path.with_name(f"{path.stem}.before-restore-{timestamps.now():%Y%m%dT%H%M%S%f}.db")
        with _verified(source, path) as staged:
            try:
                with explain(path):
                    self.backup(previous)
                    with closing(apsw.Connection(str(staged))) as copy:
                        _copy_pages(copy, self._database.connection())
                    self._database.forget_kept()
                return previous
            except TriskeleError as error:
                previous.unlink(missing_ok=True)
                if not isinstance(error, StoreDamaged | StoreNewer):
                    raise
            _keep_lost(staged, path)
            return self._database.replace(staged)

    def leftovers(self) -> list[Path]:
        """The copies that killed backups and restores left."""
        with self._database.reading() as connection:
            return copies.leftovers(self._database.path, copies.noted_backups(connection))

    def remove_leftovers(self) -> list[Path]:
        """Remove the copies that killed backups and restores left; what was removed."""
        return copies.remove(self.leftovers())

    def erase_from_copies(self, ids: Sequence[str], owner: str) -> list[Path]:
        """Erase memories from the copies next to the store, or remove whole copies; returns the copies concerned.

        Copies kept by a restore lose only these memories; damaged files that contain one are removed as a whole.
        """
        path = self._database.path
        changed = self.remove_leftovers() + copies.remove_damaged(path, ids)
        return changed + [copy for copy in copies.kept_by_restore(path) if _has_erased(copy, ids, owner)]

    def earlier_copies(self) -> list[Path]:
        """The copies that may hold erased memories: of restores, of killed processes, and backups made here."""
        path = self._database.path
        with self._database.reading() as connection:
            noted = copies.noted_backups(connection)
        before_restores = copies.kept_by_restore(path)
        backups = [backup for backup in noted if backup not in before_restores and backup.is_file()]
        return [*before_restores, *copies.damaged(path), *copies.leftovers(path, noted), *backups]

    def lost(self) -> list[LostWrites]:
        """Acknowledged writes that were lost, with what is still known of them."""
        with self._database.reading() as connection:
            return lost_writes.lost(connection, self._database.path)

    def give_back(self) -> None:
        """Rewrite the file without its free pages if they are many and nothing is in the way.

        It does not wait for other processes; the pages are freed at a later opening, or filled by the next writes.
        """
        if self._database.is_read_only:
            return
        connection = self._database.connection()
        timeout_ms = connection.pragma("busy_timeout")
        connection.set_busy_timeout(0)
        # Another process uses the file, the disk is full, or a page is damaged: none of it keeps a store from opening.
        with suppress(apsw.Error):
            if connection.pragma("freelist_count") > _MOST_FREE * connection.pragma("page_count"):
                connection.execute("VACUUM")
                # All of the new file is in the log.
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.set_busy_timeout(timeout_ms)

    def scrub(self) -> None:
        """Leave no byte of deleted rows in the files."""
        with self._database.reading() as connection:
            scrub(connection)

    def is_scrubbed(self) -> bool:
        """Whether every erasure so far has reached the bytes of the files."""
        return not self._database.all("SELECT 1 FROM meta WHERE name = ?", [UNSCRUBBED])


def replace_damaged(path: Path, source: Path, *, timeout_s: float) -> Path | None:
    """Put a verified backup in the place of a store that cannot be opened; the folder that keeps its files."""
    with _verified(source, path) as fresh:
        _keep_lost(fresh, path)
        return replace(path, fresh, timeout_s=timeout_s)


def _keep_lost(staged: Path, path: Path) -> None:
    """Keep what the damaged store acknowledged and the backup lacks."""
    with closing(apsw.Connection(str(staged))) as copy:
        lost_writes.keep(copy, path)


def _has_erased(copy: Path, ids: Sequence[str], owner: str) -> bool:
    """Erase memories from a copy; False if it cannot be opened or has none of them."""
    with suppress(TriskeleError):
        database = Database(copy, busy_timeout_s=0, traces=())
        try:
            with database.writing() as connection:
                stored = [id for id in ids if connection.execute(_KNOWN, [owner, id]).fetchone()]
                Writer(SqliteRows(connection, owner), timestamps.now(), "erased", USER).erase(stored)
            with database.reading() as connection:
                scrub(connection)
            return bool(stored)
        finally:
            database.close()
            copy.with_name(copy.name + ".lock").unlink(missing_ok=True)
    return False


def _not_backed_up(path: Path, problem: str) -> StoreDamaged:
    return StoreDamaged(
        f"the store {path} is damaged ({problem}): no backup was written;"
        " run `triskele restore FILE` with an earlier backup"
    )


@contextmanager
def _verified(source: Path, path: Path) -> Iterator[Path]:
    """A copy of a backup in which every hash holds, durable in the folder of the store that it is for."""
    if not source.is_file():
        raise BadInput(f"no backup at {source}")
    if not os.access(source, os.R_OK):
        raise BadInput(f"the backup {source} cannot be read: check its permissions")
    with explain(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with copies.staging(copies.RESTORE, path.parent) as staging:
            staged = staging / "staged.db"
            shutil.copyfile(source, staged)
            # The log next to a copied store holds data that is in no other file.
            if (log := source.with_name(source.name + "-wal")).is_file():
                shutil.copyfile(log, staged.with_name(staged.name + "-wal"))
            with _of_backup(source), closing(apsw.Connection(str(staged))) as copy:
                _prepare(copy, source)
            staged.chmod(0o600)
            with open(staged, "rb+") as file:
                os.fsync(file.fileno())
            yield staged


def _prepare(copy: apsw.Connection, source: Path) -> None:
    """Check the copy of a backup, and begin a new epoch in it."""
    if is_empty(copy):
        raise BadInput(f"{source} is not a backup: there is nothing in it")
    refuse_other_format(copy)
    if findings := check(copy, deep=True):
        raise StoreDamaged(f"{findings[0].subject}: {findings[0].problem}")
    # A new epoch invalidates the stamp of every derived index.
    copy.execute("UPDATE meta SET value = lower(hex(randomblob(8))) WHERE name = 'epoch'")
    copy.pragma("journal_mode", "delete")


@contextmanager
def _of_backup(source: Path) -> Iterator[None]:
    """Say of a backup what is wrong with it: the store is as it was."""
    try:
        yield
    except (apsw.CorruptError, apsw.SQLError, UnicodeDecodeError, StoreDamaged) as error:
        raise StoreDamaged(f"the backup {source} is damaged ({error}): nothing was changed; use another") from error
    except StoreOlder as error:
        raise StoreOlder(f"the backup {source} {BEFORE_RELEASE}") from error
    except StoreNewer as error:
        raise StoreNewer(f"the backup {source} was written by a newer triskele: nothing was changed") from error
    except (apsw.NotADBError, StoreUnavailable) as error:
        raise StoreUnavailable(f"{source} is not a triskele backup ({error}): nothing was changed") from error


def check(connection: apsw.Connection, *, deep: bool) -> list[IntegrityIssue]:
    """What is wrong with the file; `deep` recomputes every hash."""
    pragma = "integrity_check" if deep else "quick_check"
    messages = [str(row[0]) for row in connection.execute(f"PRAGMA {pragma}(20)")]
    findings = [IntegrityIssue("database", line) for line in messages if line != "ok"]
    findings += integrity.misplaced(connection.execute, _OF_ALL)
    if deep:
        findings += integrity.wrong_hashes(partial(_readable, connection), _OF_ALL)
        findings += _absent_entries(connection)
        findings += integrity.broken_journal(connection.execute, _OF_ALL)
    return findings


def _absent_entries(connection: apsw.Connection) -> list[IntegrityIssue]:
    # One statement: between two of them another process may write an entry.
    sequence = "(SELECT max(seq) FROM sqlite_sequence WHERE name = 'journal')"
    counts = connection.execute(f"SELECT count(*), min(seq), max(seq), {sequence} FROM journal").fetchone()
    count, first, last, given_out = counts or (0, 0, 0, 0)
    # Numbers are given out one by one, and entries are never removed.
    absent = max(given_out or 0, last or 0) - (first or 1) + 1 - count
    return [IntegrityIssue("journal", f"{absent} of its entries missing")] if absent > 0 else []


def _readable(connection: apsw.Connection, sql: str) -> Iterator[Sequence[Any]]:
    """The rows of a query; one whose text cannot be decoded comes as a row of nothing, which has no right hash."""
    cursor = connection.execute(sql)
    while True:
        try:
            yield next(cursor)
        except StopIteration:
            return
        except UnicodeDecodeError:
            yield [None, None, None]


def _copy_pages(source: apsw.Connection, target: apsw.Connection) -> None:
    with target.backup("main", source, "main") as steps:
        # All at once: in smaller steps every write of another process would start the copy again.
        while not steps.done:
            steps.step(-1)


def scrub(connection: apsw.Connection, done: str = "erased") -> None:
    """Rewrite the file without its free space and empty the write-ahead log."""
    connection.execute("VACUUM")
    busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()  # type: ignore[misc]
    if busy:
        raise StoreUnavailable(
            f"{done}, but another process still reads the old log: stop it and run `triskele doctor`"
        )
    connection.execute("DELETE FROM meta WHERE name = ?", [UNSCRUBBED])


# Archives: the rows as of one moment, and the transaction that takes them

# Token vectors are in index files.
_NOT_STORED = ("vectors", "tokens")
# A view: the mentions of a version are one row.
_MENTIONS_VIEW = "mentions"


class SqliteArchive:
    """Makes archives of one file and takes them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextmanager
    def reading(self) -> Iterator[_ArchiveReader]:
        """Read the file as of one moment."""
        with self._database.snapshot(), self._database.reading() as connection:
            yield _ArchiveReader(connection)

    @contextmanager
    def writing(self, owner: str | None) -> Iterator[_ArchiveWriter]:  # noqa: ARG002 - a file has one writer
        """Write the rows of one owner, or of several, in one transaction, all or none."""
        with self._database.writing() as connection:
            writer = _ArchiveWriter(connection)
            yield writer
        if writer.last is not None:
            at, entry = writer.last
            lost_writes.note(self._database.path, self._database.epoch(), from_micros(at), [entry])


class _ArchiveReader:
    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def owners(self) -> list[str]:
        sql = "SELECT owner FROM journal UNION SELECT owner FROM versions UNION SELECT owner FROM documents ORDER BY 1"
        return [str(owner) for (owner,) in self._connection.execute(sql)]

    def rows(self, owner: str, sql: str) -> Iterator[Sequence[Any]]:
        if " FROM vectors " in sql:
            sql = sql.replace("tokens", "NULL")
        return iter(self._connection.execute(sql.replace("{owner}", "?1"), [owner]))


class _ArchiveWriter:
    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self.last: tuple[int, WrittenEntry] | None = None

    def reserve(self, table: str, column: str, count: int) -> int:
        highest = self._connection.execute(
            f"SELECT max((SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = ?),"
            f" (SELECT coalesce(max({column}), 0) FROM {table}))",
            [table],
        ).get
        # A number that is given out once is never given out again.
        self._connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", [table])
        self._connection.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", [table, highest + count])
        return int(highest)

    def begin(self, owner: str, tables: Iterable[str]) -> None:
        if self._connection.execute("SELECT 1 FROM journal WHERE owner = ? LIMIT 1", [owner]).get is not None:
            raise Conflict(f"the store has memories of {owner!r}: an archive goes where its owner has none")
        for table in ("marks", *reversed([*tables])):
            kept_in = "readings" if table == _MENTIONS_VIEW else table
            self._connection.execute(f"DELETE FROM {kept_in} WHERE owner = ?", [owner])

    def insert(self, table: str, rows: Sequence[Values]) -> None:
        if table == _MENTIONS_VIEW:
            for (owner, row), mentions in groupby(rows, key=itemgetter("owner", "row")):
                SqliteRows(self._connection, owner).add_mentions(
                    row, [(each["name"], each["kind"]) for each in mentions]
                )
            return
        names = [name for name in rows[0] if (table, name) != _NOT_STORED]
        sql = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        try:
            self._connection.executemany(sql, [[row[name] for name in names] for row in rows])
        except (apsw.ConstraintError, apsw.MismatchError) as error:
            raise ValueError(f"rows that {table} refuses") from error
        if table == "journal":
            entry = rows[-1]
            self.last = entry["at"], WrittenEntry(entry["seq"], Action(entry["action"]), entry["id"])
