"""Decides how a new memory relates to its nearest ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from triskele.curation.compare import compare
from triskele.replies.rooms import Rationale
from triskele.types import SURE, TRUST, Memory, RelationName, Verdict, is_secret

# A relation that is doubtful for a reason besides the words is proposed, never applied.
_DOUBTFUL = 0.6
# Below this a relation is not even proposed.
LEAST_CONFIDENCE = 0.5
# How many of the nearest memories are compared.
NEAREST = 10

_RELATIONS: Mapping[Verdict, RelationName] = {
    Verdict.NOOP: "duplicate",
    Verdict.UPDATE: "update",
    Verdict.SUPERSEDE: "contradiction",
}


class NearMemory(NamedTuple):
    """A memory near to a new one, with their cosine if known."""

    memory: Memory
    cosine: float | None = None


@dataclass(frozen=True, slots=True)
class PairDecision:
    """A verdict on a newer memory and an older one, with reasons."""

    verdict: Verdict
    new: Memory
    old: Memory | None = None
    confidence: float = 1.0
    reasons: tuple[Rationale, ...] = ()

    @property
    def relation(self) -> RelationName:
        """The relation of the two memories, as clients name it."""
        return _RELATIONS[self.verdict]

    @property
    def is_sure(self) -> bool:
        """Whether it may be applied without a review."""
        return self.old is not None and self.confidence >= SURE

    @property
    def needs_consent(self) -> bool:
        """Whether only the user may approve it: trust or sensitivity would change."""
        if self.old is None:
            return self.verdict is Verdict.FORGET
        rises = TRUST.index(self.new.origin) > TRUST.index(self.old.origin)
        return (rises and self.verdict is not Verdict.NOOP) or self.new.sensitivity is not self.old.sensitivity


def decide(new: Memory, nearest: Iterable[NearMemory]) -> PairDecision:
    """The verdict on a new memory: the surest of its relations."""
    return next(iter(related(new, nearest)), PairDecision(Verdict.ADD, new))


def related(new: Memory, nearest: Iterable[NearMemory]) -> list[PairDecision]:
    """The relations of a new memory to near ones, surest first."""
    decisions = [decision for near in nearest if (decision := _decision(new, near)) is not None]
    return sorted(decisions, key=lambda each: (-each.confidence, each.verdict is not Verdict.NOOP))


def _decision(new: Memory, near: NearMemory) -> PairDecision | None:
    old = near.memory
    if old.id == new.id or is_secret(old) or is_secret(new) or old.project != new.project:
        return None
    if _has_ended(old, new) or _order(old) > _order(new):
        # The newer of two decides.
        return None
    relation = compare(old.content, new.content, near.cosine)
    doubts = tuple(_doubts(old, new))
    confidence = min(relation.confidence, _DOUBTFUL) if doubts else relation.confidence
    if relation.verdict is Verdict.ADD or confidence < LEAST_CONFIDENCE:
        return None
    return PairDecision(relation.verdict, new, old, confidence, (*relation.reasons, *doubts))


def _doubts(old: Memory, new: Memory) -> Iterable[Rationale]:
    """Reasons besides the words that make a relation doubtful."""
    if old.speaker != new.speaker:
        yield Rationale("other speaker", old.speaker or "", new.speaker or "")
    if old.position is not None or new.position is not None:
        # A turn of a conversation means what it means there.
        yield Rationale("part of a conversation")
    is_dated = old.valid_from is not None or old.valid_to is not None
    if new.valid_to is not None or (is_dated and new.valid_from is None):
        yield Rationale("holds for a time of its own")


def begins(memory: Memory) -> datetime:
    """From when on a memory holds."""
    return memory.valid_from or memory.created_at


def _order(memory: Memory) -> tuple[datetime, str]:
    return begins(memory), memory.id


def _has_ended(old: Memory, new: Memory) -> bool:
    return old.valid_to is not None and old.valid_to <= begins(new)
