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
    more = np.setdiff1d(rows, ranking.rows, assume_unique=True)
    if not len(more):
        return ranking
    cosines = index.cosines(asked.sentence, columns, columns.find(more))
    embedded = ~np.isnan(cosines)
    everyone = np.concatenate([np.array(ranking.rows, dtype=np.int64), more[embedded]])
    scores = np.concatenate([np.array(ranking.scores), cosines[embedded]])
    order = np.lexsort((everyone, -scores))
    return Ranking(NAME, tuple(everyone[order].tolist()), tuple(scores[order].tolist()), ceiling=1.0)
