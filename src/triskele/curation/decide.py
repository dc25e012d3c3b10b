"""Decides how a new memory relates to its nearest ones, and what that changes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from triskele.curation.compare import compare
from triskele.replies.rooms import Rationale
from triskele.store.writer import revision
from triskele.text import timestamps
from triskele.types import (
    CLOSENESS,
    SURE,
    TRUST,
    Change,
    Connect,
    Forget,
    Link,
    LinkKind,
    Memory,
    RelationName,
    Revise,
    Sensitivity,
    Verdict,
    is_secret,
    least_trusted,
)

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
    """A memory near to a new one, with their cosine; NaN if one of them has no vector."""

    memory: Memory
    cosine: float = math.nan


@dataclass(frozen=True, slots=True)
class PairDecision:
    """A verdict on a newer memory and an older one, with reasons."""

    verdict: Verdict
    new: Memory
    old: Memory | None = None
    confidence: float = 1.0
    reasons: tuple[Rationale, ...] = ()

    @property
    def memories(self) -> tuple[Memory, ...]:
        """The newer memory, and the older one if there is one."""
        return (self.new,) if self.old is None else (self.new, self.old)

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
            return True
        rises = TRUST.index(self.new.origin) > TRUST.index(self.old.origin)
        return (rises and self.verdict is not Verdict.NOOP) or self.new.sensitivity is not self.old.sensitivity


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


# The changes that carry a decision out; nothing is deleted


def changes_of(decision: PairDecision) -> list[Change]:
    """The changes that carry out a decision."""
    if decision.old is None:
        return [Forget(decision.new.id)]
    return _CHANGES[decision.verdict](decision.new, decision.old)


def retired(decision: PairDecision) -> Memory:
    """The memory that a decision takes out of recall."""
    if decision.old is None:
        return decision.new
    return _copy(decision.new, decision.old) if decision.verdict is Verdict.NOOP else decision.old


def _superseded(new: Memory, old: Memory) -> list[Change]:
    """The older memory ends when the newer one, its successor, begins."""
    end = begins(new)
    is_open = old.valid_to is None or old.valid_to > end
    changes: list[Change] = []
    if is_open and (old.valid_from is None or old.valid_from < end):
        changes.append(Revise(replace(old, valid_to=end, updated_at=timestamps.now()), base=old.version))
    return [*changes, Connect(_link(new, old))]


def _updated(new: Memory, old: Memory) -> list[Change]:
    """The newer memory takes over the labels of the older one."""
    merged = replace(
        new,
        tags=tuple(dict.fromkeys((*new.tags, *old.tags))),
        importance=max(new.importance, old.importance),
        sensitivity=_closest(new, old),
        origin=least_trusted(new.origin, old.origin),
    )
    return [*_revised(new, merged), Connect(_link(new, old))]


def _known(new: Memory, old: Memory) -> list[Change]:
    """One of two equal memories stays: the more trusted or older one."""
    copy = _copy(new, old)
    original = old if copy is new else new
    merged = replace(original, sensitivity=_closest(new, old))
    return [*_revised(original, merged), Connect(_link(original, copy))]


def _copy(new: Memory, old: Memory) -> Memory:
    return old if TRUST.index(new.origin) < TRUST.index(old.origin) else new


def _closest(new: Memory, old: Memory) -> Sensitivity:
    return max(new.sensitivity, old.sensitivity, key=CLOSENESS.index)


def _revised(before: Memory, after: Memory) -> list[Change]:
    if before == after:
        return []
    return revision(before, replace(after, updated_at=timestamps.now()))


def _link(source: Memory, target: Memory) -> Link:
    return Link(source=source.id, kind=LinkKind.SUPERSEDES, target=target.id, known_from=timestamps.now())


_CHANGES = {Verdict.SUPERSEDE: _superseded, Verdict.UPDATE: _updated, Verdict.NOOP: _known}
