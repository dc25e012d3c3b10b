"""The dense leg: a ranking of what the index finds, completed by what another leg brought."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from triskele.base import timestamps
from triskele.index.catalog import Codes, Columns
from triskele.models.embed import Encoding
from triskele.recall.legs.dense import Nearness
from triskele.types import Query, Ranking, Scope

COSINES = np.array([0.1, 0.9, np.nan, 0.5, 0.9, -0.2], dtype=np.float32)


class Index:
    """Cosines that a test chose, by place; not a number where there is no vector."""

    def nearest(
        self, _: NDArray[np.float32], columns: Columns, mask: NDArray[np.bool_], limit: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        allowed = np.flatnonzero(mask & ~np.isnan(COSINES))
        best = allowed[np.argsort(-COSINES[allowed], kind="stable")][:limit]
        return best, COSINES[best]

    def cosines(self, _: NDArray[np.float32], columns: Columns, at: NDArray[np.int64]) -> NDArray[np.float32]:
        return COSINES[at]


@pytest.fixture
def columns() -> Columns:
    zeros = np.zeros(6, dtype=np.int64)
    importance = zeros.astype(np.float32)
    rows = np.arange(1, 7, dtype=np.int64) * 10
    return Columns(rows, zeros, zeros, importance, zeros, zeros, zeros, zeros, zeros, zeros, zeros, Codes())


ASKED = Encoding(
    np.ones(3, np.float32), np.empty((0, 3), np.float32), np.empty(0, np.int32), np.empty((0, 2), np.int32)
)


def _query(depth: int) -> Query:
    return Query(text="anything", scope=Scope(as_of=timestamps.now()), depth=depth)


def _near(depth: int, columns: Columns, mask: NDArray[np.bool_] | None = None) -> Nearness:
    index: Any = Index()
    return Nearness(_query(depth), ASKED, index, columns, np.ones(6, dtype=bool) if mask is None else mask)


def test_the_nearest_are_ranked_to_the_depth_asked_for(columns: Columns) -> None:
    ranking = _near(3, columns).rank()
    assert (ranking.leg, ranking.rows, ranking.ceiling) == ("dense", (20, 50, 40), 1.0)
    assert ranking.scores == pytest.approx((0.9, 0.9, 0.5))


def test_what_is_masked_is_not_ranked(columns: Columns) -> None:
    mask = np.array([True, False, True, True, False, True])
    assert _near(50, columns, mask).rank().rows == (40, 10, 60)


def test_what_another_leg_found_is_judged_by_meaning_too(columns: Columns) -> None:
    ranking = _near(1, columns).rank()
    completed = _near(1, columns).complete(ranking, np.array([10, 20, 30, 50, 60]))
    # Equal ones in the order of rows; the one without a vector stays out.
    assert completed.rows == (20, 50, 10, 60)
    assert completed.scores == pytest.approx((0.9, 0.9, 0.1, -0.2))


def test_a_ranking_that_has_everything_stays_as_it_is(columns: Columns) -> None:
    ranking = Ranking("dense", (20, 40), (0.9, 0.5))
    assert _near(1, columns).complete(ranking, np.array([40, 20])) is ranking
    assert _near(1, columns).complete(ranking, np.array([], dtype=np.int64)) is ranking
