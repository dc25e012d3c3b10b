"""Sentence vectors in a byte per dimension: near, stable, told from those of four bytes, and checked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from triskele.stores.sentence_vectors import (
    cosines,
    narrowed,
    restored,
    rounded,
    row_bytes,
    row_of,
    sound_rows,
    width_of,
)

Floats = NDArray[np.float32]
DIMENSIONS = st.sampled_from([1, 2, 3, 4, 5, 16, 384, 1536])


def _units(count: int, dimensions: int, seed: int) -> Floats:
    drawn = np.random.default_rng(seed).standard_normal((count, dimensions)).astype(np.float32)
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)


@given(DIMENSIONS, st.integers(0, 1000))
def test_a_rounded_vector_is_near_and_stays_as_it_is(dimensions: int, seed: int) -> None:
    vectors = _units(20, dimensions, seed)
    rows = rounded(vectors)
    kept = restored(rows, dimensions)
    assert np.vecdot(kept, vectors).min() > 0.9999
    np.testing.assert_allclose(np.linalg.norm(kept, axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(rounded(kept), rows)
    np.testing.assert_allclose(cosines(rows, vectors[0]), kept @ vectors[0], atol=1e-6)


@given(DIMENSIONS, st.integers(0, 1000))
def test_a_vector_of_four_bytes_per_dimension_becomes_what_a_fresh_one_is(dimensions: int, seed: int) -> None:
    vectors = _units(3, dimensions, seed)
    for vector, row in zip(vectors, rounded(vectors), strict=True):
        wide = vector.astype("<f4").tobytes()
        assert len(row) == row_bytes(dimensions) == width_of(wide) == width_of(row.tobytes())
        assert len(row) % 4
        assert narrowed(wide) == row_of(vector) == row.tobytes() == narrowed(row.tobytes())


@pytest.mark.parametrize("raw", [b"", b"text", np.full(8, np.nan, "<f4").tobytes(), bytes(32), b"three"])
def test_what_is_no_vector_stays_as_it_is(raw: bytes) -> None:
    assert narrowed(raw) == raw


@given(st.integers(0, row_bytes(16) - 1), st.integers(1, 255), st.integers(0, 100))
def test_a_row_with_another_byte_is_no_vector(place: int, change: int, seed: int) -> None:
    vectors = _units(3, 16, seed)
    raws = [row_of(vector) for vector in vectors]
    damaged = bytearray(raws[1])
    damaged[place] ^= change
    rows, is_sound = sound_rows([raws[0], bytes(damaged), raws[2]], 16)
    assert is_sound.tolist() == [True, False, True]
    np.testing.assert_array_equal(rows, rounded(vectors[[0, 2]]))


def test_vectors_of_either_form_are_read_together() -> None:
    vectors = _units(4, 384, 0)
    raws = [row_of(vectors[0]), vectors[1].tobytes(), b"", vectors[2].tobytes()[:-4], row_of(vectors[3])]
    rows, is_sound = sound_rows(raws, 384)
    assert is_sound.tolist() == [True, True, False, False, True]
    np.testing.assert_array_equal(rows, rounded(vectors[[0, 1, 3]]))
