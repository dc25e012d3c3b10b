"""Usage of one owner's memories in a file: the statements that are specific to SQLite."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import apsw

from triskele.store.protocols import Use
from triskele.store.sqlite.database import Database, listed
from triskele.store.usage import OwnerUsage, UsageRows


class SqliteUsage(OwnerUsage):
    """Usage in a file."""

    _LISTED = listed()

    def __init__(self, database: Database, owner: str) -> None:
        super().__init__()
        self._database = database
        self._owner = owner

    def _all(self, sql: str, *bindings: Any) -> list[Any]:
        return self._database.all(sql, [self._owner, *bindings])

    def _listed(self, values: Iterable[str]) -> str:
        return json.dumps(list(values))

    @contextmanager
    def _noting(self) -> Iterator[UsageRows]:
        with self._database.noting(keeps=True) as connection:
            yield _SqliteUsageRows(connection, self._owner)


class _SqliteUsageRows(UsageRows):
    def __init__(self, connection: apsw.Connection, owner: str) -> None:
        super().__init__(owner)
        self._connection = connection

    def run(self, sql: str, bindings: Sequence[Any]) -> apsw.Cursor:
        return self._connection.execute(sql, bindings)

    def changed(self, sql: str, bindings: Sequence[Any]) -> int:
        self._connection.execute(sql, bindings)
        return self._connection.changes()

    def drop_old(self, new: str, kept: int, kept_when_over: int, most: int) -> bool:
        # A look is cheaper than the deletion, which sorts all of them and looks through all fingerprints: some more
        # than `most` may gather, so that a full table is not swept at every new conversation.
        due = "SELECT count(*) > ? OR min(at) < ? OR min(iif(ended, at, NULL)) < ? FROM conversations WHERE owner = ?"
        if not self._connection.execute(due, [most + most // 10, kept, kept_when_over, self.owner]).get:
            return False
        sql = (
            # Never the new one itself: after a clock was set back, it is the oldest of all.
            "DELETE FROM conversations WHERE owner = ?1 AND conversation <> ?2 AND (at < ?3 OR (ended AND at < ?4)"
            " OR conversation IN (SELECT conversation FROM conversations WHERE owner = ?1"
            " ORDER BY at DESC LIMIT -1 OFFSET ?5))"
        )
        return self.changed(sql, [self.owner, new, kept, kept_when_over, most]) > 0

    def keep_prints(self, use: Use) -> None:
        self._connection.executemany(
            "INSERT OR IGNORE INTO echoes VALUES (?, ?, ?)", [(self.owner, each, use.id) for each in use.fingerprints]
        )


def drop(connection: apsw.Connection, owner: str, id: str) -> None:
    """Delete every row about a memory; the totals of the days stay."""
    for table in ("usage_counts", "given", "echoes"):
        connection.execute(f"DELETE FROM {table} WHERE owner = ? AND id = ?", [owner, id])
