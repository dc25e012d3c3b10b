"""Recall as one readable pipeline: rank, serve successors, weigh, cut, explain."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from triskele.index.lexical import LexicalIndex
from triskele.index.semantic import SemanticIndex
from triskele.recall import reasons
from triskele.recall.candidates import CandidateSet, candidates, reviewed, with_contribution
from triskele.recall.graph_scores import Trail
from triskele.recall.legs import graph
from triskele.recall.legs.dense import HostedVectors
from triskele.recall.plan import AS_RANKED, CROSS, DEFAULT, Plan
from triskele.recall.reorder import in_order
from triskele.recall.supersession import Priors, Resolved, serve, visible
from triskele.stores.protocol import Store
from triskele.types import Answer, Link, LinkKind, Memory, Path, Query, Ranking, Scope, Sort

if TYPE_CHECKING:
    from triskele.recall.hosted.reranking import CandidateReranker
    from triskele.recall.hosted.rewording import QueryRewriter

MAX_RESOLUTIONS = 3
# A text of which more than this share of words has been said already says the same again.
REPEATED = 0.8
_OPENING = 60


@dataclass(frozen=True, slots=True)
class Readers:
    """What recall reads from; without `meaning` words alone answer."""

    store: Store
    lexical: LexicalIndex
    meaning: SemanticIndex | None = None
    elsewhere: HostedVectors | None = None
    reviewer: CandidateReranker | None = None
    rewording: QueryRewriter | None = None
    missing: tuple[str, ...] = ()


def recall(query: Query, plan: Plan, readers: Readers, *, project: str | None, show_superseded: bool = False) -> Answer:
    """Answer a question from memory."""
    started = time.perf_counter()
    told = partial(_answer, query, plan, readers, started, project=project, show_superseded=show_superseded)
    with readers.store.snapshot():
        pool = found(query, plan, readers)
        answer = told(pool)
    if readers.rewording is None or not readers.rewording.is_worth(answer.confidence):
        return answer
    # Outside the snapshot: what leaves is written down first.
    wordings, kept = readers.rewording.wordings(query.text)
    if not wordings:
        return replace(answer, missing=(*answer.missing, *([kept] if kept else [])))
    with readers.store.snapshot():
        both = told(expanded(pool, wordings, query, plan, readers))
    # How sure one can be is measured for the question as it was asked.
    return replace(both, confidence=answer.confidence, wordings=tuple(wordings))


def _answer(
    query: Query,
    plan: Plan,
    readers: Readers,
    started: float,
    pool: CandidateSet,
    *,
    project: str | None,
    show_superseded: bool,
) -> Answer:
    if plan.order != AS_RANKED and readers.meaning is not None:
        near = [row for row, _ in readers.store.versions([query.near])] if query.near else []
        pool = in_order(pool, plan.order, readers.meaning, near)
    coverage = reasons.Coverage(query.text, readers.lexical)
    priors = Priors(plan.prior, plan.exact, coverage.is_whole)
    served = serve(pool.fused, query, readers.store, priors=priors, show_superseded=show_superseded)
    links = readers.store.links([each.memory.id for each in served], known_at=query.scope.known_at)
    if query.is_explained:
        paths = _paths(served, pool.trail, readers.store)
        hits = tuple(reasons.hit(each, coverage, links, paths.get(each.fused.row)) for each in served)
    else:
        hits = tuple(map(reasons.bare, served))
    return Answer(
        hits=hits,
        resolutions=_resolutions(served, links, readers.store, query.scope),
        confidence=reasons.confidence(served, coverage),
        project=project,
        took_ms=(time.perf_counter() - started) * 1000,
        waiting=readers.store.count_waiting() if readers.meaning is not None else 0,
        missing=(*pool.missing, *readers.missing),
        agreement=pool.agreement,
    )


def found(query: Query, plan: Plan, readers: Readers) -> CandidateSet:
    """The candidates of a question, read again by the cross-encoder where the plan wants it."""
    pool = candidates(query, plan, readers.lexical, readers.meaning, readers.elsewhere)
    if plan.rerank != CROSS or readers.reviewer is None or query.sort is not Sort.RELEVANCE:
        return pool
    memories = readers.store.rows(candidate.row for candidate in pool.fused[: readers.reviewer.depth])
    read = {candidate.row: memories[candidate.row] for candidate in pool.fused if candidate.row in memories}
    return reviewed(pool, readers.reviewer.review(query.text, read))


def expanded(first: CandidateSet, wordings: Sequence[str], query: Query, plan: Plan, readers: Readers) -> CandidateSet:
    """The candidates of a question and of other wordings of it, put together."""
    # Imported here: only those who let a language model reword questions pay for it.
    from triskele.recall.expansion import ORIGINAL, fused

    # The others are asked by what is here: a hosted model has read the question alone.
    here, plain = replace(readers, elsewhere=None), replace(plan, rerank=DEFAULT) if plan.rerank == CROSS else plan
    others = [found(replace(query, text=text), plain, here) for text in wordings]
    both = fused(_ranking(first), [_ranking(other) for other in others])
    legs = {candidate.row: candidate for candidate in first.fused}
    # What the question itself gave is told in the parts of its legs; each other wording is a part of its own.
    told = []
    for each in both:
        parts = dict(each.parts)
        own = parts.pop(ORIGINAL, None)
        told.append(each._replace(parts=(with_contribution(legs[each.row], own.contribution) if own else {}) | parts))
    return replace(first, fused=told)


def _ranking(pool: CandidateSet) -> Ranking:
    scores = tuple(candidate.score for candidate in pool.fused)
    return Ranking("wording", tuple(candidate.row for candidate in pool.fused), scores)


def _paths(served: Sequence[Resolved], trail: Trail | None, store: Store) -> dict[int, Path]:
    """For hits that the graph brought up, the name that connects them with another memory."""
    if trail is None:
        return {}
    rows = [each.fused.row for each in served if graph.NAME in each.fused.parts]
    shared = {row: found for row in rows if (found := trail.shared(row)) is not None}
    names = store.names.numbered({concept for _, concept in shared.values()})
    others = store.rows({seed for seed, _ in shared.values()})
    return {
        row: Path(names[concept].text, others[seed].id, _opening(others[seed].content))
        for row, (seed, concept) in shared.items()
        if concept in names and seed in others
    }


def _opening(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _OPENING else words[:_OPENING].rsplit(" ", 1)[0] + " …"


def pack(answer: Answer, budget: int) -> Answer:
    """The hits and resolutions that fit into a budget of tokens, without texts that say the same again."""
    seen: list[set[str]] = []
    left = budget

    def fits(memory: Memory) -> bool:
        nonlocal left
        words = set(memory.content.lower().split())
        cost = reasons.tokens_of(memory.content)
        # A longer text that contains a shorter one says more than it, and stays.
        if cost > left or any(len(words & other) > REPEATED * len(words) for other in seen):
            return False
        seen.append(words)
        left -= cost
        return True

    hits = tuple(hit for hit in answer.hits if fits(hit.memory))
    return replace(answer, hits=hits, resolutions=tuple(memory for memory in answer.resolutions if fits(memory)))


def _resolutions(chosen: Sequence[Resolved], links: Sequence[Link], store: Store, scope: Scope) -> tuple[Memory, ...]:
    """What resolved the problems among the hits, unless it was found anyway."""
    shown = {each.memory.id for each in chosen}
    wanted = [
        link.target
        for link in links
        if link.kind is LinkKind.RESOLVED_BY and link.source in shown and link.target not in shown
    ]
    known = store.memories(wanted, known_at=scope.known_at)
    shown_too = [known[id] for id in dict.fromkeys(wanted) if id in known and visible(known[id], scope)]
    return tuple(shown_too[:MAX_RESOLUTIONS])
