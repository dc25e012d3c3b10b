"""What is derived from the truth of one owner: vectors, the catalog, entities, jobs and what models have seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from triskele.replies import JobCounts, NameCounts
from triskele.types import PLANS, Memory

# Kinds of jobs: a content to embed, by its hash; a version whose names are to be read, by its row.
EMBED, NAMES = "embed", "names"
# A job that failed so often is given up.
MOST_TRIES = 5
# The reason of a merge that a person made: nothing that is worked out later overrules it.
BY_HAND = "user"
# Kinds of documents that every recall reads: the adopted plans, and the model in force.
MODEL_IN_FORCE = "model in force"
READ_BY_EVERY_RECALL = (PLANS, MODEL_IN_FORCE)


class Job(NamedTuple):
    """Work that follows from a write; `error` is why the last of its `tries` failed."""

    kind: str
    key: str
    tries: int
    error: str


class JobStore(Protocol):
    """A queue of one owner's jobs by kind and key; versions queue theirs in the transaction that writes them."""

    def add(self, kind: str, keys: Iterable[str]) -> None:
        """Queue jobs; those that wait already stay as they are."""
        ...

    def claim(self, kind: str, limit: int = 64, *, lease_s: float = 60.0, wait: bool = True) -> list[Job]:
        """Take the oldest jobs that no lease covers; after the lease they can be claimed again.

        Without `wait` a store that is being written refuses at once.
        """
        ...

    def release(self, kind: str, keys: Iterable[str]) -> None:
        """End the lease of jobs that were not done; they wait again and have lost no try."""
        ...

    def complete(self, kind: str, keys: Iterable[str]) -> None:
        """Remove jobs that are done."""
        ...

    def fail(self, kind: str, keys: Iterable[str], error: str) -> None:
        """Record why jobs failed and queue them again; after the last try they are given up."""
        ...

    def count(self, kind: str) -> int:
        """How many jobs wait, claimed ones included."""
        ...

    def failed(self, kind: str) -> list[Job]:
        """The jobs that failed at every try, oldest first."""
        ...

    def retry(self, kind: str) -> None:
        """Queue the jobs that were given up again; their last errors are kept."""
        ...

    def counts(self) -> JobCounts:
        """How many jobs wait and were given up, and why the newest that failed did."""
        ...


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


class VectorStore(Protocol):
    """Vectors by content hash and model fingerprint; each has a slot, a number that is never used again."""

    def waiting(self, limit: int = 256) -> list[tuple[str, str]]:
        """Contents that the model in use has not seen yet, oldest first, as (hash, text)."""
        ...

    def texts(self, hashes: Iterable[str]) -> dict[str, str]:
        """The texts of some contents by hash; erased ones are left out."""
        ...

    def use_model(self, fingerprint: str, *, replacing: Callable[[str], bool] | None = None) -> bool:
        """Queue for this model from now on: at once every content that it has not seen.

        With `replacing`, only if that holds for the model before. Returns whether the queue is now this model's, or
        no model's: otherwise this model must not process it.
        """
        ...

    @property
    def keeps_tokens(self) -> bool:
        """Whether the store keeps token vectors; otherwise they are only in index files."""
        ...

    def save(
        self,
        fingerprint: str,
        vectors: Mapping[str, bytes],
        *,
        tokens: Mapping[str, bytes] | None = None,
        completes: bool = True,
        wait: bool = True,
    ) -> dict[str, int]:
        """Keep a model's vectors by content hash; returns the slots, without contents erased meanwhile.

        `tokens` are the token vectors of the same contents, for a store that keeps them. Without `completes` the
        contents stay queued, because more is to be made of them. Without `wait` a store that is being written refuses
        at once.
        """
        ...

    def drop(self, slots: Sequence[int]) -> None:
        """Delete vectors; their contents wait again."""
        ...

    def page(self, fingerprint: str, *, after: int = 0) -> list[tuple[int, str, bytes]]:
        """A page of a model's vectors past a slot, as (slot, content hash, vector)."""
        ...

    def token_page(self, fingerprint: str, *, after: int = 0) -> list[tuple[int, bytes]]:
        """A page of a model's token vectors past a slot, as (slot, vectors); none if the store keeps none."""
        ...

    def complete(self, fingerprint: str, hashes: Iterable[str], *, wait: bool = True) -> None:
        """Remove contents from the queue of a model; do nothing if they are now queued for another one."""
        ...

    def contents(self, slots: Sequence[int], *, queued: bool = True) -> dict[int, str]:
        """The texts behind some slots; without `queued` those that wait to be embedded again are left out."""
        ...

    def catalog(self, fingerprint: str, ids: Sequence[str] | None = None) -> Iterator[CatalogRow]:
        """One row for every version, or for those of some memories, in row order."""
        ...

    def newly_placed(self, fingerprint: str, *, after: int) -> list[tuple[int, int]]:
        """Rows whose content got a vector past a slot, as (row, slot)."""
        ...


def is_taken(model: str | None, fingerprint: str, replacing: Callable[[str], bool] | None) -> bool:
    """Whether a queue of `model` becomes that of another; None where it is of none, as of a store without a model."""
    return model != fingerprint and (replacing is None or (model is not None and replacing(model)))


class ModelStore(Protocol):
    """What models have seen of an owner's contents, and what they may see."""

    def lacking(self, fingerprint: str, limit: int = 64) -> list[tuple[str, str]]:
        """Contents that a model has not seen, oldest first, as (hash, text)."""
        ...

    def count_lacking(self, fingerprint: str) -> int:
        """How many contents a model has not seen."""
        ...

    def clear_for(self, fingerprint: str, limit: int = 64, *, after: int = 0) -> list[tuple[int, Memory]]:
        """Current open memories that a hosted model has not embedded, one for each content, in order of rows."""
        ...

    def count_clear_for(self, fingerprint: str) -> int:
        """How many contents a hosted model may see and has not."""
        ...

    def save(self, fingerprint: str, vectors: Mapping[str, bytes]) -> None:
        """Keep a hosted model's vectors, without those of texts that became private or were erased meanwhile."""
        ...

    def withheld(self) -> list[Memory]:
        """Every version that must not leave; of a secret there is its title."""
        ...

    def seen(self) -> dict[str, int]:
        """How many contents each model has seen, by its fingerprint."""
        ...


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


class NameStore(Protocol):
    """What memories mention: names, their concepts, and the edges that follow from them."""

    def unread(self, limit: int = 256) -> list[tuple[int, Memory]]:
        """Versions whose names are not read yet, in order of rows."""
        ...

    def save(self, found: Mapping[int, Sequence[Named]], *, read: Iterable[int] = (), wait: bool = True) -> None:
        """Write what some versions mention; the rows in `read` no longer wait.

        Without `wait` a store that is being written refuses at once.
        """
        ...

    def mentions(self, *, after: int = 0) -> list[Mentioned]:
        """A page of mentions past a number, in their order."""
        ...

    def known(self, *, after: int = 0) -> Iterator[Name]:
        """Every name past a number, in their order."""
        ...

    def find(self, keys: Iterable[str]) -> dict[str, Name]:
        """The names that are known under some keys."""
        ...

    def akin(self, blocks: Iterable[str]) -> list[Name]:
        """The names in some blocks."""
        ...

    def numbered(self, names: Iterable[int]) -> dict[int, Name]:
        """Names by their numbers."""
        ...

    def common(self, least: int, among: Iterable[int] | None = None) -> list[tuple[int, int]]:
        """The names, of some or of all, whose words occur in more than a number of texts, as (name, spread)."""
        ...

    def grouped(self) -> list[tuple[int, int]]:
        """The names that belong to the concept of another name, as (name, concept)."""
        ...

    def members(self, concepts: Iterable[int]) -> list[Name]:
        """The names of some concepts, in their order."""
        ...

    def set_concepts(self, concepts: Mapping[int, int], reason: str) -> None:
        """Move names to other concepts, all at once; the merges record their earlier concepts."""
        ...

    def merges(self, names: Iterable[int]) -> list[Merge]:
        """The moves of some names between concepts, oldest first."""
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
        """Queue everything to be read again; only merges and splits by hand are kept."""
        ...
