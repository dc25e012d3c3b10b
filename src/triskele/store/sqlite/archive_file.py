"""Archives of a SQLite store: its rows as of one moment, and the transaction that takes one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from typing import Any

import apsw

from triskele.errors import Conflict
from triskele.store.archive import Values
from triskele.store.sqlite import lost_writes
from triskele.store.sqlite.database import Database
from triskele.store.sqlite.truth_rows import SqliteRows
from triskele.text.timestamps import from_micros
from triskele.types import Action, Outcome

# Token vectors are in index files.
_UNKEPT = ("vectors", "tokens")
# A view: the mentions of a version are one row.
_MENTIONS = "mentions"


class SqliteArchive:
    """Makes archives of one file and takes them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextmanager
    def reading(self) -> Iterator[_Reader]:
        """Read the file as of one moment."""
        with self._database.snapshot(), self._database.reading() as connection:
            yield _Reader(connection)

    @contextmanager
    def writing(self, owner: str | None) -> Iterator[_Writer]:  # noqa: ARG002 - a file has one writer
        """Write the rows of one owner, or of several, in one transaction, all or none."""
        with self._database.writing() as connection:
            writer = _Writer(connection)
            yield writer
        if writer.last is not None:
            at, outcome = writer.last
            lost_writes.note(self._database.path, self._database.epoch(), from_micros(at), [outcome])


class _Reader:
    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def owners(self) -> list[str]:
        sql = "SELECT owner FROM journal UNION SELECT owner FROM versions UNION SELECT owner FROM documents ORDER BY 1"
        return [str(owner) for (owner,) in self._connection.execute(sql)]

    def rows(self, owner: str, sql: str) -> Iterator[Sequence[Any]]:
        if " FROM vectors " in sql:
            sql = sql.replace("tokens", "NULL")
        return iter(self._connection.execute(sql.replace("{owner}", "?1"), [owner]))


class _Writer:
    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self.last: tuple[int, Outcome] | None = None

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
            kept_in = "readings" if table == _MENTIONS else table
            self._connection.execute(f"DELETE FROM {kept_in} WHERE owner = ?", [owner])

    def insert(self, table: str, rows: Sequence[Values]) -> None:
        if table == _MENTIONS:
            for (owner, row), mentions in groupby(rows, key=itemgetter("owner", "row")):
                SqliteRows(self._connection, owner).add_mentions(
                    row, [(each["name"], each["kind"]) for each in mentions]
                )
            return
        names = [name for name in rows[0] if (table, name) != _UNKEPT]
        sql = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        try:
            self._connection.executemany(sql, [[row[name] for name in names] for row in rows])
        except (apsw.ConstraintError, apsw.MismatchError) as error:
            raise ValueError(f"rows that {table} refuses") from error
        if table == "journal":
            entry = rows[-1]
            self.last = entry["at"], Outcome(action=Action(entry["action"]), id=entry["id"], seq=entry["seq"])
