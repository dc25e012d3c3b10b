"""From a question to scored candidates: the legs in turn, their fusion, and late interaction over the head."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from triskele.errors import ModelUnavailable
from triskele.index.catalog import Columns, Ints
from triskele.index.lexical import LexicalIndex
from triskele.index.semantic import SemanticIndex
from triskele.models.embedders import Encoding
from triskele.recall import fusion, graph_scores
from triskele.recall.fusion import SHARES, Candidate, Contribution, FusionConfig
from triskele.recall.graph_scores import Trail
from triskele.recall.legs import dense, lexical
from triskele.recall.legs.dense import HostedVectors
from triskele.recall.plan import CROSS, DEFAULT, Plan
from triskele.recall.question import LEAST_SIMILARITY, Question
from triskele.types import Agreement, Query, Ranking, Sort

if TYPE_CHECKING:
    from triskele.models.reranker import Reranking

# What the default counts of each leg's share of its ceiling, for memories that stand alone and for those of a talk.
ALONE: Mapping[str, float] = {"lexical": 0.12, "dense": 0.41, "late": 0.47}
IN_TALK: Mapping[str, float] = {"lexical": 0.08, "dense": 0.05, "late": 0.87}
# Where the model breaks the question's words into fragments, it does not know them: the words themselves count.
FOREIGN: Mapping[str, float] = {"lexical": 0.70, "dense": 0.10, "late": 0.20}
# A memory without vectors yet is judged by its words alone, a little below those that were fully judged.
STAND_IN = 0.75
WORDS_ALONE = "words alone answered"
SMOOTHING = 0.2
_MORE_IN_TALK = 0.5
_FLUENT, _FRAGMENTED = 1.6, 3.0
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class CandidateSet:
    """The scored candidates, best first, and what could not be asked."""

    fused: list[Candidate]
    missing: tuple[str, ...] = ()
    trail: Trail | None = None
    agreement: Agreement | None = None


def candidates(
    query: Query, plan: Plan, words: LexicalIndex, meaning: SemanticIndex | None, elsewhere: HostedVectors | None = None
) -> CandidateSet:
    """Score the memories that any leg brings up."""
    if not any(character.isalnum() for character in query.text):
        return CandidateSet([])
    by_words = lexical.rank(query, words) if "lexical" in plan.legs else Ranking(lexical.NAME)
    if query.sort is not Sort.RELEVANCE or not plan.asks_meaning:
        return CandidateSet(_in_order(by_words))
    if meaning is None:
        return CandidateSet(_in_order(by_words), (f"{WORDS_ALONE}: no model is installed",))
    try:
        encoding = meaning.embedder.encode_query(query.text)
    except ModelUnavailable as error:
        return CandidateSet(_in_order(by_words), (f"{WORDS_ALONE}: {error}",))
    columns = meaning.catalog.columns()
    asked = Question(query, plan, encoding, words, meaning, columns, columns.mask(query.scope), elsewhere)
    by_words = _known(by_words, columns)
    near = _near(asked, by_words)
    if plan.fusion != DEFAULT:
        return CandidateSet(_named_fusion(asked, [by_words, near]))
    if "dense" in plan.legs and not near.rows:
        return CandidateSet(_in_order(by_words))
    return _default(asked, _smoothed(asked, by_words) if plan.context else by_words, near)


def reviewed(pool: CandidateSet, verdict: Reranking) -> CandidateSet:
    """The pool in the order of a verdict: whoever takes a place takes the score that stood there."""
    if verdict.agreement is None:
        return replace(pool, missing=(*pool.missing, f"not read again: {verdict.missing}"))
    before = {candidate.row: candidate for candidate in pool.fused}
    scores = [candidate.score for candidate in pool.fused if candidate.row in set(verdict.order)]
    best_first = sorted(verdict.scores, key=lambda row: -verdict.scores[row])
    ranks = {row: rank for rank, row in enumerate(best_first, start=1)}
    head = [
        _read_again(before.pop(row), score, ranks.get(row), verdict.scores.get(row, 0.0))
        for row, score in zip(verdict.order, scores, strict=True)
    ]
    return replace(pool, fused=[*head, *before.values()], agreement=verdict.agreement)


def _read_again(candidate: Candidate, score: float, rank: int | None, raw: float) -> Candidate:
    if rank is None:
        return candidate._replace(score=score)
    return moved(candidate, score, CROSS, rank, raw, 1 / (1 + math.exp(-max(-50.0, min(50.0, raw)))))


def moved(
    candidate: Candidate, score: float, by: str, rank: int, raw: float = 0.0, normalised: float = 0.0
) -> Candidate:
    """A candidate with another score, told as what was added to it by whoever moved it."""
    return Candidate(
        candidate.row, score, {**candidate.parts, by: Contribution(rank, raw, normalised, score - candidate.score)}
    )


def _near(asked: Question, by_words: Ranking) -> Ranking:
    """What lies near in meaning; the nearest of strangers, without a shared word, is still a stranger."""
    if "dense" not in asked.plan.legs:
        return Ranking(dense.NAME)
    near = asked.nearness.rank()
    if not near.scores or near.scores[-1] >= LEAST_SIMILARITY:
        return near
    named = set(by_words.rows)
    pairs = zip(near.rows, near.scores, strict=True)
    return _of_pairs(near, [pair for pair in pairs if pair[1] >= LEAST_SIMILARITY or pair[0] in named])


def _default(asked: Question, by_words: Ranking, near: Ranking) -> CandidateSet:
    """Each leg's share of what was possible, weighed by the kind of memory and of question."""
    rows = _head(asked, by_words, near)
    if near.rows:
        near = asked.nearness.complete(near, rows)
    rankings = [_only(by_words, rows), _only(near, rows)]
    if asked.plan.rerank != "off":
        rankings.append(asked.late(rows))
    given = {leg: weight for leg, weight in (asked.plan.weights or {}).items() if leg != "graph"}
    shares = given or _shares(asked, rows)
    weighing = FusionConfig(weights=shares, depth=len(rows))
    judged = {row for ranking in rankings[1:] for row in ranking.rows}
    if "graph" in asked.plan.legs and asked.plan.rerank != "off":
        fused, trail = graph_scores.connected(asked, rankings, shares)
        return CandidateSet(_stand_in(fused, shares, judged), trail=trail)
    return CandidateSet(_stand_in(fusion.fuse("share", rankings, weighing), shares, judged))


def _named_fusion(asked: Question, rankings: Sequence[Ranking]) -> list[Candidate]:
    """One of the textbook methods, with late interaction mixed into its head if asked for."""
    plan = asked.plan
    weighing = FusionConfig(weights=plan.weights or SHARES[plan.fusion], k=plan.k, depth=asked.query.depth)
    if "graph" in plan.legs:
        rankings = [*rankings, graph_scores.walked(asked, rankings)]
    fused = fusion.fuse(plan.fusion, rankings, weighing)
    if plan.rerank != "late" or not fused:
        return fused
    # What lies below has scores of another kind, which would not compare.
    head = fused[: asked.rescored]
    rows = np.array([candidate.row for candidate in head], dtype=np.int64)
    first = Ranking("fused", tuple(rows.tolist()), tuple(candidate.score for candidate in head))
    both = FusionConfig(weights={"fused": 0.5, "late": 0.5}, depth=len(head))
    mixed = fusion.fuse("zscore", [first, asked.late(rows)], both)
    before = {candidate.row: candidate for candidate in head}
    return [_with_parts(candidate, before[candidate.row]) for candidate in mixed]


def _with_parts(mixed: Candidate, before: Candidate) -> Candidate:
    """The mixed score told in the parts of the legs: what the fusion gave is shared out as they gave it."""
    parts = with_contribution(before, mixed.parts["fused"].contribution if "fused" in mixed.parts else 0.0)
    if "late" in mixed.parts:
        parts["late"] = mixed.parts["late"]
    return Candidate(mixed.row, mixed.score, parts)


def with_contribution(candidate: Candidate, given: float) -> dict[str, Contribution]:
    """A candidate's parts, which together gave so much."""
    scale = given / candidate.score if candidate.score > 0 else 0.0
    return {leg: part._replace(contribution=part.contribution * scale) for leg, part in candidate.parts.items()}


def _in_order(ranking: Ranking) -> list[Candidate]:
    """The ranking of a single leg as it is, score for score."""
    return [
        Candidate(row, score, {ranking.leg: Contribution(rank, score, score, score)})
        for rank, (row, score) in enumerate(zip(ranking.rows, ranking.scores, strict=True), start=1)
    ]


def _known(ranking: Ranking, columns: Columns) -> Ranking:
    """Without rows that were written after the catalog was read."""
    rows = np.asarray(ranking.rows, dtype=np.int64)
    is_known = columns.holds(rows)
    return ranking if is_known.all() else _only(ranking, rows[is_known])


def _only(ranking: Ranking, rows: Ints) -> Ranking:
    wanted = set(rows.tolist())
    pairs = zip(ranking.rows, ranking.scores, strict=True)
    return _of_pairs(ranking, [pair for pair in pairs if pair[0] in wanted])


def _of_pairs(ranking: Ranking, pairs: Sequence[tuple[int, float]]) -> Ranking:
    return replace(ranking, rows=tuple(row for row, _ in pairs), scores=tuple(score for _, score in pairs))


def _smoothed(asked: Question, ranking: Ranking) -> Ranking:
    """Turns of a conversation lend a fifth of their score to the turns beside them that may be seen."""
    if not ranking.rows:
        return ranking
    columns = asked.columns
    at = columns.find(ranking.rows)
    beside = columns.neighbours(at, (-1, 1))
    has = (beside >= 0) & asked.mask[beside]
    if not has.any():
        return ranking
    scores = np.array(ranking.scores)
    everyone, place = np.unique(np.concatenate([at, beside[has]]), return_inverse=True)
    lent = np.zeros(len(everyone))
    np.add.at(lent, place, np.concatenate([scores, SMOOTHING * np.repeat(scores, has.sum(axis=1))]))
    order = np.lexsort((everyone, -lent))
    return replace(ranking, rows=tuple(columns.rows[everyone[order]].tolist()), scores=tuple(lent[order].tolist()))


def _head(asked: Question, by_words: Ranking, near: Ranking) -> Ints:
    """The rows worth the finer look: the best of both legs together."""
    weighing = FusionConfig(weights=SHARES["zscore"], depth=max(len(by_words.rows), len(near.rows), 1))
    rows, _ = fusion.ordered("zscore", [by_words, near], weighing)
    # A turn says little by itself: what its neighbours say may bring it up from further below.
    most = asked.rescored * (1 + _MORE_IN_TALK * asked.talk(rows[: asked.rescored]))
    return np.sort(rows[: round(most)])


def _shares(asked: Question, rows: Ints) -> Mapping[str, float]:
    """The weights of the legs between standing alone and being part of a talk, and between fluent and foreign."""
    talk = asked.talk(rows)
    foreign = _foreignness(asked.query.text, asked.encoding)
    shares = {
        leg: (1 - foreign) * ((1 - talk) * ALONE[leg] + talk * IN_TALK[leg]) + foreign * FOREIGN[leg] for leg in ALONE
    }
    if asked.plan.rerank == "off":
        del shares["late"]
    total = sum(shares.values())
    return {leg: share / total for leg, share in shares.items()}


def _foreignness(text: str, encoding: Encoding) -> float:
    """From 0, words that the model knows whole, to 1, words that it sees in fragments or not at all."""
    letters = [character for character in text if character.isalpha()]
    if not letters:
        return 0.0
    if sum(character > "\u024f" for character in letters) * 2 > len(letters):
        return 1.0
    words = len(_WORD.findall(text))
    # Punctuation is a piece of its own and no sign of anything.
    pieces = sum(_WORD.match(text, start) is not None for start in encoding.spans[:, 0].tolist())
    return min(max((pieces / words - _FLUENT) / (_FRAGMENTED - _FLUENT), 0.0), 1.0)


def _stand_in(fused: list[Candidate], shares: Mapping[str, float], judged: Set[int]) -> list[Candidate]:
    """Let words speak for the legs that have not seen a memory yet."""
    if all(candidate.row in judged for candidate in fused):
        return fused
    raised = []
    for candidate in fused:
        if candidate.row not in judged and lexical.NAME in candidate.parts:
            part = candidate.parts[lexical.NAME]
            share = STAND_IN * sum(shares.values()) * min(part.normalised, 1.0)
            candidate = Candidate(candidate.row, share, {"lexical": part._replace(contribution=share)})
        raised.append(candidate)
    return sorted(raised, key=lambda candidate: (-candidate.score, candidate.row))
