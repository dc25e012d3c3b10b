"""Values of a store: positions, findings, folders, sealed texts, jobs, the catalog, documents, usage and names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from triskele.types import PLANS, Action, JournalEntry

# Kinds of jobs: a content to embed, by its hash; a version whose names are to be read, by its row.
EMBED, NAMES = "embed", "names"
# A job that failed so often is given up.
MOST_TRIES = 5
# The reason of a merge that a person made: nothing that is worked out later overrules it.
BY_HAND = "user"
# Kinds of documents that every recall reads: the adopted plans, and the model in force.
MODEL_IN_FORCE = "model in force"
READ_BY_EVERY_RECALL = (PLANS, MODEL_IN_FORCE)
# The kind of the one document that holds the vault's wrapped keys.
VAULT = "vault"


class Cursor(str):
    """A position in an owner's journal; only the store that gave it can read it, others compare it for equality."""

    __slots__ = ()


# Before the first entry.
START = Cursor("")


class Heads(NamedTuple):
    """How far a store has come, in one read: what derived indexes compare to see whether they are behind.

    `slot` is that of the newest vector of one model; `mention` and `regrouping` are numbers that only rise;
    `unembedded` and `unread` count the jobs that wait.
    """

    epoch: str
    journal: Cursor = START
    slot: int = 0
    mention: int = 0
    regrouping: int = 0
    unembedded: int = 0
    unread: int = 0


class ChangePage(NamedTuple):
    """A page of journal entries and the cursor after it; a page without entries is the end."""

    entries: list[JournalEntry]
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class IntegrityIssue:
    """A fault that a check found in the truth itself."""

    subject: str
    problem: str


@dataclass(frozen=True, slots=True)
class LostWrite:
    """A journal entry that was acknowledged and lost; it contains no text."""

    seq: int
    at: datetime
    action: str
    id: str


@dataclass(frozen=True, slots=True)
class LostWrites:
    """Acknowledged writes that were lost, the texts still known by id, and the folder that keeps the evidence."""

    entries: tuple[LostWrite, ...]
    texts: Mapping[str, str]
    kept: Path | None


class WrittenEntry(NamedTuple):
    """A journal entry of this transaction, and its number."""

    seq: int
    action: Action
    id: str
    version: int | None = None
    previous: int | None = None
    kind: str | None = None
    other: str | None = None


class FolderRow(NamedTuple):
    """A folder or git remote whose project is known, and since when; sync sends remotes, never folders."""

    number: int
    key: str
    project: str
    at: datetime


class SealedRow(NamedTuple):
    """The sealed text of a version; `sealed_as` is the version number that it is bound to."""

    id: str
    version: int
    sealed_as: int
    blob: bytes


class Job(NamedTuple):
    """Work that follows from a write; `error` is why the last of its `tries` failed."""

    kind: str
    key: str
    tries: int
    error: str


@dataclass(frozen=True, slots=True)
class Document:
    """A small JSON value stored with the memories; erasing a memory in `about` deletes it."""

    value: Any
    about: Sequence[str] = ()


class Use(NamedTuple):
    """One use of a memory with this content; `fingerprints` recognise its text."""

    id: str
    tokens: int
    content_hash: str = ""
    fingerprints: tuple[str, ...] = ()


class CatalogRow(NamedTuple):
    """What filters and ranking need of a version; times in microseconds, `slot` is −1 without a vector.

    `happened` is what the memory is about, `base.periods.memory_time`.
    """

    row: int
    owner: str
    project: str
    sensitivity: str
    origin: str
    category: str
    tags: tuple[str, ...]
    importance: float
    session: str | None
    position: int | None
    speaker: str | None
    role: str | None
    happened: int
    valid_from: int | None
    valid_to: int | None
    known_from: int
    known_to: int | None
    slot: int


@dataclass(frozen=True, slots=True)
class Named:
    """Something that a memory mentions, by the key that its spellings share.

    Names that may be the same have the same `block`; `joins` is the key of one that is, and why. `spread` is how many
    texts hold its words in any case of letters: "film" is in too many to connect any two.
    """

    key: str
    block: str
    text: str
    any_case: bool
    kind: str
    joins: tuple[str, str] | None = None
    spread: int = 0


class Mentioned(NamedTuple):
    """A version's row that mentions a name."""

    mention: int
    row: int
    name: int
    kind: str


class Name(NamedTuple):
    """A known name; names of one concept have the same `concept`, the number of one of them."""

    name: int
    key: str
    text: str
    any_case: bool
    concept: int


class Edge(NamedTuple):
    """A memory's subject and what it mentions; open while its evidence is current and not superseded."""

    source: int
    kind: str
    target: int
    weight: float
    evidence: str
    valid_from: datetime | None
    valid_to: datetime | None
    known_from: datetime
    known_to: datetime | None


class Merge(NamedTuple):
    """The move of a name from one concept to another."""

    merge: int
    name: int
    before: int
    after: int
    reason: str
    at: datetime
