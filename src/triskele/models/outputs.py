"""Checks of what a model returned: vectors and scores must have the right shape and be finite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from triskele.errors import ModelUnavailable
from triskele.models.embedder import Encoding

if TYPE_CHECKING:
    from numpy.typing import NDArray


def checked_vectors(model: str, rows: object, count: int, dimensions: int) -> NDArray[np.float32]:
    """Unit vectors of the right number and length, or an error that names the model."""
    try:
        with np.errstate(over="ignore"):
            vectors = np.asarray(rows, dtype=np.float32)
    except (ValueError, TypeError, OverflowError):
        raise ModelUnavailable(f"{model} returned vectors that are not lists of numbers") from None
    if vectors.ndim != 2 or len(vectors) != count:
        raise ModelUnavailable(f"{model} returned {len(vectors) if vectors.ndim else 0} vectors for {count} texts")
    if vectors.shape[1] != dimensions:
        raise ModelUnavailable(
            f"{model} returned vectors of {vectors.shape[1]} dimensions, expected {dimensions}:"
            f" set its dimensions to {vectors.shape[1]} and run `triskele reindex`"
        )
    return unit(model, vectors)


def unit(model: str, found: NDArray[np.float32]) -> NDArray[np.float32]:
    """The vectors scaled to length 1; zero vectors and NaN are refused."""
    # Scaled first: the squares of large numbers overflow.
    largest = np.abs(found).max(axis=-1, keepdims=True, initial=0.0)
    if not (np.isfinite(largest).all() and (largest > 0).all()):
        raise ModelUnavailable(f"{model} returned a vector of zeros, NaN or infinite values")
    scaled = found / largest
    return np.asarray(scaled / np.linalg.norm(scaled, axis=-1, keepdims=True), dtype=np.float32)


def averaged(model: str, vectors: NDArray[np.float32], lengths: Sequence[int]) -> NDArray[np.float32]:
    """One vector for a text that was encoded in windows, each weighted by its length."""
    return vectors[0] if len(vectors) == 1 else unit(model, np.asarray(lengths, dtype=np.float32) @ vectors)


def without_tokens(sentence: NDArray[np.float32]) -> Encoding:
    """The encoding of a model without token vectors."""
    return Encoding(
        sentence=sentence,
        tokens=np.empty((0, 0), dtype=np.float32),
        token_ids=np.empty(0, dtype=np.int32),
        spans=np.empty((0, 2), dtype=np.int32),
    )


def checked_scores(model: str, found: object, count: int) -> NDArray[np.float32]:
    """One finite score for each text; of two logits the second minus the first."""
    try:
        scores = np.asarray(found, dtype=np.float32)
    except (ValueError, TypeError):
        raise ModelUnavailable(f"{model} returned scores that are not numbers") from None
    if scores.ndim == 2 and scores.shape[1] == 2:
        scores = scores[:, 1] - scores[:, 0]
    if scores.ndim == 2 and scores.shape[1] == 1:
        scores = scores[:, 0]
    if scores.shape != (count,):
        raise ModelUnavailable(f"{model} returned scores of the shape {scores.shape} for {count} texts")
    if not np.isfinite(scores).all():
        raise ModelUnavailable(f"{model} returned a score that is NaN or infinite")
    return scores
