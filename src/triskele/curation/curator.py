"""Compares every new or edited memory with its nearest ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from triskele.config import APPLY, OFF
from triskele.curation.decide import NEAREST, NearMemory, PairDecision, changes_of, related, retired
from triskele.curation.proposals import Proposals
from triskele.curation.wording import stems
from triskele.errors import Conflict, NotFound
from triskele.store.values import START, Cursor, Document
from triskele.text import timestamps
from triskele.text.ids import new_batch
from triskele.types import CURATION, Action, Memory, Outcome, Scope, Sort, Verdict, is_secret

if TYPE_CHECKING:
    from triskele.index.corpus import Floats
    from triskele.store.access import StoreAccess

_KIND, _CURSOR, _DAYS = "curation", "cursor", "curation-day"
# What a memory replaces comes before the copy that it may be.
_FIRST = (Verdict.SUPERSEDE, Verdict.UPDATE, Verdict.NOOP, Verdict.FORGET)
_WRITTEN = frozenset({Action.ADDED, Action.EDITED, Action.RESTORED})
# This many memories may be changed in a day, whatever their share.
LEAST_A_DAY = 20
_DAILY_SHARE = 0.05
# A text that shares fewer of its words with another one is not near to it.
_LEAST_OVERLAP = 0.25
_MOST_SCANNED = 3000
# A text this much longer cannot share enough of its words; reading such texts takes most of the time.
_MOST_LONGER, _LEAST_LONGEST = 5, 100
# A larger store is not compared with itself only because a first process runs.
_MOST_AT_FIRST = 2000


@dataclass(frozen=True, slots=True, eq=False)
class _StoredText:
    """What a corpus is asked for a memory that it may hold."""

    terms: Sequence[str]
    vector: Floats | None
    depth: int
    is_hybrid: bool = True


@dataclass(frozen=True, slots=True)
class Curated:
    """The result of a step of curation."""

    read: int = 0
    proposed: int = 0
    outcomes: tuple[Outcome, ...] = ()
    is_done: bool = True


class Curator:
    """Decides on the memories of one owner."""

    def __init__(self, access: StoreAccess) -> None:
        self._access = access
        self._store = access.store
        self._settings = access.settings.curation
        self.proposals = Proposals(access)

    def related(self, memory: Memory) -> list[PairDecision]:
        """What a memory repeats, extends or contradicts, found by the indexes; nothing is encoded."""
        if is_secret(memory) or memory.shared_by:
            return []
        return related(memory, self._nearest(memory))

    def _nearest(self, memory: Memory) -> list[NearMemory]:
        """The best by words and by vectors in turn; without a vector of this memory only those by words."""
        # Few commands need it, and they wait for its import.
        import numpy as np

        sources, depth = self._access.open_sources(), 2 * NEAREST
        scope = replace(self._access.scope(project=memory.project), projects=frozenset({memory.project}))
        with self._store.snapshot():
            corpus = sources.open_corpus(scope)
            own = [row for row, _ in self._store.versions([memory.id])]
            vectors = corpus.vectors(np.array(own[-1:], dtype=np.int64))
            has_vector = vectors.size > 0 and not np.isnan(vectors[0, 0])
            text = _StoredText(sources.analyzer.query_terms(memory.content), vectors[0] if has_vector else None, depth)
            corpus = corpus.asking(text)
            by_words = [hit.row for hit in corpus.search(text.terms, limit=depth)]
            both = chain.from_iterable(zip_longest(by_words, corpus.nearest(depth)[0].tolist()))
            rows = [row for row in dict.fromkeys(both) if row is not None and row not in own][:depth]
            cosines = corpus.cosines(np.array(rows, dtype=np.int64)).tolist()
            memories = self._store.rows(rows)
        pairs = zip(rows, cosines, strict=True)
        return self._current([NearMemory(memories[row], cosine) for row, cosine in pairs if row in memories])

    def _current(self, near: Sequence[NearMemory]) -> list[NearMemory]:
        """The best of the owner's memories that nothing has replaced."""
        gone = self._access.superseded([each.memory.id for each in near]) if near else set()
        return [each for each in near if each.memory.id not in gone and not each.memory.shared_by][:NEAREST]

    def related_by_words(self, memory: Memory) -> list[PairDecision]:
        """What a memory repeats, extends or contradicts, found without indexes."""
        return [] if is_secret(memory) else related(memory, self._nearest_by_words(memory))

    def _nearest_by_words(self, memory: Memory) -> list[NearMemory]:
        scope = Scope(owner=self._store.owner, projects=frozenset({memory.project}), as_of=timestamps.now())
        own, longest = stems(memory.content), _MOST_LONGER * len(memory.content) + _LEAST_LONGEST
        near = []
        for other in self._store.browse(scope, sort=Sort.RECENCY, limit=_MOST_SCANNED):
            if len(other.content) > longest:
                continue
            theirs = stems(other.content)
            shared = len(own & theirs) / max(len(own | theirs), 1)
            if shared >= _LEAST_OVERLAP and other.id != memory.id:
                near.append((shared, other))
        near.sort(key=lambda pair: (-pair[0], pair[1].id))
        return self._current([NearMemory(other) for _, other in near[: 2 * NEAREST]])

    def follow(self, limit: int = 50) -> Curated:
        """Decide on at most `limit` memories written since the last call.

        The first call begins with the oldest memory, unless there are so many that `triskele curate` is to read them.
        """
        if self._settings.mode == OFF:
            return Curated()
        cursor = self._cursor()
        if cursor is None:
            is_few = self._store.census().memories <= _MOST_AT_FIRST
            self._advance(START if is_few else self._store.position())
            return self.follow(limit) if is_few else Curated()
        page = self._store.changes_since(cursor, limit)
        written = [entry for entry in page.entries if entry.action in _WRITTEN and entry.actor != CURATION]
        ids = list(dict.fromkeys(entry.id for entry in written if entry.undoes is None))
        memories = self._store.memories(ids)
        gone = self._access.superseded(list(memories)) if memories else set()
        decisions = [each for id in ids if id in memories and id not in gone for each in self.related(memories[id])]
        result = self.apply_or_propose(decisions, apply=self._settings.mode == APPLY)
        self._advance(page.cursor)
        return Curated(len(memories), result.proposed, result.outcomes, is_done=len(page.entries) < limit)

    def apply_or_propose(self, decisions: Sequence[PairDecision], *, apply: bool) -> Curated:
        """Apply sure decisions within the day's limit; propose the others."""
        left = 0
        if apply and decisions:
            left = max(self.most_a_day() - self.today().get("changed", 0), 0)
        batch, outcomes, rest = new_batch(), list[Outcome](), list[PairDecision]()
        gone: set[str] = set()
        done = 0
        for decision in sorted(decisions, key=lambda each: _FIRST.index(each.verdict)):
            if _is_over(decision, gone) or self.proposals.is_rejected(decision):
                continue
            if done < left and decision.is_sure and not decision.needs_consent:
                outcomes += self.carry_out(decision, batch, gone)
                done += 1
            else:
                rest.append(decision)
        if done:
            self._count(changed=done)
        open_ones = [each for each in rest if not _is_over(each, gone)]
        proposed = self.proposals.offer(self._reconsidered(open_ones)) if self._settings.mode != OFF else 0
        return Curated(0, proposed, tuple(outcomes))

    def _reconsidered(self, decisions: Sequence[PairDecision]) -> Sequence[PairDecision]:
        """The decisions with the language model's opinion, if allowed."""
        if not (self._settings.llm_calls and decisions):
            return decisions
        llm = self._access.llm
        if llm is None:
            return decisions
        from triskele.curation.second_opinion import reconsidered

        return reconsidered(decisions, llm, self._access.egress_policy.memory, may_call=self.may_call)

    def may_call(self) -> bool:
        """Count one call of the language model, within the day's budget."""
        if self.today().get("calls", 0) >= self._settings.llm_calls:
            return False
        self._count(calls=1)
        return True

    def carry_out(self, decision: PairDecision, batch: str, gone: set[str]) -> list[Outcome]:
        """Apply one decision in a transaction, unless its memories changed."""
        current = self._store.memories([each.id for each in decision.memories])
        new, old = current.get(decision.new.id), current.get(decision.old.id) if decision.old else None
        if new is None or new.content_hash != decision.new.content_hash or bool(old) is not bool(decision.old):
            return []
        fresh = replace(decision, new=new, old=old)
        try:
            outcomes = self._access.acting_as(CURATION).apply(changes_of(fresh), batch=batch)
        except (Conflict, NotFound):
            # It changed meanwhile.
            return []
        gone.add(retired(fresh).id)
        return outcomes

    # The brake: what was changed today without a review

    def most_a_day(self) -> int:
        """How many memories may be changed in a day without a review."""
        return max(LEAST_A_DAY, int(self._store.census().memories * _DAILY_SHARE))

    def today(self) -> dict[str, int]:
        """Today's unreviewed changes and calls of the language model."""
        return dict(self._store.documents.get(_DAYS, _today()) or {})

    def _count(self, **added: int) -> None:
        before = self.today()
        value = before | {name: before.get(name, 0) + number for name, number in added.items()}
        self._store.documents.put(_DAYS, {_today(): Document(value)}, most=30)

    def _cursor(self) -> Cursor | None:
        value = self._store.documents.get(_KIND, _CURSOR)
        if value is None or value["epoch"] != self._store.epoch():
            return None
        cursor = Cursor(value["cursor"])
        return cursor if cursor == START or self._store.holds(cursor) else None

    def _advance(self, cursor: Cursor) -> None:
        value = {"cursor": str(cursor), "epoch": self._store.epoch()}
        self._store.documents.put(_KIND, {_CURSOR: Document(value)})


def _today() -> str:
    return timestamps.now().date().isoformat()


def _is_over(decision: PairDecision, gone: set[str]) -> bool:
    return any(memory.id in gone for memory in decision.memories)
