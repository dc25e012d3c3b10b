"""Counts of use, conversations and echoes of one owner, written without waiting for other writers."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from triskele.errors import StoreUnavailable
from triskele.replies import DayCount
from triskele.replies.rooms import ConversationUse, InjectedMemory
from triskele.store.statements import OwnerDatabase, Rows
from triskele.store.values import Use
from triskele.text import timestamps
from triskele.text.timestamps import from_micros, to_micros
from triskele.types import UseCount

MOST_CONVERSATIONS = 500
KEPT, KEPT_WHEN_OVER = timedelta(days=30), timedelta(days=7)
_MOST_WAITING = 1000
_COUNTS = "id, recalled, injected, tokens, last"
# Never the new one itself: after a clock was set back, it is the oldest of all.
_DROP_OLD = f"""
DELETE FROM conversations WHERE owner = ?1 AND conversation <> ?2 AND (at < ?3 OR (ended AND at < ?4)
    OR conversation IN (SELECT conversation FROM conversations WHERE owner = ?1
                        ORDER BY at DESC LIMIT {2**62} OFFSET ?5))
"""


class UsageStore:
    """Counts of use by memory and by day, and what conversations were given.

    Writing waits for nothing: what a busy store refuses is written later.
    """

    def __init__(self, database: OwnerDatabase) -> None:
        self._database = database
        self._listed = database.dialect.listed
        self._lock = threading.Lock()
        self._waiting: deque[_Handed | _Change] = deque(maxlen=_MOST_WAITING)

    def recalled(self, uses: Sequence[Use]) -> None:
        """Count memories that a recall returned."""
        self._write(_Handed(None, tuple(uses), timestamps.now(), is_injected=False))

    def injected(self, conversation: str | None, uses: Sequence[Use], *, client: str = "", project: str = "") -> None:
        """Count memories that a conversation was given unasked; whatever it had lost counts as never given."""
        self._write(
            _Handed(conversation, tuple(uses), timestamps.now(), is_injected=True, client=client, project=project)
        )

    def conversations(self, limit: int = 50, offset: int = 0, *, key: str | None = None) -> list[ConversationUse]:
        """The conversations that were given something, the newest first; what still waits to be written is left out."""
        self.flush()
        one = "" if key is None else " AND c.conversation = ?"
        sql = (
            "SELECT c.conversation, c.at, c.client, c.project, count(g.id), c.tokens FROM conversations AS c"
            " LEFT JOIN given AS g ON g.owner = c.owner AND g.conversation = c.conversation WHERE c.owner = ?"
            f"{one} GROUP BY c.conversation, c.at, c.client, c.project, c.tokens ORDER BY c.at DESC, c.conversation"
            " LIMIT ? OFFSET ?"
        )
        rows = self._database.all(sql, *(() if key is None else (key,)), limit, offset)
        return [replace(ConversationUse(*row), at=from_micros(row[1])) for row in rows]

    def lose(self, conversation: str) -> None:
        """Record that a conversation was compacted: what it was given is no longer in its context."""
        sql = "UPDATE given SET lost = true WHERE owner = ? AND conversation = ?"
        self._write(_Change(conversation, sql, _lose))

    def forget(self, conversation: str) -> None:
        """A conversation starts over: nothing counts as injected into it."""
        sql = "DELETE FROM conversations WHERE owner = ? AND conversation = ?"
        self._write(_Change(conversation, sql, dict.clear))

    def end(self, conversation: str) -> None:
        """A conversation is over; what it was given is kept for a while."""
        sql = "UPDATE conversations SET ended = true WHERE owner = ? AND conversation = ?"
        self._write(_Change(conversation, sql, lambda _: None))

    def given(self, conversation: str) -> list[InjectedMemory]:
        """What a conversation was given, the newest first."""
        self.flush()
        columns = "id, content_hash, at, lost, tokens"
        sql = f"SELECT {columns} FROM given WHERE owner = ? AND conversation = ? ORDER BY at DESC, id"
        rows = self._database.all(sql, conversation)
        injected = {row[0]: InjectedMemory(row[0], row[1], from_micros(row[2]), bool(row[3]), row[4]) for row in rows}
        with self._lock:
            for entry in self._waiting:
                if entry.conversation == conversation:
                    entry.replay(injected)
        return sorted(injected.values(), key=lambda each: each.at, reverse=True)

    def counts(self, ids: Iterable[str]) -> dict[str, UseCount]:
        """How often some memories were used; those that never were are left out."""
        sql = f"SELECT {_COUNTS} FROM usage_counts WHERE owner = ? AND id {self._listed}"
        return {count.id: count for count in self._counted(sql, list(ids))}

    def most_used(self, limit: int = 10) -> list[UseCount]:
        """The memories that were recalled and injected most often."""
        order = "recalled + injected DESC, last DESC, id"
        return self._counted(f"SELECT {_COUNTS} FROM usage_counts WHERE owner = ? ORDER BY {order} LIMIT ?", limit)

    def days(self, limit: int = 14) -> list[DayCount]:
        """The newest days on which anything was used, the newest first."""
        sql = "SELECT day, recalled, injected, tokens FROM usage_days WHERE owner = ? ORDER BY day DESC LIMIT ?"
        return [DayCount(*row) for row in self._database.all(sql, limit)]

    def echoed(self, fingerprints: Iterable[str]) -> dict[str, list[str]]:
        """The ids of memories whose text left these fingerprints when it was given, by fingerprint."""
        self.flush()
        sql = f"SELECT print, id FROM echoes WHERE owner = ? AND print {self._listed} ORDER BY print, id"
        ids: dict[str, list[str]] = {}
        for fingerprint, id in self._database.all(sql, list(fingerprints)):
            ids.setdefault(fingerprint, []).append(id)
        return ids

    def flush(self) -> None:
        """Write what had to wait."""
        with self._lock:
            if not self._waiting:
                return
            try:
                with self._database.noting(keeps=True) as rows:
                    for entry in self._waiting:
                        entry.write(rows)
            except StoreUnavailable:
                return
            self._waiting.clear()

    def _write(self, entry: _Handed | _Change) -> None:
        with self._lock:
            self._waiting.append(entry)
        self.flush()

    def _counted(self, sql: str, binding: Any) -> list[UseCount]:
        return [
            UseCount(row[0], row[1], row[2], row[3], from_micros(row[4])) for row in self._database.all(sql, binding)
        ]


@dataclass(frozen=True, slots=True)
class _Handed:
    """Memories that were given at once; they are counted."""

    conversation: str | None
    uses: tuple[Use, ...]
    at: datetime
    is_injected: bool
    client: str = ""
    project: str = ""

    def write(self, rows: Rows) -> None:
        micros = to_micros(self.at)
        if self.conversation is not None:
            self._open(rows, self.conversation)
            sql = "DELETE FROM given WHERE owner = ? AND conversation = ? AND lost"
            rows.run(sql, [rows.owner, self.conversation])
        for use in self.uses:
            recalled, injected = (0, 1) if self.is_injected else (1, 0)
            # A memory may have been erased while this had to wait.
            rows.run(
                f"INSERT INTO usage_counts AS known ({_COUNTS}, owner) SELECT ?, ?, ?, ?, ?, ?"
                " WHERE EXISTS (SELECT 1 FROM versions WHERE owner = ? AND id = ?)"
                " ON CONFLICT (owner, id) DO UPDATE SET recalled = known.recalled + excluded.recalled,"
                " injected = known.injected + excluded.injected, tokens = known.tokens + excluded.tokens,"
                " last = excluded.last",
                [use.id, recalled, injected, use.tokens, micros, rows.owner, rows.owner, use.id],
            )
            if self.is_injected or use.fingerprints:
                _keep_text(rows, self.conversation, use, micros)
        self._count_day(rows)

    def _open(self, rows: Rows, conversation: str) -> None:
        """Note a conversation; a new one takes the place of old ones."""
        values = [to_micros(self.at), self.client, self.project, sum(use.tokens for use in self.uses)]
        if rows.changed(
            "UPDATE conversations SET at = ?, ended = false, client = ?, project = ?, tokens = tokens + ?"
            " WHERE owner = ? AND conversation = ?",
            [*values, rows.owner, conversation],
        ):
            return
        rows.run(
            "INSERT INTO conversations (at, client, project, tokens, owner, conversation, ended)"
            " VALUES (?, ?, ?, ?, ?, ?, false)",
            [*values, rows.owner, conversation],
        )
        oldest, oldest_when_over = to_micros(self.at - KEPT), to_micros(self.at - KEPT_WHEN_OVER)
        if rows.has_old_conversations(oldest, oldest_when_over, MOST_CONVERSATIONS) and rows.changed(
            _DROP_OLD, [rows.owner, conversation, oldest, oldest_when_over, MOST_CONVERSATIONS]
        ):
            rows.run(
                "DELETE FROM echoes WHERE owner = ? AND id NOT IN (SELECT id FROM given WHERE owner = ?)",
                [rows.owner, rows.owner],
            )

    def _count_day(self, rows: Rows) -> None:
        number, tokens = len(self.uses), sum(use.tokens for use in self.uses)
        counts = (0, number) if self.is_injected else (number, 0)
        rows.run(
            "INSERT INTO usage_days AS known (owner, day, recalled, injected, tokens) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (owner, day) DO UPDATE SET recalled = known.recalled + excluded.recalled,"
            " injected = known.injected + excluded.injected, tokens = known.tokens + excluded.tokens",
            [rows.owner, f"{self.at:%Y-%m-%d}", *counts, tokens],
        )

    def replay(self, injected: dict[str, InjectedMemory]) -> None:
        for id in [id for id, memory in injected.items() if memory.lost]:
            del injected[id]
        injected |= {use.id: InjectedMemory(use.id, use.content_hash, self.at, tokens=use.tokens) for use in self.uses}


@dataclass(frozen=True, slots=True)
class _Change:
    """A statement about one conversation, and what it does to what that was given."""

    conversation: str
    sql: str
    replay: Callable[[dict[str, InjectedMemory]], None]

    def write(self, rows: Rows) -> None:
        rows.run(self.sql, [rows.owner, self.conversation])


def _lose(injected: dict[str, InjectedMemory]) -> None:
    for id, memory in injected.items():
        injected[id] = replace(memory, lost=True)


def _keep_text(rows: Rows, conversation: str | None, use: Use, micros: int) -> None:
    """Note which text was given, unless it has become a secret meanwhile."""
    sql = "SELECT 1 FROM versions WHERE owner = ? AND content_hash = ? AND id = ? AND sensitivity <> 'secret'"
    if not rows.run(sql, [rows.owner, use.content_hash, use.id]).fetchone():
        return
    if conversation is not None:
        rows.run(
            "INSERT INTO given (owner, conversation, id, content_hash, tokens, at, lost)"
            " VALUES (?, ?, ?, ?, ?, ?, false) ON CONFLICT (owner, conversation, id) DO UPDATE"
            " SET content_hash = excluded.content_hash, tokens = excluded.tokens, at = excluded.at, lost = false",
            [rows.owner, conversation, use.id, use.content_hash, use.tokens, micros],
        )
    values = rows.dialect.elements.format("?3")
    rows.run(
        f"INSERT INTO echoes (owner, print, id) SELECT ?1, value, ?2 FROM {values} WHERE true ON CONFLICT DO NOTHING",
        [rows.owner, use.id, list(use.fingerprints)],
    )
