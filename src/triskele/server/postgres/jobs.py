"""Jobs of one owner as rows: what is still to be made of what was written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from triskele.replies import JobCounts
from triskele.server.postgres.connections import Connection, OwnerTransactions
from triskele.store.derived import EMBED, MOST_TRIES, NAMES, Job
from triskele.text import timestamps

# The name of the mark that records the model for which contents are queued.
MODEL = "model"
_JOB = "kind, key, tries, error"
_WAITING = f"owner = %s AND kind = %s AND tries < {MOST_TRIES}"
_QUEUE_VERSION = f"""
INSERT INTO jobs (owner, kind, key) SELECT %(owner)s, '{NAMES}', %(row)s
UNION ALL SELECT %(owner)s, '{EMBED}', %(hash)s WHERE NOT EXISTS (
    SELECT 1 FROM vectors WHERE owner = %(owner)s AND content_hash = %(hash)s
    AND fingerprint = (SELECT value FROM marks WHERE owner = %(owner)s AND name = '{MODEL}'))
ON CONFLICT DO NOTHING
"""


class PostgresJobs:
    """The jobs of one owner."""

    def __init__(self, transactions: OwnerTransactions) -> None:
        self._transactions = transactions
        self._owner = transactions.owner

    def add(self, kind: str, keys: Iterable[str]) -> None:
        """Queue jobs; those that wait already stay as they are."""
        with self._transactions.writing() as connection:
            queue(connection, self._owner, kind, keys)

    def claim(self, kind: str, limit: int = 64, *, lease_s: float = 60.0, wait: bool = True) -> list[Job]:
        """Take the oldest jobs that no lease covers; after the lease they can be claimed again."""
        now = timestamps.to_micros(timestamps.now())
        with self._transactions.writing(wait=wait) as connection:
            rows = connection.execute(
                f"SELECT {_JOB} FROM jobs WHERE {_WAITING} AND lease <= %s ORDER BY job LIMIT %s",
                [self._owner, kind, now, limit],
            ).fetchall()
            self._set(connection, "lease = %s", kind, [row[1] for row in rows], now + round(lease_s * 1e6))
        return [_to_job(row) for row in rows]

    def release(self, kind: str, keys: Iterable[str]) -> None:
        """End the lease of jobs that were not done; they wait again and have lost no try."""
        self._update("lease = 0", kind, keys)

    def complete(self, kind: str, keys: Iterable[str]) -> None:
        """Remove jobs that are done."""
        with self._transactions.writing() as connection:
            complete_jobs(connection, self._owner, kind, keys)

    def fail(self, kind: str, keys: Iterable[str], error: str) -> None:
        """Record why jobs failed and queue them again; after the last try they are given up."""
        self._update("lease = 0, tries = tries + 1, error = %s", kind, keys, error)

    def count(self, kind: str) -> int:
        """How many jobs wait, claimed ones included."""
        return count_jobs(self._transactions, kind)

    def failed(self, kind: str) -> list[Job]:
        """The jobs that failed at every try, oldest first."""
        sql = f"SELECT {_JOB} FROM jobs WHERE owner = %s AND kind = %s AND tries >= {MOST_TRIES} ORDER BY job"
        return [_to_job(row) for row in self._transactions.all(sql, [self._owner, kind])]

    def retry(self, kind: str) -> None:
        """Queue the jobs that were given up again; their last errors are kept."""
        if given_up := self.failed(kind):
            self._update("lease = 0, tries = 0", kind, [job.key for job in given_up])

    def counts(self) -> JobCounts:
        """How many jobs wait and were given up, and why the newest that failed did."""
        sql = "SELECT error FROM jobs WHERE owner = %s AND error <> '' ORDER BY job DESC LIMIT 1"
        errors = self._transactions.all(sql, [self._owner])
        given_up = sum(len(self.failed(kind)) for kind in (EMBED, NAMES))
        return JobCounts(self.count(EMBED), self.count(NAMES), given_up, str(errors[0][0]) if errors else "")

    def _update(self, change: str, kind: str, keys: Iterable[str], *bindings: Any) -> None:
        with self._transactions.writing() as connection:
            self._set(connection, change, kind, keys, *bindings)

    def _set(self, connection: Connection, change: str, kind: str, keys: Iterable[str], *bindings: Any) -> None:
        connection.execute(
            f"UPDATE jobs SET {change} WHERE owner = %s AND kind = %s AND key = ANY(%s)",
            [*bindings, self._owner, kind, list(keys)],
        )


def queue(connection: Connection, owner: str, kind: str, keys: Iterable[str]) -> None:
    """Queue jobs in the order of their keys, in the transaction of the caller."""
    connection.execute(
        "INSERT INTO jobs (owner, kind, key) SELECT %s, %s, key"
        " FROM unnest(%s::text[]) WITH ORDINALITY AS one (key, at) ORDER BY at ON CONFLICT DO NOTHING",
        [owner, kind, list(keys)],
    )


def queue_version(connection: Connection, owner: str, row: int, content_hash: str) -> None:
    """Queue the names of a new version, and its content unless the model in use has seen it already."""
    connection.execute(_QUEUE_VERSION, {"owner": owner, "row": str(row), "hash": content_hash})


def queue_all_names(connection: Connection, owner: str) -> None:
    """Queue the reading of the names of every version."""
    connection.execute(
        "INSERT INTO jobs (owner, kind, key) SELECT owner, %s, row::text FROM versions WHERE owner = %s ORDER BY row"
        " ON CONFLICT DO NOTHING",
        [NAMES, owner],
    )


def complete_jobs(connection: Connection, owner: str, kind: str, keys: Iterable[str]) -> None:
    """Remove jobs that are done, in the transaction of the caller."""
    connection.execute("DELETE FROM jobs WHERE owner = %s AND kind = %s AND key = ANY(%s)", [owner, kind, list(keys)])


def count_jobs(transactions: OwnerTransactions, kind: str) -> int:
    """How many jobs of a kind wait."""
    [[count]] = transactions.all(f"SELECT count(*) FROM jobs WHERE {_WAITING}", [transactions.owner, kind])
    return int(count)


def waiting_keys(transactions: OwnerTransactions, kind: str, limit: int) -> list[str]:
    """The keys of the oldest jobs that wait."""
    sql = f"SELECT key FROM jobs WHERE {_WAITING} ORDER BY job LIMIT %s"
    return [str(key) for (key,) in transactions.all(sql, [transactions.owner, kind, limit])]


def model_in_use(connection: Connection, owner: str) -> str | None:
    """The model for which contents are queued."""
    found = connection.execute("SELECT value FROM marks WHERE owner = %s AND name = %s", [owner, MODEL]).fetchone()
    return str(found[0]) if found else None


def _to_job(row: Sequence[Any]) -> Job:
    return Job(*row)
