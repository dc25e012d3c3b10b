"""The bipartite graph of memories and the concepts that they mention, as compressed rows in both directions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


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

    def counts(self, numbers: Ints) -> Ints:
        """The number of neighbours of each node."""
        size = len(self.starts) - 1
        known = np.minimum(numbers, size)
        counts: Ints = self.starts[np.minimum(known + 1, size)] - self.starts[known]
        return counts

    def of(self, numbers: Ints, most: int | None = None) -> tuple[Ints, Ints, Bools]:
        """The position in `numbers`, the neighbour and its mark, for at most `most` neighbours of each node."""
        size = len(self.starts) - 1
        begins = self.starts[np.minimum(numbers, size)]
        counts = self.counts(numbers)
        if most is not None:
            counts = np.minimum(counts, most)
        owner = np.repeat(np.arange(len(numbers)), counts)
        place = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts) + begins[owner]
        return owner, self.others[place], self.marks[place]


@dataclass(frozen=True, slots=True, eq=False)
class Bipartite:
    """Memories by row, concepts by number; a mark means that the concept is the memory's subject."""

    concepts: Side
    holders: Side
    owned: Ints

    @staticmethod
    def build(rows: Ints, concepts: Ints, is_subject: Bools) -> Bipartite:
        """Build the graph from mentions; a concept that a memory mentions under several names counts once."""
        width = int(concepts.max(initial=-1)) + 1
        codes, place = np.unique(rows * width + concepts, return_inverse=True)
        marks = np.bincount(place, is_subject, len(codes)) > 0
        rows, concepts = np.divmod(codes, max(width, 1))
        holders = Side.build(concepts, rows, marks)
        owned = np.bincount(concepts, marks, width).astype(np.int64)
        return Bipartite(Side.build(rows, concepts, marks), holders, owned)

    def commonness(self, concepts: Ints) -> tuple[Ints, Ints]:
        """How many memories mention each concept, and how many have it for a subject."""
        return self.holders.counts(concepts), self.owners(concepts)

    def owners(self, concepts: Ints) -> Ints:
        """How many memories have each concept as their subject."""
        if not len(self.owned):
            return np.zeros(len(concepts), dtype=np.int64)
        return np.where(concepts < len(self.owned), self.owned[np.minimum(concepts, len(self.owned) - 1)], 0)
