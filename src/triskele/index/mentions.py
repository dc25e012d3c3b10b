"""The mentions of a store as arrays: a file up to a stamp, and what came after it in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from triskele.index.corpus import Bools, Ints, Mentions
from triskele.index.lifecycle import ArrayIndex, Records
from triskele.store.owner import OwnerStore
from triskele.store.values import Mentioned

# Kinds of mention that name the subject of a memory; a lead does where others mention the same.
_TITLE, _LEAD = 1, 2
_SUBJECTS = {"title": _TITLE, "lead": _LEAD}
_COLUMNS = 3
# In the file the kind of subject is in the lowest bits of the name.
_FILE_COLUMNS, _BITS = 2, 2
# A name in at least this many texts may be too common to connect memories.
COMMON_FROM = 20

Triples = Ints


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """One direction of the graph: the neighbours of node i begin at starts[i], each with a mark."""

    starts: Ints
    others: Ints
    marks: Bools

    @staticmethod
    def build(own: Ints, others: Ints, marks: Bools) -> Side:
        """Group neighbours by node; the order of the neighbours is kept."""
        order = np.argsort(own, kind="stable")
        size = int(own.max(initial=-1)) + 1
        starts = np.zeros(size + 1, dtype=np.int64)
        np.cumsum(np.bincount(own, minlength=size), out=starts[1:])
        return Side(starts, others[order], marks[order])

    def of(self, numbers: Ints, most: int | None = None) -> tuple[Ints, Ints, Bools]:
        """The position in `numbers`, the neighbour and its mark, for at most `most` neighbours of each node."""
        # For a number past the last node both offsets are the end, so it has no neighbours.
        begins = self.starts.take(numbers, mode="clip")
        counts = self.starts.take(numbers + 1, mode="clip") - begins
        if most is not None:
            counts = np.minimum(counts, most)
        owner = np.repeat(np.arange(len(numbers)), counts)
        position = np.arange(len(owner)) + (begins - np.cumsum(counts) + counts)[owner]
        return owner, self.others[position], self.marks[position]


@dataclass(frozen=True, slots=True, eq=False)
class Bipartite:
    """Memories by row, concepts by number, in both directions; a mark: the concept is the memory's subject.

    `held` and `owned` count by concept the memories that mention it, and those that it is the subject of.
    """

    concepts: Side
    holders: Side
    held: Ints
    owned: Ints

    @staticmethod
    def build(rows: Ints, concepts: Ints, is_subject: Bools) -> Bipartite:
        """Build the graph from mentions; a concept that a memory mentions under several names counts once."""
        width = int(concepts.max(initial=-1)) + 1
        codes, position = np.unique(rows * width + concepts, return_inverse=True)
        marks = np.bincount(position, is_subject, len(codes)) > 0
        rows, concepts = np.divmod(codes, max(width, 1))
        holders = Side.build(concepts, rows, marks)
        owned = np.bincount(concepts, marks, width).astype(np.int64)
        return Bipartite(Side.build(rows, concepts, marks), holders, np.diff(holders.starts), owned)


@dataclass(frozen=True, slots=True, eq=False)
class Layers:
    """Old and new mentions read as one; a memory has mentions in both if an older text was read again."""

    settled: Bipartite
    fresh: Bipartite
    spread: Ints

    def concepts(self, rows: Ints, most: int | None = None) -> tuple[Ints, Ints, Bools]:
        """The place in the list, a concept that the memory mentions, and whether it is the memory's subject."""
        return _joined([layer.concepts.of(rows, most) for layer in self._filled])

    def mentions(self, rows: Ints, most: int | None = None) -> Mentions:
        """The concepts that some rows mention, up to a limit for each row, with how common they are."""
        position, concepts, is_subject = self.concepts(rows, most)
        if not len(concepts):
            return Mentions(position, concepts, is_subject, concepts, concepts, concepts)
        frequency = self.frequency(concepts)
        reach = np.maximum(frequency, _at(self.spread, concepts))
        return Mentions(position, concepts, is_subject, frequency, self.owners(concepts), reach)

    def holders(self, concepts: Ints, most: int | None = None) -> tuple[Ints, Ints, Bools]:
        """The place in the list, the row of a memory that mentions the concept, and whether it is its subject."""
        return _joined([layer.holders.of(concepts, most) for layer in self._filled])

    def frequency(self, concepts: Ints) -> Ints:
        """The number of memories that mention each concept."""
        return _total([_at(layer.held, concepts) for layer in self._filled])

    def owners(self, concepts: Ints) -> Ints:
        """The number of memories with each concept as a subject."""
        return _total([_at(layer.owned, concepts) for layer in self._filled])

    def reach(self, concepts: Ints) -> Ints:
        """The number of texts that contain each concept, mentioned or only written alike."""
        return np.maximum(self.frequency(concepts), _at(self.spread, concepts))

    @property
    def _filled(self) -> list[Bipartite]:
        """The layers with any mentions, at least one: most of the time there are no fresh ones."""
        return [self.settled, self.fresh] if len(self.fresh.owned) else [self.settled]


@dataclass(frozen=True, slots=True, eq=False)
class _Settled:
    """The file's mentions, and the concept of each of its names at that time."""

    stamp: tuple[str, int]
    concepts: Ints
    graph: Bipartite

    def is_valid(self, concepts: Ints) -> bool:
        """Whether the names of the file still belong to the same concepts."""
        return np.array_equal(self.concepts, _concept_of(np.arange(len(self.concepts)), concepts))


@dataclass(frozen=True, slots=True, eq=False)
class _Tail:
    """The mentions after the file's, and the number of the newest one."""

    stamp: tuple[str, int]
    triples: Triples
    newest: int

    def __len__(self) -> int:
        return len(self.triples)


class MentionIndex(ArrayIndex[_Tail, Layers]):
    """Which memories mention which concepts, as fresh as the store."""

    kind, format, title, lock_name = "mentions", 1, "the index of mentions", "mentions.lock"
    follows = ("mention", "regrouping")
    tail_cap = 20_000

    def __init__(self, folder: Path, store: OwnerStore) -> None:
        super().__init__(folder, store, "<i4", _FILE_COLUMNS)
        self._settled: _Settled | None = None
        self._tail: _Tail | None = None
        self._groups: tuple[tuple[str, int], Ints] | None = None
        self._common: dict[int, int] | None = None

    def bytes(self) -> int:
        """The size of the files."""
        return sum(part.stat().st_size for part in self.path.glob("*"))

    def close(self) -> None:
        """Release files and memory; the next read opens them again."""
        with self._mutex:
            super().close()
            self._settled = self._tail = self._groups = self._common = None

    def _since(self, kept: Records | None) -> _Tail:
        """What came after the file; what was read of it before is kept."""
        stamp = (self._store.epoch(), kept.last_slot if kept else 0)
        tail = self._tail
        if tail is None or tail.stamp != stamp:
            tail = _Tail(stamp, np.empty((0, _COLUMNS), dtype=np.int64), stamp[1])
            self._common = None
        if fresh := self._past(tail.newest):
            if self._common is not None:
                # No other name can have become more common.
                self._common |= self._store.names.common(COMMON_FROM, {one.name for one in fresh})
            tail = _Tail(stamp, np.concatenate([tail.triples, _triples(fresh)]), fresh[-1].mention)
        self._tail = tail
        return tail

    def _append(self, epoch: str, kept: Records | None) -> None:
        # Not the tail in memory: another process may have erased mentions that are still in it.
        if fresh := self._past(kept.last_slot if kept else 0):
            rows, names, subjects = _triples(fresh).T
            self._file.append(epoch, {fresh[-1].mention: np.stack([rows, names << _BITS | subjects], axis=1)})

    def _join(self, kept: Records | None, tail: _Tail) -> Layers:
        """Old and new mentions; what a new memory costs follows from what it mentions, not from the store's size."""
        concepts = self._concepts(tail.stamp[0])
        settled = self._settled
        if settled is None or settled.stamp != tail.stamp or not settled.is_valid(concepts):
            written = kept.values if kept else np.empty((0, _FILE_COLUMNS), dtype=np.int32)
            rows, marked = written.astype(np.int64).T
            triples = np.stack([rows, marked >> _BITS, marked & ((1 << _BITS) - 1)], axis=1)
            names = int(triples[:, 1].max(initial=-1)) + 1
            known = _concept_of(np.arange(names), concepts)
            self._settled = settled = _Settled(tail.stamp, known, _bipartite(triples, concepts))
        return Layers(settled.graph, _bipartite(tail.triples, concepts), self._spread(concepts))

    def _spread(self, concepts: Ints) -> Ints:
        """The number of texts that contain the terms of a concept's commonest name."""
        if self._common is None:
            self._common = dict(self._store.names.common(COMMON_FROM))
        names, spread = (np.array(list(part), dtype=np.int64) for part in (self._common, self._common.values()))
        grouped = _concept_of(names, concepts)
        found = np.zeros(int(grouped.max(initial=-1)) + 1, dtype=np.int64)
        np.maximum.at(found, grouped, spread)
        return found

    def _concepts(self, epoch: str) -> Ints:
        """The concept of every name by its number."""
        stamp = (epoch, self._store.heads().regrouping)
        if self._groups is None or self._groups[0] != stamp:
            grouped = np.array(self._store.names.grouped(), dtype=np.int64).reshape(-1, 2)
            concepts = np.arange(int(grouped.max(initial=-1)) + 1)
            concepts[grouped[:, 0]] = grouped[:, 1]
            self._groups = (stamp, concepts)
        return self._groups[1]

    def _past(self, mention: int) -> list[Mentioned]:
        found: list[Mentioned] = []
        while page := self._store.names.mentions(after=mention):
            found += page
            mention = page[-1].mention
        return found


def _triples(found: Sequence[Mentioned]) -> Triples:
    """Row, name and kind of subject of every mention."""
    listed = [(one.row, one.name, _SUBJECTS.get(one.kind, 0)) for one in found]
    return np.array(listed, dtype=np.int64).reshape(-1, _COLUMNS)


def _bipartite(triples: Triples, concepts: Ints) -> Bipartite:
    rows, names, subjects = triples.T
    grouped = _concept_of(names, concepts)
    is_mentioned = np.bincount(grouped, subjects != _LEAD, int(grouped.max(initial=-1)) + 1) > 0
    return Bipartite.build(rows, grouped, (subjects == _TITLE) | ((subjects == _LEAD) & is_mentioned[grouped]))


def _concept_of(names: Ints, concepts: Ints) -> Ints:
    """The concept of each name."""
    is_grouped = names < len(concepts)
    grouped = names.copy()
    grouped[is_grouped] = concepts[names[is_grouped]]
    return grouped


def allowed(holders: tuple[Ints, Ints, Bools], is_allowed: Bools, most: int | None) -> tuple[Ints, Ints, Bools]:
    """Those holders that are allowed, at most so many of each place."""
    position, rows, is_subject = holders[0][is_allowed], holders[1][is_allowed], holders[2][is_allowed]
    if most is None:
        return position, rows, is_subject
    order = np.argsort(position, kind="stable")
    kept = order[np.arange(len(position)) - np.searchsorted(position[order], position[order]) < most]
    return position[kept], rows[kept], is_subject[kept]


def _joined(found: Sequence[tuple[Ints, Ints, Bools]]) -> tuple[Ints, Ints, Bools]:
    if len(found) == 1:
        return found[0]
    places, others, marks = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return places, others, marks


def _at(values: Ints, numbers: Ints) -> Ints:
    """The values at some places; 0 past the last one."""
    if not len(values):
        return np.zeros(len(numbers), dtype=np.int64)
    return np.where(numbers < len(values), values.take(numbers, mode="clip"), 0)


def _total(counts: Sequence[Ints]) -> Ints:
    return counts[0] if len(counts) == 1 else counts[0] + counts[1]
