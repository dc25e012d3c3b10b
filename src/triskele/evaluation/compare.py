"""Whether one arm is better than another: paired differences, their intervals and their chance of being chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from triskele.recall.fusion import Scores

    Floats = NDArray[np.float64]

COMPARED = ("recall@5", "recall@10", "recall_all@5", "recall_any@5", "ndcg@10", "mrr", "map")
RESAMPLES = 10_000
UNDERPOWERED_BELOW = 50
_LEVEL = 0.95
_POWER = 0.8
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
    mde: float | None
    underpowered: bool

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain values."""
        return asdict(self) | {"ci95": list(self.ci95)}


def compare(
    scores: Mapping[str, Scores], baseline: str, strata: Mapping[str, Sequence[int]], *, seed: int
) -> list[Comparison]:
    """Every arm against the baseline, per stratum and metric; a family for Holm is all that is said of one metric."""
    rivals = [name for name in scores if name != baseline]
    found: dict[tuple[str, str, str], Paired] = {}
    for stratum, places in strata.items():
        if rivals and places:
            rows = _differences(scores, rivals, baseline, places)
            names = ((name, stratum, metric) for name in rivals for metric in COMPARED)
            found |= zip(names, paired(rows, seed=seed), strict=True)
    corrected: dict[tuple[str, str, str], float] = {}
    for metric in COMPARED:
        family = [key for key in found if key[2] == metric]
        corrected |= zip(family, holm([found[key].p for key in family]), strict=True)
    return [
        _comparison(key, baseline, len(strata[key[1]]), found[key], corrected[key])
        for key in sorted(found, key=lambda key: rivals.index(key[0]))
    ]


def _comparison(key: tuple[str, str, str], baseline: str, n: int, one: Paired, p_holm: float) -> Comparison:
    name, stratum, metric = key
    small = n < UNDERPOWERED_BELOW
    return Comparison(name, baseline, stratum, metric, n, one.delta, one.ci95, one.p, p_holm, one.mde, small)


@dataclass(frozen=True, slots=True)
class Paired:
    """A mean difference with its 95 % interval, two-sided p, and the difference that would have been noticed."""

    delta: float
    ci95: tuple[float, float]
    p: float
    mde: float | None


def paired(differences: Floats, *, seed: int, resamples: int = RESAMPLES) -> list[Paired]:
    """For each row of per-query differences: BCa bootstrap interval and sign-flip permutation test."""
    deltas = differences.mean(axis=1)
    lows, highs = _intervals(differences, seed, resamples)
    chances = _chances(differences, seed, resamples)
    noticed = detectable(differences)
    return [
        Paired(float(delta), (float(low), float(high)), float(p), mde)
        for delta, low, high, p, mde in zip(deltas, lows, highs, chances, noticed, strict=True)
    ]


def detectable(differences: Floats) -> list[float | None]:
    """The smallest mean difference of each row that four of five such samples would show: (z.975 + z.8) · sd / √n."""
    from scipy.special import ndtri

    n = differences.shape[1]
    if n < 2:
        return [None] * len(differences)
    reach = float(ndtri((1 + _LEVEL) / 2) + ndtri(_POWER)) / n**0.5
    return [reach * float(deviation) for deviation in differences.std(axis=1, ddof=1)]


def holm(chances: Sequence[float]) -> list[float]:
    """Holm's step-down correction of a family of p values."""
    order = sorted(range(len(chances)), key=lambda place: chances[place])
    corrected = [0.0] * len(chances)
    worst = 0.0
    for step, place in enumerate(order):
        worst = max(worst, min(1.0, (len(chances) - step) * chances[place]))
        corrected[place] = worst
    return corrected


def _differences(scores: Mapping[str, Scores], rivals: Sequence[str], baseline: str, places: Sequence[int]) -> Floats:
    import numpy as np

    chosen = list(places)
    rows: Floats = np.stack(
        [(scores[name][metric] - scores[baseline][metric])[chosen] for name in rivals for metric in COMPARED]
    )
    return rows


def _intervals(differences: Floats, seed: int, resamples: int) -> tuple[Floats, Floats]:
    """BCa (Efron 1987); of a mean the jackknife is known, so no resample has to be drawn for it."""
    import numpy as np
    from scipy.special import ndtr, ndtri

    means = differences.mean(axis=1)
    drawn = np.sort(_resampled(differences, seed, resamples), axis=1)
    below = (drawn < means[:, None] - _TOLERANCE).mean(axis=1)
    upto = (drawn <= means[:, None] + _TOLERANCE).mean(axis=1)
    apart = differences - means[:, None]
    ends = []
    with np.errstate(all="ignore"):
        bias = ndtri((below + upto) / 2)
        skewed = (apart**3).sum(axis=1) / (6 * (apart**2).sum(axis=1) ** 1.5)
        for share in ((1 - _LEVEL) / 2, (1 + _LEVEL) / 2):
            moved = bias + ndtri(share)
            at = ndtr(bias + moved / (1 - skewed * moved))
            # BCa is undefined on a nearly constant row; the plain percentiles stand in for it.
            ends.append(_quantiles(drawn, np.where(np.isfinite(at), at, share)))
    still = np.ptp(differences, axis=1) == 0
    return np.where(still, means, ends[0]), np.where(still, means, ends[1])


def _resampled(differences: Floats, seed: int, resamples: int) -> Floats:
    """The mean of every row over queries drawn with replacement, the same draws for all rows."""
    import numpy as np

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
    """A quantile of its own for each row of ordered numbers, between neighbours by their distance."""
    import numpy as np

    at = shares * (ordered.shape[1] - 1)
    low = np.floor(at).astype(int)
    high = np.minimum(low + 1, ordered.shape[1] - 1)
    rows = np.arange(len(ordered))
    found: Floats = ordered[rows, low] + (at - low) * (ordered[rows, high] - ordered[rows, low])
    return found


def _chances(differences: Floats, seed: int, resamples: int) -> Floats:
    """Two-sided p under random exchange of the two arms, the same exchanges for all rows."""
    import numpy as np

    observed = np.abs(differences.sum(axis=1)) - _TOLERANCE
    random = np.random.default_rng(seed)
    extreme = np.zeros(len(differences))
    for start in range(0, resamples, _BATCH):
        count = min(_BATCH, resamples - start)
        signs = random.integers(0, 2, size=(count, differences.shape[1]), dtype=np.int8) * 2.0 - 1.0
        extreme += (np.abs(signs @ differences.T) >= observed).sum(axis=0)
    chances: Floats = (extreme + 1) / (resamples + 1)
    return chances
