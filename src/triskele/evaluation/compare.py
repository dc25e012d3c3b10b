"""Whether one arm is better than another: paired differences, their intervals and their chance of being chance."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from triskele.evaluation.metrics import Scores

    Floats = NDArray[np.float64]

COMPARED = ("recall@5", "recall@10", "recall_all@5", "recall_any@5", "ndcg@10", "mrr", "map")
RESAMPLES = 10_000
_BATCH = 250
# Sums of the same numbers in another order may differ in the last digits.
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Comparison:
    """How much better `a` is than `b` on one metric over one group of queries."""

    a: str
    b: str
    stratum: str
    metric: str
    n: int
    delta: float
    ci95: tuple[float, float]
    p: float
    p_holm: float

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain values."""
        return asdict(self) | {"ci95": list(self.ci95)}


def compare(
    scores: Mapping[str, Scores], baseline: str, strata: Mapping[str, Sequence[int]], *, seed: int
) -> list[Comparison]:
    """Every arm against the baseline, per stratum and metric; a family for Holm is all that is said of one metric."""
    found: list[tuple[str, str, str, int, Paired]] = []
    for name in scores:
        for stratum, places in strata.items():
            if name != baseline and places:
                results = paired(_differences(scores[name], scores[baseline], places), seed=seed)
                found += [
                    (name, stratum, metric, len(places), result)
                    for metric, result in zip(COMPARED, results, strict=True)
                ]
    corrected: dict[int, float] = {}
    for metric in COMPARED:
        family = [place for place, (_, _, of, _, _) in enumerate(found) if of == metric]
        corrected |= dict(zip(family, holm([found[place][4].p for place in family]), strict=True))
    return [
        Comparison(name, baseline, stratum, metric, n, result.delta, result.ci95, result.p, corrected[place])
        for place, (name, stratum, metric, n, result) in enumerate(found)
    ]


@dataclass(frozen=True, slots=True)
class Paired:
    """A mean difference with its 95 % interval and two-sided p."""

    delta: float
    ci95: tuple[float, float]
    p: float


def paired(differences: Floats, *, seed: int, resamples: int = RESAMPLES) -> list[Paired]:
    """For each row of per-query differences: BCa bootstrap interval and sign-flip permutation test."""
    deltas = differences.mean(axis=1)
    lows, highs = _intervals(differences, seed, resamples)
    chances = _chances(differences, seed, resamples)
    return [
        Paired(float(delta), (float(low), float(high)), float(p))
        for delta, low, high, p in zip(deltas, lows, highs, chances, strict=True)
    ]


def holm(chances: Sequence[float]) -> list[float]:
    """Holm's step-down correction of a family of p values."""
    order = sorted(range(len(chances)), key=lambda place: chances[place])
    corrected = [0.0] * len(chances)
    worst = 0.0
    for step, place in enumerate(order):
        worst = max(worst, min(1.0, (len(chances) - step) * chances[place]))
        corrected[place] = worst
    return corrected


def _differences(one: Scores, other: Scores, places: Sequence[int]) -> Floats:
    import numpy as np

    rows: Floats = np.stack([(one[metric] - other[metric])[list(places)] for metric in COMPARED])
    return rows


def _intervals(differences: Floats, seed: int, resamples: int) -> tuple[Floats, Floats]:
    import numpy as np
    from scipy import stats

    lows, highs = differences.mean(axis=1), differences.mean(axis=1)
    varied = np.ptp(differences, axis=1) > 0
    if not varied.any():
        return lows, highs
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # BCa is undefined on a nearly constant row; the percentiles stand in for it below.
        warnings.simplefilter("ignore")
        result = stats.bootstrap(
            (differences[varied],), np.mean, axis=-1, n_resamples=resamples, batch=_BATCH, method="BCa", rng=seed
        )
    percentiles = np.percentile(result.bootstrap_distribution, [2.5, 97.5], axis=-1)
    for ends, given, plain in zip((lows, highs), result.confidence_interval, percentiles, strict=True):
        ends[varied] = np.where(np.isnan(given), plain, given)
    return lows, highs


def _chances(differences: Floats, seed: int, resamples: int) -> Floats:
    """Two-sided p under random exchange of the two arms, the same exchange for every metric."""
    import numpy as np

    moved = differences[:, np.any(differences != 0, axis=0)]
    observed = np.abs(moved.sum(axis=1)) - _TOLERANCE
    random = np.random.default_rng(seed)
    extreme = np.zeros(len(moved))
    for start in range(0, resamples, _BATCH):
        count = min(_BATCH, resamples - start)
        signs = random.integers(0, 2, size=(count, moved.shape[1]), dtype=np.int8) * 2.0 - 1.0
        extreme += (np.abs(signs @ moved.T) >= observed).sum(axis=0)
    chances: Floats = (extreme + 1) / (resamples + 1)
    return chances
