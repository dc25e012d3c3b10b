"""Care for a SQLite store: checks and copies of the file, and erasing so that no byte stays."""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from triskele.base import timestamps
from triskele.base.files import settle_folder
from triskele.base.ids import content_hash
from triskele.errors import (
    BadInput,
    Conflict,
    NotFound,
    StoreDamaged,
    StoreNewer,
    StoreUnavailable,
    TriskeleError,
)
from triskele.stores.protocols import IntegrityIssue
from triskele.stores.sqlite import secrets, usage, vectors
from triskele.stores.sqlite.changes import Writer, insert_version
from triskele.stores.sqlite.database import Database, asides, replace, told
from triskele.stores.sqlite.documents import DOCUMENT_COLUMNS, delete_about
from triskele.stores.sqlite.entities import drop_unused_names
from triskele.stores.sqlite.ownership import INDEX_OWNER
from triskele.stores.sqlite.rows import JOURNAL_COLUMNS, LINK_COLUMNS, VERSION_COLUMNS, row_hash
from triskele.stores.sqlite.schema import is_empty, migrate
from triskele.types import Memory, Outcome, Sealed

UNSCRUBBED = "unscrubbed"
_GUARDED = (
    ("versions", "id", VERSION_COLUMNS),
    ("links", "source", f"owner, {LINK_COLUMNS}"),
    ("journal", "seq", f"owner, {JOURNAL_COLUMNS}"),
    ("documents", "key", f"owner, {DOCUMENT_COLUMNS}"),
    ("secrets", "id", f"owner, {secrets.SECRET_COLUMNS}"),
)
_DANGLING = """
SELECT source, kind, target FROM links
WHERE NOT EXISTS (SELECT 1 FROM versions WHERE versions.owner = links.owner AND versions.id = links.source)
   OR NOT EXISTS (SELECT 1 FROM versions WHERE versions.owner = links.owner AND versions.id = links.target)
"""


class SqliteMaintenance:
    """Checks, copies and scrubs one file; `owner` gets the rows of a backup that have none."""

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self._owner = owner

    def check(self, *, deep: bool = False) -> list[IntegrityIssue]:
        """What is wrong with the truth; `deep` recomputes every hash."""
        with self._database.reading() as connection:
            return check(connection, deep=deep)

    def backup(self, target: Path) -> None:
        """Copy the live database page by page into a new file and check every hash of the copy."""
        if target.exists():
            raise BadInput(f"{target} exists already: a backup never overwrites")
        with told(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".backup-", dir=target.parent) as folder:
                staged = Path(folder) / target.name
                with _closing(apsw.Connection(str(staged))) as copy:
                    _copy_pages(self._database.connection(), copy)
                    copy.pragma("journal_mode", "delete")
                    _refuse_damaged(copy, target)
                staged.chmod(0o600)
                staged.rename(target)
                settle_folder(target.parent)

    def restore(self, source: Path) -> Path | None:
        """Replace everything by the content of a backup whose every hash holds; where the content of before is kept.

        A sound store is backed up first; the files of a damaged one are moved to a folder beside it.
        """
        path = self._database.path
        kept = path.with_name(f"{path.stem}.before-restore-{timestamps.now():%Y%m%dT%H%M%S%f}.db")
        with told(source), _verified(source, path.parent, self._owner) as staged:
            try:
                with told(path):
                    self.backup(kept)
                    with _closing(apsw.Connection(str(staged))) as copy:
                        _copy_pages(copy, self._database.connection())
                return kept
            except TriskeleError as error:
                kept.unlink(missing_ok=True)
                if not isinstance(error, StoreDamaged | StoreNewer):
                    raise
            return self._database.replace(staged)

    def earlier_copies(self) -> list[Path]:
        """The backups and damaged files that restores have left; an erased text may still be in them."""
        path = self._database.path
        return [*sorted(path.parent.glob(f"{glob.escape(path.stem)}.before-restore-*.db")), *asides(path)]

    def scrub(self) -> None:
        """Leave no byte of deleted rows in the files."""
        with self._database.reading() as connection:
            scrub(connection)

    def is_scrubbed(self) -> bool:
        """Whether every erasure so far has reached the bytes of the files."""
        return not self._database.all("SELECT 1 FROM meta WHERE name = ?", [UNSCRUBBED])


def replace_damaged(path: Path, source: Path, *, timeout_s: float, owner: str) -> Path | None:
    """Put a verified backup in the place of a store that cannot be opened; the folder that keeps its files."""
    with told(source), _verified(source, path.parent, owner) as fresh:
        return replace(path, fresh, timeout_s=timeout_s)


@contextmanager
def _verified(source: Path, folder: Path, owner: str) -> Iterator[Path]:
    """A copy of a backup in which every hash holds, durable in the folder of the store that it is for."""
    if not source.is_file():
        raise BadInput(f"no backup at {source}")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".restore-", dir=folder) as staging:
        staged = Path(staging) / "staged.db"
        shutil.copyfile(source, staged)
        # What the log beside a copied store holds is in no other file.
        if (log := source.with_name(source.name + "-wal")).is_file():
            shutil.copyfile(log, staged.with_name(staged.name + "-wal"))
        with _closing(apsw.Connection(str(staged))) as copy:
            if is_empty(copy):
                raise BadInput(f"{source} is no backup: there is nothing in it")
            migrate(copy, owner)
            _refuse_damaged(copy, source)
            # A new epoch tells every derived index that its stamp no longer means anything.
            copy.execute("UPDATE meta SET value = lower(hex(randomblob(8))) WHERE name = 'epoch'")
            copy.execute("DELETE FROM meta WHERE name = ?", [INDEX_OWNER])
            copy.pragma("journal_mode", "delete")
        staged.chmod(0o600)
        _sync(staged)
        yield staged


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check(connection: apsw.Connection, *, deep: bool) -> list[IntegrityIssue]:
    """What is wrong with the file; `deep` recomputes every hash."""
    pragma = "integrity_check" if deep else "quick_check"
    said = [str(row[0]) for row in connection.execute(f"PRAGMA {pragma}(20)")]
    findings = [IntegrityIssue("database", line) for line in said if line != "ok"]
    findings += [
        IntegrityIssue(f"link {source} {kind} {target}", "points to a memory that does not exist")
        for source, kind, target in connection.execute(_DANGLING)
    ]
    findings += secrets.misplaced(connection)
    return findings + (list(_wrong_hashes(connection)) if deep else [])


def _wrong_hashes(connection: apsw.Connection) -> Iterator[IntegrityIssue]:
    for table, name, columns in _GUARDED:
        for label, stored, *values in _readable(connection, f"SELECT {name}, row_hash, {columns} FROM {table}"):
            if stored != row_hash(values):
                yield IntegrityIssue(f"{table} {label}", "the row is not what was written (its hash differs)")
    for id, content, stored in _readable(connection, "SELECT id, content, content_hash FROM versions"):
        if stored != content_hash(str(content)):
            yield IntegrityIssue(f"versions {id}", "the content is not what was written (its hash differs)")


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


def _refuse_damaged(connection: apsw.Connection, path: Path) -> None:
    findings = check(connection, deep=True)
    if findings:
        raise StoreDamaged(f"{path} is damaged: {findings[0].subject}: {findings[0].problem}")


@contextmanager
def _closing(connection: apsw.Connection) -> Iterator[apsw.Connection]:
    try:
        yield connection
    finally:
        connection.close()


def erase(writer: Writer, ids: Sequence[str]) -> list[Outcome]:
    """Delete every row that holds anything of these memories; the journal keeps their ids alone."""
    mark_unscrubbed(writer.connection)
    outcomes = []
    for id in dict.fromkeys(ids):
        latest = writer.latest(id)
        writer.connection.execute(
            "DELETE FROM links WHERE owner = ?1 AND (source = ?2 OR target = ?2)", [writer.owner, id]
        )
        _delete(writer, id)
        outcomes.append(writer.note_erased(latest))
    vectors.drop_unused(writer.connection, writer.owner)
    drop_unused_names(writer.connection, writer.owner)
    return outcomes


def seal(writer: Writer, versions: Sequence[tuple[Memory, Sealed]]) -> Outcome:
    """Replace every version of a memory by its title and sealed text; what was derived from the text goes."""
    last, connection = versions[-1][0], writer.connection
    for memory, _ in versions:
        writer.refuse_foreign(memory)
    sql = "SELECT version FROM versions WHERE owner = ? AND id = ? ORDER BY version"
    there = [row[0] for row in connection.execute(sql, [writer.owner, last.id])]
    if not there:
        raise NotFound(f"no memory {last.id}")
    if there != [memory.version for memory, _ in versions]:
        raise Conflict(f"memory {last.id} was changed meanwhile: try again")
    mark_unscrubbed(connection)
    _delete(writer, last.id)
    # An erasure tells every index, in other processes too, to begin again.
    writer.note_erased(last)
    for memory, sealed in versions:
        insert_version(connection, memory)
        secrets.keep(connection, memory, sealed)
    vectors.drop_unused(connection, writer.owner)
    drop_unused_names(connection, writer.owner)
    return writer.note_sealed(last)


def mark_unscrubbed(connection: apsw.Connection) -> None:
    """Remember that bytes of deleted rows may still be in the files."""
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, '')", [UNSCRUBBED])


def scrub(connection: apsw.Connection) -> None:
    """Rewrite the file without its free space and empty the write-ahead log."""
    connection.execute("VACUUM")
    busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()  # type: ignore[misc]
    if busy:
        raise StoreUnavailable("erased, but another process still reads the old log: stop it and run `triskele doctor`")
    connection.execute("DELETE FROM meta WHERE name = ?", [UNSCRUBBED])


def _delete(writer: Writer, id: str) -> None:
    writer.connection.execute("DELETE FROM versions WHERE owner = ? AND id = ?", [writer.owner, id])
    secrets.drop(writer.connection, writer.owner, id)
    delete_about(writer.connection, writer.owner, id)
    usage.drop(writer.connection, writer.owner, id)
