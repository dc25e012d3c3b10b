"""The dense leg: a ranking of what the corpus finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from triskele.models.embedder import Encoding
from triskele.recall import legs
from triskele.recall.plan import Plan
from triskele.recall.question import Question
from triskele.recall.scores import Ranking
from triskele.text import timestamps
from triskele.types import Query, Scope

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
COSINES = {10: 0.1, 20: 0.9, 40: 0.5, 50: 0.9, 60: -0.2}


class Cosines:
    """Cosines that a test chose, by row; NaN for all others."""

    def __init__(self, cosines: dict[int, float]) -> None:
        self.known = cosines

    def nearest(self, limit: int) -> tuple[Ints, Floats]:
        best = sorted(self.known, key=lambda row: (-self.known[row], row))[:limit]
        return np.array(best, dtype=np.int64), self.cosines(np.array(best, dtype=np.int64))

    def cosines(self, rows: Ints) -> Floats:
        return np.array([self.known.get(row, np.nan) for row in rows.tolist()], dtype=np.float32)


ASKED = Encoding(
    np.ones(3, np.float32), np.empty((0, 3), np.float32), np.empty(0, np.int32), np.empty((0, 2), np.int32)
)


def dense(depth: int, cosines: dict[int, float] = COSINES, hosted: Any = None, also: tuple[int, ...] = ()) -> Ranking:
    query = Query(text="anything", scope=Scope(as_of=timestamps.now()), depth=depth)
    corpus: Any = Cosines(cosines)
    question = Question(query, Plan(), encoding=ASKED, hosted=hosted)
    return legs.dense(question, corpus, Ranking("lexical", np.array(also, dtype=np.int64)))


def test_the_nearest_are_ranked_to_the_depth_asked_for() -> None:
    ranking = dense(3)
    assert (ranking.leg, ranking.rows.tolist(), ranking.ceiling) == ("dense", [20, 50, 40], 1.0)
    assert ranking.scores == pytest.approx((0.9, 0.9, 0.5))


def test_what_is_not_similar_counts_only_where_its_words_match() -> None:
    assert dense(50).rows.tolist() == [20, 50, 40, 10]
    assert dense(50, also=(60,)).rows.tolist() == [20, 50, 40, 10, 60]


def test_hosted_cosines_count_half_on_the_scale_of_the_local_ones() -> None:
    # Twice the spread, and no vector for row 50: its local cosine stands alone.
    theirs: Any = Cosines({10: 0.4, 20: -0.4, 40: 0.0})
    here: Any = Cosines({10: 0.5, 20: 0.1, 40: 0.3, 50: 0.45})
    mixed, _ = legs._with_hosted(here, theirs, np.array([10, 20, 40, 50]), 50)
    assert mixed.scale == pytest.approx((0.5, 0.3))
    ranking = dense(50, here.known, theirs)
    assert dict(zip(ranking.rows.tolist(), ranking.scores, strict=True)) == pytest.approx(
        {10: 0.5, 20: 0.1, 40: 0.3, 50: 0.45}
    )


def test_a_hosted_model_brings_candidates_of_its_own() -> None:
    theirs: Any = Cosines({30: 0.9, 40: 0.1, 99: 0.8})
    ranking = dense(1, {20: 0.6, 30: 0.2, 40: 0.5}, theirs)
    # Row 99 has no local vector; of the others the best stays.
    assert len(ranking.rows) == 1 and ranking.rows[0] in (20, 30)
