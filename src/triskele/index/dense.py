"""The sentence vectors of one model, for the dense leg.

They are in a file, a byte per dimension (store/vector_bytes.py). Up to EXACT_LIMIT of them are kept in memory as
floats, and a search scans them all and filters in the scan; above, one bit per dimension, in a separate file, selects
candidates; only their vectors are read.
"""

from __future__ import annotations

import ctypes
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from triskele.index.catalog import Columns
from triskele.index.corpus import Bits, Floats, Ints
from triskele.index.lifecycle import AppendFile, ArrayIndex, Records
from triskele.store.owner import OwnerStore
from triskele.store.values import Heads
from triskele.store.vector_bytes import cosines, restored, row_bytes, sound_rows

EXACT_LIMIT = 20_000
BIT_CANDIDATES = 3000
_GATHERED = 256
_PARTS_OF_LIMIT = 4
# So many vectors at a time become bits.
_AT_ONCE = 4096
# What rounding adds to a cosine at most.
_TOLERANCE = 0.01
_PREFIXES = ("scipy_openblas_", "openblas_")
_SUFFIXES = ("64_", "")
_lock = threading.Lock()
_callers = 0
_threads_before = 1


@dataclass(frozen=True, slots=True)
class _Vectors:
    """Vectors in order of slots: first the file, then the slots past it.

    `file` holds the vectors of the file as floats; if they are too many, it is None and floats are made of `rows`.
    """

    slots: Ints
    rows: Bits
    file: Floats | None
    tail: Floats
    bits: NDArray[np.uint64] | None

    def gather(self, at: Ints) -> Floats:
        """Vectors by place; of a memory-mapped file only these pages are read."""
        if not len(self.tail):
            return self._of_file(at)
        in_file = at < len(self.rows)
        vectors = np.empty((len(at), self.tail.shape[1]), dtype=np.float32)
        vectors[in_file] = self._of_file(at[in_file])
        vectors[~in_file] = self.tail[at[~in_file] - len(self.rows)]
        return vectors

    def _of_file(self, at: Ints) -> Floats:
        if self.file is not None:
            return self.file.take(at, axis=0)
        return restored(self.rows.take(at, axis=0))

    def scanned(self, vector: Floats) -> Floats:
        """The products of a vector with the vectors of the file."""
        if self.file is None:
            return self.products(vector, np.arange(len(self.rows)))
        # Row by row takes half as long as a product of matrices, and a row has the same product in any company.
        products: Floats = np.vecdot(self.file, vector)
        return products

    def products(self, vector: Floats, at: Ints) -> Floats:
        """The products of a vector with those at some places, a few at a time: they stay in the processor's cache."""
        products = np.empty(len(at), dtype=np.float32)
        for first in range(0, len(at), _GATHERED):
            some = slice(first, first + _GATHERED)
            products[some] = self._products(vector, at[some])
        return products

    def _products(self, vector: Floats, at: Ints) -> Floats:
        products = np.empty(len(at), dtype=np.float32)
        if self.file is not None:
            return np.vecdot(self.gather(at), vector, out=products)
        if not len(self.tail):
            return cosines(self.rows.take(at, axis=0), vector)
        in_file = at < len(self.rows)
        products[in_file] = cosines(self.rows.take(at[in_file], axis=0), vector)
        products[~in_file] = np.vecdot(self.tail[at[~in_file] - len(self.rows)], vector)
        return products

    def places(self, slots: Ints) -> Ints:
        """The places of slots; −1 for unknown ones."""
        if not len(self.slots):
            return np.full(len(slots), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self.slots, slots), len(self.slots) - 1)
        return np.where(self.slots[at] == slots, at, -1).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class PlacedVectors:
    """Vectors with the place of each catalog entry among them, −1 for none; in order if they come from the file."""

    vectors: _Vectors
    places: Ints
    is_in_order: bool

    def scan(self, vector: Floats) -> Floats:
        """The cosines of all entries of the catalog; NaN where an entry has no sound vector."""
        cosines = self.vectors.scanned(vector)
        if not self.is_in_order:
            # The place −1 is the last one.
            tail = np.vecdot(self.vectors.tail, vector)
            cosines = np.concatenate([cosines, tail, [np.float32(np.nan)]])[self.places]
        cosines[~_is_cosine(cosines)] = np.nan
        return cosines

    def nearest(self, vector: Floats, mask: NDArray[np.bool_], limit: int) -> tuple[Ints, Floats]:
        """The entries of the catalog nearest to a vector among those that the mask allows, with their cosines."""
        allowed = np.flatnonzero(mask if self.is_in_order else mask & (self.places >= 0))
        if len(allowed) > EXACT_LIMIT and self.vectors.bits is not None:
            is_everyone = self.is_in_order and len(allowed) == len(self.vectors.slots)
            places = None if is_everyone else self.places[allowed]
            allowed = allowed[_nearest_by_bits(self.vectors.bits, vector, places)]
        best, cosines = highest(self.vectors.products(vector, self.places[allowed]), limit)
        return allowed[best], cosines

    def cosines(self, vector: Floats, at: Ints) -> Floats:
        """The cosines of some entries of the catalog; NaN if an entry has no sound vector."""
        own = self.places[at]
        products = np.full(len(at), np.nan, dtype=np.float32)
        products[own >= 0] = self.vectors.products(vector, own[own >= 0])
        return np.where(_is_cosine(products), products, np.float32(np.nan))

    def gather(self, at: Ints) -> Floats:
        """The vectors of some entries of the catalog; NaN if an entry has none."""
        own = self.places[at]
        vectors = np.full((len(at), self.vectors.tail.shape[1]), np.nan, dtype=np.float32)
        vectors[own >= 0] = self.vectors.gather(own[own >= 0])
        return vectors


class DenseIndex(ArrayIndex[dict[int, Bits], _Vectors]):
    """Finds versions by the cosines of their sentence vectors."""

    kind, format, title, lock_name = "dense", 1, "the index of sentence vectors", "dense.lock"
    follows = ("slot",)
    tail_cap = 256

    def __init__(self, folder: Path, store: OwnerStore, fingerprint: str, dimensions: int) -> None:
        super().__init__(folder, store, "u1", row_bytes(dimensions), fingerprint)
        self.fingerprint = fingerprint
        self._dimensions = dimensions
        self._bit_file = AppendFile(self.path / "bits", "u1", -(-dimensions // 8))
        self._floats: tuple[object, Floats] | None = None
        self._placed: tuple[Columns, PlacedVectors] | None = None

    def over(self, columns: Columns, heads: Heads | None = None) -> PlacedVectors:
        """The vectors as of now by the entries of a catalog."""
        view, placed = self.view(heads), self._placed
        if placed is None or placed[0] is not columns or placed[1].vectors is not view:
            places = view.places(columns.slots)
            is_in_order = len(places) == len(view.rows) and np.array_equal(places, np.arange(len(places)))
            placed = self._placed = (columns, PlacedVectors(view, places, is_in_order))
        return placed[1]

    def rebuild(self) -> None:
        """Write the files again from the store; unsound vectors leave the store, so that they are computed again."""
        self._store.vectors.drop(self._read_past(0)[1])
        super().rebuild()

    def damaged(self) -> int:
        """The number of records that differ from what was written, and of unsound vectors in the store."""
        unsound = len(self._read_past(0)[1])
        return unsound + super().damaged() + self._bit_file.damaged(self._store.epoch())

    def orphans(self, slots: Ints) -> int:
        """The number of records that belong to none of the store's slots: an erasure was interrupted."""
        return self._file.others(self._store.epoch(), slots)

    def close(self) -> None:
        """Release files and memory; the next read opens them again."""
        with self._mutex:
            super().close()
            self._placed = self._floats = None

    def _since(self, records: Records | None) -> dict[int, Bits]:
        return self._read_past(records.last_slot if records else 0)[0]

    def _append(self, epoch: str, records: Records | None) -> None:
        self._file.append(epoch, self._since(records))
        self._append_bits(epoch)

    def _join(self, records: Records | None, tail: dict[int, Bits]) -> _Vectors:
        file_slots = records.slots if records else np.empty(0, dtype=np.int64)
        rows = records.values if records else np.empty((0, self._file.width), dtype=np.uint8)
        fresh = np.array(list(tail.values()), dtype=np.uint8).reshape(-1, self._file.width)
        vectors = restored(fresh)
        slots = np.concatenate([file_slots, np.array(list(tail), dtype=np.int64)])
        if len(slots) <= EXACT_LIMIT:
            return _Vectors(slots, rows, self._in_floats(rows, records.state if records else None), vectors, None)
        bits = _by_uint64(np.concatenate([self._kept_bits(records), _bits(vectors)]))
        return _Vectors(slots, rows, None, vectors, bits)

    def _in_floats(self, rows: Bits, state: object) -> Floats:
        """The vectors of the file, made once for each state of it: a memory that is added changes the tail alone."""
        if self._floats is None or self._floats[0] != state:
            self._floats = state, restored(rows)
        return self._floats[1]

    def _kept_bits(self, records: Records | None) -> NDArray[np.uint8]:
        """The bits of the file's vectors; those that their own file lacks are computed."""
        if records is None:
            return np.empty((0, self._bit_file.width), dtype=np.uint8)
        bits = self._sound_bits(records)
        return np.concatenate([bits, self._bits_of(records.values[len(bits) :])])

    def _sound_bits(self, records: Records) -> NDArray[np.uint8]:
        """The bits that their file has for the first of some records."""
        stored = self._bit_file.open(self._store.epoch())
        if stored is None or not np.array_equal(stored.slots, records.slots[: len(stored.slots)]):
            return np.empty((0, self._bit_file.width), dtype=np.uint8)
        return stored.values

    def _bits_of(self, rows: Bits) -> NDArray[np.uint8]:
        pieces = (rows[first : first + _AT_ONCE] for first in range(0, len(rows), _AT_ONCE))
        bits = [_bits(restored(piece)) for piece in pieces]
        return np.concatenate([np.empty((0, self._bit_file.width), dtype=np.uint8), *bits])

    def _read_past(self, slot: int) -> tuple[dict[int, Bits], list[int]]:
        """The store's sound vectors past a slot, and the slots of unsound ones: damaged, or of another size."""
        rows_by_slot: dict[int, Bits] = {}
        unsound: list[int] = []
        while page := self._store.vectors.page(self.fingerprint, after=slot):
            rows, is_sound = sound_rows([raw for _, _, raw in page], self._dimensions)
            slots = np.array([number for number, _, _ in page], dtype=np.int64)
            rows_by_slot |= zip(slots[is_sound].tolist(), rows, strict=True)
            unsound += slots[~is_sound].tolist()
            slot = page[-1][0]
        return rows_by_slot, unsound

    def _append_bits(self, epoch: str) -> None:
        """Bring the file of bits up to the file of vectors, where there are enough for bits to be asked."""
        records = self._file.open(epoch)
        if records is not None and len(records.slots) > EXACT_LIMIT:
            count = len(self._sound_bits(records))
            if not count:
                shutil.rmtree(self._bit_file.path, ignore_errors=True)
            fresh = zip(records.slots[count:].tolist(), self._bits_of(records.values[count:])[:, None], strict=True)
            self._bit_file.append(epoch, dict(fresh))


def _is_cosine(numbers: Floats) -> NDArray[np.bool_]:
    """Whether numbers can be cosines; a damaged file may hold anything, NaN included."""
    return np.abs(numbers) <= 1 + _TOLERANCE


def _bits(vectors: Floats) -> NDArray[np.uint8]:
    """One bit per dimension, its sign."""
    return np.packbits(vectors > 0, axis=1)


def _by_uint64(bits: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """The bits as integers: the first 64 bits of all vectors, then the next 64."""
    return np.ascontiguousarray(np.pad(bits, ((0, 0), (0, -bits.shape[1] % 8))).view(np.uint64).T)


def _nearest_by_bits(bits: NDArray[np.uint64], vector: Floats, places: Ints | None) -> Ints:
    """The nearest of some places, or of all: their vectors differ in the fewest bits."""
    distances = np.zeros(bits.shape[1], dtype=np.uint16)
    # One integer after the other over all vectors: sums over the few integers of each are far slower.
    for column, question_bits in zip(bits, _by_uint64(_bits(vector[None])), strict=True):
        distances += np.bitwise_count(column ^ question_bits)
    distance = distances if places is None else distances[places]
    # Distances are few: counting them takes a fraction of a partition. Those as far as the last one count too.
    farthest = np.bincount(distance).cumsum().searchsorted(BIT_CANDIDATES)
    return np.flatnonzero(distance <= farthest)


def highest(cosines: Floats, limit: int) -> tuple[Ints, Floats]:
    """The places of the highest cosines and these, best first, ties by place; other numbers are left out."""
    is_chosen = _is_cosine(cosines)
    if (size := len(cosines) // (_PARTS_OF_LIMIT * limit)) > 1:
        # So many parts have one as high as that, so the last of the highest is no lower: the others are not compared.
        parts = np.where(is_chosen, cosines, np.float32(-2))[: size * _PARTS_OF_LIMIT * limit].reshape(-1, size)
        is_chosen &= cosines >= np.partition(parts.max(axis=1), -limit)[-limit]
    chosen = np.flatnonzero(is_chosen)
    if len(chosen) > limit:
        border = np.partition(cosines[chosen], len(chosen) - limit)[len(chosen) - limit]
        chosen = chosen[cosines[chosen] >= border]
    chosen = chosen[np.argsort(-cosines[chosen], kind="stable")][:limit]
    return chosen, cosines[chosen]


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit numpy's products to one thread until the last caller has left.

    The products of a recall are small, and threads that wait for the next one spin. The limit applies to the whole
    process: a program that uses triskele as a library has its threads back between two recalls.
    """
    global _callers, _threads_before
    counts = _thread_counts()
    if counts is None:
        yield
        return
    read, write = counts
    with _lock:
        _callers += 1
        if _callers == 1:
            _threads_before = read()
            write(1)
    try:
        yield
    finally:
        with _lock:
            _callers -= 1
            if _callers == 0:
                write(_threads_before)


@cache
def _thread_counts() -> tuple[Callable[[], int], Callable[[int], object]] | None:
    """The functions of numpy's OpenBLAS that read and write its number of threads; None if numpy uses another BLAS."""
    package = Path(np.__file__).parent
    for folder in (package.parent / "numpy.libs", package / ".dylibs"):
        for path in sorted(folder.glob("*openblas*")):
            library = ctypes.CDLL(str(path))
            for prefix in _PREFIXES:
                for suffix in _SUFFIXES:
                    read = getattr(library, f"{prefix}get_num_threads{suffix}", None)
                    write = getattr(library, f"{prefix}set_num_threads{suffix}", None)
                    if read is not None and write is not None:
                        return read, write
    return None
