"""Plain JSON objects with a content and, where given, the details of a memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triskele.errors import BadInput
from triskele.exchange.json_text import number, shown, string, strings, whole
from triskele.exchange.records import Note


def note(record: dict[str, Any], place: str) -> Note:
    """The memory that one object describes."""
    if "memory" in record or "link" in record:
        raise BadInput("comes from an export whose first line, the header, is missing")
    values = {_NAMES.get(name, name): value for name, value in record.items() if value is not None}
    if len(values) < sum(value is not None for value in record.values()):
        raise BadInput("says the same thing under two names")
    if "content" not in values:
        raise BadInput("has neither content nor text")
    unknown = sorted(set(values) - set(_FIELDS))
    if unknown:
        raise BadInput(f"has an unknown field {shown(unknown[0])} (known: {', '.join(_FIELDS)})")
    return Note(place=place, **{name: _FIELDS[name](value, name) for name, value in values.items()})


def _tags(value: Any, what: str) -> tuple[str, ...]:
    return tuple(value.split(",")) if isinstance(value, str) else strings(value, what)


def _keywords(value: Any, what: str) -> str:
    return " ".join(strings(value, what)) if isinstance(value, list) else string(value, what)


_NAMES = {"text": "content", "created_at": "created", "updated_at": "updated"}
_FIELDS: dict[str, Callable[[Any, str], Any]] = {
    "content": string,
    "category": string,
    "tags": _tags,
    "keywords": _keywords,
    "importance": number,
    "sensitivity": string,
    "project": string,
    "session": string,
    "position": whole,
    "created": string,
    "updated": string,
    "valid_from": string,
    "valid_to": string,
}
