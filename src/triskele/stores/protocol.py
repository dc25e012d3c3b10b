"""What every store can do; `tests/contract` holds each of them to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from triskele.stores.usage import UsageStore
from triskele.types import Change, JournalEntry, Link, LinkKind, Memory, Outcome, Scope, Sealed, Sort

# row, owner, project, category, tags as JSON, importance, session, position, valid_from, valid_to, known_from, known_to
# in microseconds, and the slot of the content's vector or -1.
CatalogEntry = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a check found wrong in the truth itself."""

    subject: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """How much a store holds."""

    memories: int
    forgotten: int
    superseded: int
    versions: int
    links: int
    journal: int
    bytes: int
    by_category: Mapping[str, int]
    by_project: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Document:
    """A small JSON value to keep beside the memories; it goes when a memory that it is about is erased."""

    value: Any
    about: Sequence[str] = ()


class SealedRow(NamedTuple):
    """The sealed text of a version; `sealed_as` is the version number that it is bound to."""

    id: str
    version: int
    sealed_as: int
    blob: bytes


# The kind of the one document that tells the vault's keys.
VAULT = "vault"


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
    owner: str
    key: str
    text: str
    any_case: bool
    concept: int


class Edge(NamedTuple):
    """A memory's subject and what it mentions; open while its evidence stands and nothing supersedes it."""

    source: int
    kind: str
    target: int
    weight: float
    evidence: str
    valid_from: datetime | None
    valid_to: datetime | None
    known_from: datetime
    known_to: datetime | None


# The reason of a merge that a person made: nothing that is worked out later overrules it.
BY_HAND = "user"


class Merge(NamedTuple):
    """That a name stopped standing for one concept and began to stand for another."""

    merge: int
    name: int
    before: int
    after: int
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True)
class NameCounts:
    """How much a book of names holds; `bytes` is what its tables take."""

    names: int
    concepts: int
    mentions: int
    merges: int
    by_hand: int
    read: int
    waiting: int
    bytes: int


class EntityStore(Protocol):
    """What memories mention: names, the concepts they stand for, and the edges that follow from them."""

    def unread(self, limit: int = 256) -> list[tuple[int, Memory]]:
        """Versions whose names nobody has read yet, in order of rows."""
        ...

    def count_unread(self) -> int:
        """How many versions wait to be read."""
        ...

    def keep(self, found: Mapping[int, Sequence[Named]], *, through: int = 0, wait: bool = True) -> None:
        """Write what some versions mention; versions up to the row `through` count as read.

        Without `wait` a store that is being written refuses at once.
        """
        ...

    def mentions(self, *, after: int = 0) -> list[Mentioned]:
        """A page of mentions past a number, in their order."""
        ...

    def last_mention(self) -> int:
        """The number of the newest mention; 0 where there is none."""
        ...

    def changes(self) -> int:
        """A number that rises with every regrouping."""
        ...

    def known(self, owner: str, *, after: int = 0) -> Iterator[Name]:
        """Every name of an owner past a number, in their order."""
        ...

    def find(self, owner: str, keys: Iterable[str]) -> dict[str, Name]:
        """The names of an owner that are known under some keys."""
        ...

    def akin(self, owner: str, blocks: Iterable[str]) -> list[Name]:
        """The names of an owner in some blocks."""
        ...

    def numbered(self, names: Iterable[int]) -> dict[int, Name]:
        """Names by their numbers."""
        ...

    def common(self, least: int) -> list[tuple[int, int]]:
        """The names whose words stand in more than so many texts, as (name, spread)."""
        ...

    def grouped(self) -> list[tuple[int, int]]:
        """The names that stand for the concept of another one, as (name, concept)."""
        ...

    def members(self, concepts: Iterable[int]) -> list[Name]:
        """The names that stand for some concepts, in their order."""
        ...

    def regroup(self, concepts: Mapping[int, int], reason: str) -> None:
        """Let names stand for other concepts from now on, all at once; that they did not before stays known."""
        ...

    def merges(self, names: Iterable[int]) -> list[Merge]:
        """How some names came to stand for what they do, oldest first."""
        ...

    def edges(
        self, concept: int, *, projects: Iterable[str] | None = None, closed: bool = True, limit: int = 100
    ) -> list[Edge]:
        """The edges that touch a concept, open ones first, newest evidence first; of some projects or of all."""
        ...

    def counts(self) -> NameCounts:
        """How much there is."""
        ...

    def forget(self) -> None:
        """Let everything wait to be read again; only what was joined or parted by hand stays known."""
        ...


class ModelStore(Protocol):
    """What models have seen of a store."""

    def lacking(self, fingerprint: str, limit: int = 64) -> list[tuple[str, str]]:
        """Contents that a model has not seen, oldest first, as (hash, text)."""
        ...

    def count_lacking(self, fingerprint: str) -> int:
        """How many contents a model has not seen."""
        ...

    def clear_for(self, fingerprint: str, limit: int = 64, *, after: int = 0) -> list[tuple[int, Memory]]:
        """Open memories that stand and that a hosted model has not seen, one for each content, in order of rows."""
        ...

    def count_clear_for(self, fingerprint: str) -> int:
        """How many contents a hosted model may see and has not."""
        ...

    def keep(self, fingerprint: str, found: Mapping[str, bytes]) -> None:
        """Keep a hosted model's vectors, without those of texts that became private or were erased meanwhile."""
        ...

    def withheld(self) -> list[Memory]:
        """Every version that nobody else may read; of a secret there is its title."""
        ...

    def seen(self) -> dict[str, int]:
        """How many contents each model has seen, by its fingerprint."""
        ...


class Store(Protocol):
    """Truth: memories in all their versions, links, and the journal, changed by `apply` alone."""

    @property
    def names(self) -> EntityStore:
        """What memories mention."""
        ...

    @property
    def models(self) -> ModelStore:
        """What models have seen."""
        ...

    @property
    def uses(self) -> UsageStore:
        """How often memories are handed out, and to whom."""
        ...

    def apply(self, changes: Sequence[Change], *, batch: str, undoes: int | None = None) -> list[Outcome]:
        """Carry out the changes and journal them, all in one durable transaction or none."""
        ...

    def erase(self, ids: Sequence[str], *, batch: str) -> list[Outcome]:
        """Remove these memories, their links and the documents about them from every byte of the store."""
        ...

    def seal(self, versions: Sequence[tuple[Memory, Sealed]], *, batch: str) -> Outcome:
        """Put titles and sealed texts in the place of every version of a memory, and erase all that was derived."""
        ...

    def sealed(self, ids: Sequence[str] | None = None) -> list[SealedRow]:
        """The sealed texts of some memories, or of all."""
        ...

    def reseal(self, blobs: Mapping[tuple[str, int], bytes]) -> None:
        """Put the same texts under another key in the place of some sealed ones, and leave no byte of the old."""
        ...

    def swap(self, kind: str, key: str, before: Any, after: Any) -> bool:
        """Replace a document that is still as it was, None where it was not there; False where it is not."""
        ...

    def find(self, prefix: str, limit: int = 5) -> list[str]:
        """The ids that start with a prefix, forgotten ones included."""
        ...

    def shorten(self, ids: Iterable[str], shortest: int = 8) -> dict[str, str]:
        """The shortest prefix of each id that no other id shares."""
        ...

    def memories(self, ids: Iterable[str], *, known_at: datetime | None = None) -> dict[str, Memory]:
        """The versions that stand now, or stood at a moment; forgotten and unknown ids are left out."""
        ...

    def history(self, id: str) -> list[Memory]:
        """Every version of a memory, oldest first."""
        ...

    def rows(self, rows: Iterable[int]) -> dict[int, Memory]:
        """The versions behind the row numbers of an index."""
        ...

    def importance(self, rows: Iterable[int]) -> dict[int, tuple[str, float]]:
        """The id and the importance of the versions behind the row numbers of an index."""
        ...

    def versions(self, ids: Sequence[str] | None = None) -> Iterator[tuple[int, Memory]]:
        """Every version with its row number, of some memories or of all, in row order."""
        ...

    def links(
        self, ids: Sequence[str], *, kind: LinkKind | None = None, known_at: datetime | None = None
    ) -> list[Link]:
        """The links that touch any of these memories and stand now, or stood at a moment."""
        ...

    def all_links(self) -> Iterator[Link]:
        """Every link ever made, closed ones too, oldest first."""
        ...

    def browse(self, scope: Scope, *, sort: Sort = Sort.RECENCY, limit: int = 50, offset: int = 0) -> list[Memory]:
        """Memories of a scope in order of recency or importance."""
        ...

    def journal(
        self, *, after: int = 0, limit: int = 1000, id: str | None = None, batch: str | None = None
    ) -> list[JournalEntry]:
        """Journal entries past a sequence number, oldest first."""
        ...

    def newest_entries(self, *, before: int | None = None, limit: int = 1) -> list[JournalEntry]:
        """The newest journal entries, newest first."""
        ...

    def snapshot(self) -> AbstractContextManager[None]:
        """Let this thread read the store as of one moment; inside, nothing may be written."""
        ...

    def lineage(self) -> str:
        """A name for this run of the journal; a restored store begins another."""
        ...

    def last_seq(self) -> int:
        """The sequence number of the newest journal entry; 0 in an empty store."""
        ...

    def waiting(self, limit: int = 256) -> list[tuple[str, str]]:
        """Contents that the model in use has not seen yet, oldest first, as (hash, text)."""
        ...

    def count_waiting(self) -> int:
        """How many contents wait for a vector."""
        ...

    def queue_for(self, fingerprint: str) -> None:
        """From now on contents wait for this model: at once those that it has not seen."""
        ...

    def keep_vectors(self, fingerprint: str, found: Mapping[str, bytes], *, wait: bool = True) -> dict[str, int]:
        """Keep a model's vectors by content hash; answers with the slots, without contents erased meanwhile.

        Without `wait` a store that is being written refuses at once.
        """
        ...

    def drop_vectors(self, slots: Sequence[int]) -> None:
        """Throw vectors away; their contents wait again."""
        ...

    def vectors(self, fingerprint: str, *, after: int = 0) -> list[tuple[int, str, bytes]]:
        """A page of a model's vectors past a slot, as (slot, content hash, vector)."""
        ...

    def last_slot(self, fingerprint: str) -> int:
        """The slot of a model's newest vector; 0 where it has none."""
        ...

    def slot_contents(self, slots: Sequence[int]) -> dict[int, str]:
        """The texts behind some slots."""
        ...

    def catalog(self, fingerprint: str, ids: Sequence[str] | None = None) -> Iterator[CatalogEntry]:
        """What filters and ranking need of every version, or of those of some memories, in row order."""
        ...

    def newly_placed(self, fingerprint: str, *, after: int) -> list[tuple[int, int]]:
        """Rows whose content got a vector past a slot, as (row, slot)."""
        ...

    def shelve(
        self, kind: str, values: Mapping[str, Document], *, most: int | None = None, hurry: bool = False
    ) -> None:
        """Keep documents by key, the `most` highest keys of a kind; a hurry waits for neither writers nor the disk."""
        ...

    def shelved(self, kind: str) -> dict[str, Any]:
        """The values of a kind in the order of their keys."""
        ...

    def unshelve(self, kind: str, keys: Iterable[str]) -> None:
        """Take documents off the shelf."""
        ...

    def census(self) -> Census:
        """Counts of what is stored."""
        ...

    def check(self, *, deep: bool = False) -> list[Finding]:
        """What is wrong with the truth; `deep` recomputes every hash."""
        ...

    def backup(self, target: Path) -> None:
        """Write a consistent copy of the live store to a new file."""
        ...

    def restore(self, source: Path, *, kept: Path | None = None) -> Path | None:
        """Replace everything by the content of a backup whose every hash holds; where the content of before lies.

        A sound store is backed up to `kept` first; the files of a damaged one are moved to a folder beside it.
        """
        ...

    def scrub(self) -> None:
        """Leave no byte of deleted rows in the files."""
        ...

    def is_scrubbed(self) -> bool:
        """Whether every erasing so far went through to the bytes of the files."""
        ...

    def close(self) -> None:
        """Let go of every connection of this thread and others."""
        ...
