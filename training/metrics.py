"""R@5, nDCG@10 and paired bootstrap intervals."""

from __future__ import annotations

import numpy as np

CUT, DEPTH, DRAWS = 5, 10, 2000


def metrics(grades: np.ndarray, ideal: np.ndarray) -> tuple[float, float]:
    """R@5 and nDCG@10 of one ranking: its documents' grades in order, and all grades, best first (zeros pad)."""
    discount = 1 / np.log2(np.arange(2, DEPTH + 2))
    top = grades[:DEPTH]
    gain = (top * discount[: len(top)]).sum() / (ideal[:DEPTH] * discount[: len(ideal[:DEPTH])]).sum()
    return float((grades[:CUT] > 0).sum() / (ideal > 0).sum()), float(gain)


def bootstrap(differences: np.ndarray, seed: int = 0) -> list[float]:
    """The mean and its 95 % interval over questions."""
    draws = np.random.default_rng(seed).integers(len(differences), size=(DRAWS, len(differences)))
    low, high = np.percentile(differences[draws].mean(1), [2.5, 97.5])
    return [round(float(value), 2) for value in (differences.mean(), low, high)]
