"""Usage of one owner's memories as rows; it waits for no writer: a refused write goes with the next one."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

import apsw

from triskele.base import timestamps
from triskele.errors import StoreUnavailable
from triskele.stores.protocols import ConversationUse, DayCount, Given, Use, UseCount
from triskele.stores.sqlite.database import Database

MOST_CONVERSATIONS = 500
KEPT, KEPT_WHEN_OVER = timedelta(days=30), timedelta(days=7)
_MOST_WAITING = 1000
_COUNTS = "id, recalled, injected, tokens, last"
_LISTED = "SELECT value FROM json_each(?)"


class SqliteUsage:
    """Counts by memory and by day, and what each conversation was given."""

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self._owner = owner
        self._lock = threading.Lock()
        self._waiting: deque[_Entry] = deque(maxlen=_MOST_WAITING)

    def recalled(self, uses: Sequence[Use]) -> None:
        """Count memories that a recall returned."""
        self._write(_Handed(None, tuple(uses), is_injected=False, at=timestamps.now()))

    def injected(self, conversation: str | None, uses: Sequence[Use], *, client: str = "", project: str = "") -> None:
        """Count memories that a conversation was given unasked; whatever it had lost counts as never given."""
        handed = _Handed(conversation, tuple(uses), is_injected=True, at=timestamps.now())
        self._write(replace(handed, client=client, project=project))

    def conversations(self, limit: int = 50, offset: int = 0) -> list[ConversationUse]:
        """The conversations that were given something, the newest first; what still waits to be written is left out."""
        self.flush()
        sql = (
            "SELECT c.conversation, c.at, c.client, c.project, count(g.id), c.tokens FROM conversations AS c"
            " LEFT JOIN given AS g ON g.owner = c.owner AND g.conversation = c.conversation WHERE c.owner = ?"
            " GROUP BY c.conversation, c.at, c.client, c.project, c.tokens ORDER BY c.at DESC, c.conversation"
            " LIMIT ? OFFSET ?"
        )
        rows = self._all(sql, limit, offset)
        return [ConversationUse(*row)._replace(at=timestamps.from_micros(row[1])) for row in rows]

    def lose(self, conversation: str) -> None:
        """Record that a conversation was compacted: what it was given is no longer in its context."""
        self._write(_Lost(conversation))

    def forget(self, conversation: str) -> None:
        """A conversation starts over: nothing counts as injected into it."""
        self._write(_Begun(conversation))

    def end(self, conversation: str) -> None:
        """A conversation is over; what it was given is kept for a while."""
        self._write(_Ended(conversation))

    def given(self, conversation: str) -> list[Given]:
        """What a conversation was given, the newest first."""
        self.flush()
        columns = "id, content_hash, at, lost, tokens"
        sql = f"SELECT {columns} FROM given WHERE owner = ? AND conversation = ? ORDER BY at DESC, id"
        rows = self._all(sql, conversation)
        known = {row[0]: Given(row[0], row[1], timestamps.from_micros(row[2]), bool(row[3]), row[4]) for row in rows}
        with self._lock:
            for entry in self._waiting:
                if entry.conversation == conversation:
                    entry.replay(known)
        return sorted(known.values(), key=lambda each: each.at, reverse=True)

    def counts(self, ids: Iterable[str]) -> dict[str, UseCount]:
        """How often some memories were used; those that never were are left out."""
        sql = f"SELECT {_COUNTS} FROM usage_counts WHERE owner = ? AND id IN ({_LISTED})"
        return {count.id: count for count in self._counted(sql, json.dumps(list(ids)))}

    def most_used(self, limit: int = 10) -> list[UseCount]:
        """The memories that were recalled and injected most often."""
        order = "recalled + injected DESC, last DESC, id"
        return self._counted(f"SELECT {_COUNTS} FROM usage_counts WHERE owner = ? ORDER BY {order} LIMIT ?", limit)

    def days(self, limit: int = 14) -> list[DayCount]:
        """The newest days on which anything was used, the newest first."""
        sql = "SELECT day, recalled, injected, tokens FROM usage_days WHERE owner = ? ORDER BY day DESC LIMIT ?"
        return [DayCount(*row) for row in self._all(sql, limit)]

    def echoed(self, prints: Iterable[str]) -> dict[str, list[str]]:
        """The ids of memories whose text left these fingerprints when it was given, by fingerprint."""
        self.flush()
        sql = f"SELECT print, id FROM echoes WHERE owner = ? AND print IN ({_LISTED}) ORDER BY print, id"
        found: dict[str, list[str]] = {}
        for print, id in self._all(sql, json.dumps(list(prints))):
            found.setdefault(print, []).append(id)
        return found

    def flush(self) -> None:
        """Write what had to wait."""
        with self._lock:
            if not self._waiting:
                return
            try:
                with self._database.noting() as connection:
                    for entry in self._waiting:
                        entry.write(connection, self._owner)
            except StoreUnavailable:
                return
            self._waiting.clear()

    def _write(self, entry: _Entry) -> None:
        with self._lock:
            self._waiting.append(entry)
        self.flush()

    def _counted(self, sql: str, binding: str | int) -> list[UseCount]:
        return [UseCount(*row)._replace(last=timestamps.from_micros(row[-1])) for row in self._all(sql, binding)]

    def _all(self, sql: str, *bindings: str | int) -> list[Any]:
        return self._database.all(sql, [self._owner, *bindings])


class _Entry(Protocol):
    """A queued write; until it is written, reads replay it."""

    @property
    def conversation(self) -> str | None: ...

    def write(self, connection: apsw.Connection, owner: str) -> None: ...

    def replay(self, known: dict[str, Given]) -> None: ...


@dataclass(frozen=True, slots=True)
class _Handed:
    conversation: str | None
    uses: tuple[Use, ...]
    is_injected: bool
    at: datetime
    client: str = ""
    project: str = ""

    def write(self, connection: apsw.Connection, owner: str) -> None:
        micros = timestamps.to_micros(self.at)
        if self.conversation is not None:
            _open(connection, owner, self)
            connection.execute(
                "DELETE FROM given WHERE owner = ? AND conversation = ? AND lost", [owner, self.conversation]
            )
        for use in self.uses:
            recalled, injected = (0, 1) if self.is_injected else (1, 0)
            # A memory may have been erased while this had to wait.
            connection.execute(
                f"INSERT INTO usage_counts ({_COUNTS}, owner) SELECT ?1, ?2, ?3, ?4, ?5, ?6"
                " WHERE EXISTS (SELECT 1 FROM versions WHERE owner = ?6 AND id = ?1)"
                " ON CONFLICT (owner, id) DO UPDATE SET recalled = recalled + excluded.recalled,"
                " injected = injected + excluded.injected, tokens = tokens + excluded.tokens, last = excluded.last",
                [use.id, recalled, injected, use.tokens, micros, owner],
            )
            if self.is_injected or use.prints:
                _keep_text(connection, owner, self.conversation, use, micros)
        self._count_day(connection, owner)

    def _count_day(self, connection: apsw.Connection, owner: str) -> None:
        number, tokens = len(self.uses), sum(use.tokens for use in self.uses)
        counts = (0, number) if self.is_injected else (number, 0)
        connection.execute(
            "INSERT INTO usage_days (owner, day, recalled, injected, tokens) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (owner, day) DO UPDATE SET recalled = recalled + excluded.recalled,"
            " injected = injected + excluded.injected, tokens = tokens + excluded.tokens",
            [owner, f"{self.at:%Y-%m-%d}", *counts, tokens],
        )

    def replay(self, known: dict[str, Given]) -> None:
        for id in [id for id, each in known.items() if each.lost]:
            del known[id]
        known |= {use.id: Given(use.id, use.content_hash, self.at, tokens=use.tokens) for use in self.uses}


@dataclass(frozen=True, slots=True)
class _Lost:
    conversation: str

    def write(self, connection: apsw.Connection, owner: str) -> None:
        connection.execute("UPDATE given SET lost = 1 WHERE owner = ? AND conversation = ?", [owner, self.conversation])

    def replay(self, known: dict[str, Given]) -> None:
        for id, each in known.items():
            known[id] = each._replace(lost=True)


@dataclass(frozen=True, slots=True)
class _Begun:
    conversation: str

    def write(self, connection: apsw.Connection, owner: str) -> None:
        connection.execute("DELETE FROM conversations WHERE owner = ? AND conversation = ?", [owner, self.conversation])

    def replay(self, known: dict[str, Given]) -> None:
        known.clear()


@dataclass(frozen=True, slots=True)
class _Ended:
    conversation: str

    def write(self, connection: apsw.Connection, owner: str) -> None:
        connection.execute(
            "UPDATE conversations SET ended = 1 WHERE owner = ? AND conversation = ?", [owner, self.conversation]
        )

    def replay(self, known: dict[str, Given]) -> None:
        """Nothing is taken from what was given."""


def _open(connection: apsw.Connection, owner: str, handed: _Handed) -> None:
    """Note a conversation; a new one takes the place of old ones."""
    at, conversation = handed.at, handed.conversation
    known = [timestamps.to_micros(at), handed.client, handed.project, sum(use.tokens for use in handed.uses)]
    connection.execute(
        "UPDATE conversations SET at = ?, ended = 0, client = ?, project = ?, tokens = tokens + ?"
        " WHERE owner = ? AND conversation = ?",
        [*known, owner, conversation],
    )
    if connection.changes():
        return
    connection.execute(
        "INSERT INTO conversations (at, client, project, tokens, owner, conversation, ended)"
        " VALUES (?, ?, ?, ?, ?, ?, 0)",
        [*known, owner, conversation],
    )
    ends = [timestamps.to_micros(at - KEPT), timestamps.to_micros(at - KEPT_WHEN_OVER)]
    # A look is cheaper than the deletion, which sorts all of them.
    due = "SELECT count(*) > ?2 OR min(at) < ?3 OR min(iif(ended, at, NULL)) < ?4 FROM conversations WHERE owner = ?1"
    if not connection.execute(due, [owner, MOST_CONVERSATIONS, *ends]).get:
        return
    connection.execute(
        # Never the new one itself: after a clock was set back, it is the oldest of all.
        "DELETE FROM conversations WHERE owner = ?1 AND conversation <> ?2 AND (at < ?3 OR (ended AND at < ?4)"
        " OR conversation IN (SELECT conversation FROM conversations WHERE owner = ?1"
        " ORDER BY at DESC LIMIT -1 OFFSET ?5))",
        [owner, conversation, *ends, MOST_CONVERSATIONS],
    )
    if connection.changes():
        connection.execute(
            "DELETE FROM echoes WHERE owner = ?1 AND id NOT IN (SELECT id FROM given WHERE owner = ?1)", [owner]
        )


def _keep_text(connection: apsw.Connection, owner: str, conversation: str | None, use: Use, micros: int) -> None:
    """Note which text was given, unless it has become a secret meanwhile."""
    sql = "SELECT 1 FROM versions WHERE owner = ? AND content_hash = ? AND id = ? AND sensitivity <> 'secret'"
    if not connection.execute(sql, [owner, use.content_hash, use.id]).fetchone():
        return
    if conversation is not None:
        connection.execute(
            "INSERT OR REPLACE INTO given (owner, conversation, id, content_hash, tokens, at, lost)"
            " VALUES (?, ?, ?, ?, ?, ?, 0)",
            [owner, conversation, use.id, use.content_hash, use.tokens, micros],
        )
    connection.executemany(
        "INSERT OR IGNORE INTO echoes VALUES (?, ?, ?)", [(owner, print, use.id) for print in use.prints]
    )


def drop(connection: apsw.Connection, owner: str, id: str) -> None:
    """Delete every row about a memory; the totals of the days stay."""
    for table in ("usage_counts", "given", "echoes"):
        connection.execute(f"DELETE FROM {table} WHERE owner = ? AND id = ?", [owner, id])
