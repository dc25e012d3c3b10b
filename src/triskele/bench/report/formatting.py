"""How numbers, differences and names of a report are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_METRICS = {"ndcg@10": "nDCG@10", "mrr": "MRR", "map": "MAP", "recall_all@5": "all@5", "recall_any@5": "any@5"}
_LISTED = 6

INTERVAL = "95\u00a0% interval"

MEANINGS = {
    "ndcg@10": "how high the relevant memories rank among the first ten; 1 is perfect",
    "recall@5": "the share of the relevant memories among the first five",
    "recall@10": "the share of the relevant memories among the first ten",
    "recall_all@5": "how often every relevant memory is among the first five",
    "recall_any@5": "how often at least one relevant memory is among the first five",
    "mrr": "one over the rank of the first relevant memory",
    "map": "the precision at each relevant memory, averaged",
}


def metric_name(metric: str) -> str:
    """The usual spelling of a metric."""
    return _METRICS.get(metric, metric)


def value(number: float | None) -> str:
    """The value of a metric."""
    return "–" if number is None else f"{number:.3f}"


def signed(number: float, digits: int = 3) -> str:
    """A difference with its sign; one that rounds to zero has none."""
    text = f"{abs(number):.{digits}f}"
    if not float(text):
        return text
    return f"{'+' if number > 0 else '−'}{text}"


def interval(comparison: Mapping[str, Any]) -> str:
    """The 95 % interval of a difference."""
    low, high = comparison["ci95"]
    return f"{signed(low)} to {signed(high)}"


def detectable(comparison: Mapping[str, Any]) -> str:
    """The smallest detectable difference, shown with every undecided comparison."""
    smallest = comparison["mde"]
    return "detects nothing" if smallest is None else f"detects\u00a0≥\u00a0{smallest:.3f}"


def p_value(p: float) -> str:
    """A p value."""
    return "p\u00a0<\u00a00.001" if p < 0.001 else f"p\u00a0=\u00a0{p:.3f}"


def listing(names: Sequence[str]) -> str:
    """Names as a phrase; a long list is cut."""
    if len(names) > _LISTED:
        return f"{', '.join(names[:_LISTED])} and {len(names) - _LISTED} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def grouped(pairs: Iterable[tuple[str, str]]) -> str:
    """Pairs of a name and an item as a phrase: "a on x and y; b on z"."""
    items_of: dict[str, list[str]] = {}
    for name, item in pairs:
        items_of.setdefault(name, []).append(item)
    return "; ".join(f"{name} on {listing(items)}" for name, items in items_of.items())


def questions(count: int) -> str:
    """A number of questions, with the right plural."""
    return f"{count:,} question{'' if count == 1 else 's'}"
