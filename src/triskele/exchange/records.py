"""Values between the formats and the store: what a reader returns, and the reports for the user."""

from __future__ import annotations

from dataclasses import dataclass

from triskele.types import Link, Memory


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that cannot be imported, with its line or file."""

    place: str
    reason: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that an import leaves out on purpose, and the reason."""

    place: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A memory as another program or a person wrote it, not validated; a `NamedLink` refers to it by `name`."""

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

    place: str
    memory: Memory


@dataclass(frozen=True, slots=True)
class StoredLink:
    """A link exactly as another store held it."""

    place: str
    link: Link


Item = Note | NamedLink | StoredVersion | StoredLink | Problem | Skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """A memory that an import would write, or that is stored already; of a secret, which is sealed, only the title.

    A text that the import holds twice has an id only once.
    """

    action: str
    id: str
    content: str
    category: str
    tags: tuple[str, ...]
    project: str
    place: str = ""
    secret: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What an import did, or would do; it counts memories, not versions. only a dry run fills `memories`."""

    format: str
    read: int
    added: int
    duplicates: int
    secrets: int
    links: int
    batch: str
    problems: tuple[Problem, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    memories: tuple[Preview, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """How many memories were written, how many forgotten ones and secrets among them, and how many were left out.

    `left_out_versions` counts private or secret versions of memories that were written because they are open now.
    """

    written: int
    left_out_private: int
    left_out_secret: int
    left_out_versions: int = 0
    revealed: int = 0
    forgotten: int = 0
