"""What the truth of an owner answers in the same words in every database: ids, histories, listings and the journal."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from triskele.errors import BadInput
from triskele.store.protocols import START, ChangePage, Cursor
from triskele.store.rows import JOURNAL_COLUMNS, VERSION_COLUMNS, to_entry, to_memory
from triskele.text.timestamps import to_micros
from triskele.types import JournalEntry, Memory, Scope, Sort

# A condition on rows, and the values of its marks.
Condition = tuple[str, list[Any]]

_NEVER = 2**62
_ORDERS = {
    Sort.RECENCY: "updated_at DESC, id DESC",
    Sort.IMPORTANCE: "importance DESC, updated_at DESC, id DESC",
}


@dataclass(frozen=True, slots=True)
class Wording:
    """How a database says that a column is one of some values, and that a version has a tag."""

    one_of: Callable[[str, Sequence[str]], Condition]
    has_tag: Callable[[str], Condition]


class OwnerReads(ABC):
    """Reads the versions and the journal of one owner."""

    # The columns of a version as its owner sees it.
    _COLUMNS: ClassVar[str] = VERSION_COLUMNS
    _WORDING: ClassVar[Wording]

    owner: str

    @abstractmethod
    def _all(self, sql: str, *bindings: Any) -> list[Any]:
        """The rows of a statement whose first mark is the owner."""

    @abstractmethod
    def _all_now(self, sql: str, *bindings: Any) -> list[Any]:
        """The same as of now, inside a snapshot too."""

    def find(self, prefix: str, limit: int = 5) -> list[str]:
        """The ids that start with a prefix, forgotten ones included."""
        sql = "SELECT DISTINCT id FROM versions WHERE owner = ? AND id >= ? AND id < ? ORDER BY id LIMIT ?"
        return [row[0] for row in self._all(sql, prefix, prefix + "\U0010ffff", limit)]

    def history(self, id: str) -> list[Memory]:
        """Every version of a memory, oldest first."""
        rows = self._all(f"SELECT {self._COLUMNS} FROM versions WHERE owner = ? AND id = ? ORDER BY version", id)
        return [to_memory(row) for row in rows]

    def browse(self, scope: Scope, *, sort: Sort = Sort.RECENCY, limit: int = 50, offset: int = 0) -> list[Memory]:
        """Memories of a scope in order of recency or importance; none if the scope names another owner."""
        if sort not in _ORDERS:
            raise BadInput(f"memories cannot be listed by {sort}: choose one of {', '.join(_ORDERS)}")
        condition, bindings = in_scope(scope, self._WORDING)
        rows = self._all(
            f"SELECT {self._COLUMNS} FROM versions WHERE owner = ? AND {condition} ORDER BY {_ORDERS[sort]}"
            " LIMIT ? OFFSET ?",
            *bindings,
            limit,
            offset,
        )
        return [to_memory(row) for row in rows]

    def count(self, scope: Scope) -> int:
        """The number of memories that a scope contains."""
        condition, bindings = in_scope(scope, self._WORDING)
        return int(self._all(f"SELECT count(*) FROM versions WHERE owner = ? AND {condition}", *bindings)[0][0])

    def journal(self, *, id: str | None = None, batch: str | None = None, limit: int = 1000) -> list[JournalEntry]:
        """Journal entries of all, of one memory or of one batch, oldest first."""
        condition, bindings = "", list[Any]()
        if id is not None:
            condition, bindings = " AND (id = ? OR other = ?)", [id, id]
        if batch is not None:
            condition, bindings = condition + " AND batch = ?", [*bindings, batch]
        return self._entries(f"{condition} ORDER BY seq LIMIT ?", *bindings, limit)

    def newest_entries(self, *, before: int | None = None, limit: int = 1) -> list[JournalEntry]:
        """The newest journal entries, newest first; `before` continues behind an entry, by its number."""
        return self._entries(" AND seq < ? ORDER BY seq DESC LIMIT ?", _NEVER if before is None else before, limit)

    def changes_since(self, cursor: Cursor, limit: int = 1000) -> ChangePage:
        """The journal entries that became visible after a cursor: an owner has one writer at a time, so by number."""
        entries = self._entries(" AND seq > ? ORDER BY seq LIMIT ?", _seq(cursor), limit)
        if not entries:
            return ChangePage(entries, cursor)
        # A cursor names the time too: a number is given out again where writes were lost.
        return ChangePage(entries, Cursor(f"{entries[-1].seq}@{to_micros(entries[-1].at)}"))

    def holds(self, cursor: Cursor) -> bool:
        """Whether the journal has the entry that a cursor follows; it has not where writes were lost."""
        if cursor == START:
            return True
        _, _, at = cursor.partition("@")
        question = ("SELECT at FROM journal WHERE owner = ? AND seq = ?", _seq(cursor))
        # Another process may have written after the snapshot of this one.
        rows = self._all(*question) or self._all_now(*question)
        return bool(rows) and at in ("", str(rows[0][0]))

    def _entries(self, condition: str, *bindings: Any) -> list[JournalEntry]:
        rows = self._all(f"SELECT seq, {JOURNAL_COLUMNS} FROM journal WHERE owner = ?{condition}", *bindings)
        return [to_entry(row) for row in rows]


def _seq(cursor: Cursor) -> int:
    return int(cursor.partition("@")[0] or 0)


def standing(known_at: datetime | None) -> Condition:
    """Rows that are current now, or were at a moment."""
    if known_at is None:
        return "known_to IS NULL", []
    moment = to_micros(known_at)
    return "known_from <= ? AND (known_to IS NULL OR known_to > ?)", [moment, moment]


def in_scope(scope: Scope, wording: Wording) -> Condition:
    """Versions that a scope contains."""
    condition, bindings = standing(scope.known_at)
    conditions, bindings = [condition, "owner = ?"], [*bindings, scope.owner]
    limits = {"project": scope.projects, "sensitivity": scope.sensitivities, "origin": scope.origins}
    for column, allowed in limits.items():
        if allowed is not None:
            condition, values = wording.one_of(column, sorted(map(str, allowed)))
            conditions.append(condition)
            bindings += values
    if scope.category is not None:
        conditions.append("category = ?")
        bindings.append(scope.category)
    for tag in sorted(scope.tags):
        condition, values = wording.has_tag(tag)
        conditions.append(condition)
        bindings += values
    if not scope.any_time:
        moment = to_micros(scope.as_of)
        conditions.append("coalesce(valid_from, ?) <= ? AND (valid_to IS NULL OR valid_to > ?)")
        bindings += [moment, moment, moment]
    for sign, bound in ((">=", scope.since), ("<", scope.until)):
        if bound is not None:
            conditions.append(f"coalesce(valid_from, created_at) {sign} ?")
            bindings.append(to_micros(bound))
    return " AND ".join(conditions), bindings


def common_prefix(one: str, other: str) -> int:
    """How many characters two ids have in common at their beginning."""
    length = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        length += 1
    return length
