"""Whether another judge's labels may count: Cohen's kappa against labels by hand, over enough of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from triskele.evaluation.own.labels import ANSWERS, HAND, Label, Labels
from triskele.evaluation.own.questions import MULTI_HOP, Question

LEAST_KAPPA = 0.6
LEAST_SHARE = 0.15
# Fewer pairs than this make any kappa an accident.
LEAST_PAIRS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How far two judges agree; `kappa` over the four grades decides, `kappa_binary` tells about answers or not."""

    by: str
    labels: int
    by_hand: int
    kappa: float | None
    kappa_binary: float | None
    left_to_hand: int
    reason: str | None

    @property
    def is_accepted(self) -> bool:
        """Whether the labels count."""
        return self.reason is None


def compare(given: Sequence[Label], known: Labels, questions: Mapping[str, Question], by: str) -> Verdict:
    """The verdict over a judge's labels; multi-hop questions are left to hand, whatever the judge says."""
    own = [label for label in given if questions[label.question].type != MULTI_HOP]
    shared = [(known[label.pair].grade, label.grade) for label in own if is_by_hand(known.get(label.pair))]
    kappa = cohen(shared)
    makers = sum(questions[label.question].generator.casefold() == by.casefold() for label in own)
    return Verdict(
        by=by,
        labels=len(own),
        by_hand=len(shared),
        kappa=kappa,
        kappa_binary=cohen([(one >= ANSWERS, other >= ANSWERS) for one, other in shared]),
        left_to_hand=len(given) - len(own),
        reason=_reason(kappa, len(shared), len(own), makers, by),
    )


def is_by_hand(label: Label | None) -> bool:
    """Whether a person gave this label."""
    return label is not None and label.by == HAND


def cohen(pairs: Sequence[tuple[int, int]]) -> float | None:
    """Agreement beyond chance (Cohen 1960), unweighted; None where chance alone would agree on everything."""
    if not pairs:
        return None
    n = len(pairs)
    ones, others = Counter(one for one, _ in pairs), Counter(other for _, other in pairs)
    agreed = sum(one == other for one, other in pairs) / n
    by_chance = sum(ones[grade] * others[grade] for grade in ones) / n**2
    return None if by_chance == 1 else (agreed - by_chance) / (1 - by_chance)


def _reason(kappa: float | None, by_hand: int, labels: int, makers: int, by: str) -> str | None:
    """Why the labels do not count; None where they do."""
    if makers:
        return f"{by} made the questions of {makers} of these labels: a judge must be another than the maker"
    wanted = max(LEAST_PAIRS, math.ceil(LEAST_SHARE * labels))
    if by_hand < wanted:
        return (
            f"{by_hand} of the {labels} labelled pairs are judged by hand,"
            f" {wanted} are needed ({LEAST_SHARE * 100:.0f} %, at least {LEAST_PAIRS})"
        )
    if kappa is None:
        return "every pair got the same grade from both judges: kappa says nothing about them"
    if kappa < LEAST_KAPPA:
        return f"kappa over the four grades is {kappa:.2f} on {by_hand} pairs, {LEAST_KAPPA} is needed"
    return None
