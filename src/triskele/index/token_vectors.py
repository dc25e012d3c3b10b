"""The token vectors of one model, for late interaction: two bits per dimension, without stop words and punctuation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from triskele.index.corpus import Bits, Floats, Ints
from triskele.index.lifecycle import ArrayIndex, Records, sound_records
from triskele.models.embedder import Encoding
from triskele.store.owner import OwnerStore
from triskele.store.values import Heads
from triskele.text.words import STOP_WORDS

# Token vectors are rounded to int8 first, which decides between dimensions that are about as far from 0.
_SCALE = 127.0
# Of normally distributed numbers this share is more than a deviation from 0, and this much larger than the others.
_FAR_SHARE, _FAR_LEVEL = 0.32, 10 / 3
# Per byte the levels of its four dimensions.
_PAIRS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
_LEVELS = (np.where(_PAIRS[:, ::2], 1, -1) * np.where(_PAIRS[:, 1::2], _FAR_LEVEL, 1)).astype(np.float32)
# The first byte of a row: a text without token vectors has a row too.
_MARK = b"\x02"
_BLOCK = 512


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
        position = self.order[at]
        counts = np.where(is_there, records.starts[position + 1] - records.starts[position], 0)
        return records.read(position[is_there]), counts


class TokenIndex(ArrayIndex[dict[int, Bits], TokenVectors]):
    """The token vectors of every embedded content.

    A store that keeps them is followed like any other. If it does not, there is no tail: the worker adds them, and
    computes missing ones again.
    """

    kind, format, title, lock_name = "tokens", 1, "the index of token vectors", "tokens.lock"
    follows = ("slot",)
    watches_files = True

    def __init__(self, folder: Path, store: OwnerStore, fingerprint: str, dimensions: int) -> None:
        super().__init__(folder, store, "u1", bytes_of(dimensions), fingerprint)
        self.fingerprint = fingerprint
        self._dimensions = dimensions
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

    def orphans(self, slots: Ints) -> int:
        """The number of records that belong to none of the store's slots: an erasure was interrupted."""
        return self._file.others(self._store.epoch(), slots)

    def _write_again(self) -> None:
        if self._store.vectors.keeps_tokens:
            super()._write_again()
            return
        epoch = self._store.epoch()
        records = self._file.open(epoch)
        # Only sound records, and only of contents that the store still has: what was erased leaves no byte.
        slots = set(self._store.vectors.contents([] if records is None else records.slots.tolist()))
        kept = {slot: np.array(bits) for slot, bits in sound_records(records, slots)}
        self._remove_files()
        self._file.append(epoch, kept)

    def _since(self, kept: Records | None) -> dict[int, Bits]:
        found: dict[int, Bits] = {}
        slot = kept.last_slot if kept else 0
        while page := self._store.vectors.token_page(self.fingerprint, after=slot):
            made = {at: from_row(raw, self._dimensions) for at, raw in page}
            # What is damaged counts as missing and is computed again.
            found |= {at: bits for at, bits in made.items() if bits is not None}
            slot = page[-1][0]
        return found

    def _append(self, epoch: str, kept: Records | None) -> None:
        self._file.append(epoch, self._since(kept))

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
    return _MARK + bits.tobytes()


def from_row(raw: bytes, dimensions: int) -> Bits | None:
    """The token vectors in a row; None if they are damaged."""
    width = bytes_of(dimensions)
    if raw[:1] != _MARK or len(raw) % width != 1:
        return None
    return np.frombuffer(raw, np.uint8, offset=1).reshape(-1, width)


def bytes_of(dimensions: int) -> int:
    """How many bytes the bits of one vector take: an even number."""
    return 2 * -(-dimensions // 8)


def _is_content_word(token: str) -> bool:
    return any(character.isalnum() for character in token) and token.lower() not in STOP_WORDS
