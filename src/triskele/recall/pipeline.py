"""Recall as one pipeline: legs, pool, late interaction, fusion, graph, supersession, confidence, reasons."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np

from triskele.errors import ModelUnavailable
from triskele.index.corpus import Corpus
from triskele.models.embedder import Embedder, Encoding
from triskele.recall import candidates, graph_leg, legs, reasons
from triskele.recall.candidates import CandidateSet, Scored
from triskele.recall.confidence import is_search
from triskele.recall.evidence import SPEAKER
from triskele.recall.graph_leg import GRAPH, Title, shared_concepts
from triskele.recall.late_interaction import late, token_weights
from triskele.recall.legs import DENSE, LEXICAL, EncodedQuery, HostedQuery, QueryTerms, one_blas_thread
from triskele.recall.plan import AS_RANKED, CROSS, DEFAULT, OFF, Plan
from triskele.recall.supersession import Priors, Resolved, resolve, visible
from triskele.store.protocols import OwnerStore
from triskele.text.analysis import Analyzer
from triskele.types import Answer, Link, LinkKind, Memory, Path, Period, Query, Ranking, Scope, Sort

if TYPE_CHECKING:
    from triskele.recall.expansion import QueryRewriter
    from triskele.recall.hosted.services import CandidateReranker
    from triskele.recall.second_stage import SecondStage

MAX_RESOLUTIONS = 3
WORDS_ALONE = "searched by words only"
WITHOUT_MODEL = f"{WORDS_ALONE}: no model is installed"
# A text repeats another if more than this share of its words is in the other.
REPEATED = 0.8
_OPENING = 60
# Most queries have neither digits nor underscores, so no identifier.
_HAS_IDENTIFIER = re.compile(r"[\d_]").search


@dataclass(frozen=True, slots=True)
class Sources:
    """The store, corpus and models of a recall; without an embedder only the lexical leg runs."""

    store: OwnerStore
    corpus: Callable[[Scope], Corpus]
    analyzer: Analyzer
    embedder: Embedder | None = None
    hosted: HostedQuery | None = None
    reranker: CandidateReranker | None = None
    second_stage: SecondStage | None = None
    rewriter: QueryRewriter | None = None
    missing: tuple[str, ...] = ()
    half_life_days: float = 0.0


@one_blas_thread()
def recall(query: Query, plan: Plan, sources: Sources, *, project: str | None, show_superseded: bool = False) -> Answer:
    """Answer a query from memory."""
    started = time.perf_counter()
    answered = partial(_answer, plan, sources, started, project=project, show_superseded=show_superseded)
    with sources.store.snapshot():
        corpus = sources.corpus(query.scope)
        query, unknown = _respelled(query, corpus)
        terms = query_terms(query.text, corpus, sources.analyzer, unknown, with_stop_words=sources.embedder is not None)
        first = retrieve(query, plan, terms, corpus, sources)
        answer = answered(query, terms, corpus, first)
    if sources.rewriter is None or not sources.rewriter.is_worth(answer.confidence):
        return answer
    # Outside the snapshot: what leaves this machine is written down first.
    wordings, problem = sources.rewriter.wordings(query.text)
    if not wordings:
        return replace(answer, missing=(*answer.missing, *([problem] if problem else [])))
    with sources.store.snapshot():
        corpus = sources.corpus(query.scope)
        both = answered(query, terms, corpus, _with_wordings(first, wordings, query, plan, corpus, sources))
    # The confidence is that of the query as it was asked.
    return replace(both, confidence=answer.confidence, wordings=tuple(wordings))


def leg_ranks(id: str, query: Query, plan: Plan, sources: Sources) -> dict[str, int | None]:
    """The rank of a memory in each retrieving leg of a plan, within the query's depth; None if a leg lacks it."""
    with sources.store.snapshot():
        corpus = sources.corpus(query.scope)
        query, _ = _respelled(query, corpus)
        encoding, _ = _encoding(query, plan, sources)
        terms = query_terms(query.text, corpus, sources.analyzer)
        rankings = [legs.lexical(query, terms, corpus)] if LEXICAL in plan.legs else []
        if encoding is not None and DENSE in plan.legs:
            weights = token_weights(query.text, encoding, sources.analyzer, terms.rarity)
            also = rankings[0].rows if rankings else ()
            rankings.append(legs.dense(EncodedQuery(query, plan, encoding, weights), corpus, also=also)[0])
        own = {row for row, _ in sources.store.versions([id])}
    ranks = [next((rank for rank, row in enumerate(each.rows, start=1) if row in own), None) for each in rankings]
    return {ranking.leg: rank for ranking, rank in zip(rankings, ranks, strict=True)}


def _respelled(query: Query, corpus: Corpus) -> tuple[Query, frozenset[str]]:
    """The query with its identifiers as the memories write them, and those that no memory of the scope holds."""
    if not _HAS_IDENTIFIER(query.text):
        return query, frozenset()
    text, unknown = legs.respelled(query.text, corpus)
    return (query if text == query.text else replace(query, text=text)), unknown


def query_terms(
    text: str,
    corpus: Corpus,
    analyzer: Analyzer,
    unknown: frozenset[str] = frozenset(),
    *,
    with_stop_words: bool = True,
) -> QueryTerms:
    """The terms of a query with their rarity; late interaction needs the rarity of its stop words too."""
    terms = analyzer.query_terms(text)
    words = analyzer.terms(text) if with_stop_words else ()
    return QueryTerms(text, tuple(terms), corpus.rarity(dict.fromkeys([*terms, *words])), unknown)


def retrieve(query: Query, plan: Plan, terms: QueryTerms, corpus: Corpus, sources: Sources) -> CandidateSet:
    """The candidates of a query, best first, before supersession."""
    if not any(character.isalnum() for character in query.text):
        return CandidateSet([])
    encode, titles = cache(partial(_encoding, query, plan, sources)), list[Title]()
    if _asks_model(query, plan, sources):
        # What needs no vectors comes first: the model is probably at work in a thread of its own.
        if {LEXICAL, DENSE} <= plan.legs:
            corpus.prefetch(terms.terms, lambda: encode()[0], query.depth)
        if plan.fusion == DEFAULT and plan.rerank != OFF and GRAPH in plan.legs:
            titles = graph_leg.titles(query.text, corpus)
    lexical = legs.lexical(query, terms, corpus) if LEXICAL in plan.legs else Ranking(LEXICAL)
    encoding, missing = encode()
    if encoding is None:
        scored = CandidateSet(candidates.in_order(lexical), missing)
    else:
        weights = token_weights(query.text, encoding, sources.analyzer, terms.rarity)
        scored = _scored(EncodedQuery(query, plan, encoding, weights), corpus, lexical, titles, sources.hosted)
    # What a name adds is a share of the default's scale; other fusions have scales of their own.
    is_default = plan.fusion == DEFAULT and SPEAKER in plan.evidence
    if is_default and query.sort is Sort.RELEVANCE and is_search(query.text):
        scored = replace(scored, fused=candidates.with_spoken(scored.fused, corpus.said_by(query.text, query.depth)))
    second = sources.second_stage
    if second is not None and second.is_worth(reasons.first_confidence(scored, terms)):
        return second.read(query.text, scored, corpus, sources.store)
    return _reranked(scored, query, plan, sources)


def _asks_model(query: Query, plan: Plan, sources: Sources) -> bool:
    return query.sort is Sort.RELEVANCE and plan.asks_meaning and sources.embedder is not None


def _encoding(query: Query, plan: Plan, sources: Sources) -> tuple[Encoding | None, tuple[str, ...]]:
    """The query as the model reads it, or None with what is missing."""
    if sources.embedder is None or not _asks_model(query, plan, sources):
        return None, ()
    try:
        return sources.embedder.encode_query(query.text), ()
    except ModelUnavailable as error:
        return None, (f"{WORDS_ALONE}: {error}",)


def _scored(
    encoded: EncodedQuery, corpus: Corpus, lexical: Ranking, titles: Sequence[Title], hosted: HostedQuery | None
) -> CandidateSet:
    """Dense leg, pool, late interaction, graph over the fused list, evidence, fusion."""
    plan, dense, nearness = encoded.plan, Ranking(DENSE), None
    rows = np.array(lexical.rows, dtype=np.int64)
    # Rows that were written after the corpus was read are left out.
    facts = corpus.facts(rows, reach=min(encoded.reach, 1))
    is_visible = facts.is_visible
    if not is_visible.all():
        lexical = legs.only(lexical, rows[is_visible])
    if DENSE in plan.legs:
        dense, nearness = legs.dense(encoded, corpus, hosted, also=lexical.rows)
    if plan.fusion != DEFAULT:
        return CandidateSet(candidates.by_method(encoded, corpus, [lexical, dense]))
    if nearness is not None and not dense.rows:
        return CandidateSet(candidates.in_order(lexical))
    nearest = dense.scores[0] if dense.scores else 1.0
    lexical = candidates.smoothed(lexical, facts.neighbours[is_visible], corpus)
    pool, turns = candidates.pool(encoded, corpus, lexical, dense)
    in_conversation = candidates.conversation_share(turns.neighbours)
    weights = candidates.leg_weights(encoded, in_conversation)
    scored = Scored.of(pool, lexical, dense, weights, nearness)
    seeds: tuple[int, ...] = ()
    matched = candidates.without_names(encoded, corpus, turns)
    if plan.rerank != OFF:
        scored = scored.with_late(late(matched, pool, corpus, turns))
    table, waiting = scored.table, scored.waiting
    if plan.rerank != OFF and GRAPH in plan.legs:
        scored, table, seeds = candidates.with_graph(matched, corpus, scored, titles)
    fused = candidates.with_evidence(encoded, corpus, table).fused()
    if len(waiting):
        fused = candidates.stand_in(fused, weights, set(waiting.tolist()))
    if in_conversation:
        fused = candidates.few_of_each_text(fused, corpus)
    elsewhere = max(0.0, corpus.closest_anywhere(encoded.encoding.sentence) - nearest)
    said = candidates.said(encoded, corpus, scored.rows)
    given = encoded.token_weights
    return CandidateSet(fused, seeds=seeds, late=scored.late, token_weights=given, elsewhere=elsewhere, said=said)


def _reranked(found: CandidateSet, query: Query, plan: Plan, sources: Sources) -> CandidateSet:
    """The candidates in the order of the cross-encoder, if the plan says so."""
    if plan.rerank != CROSS or sources.reranker is None or query.sort is not Sort.RELEVANCE:
        return found
    # Imported here: few plans need it.
    from triskele.recall.reorder import by_cross_encoder

    memories = sources.store.rows(candidate.row for candidate in found.fused[: sources.reranker.depth])
    read = {candidate.row: memories[candidate.row] for candidate in found.fused if candidate.row in memories}
    return by_cross_encoder(found, sources.reranker.review(query.text, read))


def _with_wordings(
    first: CandidateSet, wordings: Sequence[str], query: Query, plan: Plan, corpus: Corpus, sources: Sources
) -> CandidateSet:
    """The candidates of a query and of other wordings of it, fused."""
    # Imported here: only recalls with a language model need it.
    from triskele.recall.expansion import joined

    # Other wordings are ranked only by local models: the hosted one has encoded the original query.
    local = replace(sources, hosted=None)
    plain = replace(plan, rerank=DEFAULT) if plan.rerank == CROSS else plan
    others = []
    for text in wordings:
        terms = query_terms(text, corpus, sources.analyzer)
        others.append(retrieve(replace(query, text=text), plain, terms, corpus, local).fused)
    return replace(first, fused=joined(first.fused, others))


def _answer(
    plan: Plan,
    sources: Sources,
    started: float,
    query: Query,
    terms: QueryTerms,
    corpus: Corpus,
    found: CandidateSet,
    *,
    project: str | None,
    show_superseded: bool,
) -> Answer:
    """Supersession, confidence and reasons for the candidates."""
    store = sources.store
    if plan.order != AS_RANKED and sources.embedder is not None:
        from triskele.recall.reorder import in_order

        near = [row for row, _ in store.versions([query.near])] if query.near else []
        found = in_order(found, plan.order, corpus, near)
    coverage = reasons.Coverage(terms, sources.analyzer)
    priors = Priors(plan.prior, plan.exact, coverage.is_whole, sources.half_life_days)
    resolved = resolve(found.fused, query, store, corpus, priors=priors, show_superseded=show_superseded)
    links = store.links([each.memory.id for each in resolved], known_at=query.scope.known_at)
    if query.is_explained:
        hits = reasons.explained(resolved, coverage, links, _paths(resolved, found.seeds, corpus, store))
    else:
        hits = tuple(map(reasons.bare, resolved))
    return Answer(
        hits=hits,
        resolutions=_resolutions(resolved, links, store, query.scope),
        confidence=reasons.confidence(*_trusted(resolved, found, query.scope.trusted), coverage, corpus.size),
        project=project,
        took_ms=(time.perf_counter() - started) * 1000,
        waiting=corpus.waiting if sources.embedder is not None else 0,
        missing=(*found.missing, *sources.missing),
        agreement=found.agreement,
        period=query.period,
        within=_within(query.scope),
    )


def _trusted(
    resolved: Sequence[Resolved], found: CandidateSet, users: frozenset[str] | None
) -> tuple[Sequence[Resolved], CandidateSet]:
    """Hits and candidates without those that users share who are not trusted."""
    if users is None:
        return resolved, found
    kept = [each for each in resolved if each.memory.shared_by is None or each.memory.shared_by in users]
    # Of memories that supersede each other one hit is made of several candidates: all others go too.
    rows = {each.fused.row for each in kept}
    return kept, replace(found, fused=[each for each in found.fused if each.row in rows])


def _within(scope: Scope) -> Period | None:
    return None if scope.since is None and scope.until is None else Period(scope.since, scope.until)


def _paths(resolved: Sequence[Resolved], seeds: Sequence[int], corpus: Corpus, store: OwnerStore) -> Mapping[int, Path]:
    """For hits that the graph leg raised, the name that connects them with another one."""
    rows = [each.fused.row for each in resolved if GRAPH in each.fused.parts]
    shared = shared_concepts(corpus, seeds, rows)
    if not shared:
        return {}
    names = corpus.names({concept for _, concept in shared.values()})
    known = {each.fused.row: each.matched for each in resolved}
    others = known | store.rows({seed for seed, _ in shared.values()} - known.keys())
    return {
        row: Path(names[concept], others[seed].id, _opening(others[seed].content))
        for row, (seed, concept) in shared.items()
        if concept in names and seed in others
    }


def _opening(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _OPENING else words[:_OPENING].rsplit(" ", 1)[0] + " …"


def _resolutions(
    resolved: Sequence[Resolved], links: Sequence[Link], store: OwnerStore, scope: Scope
) -> tuple[Memory, ...]:
    """What resolved the problems among the hits, unless it is a hit itself."""
    shown = {each.memory.id for each in resolved}
    wanted = [
        link.target
        for link in links
        if link.kind is LinkKind.RESOLVED_BY and link.source in shown and link.target not in shown
    ]
    known = store.memories(wanted, known_at=scope.known_at)
    allowed = [known[id] for id in dict.fromkeys(wanted) if id in known and visible(known[id], scope)]
    return tuple(allowed[:MAX_RESOLUTIONS])


def pack(answer: Answer, budget: int) -> Answer:
    """The hits and resolutions that fit into a budget of tokens, without texts that repeat others."""
    seen: list[set[str]] = []
    left = budget

    def fits(memory: Memory) -> bool:
        nonlocal left
        words = set(memory.content.lower().split())
        cost = reasons.tokens_of(memory.content)
        # A longer text that contains a shorter one adds something, and stays.
        if cost > left or any(len(words & other) > REPEATED * len(words) for other in seen):
            return False
        seen.append(words)
        left -= cost
        return True

    hits = tuple(hit for hit in answer.hits if fits(hit.memory))
    return replace(answer, hits=hits, resolutions=tuple(memory for memory in answer.resolutions if fits(memory)))
