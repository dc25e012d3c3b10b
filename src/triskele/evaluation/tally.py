"""What each leg did for an arm: how its scores lie, what only it brought, and whether it changed anything."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from triskele.evaluation.windows import Window
from triskele.recall.fusion import Candidate

TOP = 10
LOOKED_AT = 30


class Given(NamedTuple):
    """What a leg gave to a document: its rank there, and what it added to the score."""

    rank: int
    contribution: float


class Found(NamedTuple):
    """A document under an arm, with what each leg gave to its best window."""

    document: str
    score: float
    legs: Mapping[str, Given]


class Tally:
    """Counts over the questions of one arm; of single documents it keeps the right ones alone."""

    def __init__(self) -> None:
        self.gold: dict[str, dict[str, Mapping[str, Given]]] = {}
        self._questions = 0
        self._raw: dict[str, array[float]] = {}
        self._changed: Counter[str] = Counter()
        self._brought: Counter[tuple[str, ...]] = Counter()
        self._right: Counter[tuple[str, ...]] = Counter()

    def add(self, query: str, fused: Sequence[Candidate], rows: Sequence[Window], right: frozenset[str]) -> None:
        """One question: what was found, best first, and which documents are right."""
        candidates = _by_document(fused, rows)
        found = [_found(document, each) for document, each in islice(candidates.items(), LOOKED_AT)]
        for document in (each.document for each in found):
            for leg, part in candidates[document].parts.items():
                self._raw.setdefault(leg, array("d")).append(part.raw)
        self._questions += 1
        for each in found[:TOP]:
            by = tuple(leg for leg, given in each.legs.items() if given.rank <= TOP)
            self._brought[by] += 1
            self._right[by] += each.document in right
        self._changed.update(changing_legs(found))
        self.gold[query] = {id: _found(id, candidates[id]).legs for id in sorted(right) if id in candidates}

    def to_json(self) -> dict[str, Any]:
        """Per leg: scores, share of questions that it changed, right documents that it or only it brought."""
        return {
            "looked_at": LOOKED_AT,
            "top": TOP,
            "legs": {leg: self._leg(leg) for leg in self._raw},
            "overlap": {
                "+".join(by) or "none": count / self._brought.total() for by, count in sorted(self._brought.items())
            },
        }

    def _leg(self, leg: str) -> dict[str, Any]:
        return {
            "scores": moments(self._raw[leg]),
            "changed": self._changed[leg] / self._questions if len(self._raw) > 1 else None,
            "right": sum(count for by, count in self._right.items() if leg in by),
            "right_alone": self._right[(leg,)],
        }


def changing_legs(found: Sequence[Found]) -> Iterator[str]:
    """The legs without whose part other documents would stand at the top."""
    with_all = {each.document for each in sorted(found, key=lambda each: -each.score)[:TOP]}
    legs = {leg for each in found for leg in each.legs}
    if len(legs) < 2:
        return
    for leg in sorted(legs):
        left = [(-_without(each, leg), each.document) for each in found if set(each.legs) != {leg}]
        if {document for _, document in sorted(left, key=lambda pair: pair[0])[:TOP]} != with_all:
            yield leg


def _without(found: Found, leg: str) -> float:
    given = found.legs.get(leg)
    return found.score - given.contribution if given is not None else found.score


def _by_document(fused: Sequence[Candidate], rows: Sequence[Window]) -> dict[str, Candidate]:
    """Every document with its best window."""
    best: dict[str, Candidate] = {}
    for candidate in fused:
        best.setdefault(rows[candidate.row].document, candidate)
    return best


def _found(document: str, candidate: Candidate) -> Found:
    legs = {leg: Given(part.rank, part.contribution) for leg, part in candidate.parts.items()}
    return Found(document, candidate.score, legs)


def moments(values: Sequence[float]) -> dict[str, float | int]:
    """Count, mean, standard deviation and skewness."""
    import numpy as np

    numbers = np.asarray(values, dtype=np.float64)
    apart = numbers - numbers.mean()
    deviation = float(np.sqrt((apart**2).mean()))
    # The third moment of numbers that are all the same is a quotient of rounding errors.
    skew = float((apart**3).mean()) / deviation**3 if deviation > 1e-9 else 0.0
    return {"n": len(numbers), "mean": float(numbers.mean()), "sd": deviation, "skew": skew}
