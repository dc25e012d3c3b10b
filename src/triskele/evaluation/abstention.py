"""Does confidence tell the questions that can be answered from the others?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# Below this an answer is better not given.
THRESHOLD = 0.5


def abstention(answerable: Sequence[float], others: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Confidence of answerable questions against each kind of those that have no answer."""
    return {
        "threshold": THRESHOLD,
        "answerable": len(answerable),
        "kinds": {kind: _against(answerable, values) for kind, values in others.items()},
    }


def _against(answerable: Sequence[float], others: Sequence[float]) -> dict[str, Any]:
    """Precision is said as if both kinds were asked equally often."""
    kept = sum(value >= THRESHOLD for value in answerable) / len(answerable)
    wrong = sum(value >= THRESHOLD for value in others) / len(others)
    return {
        "n": len(others),
        "auroc": auroc(answerable, others),
        "precision": kept / (kept + wrong) if kept + wrong else None,
        "coverage": kept,
    }


def auroc(higher: Sequence[float], lower: Sequence[float]) -> float:
    """How often one of the first is above one of the second; a tie counts half."""
    from scipy.stats import rankdata

    ranks = rankdata([*higher, *lower])[: len(higher)]
    wins = float(ranks.sum()) - len(higher) * (len(higher) + 1) / 2
    return wins / (len(higher) * len(lower))
