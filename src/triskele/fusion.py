"""Fusion: the rankings of several legs in, one ranking out; pure functions with their formulas.

Every method turns a leg's scores into comparable numbers, 0 for what the leg did not return; the score is the weighted
sum over the legs. A leg of weight 0 is the same as no leg at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from triskele.types import Ranking

_SATURATION = 4.0
_SAME = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighing:
    """How much each leg counts, and the constants of the methods that have any."""

    weights: Mapping[str, float] = field(default_factory=lambda: {"lexical": 1.0, "dense": 1.0, "graph": 0.35})
    k: Mapping[str, float] = field(default_factory=dict)
    default_k: float = 60.0
    depth: int = 50


class Part(NamedTuple):
    """What one leg adds to a candidate; rank 0 means that the leg did not return it."""

    rank: int
    raw: float
    normalised: float
    contribution: float


class Fused(NamedTuple):
    """A candidate whose score is the sum of its parts' contributions."""

    row: int
    score: float
    parts: Mapping[str, Part]


# One number per rank, never negative; a candidate that the leg does not return counts 0.
Normaliser = Callable[[Ranking, Weighing], list[float]]


def reciprocal_rank(ranking: Ranking, weighing: Weighing) -> list[float]:
    """1 / (k + rank) (Cormack, Clarke and Büttcher 2009)."""
    k = weighing.k.get(ranking.leg, weighing.default_k)
    return [1 / (k + rank) for rank in range(1, len(ranking.scores) + 1)]


def theoretical_minimum(ranking: Ranking, _: Weighing) -> list[float]:
    """(s − m) / (max − m), m the lowest score possible: −1 for a cosine, else 0 (TM2C2, Bruch et al. 2023)."""
    lowest = -1.0 if ranking.leg == "dense" else 0.0
    span = max(ranking.scores) - lowest
    return [(score - lowest) / span if span > _SAME else 0.0 for score in ranking.scores]


def relative_score(ranking: Ranking, _: Weighing) -> list[float]:
    """(s − min) / (max − min); equal scores count 1."""
    lowest, span = min(ranking.scores), max(ranking.scores) - min(ranking.scores)
    return [(score - lowest) / span if span > _SAME else 1.0 for score in ranking.scores]


def distribution_based(ranking: Ranking, _: Weighing) -> list[float]:
    """(s − (μ − 3σ)) / 6σ, held between 0 and 1; equal scores count 0.5."""
    mean, deviation = _moments(ranking.scores)
    if deviation < _SAME:
        return [0.5] * len(ranking.scores)
    return [min(max((score - mean + 3 * deviation) / (6 * deviation), 0.0), 1.0) for score in ranking.scores]


def saturating_sum(ranking: Ranking, _: Weighing) -> list[float]:
    """s / (s + 4) for scores without an upper bound; a cosine counts as it is."""
    if ranking.leg == "dense":
        return [max(score, 0.0) for score in ranking.scores]
    return [score / (score + _SATURATION) if score > 0 else 0.0 for score in ranking.scores]


def standard_score(ranking: Ranking, _: Weighing) -> list[float]:
    """Standard deviations above the weakest candidate.

    This is the z-score moved by a constant per leg, which leaves the order as it is and no part negative.
    """
    deviation = _moments(ranking.scores)[1]
    lowest = min(ranking.scores)
    return [(score - lowest) / deviation if deviation > _SAME else 0.0 for score in ranking.scores]


def share_of_ceiling(ranking: Ranking, _: Weighing) -> list[float]:
    """s / the best score that any memory could have had: says how well a question is met, not only by whom."""
    return [max(score, 0.0) / ranking.ceiling if ranking.ceiling > _SAME else 0.0 for score in ranking.scores]


METHODS: Mapping[str, Normaliser] = {
    "rrf": reciprocal_rank,
    "cc": theoretical_minimum,
    "rsf": relative_score,
    "dbsf": distribution_based,
    "sum": saturating_sum,
    "zscore": standard_score,
    "share": share_of_ceiling,
}
# Shares of words and meaning where the literature weighs the two sides unevenly.
SHARES: Mapping[str, Mapping[str, float]] = {
    "rrf": {"lexical": 1.0, "dense": 1.0, "graph": 0.35},
    "cc": {"lexical": 0.2, "dense": 0.8, "graph": 0.35},
    "rsf": {"lexical": 0.4, "dense": 0.6, "graph": 0.35},
    "dbsf": {"lexical": 0.4, "dense": 0.6, "graph": 0.35},
    "sum": {"lexical": 0.25, "dense": 0.75, "graph": 0.35},
    "zscore": {"lexical": 0.5, "dense": 0.5, "graph": 0.35},
    "share": {"lexical": 0.2, "dense": 0.8, "graph": 0.35},
}


Heard = tuple[Ranking, list[float], list[float]]


def fuse(method: str, rankings: Sequence[Ranking], weighing: Weighing | None = None) -> list[Fused]:
    """Fuse by a method's name, best first; ties keep the better rank, then the older row."""
    chosen = weighing or Weighing(weights=SHARES[method])
    heard = list(_heard(method, rankings, chosen))
    parts: dict[int, dict[str, Part]] = {}
    for ranking, numbers, contributions in heard:
        values = zip(ranking.rows, ranking.scores, numbers, contributions, strict=True)
        for rank, (row, raw, number, contribution) in enumerate(values, start=1):
            parts.setdefault(row, {})[ranking.leg] = Part(rank, raw, number, contribution)
    return [Fused(row, score, parts[row]) for row, score in _ordered(heard)]


def fused_rows(method: str, rankings: Sequence[Ranking], weighing: Weighing) -> list[int]:
    """The rows of `fuse` in its order, where nobody asks for the parts."""
    return [row for row, _ in _ordered(list(_heard(method, rankings, weighing)))]


def _ordered(heard: Sequence[Heard]) -> list[tuple[int, float]]:
    """Rows with their scores, best first; ties keep the better rank, then the older row."""
    given: dict[int, list[float]] = {}
    ranks: dict[int, int] = {}
    for ranking, _, contributions in heard:
        for rank, (row, contribution) in enumerate(zip(ranking.rows, contributions, strict=True), start=1):
            if row not in given:
                given[row], ranks[row] = [contribution], rank
            else:
                given[row].append(contribution)
                ranks[row] = min(rank, ranks[row])
    ordered = sorted([(-math.fsum(own), ranks[row], row) for row, own in given.items()])
    return [(row, -negative) for negative, _, row in ordered]


def _heard(method: str, rankings: Sequence[Ranking], weighing: Weighing) -> Iterator[Heard]:
    """The rankings that count, cut to their depth, with their numbers and what these contribute."""
    for ranking in rankings:
        weight = weighing.weights.get(ranking.leg, 0.0)
        if weight > 0 and ranking.rows:
            depth = weighing.depth
            heard = replace(ranking, rows=ranking.rows[:depth], scores=ranking.scores[:depth])
            numbers = METHODS[method](heard, weighing)
            yield heard, numbers, [weight * number for number in numbers]


def _moments(scores: Sequence[float]) -> tuple[float, float]:
    mean = math.fsum(scores) / len(scores)
    return mean, math.sqrt(math.fsum((score - mean) ** 2 for score in scores) / len(scores))
