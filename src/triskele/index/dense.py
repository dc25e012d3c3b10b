"""The dense index: sentence vectors in a memory-mapped file, scanned whole with the filter inside.

Up to EXACT_LIMIT vectors the scan is exact; above, one bit per dimension chooses candidates that the exact vectors
then order.
"""

from __future__ import annotations

import shutil
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from triskele.index.catalog import Columns, Ints
from triskele.index.growing import GrowingFile
from triskele.stores.locking import file_lock
from triskele.stores.protocol import Store

FORMAT = 1
EXACT_LIMIT = 50_000
BIT_CANDIDATES = 2000
_LOCK_TIMEOUT_S = 60.0

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _View:
    """Vectors in order of slots: those of the file, then those past it."""

    slots: Ints
    file: Floats
    tail: Floats
    bits: NDArray[np.uint64] | None

    def gather(self, at: Ints) -> Floats:
        """Vectors by place; a memory-mapped file gives up only the pages asked for."""
        in_file = at < len(self.file)
        found = np.empty((len(at), self.file.shape[1]), dtype=np.float32)
        found[in_file] = self.file[at[in_file]]
        found[~in_file] = self.tail[at[~in_file] - len(self.file)]
        return found

    def places(self, slots: Ints) -> Ints:
        """Where slots stand; −1 where they do not."""
        if not len(self.slots):
            return np.full(len(slots), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self.slots, slots), len(self.slots) - 1)
        return np.where(self.slots[at] == slots, at, -1).astype(np.int64)


class DenseIndex:
    """Finds versions by the nearness of their sentence vectors."""

    def __init__(self, folder: Path, store: Store, fingerprint: str, dimensions: int, *, tail_cap: int = 256) -> None:
        self.fingerprint = fingerprint
        self._folder = folder
        self._file = GrowingFile(folder / f"dense-{FORMAT}-{fingerprint.replace('/', '_')}", "<f4", dimensions)
        self._store = store
        self._tail_cap = tail_cap
        self._mutex = threading.Lock()
        self._view: _View | None = None
        self._seen: tuple[str, int] = ("", 0)
        self._placed: tuple[Columns, _View, Ints] | None = None

    def nearest(self, vector: Floats, columns: Columns, mask: NDArray[np.bool_], limit: int) -> tuple[Ints, Floats]:
        """The entries of the catalog nearest to a vector among those that the mask allows, with their cosines."""
        view, places = self._places(columns)
        allowed = np.flatnonzero(mask & (places >= 0))
        if len(allowed) > EXACT_LIMIT and view.bits is not None:
            allowed = allowed[_nearest_by_bits(view.bits[places[allowed]], vector)]
        if len(allowed) * 2 > len(view.slots):
            cosines = np.concatenate([view.file @ vector, view.tail @ vector])[places[allowed]]
        else:
            cosines = view.gather(places[allowed]) @ vector
        best = _top(cosines, limit)
        return allowed[best], cosines[best]

    def cosines(self, vector: Floats, columns: Columns, at: Ints) -> Floats:
        """The cosines of some entries of the catalog; −1 where an entry has no vector yet."""
        view, places = self._places(columns)
        own = places[at]
        found = np.full(len(at), -1.0, dtype=np.float32)
        found[own >= 0] = view.gather(own[own >= 0]) @ vector
        return found

    def rebuild(self) -> None:
        """Write the file anew from the store's rows."""
        with file_lock(self._lock_path(), timeout_s=_LOCK_TIMEOUT_S):
            for old in self._folder.glob("dense-*"):
                shutil.rmtree(old, ignore_errors=True)
        self.close()
        self._catch_up()

    def damaged(self) -> int:
        """How many records of the file are not what was written."""
        records = self._file.open(self._store.lineage())
        return 0 if records is None else len(records.damaged())

    def close(self) -> None:
        """Let go of the files."""
        self._view = self._placed = None

    def _places(self, columns: Columns) -> tuple[_View, Ints]:
        view = self._fresh_view()
        placed = self._placed
        if placed is None or placed[0] is not columns or placed[1] is not view:
            placed = self._placed = (columns, view, view.places(columns.slots))
        return view, placed[2]

    def _fresh_view(self) -> _View:
        with self._mutex:
            seen = (self._store.lineage(), self._store.last_slot(self.fingerprint))
            if self._view is None or seen != self._seen:
                self._view, self._seen = self._make_view(), seen
            return self._view

    def _make_view(self) -> _View:
        records = self._file.open(self._store.lineage())
        tail = self._read_past(records.last_slot if records else 0)
        if len(tail) > self._tail_cap:
            self._catch_up()
            records = self._file.open(self._store.lineage())
            tail = self._read_past(records.last_slot if records else 0)
        known = records.slots if records else np.empty(0, dtype=np.int64)
        vectors = records.values if records else np.empty((0, self._file.width), dtype=np.float32)
        fresh = np.array(list(tail.values()), dtype=np.float32).reshape(-1, self._file.width)
        slots = np.concatenate([known, np.array(list(tail), dtype=np.int64)])
        bits = _bits(np.concatenate([vectors, fresh])) if len(slots) > EXACT_LIMIT else None
        return _View(slots, vectors, fresh, bits)

    def _read_past(self, slot: int) -> dict[int, Floats]:
        found: dict[int, Floats] = {}
        while page := self._store.vectors(self.fingerprint, after=slot):
            found |= {number: np.frombuffer(vector, dtype="<f4") for number, _, vector in page}
            slot = page[-1][0]
        return found

    def _catch_up(self) -> None:
        """Append what the file lacks; where it cannot be written, memory serves alone."""
        try:
            with file_lock(self._lock_path(), timeout_s=_LOCK_TIMEOUT_S) as is_held:
                lineage = self._store.lineage()
                records = self._file.open(lineage)
                if is_held:
                    self._file.append(lineage, self._read_past(records.last_slot if records else 0))
        except OSError:
            return

    def _lock_path(self) -> Path:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._folder / "dense.lock"


def _bits(vectors: Floats) -> NDArray[np.uint64]:
    """One bit per dimension, its sign, in words of 64."""
    packed = np.packbits(vectors > 0, axis=1)
    return np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8))).view(np.uint64)


def _nearest_by_bits(bits: NDArray[np.uint64], vector: Floats) -> Ints:
    distance = np.bitwise_count(bits ^ _bits(vector[None])).sum(axis=1, dtype=np.int32)
    return np.sort(np.argpartition(distance, BIT_CANDIDATES)[:BIT_CANDIDATES])


def _top(scores: Floats, limit: int) -> Ints:
    """Places of the highest scores, best first; ties go to the lower place."""
    chosen = np.arange(len(scores))
    if len(scores) > limit:
        border = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        chosen = np.flatnonzero(scores >= border)
    return chosen[np.argsort(-scores[chosen], kind="stable")][:limit]
