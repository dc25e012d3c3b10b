"""Confidence against questions without an answer, by hand."""

from __future__ import annotations

import pytest

from triskele.evaluation.abstention import abstention, auroc


def test_the_area_counts_pairs() -> None:
    assert auroc([0.9, 0.8], [0.1, 0.2]) == 1
    assert auroc([0.1], [0.9]) == 0
    assert auroc([0.5, 0.9], [0.5, 0.1]) == pytest.approx((0.5 + 1 + 1 + 1) / 4)


def test_precision_is_said_for_equally_many_of_both() -> None:
    found = abstention([0.9, 0.7, 0.5, 0.2], {"unanswerable": [0.6, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.6]})
    assert (found["threshold"], found["answerable"]) == (0.5, 4)
    kind = found["kinds"]["unanswerable"]
    assert (kind["n"], kind["coverage"]) == (8, 0.75)
    assert kind["precision"] == pytest.approx(0.75 / (0.75 + 0.25))


def test_where_nothing_is_kept_there_is_no_precision() -> None:
    assert abstention([0.1], {"adversarial": [0.2]})["kinds"]["adversarial"]["precision"] is None
