"""Looking after a SQLite store: counts, checks, copies, and erasing for good."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from triskele.base.files import settle_folder
from triskele.base.ids import content_hash
from triskele.errors import BadInput, Conflict, NotFound, StoreDamaged, StoreUnavailable
from triskele.stores.protocol import Census, Finding
from triskele.stores.sqlite import secrets, usage
from triskele.stores.sqlite.changes import Writer, insert_version
from triskele.stores.sqlite.documents import SHELF_COLUMNS, take_about
from triskele.stores.sqlite.entities import drop_unused_names
from triskele.stores.sqlite.rows import JOURNAL_COLUMNS, LINK_COLUMNS, VERSION_COLUMNS, row_hash
from triskele.stores.sqlite.schema import is_empty, migrate
from triskele.stores.sqlite.vectors import drop_unused
from triskele.types import Memory, Outcome, Sealed

UNSCRUBBED = "unscrubbed"
_GUARDED = (
    ("versions", "id", VERSION_COLUMNS),
    ("links", "source", LINK_COLUMNS),
    ("journal", "seq", JOURNAL_COLUMNS),
    ("shelf", "key", SHELF_COLUMNS),
    ("secrets", "id", secrets.SECRET_COLUMNS),
)


def census(connection: apsw.Connection) -> Census:
    """Counts of what is stored."""

    def count(sql: str) -> int:
        return int(connection.execute(sql).get)

    def groups(column: str) -> dict[str, int]:
        sql = f"SELECT {column}, count(*) FROM versions WHERE known_to IS NULL GROUP BY 1 ORDER BY 2 DESC, 1"
        return {str(name): int(number) for name, number in connection.execute(sql).fetchall()}  # type: ignore[arg-type]

    memories = count("SELECT count(*) FROM versions WHERE known_to IS NULL")
    return Census(
        memories=memories,
        forgotten=count("SELECT count(DISTINCT id) FROM versions") - memories,
        superseded=count(
            "SELECT count(DISTINCT target) FROM links WHERE kind = 'supersedes' AND known_to IS NULL"
            " AND source IN (SELECT id FROM versions WHERE known_to IS NULL)"
            " AND target IN (SELECT id FROM versions WHERE known_to IS NULL)"
        ),
        versions=count("SELECT count(*) FROM versions"),
        links=count("SELECT count(*) FROM links WHERE known_to IS NULL"),
        journal=count("SELECT count(*) FROM journal"),
        bytes=connection.pragma("page_count") * connection.pragma("page_size"),
        by_category=groups("category"),
        by_project=groups("project"),
    )


def check(connection: apsw.Connection, *, deep: bool) -> list[Finding]:
    """What is wrong with the file; `deep` recomputes every hash."""
    pragma = "integrity_check" if deep else "quick_check"
    said = [str(row[0]) for row in connection.execute(f"PRAGMA {pragma}(20)")]
    findings = [Finding("database", line) for line in said if line != "ok"]
    findings += [
        Finding(f"link {source} {kind} {target}", "points to a memory that does not exist")
        for source, kind, target in connection.execute(
            "SELECT source, kind, target FROM links WHERE source NOT IN (SELECT id FROM versions)"
            " OR target NOT IN (SELECT id FROM versions)"
        )
    ]
    findings += secrets.misplaced(connection)
    return findings + (list(_wrong_hashes(connection)) if deep else [])


def _wrong_hashes(connection: apsw.Connection) -> Iterator[Finding]:
    for table, name, columns in _GUARDED:
        for label, stored, *values in _readable(connection, f"SELECT {name}, row_hash, {columns} FROM {table}"):
            if stored != row_hash(values):
                yield Finding(f"{table} {label}", "the row is not what was written (its hash differs)")
    for id, content, stored in _readable(connection, "SELECT id, content, content_hash FROM versions"):
        if stored != content_hash(str(content)):
            yield Finding(f"versions {id}", "the content is not what was written (its hash differs)")


def _readable(connection: apsw.Connection, sql: str) -> Iterator[Sequence[Any]]:
    """The rows of a query; one whose text is no longer text comes as a row of nothing, which has no right hash."""
    cursor = connection.execute(sql)
    while True:
        try:
            yield next(cursor)
        except StopIteration:
            return
        except UnicodeDecodeError:
            yield [None, None, None]


def backup(connection: apsw.Connection, target: Path) -> None:
    """Copy the live database page by page into a new file and check every hash of the copy."""
    if target.exists():
        raise BadInput(f"{target} exists already: a backup never overwrites")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".backup-", dir=target.parent) as folder:
        staged = Path(folder) / target.name
        with _closing(apsw.Connection(str(staged))) as copy:
            _copy_pages(connection, copy)
            copy.pragma("journal_mode", "delete")
            _refuse_damaged(copy, target)
        staged.chmod(0o600)
        staged.rename(target)
        settle_folder(target.parent)


@contextmanager
def verified(source: Path, folder: Path) -> Iterator[Path]:
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
            migrate(copy)
            _refuse_damaged(copy, source)
            # A new lineage tells every derived index that its stamp no longer means anything.
            copy.execute("UPDATE meta SET value = lower(hex(randomblob(8))) WHERE name = 'lineage'")
            copy.pragma("journal_mode", "delete")
        staged.chmod(0o600)
        _sync(staged)
        yield staged


def fill(connection: apsw.Connection, source: Path) -> None:
    """Move the pages of a verified database into the live one, all or none."""
    with _closing(apsw.Connection(str(source))) as copy:
        _copy_pages(copy, connection)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _copy_pages(source: apsw.Connection, target: apsw.Connection) -> None:
    with target.backup("main", source, "main") as steps:
        # All at once: in smaller steps every write of another process would make the copy begin anew.
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
    outcomes = []
    mark_unscrubbed(writer.connection)
    for id in dict.fromkeys(ids):
        if not writer.connection.execute("SELECT 1 FROM versions WHERE id = ?", [id]).fetchone():
            raise NotFound(f"no memory {id}")
        writer.connection.execute("DELETE FROM versions WHERE id = ?", [id])
        writer.connection.execute("DELETE FROM links WHERE source = ?1 OR target = ?1", [id])
        secrets.drop(writer.connection, id)
        take_about(writer.connection, id)
        usage.drop(writer.connection, id)
        outcomes.append(writer.note_erased(id))
    drop_unused(writer.connection)
    drop_unused_names(writer.connection)
    return outcomes


def seal(writer: Writer, versions: Sequence[tuple[Memory, Sealed]]) -> Outcome:
    """Write every version of a memory anew with its title and sealed text; what was derived from the text goes."""
    id, connection = versions[0][0].id, writer.connection
    there = [row[0] for row in connection.execute("SELECT version FROM versions WHERE id = ? ORDER BY version", [id])]
    if there != [memory.version for memory, _ in versions]:
        raise Conflict(f"memory {id} was changed meanwhile: try again")
    mark_unscrubbed(connection)
    connection.execute("DELETE FROM versions WHERE id = ?", [id])
    secrets.drop(connection, id)
    take_about(connection, id)
    usage.drop(connection, id)
    # An erasing tells every index, in other processes too, to begin anew.
    writer.note_erased(id)
    for memory, sealed in versions:
        insert_version(connection, memory)
        secrets.keep(connection, memory, sealed)
    drop_unused(connection)
    drop_unused_names(connection)
    return writer.note_sealed(id, versions[-1][0].version)


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
