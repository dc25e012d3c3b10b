"""Sentence vectors in a byte per dimension: near, stable, told from those of four bytes, and checked."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from triskele.store.vector_bytes import (
    cosines,
    restored,
    rounded,
    row_bytes,
    row_of,
    sound_rows,
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
    kept = restored(rows)
    assert rows.shape == (20, row_bytes(dimensions)) and rows[0].tobytes() == row_of(vectors[0])
    assert np.vecdot(kept, vectors).min() > 0.9999
    np.testing.assert_allclose(np.linalg.norm(kept, axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(rounded(kept), rows)
    np.testing.assert_allclose(cosines(rows, vectors[0]), kept @ vectors[0], atol=1e-6)


@given(st.integers(0, row_bytes(16) - 1), st.integers(1, 255), st.integers(0, 100))
def test_a_row_with_another_byte_is_no_vector(place: int, change: int, seed: int) -> None:
    vectors = _units(3, 16, seed)
    raws = [row_of(vector) for vector in vectors]
    damaged = bytearray(raws[1])
    damaged[place] ^= change
    rows, is_sound = sound_rows([raws[0], bytes(damaged), raws[2]], 16)
    assert is_sound.tolist() == [True, False, True]
    np.testing.assert_array_equal(rows, rounded(vectors[[0, 2]]))


def test_rows_of_another_size_are_no_vectors() -> None:
    vectors = _units(3, 384, 0)
    raws = [row_of(vectors[0]), b"", vectors[1].tobytes(), row_of(vectors[1])[:-1], row_of(vectors[2])]
    rows, is_sound = sound_rows(raws, 384)
    assert is_sound.tolist() == [True, False, False, False, True]
    np.testing.assert_array_equal(rows, rounded(vectors[[0, 2]]))
    assert sound_rows([b"", b"text"], 384)[1].tolist() == [False, False]
