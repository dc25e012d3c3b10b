"""The plans for long texts and batches."""

from __future__ import annotations

from itertools import pairwise

import pytest

from triskele.models.bundled import bundled
from triskele.models.inference import TokenWindow, batches, cut


@pytest.mark.parametrize("tokens", [0, 1, 253, 254])
def test_a_text_that_fits_is_one_window(tokens: int) -> None:
    assert cut(3, tokens, 254) == [TokenWindow(3, 0, tokens)]


@pytest.mark.parametrize("tokens", [255, 508, 509, 5_000, 64 * 254])
def test_windows_cover_every_token_once_and_only_the_last_is_short(tokens: int) -> None:
    windows = cut(0, tokens, 254)
    assert windows[0].start == 0
    assert windows[-1].stop == tokens
    assert all(left.stop == right.start for left, right in pairwise(windows))
    lengths = [window.length for window in windows]
    assert set(lengths[:-1]) == {254}
    assert 1 <= lengths[-1] <= 254
    assert len(windows) == -(-tokens // 254)


def test_the_number_of_windows_is_bounded() -> None:
    windows = cut(0, 1_000_000, 254, most=64)
    assert len(windows) == 64
    assert windows[-1].stop == 64 * 254


def test_batches_hold_one_length_within_the_budget_and_lose_nothing() -> None:
    windows = [TokenWindow(number, 0, 5 + number % 7) for number in range(100)]
    groups = list(batches(windows, budget=40))
    assert sorted(window.text for batch in groups for window in batch) == list(range(100))
    for batch in groups:
        assert len({window.length for window in batch}) == 1
        assert sum(window.length for window in batch) <= 40


def test_a_window_beyond_the_budget_still_runs_and_an_empty_one_too() -> None:
    assert list(batches([TokenWindow(0, 0, 99), TokenWindow(1, 0, 0)], budget=40)) == [
        [TokenWindow(0, 0, 99)],
        [TokenWindow(1, 0, 0)],
    ]


def test_the_bundled_model_is_bounded_without_any_variable() -> None:
    """Whoever uses triskele as a library sets none: one thread, and none that spins while it waits."""
    options = bundled()._runtime().session.get_session_options()
    assert options.intra_op_num_threads == 1
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
