"""The dense index: sentence vectors in a memory-mapped file, scanned whole with the filter inside.

Up to EXACT_LIMIT vectors the scan is exact; above, one bit per dimension, in a file of its own, chooses candidates that
the exact vectors then order.
"""

from __future__ import annotations

import shutil
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from triskele.base.files import file_lock
from triskele.index.append_file import AppendFile, Records
from triskele.index.catalog import Columns, Ints
from triskele.stores.protocols import OwnerStore

FORMAT = 1
EXACT_LIMIT = 20_000
BIT_CANDIDATES = 3000
_LOCK_TIMEOUT_S = 60.0
# Unit vectors, give or take what rounding does to their length.
_TOLERANCE = 0.01

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

    def __init__(
        self, folder: Path, store: OwnerStore, fingerprint: str, dimensions: int, *, tail_cap: int = 256
    ) -> None:
        self.fingerprint = fingerprint
        self._folder = folder
        self._file = AppendFile(folder / f"dense-{FORMAT}-{fingerprint.replace('/', '_')}", "<f4", dimensions)
        self._bit_file = AppendFile(self._file.path / "bits", "u1", -(-dimensions // 8))
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
            allowed = allowed[_nearest_by_bits(view.bits, vector, places[allowed])]
        if len(allowed) * 2 > len(view.slots):
            cosines = np.concatenate([view.file @ vector, view.tail @ vector])[places[allowed]]
        else:
            cosines = view.gather(places[allowed]) @ vector
        sound = _is_cosine(cosines)
        allowed, cosines = allowed[sound], cosines[sound]
        best = _top(cosines, limit)
        return allowed[best], cosines[best]

    def cosines(self, vector: Floats, columns: Columns, at: Ints) -> Floats:
        """The cosines of some entries of the catalog; not a number where an entry has no sound vector."""
        view, places = self._places(columns)
        own = places[at]
        found = np.full(len(at), np.nan, dtype=np.float32)
        found[own >= 0] = view.gather(own[own >= 0]) @ vector
        return np.where(_is_cosine(found), found, np.float32(np.nan))

    def vectors(self, columns: Columns, at: Ints) -> Floats:
        """The vectors of some entries of the catalog; not numbers where an entry has none."""
        view, places = self._places(columns)
        own = places[at]
        found = np.full((len(at), self._file.width), np.nan, dtype=np.float32)
        found[own >= 0] = view.gather(own[own >= 0])
        return found

    def rebuild(self) -> None:
        """Write the file anew from the store's rows; vectors that are none are thrown away and made again."""
        self._store.vectors.drop(self._read_past(0)[1])
        with file_lock(self._lock_path(), timeout_s=_LOCK_TIMEOUT_S):
            for old in self._folder.glob("dense-*"):
                shutil.rmtree(old, ignore_errors=True)
        self.close()
        self._catch_up()

    def damaged(self) -> int:
        """How many records of the file are not what was written, and how many vectors of the store are none."""
        opened = (file.open(self._store.epoch()) for file in (self._file, self._bit_file))
        return len(self._read_past(0)[1]) + sum(len(records.damaged()) for records in opened if records is not None)

    def orphans(self, slots: Ints) -> int:
        """How many records of the file belong to none of these slots: an erasing was cut short."""
        records = self._file.open(self._store.epoch())
        return 0 if records is None else records.others(slots)

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
            seen = (self._store.epoch(), self._store.vectors.last_slot(self.fingerprint))
            if self._view is None or seen != self._seen:
                self._view, self._seen = self._make_view(), seen
            return self._view

    def _make_view(self) -> _View:
        records = self._file.open(self._store.epoch())
        tail, _ = self._read_past(records.last_slot if records else 0)
        if len(tail) > self._tail_cap:
            self._catch_up()
            records = self._file.open(self._store.epoch())
            tail, _ = self._read_past(records.last_slot if records else 0)
        known = records.slots if records else np.empty(0, dtype=np.int64)
        vectors = records.values if records else np.empty((0, self._file.width), dtype=np.float32)
        fresh = np.array(list(tail.values()), dtype=np.float32).reshape(-1, self._file.width)
        slots = np.concatenate([known, np.array(list(tail), dtype=np.int64)])
        bits = _by_words(np.concatenate([self._kept_bits(records), _bits(fresh)])) if len(slots) > EXACT_LIMIT else None
        return _View(slots, vectors, fresh, bits)

    def _kept_bits(self, records: Records | None) -> NDArray[np.uint8]:
        """The bits of the file's vectors; those that their own file lacks are made anew."""
        if records is None:
            return np.empty((0, self._bit_file.width), dtype=np.uint8)
        kept = self._sound_bits(records)
        return np.concatenate([kept, _bits(records.values[len(kept) :])])

    def _sound_bits(self, records: Records) -> NDArray[np.uint8]:
        """The bits that their file has for the first of some records."""
        kept = self._bit_file.open(self._store.epoch())
        if kept is None or not np.array_equal(kept.slots, records.slots[: len(kept.slots)]):
            return np.empty((0, self._bit_file.width), dtype=np.uint8)
        return kept.values

    def _read_past(self, slot: int) -> tuple[dict[int, Floats], list[int]]:
        """The store's vectors past a slot, and the slots of those that are none."""
        found: dict[int, Floats] = {}
        unsound: list[int] = []
        size = 4 * self._file.width
        while page := self._store.vectors.page(self.fingerprint, after=slot):
            whole = [(number, raw) for number, _, raw in page if len(raw) == size]
            vectors = np.frombuffer(b"".join(raw for _, raw in whole), dtype="<f4").reshape(-1, self._file.width)
            lengths = np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1))
            # Not a number is not within the tolerance either.
            is_sound = np.abs(lengths - 1) <= _TOLERANCE
            sound = {number: vectors[place] for place, (number, _) in enumerate(whole) if is_sound[place]}
            unsound += [number for number, _, _ in page if number not in sound]
            found |= sound
            slot = page[-1][0]
        return found, unsound

    def _catch_up(self) -> None:
        """Append what the file lacks; where it cannot be written, memory serves alone."""
        try:
            with file_lock(self._lock_path(), timeout_s=_LOCK_TIMEOUT_S) as is_held:
                lineage = self._store.epoch()
                records = self._file.open(lineage)
                if is_held:
                    fresh = self._read_past(records.last_slot if records else 0)[0]
                    self._file.append(lineage, fresh)
                    self._append_bits(lineage)
        except OSError:
            return

    def _append_bits(self, lineage: str) -> None:
        """Bring the file of bits up to the file of vectors."""
        records = self._file.open(lineage)
        if records is not None:
            known = len(self._sound_bits(records))
            if not known:
                shutil.rmtree(self._bit_file.path, ignore_errors=True)
            fresh = zip(records.slots[known:].tolist(), _bits(records.values[known:])[:, None], strict=True)
            self._bit_file.append(lineage, dict(fresh))

    def _lock_path(self) -> Path:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._folder / "dense.lock"


def _is_cosine(numbers: Floats) -> NDArray[np.bool_]:
    """Whether numbers can be cosines; those of a damaged file may be anything, or not numbers at all."""
    return np.abs(numbers) <= 1 + _TOLERANCE


def _bits(vectors: Floats) -> NDArray[np.uint8]:
    """One bit per dimension, its sign."""
    return np.packbits(vectors > 0, axis=1)


def _by_words(bits: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """The bits in words of 64: the first words of all vectors, then the second ones."""
    return np.ascontiguousarray(np.pad(bits, ((0, 0), (0, -bits.shape[1] % 8))).view(np.uint64).T)


def _nearest_by_bits(bits: NDArray[np.uint64], vector: Floats, places: Ints) -> Ints:
    """Which of some places hold vectors that differ in the fewest bits."""
    distances = np.zeros(bits.shape[1], dtype=np.int32)
    # Word by word over all vectors: sums over the few words of each are far slower.
    for words, asked in zip(bits, _by_words(_bits(vector[None])), strict=True):
        distances += np.bitwise_count(words ^ asked)
    distance = distances[places]
    return np.sort(np.argpartition(distance, BIT_CANDIDATES)[:BIT_CANDIDATES])


def _top(scores: Floats, limit: int) -> Ints:
    """Places of the highest scores, best first; ties go to the lower place."""
    chosen = np.arange(len(scores))
    if len(scores) > limit:
        border = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        chosen = np.flatnonzero(scores >= border)
    return chosen[np.argsort(-scores[chosen], kind="stable")][:limit]
