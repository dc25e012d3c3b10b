"""Other orders for a finished ranking, pure: more variety, nearer to something, more often mentioned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

# Beyond every distance that a walk could find.
_FAR = 1 << 32


def diverse(
    rows: Sequence[int], scores: Sequence[float], vectors: Mapping[int, NDArray[np.float32]], balance: float = 0.5
) -> list[int]:
    """Maximal marginal relevance (Carbonell and Goldstein, 1998): each next row fits well and repeats little.

    Scores are brought to 0–1. With a balance of 1 the order stays; a row without a vector resembles nothing.
    """
    if not rows:
        return []
    relevance = _to_unit(scores)
    alike = _similarities(rows, vectors)
    closest = np.zeros(len(rows))
    left = np.ones(len(rows), dtype=np.bool_)
    chosen: list[int] = []
    for _ in rows:
        worth = np.where(left, balance * relevance - (1 - balance) * closest, -np.inf)
        best = int(worth.argmax())
        chosen.append(rows[best])
        left[best] = False
        closest = np.maximum(closest, alike[best])
    return chosen


def nearest(rows: Sequence[int], distances: Mapping[int, int]) -> list[int]:
    """Rows by their distance to a node of the graph, the old order among equals; unreachable ones last."""
    return sorted(rows, key=lambda row: distances.get(row, _FAR))


def most_mentioned(rows: Sequence[int], mentions: Mapping[int, int]) -> list[int]:
    """Rows by how often they or what they are about is mentioned, the old order among equals."""
    return sorted(rows, key=lambda row: -mentions.get(row, 0))


def _to_unit(scores: Sequence[float]) -> NDArray[np.float64]:
    values = np.asarray(scores, dtype=np.float64)
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else np.ones(len(values))


def _similarities(rows: Sequence[int], vectors: Mapping[int, NDArray[np.float32]]) -> NDArray[np.float64]:
    """Cosines of unit vectors; 0 where one is missing, and never below it: opposites are no more different."""
    known = [place for place, row in enumerate(rows) if row in vectors]
    alike = np.zeros((len(rows), len(rows)))
    if known:
        matrix = np.stack([vectors[rows[place]] for place in known]).astype(np.float64)
        alike[np.ix_(known, known)] = np.clip(matrix @ matrix.T, 0.0, 1.0)
    return alike
