"""The mentions of a store as arrays: a file up to a mark, and what came after it in memory."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from triskele.base.files import file_lock
from triskele.graph.walk import Bipartite, Bools, Ints
from triskele.index.append_file import AppendFile
from triskele.index.corpus import Mentions
from triskele.stores.derived import Mentioned
from triskele.stores.protocols import OwnerStore

FORMAT = 1
# Kinds of mention that say what a memory is about; a lead does where others mention the same.
_TITLE, _LEAD = 1, 2
_SUBJECTS = {"title": _TITLE, "lead": _LEAD}
_COLUMNS = 3
# Names in fewer texts connect whom they will.
COMMON_FROM = 20
# So few new mentions make no name common.
_FEW = 500
_LOCK_TIMEOUT_S = 60.0

Triples = Ints


@dataclass(frozen=True, slots=True, eq=False)
class Layers:
    """Old and new mentions asked as one; a memory's mentions lie in both where an older text was read again."""

    settled: Bipartite
    fresh: Bipartite
    spread: Ints

    def concepts(self, rows: Ints, most: int | None = None) -> tuple[Ints, Ints, Bools]:
        """The place in the list, a concept that the memory mentions, and whether it is the memory's subject."""
        return _joined([layer.concepts.of(rows, most) for layer in self._filled])

    def mentions(self, rows: Ints, most: int | None = None) -> Mentions:
        """The concepts that some rows mention, at most so many of each row, with how common they are."""
        layers = self._filled
        place, concepts, is_subject = _joined([layer.concepts.of(rows, most) for layer in layers])
        counts = [layer.commonness(concepts) for layer in layers]
        frequency, owners = counts[0] if len(counts) == 1 else (_total(each) for each in zip(*counts, strict=True))
        return Mentions(place, concepts, is_subject, frequency, owners, np.maximum(frequency, self._written(concepts)))

    def holders(self, concepts: Ints, most: int | None = None) -> tuple[Ints, Ints, Bools]:
        """The place in the list, the row of a memory that mentions the concept, and whether it is its subject."""
        return _joined([layer.holders.of(concepts, most) for layer in self._filled])

    def frequency(self, concepts: Ints) -> Ints:
        """How many memories mention each concept."""
        return _total([layer.holders.counts(concepts) for layer in self._filled])

    def owners(self, concepts: Ints) -> Ints:
        """How many memories have each concept for a subject."""
        return _total([layer.owners(concepts) for layer in self._filled])

    def reach(self, concepts: Ints) -> Ints:
        """In how many texts each concept stands, mentioned or only written alike."""
        return np.maximum(self.frequency(concepts), self._written(concepts))

    def _written(self, concepts: Ints) -> Ints:
        inside = concepts < len(self.spread)
        written = np.zeros(len(concepts), dtype=np.int64)
        written[inside] = self.spread[concepts[inside]]
        return written

    @property
    def _filled(self) -> list[Bipartite]:
        """The layers that hold anything, one at least: most of the time nothing is fresh."""
        return [self.settled, self.fresh] if len(self.fresh.owned) else [self.settled]


@dataclass(frozen=True, slots=True, eq=False)
class _Settled:
    """The file's mentions, and which concept each of its names stood for when they were read."""

    mark: tuple[str, int]
    concepts: Ints
    graph: Bipartite

    def stands_for(self, concepts: Ints) -> bool:
        """Whether the names of the file still stand for the same."""
        return np.array_equal(self.concepts, _concept_of(np.arange(len(self.concepts)), concepts))


class MentionIndex:
    """Who mentions what, as fresh as the store."""

    def __init__(self, folder: Path, store: OwnerStore, *, tail_cap: int = 20_000) -> None:
        self._folder = folder
        self._store = store
        self._tail_cap = tail_cap
        self._file = AppendFile(folder / f"mentions-{FORMAT}", "<i4", _COLUMNS)
        self._mutex = threading.Lock()
        self._layers: Layers | None = None
        self._seen: tuple[str, int, int] = ("", 0, 0)
        self._settled: _Settled | None = None
        self._tail: tuple[tuple[str, int], Triples, int] | None = None
        self._groups: tuple[tuple[str, int], Ints] | None = None
        self._common: tuple[int, Ints] | None = None

    def layers(self) -> Layers:
        """The mentions as of now."""
        with self._mutex:
            names = self._store.entities
            seen = (self._store.epoch(), names.last_mention(), names.changes())
            if self._layers is None or seen != self._seen:
                self._layers, self._seen = self._read(seen), seen
            return self._layers

    def find(self, keys: Iterable[str]) -> dict[str, tuple[int, bool]]:
        """The concepts of names by key, and whether a name is written in any case."""
        return {key: (name.concept, name.any_case) for key, name in self._store.entities.find(keys).items()}

    def rebuild(self) -> None:
        """Write the file anew from the store."""
        with file_lock(self._lock_path(), timeout_s=_LOCK_TIMEOUT_S):
            shutil.rmtree(self._file.path, ignore_errors=True)
        self.close()
        self._catch_up()

    def bytes(self) -> int:
        """What the file takes on the disk."""
        return sum(part.stat().st_size for part in self._file.path.glob("*"))

    def damaged(self) -> int:
        """How many records of the file are not what was written."""
        records = self._file.open(self._store.epoch())
        return 0 if records is None else len(records.damaged())

    def close(self) -> None:
        """Let go of everything."""
        with self._mutex:
            self._layers = self._settled = self._tail = self._groups = self._common = None

    def _read(self, seen: tuple[str, int, int]) -> Layers:
        """Old and new mentions; what a new memory costs follows from what it mentions, not from the store's size."""
        records = self._file.open(seen[0])
        tail = self._tail_past(seen[0], records.last_slot if records else 0)
        if len(tail) > self._tail_cap:
            self._catch_up()
            records = self._file.open(seen[0])
            tail = self._tail_past(seen[0], records.last_slot if records else 0)
        concepts = self._concepts(seen[0], seen[2])
        written = records.values if records else np.empty((0, _COLUMNS), dtype=np.int32)
        mark = (seen[0], records.last_slot if records else 0)
        settled = self._settled
        if settled is None or settled.mark != mark or not settled.stands_for(concepts):
            triples = written.astype(np.int64)
            names = int(triples[:, 1].max(initial=-1)) + 1
            known = _concept_of(np.arange(names), concepts)
            self._settled = settled = _Settled(mark, known, _bipartite(triples, concepts))
            self._common = None
        if self._common is None or abs(len(tail) - self._common[0]) > _FEW:
            self._common = (len(tail), self._spread(concepts))
        return Layers(settled.graph, _bipartite(tail, concepts), self._common[1])

    def _tail_past(self, lineage: str, slot: int) -> Triples:
        """What came after the file; what was read of it before is kept."""
        mark = (lineage, slot)
        if self._tail is None or self._tail[0] != mark:
            self._tail = (mark, np.empty((0, _COLUMNS), dtype=np.int64), slot)
        _, triples, newest = self._tail
        if fresh := self._past(newest):
            triples = np.concatenate([triples, _triples(fresh)])
            self._tail = (mark, triples, fresh[-1].mention)
        return triples

    def _spread(self, concepts: Ints) -> Ints:
        """How many texts hold the words of a concept's commonest name."""
        common = np.array(self._store.entities.common(COMMON_FROM), dtype=np.int64).reshape(-1, 2)
        names, spread = common[:, 0], common[:, 1]
        grouped = _concept_of(names, concepts)
        found = np.zeros(int(grouped.max(initial=-1)) + 1, dtype=np.int64)
        np.maximum.at(found, grouped, spread)
        return found

    def _concepts(self, lineage: str, changes: int) -> Ints:
        """The concept of every name by its number."""
        if self._groups is None or self._groups[0] != (lineage, changes):
            grouped = np.array(self._store.entities.grouped(), dtype=np.int64).reshape(-1, 2)
            concepts = np.arange(int(grouped.max(initial=-1)) + 1)
            concepts[grouped[:, 0]] = grouped[:, 1]
            self._groups = ((lineage, changes), concepts)
        return self._groups[1]

    def _past(self, mention: int) -> list[Mentioned]:
        found: list[Mentioned] = []
        while page := self._store.entities.mentions(after=mention):
            found += page
            mention = page[-1].mention
        return found

    def _catch_up(self) -> None:
        """Append what the file lacks; where it cannot be written, memory serves alone."""
        try:
            with file_lock(self._lock_path(), timeout_s=_LOCK_TIMEOUT_S) as is_held:
                lineage = self._store.epoch()
                records = self._file.open(lineage)
                fresh = self._past(records.last_slot if records else 0)
                if is_held and fresh:
                    self._file.append(lineage, {fresh[-1].mention: _triples(fresh)})
        except OSError:
            return

    def _lock_path(self) -> Path:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._folder / "mentions.lock"


def _triples(found: Sequence[Mentioned]) -> Triples:
    """Row, name, and the sort of subject, for every mention."""
    listed = [(one.row, one.name, _SUBJECTS.get(one.kind, 0)) for one in found]
    return np.array(listed, dtype=np.int64).reshape(-1, _COLUMNS)


def _bipartite(triples: Triples, concepts: Ints) -> Bipartite:
    rows, names, subjects = triples.T
    grouped = _concept_of(names, concepts)
    said = np.bincount(grouped, subjects != _LEAD, int(grouped.max(initial=-1)) + 1) > 0
    return Bipartite.build(rows, grouped, (subjects == _TITLE) | ((subjects == _LEAD) & said[grouped]))


def _concept_of(names: Ints, concepts: Ints) -> Ints:
    """The concept of each name."""
    is_grouped = names < len(concepts)
    grouped = names.copy()
    grouped[is_grouped] = concepts[names[is_grouped]]
    return grouped


def _joined(found: Sequence[tuple[Ints, Ints, Bools]]) -> tuple[Ints, Ints, Bools]:
    if len(found) == 1:
        return found[0]
    places, others, marks = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return places, others, marks


def _total(counts: Sequence[Ints]) -> Ints:
    return counts[0] if len(counts) == 1 else counts[0] + counts[1]
