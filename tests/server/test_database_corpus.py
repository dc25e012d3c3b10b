"""How the corpus inside a database looks for vectors: by the index with a list of some length, or one by one."""

from __future__ import annotations

import pytest

from triskele.server.corpus import EXACT_LIMIT, is_quicker_exactly, search_list
from triskele.store.corpus_protocol import ScopeSize


@pytest.mark.parametrize(
    ("versions", "vectors", "expected"),
    [
        (6_000, 6_000, 220),
        (10_000, 10_000, 250),
        (30_000, 30_000, 433),
        (100_000, 100_000, 791),
        (90_000, 100_000, 833),
        (30_000, 100_000, 1000),
        (1_000_000, 1_000_000, 1000),
    ],
)
def test_search_list_grows_with_vectors_and_narrow_scopes(versions: int, vectors: int, expected: int) -> None:
    assert search_list(ScopeSize(versions, vectors), 110) == expected


def test_search_list_is_twice_the_limit_within_bounds() -> None:
    assert search_list(ScopeSize(10_000, 10_000), 300) == 600
    assert search_list(ScopeSize(10_000, 10_000), 900) == 1000
    assert search_list(ScopeSize(0, 10_000), 110) == 1000
    # The nearest of all needs no long list.
    assert search_list(ScopeSize(100_000, 100_000), 2) == 200
    assert search_list(ScopeSize(100_000, 100_000), 25) == 395


@pytest.mark.parametrize(
    ("versions", "vectors", "expected"),
    [
        (EXACT_LIMIT, 5_000, True),
        # A hundredth, and a twentieth.
        (1_000, 100_000, True),
        (5_000, 100_000, True),
        (5_001, 100_000, False),
        (100_000, 100_000, False),
        # An owner among many: the index would visit ninety vectors of others for one of theirs.
        (11_000, 1_000_000, True),
        (20_000, 1_000_000, False),
    ],
)
def test_is_quicker_exactly_for_narrow_scopes(versions: int, vectors: int, expected: bool) -> None:
    assert is_quicker_exactly(ScopeSize(versions, vectors), 110) is expected
