"""Paired comparisons: what is better by construction is called so, what is the same never is."""

from __future__ import annotations

import numpy as np
import pytest

from triskele.bench import comparison, metrics

QUERIES = 120


def scores(values: np.ndarray) -> dict[str, np.ndarray]:
    return {name: values.copy() for name in metrics.METRICS}


@pytest.fixture
def baseline() -> np.ndarray:
    return np.random.default_rng(3).choice([0.0, 0.5, 1.0], size=QUERIES)


def test_better_by_construction(baseline: np.ndarray) -> None:
    better = baseline.copy()
    better[:30] = np.minimum(1, baseline[:30] + 0.5)
    strata = {"overall": range(QUERIES), "moved": range(30), "still": range(30, QUERIES)}
    found = comparison.compare({"old": scores(baseline), "new": scores(better)}, "old", strata, seed=7)
    by_stratum = {one.stratum: one for one in found if one.metric == "ndcg@10"}
    overall = by_stratum["overall"]
    assert (overall.a, overall.b, overall.n) == ("new", "old", QUERIES)
    assert overall.delta == pytest.approx((better - baseline).mean())
    assert 0 < overall.ci95[0] < overall.delta < overall.ci95[1]
    assert overall.p <= overall.p_holm < 0.01
    assert by_stratum["still"].delta == 0
    assert by_stratum["still"].p == by_stratum["still"].p_holm == 1


def test_identical_arms_do_not_differ(baseline: np.ndarray) -> None:
    arms = {"old": scores(baseline), "new": scores(baseline)}
    for one in comparison.compare(arms, "old", {"overall": range(QUERIES)}, seed=7):
        assert (one.delta, one.ci95, one.p, one.p_holm) == (0, (0, 0), 1, 1)


def test_agrees_with_scipy(baseline: np.ndarray) -> None:
    # Imported here: it takes a second.
    from scipy import stats

    rng = np.random.default_rng(5)
    differences = rng.choice([-0.5, 0.0, 0.0, 0.5, 1.0], size=(2, 60))
    for row, ours in zip(differences, comparison.paired(differences, seed=1), strict=True):
        bootstrap = stats.bootstrap((row,), np.mean, n_resamples=10_000, rng=2).confidence_interval
        assert ours.ci95 == pytest.approx((bootstrap.low, bootstrap.high), abs=0.02)
        flipped = stats.permutation_test((row,), np.mean, permutation_type="samples", n_resamples=10_000, rng=2)
        assert ours.p == pytest.approx(flipped.pvalue, abs=0.02)


def test_skewed_differences_have_the_interval_that_scipy_gives() -> None:
    # Imported here: it takes a second.
    from scipy import stats

    row = np.random.default_rng(9).gamma(0.2, size=40)
    (ours,) = comparison.paired(row[None], seed=1, resamples=40_000)
    theirs = stats.bootstrap((row,), np.mean, n_resamples=40_000, batch=1000, rng=2).confidence_interval
    plain = stats.bootstrap((row,), np.mean, n_resamples=40_000, batch=1000, rng=2, method="percentile")
    assert ours.ci95 == pytest.approx((theirs.low, theirs.high), rel=0.02)
    assert abs(ours.ci95[1] - plain.confidence_interval.high) > 0.01


def test_small_and_constant_groups_have_an_answer() -> None:
    one, two = comparison.paired(np.array([[0.5], [0.0]]), seed=1)
    assert (one.delta, one.ci95, one.p) == (0.5, (0.5, 0.5), 1)
    assert two.p == 1
    (nearly,) = comparison.paired(np.array([[0.0, 0.0, 1.0]]), seed=1)
    assert nearly.ci95[0] <= nearly.delta <= nearly.ci95[1]


def test_the_same_seed_gives_the_same_answer(baseline: np.ndarray) -> None:
    rows = (np.roll(baseline, 1) - baseline)[None]
    assert comparison.paired(rows, seed=4) == comparison.paired(rows, seed=4)
    assert comparison.paired(rows, seed=4) != comparison.paired(rows, seed=5)


@pytest.mark.parametrize("n", [60, 200])
def test_false_alarms_are_rare(n: int) -> None:
    rng = np.random.default_rng(17)
    # Every row is a comparison of two arms that differ by chance alone: 1,000 of them, with 2,000 resamples each.
    differences = rng.choice([-1.0, -0.5, 0.0, 0.0, 0.0, 0.5, 1.0], size=(1000, n))
    found = comparison.paired(differences, seed=7, resamples=2000)
    assert sum(one.p < 0.05 for one in found) <= 80
    assert sum(one.ci95[0] > 0 or one.ci95[1] < 0 for one in found) <= 80


def test_the_smallest_noticeable_difference_is_noticed_four_times_in_five() -> None:
    rng = np.random.default_rng(23)
    n, spread = 100, 0.4
    smallest = (1.959964 + 0.841621) * spread / n**0.5
    differences = rng.normal(smallest, spread, size=(1000, n))
    found = comparison.paired(differences, seed=7, resamples=1000)
    assert np.mean([one.mde for one in found]) == pytest.approx(smallest, rel=0.02)
    assert 0.76 <= np.mean([one.p < 0.05 for one in found]) <= 0.84


def test_one_question_notices_nothing_and_few_are_marked() -> None:
    assert comparison.detectable(np.array([[0.5]])) == [None]
    values = np.linspace(0, 1, QUERIES)
    arms = {"old": scores(values), "new": scores(values[::-1].copy())}
    strata = {"few": range(49), "enough": range(50)}
    found = {one.stratum: one.underpowered for one in comparison.compare(arms, "old", strata, seed=7)}
    assert found == {"few": True, "enough": False}


def test_other_arms_change_nothing_of_an_arm(baseline: np.ndarray) -> None:
    arms = {"old": scores(baseline), "new": scores(np.roll(baseline, 1)), "third": scores(np.roll(baseline, 7))}
    strata = {"overall": range(QUERIES)}
    alone = comparison.compare({name: arms[name] for name in ("old", "new")}, "old", strata, seed=7)
    beside = [one for one in comparison.compare(arms, "old", strata, seed=7) if one.a == "new"]
    assert [(one.delta, one.p, one.mde) for one in alone] == [(one.delta, one.p, one.mde) for one in beside]
    assert [one.ci95 for one in alone] == [pytest.approx(one.ci95) for one in beside]


def test_holm_by_hand() -> None:
    assert comparison.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert comparison.holm([0.9, 0.8]) == [1, 1]
    assert comparison.holm([]) == []
