"""Fusion: the rankings of several legs in, one ranking out; pure functions with their formulas.

Every method normalises the scores of a leg, 0 for what the leg did not return; the fused score is the weighted sum over
the legs. A leg of weight 0 is the same as no leg.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from triskele.types import Ranking

_SATURATION = 4.0
_SAME = 1e-9

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionConfig:
    """How much each leg counts, and the constants of the methods that have any."""

    weights: Mapping[str, float] = field(default_factory=lambda: {"lexical": 1.0, "dense": 1.0, "graph": 0.35})
    k: Mapping[str, float] = field(default_factory=dict)
    default_k: float = 60.0
    depth: int = 50


class Contribution(NamedTuple):
    """What one leg adds to a candidate."""

    rank: int
    raw: float
    normalised: float
    contribution: float


class Candidate(NamedTuple):
    """A candidate whose score is the sum of its parts' contributions."""

    row: int
    score: float
    parts: Mapping[str, Contribution]


@dataclass(frozen=True, slots=True)
class Scores:
    """One leg's scores, best first, as a method sees them."""

    leg: str
    raw: Floats
    ceiling: float


# One number per rank, never negative; a candidate that the leg does not return counts 0.
Normaliser = Callable[[Scores, FusionConfig], Floats]


def reciprocal_rank(scores: Scores, config: FusionConfig) -> Floats:
    """1 / (k + rank) (Cormack, Clarke and Büttcher 2009)."""
    k = config.k.get(scores.leg, config.default_k)
    numbers: Floats = 1 / (k + np.arange(1.0, len(scores.raw) + 1))
    return numbers


def theoretical_minimum(scores: Scores, _: FusionConfig) -> Floats:
    """(s − m) / (max − m), m the lowest score possible: −1 for a cosine, else 0 (TM2C2, Bruch et al. 2023)."""
    lowest = -1.0 if scores.leg == "dense" else 0.0
    span = scores.raw.max() - lowest
    return (scores.raw - lowest) / span if span > _SAME else np.zeros(len(scores.raw))


def relative_score(scores: Scores, _: FusionConfig) -> Floats:
    """(s − min) / (max − min); equal scores count 1."""
    lowest = scores.raw.min()
    span = scores.raw.max() - lowest
    return (scores.raw - lowest) / span if span > _SAME else np.ones(len(scores.raw))


def distribution_based(scores: Scores, _: FusionConfig) -> Floats:
    """(s − (μ − 3σ)) / 6σ, held between 0 and 1; equal scores count 0.5."""
    mean, deviation = scores.raw.mean(), scores.raw.std()
    if deviation < _SAME:
        return np.full(len(scores.raw), 0.5)
    numbers: Floats = np.clip((scores.raw - mean + 3 * deviation) / (6 * deviation), 0.0, 1.0)
    return numbers


def saturating_sum(scores: Scores, _: FusionConfig) -> Floats:
    """s / (s + 4) for scores without an upper bound; a cosine counts as it is."""
    above = np.maximum(scores.raw, 0.0)
    return above if scores.leg == "dense" else above / (above + _SATURATION)


def standard_score(scores: Scores, _: FusionConfig) -> Floats:
    """Standard deviations above the weakest candidate.

    This is the z-score moved by a constant per leg, which leaves the order as it is and no part negative.
    """
    deviation = scores.raw.std()
    return (scores.raw - scores.raw.min()) / deviation if deviation > _SAME else np.zeros(len(scores.raw))


def share_of_ceiling(scores: Scores, _: FusionConfig) -> Floats:
    """s / the best score that any memory could have: how well the query is answered."""
    above = np.maximum(scores.raw, 0.0)
    return above / scores.ceiling if scores.ceiling > _SAME else np.zeros(len(above))


_PLAIN = FusionConfig()
METHODS: Mapping[str, Normaliser] = {
    "rrf": reciprocal_rank,
    "cc": theoretical_minimum,
    "rsf": relative_score,
    "dbsf": distribution_based,
    "sum": saturating_sum,
    "zscore": standard_score,
    "share": share_of_ceiling,
}
# Weights of the legs per method, after the literature.
SHARES: Mapping[str, Mapping[str, float]] = {
    "rrf": {"lexical": 1.0, "dense": 1.0, "graph": 0.35},
    "cc": {"lexical": 0.2, "dense": 0.8, "graph": 0.35},
    "rsf": {"lexical": 0.4, "dense": 0.6, "graph": 0.35},
    "dbsf": {"lexical": 0.4, "dense": 0.6, "graph": 0.35},
    "sum": {"lexical": 0.25, "dense": 0.75, "graph": 0.35},
    "zscore": {"lexical": 0.5, "dense": 0.5, "graph": 0.35},
    "share": {"lexical": 0.2, "dense": 0.8, "graph": 0.35},
}


@dataclass(frozen=True, eq=False)
class _Leg:
    """A leg that counts, cut to its depth: per rank its raw score, its normalised score and its contribution."""

    name: str
    listed: Sequence[int]
    rows: NDArray[np.int64]
    raw: Floats
    normalised: Floats
    contributions: Floats

    @cached_property
    def places(self) -> Mapping[int, int]:
        """The place of each row; needed only for explanations."""
        return {row: place for place, row in enumerate(self.listed)}

    def of(self, row: int) -> Contribution | None:
        """What the leg adds to a row; None where it does not rank the row."""
        if (place := self.places.get(row)) is None:
            return None
        return Contribution(
            place + 1, self.raw.item(place), self.normalised.item(place), self.contributions.item(place)
        )


@dataclass(frozen=True, eq=False)
class Column:
    """The scores of one leg over the rows of a table, NaN where it has not scored a row; it counts by its share."""

    name: str
    raw: Floats
    weight: float
    ceiling: float = 1.0

    @cached_property
    def normalised(self) -> Floats:
        """The shares of the ceiling."""
        return share_of_ceiling(Scores(self.name, self.raw, self.ceiling), _PLAIN)

    @cached_property
    def is_scored(self) -> NDArray[np.bool_]:
        """Which rows the leg has scored."""
        return ~np.isnan(self.raw)

    @cached_property
    def ranks(self) -> NDArray[np.int64]:
        """The rank of each row from 0, ties by row; what is not scored shares the one after all."""
        ranks = np.empty(len(self.raw), dtype=np.int64)
        ranks[np.argsort(-self.raw, kind="stable")] = np.arange(len(self.raw))
        return np.where(self.is_scored, ranks, len(self.raw))

    def of(self, place: int) -> Contribution | None:
        """What the leg adds to the row at a place; None where it has not scored the row."""
        if not self.is_scored.item(place):
            return None
        normalised = self.normalised.item(place)
        return Contribution(self.ranks.item(place) + 1, self.raw.item(place), normalised, self.weight * normalised)


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Several legs over the same rows, which are in order; a leg of weight 0 is the same as no leg."""

    rows: NDArray[np.int64]
    columns: tuple[Column, ...]

    @cached_property
    def ordered(self) -> tuple[NDArray[np.int64], Floats]:
        """The places of the rows that any leg has scored, best first, and their sums; ties as in `fuse`."""
        totals, is_scored = np.zeros(len(self.rows)), np.zeros(len(self.rows), dtype=np.bool_)
        # In the order of their names: a floating-point sum depends on the order of its terms.
        counted = sorted(self._counted, key=lambda column: column.name)
        for column in counted:
            totals += np.where(column.is_scored, column.weight * column.normalised, 0.0)
            is_scored |= column.is_scored
        places = np.argsort(-totals, kind="stable")
        if (np.diff(totals[places]) == 0).any():
            ranks = np.min([column.ranks for column in counted], axis=0, initial=len(self.rows))
            places = np.lexsort((ranks, -totals))
        places = places[is_scored[places]]
        return places, totals[places]

    @property
    def _counted(self) -> list[Column]:
        return [column for column in self.columns if column.weight > 0]

    def joined(self, column: Column) -> ScoreTable:
        """One leg more."""
        return ScoreTable(self.rows, (*self.columns, column))

    def fused(self) -> list[Candidate]:
        """The candidates, best first."""
        (places, totals), legs = self.ordered, self._counted
        listed = zip(self.rows[places].tolist(), totals.tolist(), places.tolist(), strict=True)
        return [Candidate(row, score, _Contributions(legs, place)) for row, score, place in listed]


class _Contributions(Mapping[str, Contribution]):
    """The contributions to a candidate, computed on access: most candidates are never explained."""

    __slots__ = ("_key", "_legs")

    def __init__(self, legs: Sequence[_Leg] | Sequence[Column], key: int) -> None:
        self._legs = legs
        self._key = key

    def __getitem__(self, name: str) -> Contribution:
        for leg in self._legs:
            if leg.name == name and (part := leg.of(self._key)) is not None:
                return part
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.plain())

    def __len__(self) -> int:
        return len(self.plain())

    def plain(self) -> dict[str, Contribution]:
        """All of them."""
        return {leg.name: part for leg in self._legs if (part := leg.of(self._key)) is not None}


def fuse(method: str, rankings: Sequence[Ranking], config: FusionConfig | None = None) -> list[Candidate]:
    """Fuse by a method's name, best first; ties keep the better rank, then the older row."""
    legs = _legs(method, rankings, config or FusionConfig(weights=SHARES[method]))
    rows, scores = _ordered(legs)
    scored = zip(rows.tolist(), scores.tolist(), strict=True)
    return [Candidate(row, score, _Contributions(legs, row)) for row, score in scored]


def ordered(method: str, rankings: Sequence[Ranking], config: FusionConfig) -> tuple[NDArray[np.int64], Floats]:
    """The rows and scores of `fuse` in its order, without the contributions."""
    return _ordered(_legs(method, rankings, config))


def expanded(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates with their contributions as plain dictionaries."""
    return [
        Candidate(row, score, parts.plain() if isinstance(parts, _Contributions) else parts)
        for row, score, parts in candidates
    ]


def _ordered(legs: Sequence[_Leg]) -> tuple[NDArray[np.int64], Floats]:
    """Rows with their scores, best first."""
    if not legs:
        return np.empty(0, dtype=np.int64), np.empty(0)
    # In the order of their names: a floating-point sum depends on the order of its terms.
    legs = sorted(legs, key=lambda leg: leg.name)
    rows, place = np.unique(np.concatenate([leg.rows for leg in legs]), return_inverse=True)
    totals = np.zeros(len(rows))
    ranks = np.full(len(rows), np.iinfo(np.int64).max)
    start = 0
    for leg in legs:
        at = place[start : start + len(leg.rows)]
        totals[at] += leg.contributions
        ranks[at] = np.minimum(ranks[at], np.arange(len(at)))
        start += len(at)
    order = np.lexsort((rows, ranks, -totals))
    return rows[order], totals[order]


def _legs(method: str, rankings: Sequence[Ranking], config: FusionConfig) -> list[_Leg]:
    """The legs that count, in the order given."""
    legs = []
    for ranking in rankings:
        weight = config.weights.get(ranking.leg, 0.0)
        if weight > 0 and ranking.rows:
            raw = np.array(ranking.scores[: config.depth])
            numbers = METHODS[method](Scores(ranking.leg, raw, ranking.ceiling), config)
            listed = ranking.rows[: config.depth]
            rows = np.array(listed, dtype=np.int64)
            legs.append(_Leg(ranking.leg, listed, rows, raw, numbers, weight * numbers))
    return legs
