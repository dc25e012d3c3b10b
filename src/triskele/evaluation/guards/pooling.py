"""How much of what an arm puts first anybody has judged: what nobody judged counts as wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from triskele.evaluation.datasets import BenchQuery, Qrels
from triskele.evaluation.guards.finding import Finding, Severity
from triskele.evaluation.tally import TOP

GUARD = "pooling"
MAX_GAP = 0.10


def coverage(
    runs: Mapping[str, Mapping[str, Sequence[tuple[str, float]]]], queries: Sequence[BenchQuery], qrels: Qrels
) -> dict[str, Any]:
    """The share of each arm's first places that carry a label, and what a label means here."""
    grades = [grade for query in queries for grade in qrels[query.id].values()]
    right = [sum(grade > 0 for grade in qrels[query.id].values()) for query in queries]
    return {
        "top": TOP,
        "means": "judged" if min(grades) <= 0 else "relevant",
        "graded": len({grade for grade in grades if grade > 0}) > 1,
        "one_right": sum(count == 1 for count in right) / len(right),
        "arms": {name: _share(run, queries, qrels) for name, run in runs.items()},
    }


def _share(run: Mapping[str, Sequence[tuple[str, float]]], queries: Sequence[BenchQuery], qrels: Qrels) -> float:
    places = [document in qrels[query.id] for query in queries for document, _ in run[query.id][:TOP]]
    return sum(places) / len(places) if places else 0.0


def findings(found: Mapping[str, Any]) -> Iterator[Finding]:
    """Arms that were judged unequally, and labels that say less than they seem to."""
    shares = found["arms"]
    least, most = min(shares, key=lambda name: shares[name]), max(shares, key=lambda name: shares[name])
    if found["means"] == "relevant":
        said = "The labels name right documents only: whether an arm's other results were judged is not known"
        yield Finding(GUARD, Severity.NOTE, f"{said}, so levels are a lower bound and differences count.")
    elif shares[most] - shares[least] > MAX_GAP:
        said = f"{shares[most]:.0%} of the first {TOP} of {most} were judged, of {least} only {shares[least]:.0%}"
        yield Finding(GUARD, Severity.ALARM, f"{said}: the labels favour the arms that were pooled.", least)
    if not found["graded"]:
        said = "The labels know right and wrong only: nDCG says where a right document stands, not how right it is."
        yield Finding(GUARD, Severity.NOTE, said)
