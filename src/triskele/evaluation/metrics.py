"""Ranked metrics, all computed by ranx; nDCG is the graded one with linear gains (Järvelin & Kekäläinen 2002)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from triskele.evaluation.datasets import Qrels

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Scores = dict[str, NDArray[np.float64]]

_FROM_RANX = ("recall@1", "recall@5", "recall@10", "recall@20", "recall@30", "ndcg@10", "mrr", "map")
METRICS = (*_FROM_RANX, "recall_all@5", "recall_any@5", "top_hit")
NDCG = "graded, linear gains, log2 discount (Järvelin & Kekäläinen 2002)"

_NO_LABEL = -1
_NO_RESULT = -2


def evaluate(queries: Sequence[str], qrels: Qrels, run: Mapping[str, Sequence[str]]) -> Scores:
    """Every metric for every query, in the order of the queries; a run lists documents, best first."""
    # Imported here: ranx compiles with numba, which takes seconds; and what it imports makes folders in one's home.
    os.environ.setdefault("IR_DATASETS_HOME", str(Path(tempfile.gettempdir()) / "ir_datasets"))
    import ranx

    labels, results = _numbered(queries, qrels, run)
    scores: Scores = ranx.evaluate(labels, results, list(_FROM_RANX), return_mean=False)
    scores["recall_all@5"] = (scores["recall@5"] == 1).astype(float)
    scores["recall_any@5"] = (scores["recall@5"] > 0).astype(float)
    scores["top_hit"] = (scores["recall@1"] > 0).astype(float)
    return scores


def summary(scores: Scores, chosen: Iterable[int]) -> dict[str, float | int | None]:
    """The mean of each metric over some of the queries, and how many they are."""
    places = list(chosen)
    means = {name: float(scores[name][places].mean()) if places else None for name in METRICS}
    return {"n": len(places), **means}


def _numbered(
    queries: Sequence[str], qrels: Qrels, run: Mapping[str, Sequence[str]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Labels and results as arrays of (document number, value), which ranx reads without hashing or sorting."""
    import numpy as np

    widest = max((len(qrels[query]) for query in queries), default=1)
    deepest = max((len(run[query]) for query in queries), default=1)
    labels = np.full((len(queries), widest, 2), (_NO_LABEL, 0.0))
    results = np.full((len(queries), max(deepest, 1), 2), (_NO_RESULT, 0.0))
    for place, query in enumerate(queries):
        # The ideal ranking is read off the labels, so they come best first.
        judged = sorted(qrels[query].items(), key=lambda item: (-item[1], item[0]))
        numbers = {document: number for number, (document, _) in enumerate(judged)}
        for number, (_, grade) in enumerate(judged):
            labels[place, number] = number, grade
        for rank, document in enumerate(run[query]):
            results[place, rank] = numbers.setdefault(document, len(numbers)), deepest - rank
    return labels, results
