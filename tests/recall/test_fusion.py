from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from triskele.recall import fusion
from triskele.recall.fusion import METHODS, FusionConfig, textbook_fusion
from triskele.recall.scores import Candidate, Column, Ranking, Scores, unranked

LEGS = ("lexical", "dense", "graph")


def ranking(leg: str, scores: dict[int, float], ceiling: float = 10.0) -> Ranking:
    ordered = sorted(scores, key=lambda row: (-scores[row], row))
    return Ranking(
        leg, np.array(ordered, dtype=np.int64), np.array([scores[row] for row in ordered], dtype=np.float64), ceiling
    )


def fuse(method: str, rankings: Sequence[Ranking], weighing: FusionConfig | None = None) -> list[Candidate]:
    return textbook_fusion(method, rankings, weighing).ranked()


def score_maps(low: float = 0.01, high: float = 10.0) -> st.SearchStrategy[dict[int, float]]:
    return st.dictionaries(st.integers(1, 30), st.floats(low, high), max_size=12)


def order(method: str, *rankings: Ranking, weighing: FusionConfig | None = None) -> list[int]:
    return [candidate.row for candidate in fuse(method, rankings, weighing)]


def test_reciprocal_ranks_by_hand() -> None:
    fused = fuse("rrf", [ranking("lexical", {1: 9, 2: 5}), ranking("dense", {2: 0.8, 3: 0.1})])
    assert {c.row: c.score for c in fused} == pytest.approx({2: 1 / 62 + 1 / 61, 1: 1 / 61, 3: 1 / 62})
    assert [c.row for c in fused] == [2, 1, 3]


def test_a_leg_may_have_its_own_k() -> None:
    weighing = FusionConfig(weights={"lexical": 1.0, "dense": 1.0}, k={"dense": 10})
    (only,) = fuse("rrf", [ranking("dense", {7: 0.3})], weighing)
    assert only.score == pytest.approx(1 / 11)


def test_convex_combination_by_hand() -> None:
    fused = fuse("cc", [ranking("lexical", {1: 8, 2: 4}), ranking("dense", {1: 0.5, 3: 0.2})])
    expected = {1: 0.2 * 1 + 0.8 * 1, 2: 0.2 * 0.5, 3: 0.8 * (1.2 / 1.5)}
    assert {c.row: c.score for c in fused} == pytest.approx(expected)


def test_relative_scores_by_hand() -> None:
    fused = fuse("rsf", [ranking("lexical", {1: 8, 2: 4, 3: 0})])
    assert {c.row: c.score for c in fused} == pytest.approx({1: 0.4, 2: 0.2, 3: 0.0})


def test_distribution_based_scores_by_hand() -> None:
    fused = fuse("dbsf", [ranking("lexical", {1: 3, 2: 1})])
    # mean 2, population deviation 1: (s - (2 - 3)) / 6
    assert {c.row: c.score for c in fused} == pytest.approx({1: 0.4 * 4 / 6, 2: 0.4 * 2 / 6})
    (flat, _) = fuse("dbsf", [ranking("lexical", {1: 3, 2: 3})])
    assert flat.score == pytest.approx(0.4 * 0.5)


def test_distribution_based_scores_are_held_between_zero_and_one() -> None:
    outlier = ranking("lexical", dict.fromkeys(range(2, 40), 1.0) | {1: 1000.0})
    assert fuse("dbsf", [outlier])[0].parts["lexical"].normalised == 1.0


def test_saturation_by_hand() -> None:
    fused = fuse("sum", [ranking("lexical", {1: 4, 2: 12}), ranking("dense", {1: 0.5})])
    assert {c.row: c.score for c in fused} == pytest.approx({1: 0.25 * 0.5 + 0.75 * 0.5, 2: 0.25 * 0.75})


def test_standard_scores_by_hand() -> None:
    fused = fuse("zscore", [ranking("lexical", {1: 3, 2: 1})])
    assert {c.row: c.score for c in fused} == pytest.approx({1: 0.5 * 2, 2: 0.0})


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300))
def test_the_deviation_is_that_of_numpy_to_the_last_bit(values: list[float]) -> None:
    numbers = np.array(values)
    assert fusion._deviation(numbers) == numbers.std()


def test_share_of_the_ceiling_by_hand() -> None:
    (only,) = fuse("share", [Ranking("lexical", np.array([5]), np.array([6.0]), ceiling=12.0)])
    assert only.score == pytest.approx(0.2 * 0.5)


@pytest.mark.parametrize("method", METHODS)
@given(lexical=score_maps())
def test_words_alone_keep_their_exact_order(method: str, lexical: dict[int, float]) -> None:
    alone = ranking("lexical", lexical)
    assert order(method, alone, Ranking("dense"), Ranking("graph")) == alone.rows.tolist()


@pytest.mark.parametrize("method", METHODS)
@given(lexical=score_maps(), dense=score_maps(-1, 1), graph=score_maps())
def test_the_order_of_the_legs_does_not_matter(
    method: str, lexical: dict[int, float], dense: dict[int, float], graph: dict[int, float]
) -> None:
    legs = [ranking(leg, scores) for leg, scores in zip(LEGS, (lexical, dense, graph), strict=True)]
    assert fuse(method, legs) == fuse(method, legs[::-1])


@pytest.mark.parametrize("method", METHODS)
@given(lexical=score_maps(), dense=score_maps(-1, 1))
def test_weight_zero_is_the_same_as_no_leg(method: str, lexical: dict[int, float], dense: dict[int, float]) -> None:
    weighing = FusionConfig(weights={"lexical": 1.0, "dense": 0.0})
    legs = [ranking("lexical", lexical), ranking("dense", dense)]
    assert fuse(method, legs, weighing) == fuse(method, legs[:1], weighing)


@pytest.mark.parametrize("method", METHODS)
@given(lexical=score_maps(), dense=score_maps(-1, 1))
def test_every_score_is_the_sum_of_its_parts(method: str, lexical: dict[int, float], dense: dict[int, float]) -> None:
    for candidate in fuse(method, [ranking("lexical", lexical), ranking("dense", dense)]):
        assert candidate.score == pytest.approx(sum(part.contribution for part in candidate.parts.values()))
        assert all(part.contribution >= 0 for part in candidate.parts.values())


@pytest.mark.parametrize("method", METHODS)
@given(lexical=score_maps(), dense=score_maps(0, 1), raised=st.integers(1, 30))
def test_a_better_rank_in_one_leg_never_hurts(
    method: str, lexical: dict[int, float], dense: dict[int, float], raised: int
) -> None:
    if raised not in dense or method in {"cc", "rsf", "dbsf", "zscore"}:
        return
    legs = [ranking("lexical", lexical), ranking("dense", dense)]
    better = [legs[0], ranking("dense", dense | {raised: 1.0})]
    before = {c.row: c.score for c in fuse(method, legs)}
    after = {c.row: c.score for c in fuse(method, better)}
    assert after[raised] >= before[raised] - 1e-12


@pytest.mark.parametrize("method", ["rrf", "rsf", "dbsf", "zscore"])
@given(lexical=score_maps(), dense=score_maps(0.01, 1), factor=st.floats(0.5, 20))
def test_the_scale_of_a_leg_does_not_matter(
    method: str, lexical: dict[int, float], dense: dict[int, float], factor: float
) -> None:
    plain = fuse(method, [ranking("lexical", lexical), ranking("dense", dense)])
    scaled = ranking("lexical", {row: score * factor for row, score in lexical.items()})
    rescaled = {c.row: c.score for c in fuse(method, [scaled, ranking("dense", dense)])}
    assert {c.row: c.score for c in plain} == pytest.approx(rescaled, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_nothing_in_nothing_out(method: str) -> None:
    assert fuse(method, []) == []
    assert fuse(method, [Ranking("lexical")]) == []


def test_the_depth_cuts_every_leg() -> None:
    weighing = FusionConfig(weights=METHODS["rrf"].weights, depth=2)
    assert order("rrf", ranking("lexical", {1: 3, 2: 2, 3: 1}), weighing=weighing) == [1, 2]


NUMBERS = st.one_of(st.just(float("nan")), st.sampled_from([-0.5, 0.0, 0.25, 0.5, 1.0]))


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=12))
# A leg that has scored neither of two equal sums tells nothing of their order.
@example([(float("nan"), -0.5, 0.0), (float("nan"), 0.0, 0.0)])
def test_a_table_fuses_as_rankings_do(scores: list[tuple[float, float, float]]) -> None:
    rows, weights = np.arange(10, 10 + len(scores)), {"lexical": 0.5, "dense": 0.25, "late": 0.0}
    columns = [Column(leg, np.array([each[at] for each in scores]), weights[leg]) for at, leg in enumerate(weights)]
    rankings = []
    for column in columns:
        listed = sorted((-score, row) for row, score in zip(rows.tolist(), column.raw, strict=True) if score == score)
        rankings.append(ranking(column.name, {row: -score for score, row in listed}, ceiling=1.0))
    table = Scores(rows, tuple(columns))
    by_rankings = [
        each._replace(parts=dict(each.parts)) for each in fuse("share", rankings, FusionConfig(weights=weights))
    ]
    assert [each._replace(parts=dict(each.parts)) for each in table.ranked()] == by_rankings
    for candidate, plain, bare in zip(table.ranked(), by_rankings, unranked(table.ranked()), strict=True):
        assert {leg for leg in weights if leg in candidate.parts} == plain.parts.keys()
        assert len(candidate.parts) == len(plain.parts) and "late" not in candidate.parts
        assert bare.parts == {leg: part._replace(rank=0) for leg, part in plain.parts.items()}
