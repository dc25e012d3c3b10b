"""What each leg did, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from triskele.evaluation.tally import Found, Given, Tally, changing_legs, moments
from triskele.evaluation.windows import Window
from triskele.recall.fusion import Candidate, Contribution

ROWS = [Window(f"d{number // 2}", "", None, None, None, 0.5) for number in range(80)]


def candidate(row: int, **legs: tuple[int, float]) -> Candidate:
    parts = {leg: Contribution(rank, 10 * share, share, share) for leg, (rank, share) in legs.items()}
    return Candidate(row, sum(share for _, share in legs.values()), parts)


def test_legs_are_counted_over_documents() -> None:
    tally = Tally()
    fused = [
        candidate(0, lexical=(1, 0.5), dense=(1, 0.5)),
        candidate(1, lexical=(2, 0.4), dense=(2, 0.4)),
        candidate(2, lexical=(40, 0.1), dense=(3, 0.3)),
        candidate(4, lexical=(3, 0.2)),
    ]
    tally.add("q", fused, ROWS, frozenset({"d0", "d1", "d9"}))
    counted = tally.to_json()
    # The second window of d0 counts no second time.
    assert counted["overlap"] == pytest.approx({"dense": 1 / 3, "lexical": 1 / 3, "lexical+dense": 1 / 3})
    assert (counted["legs"]["dense"]["right"], counted["legs"]["dense"]["right_alone"]) == (2, 1)
    assert (counted["legs"]["lexical"]["right"], counted["legs"]["lexical"]["right_alone"]) == (1, 0)
    assert counted["legs"]["lexical"]["scores"]["mean"] == pytest.approx((5 + 1 + 2) / 3)
    assert tally.gold["q"] == {
        "d0": {"lexical": Given(1, 0.5), "dense": Given(1, 0.5)},
        "d1": {"lexical": Given(40, 0.1), "dense": Given(3, 0.3)},
    }


def test_a_leg_changes_the_top_or_does_not() -> None:
    base = [Found(f"d{rank}", 1 / rank, {"lexical": Given(rank, 1 / rank)}) for rank in range(1, 21)]
    lifted = [*base[:14], Found("d15", 0.5, {"lexical": Given(15, 1 / 15), "dense": Given(1, 0.5 - 1 / 15)})]
    assert list(changing_legs(base)) == []
    assert list(changing_legs(lifted)) == ["dense", "lexical"]
    idle = [*base[:14], Found("d15", 1 / 14.5, {"lexical": Given(15, 1 / 15), "dense": Given(1, 0.002)})]
    assert "dense" not in list(changing_legs(idle))
    brought = [*base[:14], Found("new", 0.5, {"dense": Given(1, 0.5)})]
    assert "dense" in list(changing_legs(brought))


def test_moments_agree_with_scipy() -> None:
    values = np.random.default_rng(2).gamma(0.7, size=500)
    found = moments(values)
    assert (found["n"], found["mean"]) == (500, pytest.approx(values.mean()))
    assert found["sd"] == pytest.approx(values.std())
    assert found["skew"] == pytest.approx(stats.skew(values))
    assert moments([0.3] * 7)["skew"] == 0


def test_an_arm_without_legs_has_nothing_to_count() -> None:
    tally = Tally()
    tally.add("q", (), ROWS, frozenset({"d0"}))
    assert tally.to_json()["legs"] == tally.to_json()["overlap"] == {}
