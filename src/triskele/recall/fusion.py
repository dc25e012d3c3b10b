"""Textbook fusions: the rankings of several legs in, their scores in columns out; pure functions with their formulas.

Every method normalises the scores of a leg, 0 for a row that the leg does not return; the fused score is the weighted
sum over the legs. A leg of weight 0 is the same as no leg.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from triskele.index.corpus import Ints
from triskele.index.token_vectors import distinct
from triskele.recall.question import Question
from triskele.recall.scores import DENSE, LEAST_SPAN, Column, Doubles, Ranking, Scores

_SATURATION = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionConfig:
    """How much each leg counts, and the constants of the methods that have any."""

    weights: Mapping[str, float] = field(default_factory=lambda: {"lexical": 1.0, "dense": 1.0, "graph": 0.35})
    k: Mapping[str, float] = field(default_factory=dict)
    default_k: float = 60.0
    depth: int = 50

    @staticmethod
    def of(question: Question) -> FusionConfig:
        """The constants of a plan."""
        plan = question.plan
        return FusionConfig(weights=plan.weights or METHODS[plan.fusion].weights, k=plan.k, depth=question.query.depth)


# One number per rank, never negative; a candidate that the leg does not return counts 0.
Normaliser = Callable[[Ranking, FusionConfig], Doubles]


def reciprocal_rank(ranking: Ranking, config: FusionConfig) -> Doubles:
    """1 / (k + rank) (Cormack, Clarke and Büttcher 2009)."""
    k = config.k.get(ranking.leg, config.default_k)
    numbers: Doubles = 1 / (k + np.arange(1.0, len(ranking.scores) + 1))
    return numbers


def theoretical_minimum(ranking: Ranking, _: FusionConfig) -> Doubles:
    """(s − m) / (max − m), m the lowest score possible: −1 for a cosine, else 0 (TM2C2, Bruch et al. 2023)."""
    lowest = -1.0 if ranking.leg == DENSE else 0.0
    span = ranking.scores.max() - lowest
    return (ranking.scores - lowest) / span if span > LEAST_SPAN else np.zeros(len(ranking.scores))


def relative_score(ranking: Ranking, _: FusionConfig) -> Doubles:
    """(s − min) / (max − min); equal scores count 1."""
    lowest = ranking.scores.min()
    span = ranking.scores.max() - lowest
    return (ranking.scores - lowest) / span if span > LEAST_SPAN else np.ones(len(ranking.scores))


def distribution_based(ranking: Ranking, _: FusionConfig) -> Doubles:
    """(s − (μ − 3σ)) / 6σ, held between 0 and 1; equal scores count 0.5."""
    mean, deviation = ranking.scores.mean(), ranking.scores.std()
    if deviation < LEAST_SPAN:
        return np.full(len(ranking.scores), 0.5)
    numbers: Doubles = np.clip((ranking.scores - mean + 3 * deviation) / (6 * deviation), 0.0, 1.0)
    return numbers


def saturating_sum(ranking: Ranking, _: FusionConfig) -> Doubles:
    """s / (s + 4) for scores without an upper bound; a cosine counts as it is."""
    above = np.maximum(ranking.scores, 0.0)
    return above if ranking.leg == DENSE else above / (above + _SATURATION)


def standard_score(ranking: Ranking, _: FusionConfig) -> Doubles:
    """Standard deviations above the weakest candidate.

    This is the z-score moved by a constant per leg, which leaves the order as it is and no part negative.
    """
    deviation = _deviation(ranking.scores)
    return (
        (ranking.scores - ranking.scores.min()) / deviation if deviation > LEAST_SPAN else np.zeros(len(ranking.scores))
    )


def _deviation(values: Doubles) -> float:
    """The standard deviation to the last bit of `np.std`, which takes three times as long for a few values."""
    apart = values - np.add.reduce(values) / len(values)
    return float(np.sqrt(np.add.reduce(apart * apart) / len(values)))


def share_of_ceiling(ranking: Ranking, _: FusionConfig) -> Doubles:
    """s / the best score that any memory could have: how well the query is answered."""
    above = np.maximum(ranking.scores, 0.0)
    return above / ranking.ceiling if ranking.ceiling > LEAST_SPAN else np.zeros(len(above))


class Method(NamedTuple):
    """A fusion: how it normalises the scores of a leg, and the weights of the legs after the literature."""

    normalise: Normaliser
    weights: Mapping[str, float]


# Each name of `requests.FusionName` but the default.
METHODS: Mapping[str, Method] = {
    "rrf": Method(reciprocal_rank, {"lexical": 1.0, "dense": 1.0, "graph": 0.35}),
    "cc": Method(theoretical_minimum, {"lexical": 0.2, "dense": 0.8, "graph": 0.35}),
    "rsf": Method(relative_score, {"lexical": 0.4, "dense": 0.6, "graph": 0.35}),
    "dbsf": Method(distribution_based, {"lexical": 0.4, "dense": 0.6, "graph": 0.35}),
    "sum": Method(saturating_sum, {"lexical": 0.25, "dense": 0.75, "graph": 0.35}),
    "zscore": Method(standard_score, {"lexical": 0.5, "dense": 0.5, "graph": 0.35}),
    "share": Method(share_of_ceiling, {"lexical": 0.2, "dense": 0.8, "graph": 0.35}),
}


def textbook_fusion(method: str, rankings: Sequence[Ranking], config: FusionConfig | None = None) -> Scores:
    """Fuse rankings by a method's name; ties keep the better rank, then the older row."""
    normalise, weights = METHODS[method]
    config = config or FusionConfig(weights=weights)
    cut = [ranking.restricted_to(slice(config.depth)) for ranking in rankings if len(ranking.rows)]
    rows = distinct(np.concatenate([np.empty(0, dtype=np.int64), *(ranking.rows for ranking in cut)]))
    columns = tuple(_column(normalise(ranking, config), ranking, rows, config.weights) for ranking in cut)
    return Scores(rows, columns, tuple(rankings))


def _column(numbers: Doubles, ranking: Ranking, rows: Ints, weights: Mapping[str, float]) -> Column:
    """What a method makes of a leg, over rows that ascend."""
    places = np.searchsorted(rows, ranking.rows)
    raw, shares = np.full(len(rows), np.nan), np.zeros(len(rows))
    ranks = np.full(len(rows), len(rows), dtype=np.int64)
    raw[places], shares[places], ranks[places] = ranking.scores, numbers, np.arange(len(places))
    return Column(ranking.leg, raw, weights.get(ranking.leg, 0.0), shares=shares, places=ranks)
