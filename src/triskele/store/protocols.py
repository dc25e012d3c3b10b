"""Protocols of a store: memories, documents, usage and maintenance; `tests/contract` checks every store.

A store is opened unbound. `Store.for_owner` binds it to one owner, and everything else works with the bound store: the
memories, links, journal, documents and derived values of other owners do not exist in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from triskele.replies import Census
from triskele.store.archive import ArchiveStore
from triskele.store.corpus_protocol import CorpusStore
from triskele.store.sharing import OwnerShares
from triskele.types import USER, Change, JournalEntry, Link, LinkKind, Memory, Outcome, Scope, Sealed, Sort

if TYPE_CHECKING:
    from triskele.store.derived_rows import DocumentStore, JobStore, ModelStore, VectorStore
    from triskele.store.name_rows import NameStore
    from triskele.store.usage import UsageStore

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


class MemoryStore(Protocol):
    """Memories in all their versions, links and the journal of one owner, changed only by `apply`."""

    def apply(
        self, changes: Sequence[Change], *, batch: str, actor: str = USER, undoes: int | None = None
    ) -> list[Outcome]:
        """Carry out the changes and journal them, all in one durable transaction or none."""

    def erase(self, ids: Sequence[str], *, batch: str, actor: str = USER) -> list[Outcome]:
        """Remove these memories, their links and the documents about them from every byte of the store."""

    def seal(self, versions: Sequence[tuple[Memory, Sealed]], *, batch: str, actor: str = USER) -> Outcome:
        """Replace every version of a memory by its title and sealed text, and erase all that was derived."""

    def sealed(self, ids: Sequence[str] | None = None) -> list[SealedRow]:
        """The sealed texts of some memories, or of all."""

    def reseal(self, blobs: Mapping[tuple[str, int], bytes]) -> None:
        """Replace sealed texts by the same texts under another key, and leave no byte of the old ones."""

    def folders(self) -> list[FolderRow]:
        """The folders whose project is known, oldest first."""

    def register_folder(self, keys: Sequence[str], choose: Callable[[Sequence[FolderRow]], str]) -> str:
        """Give keys without a project the one that `choose` finds for the known folders; return it."""

    def find(self, prefix: str, limit: int = 5) -> list[str]:
        """The ids that start with a prefix, forgotten ones included."""

    def shorten(self, ids: Iterable[str], shortest: int = 8) -> dict[str, str]:
        """The shortest prefix of each id that no other id shares."""

    def memories(self, ids: Iterable[str], *, known_at: datetime | None = None) -> dict[str, Memory]:
        """The versions that are current now, or were at a moment; forgotten and unknown ids are left out."""

    def history(self, id: str) -> list[Memory]:
        """Every version of a memory, oldest first."""

    def rows(self, rows: Iterable[int]) -> dict[int, Memory]:
        """The versions behind the row numbers of an index."""

    def superseding_ids(self, rows: Iterable[int]) -> dict[int, str]:
        """The ids behind those row numbers of an index whose memories replace others or were replaced, at any time."""

    def versions(self, ids: Sequence[str] | None = None) -> Iterator[tuple[int, Memory]]:
        """Every version with its row number, of some memories or of all, in row order."""

    def links(
        self, ids: Sequence[str], *, kind: LinkKind | None = None, known_at: datetime | None = None
    ) -> list[Link]:
        """The links of any of these memories that are open now, or were at a moment."""

    def all_links(self) -> Iterator[Link]:
        """Every link ever made, closed ones too, oldest first."""

    def browse(self, scope: Scope, *, sort: Sort = Sort.RECENCY, limit: int = 50, offset: int = 0) -> list[Memory]:
        """Memories of a scope in order of recency or importance; none if the scope names another owner."""

    def count(self, scope: Scope) -> int:
        """The number of memories that a scope contains."""

    def journal(self, *, id: str | None = None, batch: str | None = None, limit: int = 1000) -> list[JournalEntry]:
        """Journal entries of all, of one memory or of one batch, oldest first."""

    def newest_entries(self, *, before: int | None = None, limit: int = 1) -> list[JournalEntry]:
        """The newest journal entries, newest first; `before` continues behind an entry, by its number."""

    def changes_since(self, cursor: Cursor, limit: int = 1000) -> ChangePage:
        """The journal entries that became visible after a cursor, in the order in which they did."""

    def position(self) -> Cursor:
        """The cursor after the newest journal entry; equal cursors mean an unchanged journal."""

    def holds(self, cursor: Cursor) -> bool:
        """Whether the journal has the entry that a cursor follows; it has not where writes were lost."""

    def epoch(self) -> str:
        """A name for this run of the journal; a restored store begins another, in which older cursors mean nothing."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Let this thread read the store as of one moment; inside, nothing may be written."""

    def census(self) -> Census:
        """Counts of what is stored."""


class OwnerStore(MemoryStore, Protocol):
    """A store bound to one owner: its truth, what is derived from it, and its documents."""

    @property
    def owner(self) -> str:
        """The owner that the store is bound to."""

    def heads(self, fingerprint: str = "") -> Heads:
        """How far the journal, the vectors of a model, mentions and jobs have come, all at one moment."""

    @property
    def vectors(self) -> VectorStore:
        """What models made of the contents, and the catalog."""

    @property
    def names(self) -> NameStore:
        """What memories mention."""

    @property
    def corpus(self) -> CorpusStore | None:
        """The corpus inside the database; None if only files next to the store can rank."""

    @property
    def jobs(self) -> JobStore:
        """Work that waits."""

    @property
    def models(self) -> ModelStore:
        """What models have seen."""

    @property
    def documents(self) -> DocumentStore:
        """Small JSON documents."""

    @property
    def usage(self) -> UsageStore:
        """How often memories are recalled and injected, and into which conversations."""

    @property
    def shares(self) -> OwnerShares | None:
        """What is shared with other users; None if there are none."""


class Maintenance(Protocol):
    """Care for the files of a store, of all owners together."""

    @property
    def archive(self) -> ArchiveStore:
        """How archives are made of it and taken by it."""

    def check(self, *, deep: bool = False) -> list[IntegrityIssue]:
        """What is wrong with the truth; `deep` recomputes every hash."""

    def backup(self, target: Path) -> None:
        """Write a consistent copy of the live store to a new file."""

    def restore(self, source: Path) -> Path | None:
        """Replace everything by the content of a backup whose every hash matches; returns the path of the old content.

        An undamaged store is backed up first; the files of a damaged one are moved to a folder next to it.
        """

    def leftovers(self) -> list[Path]:
        """The copies that killed backups and restores left."""

    def remove_leftovers(self) -> list[Path]:
        """Remove the copies that killed backups and restores left; what was removed."""

    def erase_from_copies(self, ids: Sequence[str], owner: str) -> list[Path]:
        """Erase memories from the copies next to the store, or remove whole copies; returns the copies concerned."""

    def earlier_copies(self) -> list[Path]:
        """The copies that may hold erased memories: of restores, of killed processes, and backups made here."""

    def out_of_reach(self) -> list[str]:
        """Places besides files that an erasure cannot reach, in words; nothing if everything is in files."""

    def lost(self) -> list[LostWrites]:
        """Acknowledged writes that were lost, with what is still known of them."""

    def scrub(self) -> None:
        """Leave no byte of deleted rows in the files."""

    def is_scrubbed(self) -> bool:
        """Whether every erasure so far has reached the bytes of the files."""


class Store(Protocol):
    """A store that is bound to no owner yet."""

    @property
    def maintenance(self) -> Maintenance | None:
        """Care for its files; None if it has none."""

    def for_owner(self, owner: str) -> OwnerStore:
        """What one owner sees of the store."""

    def close(self) -> None:
        """Close every connection, of this thread and of others."""
