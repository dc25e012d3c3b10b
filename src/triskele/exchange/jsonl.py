"""Import and export triskele's own format: a header line, then every version and link on a line.

Files of plain JSON objects with a content each are read too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from datetime import datetime
from enum import StrEnum
from itertools import chain
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_type_hints

from triskele import ingest, validation
from triskele.config import MemorySettings
from triskele.errors import BadInput
from triskele.exchange import sources
from triskele.exchange.json_text import number, parse_object, shown, string, strings, whole
from triskele.exchange.records import Item, Note, StoredLink, StoredVersion
from triskele.privacy import detect
from triskele.replies.rooms import Problem
from triskele.store import archive
from triskele.store.rows import LATER_COLUMNS, VERSION_LISTS
from triskele.text import timestamps
from triskele.text.ids import content_hash
from triskele.types import ALPHABET, ID_LENGTH, Link, Memory, is_secret

# The last checkout before the first release wrote format 2, with the first list of columns only.
_FIRST_FORMAT = 2
FORMAT = _FIRST_FORMAT + len(VERSION_LISTS) - 1
_COUNTED = {"memory": "versions", "link": "links"}
_MAX_VERSION = 2**31
_SECRET = "secret"
# What others share stays with them.
_NOT_EXPORTED = {"shared_by"}
_Reader = Callable[[Any, str], Any]

_Made = TypeVar("_Made")
_Located = tuple[str, dict[str, Any] | Problem]


def recognises(path: Path, head: str) -> bool:
    """A file of JSON objects, one per line, that no other format recognises."""
    return path.is_file() and head.lstrip().startswith("{")


def read(path: Path, settings: MemorySettings) -> Iterator[Item]:
    """The records of an export, or of plain objects with a content each."""
    records = _records(path)
    location, first = next(records, ("line 1", Problem("line 1", "the file is empty")))
    if isinstance(first, Problem):
        # Without a readable first line the kind of the others is unknown.
        yield first
    elif archive.TITLE in first:
        yield Problem(location, "is an archive: `triskele import` takes it where the store is")
    elif "triskele" in first:
        yield from _read_export(first, location, records, settings)
    else:
        for where, record in chain([(location, first)], records):
            yield _attempt(record, where, _note)


def _read_export(
    first: dict[str, Any], location: str, records: Iterator[_Located], settings: MemorySettings
) -> Iterator[Item]:
    header = _attempt(first, location, _checked_header)
    if isinstance(header, Problem):
        yield header
        return
    counts = dict.fromkeys(header, 0)
    for location, record in records:
        for name in _COUNTED.keys() & (record if isinstance(record, dict) else ()):
            counts[_COUNTED[name]] += 1
        yield _attempt(record, location, lambda values, location: _stored(values, location, settings))
    for name, announced in header.items():
        if counts[name] != announced:
            yield Problem("the end", f"{announced} {name} announced, {counts[name]} found: the file is incomplete")


def _records(path: Path) -> Iterator[_Located]:
    for line, raw in sources.lines(path):
        location = f"line {line}"
        if raw is None:
            yield location, Problem(location, f"is longer than {sources.MAX_LINE_BYTES:,} bytes")
        elif raw.strip():
            try:
                yield location, parse_object(raw, sources.decoded(raw))
            except BadInput as error:
                yield location, Problem(location, str(error))


def _attempt(
    record: dict[str, Any] | Problem, location: str, make: Callable[[dict[str, Any], str], _Made]
) -> _Made | Problem:
    if isinstance(record, Problem):
        return record
    try:
        return make(record, location)
    except BadInput as error:
        return Problem(location, str(error))


def lines(histories: Sequence[Sequence[Memory]], links: Sequence[Link], *, ascii_only: bool = False) -> Iterator[str]:
    """An export, line by line: each memory's versions oldest first, then the links."""
    versions = [memory for history in histories for memory in history]
    yield _line({"triskele": FORMAT, "versions": len(versions), "links": len(links)}, ascii_only)
    for memory in versions:
        yield _line({"memory": _values_of(memory)}, ascii_only)
    for link in links:
        yield _line({"link": _values_of(link)}, ascii_only)


def _line(record: dict[str, Any], ascii_only: bool) -> str:
    return json.dumps(record, ensure_ascii=ascii_only, separators=(",", ":")) + "\n"


def _checked_header(record: dict[str, Any], _place: str) -> dict[str, int]:
    version = whole(record["triskele"], "the format's version")
    if version > FORMAT:
        raise BadInput(f"has format {version}, this triskele reads up to format {FORMAT}: upgrade triskele")
    if version < _FIRST_FORMAT:
        raise BadInput(f"has format {version}, from before the first release: export it again with a later checkout")
    _check_names(record, {"triskele", *_COUNTED.values()}, "the header")
    return {name: whole(record[name], f"the number of {name}") for name in _COUNTED.values()}


def _stored(record: dict[str, Any], location: str, settings: MemorySettings) -> StoredVersion | StoredLink:
    kind = next(iter(record), "")
    if len(record) != 1 or kind not in _COUNTED:
        raise BadInput(f"has an unknown kind: {', '.join(map(shown, record))[:60] or 'an empty object'}")
    values = record[kind]
    if not isinstance(values, dict):
        raise BadInput(f"the {kind} is not a JSON object")
    if kind == "link":
        return StoredLink(location, _link_of(values))
    return StoredVersion(location, _memory_of(values, settings))


def _note(record: dict[str, Any], location: str) -> Note:
    """The note that one plain object describes."""
    if "memory" in record or "link" in record:
        raise BadInput("is from an export without its first line, the header")
    values = {_ALIASES.get(name, name): value for name, value in record.items() if value is not None}
    if len(values) < sum(value is not None for value in record.values()):
        raise BadInput("has the same field under two names")
    if "content" not in values:
        raise BadInput("has neither content nor text")
    unknown = sorted(set(values) - set(_NOTE_FIELDS))
    if unknown:
        raise BadInput(f"has an unknown field {shown(unknown[0])} (known: {', '.join(_NOTE_FIELDS)})")
    checked = {name: _NOTE_FIELDS[name](value, name) for name, value in values.items()}
    details = {_FIELD_NAMES.get(name, name): value for name, value in checked.items() if name != "content"}
    return Note(location=location, content=checked["content"], details=details)


def _tags(value: Any, what: str) -> tuple[str, ...]:
    return tuple(value.split(",")) if isinstance(value, str) else strings(value, what)


def _keywords(value: Any, what: str) -> str:
    return " ".join(strings(value, what)) if isinstance(value, list) else string(value, what)


def _values_of(value: Memory | Link) -> dict[str, Any]:
    """Every field of a version or link, timestamps as text; the text of a secret has its own field."""
    own = (field.name for field in fields(value) if field.name not in _NOT_EXPORTED)
    named = {_SECRET if name == "text" else name: getattr(value, name) for name in own}
    return {name: timestamps.to_text(v) if isinstance(v, datetime) else v for name, v in named.items()}


def _link_of(values: dict[str, Any]) -> Link:
    """The validated link that the values describe."""
    link: Link = _built(Link, values, _LINK_FIELDS, "the link")
    _check_id(link.source)
    _check_id(link.target)
    if link.source == link.target:
        raise BadInput(f"the link from {link.source} leads to itself")
    _check_known(link)
    return link


def _memory_of(values: dict[str, Any], settings: MemorySettings) -> Memory:
    """The version that the values describe; refuses what validation would refuse or change."""
    rows = dict.fromkeys(LATER_COLUMNS) | {name: value for name, value in values.items() if name != _SECRET}
    memory: Memory = _built(Memory, rows, _MEMORY_FIELDS, "the memory")
    _check_id(memory.id)
    _check_texts(memory, settings)
    if content_hash(memory.content) != memory.content_hash:
        raise BadInput("the content does not match its hash: the line was changed or damaged")
    if memory.owner != settings.owner:
        raise BadInput(f"belongs to {shown(memory.owner)}, the owner of this store is {settings.owner!r}")
    if not 1 <= memory.version <= _MAX_VERSION:
        raise BadInput(f"version {memory.version} is out of range")
    if memory.valid_from and memory.valid_to and memory.valid_to <= memory.valid_from:
        raise BadInput("valid_to must be later than valid_from")
    _check_known(memory)
    ingest.refuse_secret_labels(ingest.labels_of(memory))
    if is_secret(memory):
        return _unsealed(memory, values, settings)
    if _SECRET in values:
        raise BadInput(f"has the text of a secret although it is {memory.sensitivity}")
    return ingest.classified(memory, memory.sensitivity, settings)


def _unsealed(memory: Memory, values: dict[str, Any], settings: MemorySettings) -> Memory:
    if _SECRET not in values:
        raise BadInput("is a secret without its text: export it again together with the secrets")
    text = string(values[_SECRET], "the secret")
    if validation.check_content(text, settings) != text:
        raise BadInput("invisible characters or extra spaces in the secret")
    if detect.find(memory.content):
        raise BadInput("the title of a secret looks like a secret itself")
    whole = replace(memory, content=text, content_hash=content_hash(text))
    return ingest.sealable(whole, detect.find(text), memory.content)


def _check_texts(memory: Memory, settings: MemorySettings) -> None:
    """Refuse a text that validation would change."""
    checked = ingest.checked_details(memory, settings)
    checked = {"content": validation.check_content(memory.content, settings), **checked}
    changed = [name for name, value in checked.items() if name != "tags" and value != getattr(memory, name)]
    # Outer spaces are allowed in tags only: validation turns a comma at a tag's end into one.
    changed += ["tags" for tag in memory.tags if validation.clean(tag, "a tag") != tag.strip()]
    if changed:
        raise BadInput(f"invisible characters or extra spaces in the {changed[0]}")


def _check_known(value: Memory | Link) -> None:
    if value.known_to is not None and value.known_to < value.known_from:
        raise BadInput("known_to must not be earlier than known_from")


def _check_id(id: str) -> None:
    if len(id) != ID_LENGTH or not set(id) <= set(ALPHABET):
        raise BadInput(f"{id[:40]!r} is not an id")


def _check_names(values: dict[str, Any], expected: set[str], what: str) -> None:
    """Refuse unknown and missing fields."""
    unknown, missing = sorted(set(values) - expected), sorted(expected - set(values))
    if unknown:
        raise BadInput(f"{what} has an unknown field {shown(unknown[0])}")
    if missing:
        raise BadInput(f"{what} has no {missing[0]}")


def _built(make: Callable[..., Any], values: dict[str, Any], readers: dict[str, _Reader], what: str) -> Any:
    _check_names(values, set(readers), what)
    return make(**{name: reader(values[name], name) for name, reader in readers.items()})


def _reader(kind: Any) -> _Reader:
    """The reader of the values of a type."""
    if isinstance(kind, UnionType):
        reader = _reader(_bare(kind))
        return lambda value, what: None if value is None else reader(value, what)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return lambda value, what: _choice(kind, value, what)
    return _READERS[kind]


def _bare(kind: Any) -> Any:
    return next(part for part in get_args(kind) if part is not NoneType) if isinstance(kind, UnionType) else kind


def _choice(kinds: type[StrEnum], value: Any, what: str) -> StrEnum:
    try:
        return kinds(string(value, what))
    except ValueError:
        raise BadInput(f"unknown {what} {shown(value)}: one of {', '.join(kinds)}") from None


_READERS: dict[Any, _Reader] = {str: string, int: whole, float: number, tuple[str, ...]: strings}
_READERS[datetime] = lambda value, what: timestamps.parse(string(value, what))
_MEMORY_TYPES = {name: kind for name, kind in get_type_hints(Memory).items() if name not in _NOT_EXPORTED}
_MEMORY_FIELDS = {name: _reader(kind) for name, kind in _MEMORY_TYPES.items()}
_LINK_FIELDS = {name: _reader(kind) for name, kind in get_type_hints(Link).items()}
# What only a store says about a memory.
_OF_THE_STORE = {"id", "owner", "origin", "version", "known_from", "known_to", "content_hash"}
_ALIASES = {"text": "content", "created_at": "created", "updated_at": "updated"}
_FIELD_NAMES = {"created": "created_at", "updated": "updated_at"}
_NOTE_FIELDS: dict[str, _Reader] = {
    _ALIASES.get(name, name): {int: whole, float: number}.get(_bare(kind), string)
    for name, kind in _MEMORY_TYPES.items()
    if name not in _OF_THE_STORE
}
_NOTE_FIELDS |= {"tags": _tags, "keywords": _keywords}
