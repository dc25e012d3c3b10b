"""Usage of one owner's memories as rows: the statements that are specific to Postgres."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from triskele.server.postgres.connections import Connection, OwnerTransactions
from triskele.server.postgres.truth_rows import marked
from triskele.store.protocols import Use
from triskele.store.usage import OwnerUsage, UsageRows


class PostgresUsage(OwnerUsage):
    """Usage in a database."""

    _LISTED = "= ANY(?)"

    def __init__(self, transactions: OwnerTransactions) -> None:
        super().__init__()
        self._transactions = transactions

    def _all(self, sql: str, *bindings: Any) -> list[Any]:
        return self._transactions.all(marked(sql), [self._transactions.owner, *bindings])

    def _listed(self, values: Iterable[str]) -> list[str]:
        return list(values)

    @contextmanager
    def _noting(self) -> Iterator[UsageRows]:
        with self._transactions.noting() as connection:
            yield _PostgresUsageRows(connection, self._transactions.owner)


class _PostgresUsageRows(UsageRows):
    def __init__(self, connection: Connection, owner: str) -> None:
        super().__init__(owner)
        self._connection = connection

    def run(self, sql: str, bindings: Sequence[Any]) -> Any:
        return self._connection.execute(marked(sql), bindings)

    def changed(self, sql: str, bindings: Sequence[Any]) -> int:
        return int(self.run(sql, bindings).rowcount)

    def drop_old(self, new: str, kept: int, kept_when_over: int, most: int) -> bool:
        sql = (
            # Never the new one itself: after a clock was set back, it is the oldest of all.
            "DELETE FROM conversations WHERE owner = ? AND conversation <> ? AND (at < ? OR (ended AND at < ?)"
            " OR conversation IN (SELECT conversation FROM conversations WHERE owner = ? ORDER BY at DESC OFFSET ?))"
        )
        return self.changed(sql, [self.owner, new, kept, kept_when_over, self.owner, most]) > 0

    def keep_prints(self, use: Use) -> None:
        self._connection.execute(
            "INSERT INTO echoes SELECT %s, print, %s FROM unnest(%s::text[]) AS left_by (print) ON CONFLICT DO NOTHING",
            [self.owner, use.id, list(use.fingerprints)],
        )
