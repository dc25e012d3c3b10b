"""Curating what was written: every new or edited memory beside its nearest ones, in the order of the journal."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from triskele.base import timestamps
from triskele.curation.apply import changes_of, retired
from triskele.curation.decide import NEAREST, NearMemory, PairDecision, related, sure
from triskele.curation.host import Host
from triskele.curation.proposals import Proposals
from triskele.curation.wording import content, forms, words
from triskele.errors import Conflict, NotFound
from triskele.stores.protocols import START, Cursor, Document
from triskele.types import CURATION, Action, Change, Memory, Outcome, Scope, Sort, is_secret

_KIND, _CURSOR, _DAYS = "curation", "cursor", "curation-day"
_WRITTEN = frozenset({Action.ADDED, Action.EDITED, Action.RESTORED})
# A short day's work may touch so many memories, whatever their share.
LEAST_A_DAY = 20
# A text that shares fewer of its words with another one is not near to it.
_LEAST_OVERLAP = 0.25
_MOST_SCANNED = 3000
_QUESTION_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class Curated:
    """What a step did: memories looked at, proposals made, what was applied, and whether nothing is left to read."""

    read: int = 0
    proposed: int = 0
    outcomes: tuple[Outcome, ...] = ()
    is_done: bool = True

    @property
    def batch(self) -> str:
        """The batch that undoes what was applied; empty where nothing was."""
        return self.outcomes[0].batch if self.outcomes else ""


class Curator:
    """Decides on memories of one host; what may not be applied is proposed."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._store = host.store
        self._settings = host.settings.curation
        self.proposals = Proposals(host)

    def hints(self, memory: Memory) -> list[PairDecision]:
        """What a memory repeats, extends or contradicts, found by recall."""
        if is_secret(memory):
            return []
        return related(memory, self.nearest(memory))

    def nearest(self, memory: Memory) -> list[NearMemory]:
        """The memories nearest to one, of its own project."""
        answer = self._host.recall(
            memory.content[:_QUESTION_CHARACTERS],
            limit=NEAREST + 1,
            logged=False,
            hurried=True,
            project=memory.project,
        )
        found = (hit for hit in answer.hits if hit.memory.id != memory.id and not hit.superseded)
        return [NearMemory(hit.memory, hit.legs["dense"].score if "dense" in hit.legs else None) for hit in found]

    def word_hints(self, memory: Memory) -> list[PairDecision]:
        """The same by words alone: no model and no index is loaded, and only the newest memories are read."""
        return [] if is_secret(memory) else related(memory, self._nearest_by_words(memory))

    def _nearest_by_words(self, memory: Memory) -> list[NearMemory]:
        scope = Scope(owner=self._store.owner, projects=frozenset({memory.project}), as_of=timestamps.now())
        own = _plain(memory.content)
        near = []
        for other in self._store.browse(scope, sort=Sort.RECENCY, limit=_MOST_SCANNED):
            theirs = _plain(other.content)
            shared = len(own & theirs) / max(len(own | theirs), 1)
            if shared >= _LEAST_OVERLAP and other.id != memory.id:
                near.append((shared, other))
        near.sort(key=lambda pair: (-pair[0], pair[1].id))
        best = [other for _, other in near[: 2 * NEAREST]]
        gone = self._host.superseded([other.id for other in best]) if best else set()
        return [NearMemory(other) for other in best if other.id not in gone][:NEAREST]

    def follow(self, limit: int = 50) -> Curated:
        """Decide on what was written since the last call, at most so many memories; what came before is left alone."""
        if not (self._settings.propose or self._settings.apply):
            return Curated()
        cursor = self._cursor()
        if cursor is None:
            self._advance(self._store.position())
            return Curated()
        page = self._store.changes_since(cursor, limit)
        written = [entry for entry in page.entries if entry.action in _WRITTEN and entry.actor != CURATION]
        ids = list(dict.fromkeys(entry.id for entry in written if entry.undoes is None))
        memories = self._store.memories(ids)
        gone = self._host.superseded(list(memories)) if memories else set()
        decisions = [each for id in ids if id in memories and id not in gone for each in self.hints(memories[id])]
        result = self.settle(decisions, apply=self._settings.apply)
        self._advance(page.cursor)
        return Curated(len(memories), result.proposed, result.outcomes, is_done=len(page.entries) < limit)

    def settle(self, decisions: Sequence[PairDecision], *, apply: bool, batch: str | None = None) -> Curated:
        """Apply what is sure, if that is wished and the day's brake allows it, and propose the rest."""
        chosen = _disjoint(sure(decisions)) if apply else []
        chosen = chosen[: self._left_today()] if chosen else []
        batch = batch or secrets.token_hex(6)
        outcomes: list[Outcome] = []
        failed: list[PairDecision] = []
        done: list[PairDecision] = []
        for decision in chosen:
            try:
                outcomes += self._carry_out(decision, batch)
                done.append(decision)
            except (Conflict, NotFound):
                # It changed meanwhile.
                failed.append(decision)
        if done:
            self._count(len(done))
        gone = {memory.id for decision in done if (memory := retired(decision)) is not None}
        taken = {id(decision) for decision in (*done, *failed)}
        rest = [each for each in decisions if id(each) not in taken and not _involves(each, gone)]
        proposed = self.proposals.offer(rest) if self._settings.propose else 0
        return Curated(0, proposed, tuple(outcomes))

    def _carry_out(self, decision: PairDecision, batch: str) -> list[Outcome]:
        changes: list[Change] = changes_of(decision)
        return self._host.acting_as(CURATION).apply(changes, batch=batch)

    # The brake: what was changed today without a review

    def _left_today(self) -> int:
        live = self._store.census().memories
        most = max(LEAST_A_DAY, int(live * self._settings.daily_share))
        return max(most - self.changed_today(), 0)

    def changed_today(self) -> int:
        """How many memories were changed today without a review."""
        return int((self._store.documents.get(_DAYS, _today()) or {}).get("changed", 0))

    def _count(self, number: int) -> None:
        value = {"changed": self.changed_today() + number}
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


def _plain(text: str) -> frozenset[str]:
    return frozenset(forms(content(words(text))))


def _involves(decision: PairDecision, ids: Iterable[str]) -> bool:
    return bool({decision.new.id, decision.old.id if decision.old else ""} & set(ids))


def _disjoint(decisions: Sequence[PairDecision]) -> list[PairDecision]:
    """Decisions that do not touch each other's memories: a chain is worked off one link at a time."""
    seen: set[str] = set()
    chosen = []
    for decision in sorted(decisions, key=lambda each: -each.confidence):
        ids = {decision.new.id, decision.old.id if decision.old else ""}
        if not ids & seen:
            seen |= ids
            chosen.append(decision)
    return chosen
