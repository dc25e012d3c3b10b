"""The store of a personal machine: one SQLite file, through apsw, bound to one owner before it is used."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from triskele.errors import StoreUnavailable
from triskele.store.name_rows import EDGE_COLUMNS, NAME_COLUMNS, NameStore
from triskele.store.owner import OwnerStore
from triskele.store.rows import FOLDERS, to_folder
from triskele.store.sqlite import lost_writes, maintenance
from triskele.store.sqlite.database import DIALECT, Database, SqliteOwner
from triskele.store.sqlite.maintenance import SqliteMaintenance
from triskele.store.sqlite.truth_rows import SqliteRows
from triskele.store.values import FolderRow, Mentioned, Name
from triskele.store.writer import MemoryLimits, Writer
from triskele.text import timestamps
from triskele.types import USER, Change, Memory, Outcome, Sealed

_SIZE = """
(SELECT CASE WHEN own.number = total.number THEN size.number
        ELSE CAST(round(1.0 * size.number * own.number / total.number) AS INTEGER) END
 FROM (SELECT count(*) AS number FROM versions WHERE owner = ?1) AS own,
      (SELECT count(*) AS number FROM versions) AS total,
      (SELECT page_count * page_size AS number FROM pragma_page_count, pragma_page_size) AS size)
"""

# Of versions, each with about a dozen mentions.
_PAGE = 2000
_TABLES = "'readings', 'names', 'merges'"
# How long a writer waits for another one.
BUSY_TIMEOUT_S = 30.0


class SqliteStore:
    """One file with the memories of any number of owners."""

    def __init__(
        self,
        path: Path,
        *,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        traces: Sequence[Path] = (),
        limits: MemoryLimits | None = None,
    ) -> None:
        self._limits = limits
        self._database = Database(path, busy_timeout_s=busy_timeout_s, traces=traces)
        self._bound: dict[str, SqliteOwnerStore] = {}
        self._lock = threading.Lock()
        self.maintenance = SqliteMaintenance(self._database)
        self.maintenance.give_back()

    def for_owner(self, owner: str) -> SqliteOwnerStore:
        """What one owner sees of the store."""
        with self._lock:
            if owner not in self._bound:
                self._bound[owner] = SqliteOwnerStore(self._database, owner, self._limits)
            return self._bound[owner]

    def close(self) -> None:
        """Write the usage that waits, and close every connection."""
        for bound in self._bound.values():
            bound.usage.flush()
        self._database.close()


class SqliteOwnerStore(OwnerStore):
    """The memories of one owner; every statement names the owner."""

    # The part of the file that belongs to this owner, by the number of versions; all of it for a sole owner.
    _SIZE = _SIZE

    def __init__(self, database: Database, owner: str, limits: MemoryLimits | None = None) -> None:
        owned = SqliteOwner(database, owner, SqliteRows)
        super().__init__(owned)
        self._limits = limits
        self._database = database
        # These concern the file: they are the same for every owner.
        self.epoch = database.epoch
        self.snapshot = database.snapshot
        self.names = SqliteNames(owned)

    def apply(
        self, changes: Sequence[Change], *, batch: str, actor: str = USER, undoes: int | None = None
    ) -> list[Outcome]:
        """Carry out the changes and journal them, all in one durable transaction or none."""
        with self._journaled(batch, actor, undoes) as writer:
            outcomes = [writer.apply(change) for change in changes]
            writer.hold_limit()
        return outcomes

    def erase(self, ids: Sequence[str], *, batch: str, actor: str = USER) -> list[Outcome]:
        """Remove these memories, their links and the documents about them from every byte of the store."""
        with self._journaled(batch, actor) as writer:
            outcomes = writer.erase(ids)
        self._scrub("erased")
        return outcomes

    def seal(self, versions: Sequence[tuple[Memory, Sealed]], *, batch: str, actor: str = USER) -> Outcome:
        """Replace every version of a memory by its title and sealed text, and erase all that was derived."""
        with self._journaled(batch, actor) as writer:
            outcome = writer.seal(versions)
        self._scrub("sealed")
        return outcome

    def reseal(self, blobs: Mapping[tuple[str, int], bytes]) -> None:
        """Replace sealed texts by the same texts under another key, and leave no byte of the old ones."""
        with self._journaled() as writer:
            writer.reseal(blobs)
        self._scrub("encrypted again")

    def register_folder(self, keys: Sequence[str], choose: Callable[[Sequence[FolderRow]], str]) -> str:
        """Give keys without a project the one that `choose` finds for the known folders; return it."""
        with self._journaled() as writer:
            return writer.register_folders(keys, choose)

    @contextmanager
    def _journaled(self, batch: str = "", actor: str = USER, undoes: int | None = None) -> Iterator[Writer]:
        """A transaction whose entries go to the ledger once it is durable."""
        with self._database.writing() as connection:
            rows = SqliteRows(connection, self.owner)
            writer = Writer(rows, timestamps.now(), batch, actor, undoes, self._limits)
            yield writer
        lost_writes.note(self._database.path, self.epoch(), writer.at, writer.entries)

    def folders(self) -> list[FolderRow]:
        """The folders whose project is known, oldest first."""
        return [to_folder(row) for row in self._database.kept(FOLDERS, [self.owner])]

    def _scrub(self, done: str) -> None:
        """Leave no byte of what was deleted; the change is committed, whatever happens here."""
        try:
            with self._database.reading() as connection:
                maintenance.scrub(connection, done)
        except StoreUnavailable as error:
            if not isinstance(error.__cause__, apsw.Error):
                raise
            raise StoreUnavailable(
                f"{done}, but old bytes are still in the file ({error.__cause__}; no space left?):"
                " make room and run `triskele doctor`"
            ) from error


class SqliteNames(NameStore):
    """Names in a file, where the mentions of a version are one row."""

    # Every recall asks for a hundred keys: looked up one by one, they need no table of their own and no order.
    _FIND = (
        f"SELECT {NAME_COLUMNS} FROM (SELECT value FROM json_each(?2)) CROSS JOIN names ON owner = ?1 AND key = value"
    )
    _MENTIONS = "readings"
    _IN_BLOCKS = "substr(block, 1, 8) IN (SELECT substr(value, 1, 8) FROM json_each(?2)) AND block {listed}"
    # By the owner's part of all mentions.
    _SIZE = (
        "(SELECT round(1.0 * (SELECT coalesce(sum(pgsize), 0) FROM dbstat WHERE aggregate = 1 AND name IN"
        f" (SELECT name FROM sqlite_schema WHERE tbl_name IN ({_TABLES}))) * count(*)"
        " / max(1, (SELECT count(*) FROM mentions))) FROM mentions WHERE owner = ?1)"
    )

    def mentions(self, *, after: int = 0) -> list[Mentioned]:
        """A page of mentions past a number, in their order."""
        sql = "SELECT mention, row, names FROM readings WHERE owner = ? AND mention > ? ORDER BY mention LIMIT ?"
        readings = self._database.all(sql, after, _PAGE)
        mentions = (mention for reading in readings for mention in _to_mentions(*reading))
        return [mention for mention in mentions if mention.mention > after]

    def members(self, concepts: Iterable[int]) -> list[Name]:
        """The names of some concepts, in their order."""
        # Only names of another's concept are in the index.
        joined = f"SELECT name FROM names WHERE concept <> name AND concept {DIALECT.listed_as.format('?2')}"
        return self._named(f"name IN (SELECT value FROM json_each(?2) UNION {joined}) AND concept {{listed}}", concepts)

    def _edges(self, concept: int, projects: Any, *, closed: bool, limit: int) -> list[Any]:
        # Numbers in lists of JSON: looking through the texts takes a fraction of reading them.
        patterns = [f"*[[,]{name.name}[],]*" for name in self.members([concept])]
        holders = "SELECT readings.row FROM json_each(?6) CROSS JOIN readings ON readings.names GLOB json_each.value"
        wanted = f"SELECT id FROM versions WHERE owner = ?1 AND project {DIALECT.listed_as.format('?4')}"
        sql = (
            f"SELECT DISTINCT {EDGE_COLUMNS} FROM edges WHERE row IN ({holders} WHERE readings.owner = ?1)"
            " AND (source = ?2 OR target = ?2) AND (?3 OR known_to IS NULL)"
            f" AND (?4 IS NULL OR evidence IN ({wanted}))"
            " ORDER BY known_to IS NOT NULL, known_from DESC, evidence, source, target LIMIT ?5"
        )
        return self._database.all(sql, concept, closed, projects, limit, patterns)


def _to_mentions(last: int, row: int, names: str) -> Iterator[Mentioned]:
    mentions = [(name, kind) for kind, numbers in json.loads(names).items() for name in numbers]
    return (Mentioned(number, row, *each) for number, each in enumerate(mentions, last - len(mentions) + 1))
