"""Records that a format reads from a file, before they are stored: notes, versions and links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from triskele.replies.rooms import Problem, Skipped
from triskele.types import Link, Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A memory as another program or a person wrote it, not validated; a `NamedLink` refers to it by `name`.

    `details` are keywords of a draft as texts and numbers, and `updated_at`.
    """

    location: str
    content: str
    details: Mapping[str, Any] = field(default_factory=dict)
    name: str | None = None

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags, not validated."""
        return tuple(self.details.get("tags", ()))

    def with_details(self, **details: Any) -> Note:
        """The note with other details."""
        return replace(self, details={**self.details, **details})


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
