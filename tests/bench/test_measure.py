"""What each leg did, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from triskele.bench.measure import LegRank, LegStatistics, RankedDocument, changing_legs, moments
from triskele.types import LegEvidence


def ranked(document: str, **legs: tuple[int, float]) -> RankedDocument:
    evidence = {
        leg: LegEvidence(rank=rank, score=10 * share, normalised=share, contribution=share)
        for leg, (rank, share) in legs.items()
    }
    relevance = sum(share for _, share in legs.values())
    return RankedDocument(document, 0.9 * relevance, relevance, evidence)


def test_legs_are_counted_over_documents() -> None:
    statistics = LegStatistics()
    ranking = [
        ranked("d0", lexical=(1, 0.5), dense=(1, 0.5)),
        ranked("d0", lexical=(2, 0.4), dense=(2, 0.4)),
        ranked("d1", lexical=(40, 0.1), dense=(3, 0.3)),
        ranked("d2", lexical=(3, 0.2)),
    ]
    statistics.add("q", ranking, frozenset({"d0", "d1", "d9"}))
    counted = statistics.to_json()
    # The second window of d0 counts no second time.
    assert counted["overlap"] == pytest.approx({"dense": 1 / 3, "lexical": 1 / 3, "lexical+dense": 1 / 3})
    assert (counted["legs"]["dense"]["right"], counted["legs"]["dense"]["right_alone"]) == (2, 1)
    assert (counted["legs"]["lexical"]["right"], counted["legs"]["lexical"]["right_alone"]) == (1, 0)
    assert counted["legs"]["lexical"]["scores"]["mean"] == pytest.approx((5 + 1 + 2) / 3)
    assert statistics.relevant["q"] == {
        "d0": {"lexical": LegRank(1, 0.5), "dense": LegRank(1, 0.5)},
        "d1": {"lexical": LegRank(40, 0.1), "dense": LegRank(3, 0.3)},
    }


def test_a_leg_changes_the_top_or_does_not() -> None:
    base = [ranked(f"d{rank}", lexical=(rank, 1 / rank)) for rank in range(1, 21)]
    lifted = [*base[:14], ranked("d15", lexical=(15, 1 / 15), dense=(1, 0.5 - 1 / 15))]
    assert list(changing_legs(base)) == []
    assert list(changing_legs(lifted)) == ["dense", "lexical"]
    idle = [*base[:14], ranked("d15", lexical=(15, 1 / 15), dense=(1, 0.002))]
    assert "dense" not in list(changing_legs(idle))
    brought = [*base[:14], ranked("new", dense=(1, 0.5))]
    assert "dense" in list(changing_legs(brought))


def test_moments_agree_with_scipy() -> None:
    # Imported here: it takes a second.
    from scipy import stats

    values = np.random.default_rng(2).gamma(0.7, size=500)
    found = moments(values)
    assert (found["n"], found["mean"]) == (500, pytest.approx(values.mean()))
    assert found["sd"] == pytest.approx(values.std())
    assert found["skew"] == pytest.approx(stats.skew(values))
    assert moments([0.3] * 7)["skew"] == 0


def test_an_arm_without_legs_has_nothing_to_count() -> None:
    statistics = LegStatistics()
    statistics.add("q", (), frozenset({"d0"}))
    assert statistics.to_json()["legs"] == statistics.to_json()["overlap"] == {}
