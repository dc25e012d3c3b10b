"""Memories and links as database rows, each guarded by a hash over all of its values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import wraps
from typing import Any, TypeVar

from triskele.errors import StoreUnavailable
from triskele.text.timestamps import EPOCH, from_micros, to_micros
from triskele.types import Action, JournalEntry, Link, LinkKind, Memory, Origin, Role, Sensitivity

VERSION_COLUMNS = (
    "id, version, content, category, tags, keywords, importance, sensitivity, owner, project, origin, session,"
    " position, created_at, updated_at, valid_from, valid_to, known_from, known_to, content_hash, speaker,"
    " role"
)
# The columns before the last two, speaker and role.
_COLUMNS_WITHOUT_SPEAKER = 20
_COLUMNS = len(VERSION_COLUMNS.split(","))
LINK_COLUMNS = "source, kind, target, known_from, known_to"
PLACE_COLUMNS = "key, project, at"
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


def version_hash(values: Row) -> str:
    """The hash of the values of VERSION_COLUMNS, without speaker and role if both are missing."""
    first, spoken = values[:_COLUMNS_WITHOUT_SPEAKER], values[_COLUMNS_WITHOUT_SPEAKER:]
    return row_hash(first if all(value is None for value in spoken) else values)


def from_memory(memory: Memory) -> list[Any]:
    """The values of VERSION_COLUMNS."""
    return [
        memory.id,
        memory.version,
        memory.content,
        memory.category,
        json.dumps(memory.tags, ensure_ascii=False),
        memory.keywords,
        float(memory.importance),
        memory.sensitivity.value,
        memory.owner,
        memory.project,
        memory.origin.value,
        memory.session,
        memory.position,
        to_micros(memory.created_at),
        to_micros(memory.updated_at),
        _micros(memory.valid_from),
        _micros(memory.valid_to),
        to_micros(memory.known_from),
        _micros(memory.known_to),
        memory.content_hash,
        memory.speaker,
        None if memory.role is None else memory.role.value,
    ]


@_or_damaged
def to_memory(values: Row) -> Memory:
    """The inverse of `from_memory`; a value after those columns is the user who shares the memory."""
    created_at, updated_at, valid_from, valid_to, known_from, known_to = _moments(values[13:19])
    return Memory(
        id=values[0],
        version=values[1],
        content=values[2],
        category=values[3],
        tags=() if values[4] == "[]" else tuple(json.loads(values[4])),
        keywords=values[5],
        importance=values[6],
        sensitivity=Sensitivity(values[7]),
        owner=values[8],
        project=values[9],
        origin=Origin(values[10]),
        session=values[11],
        position=values[12],
        created_at=created_at,
        updated_at=updated_at,
        valid_from=valid_from,
        valid_to=valid_to,
        known_from=known_from,
        known_to=known_to,
        content_hash=values[19],
        speaker=values[20],
        role=None if values[21] is None else Role(values[21]),
        shared_by=values[_COLUMNS] if len(values) > _COLUMNS else None,
    )


def from_link(link: Link) -> list[Any]:
    """The values of LINK_COLUMNS."""
    return [link.source, link.kind.value, link.target, to_micros(link.known_from), _micros(link.known_to)]


@_or_damaged
def to_link(values: Row) -> Link:
    """The inverse of `from_link`."""
    known_from, known_to = _moments(values[3:5])
    return Link(
        source=values[0],
        kind=LinkKind(values[1]),
        target=values[2],
        known_from=known_from,
        known_to=known_to,
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


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else to_micros(moment)


def _moments(values: Row) -> list[Any]:
    """Several moments at once, here because every memory that is read has six; None stays None."""
    return [None if micros is None else EPOCH + timedelta(microseconds=micros) for micros in values]
