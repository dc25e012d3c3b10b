"""Whether a leg can count at all under an arm's fusion: an ablation of one that cannot says nothing about it.

Ranks decide this before any question is asked; where scores are fused it shows in the runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from triskele.evaluation.arms import Arm
from triskele.evaluation.guards.finding import Finding, Severity
from triskele.evaluation.tally import TOP
from triskele.recall.fusion import SHARES, FusionConfig

GUARD = "structure"
_MIN_QUESTIONS = 20


class Pool(StrEnum):
    """Where a leg's candidates may come from."""

    SHARED = "shared"
    OUTSIDE = "outside the other legs"


class Reach(StrEnum):
    """How far a leg can reach into the first places."""

    BRINGS = "brings"
    LIFTS = "lifts"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFusion:
    """Reciprocal rank fusion of full lists, each of `depth` candidates."""

    weights: Mapping[str, float]
    k: Mapping[str, float] = field(default_factory=dict)
    depth: int = 50
    pools: Mapping[str, Pool] = field(default_factory=dict)

    def score(self, leg: str, rank: int) -> float:
        """What a leg gives to the candidate at a rank."""
        return self.weights[leg] / (self.k.get(leg, FusionConfig().default_k) + rank) if rank <= self.depth else 0.0

    def bar(self, leg: str, top: int) -> float:
        """The least that the others' candidate at the last place can have.

        Each other leg alone puts `top` candidates at or above its own score at that rank, and there is an
        arrangement in which no more than that is reached: the same candidates above, different ones there.
        """
        return max((self.score(other, top) for other in self.weights if other != leg), default=0.0)

    def reach(self, leg: str, top: int = TOP) -> Reach:
        """Whether a candidate of this leg alone can be among the first, or at least one that it lifts."""
        best = self.score(leg, 1)
        if best <= 0:
            return Reach.NONE
        # Of equal scores the one at the better rank stands first.
        if best >= self.bar(leg, top):
            return Reach.BRINGS
        shares = self.pools.get(leg, Pool.SHARED) is Pool.SHARED
        return Reach.LIFTS if shares and self._lifts(leg, top) else Reach.NONE

    def _lifts(self, leg: str, top: int) -> bool:
        """Whether the first of this leg passes the last place from the place below."""
        others = [other for other in self.weights if other != leg]
        below = max((self.score(other, top + 1) for other in others), default=0.0)
        return below + self.score(leg, 1) > self.bar(leg, top)


def reaches(arm: Arm, depth: int) -> dict[str, Reach]:
    """How far each leg of an arm can reach, where ranks alone decide it."""
    plan = arm.plan
    if plan is None or plan.fusion != "rrf" or len(plan.legs) < 2:
        return {}
    weights = plan.weights or SHARES[plan.fusion]
    fusion = RankFusion(weights={leg: weights.get(leg, 0.0) for leg in plan.legs}, k=plan.k, depth=depth)
    return {leg: fusion.reach(leg) for leg in sorted(plan.legs)}


def same_places(runs: Mapping[str, Mapping[str, Sequence[tuple[str, float]]]]) -> Iterator[Finding]:
    """Arms that put the same documents first for every question: between them nothing was tested."""
    alike: dict[int, list[str]] = {}
    for name, run in runs.items():
        places = tuple(document for found in run.values() for document, _ in found[:TOP])
        alike.setdefault(hash(places), []).append(name)
    for first, *others in alike.values():
        for other in others:
            said = f"{other} ranks the first {TOP} of every question as {first} does: this set cannot tell them apart."
            yield Finding(GUARD, Severity.NOTE, said, other)


def findings(arm: str, reached: Mapping[str, Reach], tally: Mapping[str, Any], questions: int) -> Iterator[Finding]:
    """What is to be said of one arm's legs."""
    for leg, reach in reached.items():
        if reach is Reach.NONE:
            said = f"{arm}: no candidate of the {leg} leg can reach the first {TOP} under these weights"
            yield Finding(GUARD, Severity.ALARM, f"{said}; this arm is no test of that leg.", arm)
        elif reach is Reach.LIFTS:
            said = f"{arm}: the {leg} leg can lift what others found too, but what only it finds stays below {TOP}."
            yield Finding(GUARD, Severity.NOTE, said, arm)
    legs = tally["legs"]
    if len(legs) < 2 or questions < _MIN_QUESTIONS:
        return
    for leg, counted in legs.items():
        if counted["changed"] == 0 and reached.get(leg) is not Reach.NONE:
            said = f"{arm}: without the {leg} leg the first {TOP} of all {questions} questions would be the same"
            yield Finding(GUARD, Severity.ALARM, f"{said}; this arm is no test of that leg.", arm)
