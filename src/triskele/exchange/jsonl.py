"""triskele's own format: a header line, then every version and every link, each on a line, nothing lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from triskele.config import MemorySettings
from triskele.errors import BadInput
from triskele.exchange import plain, sources
from triskele.exchange.json_text import parse_object, shown, whole
from triskele.exchange.records import Item, Problem, StoredLink, StoredVersion
from triskele.exchange.verbatim import check_names, link_of, memory_of, values_of
from triskele.types import Link, Memory

FORMAT_VERSION = 2
# Before it nobody looked for secrets, so "open" was no decision.
_CLASSIFIED_SINCE = 2
_COUNTED = {"memory": "versions", "link": "links"}

_Made = TypeVar("_Made")
_Placed = tuple[str, dict[str, Any] | Problem]


def recognises(path: Path, head: str) -> bool:
    """Any file of JSON objects, line by line, that no other format claims."""
    return path.is_file() and head.lstrip().startswith("{")


def read(path: Path, settings: MemorySettings) -> Iterator[Item]:
    """The records of an export, or of plain objects with a content each."""
    records = _records(path)
    place, first = next(records, ("line 1", Problem("line 1", "the file is empty")))
    if isinstance(first, Problem):
        # Without a readable first line one cannot know what the others are.
        yield first
    elif "triskele" in first:
        yield from _read_export(first, place, records, settings)
    else:
        for where, record in chain([(place, first)], records):
            yield _attempt(record, where, plain.note)


def _read_export(
    first: dict[str, Any], place: str, records: Iterator[_Placed], settings: MemorySettings
) -> Iterator[Item]:
    header = _attempt(first, place, _checked_header)
    if isinstance(header, Problem):
        yield header
        return
    is_classified = first["triskele"] >= _CLASSIFIED_SINCE
    found = dict.fromkeys(header, 0)
    for place, record in records:
        for name in _COUNTED.keys() & (record if isinstance(record, dict) else ()):
            found[_COUNTED[name]] += 1
        yield _attempt(record, place, lambda values, place: _stored(values, place, settings, is_classified))
    for name, announced in header.items():
        if found[name] != announced:
            yield Problem("the end", f"the file announces {announced} {name} and holds {found[name]}: it is incomplete")


def _records(path: Path) -> Iterator[_Placed]:
    for line, raw in sources.lines(path):
        place = f"line {line}"
        if raw is None:
            yield place, Problem(place, f"is longer than {sources.MAX_LINE_BYTES:,} bytes")
        elif raw.strip():
            try:
                yield place, parse_object(raw, sources.decoded(raw))
            except BadInput as error:
                yield place, Problem(place, str(error))


def _attempt(
    record: dict[str, Any] | Problem, place: str, make: Callable[[dict[str, Any], str], _Made]
) -> _Made | Problem:
    if isinstance(record, Problem):
        return record
    try:
        return make(record, place)
    except BadInput as error:
        return Problem(place, str(error))


def lines(histories: Sequence[Sequence[Memory]], links: Sequence[Link], *, ascii_only: bool = False) -> Iterator[str]:
    """An export, line by line: each memory's versions oldest first, then the links."""
    versions = sum(len(history) for history in histories)
    yield _line({"triskele": FORMAT_VERSION, "versions": versions, "links": len(links)}, ascii_only)
    for history in histories:
        for memory in history:
            yield _line({"memory": values_of(memory)}, ascii_only)
    for link in links:
        yield _line({"link": values_of(link)}, ascii_only)


def _line(record: dict[str, Any], ascii_only: bool) -> str:
    return json.dumps(record, ensure_ascii=ascii_only, separators=(",", ":")) + "\n"


def _checked_header(record: dict[str, Any], _place: str) -> dict[str, int]:
    version = whole(record["triskele"], "the format's version")
    if not 1 <= version <= FORMAT_VERSION:
        raise BadInput(f"was written in format {version}, and this triskele knows format {FORMAT_VERSION}: upgrade it")
    check_names(record, {"triskele", *_COUNTED.values()}, "the header")
    return {name: whole(record[name], f"the number of {name}") for name in _COUNTED.values()}


def _stored(
    record: dict[str, Any], place: str, settings: MemorySettings, is_classified: bool
) -> StoredVersion | StoredLink:
    kind = next(iter(record), "")
    if len(record) != 1 or kind not in _COUNTED:
        raise BadInput(f"is of no known kind: {', '.join(map(shown, record))[:60] or 'an empty object'}")
    values = record[kind]
    if not isinstance(values, dict):
        raise BadInput(f"the {kind} is not a JSON object")
    if kind == "link":
        return StoredLink(place, link_of(values))
    return StoredVersion(place, memory_of(values, settings, is_classified=is_classified))
