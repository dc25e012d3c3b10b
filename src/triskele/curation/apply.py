"""Turns decisions into journaled changes; nothing is deleted."""

from __future__ import annotations

from dataclasses import replace

from triskele.curation.decide import PairDecision, begins
from triskele.store.writer import revision
from triskele.text import timestamps
from triskele.types import (
    CLOSENESS,
    TRUST,
    Change,
    Connect,
    Forget,
    Link,
    LinkKind,
    Memory,
    Revise,
    Sensitivity,
    Verdict,
    least_trusted,
)


def changes_of(decision: PairDecision) -> list[Change]:
    """The changes that carry out a decision; none for an ADD."""
    if decision.verdict is Verdict.FORGET:
        return [Forget(decision.new.id)]
    if decision.old is None or decision.verdict is Verdict.ADD:
        return []
    return _CHANGES[decision.verdict](decision.new, decision.old)


def retired(decision: PairDecision) -> Memory | None:
    """The memory that a decision takes out of recall."""
    if decision.verdict is Verdict.FORGET:
        return decision.new
    if decision.old is None or decision.verdict is Verdict.ADD:
        return None
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
