"""Vectors that a model made, checked before anyone trusts them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from triskele.errors import ModelUnavailable
from triskele.models.embed.protocol import Encoding

if TYPE_CHECKING:
    from numpy.typing import NDArray


def checked(model: str, rows: object, count: int, dimensions: int) -> NDArray[np.float32]:
    """Unit vectors of the right number and length, or an error that names the model."""
    try:
        with np.errstate(over="ignore"):
            found = np.asarray(rows, dtype=np.float32)
    except (ValueError, TypeError, OverflowError):
        raise ModelUnavailable(f"{model} answers with vectors that are none") from None
    if found.ndim != 2 or len(found) != count:
        raise ModelUnavailable(f"{model} answers with {len(found) if found.ndim else 0} vectors for {count} texts")
    if found.shape[1] != dimensions:
        raise ModelUnavailable(
            f"{model} answers with vectors of {found.shape[1]} numbers instead of {dimensions}:"
            " set its dimensions to what it gives, and let it embed anew"
        )
    return unit(model, found)


def unit(model: str, found: NDArray[np.float32]) -> NDArray[np.float32]:
    """The same directions with length 1; what has no direction is refused."""
    # Scaled first: the squares of large numbers would be infinite.
    largest = np.abs(found).max(axis=-1, keepdims=True, initial=0.0)
    if not (np.isfinite(largest).all() and (largest > 0).all()):
        raise ModelUnavailable(f"{model} answers with something that is not a number, or with nothing but zeros")
    scaled = found / largest
    return np.asarray(scaled / np.linalg.norm(scaled, axis=-1, keepdims=True), dtype=np.float32)


def averaged(model: str, vectors: NDArray[np.float32], lengths: Sequence[int]) -> NDArray[np.float32]:
    """One vector for a text that was read by windows, each by its length."""
    return vectors[0] if len(vectors) == 1 else unit(model, np.asarray(lengths, dtype=np.float32) @ vectors)


def without_tokens(sentence: NDArray[np.float32]) -> Encoding:
    """The encoding of a model that says nothing about single words."""
    return Encoding(
        sentence=sentence,
        tokens=np.empty((0, 0), dtype=np.float32),
        token_ids=np.empty(0, dtype=np.int32),
        spans=np.empty((0, 2), dtype=np.int32),
    )
