"""Step 9: another order of the best candidates, by a cross-encoder, by late interaction or by what was asked for.

A cross-encoder of the settings moves candidates within their scores, the bundled one adds a contribution: it moves the
candidates that it has read, and none of the others. A reordered candidate takes the score of its new position, so that
scores still fall.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from triskele.errors import Unavailable
from triskele.index.corpus import Corpus, Floats, Ints
from triskele.models.cross_encoder import Context
from triskele.recall.confidence import first_confidence
from triskele.recall.fusion import FusionConfig, textbook_fusion
from triskele.recall.graph import max_concept_frequency
from triskele.recall.late import interact
from triskele.recall.plan import CROSS, DEFAULT, DIVERSE, GATED, MENTIONED
from triskele.recall.question import Question, Scorer, Sources
from triskele.recall.scores import (
    GRAPH,
    LATE,
    REVIEW,
    Candidate,
    Candidates,
    Contribution,
    Doubles,
    Ranking,
    scaled_parts,
)
from triskele.store.owner import OwnerStore
from triskele.types import Memory, Role, Sort, is_raised

if TYPE_CHECKING:
    from triskele.models.cross_encoder import Reranking

READ = 10
# A quarter of a logit, as a share of the best score.
BY_REVIEW = 0.06
# A linked answer shares few words with the question: a candidate that connections raised by this share of the best
# score counts as much as the best one that was read.
RAISED = 0.2
# Outside this band of confidence reading again changes little.
HOPELESS, SURE = 0.05, 0.9
# Turns between people up to this length are read together with the turns before them: longer ones need no context, nor
# do turns of a conversation with an assistant.
_SHORT = 400
_TURNS_BEFORE = (0, 2)


# How many candidates another order may move.
DEPTH = 50
_STEPS = 3
# Farther than any linked row.
_FAR = 1 << 32


def rerank(question: Question, corpus: Corpus, candidates: Candidates, sources: Sources) -> Candidates:
    """Step 9: the candidates as the plan reranks them."""
    return RERANKERS[question.plan.rerank](question, corpus, candidates, sources)


def reorder(question: Question, corpus: Corpus, candidates: Candidates, sources: Sources) -> Candidates:
    """The best candidates in the order that the plan names; the scores stay with the positions."""
    order, top = question.plan.order, candidates.ranked[:DEPTH]
    if sources.embedder is None or not top:
        return candidates
    rows = [candidate.row for candidate in top]
    if order == DIVERSE:
        reordered = diverse(rows, [candidate.score for candidate in top], _vectors(rows, corpus))
    elif order == MENTIONED:
        reordered = most_mentioned(rows, _mention_counts(rows, corpus))
    else:
        near = question.query.near
        start = [row for row, _ in sources.store.versions([near])] if near else []
        reordered = nearest(rows, _distances(np.array(start, dtype=np.int64), corpus))
    before = {candidate.row: candidate for candidate in top}
    moved = [_moved(before[row], top[position].score, "order", position + 1) for position, row in enumerate(reordered)]
    return replace(candidates, ranked=[*moved, *candidates.ranked[DEPTH:]])


def mix_late(question: Question, corpus: Corpus, candidates: Candidates, _: Sources) -> Candidates:
    """Half a textbook fusion and half late interaction, for the best candidates.

    Candidates below have scores of another kind, which are not comparable. The default has it as a leg.
    """
    top = candidates.ranked[: question.plan.rescored]
    if question.plan.fusion == DEFAULT or question.encoding is None or not top:
        return candidates
    rows = np.array([candidate.row for candidate in top], dtype=np.int64)
    first = Ranking("fused", rows, np.array([candidate.score for candidate in top]))
    late = interact(question, question.token_weights, rows, corpus).ranking(rows)
    config = FusionConfig(weights={"fused": 0.5, LATE: 0.5}, depth=len(top))
    before = {candidate.row: candidate for candidate in top}
    mixed = textbook_fusion("zscore", [first, late], config).ranked()
    return replace(candidates, ranked=[_with_parts(candidate, before[candidate.row]) for candidate in mixed])


def _with_parts(mixed: Candidate, before: Candidate) -> Candidate:
    """The mixed score split into the contributions of the legs, in proportion to what they gave before."""
    parts = scaled_parts(before, mixed.parts["fused"].contribution if "fused" in mixed.parts else 0.0)
    if LATE in mixed.parts:
        parts[LATE] = mixed.parts[LATE]
    return Candidate(mixed.row, mixed.score, parts)


def cross(question: Question, _: Corpus, candidates: Candidates, sources: Sources) -> Candidates:
    """The candidates in the order of the cross-encoder that the settings name."""
    reader = sources.cross_encoder
    if reader is None or question.query.sort is not Sort.RELEVANCE:
        return candidates
    memories = sources.store.rows(candidate.row for candidate in candidates.ranked[: reader.depth])
    readable = {candidate.row: memories[candidate.row] for candidate in candidates.ranked if candidate.row in memories}
    return by_cross_encoder(candidates, reader.review(question.query.text, readable))


def by_cross_encoder(candidates: Candidates, verdict: Reranking) -> Candidates:
    """The candidates in the order of a cross-encoder; the scores stay with the positions."""
    if verdict.agreement is None:
        return replace(candidates, missing=(*candidates.missing, f"not reranked: {verdict.missing}"))
    before = {candidate.row: candidate for candidate in candidates.ranked}
    scores = [candidate.score for candidate in candidates.ranked if candidate.row in set(verdict.order)]
    best_first = sorted(verdict.scores, key=lambda row: -verdict.scores[row])
    ranks = {row: rank for rank, row in enumerate(best_first, start=1)}
    top = [
        _reranked(before.pop(row), score, ranks.get(row), verdict.scores.get(row, 0.0))
        for row, score in zip(verdict.order, scores, strict=True)
    ]
    return replace(candidates, ranked=[*top, *before.values()], agreement=verdict.agreement)


def _reranked(candidate: Candidate, score: float, rank: int | None, raw: float) -> Candidate:
    if rank is None:
        return candidate._replace(score=score)
    return _moved(candidate, score, CROSS, rank, raw, 1 / (1 + math.exp(-max(-50.0, min(50.0, raw)))))


def _moved(
    candidate: Candidate, score: float, by: str, rank: int, raw: float = 0.0, normalised: float = 0.0
) -> Candidate:
    """A candidate with another score; the difference is the contribution of what moved it."""
    return Candidate(
        candidate.row, score, {**candidate.parts, by: Contribution(rank, raw, normalised, score - candidate.score)}
    )


def gated(question: Question, corpus: Corpus, candidates: Candidates, sources: Sources) -> Candidates:
    """The candidates with the contributions of the bundled cross-encoder, if it may change a middling answer."""
    if sources.scorer is None or not should_run(first_confidence(candidates, question)):
        return candidates
    return review(question, corpus, candidates, sources.store, sources.scorer)


def should_run(confidence: float) -> bool:
    """Whether reading the best candidates may change an answer of this confidence."""
    return HOPELESS <= confidence < SURE


def review(question: Question, corpus: Corpus, candidates: Candidates, store: OwnerStore, scorer: Scorer) -> Candidates:
    """The candidates with the cross-encoder's scores of the best ones; unchanged if it takes too long."""
    top = candidates.ranked[:READ]
    memories = store.rows(candidate.row for candidate in top)
    top = [candidate for candidate in top if candidate.row in memories]
    if len(top) < 2:
        return candidates
    texts = [with_speaker(memories[candidate.row]) for candidate in top]
    contexts = _contexts([memories[candidate.row] for candidate in top], top, corpus, store)
    seconds = question.plan.patience_s
    try:
        if seconds is None:
            logits = scorer.score(question.query.text, texts, contexts)
        else:
            logits = scorer.score_within(seconds, question.query.text, texts, contexts)
    except TimeoutError:
        problem = f"{scorer.name} took longer than {seconds:g} s"
        return replace(candidates, missing=(*candidates.missing, problem))
    except Unavailable as error:
        return replace(candidates, missing=(*candidates.missing, f"not reranked: {error}"))
    return replace(candidates, ranked=_reviewed(candidates.ranked, top, logits))


def _reviewed(ranked: Sequence[Candidate], top: Sequence[Candidate], logits: Floats) -> list[Candidate]:
    """The candidates in their new order: a contribution counts from the worst of those that were read."""
    best = max(candidate.score for candidate in top)
    is_raised_by_links = np.array([_from_graph(candidate) >= RAISED * best for candidate in top])
    shares = BY_REVIEW * (np.where(is_raised_by_links, logits.max(), logits) - logits.min()) / 4
    ranks = {int(position): rank for rank, position in enumerate(np.argsort(-logits, kind="stable"), start=1)}
    reviewed = {}
    for position, candidate in enumerate(top):
        added = best * float(shares[position])
        part = Contribution(ranks[position], float(logits[position]), float(shares[position]), added)
        reviewed[candidate.row] = Candidate(candidate.row, candidate.score + added, {**candidate.parts, REVIEW: part})
    return sorted((reviewed.get(each.row, each) for each in ranked), key=lambda each: -each.score)


def _from_graph(candidate: Candidate) -> float:
    """How much of a candidate's score connections gave."""
    part = candidate.parts.get(GRAPH)
    return part.contribution if part is not None else 0.0


def _contexts(memories: Sequence[Memory], top: Sequence[Candidate], corpus: Corpus, store: OwnerStore) -> list[Context]:
    """The date and the turns before each short turn between people; nothing for other memories."""
    rows = np.array([candidate.row for candidate in top], dtype=np.int64)
    neighbours = corpus.facts(rows, reach=2).neighbours
    before = [
        [int(beside[column]) for column in _TURNS_BEFORE if beside[column] >= 0] if _needs_context(memory) else []
        for memory, beside in zip(memories, neighbours, strict=True)
    ]
    turns = store.rows({row for each in before for row in each})
    return [
        _context(memory, [turns[row] for row in each if row in turns])
        for memory, each in zip(memories, before, strict=True)
    ]


def _context(memory: Memory, before: Sequence[Memory]) -> Context:
    """The date of a turn and the turns before it, none of them more sensitive than the turn itself."""
    turns = tuple(with_speaker(turn) for turn in before if not is_raised(memory.sensitivity, turn.sensitivity))
    return Context(f"{(memory.valid_from or memory.created_at):%Y-%m-%d}", turns) if turns else Context()


def _needs_context(memory: Memory) -> bool:
    return len(memory.content) <= _SHORT and memory.role in (None, Role.OTHER)


def with_speaker(memory: Memory) -> str:
    """The text of a memory behind the name of its speaker."""
    name = memory.speaker or memory.role
    return f"{name}: {memory.content}" if name and not memory.content.startswith(f"{name}:") else memory.content


def diverse(
    rows: Sequence[int], scores: Sequence[float], vectors: Mapping[int, Floats], balance: float = 0.5
) -> list[int]:
    """Maximal marginal relevance (Carbonell and Goldstein, 1998): each next row is relevant and adds something new.

    Scores are scaled to 0–1. With a balance of 1 the order stays; a row without a vector is similar to none.
    """
    if not rows:
        return []
    relevance = _to_unit(scores)
    alike = _similarities(rows, vectors)
    closest = np.zeros(len(rows))
    left = np.ones(len(rows), dtype=np.bool_)
    chosen: list[int] = []
    for _ in rows:
        worth = np.where(left, balance * relevance - (1 - balance) * closest, -np.inf)
        best = int(worth.argmax())
        chosen.append(rows[best])
        left[best] = False
        closest = np.maximum(closest, alike[best])
    return chosen


def nearest(rows: Sequence[int], distances: Mapping[int, int]) -> list[int]:
    """Rows by their distance in the graph, ties in the old order; unreachable ones last."""
    return sorted(rows, key=lambda row: distances.get(row, _FAR))


def most_mentioned(rows: Sequence[int], counts: Mapping[int, int]) -> list[int]:
    """Rows by how many memories mention their subject, ties in the old order."""
    return sorted(rows, key=lambda row: -counts.get(row, 0))


def _to_unit(scores: Sequence[float]) -> Doubles:
    values = np.asarray(scores, dtype=np.float64)
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else np.ones(len(values))


def _similarities(rows: Sequence[int], vectors: Mapping[int, Floats]) -> Doubles:
    """Cosines of unit vectors, at least 0; 0 if a vector is missing."""
    known = [position for position, row in enumerate(rows) if row in vectors]
    alike = np.zeros((len(rows), len(rows)))
    if known:
        matrix = np.stack([vectors[rows[position]] for position in known]).astype(np.float64)
        alike[np.ix_(known, known)] = np.clip(matrix @ matrix.T, 0.0, 1.0)
    return alike


def _vectors(rows: Sequence[int], corpus: Corpus) -> dict[int, Floats]:
    vectors = corpus.vectors(np.array(rows, dtype=np.int64))
    return {row: vector for row, vector in zip(rows, vectors, strict=True) if len(vector) and np.isfinite(vector).all()}


def _mention_counts(rows: Sequence[int], corpus: Corpus) -> dict[int, int]:
    """How many memories mention the subject of each row."""
    mentions = corpus.mentions(np.array(rows, dtype=np.int64))
    counts = np.zeros(len(rows), dtype=np.int64)
    np.maximum.at(counts, mentions.position[mentions.is_subject], mentions.frequency[mentions.is_subject])
    return dict(zip(rows, counts.tolist(), strict=True))


def _distances(start: Ints, corpus: Corpus) -> dict[int, int]:
    """How many shared names lie between the start and other rows; a hub connects none."""
    most = max_concept_frequency(corpus.size)
    distances = dict.fromkeys(start.tolist(), 0)
    fringe = start
    for step in range(1, _STEPS + 1):
        mentions = corpus.mentions(fringe)
        concepts = np.unique(mentions.concepts[mentions.frequency <= most])
        rows = np.unique(corpus.holders(concepts)[1])
        fringe = rows[~np.isin(rows, list(distances))]
        distances |= dict.fromkeys(fringe.tolist(), step)
    return distances


Reranker = Callable[[Question, Corpus, Candidates, Sources], Candidates]
RERANKERS: Mapping[str, Reranker] = {LATE: mix_late, CROSS: cross, GATED: gated}
