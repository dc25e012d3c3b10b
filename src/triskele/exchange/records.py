"""Values between the formats and the store: what a reader returns, and the reports for the user."""

from __future__ import annotations

from dataclasses import dataclass

from triskele.replies import Problem, Skipped
from triskele.types import Link, Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A memory as another program or a person wrote it, not validated; a `NamedLink` refers to it by `name`."""

    location: str
    content: str
    category: str = "facts"
    tags: tuple[str, ...] = ()
    keywords: str = ""
    importance: float = 0.5
    sensitivity: str | None = None
    project: str | None = None
    session: str | None = None
    position: int | None = None
    speaker: str | None = None
    role: str | None = None
    created: str | None = None
    updated: str | None = None
    valid_from: str | None = None
    valid_to: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class NamedLink:
    """A link between two notes by their names."""

    one: str
    other: str


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """A version exactly as another store held it."""

    location: str
    memory: Memory


@dataclass(frozen=True, slots=True)
class StoredLink:
    """A link exactly as another store held it."""

    location: str
    link: Link


Item = Note | NamedLink | StoredVersion | StoredLink | Problem | Skipped
