"""Fusion: the rankings of several legs in, one ranking out; pure functions with their formulas.

Every method normalises the scores of a leg, 0 for what the leg did not return; the fused score is the weighted sum over
the legs. A leg of weight 0 is the same as no leg.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
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
    deviation = _deviation(scores.raw)
    return (scores.raw - scores.raw.min()) / deviation if deviation > _SAME else np.zeros(len(scores.raw))


def _deviation(values: Floats) -> float:
    """The standard deviation to the last bit of `np.std`, which takes three times as long for a few values."""
    apart = values - np.add.reduce(values) / len(values)
    return float(np.sqrt(np.add.reduce(apart * apart) / len(values)))


def share_of_ceiling(scores: Scores, _: FusionConfig) -> Floats:
    """s / the best score that any memory could have: how well the query is answered."""
    above = np.maximum(scores.raw, 0.0)
    return above / scores.ceiling if scores.ceiling > _SAME else np.zeros(len(above))


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


_PLAIN = FusionConfig()


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

    def has(self, row: int) -> bool:
        """Whether the leg ranks a row."""
        return row in self.places

    def of(self, row: int, *, is_ranked: bool = True) -> Contribution:
        """What the leg adds to a row that it ranks."""
        place = self.places[row]
        rank = place + 1 if is_ranked else 0
        return Contribution(rank, self.raw.item(place), self.normalised.item(place), self.contributions.item(place))


@dataclass(frozen=True, eq=False)
class Column:
    """The scores of one leg over the rows of a table, NaN where it has not scored a row; it counts by its share."""

    name: str
    raw: Floats
    weight: float
    ceiling: float = 1.0

    @cached_property
    def normalised(self) -> Floats:
        """The shares of the ceiling, as in `share_of_ceiling`; 0 where the leg has not scored a row."""
        if self.ceiling <= _SAME:
            return np.zeros(len(self.raw))
        above: Floats = np.fmax(self.raw, 0.0)
        return above if self.ceiling == 1 else above / self.ceiling

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

    def has(self, place: int) -> bool:
        """Whether the leg has scored the row at a place."""
        return self.is_scored.item(place)

    def of(self, place: int, *, is_ranked: bool = True) -> Contribution:
        """What the leg adds to the row at a place, which it has scored."""
        normalised = self.normalised.item(place)
        rank = self.ranks.item(place) + 1 if is_ranked else 0
        return Contribution(rank, self.raw.item(place), normalised, self.weight * normalised)


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
            totals += column.weight * column.normalised
            is_scored |= column.is_scored
        places, scores = _descending(totals, lambda: [column.ranks for column in counted])
        if is_scored.all():
            return places, scores
        kept = is_scored[places]
        return places[kept], scores[kept]

    @property
    def _counted(self) -> list[Column]:
        return [column for column in self.columns if column.weight > 0]

    def joined(self, column: Column) -> ScoreTable:
        """One leg more."""
        return ScoreTable(self.rows, (*self.columns, column))

    def fused(self) -> list[Candidate]:
        """The candidates, best first."""
        (places, totals), legs = self.ordered, self._counted
        parts = map(_Contributions, repeat(legs), places.tolist())
        return list(map(Candidate._make, zip(self.rows[places].tolist(), totals.tolist(), parts, strict=True)))


class _Contributions(Mapping[str, Contribution]):
    """The contributions to a candidate, computed on access: most candidates are never explained."""

    __slots__ = ("_key", "_legs")

    def __init__(self, legs: Sequence[_Leg] | Sequence[Column], key: int) -> None:
        self._legs = legs
        self._key = key

    def __getitem__(self, name: str) -> Contribution:
        for leg in self._legs:
            if leg.name == name and leg.has(self._key):
                return leg.of(self._key)
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return any(leg.name == name and leg.has(self._key) for leg in self._legs)

    def __iter__(self) -> Iterator[str]:
        return iter(self.plain())

    def __len__(self) -> int:
        return len(self.plain())

    def plain(self, *, is_ranked: bool = True) -> dict[str, Contribution]:
        """All of them."""
        return {leg.name: leg.of(self._key, is_ranked=is_ranked) for leg in self._legs if leg.has(self._key)}


def fuse(method: str, rankings: Sequence[Ranking], config: FusionConfig | None = None) -> list[Candidate]:
    """Fuse by a method's name, best first; ties keep the better rank, then the older row."""
    legs = _legs(method, rankings, config or FusionConfig(weights=SHARES[method]))
    rows, scores = _ordered(legs)
    listed = rows.tolist()
    parts = map(_Contributions, repeat(legs), listed)
    return list(map(Candidate._make, zip(listed, scores.tolist(), parts, strict=True)))


def by_standard_score(rows: NDArray[np.int64], rankings: Sequence[Ranking]) -> NDArray[np.int64]:
    """All rows of some rankings, which are given in order, in the order of `fuse` by standard scores."""
    totals, ranks = np.zeros(len(rows)), np.full(len(rows), len(rows))
    # In the order of their names, as there.
    for ranking in sorted(rankings, key=lambda ranking: ranking.leg):
        if ranking.rows:
            at, raw = rows.searchsorted(np.array(ranking.rows)), np.array(ranking.scores)
            numbers = standard_score(Scores(ranking.leg, raw, ranking.ceiling), _PLAIN)
            totals[at] += SHARES["zscore"][ranking.leg] * numbers
            ranks[at] = np.minimum(ranks[at], np.arange(len(at)))
    return rows[np.lexsort((ranks, -totals))]


def unranked(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates with plain contributions whose ranks are 0: to rank the legs costs more than the rest."""
    return [
        Candidate(row, score, parts.plain(is_ranked=False) if isinstance(parts, _Contributions) else parts)
        for row, score, parts in candidates
    ]


def _ordered(legs: Sequence[_Leg]) -> tuple[NDArray[np.int64], Floats]:
    """Rows with their scores, best first."""
    if not legs:
        return np.empty(0, dtype=np.int64), np.empty(0)
    # In the order of their names: a floating-point sum depends on the order of its terms.
    legs = sorted(legs, key=lambda leg: leg.name)
    rows, place = _distinct(np.concatenate([leg.rows for leg in legs]))
    contributions = np.concatenate([leg.contributions for leg in legs])
    totals: Floats = np.bincount(place, contributions, len(rows)).astype(np.float64, copy=False)
    order, scores = _descending(totals, lambda: [_ranks(leg, rows) for leg in legs])
    return rows[order], scores


def _distinct(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each value once, in their order, and the place of every value among them; `np.unique` costs twice as much."""
    order = values.argsort(kind="stable")
    ordered = values[order]
    is_first = np.append(True, ordered[1:] != ordered[:-1])
    place = np.empty(len(values), dtype=np.int64)
    place[order] = is_first.cumsum() - 1
    return ordered[is_first], place


def _ranks(leg: _Leg, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rank of each row from 0, which are in order; a row that the leg does not rank comes after all."""
    ranks = np.full(len(rows), np.iinfo(np.int64).max)
    ranks[np.searchsorted(rows, leg.rows)] = np.arange(len(leg.rows))
    return ranks


def _descending(totals: Floats, ranks: Callable[[], Sequence[NDArray[np.int64]]]) -> tuple[NDArray[np.int64], Floats]:
    """The places of some totals, highest first, and these; ties by the best of several ranks, then by place."""
    places = np.argsort(-totals, kind="stable")
    ordered = totals[places]
    if (ordered[1:] == ordered[:-1]).any() and (listed := ranks()):
        places = np.lexsort((np.min(listed, axis=0), -totals))
    return places, ordered


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
