"""What passes between the formats and the store: findings of a reader, and the reports for the user."""

from __future__ import annotations

from dataclasses import dataclass

from triskele.types import Link, Memory


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that cannot be imported, with the line or file where it stands."""

    place: str
    reason: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that an import leaves out on purpose, and why."""

    place: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A memory as another program or a person wrote it, unchecked; `name` lets a `Tie` point at it."""

    place: str
    content: str
    category: str = "facts"
    tags: tuple[str, ...] = ()
    keywords: str = ""
    importance: float = 0.5
    sensitivity: str | None = None
    project: str | None = None
    session: str | None = None
    position: int | None = None
    created: str | None = None
    updated: str | None = None
    valid_from: str | None = None
    valid_to: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Tie:
    """Two named notes that should point at each other."""

    one: str
    other: str


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """A version taken over exactly as another store held it."""

    place: str
    memory: Memory


@dataclass(frozen=True, slots=True)
class StoredLink:
    """A link taken over exactly as another store held it."""

    place: str
    link: Link


Item = Note | Tie | StoredVersion | StoredLink | Problem | Skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What an import did, or would do; the counts are of memories, whatever their number of versions."""

    format: str
    read: int
    added: int
    duplicates: int
    secrets: int
    links: int
    batch: str
    problems: tuple[Problem, ...] = ()
    skipped: tuple[Skipped, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """How many memories were written, how many secrets among them, and how many were kept back.

    `left_out_versions` are private or secret ones of memories that were written, because they are open now.
    """

    written: int
    left_out_private: int
    left_out_secret: int
    left_out_versions: int = 0
    revealed: int = 0
