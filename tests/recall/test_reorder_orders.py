"""Other orders for a finished ranking."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from triskele.recall.rerank import diverse, most_mentioned, nearest


def unit(*values: float) -> np.ndarray:
    found = np.array(values, dtype=np.float32)
    return found / np.linalg.norm(found)


# 1 and 2 say the same; 3 says something else and fits a little less.
VECTORS = {1: unit(1, 0, 0), 2: unit(1, 0.05, 0), 3: unit(0, 1, 0), 4: unit(0, 0, 1)}


def test_what_repeats_comes_later() -> None:
    assert diverse([1, 2, 3, 4], [1.0, 0.95, 0.9, 0.1], VECTORS, balance=0.6) == [1, 3, 2, 4]


def test_a_balance_of_one_keeps_the_order_and_of_zero_asks_for_variety_alone() -> None:
    rows, scores = [1, 2, 3, 4], [1.0, 0.95, 0.9, 0.1]
    assert diverse(rows, scores, VECTORS, balance=1.0) == rows
    assert diverse(rows, scores, VECTORS, balance=0.0) == [1, 3, 4, 2]


def test_a_row_without_a_vector_repeats_nothing() -> None:
    assert diverse([1, 2, 9], [1.0, 0.95, 0.9], VECTORS, balance=0.5) == [1, 9, 2]
    assert diverse([8, 9], [1.0, 0.5], {}) == [8, 9]


def test_opposites_are_no_more_different_than_strangers() -> None:
    vectors = {1: unit(1, 0), 2: unit(0, 1), 3: unit(-1, 0)}
    assert diverse([1, 2, 3], [1.0, 0.6, 0.5], vectors, balance=0.5) == [1, 2, 3]


def test_equal_scores_and_nothing() -> None:
    assert diverse([], [], {}) == []
    assert diverse([5, 4, 3], [0.0, 0.0, 0.0], {}) == [5, 4, 3]


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=20), st.floats(0, 1))
def test_nothing_is_lost_or_made_up(scores: list[float], balance: float) -> None:
    ordered = sorted(scores, reverse=True)
    rows = list(range(len(ordered)))
    found = diverse(rows, ordered, {row: unit(row % 3 + 1, row % 5, 1) for row in rows[::2]}, balance)
    assert sorted(found) == rows and found[0] == 0


def test_nearer_rows_come_first_and_unreachable_ones_last() -> None:
    assert nearest([1, 2, 3, 4, 5], {3: 0, 1: 2, 5: 2, 4: 90}) == [3, 1, 5, 4, 2]


def test_what_is_mentioned_more_comes_first() -> None:
    assert most_mentioned([1, 2, 3, 4], {4: 2, 2: 2, 3: 9}) == [3, 2, 4, 1]
