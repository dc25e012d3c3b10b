"""The store of a personal machine: one SQLite file, through apsw."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet

import apsw

from triskele.base import timestamps
from triskele.base.locks import file_lock
from triskele.errors import BadInput, StoreDamaged, StoreNewer, StoreUnavailable, TriskeleError
from triskele.stores.protocol import CatalogEntry, Census, Document, Finding, SealedRow
from triskele.stores.sqlite import documents, maintenance, recovery, secrets, vectors
from triskele.stores.sqlite.changes import Writer
from triskele.stores.sqlite.entities import SqliteNames
from triskele.stores.sqlite.failures import told
from triskele.stores.sqlite.models import SqliteModels
from triskele.stores.sqlite.rows import JOURNAL_COLUMNS, LINK_COLUMNS, VERSION_COLUMNS, to_entry, to_link, to_memory
from triskele.stores.sqlite.schema import migrate, refuse_foreign
from triskele.stores.sqlite.usage import SqliteUses
from triskele.types import Change, JournalEntry, Link, LinkKind, Memory, Outcome, Scope, Sealed, Sort

_CHUNK = 500
_NEVER = 2**62
# One text for lists of any length, so that the statement is prepared once.
_LISTED = "SELECT value FROM json_each(?)"
_ORDERS = {
    Sort.RECENCY: "updated_at DESC, id DESC",
    Sort.IMPORTANCE: "importance DESC, updated_at DESC, id DESC",
}


Answered = TypeVar("Answered")


class SqliteStore:
    """Memories in one file; every thread has a connection of its own.

    Where there is no file, one of `traces` shows that it is lost rather than new.
    """

    def __init__(self, path: Path, *, busy_timeout_s: float = 30.0, traces: Sequence[Path] = ()) -> None:
        self.path = path
        self._busy_timeout_s = busy_timeout_s
        self._local = threading.local()
        # Weak, so that a thread's connection goes when the thread does.
        self._opened: WeakSet[apsw.Connection] = WeakSet()
        self._opened_lock = threading.Lock()
        self.names = SqliteNames(self._reading, self._transaction)
        self.models = SqliteModels(self._reading, self._transaction)
        self.uses = SqliteUses(self._reading, self._hurried)
        with told(path):
            recovery.refuse_lost(path, traces)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Several processes may meet an empty folder at once; only one lays the foundation.
            with file_lock(recovery.lock_of(path), timeout_s=busy_timeout_s) as is_held:
                if not is_held:
                    raise StoreUnavailable(f"the store {path} is being set up by another process")
                recovery.finish(path)
                if not path.exists():
                    # For the owner alone; the write-ahead log takes the mode of the file.
                    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
                try:
                    migrate(self._connection())
                except BaseException:
                    # Closed late, a connection would meddle with the files that replace these.
                    self._let_go()
                    raise

    def apply(self, changes: Sequence[Change], *, batch: str, undoes: int | None = None) -> list[Outcome]:
        """Carry out the changes and journal them, all in one durable transaction or none."""
        with self._transaction() as connection:
            writer = Writer(connection, timestamps.now(), batch, undoes)
            return [writer.apply(change) for change in changes]

    def erase(self, ids: Sequence[str], *, batch: str) -> list[Outcome]:
        """Remove these memories, their links and the documents about them from every byte of the store."""
        with self._transaction() as connection:
            outcomes = maintenance.erase(Writer(connection, timestamps.now(), batch), ids)
        self.scrub()
        return outcomes

    def seal(self, versions: Sequence[tuple[Memory, Sealed]], *, batch: str) -> Outcome:
        """Put titles and sealed texts in the place of every version of a memory, and erase all that was derived."""
        with self._transaction() as connection:
            outcome = maintenance.seal(Writer(connection, timestamps.now(), batch), versions)
        self.scrub()
        return outcome

    def sealed(self, ids: Sequence[str] | None = None) -> list[SealedRow]:
        """The sealed texts of some memories, or of all."""
        with told(self.path):
            return secrets.read(self._connection(), ids)

    def reseal(self, blobs: Mapping[tuple[str, int], bytes]) -> None:
        """Put the same texts under another key in the place of some sealed ones, and leave no byte of the old."""
        with self._transaction() as connection:
            maintenance.mark_unscrubbed(connection)
            secrets.replace(connection, blobs)
        self.scrub()

    def swap(self, kind: str, key: str, before: Any, after: Any) -> bool:
        """Replace a document that is still as it was, None where it was not there; False where it is not."""
        with self._transaction() as connection:
            return documents.swap(connection, kind, key, before, after)

    def find(self, prefix: str, limit: int = 5) -> list[str]:
        """The ids that start with a prefix, forgotten ones included."""
        rows = self._all(
            "SELECT DISTINCT id FROM versions WHERE id >= ? AND id < ? ORDER BY id LIMIT ?",
            [prefix, prefix + "\U0010ffff", limit],
        )
        return [row[0] for row in rows]

    def shorten(self, ids: Iterable[str], shortest: int = 8) -> dict[str, str]:
        """The shortest prefix of each id that no other id shares."""
        return {id: id[: max(shortest, self._shared_with_neighbours(id) + 1)] for id in ids}

    def memories(self, ids: Iterable[str], *, known_at: datetime | None = None) -> dict[str, Memory]:
        """The versions that stand now, or stood at a moment; forgotten and unknown ids are left out."""
        condition, bindings = _standing(known_at)
        found: dict[str, Memory] = {}
        for chunk in _chunks(list(ids)):
            sql = (
                f"SELECT {VERSION_COLUMNS} FROM versions WHERE id IN ({_marks(chunk)}) AND {condition} ORDER BY version"
            )
            found |= {row[0]: to_memory(row) for row in self._all(sql, [*chunk, *bindings])}
        return found

    def history(self, id: str) -> list[Memory]:
        """Every version of a memory, oldest first."""
        rows = self._all(f"SELECT {VERSION_COLUMNS} FROM versions WHERE id = ? ORDER BY version", [id])
        return [to_memory(row) for row in rows]

    def rows(self, rows: Iterable[int]) -> dict[int, Memory]:
        """The versions behind the row numbers of an index."""
        found: dict[int, Memory] = {}
        for chunk in _chunks(list(rows)):
            sql = f"SELECT row, {VERSION_COLUMNS} FROM versions WHERE row IN ({_LISTED})"
            found |= {row[0]: to_memory(row[1:]) for row in self._all(sql, [json.dumps(chunk)])}
        return found

    def importance(self, rows: Iterable[int]) -> dict[int, tuple[str, float]]:
        """The id and the importance of the versions behind the row numbers of an index."""
        sql = f"SELECT row, id, importance FROM versions WHERE row IN ({_LISTED})"
        return {row: (id, importance) for row, id, importance in self._all(sql, [json.dumps(list(rows))])}

    def versions(self, ids: Sequence[str] | None = None) -> Iterator[tuple[int, Memory]]:
        """Every version with its row number, of some memories or of all, in row order."""
        if ids is not None:
            sql = f"SELECT row, {VERSION_COLUMNS} FROM versions WHERE id IN "
            found = [row for chunk in _chunks(ids) for row in self._all(f"{sql} ({_marks(chunk)})", chunk)]
            yield from ((row[0], to_memory(row[1:])) for row in sorted(found))
            return
        last = 0
        # Pages instead of one open cursor: a slow consumer must not hold a read transaction.
        while page := self._all(
            f"SELECT row, {VERSION_COLUMNS} FROM versions WHERE row > ? ORDER BY row LIMIT ?", [last, _CHUNK]
        ):
            yield from ((row[0], to_memory(row[1:])) for row in page)
            last = page[-1][0]

    def links(
        self, ids: Sequence[str], *, kind: LinkKind | None = None, known_at: datetime | None = None
    ) -> list[Link]:
        """The links that touch any of these memories and stand now, or stood at a moment."""
        condition, bindings = _standing(known_at)
        if kind is not None:
            condition, bindings = condition + " AND kind = ?", [*bindings, kind.value]
        found: dict[int, Link] = {}
        for chunk in _chunks(ids):
            for end in ("source", "target"):
                sql = f"SELECT row, {LINK_COLUMNS} FROM links WHERE {end} IN ({_LISTED}) AND {condition}"
                found |= {row[0]: to_link(row[1:]) for row in self._all(sql, [json.dumps(list(chunk)), *bindings])}
        return [found[row] for row in sorted(found)]

    def all_links(self) -> Iterator[Link]:
        """Every link ever made, closed ones too, oldest first."""
        for row in self._all(f"SELECT {LINK_COLUMNS} FROM links ORDER BY row", []):
            yield to_link(row)

    def browse(self, scope: Scope, *, sort: Sort = Sort.RECENCY, limit: int = 50, offset: int = 0) -> list[Memory]:
        """Memories of a scope in order of recency or importance."""
        if sort not in _ORDERS:
            raise BadInput(f"memories cannot be listed by {sort}: choose one of {', '.join(_ORDERS)}")
        condition, bindings = _in_scope(scope)
        rows = self._all(
            f"SELECT {VERSION_COLUMNS} FROM versions WHERE {condition} ORDER BY {_ORDERS[sort]} LIMIT ? OFFSET ?",
            [*bindings, limit, offset],
        )
        return [to_memory(row) for row in rows]

    def journal(
        self, *, after: int = 0, limit: int = 1000, id: str | None = None, batch: str | None = None
    ) -> list[JournalEntry]:
        """Journal entries past a sequence number, oldest first."""
        condition, bindings = "seq > ?", list[Any]([after])
        if id is not None:
            condition, bindings = condition + " AND (id = ? OR other = ?)", [*bindings, id, id]
        if batch is not None:
            condition, bindings = condition + " AND batch = ?", [*bindings, batch]
        sql = f"SELECT seq, {JOURNAL_COLUMNS} FROM journal WHERE {condition} ORDER BY seq LIMIT ?"
        return [to_entry(row) for row in self._all(sql, [*bindings, limit])]

    def newest_entries(self, *, before: int | None = None, limit: int = 1) -> list[JournalEntry]:
        """The newest journal entries, newest first."""
        sql = f"SELECT seq, {JOURNAL_COLUMNS} FROM journal WHERE seq < ? ORDER BY seq DESC LIMIT ?"
        return [to_entry(row) for row in self._all(sql, [_NEVER if before is None else before, limit])]

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let this thread read the store as of one moment."""
        with told(self.path):
            connection = self._connection()
            connection.execute("BEGIN")
        # Inside, an answer stays true: every index asks how new the store is, again and again.
        self._local.answers = {}
        try:
            yield
        finally:
            self._local.answers = None
            connection.execute("ROLLBACK")

    def lineage(self) -> str:
        """A name for this run of the journal; a restored store begins another."""
        return self._once("lineage", self._lineage)

    def _lineage(self) -> str:
        rows = self._all("SELECT value FROM meta WHERE name = 'lineage'", [])
        if not rows:
            raise StoreUnavailable(f"the store {self.path} is damaged (its lineage is missing): restore a backup")
        return str(rows[0][0])

    def last_seq(self) -> int:
        """The sequence number of the newest journal entry; 0 in an empty store."""
        return self._once("seq", lambda: int(self._all("SELECT coalesce(max(seq), 0) FROM journal", [])[0][0]))

    def _once(self, name: str, ask: Callable[[], Answered]) -> Answered:
        """What was answered already inside a snapshot, else the store's answer."""
        answers: dict[str, Answered] | None = getattr(self._local, "answers", None)
        if answers is None:
            return ask()
        if name not in answers:
            answers[name] = ask()
        return answers[name]

    def waiting(self, limit: int = 256) -> list[tuple[str, str]]:
        """Contents that the model in use has not seen yet, oldest first, as (hash, text)."""
        with told(self.path):
            return vectors.waiting(self._connection(), limit)

    def count_waiting(self) -> int:
        """How many contents wait for a vector."""
        with told(self.path):
            return vectors.count_waiting(self._connection())

    def queue_for(self, fingerprint: str) -> None:
        """From now on contents wait for this model: at once those that it has not seen."""
        with told(self.path):
            if vectors.is_queued_for(self._connection(), fingerprint):
                return
        with self._transaction() as connection:
            vectors.queue_for(connection, fingerprint)

    def keep_vectors(self, fingerprint: str, found: Mapping[str, bytes], *, wait: bool = True) -> dict[str, int]:
        """Keep a model's vectors by content hash; answers with the slots, without contents erased meanwhile."""
        with self._transaction(wait=wait) as connection:
            return vectors.keep(connection, fingerprint, found)

    def drop_vectors(self, slots: Sequence[int]) -> None:
        """Throw vectors away; their contents wait again."""
        with self._transaction() as connection:
            vectors.drop(connection, slots)

    def vectors(self, fingerprint: str, *, after: int = 0) -> list[tuple[int, str, bytes]]:
        """A page of a model's vectors past a slot, as (slot, content hash, vector)."""
        with told(self.path):
            return vectors.read(self._connection(), fingerprint, after)

    def last_slot(self, fingerprint: str) -> int:
        """The slot of a model's newest vector; 0 where it has none."""
        with told(self.path):
            return self._once(f"slot {fingerprint}", lambda: vectors.last_slot(self._connection(), fingerprint))

    def slot_contents(self, slots: Sequence[int]) -> dict[int, str]:
        """The texts behind some slots."""
        with told(self.path):
            return vectors.contents(self._connection(), slots)

    def catalog(self, fingerprint: str, ids: Sequence[str] | None = None) -> Iterator[CatalogEntry]:
        """What filters and ranking need of every version, or of those of some memories, in row order."""
        with told(self.path):
            yield from vectors.catalog(self._connection(), fingerprint, ids)

    def newly_placed(self, fingerprint: str, *, after: int) -> list[tuple[int, int]]:
        """Rows whose content got a vector past a slot, as (row, slot)."""
        with told(self.path):
            return vectors.newly_placed(self._connection(), fingerprint, after)

    def shelve(
        self, kind: str, values: Mapping[str, Document], *, most: int | None = None, hurry: bool = False
    ) -> None:
        """Keep documents by key, the `most` highest keys of a kind; a hurry waits for neither writers nor the disk."""
        with self._hurried() if hurry else self._transaction() as connection:
            documents.put(connection, kind, values, most)

    def shelved(self, kind: str) -> dict[str, Any]:
        """The values of a kind in the order of their keys."""
        with told(self.path):
            return documents.read(self._connection(), kind)

    def unshelve(self, kind: str, keys: Iterable[str]) -> None:
        """Take documents off the shelf."""
        with self._transaction() as connection:
            documents.take(connection, kind, keys)

    def census(self) -> Census:
        """Counts of what is stored."""
        with told(self.path):
            return maintenance.census(self._connection())

    def check(self, *, deep: bool = False) -> list[Finding]:
        """What is wrong with the truth; `deep` recomputes every hash."""
        with told(self.path):
            return maintenance.check(self._connection(), deep=deep)

    def backup(self, target: Path) -> None:
        """Write a consistent copy of the live store to a new file."""
        with told(target):
            maintenance.backup(self._connection(), target)

    def restore(self, source: Path, *, kept: Path | None = None) -> Path | None:
        """Replace everything by the content of a backup whose every hash holds; where the content of before lies.

        A sound store is backed up to `kept` first; the files of a damaged one are moved to a folder beside it.
        """
        with told(source), maintenance.verified(source, self.path.parent) as staged:
            try:
                with told(self.path):
                    if kept is not None:
                        maintenance.backup(self._connection(), kept)
                    maintenance.fill(self._connection(), staged)
                return kept
            except TriskeleError as error:
                if kept is not None:
                    kept.unlink(missing_ok=True)
                if not isinstance(error, StoreDamaged | StoreNewer):
                    raise
            self._let_go()
            return recovery.replace(self.path, staged, timeout_s=self._busy_timeout_s)

    def scrub(self) -> None:
        """Leave no byte of deleted rows in the files."""
        with told(self.path):
            maintenance.scrub(self._connection())

    def is_scrubbed(self) -> bool:
        """Whether every erasing so far went through to the bytes of the files."""
        return not self._all("SELECT 1 FROM meta WHERE name = ?", [maintenance.UNSCRUBBED])

    def close(self) -> None:
        """Let go of every connection of this thread and others."""
        self.uses.flush()
        self._let_go(is_sound=True)

    def _let_go(self, *, is_sound: bool = False) -> None:
        with self._opened_lock:
            for connection in list(self._opened):
                if not is_sound:
                    # The log of a damaged store stays as it is.
                    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                connection.close()
            self._opened.clear()
        self._local = threading.local()

    def _connection(self) -> apsw.Connection:
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = apsw.Connection(str(self.path))
            with self._opened_lock:
                self._opened.add(connection)
            connection.set_busy_timeout(int(self._busy_timeout_s * 1000))
            # Before anything is written: another program's file stays as it is.
            refuse_foreign(connection)
            connection.pragma("journal_mode", "wal")
            connection.pragma("synchronous", "full")
            connection.pragma("foreign_keys", True)
            self._local.connection = connection
        return connection

    @contextmanager
    def _reading(self) -> Iterator[apsw.Connection]:
        with told(self.path):
            yield self._connection()

    @contextmanager
    def _transaction(self, *, wait: bool = True) -> Iterator[apsw.Connection]:
        with told(self.path):
            connection = self._connection()
            self._begin(connection, wait=wait)
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

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
    def _hurried(self) -> Iterator[apsw.Connection]:
        """Wait for neither writers nor the disk: this may be lost with the power, and nothing else with it."""
        with told(self.path):
            connection = self._connection()
            connection.pragma("synchronous", "normal")
        try:
            with self._transaction(wait=False):
                yield connection
        finally:
            connection.pragma("synchronous", "full")

    def _all(self, sql: str, bindings: Sequence[Any]) -> list[Any]:
        with told(self.path):
            return self._connection().execute(sql, bindings).fetchall()

    def _shared_with_neighbours(self, id: str) -> int:
        rows = self._all(
            "SELECT (SELECT max(id) FROM versions WHERE id < ?1), (SELECT min(id) FROM versions WHERE id > ?1)",
            [id],
        )
        return max((_common_prefix(id, other) for other in rows[0] if other), default=0)


def _standing(known_at: datetime | None) -> tuple[str, list[Any]]:
    if known_at is None:
        return "known_to IS NULL", []
    moment = timestamps.to_micros(known_at)
    return "known_from <= ? AND (known_to IS NULL OR known_to > ?)", [moment, moment]


def _in_scope(scope: Scope) -> tuple[str, list[Any]]:
    condition, bindings = _standing(scope.known_at)
    conditions, bindings = [condition, "owner = ?"], [*bindings, scope.owner]
    if scope.projects is not None:
        projects = sorted(scope.projects)
        conditions.append(f"project IN ({_marks(projects)})")
        bindings += projects
    if scope.category is not None:
        conditions.append("category = ?")
        bindings.append(scope.category)
    for tag in sorted(scope.tags):
        conditions.append("EXISTS (SELECT 1 FROM json_each(versions.tags) WHERE value = ?)")
        bindings.append(tag)
    if not scope.any_time:
        moment = timestamps.to_micros(scope.as_of)
        conditions.append("coalesce(valid_from, ?) <= ? AND (valid_to IS NULL OR valid_to > ?)")
        bindings += [moment, moment, moment]
    return " AND ".join(conditions), bindings


def _marks(values: Sequence[Any]) -> str:
    return ",".join("?" * len(values))


def _chunks(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(values), _CHUNK):
        yield values[start : start + _CHUNK]


def _common_prefix(one: str, other: str) -> int:
    length = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        length += 1
    return length
