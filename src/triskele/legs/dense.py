"""The dense leg: memories whose meaning lies near the question's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from triskele.embed.protocol import Encoding
from triskele.index.catalog import Columns, Ints
from triskele.index.dense import DenseIndex
from triskele.types import Query, Ranking

NAME = "dense"


def rank(query: Query, asked: Encoding, index: DenseIndex, columns: Columns, mask: NDArray[np.bool_]) -> Ranking:
    """The candidates nearest to the question inside its scope."""
    at, cosines = index.nearest(asked.sentence, columns, mask, query.depth)
    return Ranking(NAME, tuple(columns.rows[at].tolist()), tuple(cosines.tolist()), ceiling=1.0)


def complete(ranking: Ranking, rows: Ints, asked: Encoding, index: DenseIndex, columns: Columns) -> Ranking:
    """The same ranking with the cosines of more rows, so that what another leg found is judged by meaning too."""
    known = set(ranking.rows)
    more = np.array([row for row in rows.tolist() if row not in known], dtype=np.int64)
    if not len(more):
        return ranking
    at = columns.find(more)
    cosines = index.cosines(asked.sentence, columns, at)
    embedded = ~np.isnan(cosines)
    pairs = [*zip(ranking.rows, ranking.scores, strict=True)]
    pairs += zip(more[embedded].tolist(), cosines[embedded].tolist(), strict=True)
    pairs.sort(key=lambda pair: (-pair[1], pair[0]))
    return Ranking(NAME, tuple(row for row, _ in pairs), tuple(score for _, score in pairs), ceiling=1.0)
