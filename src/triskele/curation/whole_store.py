"""Review a whole store for copies, outdated memories, memories that say too little, and orphaned parts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from triskele.curation.curator import Curator
from triskele.curation.decide import NEAREST, NearMemory, PairDecision, begins, related
from triskele.curation.wording import stems
from triskele.replies.rooms import Rationale
from triskele.store.access import StoreAccess
from triskele.store.values import Document
from triskele.text import timestamps
from triskele.text.ids import new_batch
from triskele.types import LinkKind, Memory, Scope, Sort, Verdict, is_secret

_PAGE = 500
_STEP = 100
# Words in many memories are looked up only until this many ids were read.
_MOST_POSTINGS = 5000
# A memory this short that was not recalled for this long is junk.
_UNUSED_FOR = timedelta(days=90)
_FEW_WORDS = 2
_KIND, _KEY = "curation", "review"


class UpkeepKind(StrEnum):
    """What a review can find."""

    DUPLICATE = "duplicate"
    EXTENDED = "extended"
    CONTRADICTION = "contradiction"
    STALE = "stale"
    JUNK = "junk"
    ORPHAN = "orphan"


class UpkeepFinding(NamedTuple):
    """One finding of a review, and the decision that would settle it."""

    finding: UpkeepKind
    decision: PairDecision


@dataclass(frozen=True, slots=True)
class ReviewResult:
    """What a review found, what it applied in one batch, and how many proposals are new."""

    findings: tuple[UpkeepFinding, ...]
    applied: tuple[UpkeepFinding, ...]
    batch: str
    proposed: int
    read: int


def curate(
    access: StoreAccess,
    *,
    threshold: float | None = None,
    is_dry: bool = False,
    limit: int | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> ReviewResult:
    """Review a whole store: apply decisions that are sure to at least `threshold`, if given, and propose the rest.

    A dry run changes nothing. The run after one that was interrupted, or ended at its `limit`, continues there.
    """
    review, curator, batch = StoreReview(access), Curator(access), new_batch()
    left = review.left()[:limit]
    findings: list[UpkeepFinding] = []
    applied: list[UpkeepFinding] = []
    proposed = 0
    for start in range(0, len(left), _STEP):
        step = left[start : start + _STEP]
        undecided = list(_worked_off(review, step, curator, batch, None if is_dry else threshold, applied))
        findings += undecided
        if not is_dry:
            proposed += curator.proposals.offer(each.decision for each in undecided)
            review.note(step[-1])
        progress(start + len(step), len(left))
    if is_dry or limit is None or not review.left():
        single = list(review.single())
        findings += single
        if not is_dry:
            proposed += curator.proposals.offer(each.decision for each in single)
            review.note(None)
    return ReviewResult(tuple(findings), tuple(applied), batch if applied else "", proposed, len(left))


def _worked_off(
    review: StoreReview,
    memories: Sequence[Memory],
    curator: Curator,
    batch: str,
    threshold: float | None,
    applied: list[UpkeepFinding],
) -> Iterator[UpkeepFinding]:
    """Apply what is sure enough, and yield the rest; what the user has rejected is neither."""
    for finding in review.pairs(memories):
        decision = finding.decision
        if curator.proposals.is_rejected(decision):
            continue
        is_sure = threshold is not None and decision.is_sure and decision.confidence >= threshold
        if is_sure and not decision.needs_consent and curator.carry_out(decision, batch, review.gone):
            applied.append(finding)
        else:
            yield finding


class StoreReview:
    """A review of all live memories, in the order in which they began; it can stop and continue."""

    def __init__(self, access: StoreAccess) -> None:
        self._store = access.store
        self._now = timestamps.now()
        live = [memory for memory in _live(access) if not is_secret(memory)]
        gone = access.superseded([memory.id for memory in live]) if live else set()
        self._superseded = [memory for memory in live if memory.id in gone]
        self.memories = sorted(
            (memory for memory in live if memory.id not in gone), key=lambda each: (begins(each), each.id)
        )
        self._terms = {memory.id: stems(memory.content) for memory in self.memories}
        self._by_id = {memory.id: memory for memory in self.memories}
        self._postings = _postings(self._terms)
        # Memories retired during the review: they are no longer compared.
        self.gone: set[str] = set()

    def pairs(self, memories: Iterable[Memory]) -> Iterator[UpkeepFinding]:
        """What memories repeat, extend or contradict, each compared with the older ones that share its rarer words."""
        for memory in memories:
            for decision in related(memory, self.nearest(memory)):
                if memory.id in self.gone or (decision.old is not None and decision.old.id in self.gone):
                    continue
                yield UpkeepFinding(_FINDINGS[decision.verdict], decision)

    def nearest(self, memory: Memory) -> list[NearMemory]:
        """The memories that share most words with one, by Jaccard similarity; its rarest words choose them."""
        own = self._terms.get(memory.id, frozenset())
        shared: Counter[str] = Counter()
        read = 0
        for term in sorted(own, key=lambda each: (len(self._postings[each]), each)):
            if shared and read + len(self._postings[term]) > _MOST_POSTINGS:
                break
            shared.update(self._postings[term])
            read += len(self._postings[term])
        likeness = {id: number / (len(own) + len(self._terms[id]) - number) for id, number in shared.items()}
        near = sorted(likeness.keys() - self.gone - {memory.id}, key=lambda id: (-likeness[id], id))
        return [NearMemory(self._by_id[id]) for id in near[: 2 * NEAREST]]

    def single(self) -> Iterator[UpkeepFinding]:
        """Single memories that can be forgotten: out of date, saying too little, or with nothing left."""
        counts = self._store.usage.counts([memory.id for memory in (*self.memories, *self._superseded)])
        for memory in self.memories:
            if memory.valid_to is not None and memory.valid_to <= self._now:
                yield _forgettable(UpkeepKind.STALE, memory, Rationale("ended on", memory.valid_to.date().isoformat()))
            elif memory.id not in counts and self._is_junk(memory):
                yield _forgettable(UpkeepKind.JUNK, memory, Rationale("says little and was never recalled"))
        for memory in self._superseded:
            if memory.id in counts and counts[memory.id].last > self._replaced_at(memory):
                yield _forgettable(UpkeepKind.STALE, memory, Rationale("superseded but still recalled"))
        yield from self._orphaned()

    def _is_junk(self, memory: Memory) -> bool:
        is_old = self._now - memory.created_at > _UNUSED_FOR
        return is_old and len(self._terms[memory.id]) <= _FEW_WORDS

    def _replaced_at(self, memory: Memory) -> datetime:
        links = self._store.links([memory.id], kind=LinkKind.SUPERSEDES)
        return max(link.known_from for link in links if link.target == memory.id)

    def _orphaned(self) -> Iterator[UpkeepFinding]:
        """Parts whose whole was forgotten."""
        links = self._store.links(list(self._by_id), kind=LinkKind.PART_OF) if self._by_id else []
        wholes: dict[str, list[str]] = defaultdict(list)
        for link in links:
            wholes[link.source].append(link.target)
        memories = self._store.memories({id for ids in wholes.values() for id in ids})
        for part, ids in wholes.items():
            if part in self._by_id and memories.keys().isdisjoint(ids):
                reason = Rationale("part of a forgotten memory", ids[0])
                yield _forgettable(UpkeepKind.ORPHAN, self._by_id[part], reason)

    # Where an interrupted review continues

    def left(self) -> Sequence[Memory]:
        """The memories that the last review did not reach; all of them after a complete one."""
        value = self._store.documents.get(_KIND, _KEY) or {}
        after = (timestamps.parse(value["begins"]), value["id"]) if value else None
        return self.memories if after is None else [m for m in self.memories if (begins(m), m.id) > after]

    def note(self, memory: Memory | None) -> None:
        """Remember how far the review came; None ends it."""
        if memory is None:
            self._store.documents.delete(_KIND, [_KEY])
        else:
            value = {"begins": timestamps.to_text(begins(memory)), "id": memory.id}
            self._store.documents.put(_KIND, {_KEY: Document(value)})


# No rule forgets without a review.
_FORGETTABLE = 0.5


def _forgettable(finding: UpkeepKind, memory: Memory, reason: Rationale) -> UpkeepFinding:
    return UpkeepFinding(finding, PairDecision(Verdict.FORGET, memory, None, _FORGETTABLE, (reason,)))


_FINDINGS = {
    Verdict.NOOP: UpkeepKind.DUPLICATE,
    Verdict.UPDATE: UpkeepKind.EXTENDED,
    Verdict.SUPERSEDE: UpkeepKind.CONTRADICTION,
}


def _live(access: StoreAccess) -> Iterator[Memory]:
    scope = Scope(owner=access.store.owner, as_of=timestamps.now(), any_time=True)
    offset = 0
    while page := access.store.browse(scope, sort=Sort.RECENCY, limit=_PAGE, offset=offset):
        yield from (memory for memory in page if not memory.shared_by)
        offset += len(page)


def _postings(terms: dict[str, frozenset[str]]) -> dict[str, list[str]]:
    """The ids of memories by word."""
    postings: dict[str, list[str]] = defaultdict(list)
    for id, own in terms.items():
        for term in own:
            postings[term].append(id)
    return postings
