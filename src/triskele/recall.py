"""Recall as one readable pipeline: rank, serve successors, weigh, cut, explain."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from triskele.config import RecallSettings
from triskele.index.lexical import LexicalIndex
from triskele.legs import lexical
from triskele.stores.protocol import Store
from triskele.succession import Succession
from triskele.types import Answer, Hit, LegEvidence, Link, LinkKind, Memory, Query, Ranking, Scope, Sort

SUPERSEDED_IMPORTANCE = 0.3
MAX_RESOLUTIONS = 3


@dataclass(frozen=True, slots=True)
class Readers:
    """What recall reads from."""

    store: Store
    lexical: LexicalIndex
    settings: RecallSettings


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A memory to serve, with the rank and score of the row that led to it."""

    memory: Memory
    rank: int
    raw: float
    score: float
    prior: float
    superseded: bool
    stands_for: str | None


def recall(query: Query, readers: Readers, *, project: str | None, show_superseded: bool = False) -> Answer:
    """Answer a question from memory."""
    started = time.perf_counter()
    ranking = lexical.rank(query, readers.lexical)
    candidates = _served(ranking, query, readers, show_superseded)
    chosen = candidates[: query.limit]
    links = readers.store.links([c.memory.id for c in chosen], known_at=query.scope.known_at)
    hits = tuple(_explained(candidate, query, readers, links) for candidate in chosen)
    return Answer(
        hits=hits,
        resolutions=_resolutions(chosen, links, readers.store, query.scope),
        confidence=_confidence(query, hits, readers),
        project=project,
        took_ms=(time.perf_counter() - started) * 1000,
    )


def _served(ranking: Ranking, query: Query, readers: Readers, show_superseded: bool) -> list[_Candidate]:
    """The memories to show, best first, each once: a successor takes the place of what it replaced."""
    rows = readers.store.rows(ranking.rows)
    succession = Succession((memory.id for memory in rows.values()), readers.store, query.scope)
    served: dict[str, _Candidate] = {}
    for rank, (row, raw) in enumerate(zip(ranking.rows, ranking.scores, strict=True), start=1):
        if row not in rows:
            continue
        matched = rows[row]
        head = matched.id if show_superseded else succession.head(matched.id)
        memory = succession.memories.get(head, matched) if head != matched.id else matched
        if not _visible(memory, query.scope):
            memory = matched
        superseded = succession.is_superseded(memory.id)
        prior = _prior(memory, superseded, query.sort, readers.settings)
        candidate = _Candidate(
            memory, rank, raw, raw * prior, prior, superseded, matched.id if memory is not matched else None
        )
        if memory.id not in served or served[memory.id].score < candidate.score:
            served[memory.id] = candidate
    if query.sort is not Sort.RELEVANCE:
        return list(served.values())
    return sorted(served.values(), key=lambda c: (-c.score, c.rank))


def _visible(memory: Memory, scope: Scope) -> bool:
    return memory.owner == scope.owner and (scope.projects is None or memory.project in scope.projects)


def _prior(memory: Memory, superseded: bool, sort: Sort, settings: RecallSettings) -> float:
    """Importance weighs after relevance; the other orders have it already or do without."""
    if sort is not Sort.RELEVANCE:
        return 1.0
    importance = min(memory.importance, SUPERSEDED_IMPORTANCE) if superseded else memory.importance
    return 1 - settings.importance_prior + settings.importance_prior * importance


def _explained(candidate: _Candidate, query: Query, readers: Readers, links: Sequence[Link]) -> Hit:
    matched = candidate.memory
    if candidate.stands_for is not None:
        matched = readers.store.history(candidate.stands_for)[-1]
    terms = lexical.matched_terms(query.text, matched, readers.lexical.analyzer)
    evidence = LegEvidence(rank=candidate.rank, score=candidate.raw, contribution=candidate.raw, terms=terms)
    own = tuple(link for link in links if candidate.memory.id in (link.source, link.target))
    return Hit(
        memory=candidate.memory,
        score=candidate.score,
        reason=_reason(candidate, [term.text for term in terms]),
        legs={lexical.NAME: evidence},
        prior=candidate.prior,
        superseded=candidate.superseded,
        stands_for=candidate.stands_for,
        links=own,
    )


def _reason(candidate: _Candidate, words: Sequence[str]) -> str:
    shared = ", ".join(f"“{word}”" for word in words)
    said = f"shares the words {shared}" if len(words) != 1 else f"shares the word {shared}"
    if candidate.stands_for is not None:
        return f"replaces {candidate.stands_for}, which {said}"
    return said + (", but has been superseded" if candidate.superseded else "")


def _resolutions(chosen: Sequence[_Candidate], links: Sequence[Link], store: Store, scope: Scope) -> tuple[Memory, ...]:
    """What resolved the problems among the hits, unless it was found anyway."""
    shown = {candidate.memory.id for candidate in chosen}
    wanted = [
        link.target
        for link in links
        if link.kind is LinkKind.RESOLVED_BY and link.source in shown and link.target not in shown
    ]
    known = store.memories(wanted, known_at=scope.known_at)
    visible = [known[id] for id in dict.fromkeys(wanted) if id in known and _visible(known[id], scope)]
    return tuple(visible[:MAX_RESOLUTIONS])


def _confidence(query: Query, hits: Sequence[Hit], readers: Readers) -> float:
    """How much of what the question asks for, by rarity, the best hit covers."""
    analyzer = readers.lexical.analyzer
    asked = readers.lexical.rarity(analyzer.query_terms(query.text))
    total = sum(asked.values())
    if not hits or total == 0:
        return 0.0
    best = hits[0].memory
    text = " ".join((best.content, best.keywords, *best.tags, best.category))
    covered = set(analyzer.terms(text)) & set(asked)
    return sum(asked[term] for term in covered) / total
