"""The ledger of uses in the tables of a store: it waits for no writer; what is refused goes with what comes next."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

import apsw

from triskele.base import timestamps
from triskele.errors import StoreUnavailable
from triskele.stores.usage import DayCount, Given, Use, UseCount

MOST_CONVERSATIONS = 500
KEPT, KEPT_WHEN_OVER = timedelta(days=30), timedelta(days=7)
_MOST_WAITING = 1000
_COUNTS = "id, recalled, injected, tokens, last"
_LISTED = "SELECT value FROM json_each(?)"

Connect = Callable[..., AbstractContextManager[apsw.Connection]]


class SqliteUses:
    """Counts by memory and by day, and what each conversation was given."""

    def __init__(self, reading: Connect, hurried: Connect) -> None:
        self._reading = reading
        self._hurried = hurried
        self._lock = threading.Lock()
        self._waiting: deque[_Entry] = deque(maxlen=_MOST_WAITING)

    def recalled(self, uses: Sequence[Use]) -> None:
        """Count memories that somebody asked for."""
        self._write(_Handed(None, tuple(uses), is_injected=False, at=timestamps.now()))

    def injected(self, conversation: str | None, uses: Sequence[Use]) -> None:
        """Count memories that a conversation was given unasked; whatever it had lost counts as never given."""
        self._write(_Handed(conversation, tuple(uses), is_injected=True, at=timestamps.now()))

    def lose(self, conversation: str) -> None:
        """A conversation was compacted: what it was given is no longer in its context."""
        self._write(_Lost(conversation))

    def forget(self, conversation: str) -> None:
        """A conversation begins anew: it was given nothing."""
        self._write(_Begun(conversation))

    def end(self, conversation: str) -> None:
        """A conversation is over; what it was given is kept for a while."""
        self._write(_Ended(conversation))

    def given(self, conversation: str) -> list[Given]:
        """What a conversation was given, the newest first."""
        self.flush()
        sql = "SELECT id, content_hash, at, lost FROM given WHERE conversation = ? ORDER BY at DESC, id"
        with self._reading() as connection:
            rows: Any = connection.execute(sql, [conversation]).fetchall()
        known = {row[0]: Given(row[0], row[1], timestamps.from_micros(row[2]), bool(row[3])) for row in rows}
        with self._lock:
            for entry in self._waiting:
                if entry.conversation == conversation:
                    entry.replay(known)
        return sorted(known.values(), key=lambda each: each.at, reverse=True)

    def counts(self, ids: Iterable[str]) -> dict[str, UseCount]:
        """How often some memories were used; those that never were are left out."""
        sql = f"SELECT {_COUNTS} FROM uses WHERE id IN ({_LISTED})"
        return {count.id: count for count in self._counted(sql, json.dumps(list(ids)))}

    def most_used(self, limit: int = 10) -> list[UseCount]:
        """The memories that were handed out most often."""
        order = "recalled + injected DESC, last DESC, id"
        return self._counted(f"SELECT {_COUNTS} FROM uses ORDER BY {order} LIMIT ?", limit)

    def days(self, limit: int = 14) -> list[DayCount]:
        """The newest days on which anything was used, the newest first."""
        sql = "SELECT day, recalled, injected, tokens FROM use_days ORDER BY day DESC LIMIT ?"
        with self._reading() as connection:
            rows: Any = connection.execute(sql, [limit]).fetchall()
        return [DayCount(*row) for row in rows]

    def echoed(self, prints: Iterable[str]) -> dict[str, list[str]]:
        """The ids of memories whose injected text left these fingerprints, by fingerprint."""
        self.flush()
        sql = f"SELECT print, id FROM echoes WHERE print IN ({_LISTED}) ORDER BY print, id"
        found: dict[str, list[str]] = {}
        with self._reading() as connection:
            rows: Any = connection.execute(sql, [json.dumps(list(prints))]).fetchall()
        for print, id in rows:
            found.setdefault(print, []).append(id)
        return found

    def flush(self) -> None:
        """Write what had to wait."""
        with self._lock:
            if not self._waiting:
                return
            try:
                with self._hurried() as connection:
                    for entry in self._waiting:
                        entry.write(connection)
            except StoreUnavailable:
                return
            self._waiting.clear()

    def _write(self, entry: _Entry) -> None:
        with self._lock:
            self._waiting.append(entry)
        self.flush()

    def _counted(self, sql: str, binding: str | int) -> list[UseCount]:
        with self._reading() as connection:
            rows: Any = connection.execute(sql, [binding]).fetchall()
        return [UseCount(*row)._replace(last=timestamps.from_micros(row[-1])) for row in rows]


class _Entry(Protocol):
    """Something to write; until it is, what is read is told of it by replaying."""

    @property
    def conversation(self) -> str | None: ...

    def write(self, connection: apsw.Connection) -> None: ...

    def replay(self, known: dict[str, Given]) -> None: ...


@dataclass(frozen=True, slots=True)
class _Handed:
    conversation: str | None
    uses: tuple[Use, ...]
    is_injected: bool
    at: datetime

    def write(self, connection: apsw.Connection) -> None:
        micros = timestamps.to_micros(self.at)
        if self.conversation is not None:
            _open(connection, self.conversation, self.at)
            connection.execute("DELETE FROM given WHERE conversation = ? AND lost", [self.conversation])
        for use in self.uses:
            recalled, injected = (0, 1) if self.is_injected else (1, 0)
            # A memory may have been erased while this had to wait.
            connection.execute(
                f"INSERT INTO uses ({_COUNTS}) SELECT ?1, ?2, ?3, ?4, ?5"
                " WHERE EXISTS (SELECT 1 FROM versions WHERE id = ?1)"
                " ON CONFLICT (id) DO UPDATE SET recalled = recalled + excluded.recalled,"
                " injected = injected + excluded.injected, tokens = tokens + excluded.tokens, last = excluded.last",
                [use.id, recalled, injected, use.tokens, micros],
            )
            if self.is_injected:
                _keep_text(connection, self.conversation, use, micros)
        self._count_day(connection)

    def _count_day(self, connection: apsw.Connection) -> None:
        number, tokens = len(self.uses), sum(use.tokens for use in self.uses)
        counts = (0, number) if self.is_injected else (number, 0)
        connection.execute(
            "INSERT INTO use_days (day, recalled, injected, tokens) VALUES (?, ?, ?, ?) ON CONFLICT (day) DO UPDATE"
            " SET recalled = recalled + excluded.recalled, injected = injected + excluded.injected,"
            " tokens = tokens + excluded.tokens",
            [f"{self.at:%Y-%m-%d}", *counts, tokens],
        )

    def replay(self, known: dict[str, Given]) -> None:
        for id in [id for id, each in known.items() if each.lost]:
            del known[id]
        known |= {use.id: Given(use.id, use.content_hash, self.at) for use in self.uses}


@dataclass(frozen=True, slots=True)
class _Lost:
    conversation: str

    def write(self, connection: apsw.Connection) -> None:
        connection.execute("UPDATE given SET lost = 1 WHERE conversation = ?", [self.conversation])

    def replay(self, known: dict[str, Given]) -> None:
        for id, each in known.items():
            known[id] = each._replace(lost=True)


@dataclass(frozen=True, slots=True)
class _Begun:
    conversation: str

    def write(self, connection: apsw.Connection) -> None:
        connection.execute("DELETE FROM conversations WHERE conversation = ?", [self.conversation])

    def replay(self, known: dict[str, Given]) -> None:
        known.clear()


@dataclass(frozen=True, slots=True)
class _Ended:
    conversation: str

    def write(self, connection: apsw.Connection) -> None:
        connection.execute("UPDATE conversations SET ended = 1 WHERE conversation = ?", [self.conversation])

    def replay(self, known: dict[str, Given]) -> None:
        """Nothing is taken from what was given."""


def _open(connection: apsw.Connection, conversation: str, at: datetime) -> None:
    """Let a conversation be known; a new one takes the place of old ones."""
    connection.execute(
        "UPDATE conversations SET at = ?, ended = 0 WHERE conversation = ?", [timestamps.to_micros(at), conversation]
    )
    if connection.changes():
        return
    connection.execute("INSERT INTO conversations VALUES (?, ?, 0)", [conversation, timestamps.to_micros(at)])
    connection.execute(
        # Never the new one itself: after a clock was set back, it is the oldest of all.
        "DELETE FROM conversations WHERE conversation <> ? AND (at < ? OR (ended AND at < ?) OR conversation IN"
        " (SELECT conversation FROM conversations ORDER BY at DESC LIMIT -1 OFFSET ?))",
        [conversation, timestamps.to_micros(at - KEPT), timestamps.to_micros(at - KEPT_WHEN_OVER), MOST_CONVERSATIONS],
    )
    if connection.changes():
        connection.execute("DELETE FROM echoes WHERE id NOT IN (SELECT id FROM given)")


def _keep_text(connection: apsw.Connection, conversation: str | None, use: Use, micros: int) -> None:
    """Note which text was given, unless it has become a secret meanwhile."""
    sql = "SELECT 1 FROM versions WHERE content_hash = ? AND id = ? AND sensitivity <> 'secret'"
    if not connection.execute(sql, [use.content_hash, use.id]).fetchone():
        return
    if conversation is not None:
        connection.execute(
            "INSERT OR REPLACE INTO given (conversation, id, content_hash, at, lost) VALUES (?, ?, ?, ?, 0)",
            [conversation, use.id, use.content_hash, micros],
        )
    connection.executemany("INSERT OR IGNORE INTO echoes VALUES (?, ?)", [(print, use.id) for print in use.prints])


def drop(connection: apsw.Connection, id: str) -> None:
    """Delete every line about a memory; the totals of the days stay."""
    for table in ("uses", "given", "echoes"):
        connection.execute(f"DELETE FROM {table} WHERE id = ?", [id])
