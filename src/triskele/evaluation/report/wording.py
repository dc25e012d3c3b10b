"""How numbers and names are said on the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_METRICS = {"ndcg@10": "nDCG@10", "mrr": "MRR", "map": "MAP", "recall_all@5": "all@5", "recall_any@5": "any@5"}
_LISTED = 6

INTERVAL = "95\u00a0% interval"

MEANINGS = {
    "ndcg@10": "how high the right memories stand among the first ten; 1 is perfect",
    "recall@5": "the share of the right memories among the first five",
    "recall@10": "the share of the right memories among the first ten",
    "recall_all@5": "how often every right memory is among the first five",
    "recall_any@5": "how often at least one right memory is among the first five",
    "mrr": "one over the rank of the first right memory",
    "map": "the precision at each right memory, averaged",
}


def metric_name(metric: str) -> str:
    """A metric as people write it."""
    return _METRICS.get(metric, metric)


def value(number: float | None) -> str:
    """A metric's value."""
    return "–" if number is None else f"{number:.3f}"


def signed(number: float, digits: int = 3) -> str:
    """A difference with its sign; one that rounds to nothing has none."""
    said = f"{abs(number):.{digits}f}"
    if not float(said):
        return said
    return f"{'+' if number > 0 else '−'}{said}"


def interval(comparison: Mapping[str, Any]) -> str:
    """The 95 % interval of a difference."""
    low, high = comparison["ci95"]
    return f"{signed(low)} to {signed(high)}"


def noticeable(comparison: Mapping[str, Any]) -> str:
    """The smallest difference that would have been noticed, to be said beside every "no difference"."""
    smallest = comparison["mde"]
    return "notices nothing" if smallest is None else f"notices\u00a0≥\u00a0{smallest:.3f}"


def chance(p: float) -> str:
    """A p value."""
    return "p\u00a0<\u00a00.001" if p < 0.001 else f"p\u00a0=\u00a0{p:.3f}"


def listing(names: Sequence[str]) -> str:
    """Names as a phrase; a long list is cut and says so."""
    if len(names) > _LISTED:
        return f"{', '.join(names[:_LISTED])} and {len(names) - _LISTED} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def grouped(pairs: Iterable[tuple[str, str]]) -> str:
    """Who on what, said once for each who."""
    found: dict[str, list[str]] = {}
    for who, what in pairs:
        found.setdefault(who, []).append(what)
    return "; ".join(f"{who} on {listing(on)}" for who, on in found.items())


def questions(count: int) -> str:
    """So many questions."""
    return f"{count:,} question{'' if count == 1 else 's'}"
