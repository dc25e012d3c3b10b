"""Step 10, supersession: which memory of a chain of successors is served at a given moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

import numpy as np

from triskele.index.corpus import Bools, Corpus
from triskele.recall.confidence import Coverage
from triskele.recall.question import Question, Sources
from triskele.recall.scores import Candidate, Candidates, Doubles, Served
from triskele.store.owner import OwnerStore
from triskele.text.periods import memory_time
from triskele.types import Memory, Query, Scope, Sort

MAX_DEPTH = 10
SUPERSEDED_IMPORTANCE = 0.3
_DAY = timedelta(days=1)


class Succession:
    """The supersedes links around some memories, as known in the scope."""

    def __init__(self, ids: Iterable[str], store: OwnerStore, scope: Scope) -> None:
        self._as_of = scope.as_of
        self._newer: dict[str, list[str]] = {}
        self._older: dict[str, list[str]] = {}
        # One further than is followed: the last one served may have a successor too.
        for link in store.succession(ids, MAX_DEPTH, known_at=scope.known_at):
            self._newer.setdefault(link.target, []).append(link.source)
            self._older.setdefault(link.source, []).append(link.target)
        chained = {*self._newer, *self._older}
        self.memories = store.memories(sorted(chained), known_at=scope.known_at)

    def head(self, id: str) -> str:
        """The memory to serve for this one: its newest successor in force, or the one that it will replace."""
        served = reached = id
        for _ in range(MAX_DEPTH):
            if (newer := self._newest_begun(self._newer.get(reached, ()))) is None:
                break
            reached = newer
            if not self._has_ended(reached):
                served = reached
        return served if reached != id else self._predecessor(id)

    def is_superseded(self, id: str) -> bool:
        """Whether something that has begun replaces this memory."""
        return id in self._newer and self._newest_begun(self._newer[id]) is not None

    def _predecessor(self, id: str) -> str:
        for _ in range(MAX_DEPTH):
            older = [
                other for other in self._older.get(id, ()) if other in self.memories and not self._has_ended(other)
            ]
            if not older or self._begins(id) <= self._as_of:
                break
            id = max(older, key=self._begins)
        return id

    def _newest_begun(self, candidates: Iterable[str]) -> str | None:
        begun = [id for id in candidates if id in self.memories and self._begins(id) <= self._as_of]
        return max(begun, key=self._begins) if begun else None

    def _begins(self, id: str) -> datetime:
        memory = self.memories[id]
        return memory.valid_from or memory.created_at

    def _has_ended(self, id: str) -> bool:
        ended = self.memories[id].valid_to
        return ended is not None and ended <= self._as_of


@dataclass(frozen=True, slots=True)
class Priors:
    """What counts after relevance: importance, and a bonus for memories with every term.

    With a half-life importance decays: it counts half after that many days since the memory was last written.
    """

    importance: float = 0.0
    exact: float = 0.0
    is_exact: Callable[[Memory], bool] = lambda _: False
    half_life_days: float = 0.0

    def bonuses(self, rows: Sequence[int], store: OwnerStore) -> Doubles:
        """The factors that raise the scores of some rows."""
        if not self.exact:
            return np.ones(len(rows))
        memories = store.rows(rows)
        return np.array([1 + self.exact if row in memories and self.is_exact(memories[row]) else 1.0 for row in rows])

    def decays(self, rows: Sequence[int], store: OwnerStore, moment: datetime) -> Doubles:
        """The share of their importance that some rows still have at a moment."""
        if not self.half_life_days:
            return np.ones(len(rows))
        memories = store.rows(rows)
        return np.array([self.decay(memories[row], moment) if row in memories else 1.0 for row in rows])

    def decay(self, memory: Memory, moment: datetime) -> float:
        """The share of its importance that a memory still has; one of the highest importance keeps it."""
        if not self.half_life_days or memory.importance >= 1:
            return 1.0
        written = max(memory.valid_from or memory.created_at, memory.updated_at)
        age_days = max((moment - written) / _DAY, 0.0)
        return float(0.5 ** (age_days / self.half_life_days))


class _Successor(NamedTuple):
    """What is served for a candidate that has links of succession: itself, or its successor.

    `head` is the successor's id even if superseded memories are served themselves.
    """

    id: str
    memory: Memory | None
    superseded: bool
    head: str


def supersede(question: Question, corpus: Corpus, candidates: Candidates, sources: Sources) -> list[Served]:
    """Step 10: the memories to serve, best first, each once; a successor takes the place of what it replaced."""
    plan, coverage = question.plan, Coverage(question, sources.analyzer)
    priors = Priors(plan.prior, plan.exact, coverage.is_whole, sources.half_life_days)
    return resolve(candidates.ranked, question.query, sources.store, corpus, priors=priors)


def resolve(
    ranked: Sequence[Candidate], query: Query, store: OwnerStore, corpus: Corpus, *, priors: Priors
) -> list[Served]:
    """The memories to serve for candidates, with what counts after relevance."""
    rows = [candidate.row for candidate in ranked]
    facts = corpus.facts(np.array(rows, dtype=np.int64))
    importance, is_visible = facts.importance, facts.is_visible
    successors = _successors(rows, query, store)
    decays = priors.decays(rows, store, query.scope.as_of)
    counted = importance * decays
    for place, successor in successors.items():
        if successor.memory is not None:
            decays[place] = priors.decay(successor.memory, query.scope.as_of)
            counted[place] = successor.memory.importance * decays[place]
        if successor.superseded:
            counted[place] = min(counted[place], SUPERSEDED_IMPORTANCE)
    # The importance prior applies only to the order by relevance.
    strength = priors.importance if query.sort is Sort.RELEVANCE else 0.0
    weights = (1 - strength + strength * counted) * priors.bonuses(rows, store)
    scores = np.array([candidate.score for candidate in ranked]) * weights
    places = _best_places(scores, is_visible, successors, query)
    # Only the memories that are served are read: to read every candidate would cost more than ranking them.
    matched = store.rows([rows[place] for place in places])
    numbers = [(float(scores[place]), float(weights[place]), float(decays[place])) for place in places]
    return [
        _served(ranked[place], matched[rows[place]], successors.get(place), own, _chain_rows(place, rows, successors))
        for place, own in zip(places, numbers, strict=True)
        if rows[place] in matched
    ]


def _chain_rows(place: int, rows: Sequence[int], successors: Mapping[int, _Successor]) -> frozenset[int]:
    """The rows of other candidates that lead to the same successor."""
    if (own := successors.get(place)) is None:
        return frozenset()
    return frozenset(rows[i] for i, successor in successors.items() if i != place and successor.head == own.head)


def _served(
    candidate: Candidate,
    matched: Memory,
    successor: _Successor | None,
    numbers: tuple[float, float, float],
    chain_rows: frozenset[int],
) -> Served:
    memory = matched if successor is None or successor.memory is None else successor.memory
    stands_for = None if matched.id == memory.id else matched.id
    superseded = successor is not None and successor.superseded
    score, prior, decay = numbers
    return Served(memory, matched, candidate, score, prior, superseded, stands_for, decay, chain_rows)


def _successors(rows: Sequence[int], query: Query, store: OwnerStore) -> dict[int, _Successor]:
    """By place what is served for the candidates that have links of succession; most have none."""
    chained = store.superseding_ids(rows)
    if not chained:
        return {}
    succession = Succession(chained.values(), store, query.scope)
    successors = {}
    for place, row in enumerate(rows):
        if (id := chained.get(row)) is not None:
            memory = _successor(id, succession, query.scope)
            head = id if memory is None else memory.id
            if query.show_superseded:
                memory = None
            else:
                id = head
            successors[place] = _Successor(id, memory, succession.is_superseded(id), head)
    return successors


def _best_places(scores: Doubles, is_visible: Bools, successors: Mapping[int, _Successor], query: Query) -> list[int]:
    """The places to serve, best first; of those that lead to one memory the best, for the first of them."""
    positions = np.arange(len(scores))
    dropped = set() if is_visible.all() else set(np.flatnonzero(~is_visible).tolist())
    groups: dict[str, list[int]] = {}
    for place, successor in successors.items():
        if place not in dropped:
            groups.setdefault(successor.id, []).append(place)
    for places in groups.values():
        best = max(places, key=lambda place: scores[place])
        positions[best] = places[0]
        dropped.update(place for place in places if place != best)
    order = np.lexsort((positions, -scores)) if query.sort is Sort.RELEVANCE else np.argsort(positions, kind="stable")
    return list(islice((place for place in order.tolist() if place not in dropped), query.limit))


def _successor(id: str, succession: Succession, scope: Scope) -> Memory | None:
    """The successor to serve for a memory, if it has one that the scope allows."""
    if not succession.memories:
        return None
    head = succession.head(id)
    memory = succession.memories.get(head) if head != id else None
    return memory if memory is not None and is_allowed(memory, scope) and is_within(memory, scope) else None


def is_allowed(memory: Memory, scope: Scope) -> bool:
    """Whether a scope allows a memory that a link leads to."""
    return (
        memory.owner == scope.owner
        and (scope.projects is None or memory.project in scope.projects)
        and (scope.sensitivities is None or memory.sensitivity in scope.sensitivities)
        and (scope.origins is None or memory.origin in scope.origins)
    )


def is_within(memory: Memory, scope: Scope) -> bool:
    """Whether a memory is about the time that the scope allows."""
    if scope.since is None and scope.until is None:
        return True
    moment = memory_time(memory)
    return (scope.since is None or scope.since <= moment) and (scope.until is None or moment < scope.until)
