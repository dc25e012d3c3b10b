"""Paired comparison of arms: bootstrap intervals, permutation tests, Holm correction, detectable differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from math import erfc, inf, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np

from triskele.bench.metrics import Floats, Scores

COMPARED = ("recall@5", "recall@10", "recall_all@5", "recall_any@5", "ndcg@10", "mrr", "map")
RESAMPLES = 10_000
UNDERPOWERED_BELOW = 50
_LEVEL = 0.95
_POWER = 0.8
_ALPHA = 0.05
_BATCH = 250
# Sums of the same numbers in another order differ in the last digits.
_TOLERANCE = 1e-9
_NORMAL = NormalDist()


class Decision(StrEnum):
    """What a comparison decides."""

    BETTER = "better"
    WORSE = "worse"
    UNDECIDED = "undecided"


def decision(comparison: Mapping[str, Any]) -> Decision:
    """Better or worse if corrected p < 0.05 and the interval excludes zero."""
    low, high = comparison["ci95"]
    if comparison["p_holm"] >= _ALPHA or low <= 0 <= high:
        return Decision.UNDECIDED
    return Decision.BETTER if comparison["delta"] > 0 else Decision.WORSE


@dataclass(frozen=True, slots=True)
class Comparison:
    """Difference of `a` to `b` on one metric and group."""

    a: str
    b: str
    stratum: str
    metric: str
    n: int
    delta: float
    ci95: tuple[float, float]
    p: float
    p_holm: float
    mde: float | None
    underpowered: bool

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain values."""
        return asdict(self) | {"ci95": list(self.ci95)}


def compare(
    scores: Mapping[str, Scores], baseline: str, strata: Mapping[str, Sequence[int]], *, seed: int
) -> list[Comparison]:
    """Compare arms with the baseline; each metric is one Holm family."""
    arms = [name for name in scores if name != baseline]
    pairs: dict[tuple[str, str, str], Paired] = {}
    for stratum, places in strata.items():
        if arms and places:
            rows = _differences(scores, arms, baseline, places)
            names = ((name, stratum, metric) for name in arms for metric in COMPARED)
            pairs |= zip(names, paired(rows, seed=seed), strict=True)
    corrected: dict[tuple[str, str, str], float] = {}
    for metric in COMPARED:
        family = [key for key in pairs if key[2] == metric]
        corrected |= zip(family, holm([pairs[key].p for key in family]), strict=True)
    return [
        _comparison(key, baseline, len(strata[key[1]]), pairs[key], corrected[key])
        for key in sorted(pairs, key=lambda key: arms.index(key[0]))
    ]


def _comparison(key: tuple[str, str, str], baseline: str, n: int, one: Paired, p_holm: float) -> Comparison:
    name, stratum, metric = key
    small = n < UNDERPOWERED_BELOW
    return Comparison(name, baseline, stratum, metric, n, one.delta, one.ci95, one.p, p_holm, one.mde, small)


@dataclass(frozen=True, slots=True)
class Paired:
    """Mean difference with 95 % interval, p and smallest detectable difference."""

    delta: float
    ci95: tuple[float, float]
    p: float
    mde: float | None


def paired(differences: Floats, *, seed: int, resamples: int = RESAMPLES) -> list[Paired]:
    """BCa interval and sign-flip test for each row of differences."""
    deltas = differences.mean(axis=1)
    lows, highs = _intervals(differences, seed, resamples)
    p_values = _p_values(differences, seed, resamples)
    smallest = detectable(differences)
    return [
        Paired(float(delta), (float(low), float(high)), float(p), mde)
        for delta, low, high, p, mde in zip(deltas, lows, highs, p_values, smallest, strict=True)
    ]


def detectable(differences: Floats) -> list[float | None]:
    """Smallest difference found with 80 % power: (z.975 + z.8) · sd / √n."""
    n = differences.shape[1]
    if n < 2:
        return [None] * len(differences)
    reach = (_NORMAL.inv_cdf((1 + _LEVEL) / 2) + _NORMAL.inv_cdf(_POWER)) / n**0.5
    return [reach * float(deviation) for deviation in differences.std(axis=1, ddof=1)]


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction of a family of p values."""
    order = sorted(range(len(p_values)), key=lambda position: p_values[position])
    corrected = [0.0] * len(p_values)
    worst = 0.0
    for step, position in enumerate(order):
        worst = max(worst, min(1.0, (len(p_values) - step) * p_values[position]))
        corrected[position] = worst
    return corrected


def _differences(scores: Mapping[str, Scores], arms: Sequence[str], baseline: str, places: Sequence[int]) -> Floats:
    chosen = list(places)
    rows: Floats = np.stack(
        [(scores[name][metric] - scores[baseline][metric])[chosen] for name in arms for metric in COMPARED]
    )
    return rows


def _intervals(differences: Floats, seed: int, resamples: int) -> tuple[Floats, Floats]:
    """BCa intervals (Efron 1987) with the closed-form jackknife of a mean."""
    means = differences.mean(axis=1)
    drawn = np.sort(_resampled(differences, seed, resamples), axis=1)
    below = (drawn < means[:, None] - _TOLERANCE).mean(axis=1)
    upto = (drawn <= means[:, None] + _TOLERANCE).mean(axis=1)
    apart = differences - means[:, None]
    ends = []
    with np.errstate(all="ignore"):
        bias = np.array([_quantile_of_normal(share) for share in (below + upto) / 2])
        skewed = (apart**3).sum(axis=1) / (6 * (apart**2).sum(axis=1) ** 1.5)
        for share in ((1 - _LEVEL) / 2, (1 + _LEVEL) / 2):
            moved = bias + _NORMAL.inv_cdf(share)
            at = np.array([erfc(-z / sqrt(2)) / 2 for z in bias + moved / (1 - skewed * moved)])
            # BCa is undefined on a nearly constant row: use the plain percentiles.
            ends.append(_quantiles(drawn, np.where(np.isfinite(at), at, share)))
    is_constant = np.ptp(differences, axis=1) == 0
    return np.where(is_constant, means, ends[0]), np.where(is_constant, means, ends[1])


def _quantile_of_normal(share: float) -> float:
    return _NORMAL.inv_cdf(share) if 0 < share < 1 else inf if share >= 1 else -inf


def _resampled(differences: Floats, seed: int, resamples: int) -> Floats:
    """Means of rows over queries drawn with replacement, alike for all."""
    n = differences.shape[1]
    random = np.random.default_rng(seed)
    means = np.empty((len(differences), resamples))
    for start in range(0, resamples, _BATCH):
        count = min(_BATCH, resamples - start)
        draws = random.integers(0, n, size=(count, n)) + n * np.arange(count)[:, None]
        often = np.bincount(draws.ravel(), minlength=count * n).reshape(count, n)
        means[:, start : start + count] = differences @ often.T.astype(np.float64) / n
    return means


def _quantiles(ordered: Floats, shares: Floats) -> Floats:
    """One quantile of each row of ordered numbers, interpolated linearly."""
    positions = shares * (ordered.shape[1] - 1)
    low = np.floor(positions).astype(int)
    high = np.minimum(low + 1, ordered.shape[1] - 1)
    rows = np.arange(len(ordered))
    quantiles: Floats = ordered[rows, low] + (positions - low) * (ordered[rows, high] - ordered[rows, low])
    return quantiles


def _p_values(differences: Floats, seed: int, resamples: int) -> Floats:
    """Two-sided p under random swaps of two arms, alike for all."""
    observed = np.abs(differences.sum(axis=1)) - _TOLERANCE
    random = np.random.default_rng(seed)
    extreme = np.zeros(len(differences))
    for start in range(0, resamples, _BATCH):
        count = min(_BATCH, resamples - start)
        signs = random.integers(0, 2, size=(count, differences.shape[1]), dtype=np.int8) * 2.0 - 1.0
        extreme += (np.abs(signs @ differences.T) >= observed).sum(axis=0)
    p_values: Floats = (extreme + 1) / (resamples + 1)
    return p_values
