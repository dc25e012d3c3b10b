"""The dense leg: memories whose meaning lies near the question's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from triskele.index.catalog import Catalog, Columns, Ints
from triskele.index.dense import DenseIndex
from triskele.models.embed.protocol import Encoding
from triskele.types import Query, Ranking

NAME = "dense"
_SAME = 1e-6

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class HostedVectors:
    """The question as a hosted model reads it, and what that model said about the memories that it may read."""

    vector: Floats
    index: DenseIndex
    catalog: Catalog

    def nearest(self, query: Query) -> Ints:
        """The rows nearest to the question inside its scope."""
        columns = self.catalog.columns()
        at, _ = self.index.nearest(self.vector, columns, columns.mask(query.scope), query.depth)
        return columns.rows[at]

    def cosines(self, rows: Ints) -> Floats:
        """The cosines of some rows; not a number where the model has not read one."""
        columns = self.catalog.columns()
        found = np.full(len(rows), np.nan, dtype=np.float32)
        known = columns.holds(rows)
        found[known] = self.index.cosines(self.vector, columns, columns.find(rows[known]))
        return found


@dataclass(frozen=True, eq=False)
class Nearness:
    """How near memories are to a question: by the local model, or by both where a hosted one was asked too.

    The hosted model's cosines are brought to the spread of the local one's, so that a memory that it may not read is
    judged on the same scale.
    """

    query: Query
    asked: Encoding
    index: DenseIndex
    columns: Columns
    mask: NDArray[np.bool_]
    elsewhere: HostedVectors | None = None

    def rank(self) -> Ranking:
        """The candidates nearest to the question inside its scope."""
        if self.elsewhere is None:
            at, cosines = self.index.nearest(self.asked.sentence, self.columns, self.mask, self.query.depth)
            return _ranking(self.columns.rows[at], cosines)
        found = _ranking(self._candidates, self._both(self._candidates))
        depth = self.query.depth
        return Ranking(NAME, found.rows[:depth], found.scores[:depth], ceiling=1.0)

    def complete(self, ranking: Ranking, rows: Ints) -> Ranking:
        """The same ranking with the cosines of more rows: what another leg found is judged by meaning too."""
        more = np.setdiff1d(rows, ranking.rows, assume_unique=True)
        if not len(more):
            return ranking
        cosines = self._local(more) if self.elsewhere is None else self._both(more)
        embedded = ~np.isnan(cosines)
        everyone = np.concatenate([np.array(ranking.rows, dtype=np.int64), more[embedded]])
        return _ranking(everyone, np.concatenate([np.array(ranking.scores), cosines[embedded]]))

    @cached_property
    def _candidates(self) -> Ints:
        assert self.elsewhere is not None
        at, _ = self.index.nearest(self.asked.sentence, self.columns, self.mask, self.query.depth)
        theirs = self.elsewhere.nearest(self.query)
        found = np.union1d(self.columns.rows[at], theirs[self.columns.holds(theirs)])
        return found[~np.isnan(self._local(found))]

    @cached_property
    def _scale(self) -> tuple[float, float] | None:
        """By what the hosted model's cosines are multiplied, and what is added; None where nothing can be compared."""
        assert self.elsewhere is not None
        here, there = self._local(self._candidates), self.elsewhere.cosines(self._candidates)
        both = ~np.isnan(there)
        spread = float(there[both].std()) if both.sum() > 1 else 0.0
        if spread < _SAME:
            return None
        times = float(here[both].std()) / spread
        return times, float(here[both].mean()) - times * float(there[both].mean())

    def _both(self, rows: Ints) -> Floats:
        assert self.elsewhere is not None
        here = self._local(rows)
        if self._scale is None:
            return here
        there = self.elsewhere.cosines(rows) * self._scale[0] + self._scale[1]
        return np.where(np.isnan(there), here, (here + np.clip(there, -1, 1)) / 2).astype(np.float32)

    def _local(self, rows: Ints) -> Floats:
        return self.index.cosines(self.asked.sentence, self.columns, self.columns.find(rows))


def _ranking(rows: Ints, cosines: Floats | NDArray[np.float64]) -> Ranking:
    order = np.lexsort((rows, -cosines))
    return Ranking(NAME, tuple(rows[order].tolist()), tuple(cosines[order].tolist()), ceiling=1.0)
