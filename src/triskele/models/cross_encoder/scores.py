"""Scores that a cross-encoder gave, checked before anyone sorts by them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from triskele.errors import ModelUnavailable

if TYPE_CHECKING:
    from numpy.typing import NDArray


def checked(model: str, found: object, count: int) -> NDArray[np.float32]:
    """One finite number for each text; of two logits, how far the second is above the first."""
    try:
        scores = np.asarray(found, dtype=np.float32)
    except (ValueError, TypeError):
        raise ModelUnavailable(f"{model} answers with scores that are none") from None
    if scores.ndim == 2 and scores.shape[1] == 2:
        scores = scores[:, 1] - scores[:, 0]
    if scores.ndim == 2 and scores.shape[1] == 1:
        scores = scores[:, 0]
    if scores.shape != (count,):
        raise ModelUnavailable(f"{model} answers with scores of the shape {scores.shape} for {count} texts")
    if not np.isfinite(scores).all():
        raise ModelUnavailable(f"{model} answers with something that is not a number")
    return scores
