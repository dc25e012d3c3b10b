"""The results of an arm: its run, metrics, latency and legs."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from triskele.bench import metrics
from triskele.bench.datasets import BenchQuery, Qrels
from triskele.bench.metrics import Scores
from triskele.types import LegEvidence

TOP = 10
LOOKED_AT = 30
# Latency is that of a recall of this many memories, over at most this many queries.
TIMED_LIMIT = 10
MAX_TIMED = 200
LATENCY = f"a recall of {TIMED_LIMIT} without reasons, up to {MAX_TIMED} queries; encoding the query is not included"
_NO_LEGS: Mapping[str, Any] = {"legs": {}, "overlap": {}}

Run = Mapping[str, Sequence[tuple[str, float]]]


Progress = Callable[[str, int, int], None]


def quiet(_stage: str, _done: int, _total: int) -> None:
    """Report no progress."""


@dataclass(frozen=True, slots=True)
class RankedDocument:
    """A document at its rank; `relevance` is its score before importance."""

    document: str
    score: float
    relevance: float
    legs: Mapping[str, LegEvidence] = field(default_factory=dict)


class LegRank(NamedTuple):
    """Rank of a document in a leg, and the leg's contribution."""

    rank: int
    contribution: float


LegsOfRelevant = Mapping[str, Mapping[str, Mapping[str, LegRank]]]


@dataclass(frozen=True, slots=True)
class Measured:
    """The results of one arm.

    `legs` counts what each leg contributed, `relevant` holds it for the relevant documents of each query;
    `confidence` is filled for arms that have one, for queries without an answer too.
    """

    run: Run
    scores: Scores
    latencies_ms: Sequence[float]
    bytes_per_memory: float
    legs: Mapping[str, Any] = field(default_factory=lambda: _NO_LEGS)
    relevant: LegsOfRelevant = field(default_factory=dict)
    confidence: Mapping[str, float] = field(default_factory=dict)

    def ranked(self) -> dict[str, list[str]]:
        """The documents of each query, best first."""
        return documents_of(self.run)


def score(queries: Sequence[BenchQuery], qrels: Qrels, run: Run) -> Scores:
    """Every metric of every query of a run."""
    return metrics.evaluate([query.id for query in queries], qrels, documents_of(run))


def documents_of(run: Run) -> dict[str, list[str]]:
    """A run without its scores."""
    return {query: [document for document, _ in found] for query, found in run.items()}


def relevant(query: str, qrels: Qrels) -> frozenset[str]:
    """The relevant documents of a query."""
    return frozenset(id for id, grade in qrels[query].items() if grade > 0)


class LegStatistics:
    """Counts over one arm's queries: scores, overlap, and each leg's share."""

    def __init__(self) -> None:
        self.relevant: dict[str, dict[str, Mapping[str, LegRank]]] = {}
        self._queries = 0
        self._raw: dict[str, array[float]] = {}
        self._changed: Counter[str] = Counter()
        self._retrieved: Counter[tuple[str, ...]] = Counter()
        self._hits: Counter[tuple[str, ...]] = Counter()

    def add(self, query: str, ranking: Sequence[RankedDocument], relevant: frozenset[str]) -> None:
        """Count one query: its ranking, best first, and its relevant documents."""
        best: dict[str, RankedDocument] = {}
        for document in ranking:
            best.setdefault(document.document, document)
        top = list(islice(best.values(), LOOKED_AT))
        for document in top:
            for leg, evidence in document.legs.items():
                self._raw.setdefault(leg, array("d")).append(evidence.score)
        self._queries += 1
        for document in top[:TOP]:
            legs = tuple(leg for leg, evidence in document.legs.items() if evidence.rank <= TOP)
            self._retrieved[legs] += 1
            self._hits[legs] += document.document in relevant
        self._changed.update(changing_legs(top))
        self.relevant[query] = {
            id: {leg: LegRank(evidence.rank, evidence.contribution) for leg, evidence in best[id].legs.items()}
            for id in sorted(relevant)
            if id in best
        }

    def to_json(self) -> dict[str, Any]:
        """Per leg: scores, changed queries, and relevant documents it retrieved."""
        return {
            "looked_at": LOOKED_AT,
            "top": TOP,
            "legs": {leg: self._leg(leg) for leg in self._raw},
            "overlap": {
                "+".join(legs) or "none": count / self._retrieved.total()
                for legs, count in sorted(self._retrieved.items())
            },
        }

    def _leg(self, leg: str) -> dict[str, Any]:
        return {
            "scores": moments(self._raw[leg]),
            "changed": self._changed[leg] / self._queries if len(self._raw) > 1 else None,
            "right": sum(count for legs, count in self._hits.items() if leg in legs),
            "right_alone": self._hits[(leg,)],
        }


def changing_legs(ranking: Sequence[RankedDocument]) -> Iterator[str]:
    """The legs without whose contribution the top would hold other documents."""
    with_all = {each.document for each in sorted(ranking, key=lambda each: -each.relevance)[:TOP]}
    legs = {leg for each in ranking for leg in each.legs}
    if len(legs) < 2:
        return
    for leg in sorted(legs):
        left = [(-_relevance_without(each, leg), each.document) for each in ranking if set(each.legs) != {leg}]
        if {document for _, document in sorted(left, key=lambda pair: pair[0])[:TOP]} != with_all:
            yield leg


def _relevance_without(each: RankedDocument, leg: str) -> float:
    evidence = each.legs.get(leg)
    return each.relevance - evidence.contribution if evidence is not None else each.relevance


def moments(values: Sequence[float]) -> dict[str, float | int]:
    """Count, mean, standard deviation and skewness."""
    numbers = np.asarray(values, dtype=np.float64)
    centred = numbers - numbers.mean()
    deviation = float(np.sqrt((centred**2).mean()))
    # The skewness of equal numbers is a quotient of rounding errors.
    skew = float((centred**3).mean()) / deviation**3 if deviation > 1e-9 else 0.0
    return {"n": len(numbers), "mean": float(numbers.mean()), "sd": deviation, "skew": skew}
