"""Memories and links as database rows, each guarded by a hash over all of its values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import wraps
from itertools import chain
from typing import Any, TypeVar

from triskele.errors import StoreUnavailable
from triskele.store.values import FolderRow
from triskele.text.timestamps import EPOCH, from_micros, to_micros
from triskele.types import SPOKEN, Action, JournalEntry, Link, LinkKind, Memory, Origin, Role, Sensitivity

# The columns of a version, in the order in which they were introduced. A new optional column is a new list at the end:
# rows, archives and exports without it stay as good as they were.
VERSION_LISTS = (
    (
        *("id", "version", "content", "category", "tags", "keywords", "importance", "sensitivity", "owner", "project"),
        *("origin", "session", "position", "created_at", "updated_at", "valid_from", "valid_to"),
        *("known_from", "known_to", "content_hash"),
    ),
    SPOKEN,
)
VERSION_NAMES = tuple(chain.from_iterable(VERSION_LISTS))
VERSION_COLUMNS = ", ".join(VERSION_NAMES)
# The columns that may be missing from what an earlier release wrote.
LATER_COLUMNS = tuple(chain.from_iterable(VERSION_LISTS[1:]))
_READ_NAMES = (*VERSION_NAMES, "shared_by")
_MOMENTS = ("created_at", "updated_at", "valid_from", "valid_to", "known_from", "known_to")
LINK_COLUMNS = "source, kind, target, known_from, known_to"
PLACE_COLUMNS = "key, project, at"
FOLDERS = f"SELECT place, {PLACE_COLUMNS} FROM places WHERE owner = ? ORDER BY place"
SEALED_COLUMNS = "id, version, sealed_as, sealed"
JOURNAL_COLUMNS = "at, action, id, version, previous, link_kind, other, batch, undoes, actor"

Row = Sequence[Any]
Value = TypeVar("Value")


def _or_damaged(read: Callable[[Row], Value]) -> Callable[[Row], Value]:
    """Values that no writer ever wrote are damage, whatever they fail at."""

    @wraps(read)
    def guarded(values: Row) -> Value:
        try:
            return read(values)
        except (ValueError, TypeError, OverflowError) as error:
            raise StoreUnavailable(
                f"the row of {values[0]!r} is damaged ({error}): run `triskele restore FILE`"
            ) from error

    return guarded


def row_hash(values: Row) -> str:
    """A hash that changes with any value of the row."""
    # A damaged row may hold bytes in the place of text.
    text = json.dumps(list(values), ensure_ascii=False, separators=(",", ":"), default=repr)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def without_later(values: Row, lists: Sequence[Sequence[str]]) -> Row:
    """The values of some lists of columns without the last lists that hold nothing; the first one stays."""
    end = len(values)
    for names in reversed(lists[1:]):
        if any(value is not None for value in values[end - len(names) : end]):
            break
        end -= len(names)
    return values[:end]


def version_hash(values: Row) -> str:
    """The hash of the values of VERSION_COLUMNS, without later columns that hold nothing."""
    return row_hash(without_later(values, VERSION_LISTS))


def from_memory(memory: Memory) -> list[Any]:
    """The values of VERSION_COLUMNS."""
    values = [getattr(memory, name) for name in VERSION_NAMES]
    for position, convert in _CONVERTED:
        values[position] = convert(values[position])
    return values


@_or_damaged
def to_memory(values: Row) -> Memory:
    """The inverse of `from_memory`; a value after those columns is the user who shares the memory."""
    # Here and not in functions, because it runs for every memory that is read.
    fields = dict(zip(_READ_NAMES, values, strict=False))
    for name in _MOMENTS:
        if (micros := fields[name]) is not None:
            fields[name] = EPOCH + timedelta(microseconds=micros)
    tags, role = fields["tags"], fields["role"]
    fields["tags"] = () if tags == "[]" else tuple(json.loads(tags))
    fields["sensitivity"] = Sensitivity(fields["sensitivity"])
    fields["origin"] = Origin(fields["origin"])
    fields["role"] = None if role is None else Role(role)
    return Memory(**fields)


def from_link(link: Link) -> list[Any]:
    """The values of LINK_COLUMNS."""
    return [link.source, link.kind.value, link.target, to_micros(link.known_from), _micros(link.known_to)]


@_or_damaged
def to_link(values: Row) -> Link:
    """The inverse of `from_link`."""
    return Link(
        source=values[0],
        kind=LinkKind(values[1]),
        target=values[2],
        # Here and not in functions, because it runs for every link that is read.
        known_from=EPOCH + timedelta(microseconds=values[3]),
        known_to=None if values[4] is None else EPOCH + timedelta(microseconds=values[4]),
    )


@_or_damaged
def to_entry(values: Row) -> JournalEntry:
    """A journal entry from `seq` followed by JOURNAL_COLUMNS."""
    return JournalEntry(
        seq=values[0],
        at=from_micros(values[1]),
        action=Action(values[2]),
        id=values[3],
        version=values[4],
        previous=values[5],
        link_kind=LinkKind(values[6]) if values[6] else None,
        other=values[7],
        batch=values[8],
        undoes=values[9],
        actor=values[10],
    )


def to_folder(row: Row) -> FolderRow:
    """A folder from its number and its columns."""
    return FolderRow(row[0], row[1], row[2], from_micros(row[3]))


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else to_micros(moment)


# The columns that hold another value than the field of a memory.
_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "tags": lambda tags: json.dumps(tags, ensure_ascii=False),
    "importance": float,
    **dict.fromkeys(("sensitivity", "origin"), lambda choice: choice.value),
    "role": lambda role: None if role is None else role.value,
    **dict.fromkeys(_MOMENTS, _micros),
}
_CONVERTED = [(VERSION_NAMES.index(name), convert) for name, convert in _CONVERSIONS.items()]
