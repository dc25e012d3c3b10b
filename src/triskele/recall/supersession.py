"""Supersession: which memory of a chain of successors is served at a given moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from triskele.base.periods import memory_time
from triskele.recall.fusion import Candidate
from triskele.stores.protocols import OwnerStore
from triskele.types import Link, LinkKind, Memory, Query, Scope, Sort

MAX_DEPTH = 10
SUPERSEDED_IMPORTANCE = 0.3
# The importance of most memories.
_MIDDLING = 0.5
_DAY = timedelta(days=1)
# So few candidates are read at once: to choose among them first would cost more.
_FEW = 64


class Succession:
    """The supersedes links around some memories, as known in the scope."""

    def __init__(self, ids: Iterable[str], store: OwnerStore, scope: Scope) -> None:
        self._as_of = scope.as_of
        self._known_at = scope.known_at
        self._newer: dict[str, list[str]] = {}
        self._older: dict[str, list[str]] = {}
        self.memories: dict[str, Memory] = {}
        self._load(set(ids), store)

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

    def _load(self, fringe: set[str], store: OwnerStore) -> None:
        seen: set[str] = set()
        # One further than is followed: the last one served may have a successor too.
        for _ in range(MAX_DEPTH + 1):
            links = store.links(sorted(fringe), kind=LinkKind.SUPERSEDES, known_at=self._known_at)
            seen |= fringe
            self._note(links)
            fringe = {end for link in links for end in (link.source, link.target)} - seen
            if not fringe:
                break
        chained = {*self._newer, *self._older}
        self.memories = store.memories(sorted(chained), known_at=self._known_at)

    def _note(self, links: Iterable[Link]) -> None:
        for link in links:
            self._newer.setdefault(link.target, []).append(link.source)
            self._older.setdefault(link.source, []).append(link.target)


@dataclass(frozen=True, slots=True)
class Resolved:
    """A memory to serve, with the candidate that led to it; `stands_for` is the older memory that matched."""

    memory: Memory
    matched: Memory
    fused: Candidate
    score: float
    prior: float
    superseded: bool
    stands_for: str | None
    decay: float = 1.0


class _Choice(NamedTuple):
    """A candidate to serve, or its successor if it has one."""

    fused: Candidate
    successor: Memory | None
    score: float
    prior: float
    superseded: bool
    decay: float


@dataclass(frozen=True, slots=True)
class Priors:
    """What counts after relevance: importance, and a bonus for memories with every query term.

    With a half-life importance decays: it counts half after that many days since the memory was last written.
    """

    importance: float = 0.0
    exact: float = 0.0
    is_exact: Callable[[Memory], bool] = lambda _: False
    half_life_days: float = 0.0

    def bonuses(self, rows: Sequence[int], store: OwnerStore) -> Mapping[int, float]:
        """The factors that raise the scores of some rows."""
        if not self.exact:
            return {}
        return {row: 1 + self.exact for row, memory in store.rows(rows).items() if self.is_exact(memory)}

    def decays(self, rows: Sequence[int], store: OwnerStore, moment: datetime) -> Mapping[int, float]:
        """The share of their importance that some rows still have at a moment; none where importance stays."""
        if not self.half_life_days:
            return {}
        return {row: self.decay(memory, moment) for row, memory in store.rows(rows).items()}

    def decay(self, memory: Memory, moment: datetime) -> float:
        """The share of its importance that a memory still has; one of the highest importance keeps it."""
        if not self.half_life_days or memory.importance >= 1:
            return 1.0
        written = max(memory.valid_from or memory.created_at, memory.updated_at)
        age_days = max((moment - written) / _DAY, 0.0)
        return float(0.5 ** (age_days / self.half_life_days))


def resolve(
    fused: Sequence[Candidate], query: Query, store: OwnerStore, *, priors: Priors, show_superseded: bool = False
) -> list[Resolved]:
    """The memories to serve, best first, each once: a successor takes the place of what it replaced."""
    chosen = _chosen(fused, query, store, priors=priors, show_superseded=show_superseded)
    # Whole memories of the few that are served: reading those of every candidate would cost more than ranking them.
    rows = store.rows([choice.fused.row for choice in chosen])
    return [_resolved(choice, matched) for choice in chosen if (matched := rows.get(choice.fused.row)) is not None]


def _resolved(choice: _Choice, matched: Memory) -> Resolved:
    memory = choice.successor or matched
    stands_for = None if matched.id == memory.id else matched.id
    score, prior, superseded, decay = choice.score, choice.prior, choice.superseded, choice.decay
    return Resolved(memory, matched, choice.fused, score, prior, superseded, stands_for, decay)


def _chosen(
    fused: Sequence[Candidate], query: Query, store: OwnerStore, *, priors: Priors, show_superseded: bool
) -> list[_Choice]:
    """What is served, best first, before any text is read."""
    likely = _likely(fused, query, priors)
    chosen = _best(likely, query, store, priors=priors, show_superseded=show_superseded)
    if len(likely) == len(fused) or _is_settled(chosen, fused[len(likely) :], query, priors):
        return chosen
    return _best(fused, query, store, priors=priors, show_superseded=show_superseded)


def _likely(fused: Sequence[Candidate], query: Query, priors: Priors) -> Sequence[Candidate]:
    """The candidates that may be served if those above them are of middling importance; all of them where unsure."""
    if query.sort is not Sort.RELEVANCE or query.limit < 1 or len(fused) <= max(query.limit, _FEW):
        return fused
    least = fused[query.limit - 1].score * (1 - priors.importance * (1 - _MIDDLING))
    return fused[: next((place for place, each in enumerate(fused) if each.score < least), len(fused))]


def _is_settled(chosen: Sequence[_Choice], rest: Sequence[Candidate], query: Query, priors: Priors) -> bool:
    """Whether no other candidate, however important, comes before the last one that is served."""
    most = max(candidate.score for candidate in rest) * (1 + priors.exact)
    return len(chosen) == query.limit and chosen[-1].score >= max(most, 0.0)


def _best(
    fused: Sequence[Candidate], query: Query, store: OwnerStore, *, priors: Priors, show_superseded: bool
) -> list[_Choice]:
    """What is served of some candidates, best first."""
    rows = [candidate.row for candidate in fused]
    known = store.importance(rows)
    bonuses, decays = priors.bonuses(rows, store), priors.decays(rows, store, query.scope.as_of)
    succession = Succession((id for id, _ in known.values()), store, query.scope)
    best: dict[str, _Choice] = {}
    for candidate in fused:
        if candidate.row not in known:
            continue
        id, importance = known[candidate.row]
        decay = decays.get(candidate.row, 1.0)
        successor = None if show_superseded else _successor(id, succession, query.scope)
        if successor is not None:
            id, importance = successor.id, successor.importance
            decay = priors.decay(successor, query.scope.as_of)
        superseded = succession.is_superseded(id)
        counted = importance * decay
        weight = _weight(counted, superseded, query.sort, priors.importance) * bonuses.get(candidate.row, 1.0)
        choice = _Choice(candidate, successor, candidate.score * weight, weight, superseded, decay)
        if id not in best or best[id].score < choice.score:
            best[id] = choice
    chosen = list(best.values())
    if query.sort is Sort.RELEVANCE:
        chosen.sort(key=lambda choice: -choice.score)
    return chosen[: query.limit]


def _successor(id: str, succession: Succession, scope: Scope) -> Memory | None:
    """The successor to serve for a memory, if it has one that the scope allows."""
    if not succession.memories:
        return None
    head = succession.head(id)
    memory = succession.memories.get(head) if head != id else None
    return memory if memory is not None and visible(memory, scope) and is_within(memory, scope) else None


def visible(memory: Memory, scope: Scope) -> bool:
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


def _weight(importance: float, superseded: bool, sort: Sort, strength: float) -> float:
    """The importance prior, which applies only to the order by relevance."""
    if sort is not Sort.RELEVANCE:
        return 1.0
    counted = min(importance, SUPERSEDED_IMPORTANCE) if superseded else importance
    return 1 - strength + strength * counted
