"""Import the memory file of the MCP reference server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from triskele import validation
from triskele.config import MemorySettings
from triskele.errors import BadInput
from triskele.exchange import sources
from triskele.exchange.json_text import first_object, parse, parse_object, string, strings
from triskele.exchange.markdown import fitting
from triskele.exchange.records import Item, NamedLink, Note
from triskele.privacy.detect import is_cut
from triskele.replies.rooms import Problem
from triskele.types import Sensitivity

MAX_BYTES = 64 * 2**20
MAX_TIES_PER_ENTITY = 20
_LONGEST_NAME = 200
_LISTS = {"entities": "entity", "relations": "relation"}
_OPENING = re.compile(r'\s*\{\s*(?:"type"\s*:\s*"(?:entity|relation)"|"(?:entities|relations)"\s*:)')
_WHOLE = re.compile(r'\s*\{\s*"(?:entities|relations)"\s*:')


def recognises(_path: Path, head: str) -> bool:
    """Whether the first object is an entity, relation or list."""
    if first := first_object(head):
        return first.get("type") in _LISTS.values() or bool(first.keys() & _LISTS.keys())
    return _OPENING.match(head) is not None


def read(path: Path, settings: MemorySettings) -> Iterator[Item]:
    """Memories from observations and relations, and links between entities."""
    with sources.single_file(path):
        text = sources.text(path, MAX_BYTES)
    records = _from_lists(text) if _WHOLE.match(text) else _from_lines(text)
    ties = _Ties()
    is_empty = True
    for location, record in records:
        is_empty = False
        if isinstance(record, Problem):
            yield record
            continue
        try:
            yield from list(_items(record, location, settings, ties))
        except BadInput as error:
            yield Problem(location, str(error))
    if is_empty:
        raise BadInput(f"{sources.printable(path.name)} holds neither entities nor relations")
    yield from ties.between_known()


class _Ties:
    """Which entities have a memory, and which of them are related."""

    def __init__(self) -> None:
        self.known: set[str] = set()
        self.wanted: dict[tuple[str, str], None] = {}

    def between_known(self) -> Iterator[NamedLink]:
        """One link per related pair, up to a number."""
        count: dict[str, int] = {}
        for one, other in self.wanted:
            pair = (one, other)
            is_full = max(count.get(end, 0) for end in pair) >= MAX_TIES_PER_ENTITY
            if one == other or is_full or not self.known.issuperset(pair):
                continue
            count |= {end: count.get(end, 0) + 1 for end in pair}
            yield NamedLink(one, other)


def _from_lines(text: str) -> Iterator[tuple[str, Any]]:
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        location = f"line {number}"
        if not line.strip():
            continue
        try:
            end = b"\n" if number < len(lines) else b""
            yield location, parse_object(end, line)
        except BadInput as error:
            yield location, Problem(location, str(error))


def _from_lists(text: str) -> Iterator[tuple[str, Any]]:
    try:
        document = parse(text)
    except BadInput as error:
        yield "the file", Problem("the file", str(error))
        return
    for name, kind in _LISTS.items():
        entries = document.get(name, [])
        if not isinstance(entries, list):
            yield name, Problem(name, "is not a list")
            continue
        for number, entry in enumerate(entries, 1):
            location = f"{kind} {number}"
            is_object = isinstance(entry, dict)
            yield location, {**entry, "type": kind} if is_object else Problem(location, "is not a JSON object")


def _items(record: dict[str, Any], location: str, settings: MemorySettings, ties: _Ties) -> Iterator[Item]:
    kind = record.get("type")
    if kind == "entity":
        yield from _entity(record, location, settings, ties)
    elif kind == "relation":
        yield from _relation(record, location, settings, ties)
    else:
        raise BadInput(f"is neither an entity nor a relation: type {repr(kind)[:40]}")


def _entity(record: dict[str, Any], location: str, settings: MemorySettings, ties: _Ties) -> Iterator[Note]:
    name, kind = _name(record, "name"), string(record.get("entityType", ""), "the entityType").strip()
    observations = strings(record.get("observations", []), "the observations")
    tags = fitting(tuple(filter(None, (name, kind))))
    # An entity without observations is kept too.
    for text in [text for text in observations if text.strip()] or [kind or "an entity"]:
        pieces = _pieces(f"{name}: ", text, settings.max_characters)
        sensitivity = Sensitivity.SECRET if is_cut(text, pieces) else None
        for piece in pieces:
            is_lead = name not in ties.known
            ties.known.add(name)
            yield Note(
                location=location,
                content=piece,
                details={"sensitivity": sensitivity, "tags": tags, "category": _category(kind, settings)},
                name=name if is_lead else None,
            )


def _relation(record: dict[str, Any], location: str, settings: MemorySettings, ties: _Ties) -> Iterator[Note]:
    one, kind, other = (_name(record, field) for field in ("from", "relationType", "to"))
    ties.wanted[(one, other)] = None
    yield Note(
        location=location,
        content=f"{one} {kind} {other}",
        details={"tags": fitting((one, other)), "category": settings.categories[0]},
    )


def _name(record: dict[str, Any], field: str) -> str:
    name = " ".join(string(record.get(field), f"the {field}").split())
    if not name:
        raise BadInput(f"has an empty {field}")
    if len(name) > _LONGEST_NAME:
        raise BadInput(f"has a {field} longer than {_LONGEST_NAME} characters")
    return name


def _category(kind: str, settings: MemorySettings) -> str:
    wanted = {"person": "people", "people": "people", "project": "projects", "preference": "preferences"}
    category = wanted.get(kind.lower(), "facts")
    return category if category in settings.categories else settings.categories[0]


def _pieces(lead: str, text: str, limit: int) -> list[str]:
    if len(lead) + len(text) <= limit:
        return [lead + text]
    return [lead + piece for piece in validation.split_sentences(text, max(limit - len(lead), 1))]
