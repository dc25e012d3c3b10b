"""Other orders for finished candidates: by a cross-encoder, more varied, more often mentioned, or nearer to a memory.

A reordered candidate takes the score of its new position, so that scores still fall.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from triskele.index.corpus import Corpus, Floats, Ints
from triskele.recall.candidates import CandidateSet
from triskele.recall.fusion import Candidate, Contribution
from triskele.recall.graph_leg import hub
from triskele.recall.plan import CROSS, DIVERSE, MENTIONED

if TYPE_CHECKING:
    from triskele.models.cross_encoder import Reranking

DEPTH = 50
_STEPS = 3
# Beyond every distance that a walk could find.
_FAR = 1 << 32


def by_cross_encoder(candidates: CandidateSet, verdict: Reranking) -> CandidateSet:
    """The candidates in the order of a cross-encoder; the scores stay with the positions."""
    if verdict.agreement is None:
        return replace(candidates, missing=(*candidates.missing, f"not reranked: {verdict.missing}"))
    before = {candidate.row: candidate for candidate in candidates.fused}
    scores = [candidate.score for candidate in candidates.fused if candidate.row in set(verdict.order)]
    best_first = sorted(verdict.scores, key=lambda row: -verdict.scores[row])
    ranks = {row: rank for rank, row in enumerate(best_first, start=1)}
    top = [
        _reranked(before.pop(row), score, ranks.get(row), verdict.scores.get(row, 0.0))
        for row, score in zip(verdict.order, scores, strict=True)
    ]
    return replace(candidates, fused=[*top, *before.values()], agreement=verdict.agreement)


def _reranked(candidate: Candidate, score: float, rank: int | None, raw: float) -> Candidate:
    if rank is None:
        return candidate._replace(score=score)
    return _moved(candidate, score, CROSS, rank, raw, 1 / (1 + math.exp(-max(-50.0, min(50.0, raw)))))


def _moved(
    candidate: Candidate, score: float, by: str, rank: int, raw: float = 0.0, normalised: float = 0.0
) -> Candidate:
    """A candidate with another score; the difference is the contribution of what moved it."""
    return Candidate(
        candidate.row, score, {**candidate.parts, by: Contribution(rank, raw, normalised, score - candidate.score)}
    )


def in_order(candidates: CandidateSet, order: str, corpus: Corpus, near: Sequence[int] = ()) -> CandidateSet:
    """The best candidates in another order; the scores stay with the positions."""
    top = candidates.fused[:DEPTH]
    rows = [candidate.row for candidate in top]
    if not rows:
        return candidates
    if order == DIVERSE:
        chosen = diverse(rows, [candidate.score for candidate in top], _vectors(rows, corpus))
    elif order == MENTIONED:
        chosen = most_mentioned(rows, _mention_counts(rows, corpus))
    else:
        chosen = nearest(rows, _distances(np.array(near, dtype=np.int64), corpus))
    before = {candidate.row: candidate for candidate in top}
    placed = [_moved(before[row], top[place].score, "order", place + 1) for place, row in enumerate(chosen)]
    return replace(candidates, fused=[*placed, *candidates.fused[DEPTH:]])


def diverse(
    rows: Sequence[int], scores: Sequence[float], vectors: Mapping[int, Floats], balance: float = 0.5
) -> list[int]:
    """Maximal marginal relevance (Carbonell and Goldstein, 1998): each next row is relevant and adds something new.

    Scores are scaled to 0–1. With a balance of 1 the order stays; a row without a vector is similar to none.
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
    """Rows by their distance in the graph, ties in the old order; unreachable ones last."""
    return sorted(rows, key=lambda row: distances.get(row, _FAR))


def most_mentioned(rows: Sequence[int], counts: Mapping[int, int]) -> list[int]:
    """Rows by how many memories mention their subject, ties in the old order."""
    return sorted(rows, key=lambda row: -counts.get(row, 0))


def _to_unit(scores: Sequence[float]) -> NDArray[np.float64]:
    values = np.asarray(scores, dtype=np.float64)
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else np.ones(len(values))


def _similarities(rows: Sequence[int], vectors: Mapping[int, Floats]) -> NDArray[np.float64]:
    """Cosines of unit vectors, at least 0; 0 if a vector is missing."""
    known = [place for place, row in enumerate(rows) if row in vectors]
    alike = np.zeros((len(rows), len(rows)))
    if known:
        matrix = np.stack([vectors[rows[place]] for place in known]).astype(np.float64)
        alike[np.ix_(known, known)] = np.clip(matrix @ matrix.T, 0.0, 1.0)
    return alike


def _vectors(rows: Sequence[int], corpus: Corpus) -> dict[int, Floats]:
    vectors = corpus.vectors(np.array(rows, dtype=np.int64))
    return {row: vector for row, vector in zip(rows, vectors, strict=True) if len(vector) and np.isfinite(vector).all()}


def _mention_counts(rows: Sequence[int], corpus: Corpus) -> dict[int, int]:
    """How many memories mention the subject of each row."""
    mentions = corpus.mentions(np.array(rows, dtype=np.int64))
    counts = np.zeros(len(rows), dtype=np.int64)
    np.maximum.at(counts, mentions.place[mentions.is_subject], mentions.frequency[mentions.is_subject])
    return dict(zip(rows, counts.tolist(), strict=True))


def _distances(start: Ints, corpus: Corpus) -> dict[int, int]:
    """How many shared names lie between the start and other rows; a hub connects none."""
    most = hub(corpus.size)
    distances = dict.fromkeys(start.tolist(), 0)
    fringe = start
    for step in range(1, _STEPS + 1):
        mentions = corpus.mentions(fringe)
        concepts = np.unique(mentions.concepts[mentions.frequency <= most])
        rows = np.unique(corpus.holders(concepts)[1])
        fringe = rows[~np.isin(rows, list(distances))]
        distances |= dict.fromkeys(fringe.tolist(), step)
    return distances
