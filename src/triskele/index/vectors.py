"""The vectors of one model: sentence vectors for the dense leg, token vectors for late interaction.

Sentence vectors are in a memory-mapped file; a search scans all of it and filters in the scan. Up to EXACT_LIMIT
vectors the scan is exact; above, one bit per dimension, in a separate file, selects candidates for the exact vectors.
Token vectors have two bits per dimension, without stop words and punctuation.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, pairwise
from math import sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from triskele.base.text import STOP_WORDS
from triskele.index.append_file import AppendFile, Records, slots_of, sound_records
from triskele.index.catalog import Columns
from triskele.index.corpus import Bits, Floats, Ints
from triskele.index.lifecycle import DiskIndex
from triskele.models.embedders import Encoding
from triskele.stores.protocols import Heads, OwnerStore

EXACT_LIMIT = 20_000
BIT_CANDIDATES = 3000
# Token vectors were int8 before; their bits are made from that, so that converted ones equal fresh ones.
_SCALE = 127.0
# Of normally distributed numbers this share is more than a deviation from 0, and this much larger than the others.
_FAR_SHARE, _FAR_LEVEL = 0.32, 10 / 3
# Per byte the levels of its four dimensions.
_PAIRS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
_LEVELS = (np.where(_PAIRS[:, ::2], 1, -1) * np.where(_PAIRS[:, 1::2], _FAR_LEVEL, 1)).astype(np.float32)
# Before the bits of a row's token vectors: with it the length is odd, which no even number of int8 dimensions has.
_BITS_MARK = b"\x02"
_CONVERTED_AT_ONCE = 4096
_BLOCK, _GATHERED = 512, 256
_PARTS_OF_LIMIT = 4
# Unit vectors, give or take what rounding does to their length.
TOLERANCE = 0.01


@dataclass(frozen=True, slots=True)
class _Vectors:
    """Vectors in order of slots: those of the file, then those past it."""

    slots: Ints
    file: Floats
    tail: Floats
    bits: NDArray[np.uint64] | None

    def gather(self, at: Ints) -> Floats:
        """Vectors by place; of a memory-mapped file only these pages are read."""
        if not len(self.tail):
            return self.file.take(at, axis=0)
        in_file = at < len(self.file)
        found = np.empty((len(at), self.file.shape[1]), dtype=np.float32)
        found[in_file] = self.file[at[in_file]]
        found[~in_file] = self.tail[at[~in_file] - len(self.file)]
        return found

    def products(self, vector: Floats, at: Ints) -> Floats:
        """The products of a vector with those at some places, a few at a time: they stay in the processor's cache."""
        found = np.empty(len(at), dtype=np.float32)
        for first in range(0, len(at), _GATHERED):
            some = slice(first, first + _GATHERED)
            np.vecdot(self.gather(at[some]), vector, out=found[some])
        return found

    def places(self, slots: Ints) -> Ints:
        """The places of slots; −1 for unknown ones."""
        if not len(self.slots):
            return np.full(len(slots), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self.slots, slots), len(self.slots) - 1)
        return np.where(self.slots[at] == slots, at, -1).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class PlacedVectors:
    """Vectors with the place of each catalog entry among them, −1 for none; in order if they are those of the file."""

    vectors: _Vectors
    places: Ints
    is_in_order: bool

    def scan(self, vector: Floats) -> Floats:
        """The cosines of all entries of the catalog; NaN where an entry has no sound vector."""
        # Row by row takes half as long as a product of matrices, and a row has the same product in any company.
        cosines: Floats = np.vecdot(self.vectors.file, vector)
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
        found = np.full(len(at), np.nan, dtype=np.float32)
        found[own >= 0] = self.vectors.products(vector, own[own >= 0])
        return np.where(_is_cosine(found), found, np.float32(np.nan))

    def gather(self, at: Ints) -> Floats:
        """The vectors of some entries of the catalog; NaN if an entry has none."""
        own = self.places[at]
        found = np.full((len(at), self.vectors.file.shape[1]), np.nan, dtype=np.float32)
        found[own >= 0] = self.vectors.gather(own[own >= 0])
        return found


class DenseIndex(DiskIndex[Records, dict[int, Floats], _Vectors]):
    """Finds versions by the cosines of their sentence vectors."""

    kind, format, title, lock_name = "dense", 1, "the index of sentence vectors", "dense.lock"

    def __init__(
        self, folder: Path, store: OwnerStore, fingerprint: str, dimensions: int, *, tail_cap: int = 256
    ) -> None:
        super().__init__(folder, store, fingerprint, tail_cap=tail_cap)
        self.fingerprint = fingerprint
        self._file = AppendFile(self.path, "<f4", dimensions)
        self._bit_file = AppendFile(self.path / "bits", "u1", -(-dimensions // 8))
        self._placed: tuple[Columns, PlacedVectors] | None = None

    def over(self, columns: Columns, heads: Heads | None = None) -> PlacedVectors:
        """The vectors as of now by the entries of a catalog."""
        view, placed = self.view(heads), self._placed
        if placed is None or placed[0] is not columns or placed[1].vectors is not view:
            places = view.places(columns.slots)
            is_in_order = len(places) == len(view.file) and np.array_equal(places, np.arange(len(places)))
            placed = self._placed = (columns, PlacedVectors(view, places, is_in_order))
        return placed[1]

    def rebuild(self) -> None:
        """Write the files again from the store; unsound vectors leave the store, so that they are computed again."""
        self._store.vectors.drop(self._read_past(0)[1])
        super().rebuild()

    def damaged(self) -> int:
        """The number of records that differ from what was written, and of unsound vectors in the store."""
        epoch = self._store.epoch()
        return len(self._read_past(0)[1]) + self._file.damaged(epoch) + self._bit_file.damaged(epoch)

    def orphans(self, slots: Ints) -> int:
        """The number of records that belong to none of the store's slots: an erasure was interrupted."""
        return self._file.others(self._store.epoch(), slots)

    def close(self) -> None:
        """Release files and memory; the next read opens them again."""
        with self._mutex:
            super().close()
            self._placed = None

    def _position(self, heads: Heads) -> int:
        return heads.slot

    def _open(self, epoch: str) -> Records | None:
        return self._file.open(epoch)

    def _since(self, kept: Records | None) -> dict[int, Floats]:
        return self._read_past(kept.last_slot if kept else 0)[0]

    def _append(self, epoch: str, kept: Records | None) -> None:
        self._file.append(epoch, self._since(kept))
        self._append_bits(epoch)

    def _join(self, kept: Records | None, tail: dict[int, Floats]) -> _Vectors:
        known = kept.slots if kept else np.empty(0, dtype=np.int64)
        vectors = kept.values if kept else np.empty((0, self._file.width), dtype=np.float32)
        fresh = np.array(list(tail.values()), dtype=np.float32).reshape(-1, self._file.width)
        slots = np.concatenate([known, np.array(list(tail), dtype=np.int64)])
        bits = _by_uint64(np.concatenate([self._kept_bits(kept), _bits(fresh)])) if len(slots) > EXACT_LIMIT else None
        return _Vectors(slots, vectors, fresh, bits)

    def _kept_bits(self, records: Records | None) -> NDArray[np.uint8]:
        """The bits of the file's vectors; those that their own file lacks are computed."""
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
        """The store's sound vectors past a slot, and the slots of unsound ones: wrong size, not of length 1."""
        found: dict[int, Floats] = {}
        unsound: list[int] = []
        size = 4 * self._file.width
        while page := self._store.vectors.page(self.fingerprint, after=slot):
            whole = [(number, raw) for number, _, raw in page if len(raw) == size]
            vectors = np.frombuffer(b"".join(raw for _, raw in whole), dtype="<f4").reshape(-1, self._file.width)
            lengths = np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1))
            # NaN is not within the tolerance either.
            is_sound = np.abs(lengths - 1) <= TOLERANCE
            sound = {number: vectors[place] for place, (number, _) in enumerate(whole) if is_sound[place]}
            unsound += [number for number, _, _ in page if number not in sound]
            found |= sound
            slot = page[-1][0]
        return found, unsound

    def _append_bits(self, epoch: str) -> None:
        """Bring the file of bits up to the file of vectors."""
        records = self._file.open(epoch)
        if records is not None:
            known = len(self._sound_bits(records))
            if not known:
                shutil.rmtree(self._bit_file.path, ignore_errors=True)
            fresh = zip(records.slots[known:].tolist(), _bits(records.values[known:])[:, None], strict=True)
            self._bit_file.append(epoch, dict(fresh))


@dataclass(frozen=True, slots=True, eq=False)
class TokenVectors:
    """The records of the file, their order by slot, and what the file lacks."""

    records: Records | None
    order: Ints
    slots: Ints
    width: int
    tail: Mapping[int, Bits]

    def gather(self, slots: Ints) -> tuple[Bits, Ints]:
        """The token vectors of some slots in one array, and the count of each slot; 0 if there are none yet."""
        if not self.tail:
            return self._in_file(slots)
        pieces = [self.tail[slot] if slot in self.tail else self._in_file(np.array([slot]))[0] for slot in slots]
        counts = np.array([len(piece) for piece in pieces], dtype=np.int64)
        return np.concatenate([np.empty((0, self.width), dtype=np.uint8), *pieces]), counts

    def _in_file(self, slots: Ints) -> tuple[Bits, Ints]:
        records, known = self.records, self.slots
        if records is None or not len(known):
            return np.empty((0, self.width), dtype=np.uint8), np.zeros(len(slots), dtype=np.int64)
        at = np.minimum(np.searchsorted(known, slots), len(known) - 1)
        is_there = known[at] == slots
        place = self.order[at]
        counts = np.where(is_there, records.starts[place + 1] - records.starts[place], 0)
        return records.read(place[is_there]), counts


class TokenIndex(DiskIndex[Records, dict[int, Bits], TokenVectors]):
    """The token vectors of every embedded content.

    A store that keeps them is followed like any other. If it does not, there is no tail: the worker adds them, and
    computes missing ones again. Files of format 1, with int8 vectors, are converted by the first process that reads.
    """

    kind, format, title, lock_name = "tokens", 2, "the index of token vectors", "tokens.lock"

    def __init__(self, folder: Path, store: OwnerStore, fingerprint: str, dimensions: int) -> None:
        super().__init__(folder, store, fingerprint)
        self.fingerprint = fingerprint
        self._dimensions = dimensions
        self._file = AppendFile(self.path, "u1", bytes_of(dimensions))
        older = self.path.with_name(self.path.name.replace(f"{self.kind}-{self.format}", f"{self.kind}-1", 1))
        self._older = AppendFile(older, "i1", dimensions)
        self._whole: tuple[Ints, Records | None] | None = None

    def add(self, encodings: Mapping[int, Bits], *, wait: bool = True) -> None:
        """Append the token vectors of some slots; not of those that are there already or were erased meanwhile.

        Without `wait` nothing is added while another process is writing.
        """
        if not encodings:
            return
        with self._lock(None if wait else 0) as is_held:
            if is_held:
                epoch = self._store.epoch()
                records = self._file.open(epoch)
                fresh = np.setdiff1d(list(encodings), records.slots if records else [])
                # Read inside the lock: an erasure rewrites the file after this.
                standing = self._store.vectors.contents(fresh.tolist())
                self._file.append(epoch, {slot: encodings[slot] for slot in standing})

    def missing(self, slots: Ints, heads: Heads | None = None) -> Ints:
        """The slots whose token vectors are not in the file, each once; negative ones do not count."""
        if not len(slots):
            return slots
        view = self.view(heads)
        records, known = view.records, view.slots
        if self._whole is not None and self._whole[0] is slots and self._whole[1] is records:
            return np.empty(0, dtype=np.int64)
        is_there = np.isin(slots, list(view.tail)) if view.tail else np.zeros(len(slots), dtype=np.bool_)
        if records is not None and len(known):
            is_there |= known[np.minimum(np.searchsorted(known, slots), len(known) - 1)] == slots
        lost = distinct(slots[(slots >= 0) & ~is_there])
        # Every recall needs this: the same columns over the same file need no second comparison.
        self._whole = (slots, records) if not len(lost) else None
        return lost

    def damaged(self) -> int:
        """The number of records that differ from what was written."""
        epoch = self._store.epoch()
        return self._file.damaged(epoch) + self._older.damaged(epoch)

    def orphans(self, slots: Ints) -> int:
        """The number of records that belong to none of the store's slots: an erasure was interrupted."""
        epoch = self._store.epoch()
        return self._file.others(epoch, slots) + self._older.others(epoch, slots)

    def convert_rows(self, limit: int) -> int:
        """Turn rows of the store that hold int8 vectors into bits; returns how many there were."""

        def convert(raw: bytes) -> bytes | None:
            bits = from_row(raw, self._dimensions)
            return None if bits is None else to_row(bits)

        return self._store.vectors.convert_tokens(self.fingerprint, convert, limit)

    def _write_again(self) -> None:
        if self._store.vectors.keeps_tokens:
            super()._write_again()
            return
        epoch = self._store.epoch()
        known = slots_of(self._file.open(epoch)) | slots_of(self._older.open(epoch))
        # Only sound records, and only of contents that the store still has: what was erased leaves no byte.
        slots = set(self._store.vectors.contents(list(known)))
        kept = dict(self._converted(epoch, slots))
        kept |= {slot: np.array(bits) for slot, bits in sound_records(self._file.open(epoch), slots)}
        self._remove_files()
        self._file.append(epoch, kept)

    def _converted(self, epoch: str, slots: set[int]) -> Iterator[tuple[int, Bits]]:
        """The sound records of the file of format 1 for some slots, as bits."""
        return ((slot, packed(vectors)) for slot, vectors in sound_records(self._older.open(epoch), slots))

    def _position(self, heads: Heads) -> object:
        return self._file.state(), heads.slot if self._store.vectors.keeps_tokens else 0

    def _open(self, epoch: str) -> Records | None:
        return self._file.open(epoch)

    def _load(self, epoch: str) -> TokenVectors:
        if self._older.path.exists():
            # First, so that a large file is converted in pieces; if it cannot be written now, it is converted in RAM.
            self._has_caught_up()
        return super()._load(epoch)

    def _since(self, kept: Records | None) -> dict[int, Bits]:
        epoch = self._store.epoch()
        older = self._older.open(epoch)
        found = dict(self._converted(epoch, slots_of(older) - slots_of(kept)))
        slot = max(records.last_slot if records else 0 for records in (kept, older))
        while page := self._store.vectors.token_page(self.fingerprint, after=slot):
            made = {at: from_row(raw, self._dimensions) for at, raw in page}
            # What is damaged counts as missing and is computed again.
            found |= {at: bits for at, bits in made.items() if bits is not None}
            slot = page[-1][0]
        return found

    def _append(self, epoch: str, kept: Records | None) -> None:
        converted = self._converted(epoch, slots_of(self._older.open(epoch)) - slots_of(kept))
        while piece := dict(islice(converted, _CONVERTED_AT_ONCE)):
            self._file.append(epoch, piece)
        shutil.rmtree(self._older.path, ignore_errors=True)
        self._file.append(epoch, self._since(self._open(epoch)))

    def _join(self, kept: Records | None, tail: dict[int, Bits]) -> TokenVectors:
        slots = np.empty(0, dtype=np.int64) if kept is None else kept.slots
        order = np.argsort(slots, kind="stable")
        return TokenVectors(kept, order, slots[order], self._file.width, tail)


def compressed(text: str, encoding: Encoding) -> Bits:
    """The token vectors of a text, without stop words and punctuation where anything else is left, as bits."""
    is_kept = [_is_content_word(text[start:stop]) for start, stop in encoding.spans]
    tokens = encoding.tokens[is_kept] if any(is_kept) else encoding.tokens
    return packed(np.round(tokens * _SCALE).astype(np.int8))


def packed(vectors: NDArray[np.int8]) -> Bits:
    """Two bits per dimension, four dimensions a byte: its sign, and whether it is among the farthest from 0."""
    count, dimensions = vectors.shape
    # As many in every vector, so that all have the same length.
    farthest = np.argsort(-np.abs(vectors.astype(np.int16)), axis=1, kind="stable")[:, : _far(dimensions)]
    bits = np.zeros((count, 4 * bytes_of(dimensions), 2), dtype=np.bool_)
    bits[:, :dimensions, 0] = vectors >= 0
    np.put_along_axis(bits[:, :, 1], farthest, True, axis=1)
    return np.packbits(bits.reshape(count, 8 * bytes_of(dimensions)), axis=1)


def unpacked(bits: Bits) -> Floats:
    """Token vectors in floats, all of one length; `against_bits` makes the other side of a product."""
    return _LEVELS.take(bits, axis=0, mode="clip").reshape(len(bits), 4 * bits.shape[1])


def against_bits(tokens: Floats) -> Floats:
    """The tokens of a query as columns: unpacked bits times columns are cosines."""
    count, dimensions = tokens.shape
    length = sqrt(max(1, dimensions + (_FAR_LEVEL**2 - 1) * _far(dimensions)))
    columns = np.zeros((4 * bytes_of(dimensions), count), dtype=np.float32)
    columns[:dimensions] = tokens.T / np.float32(length)
    return columns


def best_cosines(bits: Bits, counts: Ints, tokens: Floats) -> Floats:
    """Per content, of which each has some token vectors in a row, and per token of a query the best cosine."""
    ends = np.cumsum(counts)
    starts, columns = ends - counts, against_bits(tokens)
    # Contents of a block stay in the processor's cache.
    borders = distinct(np.append(np.searchsorted(starts, np.arange(0, ends[-1], _BLOCK)), len(counts)))
    best = np.empty((len(counts), len(tokens)), dtype=np.float32)
    for first, last in pairwise(borders.tolist()):
        products = unpacked(bits[starts[first] : ends[last - 1]]) @ columns
        np.maximum.reduceat(products, starts[first:last] - starts[first], axis=0, out=best[first:last])
    return best


def distinct(values: Ints) -> Ints:
    """Each value once, in their order: `np.unique` without its import of masked arrays, which a start waits for."""
    ordered = np.sort(values)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def _far(dimensions: int) -> int:
    return round(_FAR_SHARE * dimensions)


def to_row(bits: Bits) -> bytes:
    """Token vectors as the value of a row."""
    return _BITS_MARK + bits.tobytes()


def from_row(raw: bytes, dimensions: int) -> Bits | None:
    """The token vectors in a row, which may still be int8; None if they are damaged."""
    width = bytes_of(dimensions)
    if raw[:1] == _BITS_MARK and len(raw) % width == 1:
        return np.frombuffer(raw, np.uint8, offset=1).reshape(-1, width)
    return packed(np.frombuffer(raw, np.int8).reshape(-1, dimensions)) if len(raw) % dimensions == 0 else None


def bytes_of(dimensions: int) -> int:
    """How many bytes the bits of one vector take: an even number."""
    return 2 * -(-dimensions // 8)


def _is_content_word(token: str) -> bool:
    return any(character.isalnum() for character in token) and token.lower() not in STOP_WORDS


def _is_cosine(numbers: Floats) -> NDArray[np.bool_]:
    """Whether numbers can be cosines; those of a damaged file may be anything, NaN included."""
    return np.abs(numbers) <= 1 + TOLERANCE


def _bits(vectors: Floats) -> NDArray[np.uint8]:
    """One bit per dimension, its sign."""
    return np.packbits(vectors > 0, axis=1)


def _by_uint64(bits: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """The bits as integers: the first 64 bits of all vectors, then the next 64."""
    return np.ascontiguousarray(np.pad(bits, ((0, 0), (0, -bits.shape[1] % 8))).view(np.uint64).T)


def _nearest_by_bits(bits: NDArray[np.uint64], vector: Floats, places: Ints | None) -> Ints:
    """Those of some places, or of all, whose vectors differ in the fewest bits."""
    distances = np.zeros(bits.shape[1], dtype=np.uint16)
    # One integer after the other over all vectors: sums over the few integers of each are far slower.
    for column, asked in zip(bits, _by_uint64(_bits(vector[None])), strict=True):
        distances += np.bitwise_count(column ^ asked)
    distance = distances if places is None else distances[places]
    # Distances are few: counting them takes a fraction of a partition. Those as far as the last one count too.
    farthest = np.bincount(distance).cumsum().searchsorted(BIT_CANDIDATES)
    return np.flatnonzero(distance <= farthest)


def highest(cosines: Floats, limit: int) -> tuple[Ints, Floats]:
    """The places of the highest cosines and these, best first, ties by place; what is no cosine is left out."""
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
