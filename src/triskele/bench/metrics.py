"""Ranked metrics, and AUROC of confidence; nDCG has linear gains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triskele.bench.datasets import Qrels

Floats = NDArray[np.float64]
Scores = dict[str, Floats]

NDCG = "graded, linear gains, log2 discount (Järvelin & Kekäläinen 2002)"
# Below this confidence an answer should be withheld.
THRESHOLD = 0.5
_RECALL_DEPTHS = (1, 5, 10, 20, 30)
_NDCG_DEPTH = 10
_RECALLS = tuple(f"recall@{depth}" for depth in _RECALL_DEPTHS)
METRICS = (*_RECALLS, "ndcg@10", "mrr", "map", "recall_all@5", "recall_any@5", "top_hit")


def evaluate(queries: Sequence[str], qrels: Qrels, run: Mapping[str, Sequence[str]]) -> Scores:
    """Every metric of every query; a run lists documents, best first."""
    gains, ideal, relevant = _gains(queries, qrels, run)
    is_hit = gains > 0
    ranks = np.arange(1, gains.shape[1] + 1)
    hits = np.cumsum(is_hit, axis=1, dtype=np.int64)
    scores = {f"recall@{k}": _share(hits[:, min(k, gains.shape[1]) - 1], relevant) for k in _RECALL_DEPTHS}
    scores["ndcg@10"] = _share(_dcg(gains), _dcg(ideal))
    scores["mrr"] = np.where(is_hit.any(axis=1), 1 / (is_hit.argmax(axis=1) + 1), 0.0)
    scores["map"] = _share(_sum(np.where(is_hit, hits / ranks, 0.0)), relevant)
    scores["recall_all@5"] = (scores["recall@5"] == 1).astype(np.float64)
    scores["recall_any@5"] = (scores["recall@5"] > 0).astype(np.float64)
    scores["top_hit"] = (scores["recall@1"] > 0).astype(np.float64)
    return scores


def summary(scores: Scores, chosen: Iterable[int]) -> dict[str, float | int | None]:
    """Means of the metrics over some queries, with their number."""
    places = list(chosen)
    means = {name: float(scores[name][places].mean()) if places else None for name in METRICS}
    return {"n": len(places), **means}


def _gains(
    queries: Sequence[str], qrels: Qrels, run: Mapping[str, Sequence[str]]
) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Grades by rank, ideal grades and relevant documents, by query."""
    graded = [{id: grade for id, grade in qrels[query].items() if grade > 0} for query in queries]
    deepest = max((len(run[query]) for query in queries), default=0)
    gains = np.zeros((len(queries), max(deepest, 1)))
    ideal = np.zeros((len(queries), _NDCG_DEPTH))
    for row, (query, grades) in enumerate(zip(queries, graded, strict=True)):
        gains[row, : len(run[query])] = [grades.get(document, 0) for document in run[query]]
        best = sorted(grades.values(), reverse=True)[:_NDCG_DEPTH]
        ideal[row, : len(best)] = best
    return gains, ideal, np.array([len(grades) for grades in graded], dtype=np.int64)


def _dcg(gains: Floats) -> Floats:
    top = gains[:, :_NDCG_DEPTH]
    return _sum(top / np.log2(np.arange(2, top.shape[1] + 2)))


def _sum(values: Floats) -> Floats:
    """Sums of rows, added from left to right like reference implementations."""
    total: Floats = np.cumsum(values, axis=1)[:, -1]
    return total


def _share(part: Floats | NDArray[np.int64], whole: Floats | NDArray[np.int64]) -> Floats:
    """Quotients, 0 if a query has no relevant document."""
    return np.divide(part, whole, out=np.zeros(len(whole)), where=whole > 0)


def abstention(answerable: Sequence[float], others: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """How well confidence separates answerable from unanswerable queries."""
    return {
        "threshold": THRESHOLD,
        "answerable": len(answerable),
        "kinds": {kind: _separation(answerable, values) for kind, values in others.items()},
    }


def _separation(answerable: Sequence[float], others: Sequence[float]) -> dict[str, Any]:
    """AUROC, and precision at the threshold with equal frequencies."""
    coverage = sum(value >= THRESHOLD for value in answerable) / len(answerable)
    wrong = sum(value >= THRESHOLD for value in others) / len(others)
    return {
        "n": len(others),
        "auroc": auroc(answerable, others),
        "precision": coverage / (coverage + wrong) if coverage + wrong else None,
        "coverage": coverage,
    }


def auroc(higher: Sequence[float], lower: Sequence[float]) -> float:
    """Share of pairs with the first value higher; ties count half."""
    ordered = np.sort(np.asarray(lower, dtype=np.float64))
    below, upto = (np.searchsorted(ordered, higher, side=side) for side in ("left", "right"))
    return float((below + upto).sum()) / 2 / (len(higher) * len(lower))
