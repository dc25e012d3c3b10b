"""Versions and links as JSON values and back, exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

from triskele import ingest, validation
from triskele.base import timestamps
from triskele.base.ids import ALPHABET, ID_LENGTH, content_hash
from triskele.config import MemorySettings
from triskele.errors import BadInput
from triskele.exchange.json_text import number, shown, string, strings, whole
from triskele.privacy import detect
from triskele.types import Link, LinkKind, Memory, Origin, Sensitivity, is_secret

_MAX_VERSION = 2**31
_SECRET = "secret"
_Reader = Callable[[Any, str], Any]


def values_of(value: Memory | Link) -> dict[str, Any]:
    """Every field of a version or link, moments as text; the text of a secret has a field of its own."""
    named = {_SECRET if field.name == "text" else field.name: getattr(value, field.name) for field in fields(value)}
    return {name: timestamps.to_text(v) if isinstance(v, datetime) else v for name, v in named.items()}


def link_of(values: dict[str, Any]) -> Link:
    """The link that the values describe, checked."""
    link: Link = _built(Link, values, _LINK_FIELDS, "the link")
    _check_id(link.source)
    _check_id(link.target)
    if link.source == link.target:
        raise BadInput(f"the link leads from {link.source} to itself")
    _check_known(link)
    return link


def memory_of(values: dict[str, Any], settings: MemorySettings, *, is_classified: bool) -> Memory:
    """The version that the values describe; refuses what the intake would have refused or changed.

    Where it `is_classified`, an open memory was decided to be one; else its text decides.
    """
    rows = {name: value for name, value in values.items() if name != _SECRET}
    memory: Memory = _built(Memory, rows, _MEMORY_FIELDS, "the memory")
    _check_id(memory.id)
    _check_texts(memory, settings)
    if content_hash(memory.content) != memory.content_hash:
        raise BadInput("the content does not fit its hash: the line was changed or damaged")
    if memory.owner != settings.owner:
        raise BadInput(f"belongs to {shown(memory.owner)}, and this store is written as {settings.owner!r}")
    if not 1 <= memory.version <= _MAX_VERSION:
        raise BadInput(f"version {memory.version} is out of range")
    if memory.valid_from and memory.valid_to and memory.valid_to <= memory.valid_from:
        raise BadInput("valid_to must be later than valid_from")
    _check_known(memory)
    ingest.refuse_secret_labels(
        tags=memory.tags, keywords=memory.keywords, session=memory.session, project=memory.project
    )
    if is_secret(memory):
        return _unsealed(memory, values, settings)
    if _SECRET in values:
        raise BadInput(f"has the text of a secret and is {memory.sensitivity}")
    is_decided = is_classified and memory.sensitivity is Sensitivity.OPEN
    given = memory.sensitivity if is_decided or memory.sensitivity is not Sensitivity.OPEN else None
    return ingest.classified(memory, given, settings)


def _unsealed(memory: Memory, values: dict[str, Any], settings: MemorySettings) -> Memory:
    if _SECRET not in values:
        raise BadInput("is a secret without its text: export it with its secrets")
    text = string(values[_SECRET], "the secret")
    if validation.check_content(text, settings) != text:
        raise BadInput("invisible characters or stray blanks in the secret")
    if detect.find(memory.content):
        raise BadInput("the title of a secret looks like a secret itself")
    whole = replace(memory, content=text, content_hash=content_hash(text))
    return ingest.sealable(whole, detect.find(text), memory.content)


def _check_texts(memory: Memory, settings: MemorySettings) -> None:
    """A text taken over verbatim must be one that the intake would not have changed."""
    validation.check_importance(memory.importance)
    validation.check_tags(memory.tags, settings)
    if memory.position is not None:
        validation.check_position(memory.position)
    checked = {
        "content": (memory.content, validation.check_content(memory.content, settings)),
        "category": (memory.category, validation.check_category(memory.category, settings)),
        "keywords": (memory.keywords, validation.check_keywords(memory.keywords, settings)),
        "project": (memory.project, validation.check_name(memory.project, "the project")),
        "session": (memory.session, validation.check_name(memory.session or "", "the session") or None),
    }
    changed = [name for name, (given, kept) in checked.items() if given != kept]
    # Outer blanks pass in tags alone: the intake turns a comma at a tag's end into one.
    changed += ["tags" for tag in memory.tags if validation.clean(tag, "a tag") != tag.strip()]
    if changed:
        raise BadInput(f"invisible characters or stray blanks in the {changed[0]}")


def _check_known(value: Memory | Link) -> None:
    if value.known_to is not None and value.known_to < value.known_from:
        raise BadInput("known_to must not be earlier than known_from")


def _check_id(id: str) -> None:
    if len(id) != ID_LENGTH or not set(id) <= set(ALPHABET):
        raise BadInput(f"{id[:40]!r} is not an id")


def check_names(values: dict[str, Any], expected: set[str], what: str) -> None:
    """Refuse fields that are unknown or missing."""
    unknown, missing = sorted(set(values) - expected), sorted(expected - set(values))
    if unknown:
        raise BadInput(f"{what} has an unknown field {shown(unknown[0])}")
    if missing:
        raise BadInput(f"{what} has no {missing[0]}")


def _built(make: Callable[..., Any], values: dict[str, Any], readers: dict[str, _Reader], what: str) -> Any:
    check_names(values, set(readers), what)
    return make(**{name: reader(values[name], name) for name, reader in readers.items()})


def _moment(value: Any, what: str) -> datetime:
    return timestamps.parse(string(value, what))


def _choice(kinds: type[Sensitivity] | type[Origin] | type[LinkKind]) -> _Reader:
    def read_choice(value: Any, what: str) -> Any:
        try:
            return kinds(string(value, what))
        except ValueError:
            raise BadInput(f"unknown {what} {shown(value)}: one of {', '.join(kinds)}") from None

    return read_choice


def _optional(reader: _Reader) -> _Reader:
    return lambda value, what: None if value is None else reader(value, what)


_KNOWN: dict[str, _Reader] = {"known_from": _moment, "known_to": _optional(_moment)}
_LINK_FIELDS: dict[str, _Reader] = {"source": string, "kind": _choice(LinkKind), "target": string, **_KNOWN}
_MEMORY_FIELDS: dict[str, _Reader] = {
    **dict.fromkeys(("id", "content", "category", "keywords", "owner", "project", "content_hash"), string),
    "tags": strings,
    "importance": number,
    "sensitivity": _choice(Sensitivity),
    "origin": _choice(Origin),
    "session": _optional(string),
    "position": _optional(whole),
    "created_at": _moment,
    "updated_at": _moment,
    "valid_from": _optional(_moment),
    "valid_to": _optional(_moment),
    "version": whole,
    **_KNOWN,
}
