"""Steps 2 to 4: the lexical and the dense leg, each a ranking, and the pool of their best rows in columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from triskele.index.corpus import Corpus, Facts, Floats, Ints, Vectors, Words
from triskele.index.token_vectors import distinct
from triskele.recall.fusion import METHODS, FusionConfig, textbook_fusion
from triskele.recall.plan import DEFAULT, OFF
from triskele.recall.question import Question
from triskele.recall.scores import (
    DENSE,
    GRAPH,
    LATE,
    LEXICAL,
    Column,
    Doubles,
    Ranking,
    Scores,
    step,
)
from triskele.types import Sort

# A cosine below this carries no information.
LEAST_SIMILARITY = 0.1
_RELEVANCE_SHARE = 0.4
_LEAST_SPREAD = 1e-6
# The default's weight of each leg's share of its ceiling, for single memories and for turns of conversations
# (docs/decisions/0006).
SINGLE_MEMORY_WEIGHTS: Mapping[str, float] = {LEXICAL: 0.12, DENSE: 0.41, LATE: 0.47}
CONVERSATION_WEIGHTS: Mapping[str, float] = {LEXICAL: 0.04, DENSE: 0.10, LATE: 0.86}
# If the model splits the words of a question into pieces, it has no vectors for them: the lexical leg counts most.
FOREIGN_WORD_WEIGHTS: Mapping[str, float] = {LEXICAL: 0.70, DENSE: 0.10, LATE: 0.20}
NEIGHBOUR_SHARE = 0.2
_FLUENT, _FRAGMENTED = 1.6, 3.0
_WORD = re.compile(r"\w+")


@step
def lexical(question: Question, corpus: Words) -> Ranking:
    """Step 2: the memories that contain any term, in the order asked for."""
    if LEXICAL not in question.plan.legs:
        return Ranking(LEXICAL)
    if question.query.sort is Sort.IMPORTANCE:
        return _by_importance(question, corpus)
    hits = corpus.search(question.terms, limit=question.query.depth, sort=question.query.sort)
    rows = np.array([hit.row for hit in hits], dtype=np.int64)
    return Ranking(LEXICAL, rows, np.array([hit.score for hit in hits], dtype=np.float64), question.ceiling)


def _by_importance(question: Question, corpus: Words) -> Ranking:
    """0.4 relevance and 0.6 importance, over the best of either."""
    hits = {
        hit.row: hit
        for sort in (Sort.RELEVANCE, Sort.IMPORTANCE)
        for hit in corpus.search(question.terms, limit=question.query.depth, sort=sort)
    }
    best = max((hit.score for hit in hits.values()), default=1.0)
    blend = {
        row: _RELEVANCE_SHARE * hit.score / best + (1 - _RELEVANCE_SHARE) * hit.importance for row, hit in hits.items()
    }
    ordered = sorted(blend, key=lambda row: (-blend[row], row))[: question.query.depth]
    scores = np.array([blend[row] for row in ordered], dtype=np.float64)
    return Ranking(LEXICAL, np.array(ordered, dtype=np.int64), scores)


@step
def dense(question: Question, corpus: Vectors, lexical: Ranking) -> Ranking:
    """Step 3: the nearest memories inside the scope; `nearness` of the ranking scores further ones.

    A memory below the least similarity counts only if the lexical leg returns it.
    """
    if DENSE not in question.plan.legs or question.encoding is None:
        return Ranking(DENSE)
    depth, hosted = question.query.depth, question.hosted
    rows, cosines = corpus.nearest(depth)
    if hosted is None:
        ranking = Ranking(DENSE, rows, cosines.astype(np.float64), nearness=corpus.cosines)
    else:
        mixed, rows = _with_hosted(corpus, hosted, rows, depth)
        ranking = _by_cosine(rows, mixed.cosines(rows)).restricted_to(slice(depth))
        ranking = replace(ranking, nearness=mixed.cosines)
    if not len(ranking.rows) or ranking.scores[-1] >= LEAST_SIMILARITY:
        return ranking
    return ranking.restricted_to((ranking.scores >= LEAST_SIMILARITY) | np.isin(ranking.rows, lexical.rows))


@dataclass(frozen=True, slots=True, eq=False)
class MixedCosines:
    """The mean of local and hosted cosines.

    Hosted ones are scaled to the mean and spread of the local ones, so that a memory that the hosted model may not read
    is comparable. `scale` is a factor and an offset; None if there is nothing to compare.
    """

    local: Vectors
    hosted: Vectors
    scale: tuple[float, float] | None

    def cosines(self, rows: Ints) -> Floats:
        """The cosines of some rows; NaN if a row has no vector."""
        local = self.local.cosines(rows)
        if self.scale is None:
            return local
        hosted = self.hosted.cosines(rows) * self.scale[0] + self.scale[1]
        return np.where(np.isnan(hosted), local, (local + np.clip(hosted, -1, 1)) / 2).astype(np.float32)


def _with_hosted(local: Vectors, hosted: Vectors, rows: Ints, depth: int) -> tuple[MixedCosines, Ints]:
    """Both models' nearest rows, and the scale that makes the hosted cosines comparable on them."""
    rows = np.union1d(rows, hosted.nearest(depth)[0])
    cosines = local.cosines(rows)
    has_vector = ~np.isnan(cosines)
    rows, cosines = rows[has_vector], cosines[has_vector]
    hosted_cosines = hosted.cosines(rows)
    both = ~np.isnan(hosted_cosines)
    spread = float(hosted_cosines[both].std()) if both.sum() > 1 else 0.0
    if spread < _LEAST_SPREAD:
        return MixedCosines(local, hosted, None), rows
    factor = float(cosines[both].std()) / spread
    offset = float(cosines[both].mean()) - factor * float(hosted_cosines[both].mean())
    return MixedCosines(local, hosted, (factor, offset)), rows


def _by_cosine(rows: Ints, cosines: Floats | Doubles) -> Ranking:
    order = np.lexsort((rows, -cosines))
    return Ranking(DENSE, rows[order], cosines[order].astype(np.float64))


def pool(question: Question, corpus: Corpus, lexical: Ranking, dense: Ranking) -> Scores:
    """Step 4: the columns of both legs over the best rows of either; for textbook methods over all of them."""
    if question.encoding is None:
        return Scores.of_one(lexical)
    facts = corpus.facts(lexical.rows, reach=min(question.reach, 1))
    # Rows that were written after the corpus was read are left out.
    is_visible = facts.is_visible
    if not is_visible.all():
        lexical = lexical.restricted_to(is_visible)
    if question.plan.fusion != DEFAULT:
        return textbook_fusion(question.plan.fusion, [lexical, dense], FusionConfig.of(question))
    if DENSE in question.plan.legs and not len(dense.rows):
        return Scores.of_one(lexical)
    lexical = share_with_neighbours(lexical, facts.neighbours[is_visible], corpus)
    rows, facts = _best(question, corpus, lexical, dense)
    share = conversation_share(facts.neighbours)
    weights = leg_weights(question, share)
    columns = _columns(rows, lexical, dense, weights)
    return Scores(rows, columns, (lexical, dense), weights=weights, facts=facts, in_conversation=share)


def conversation_share(neighbours: Ints) -> float:
    """The share of some rows that have a neighbouring turn."""
    return np.count_nonzero((neighbours[:, :2] >= 0).any(axis=1)) / len(neighbours) if len(neighbours) else 0.0


def share_with_neighbours(ranking: Ranking, neighbours: Ints, corpus: Corpus) -> Ranking:
    """The ranking with a fifth of each turn's score added to the visible turns next to it."""
    has = neighbours >= 0
    if not has.any():
        return ranking
    has[has] = corpus.facts(neighbours[has]).is_visible
    everyone, places = np.unique(np.concatenate([ranking.rows, neighbours[has]]), return_inverse=True)
    total = np.zeros(len(everyone))
    shared = NEIGHBOUR_SHARE * np.repeat(ranking.scores, has.sum(axis=1))
    np.add.at(total, places, np.concatenate([ranking.scores, shared]))
    order = np.lexsort((everyone, -total))
    return Ranking(ranking.leg, everyone[order], total[order], ranking.ceiling)


def _best(question: Question, corpus: Corpus, lexical: Ranking, dense: Ranking) -> tuple[Ints, Facts]:
    """The best rows of both legs by standard scores, in order of rows, and their facts."""
    most, rows = question.plan.rescored, distinct(np.concatenate([lexical.rows, dense.rows]))
    if len(rows) > most:
        config = FusionConfig(weights=METHODS["zscore"].weights, depth=len(rows))
        both = textbook_fusion("zscore", [lexical, dense], config)
        rows = np.sort(both.rows[both.ordered[0][:most]])
    return rows, corpus.facts(rows, reach=question.reach)


def _columns(rows: Ints, lexical: Ranking, dense: Ranking, weights: Mapping[str, float]) -> tuple[Column, ...]:
    """The scores of both legs, with the cosines of the rows that only the lexical leg returned."""
    cosines = _scattered(dense, rows)
    if dense.nearness is not None and len(others := np.flatnonzero(np.isnan(cosines))):
        cosines[others] = dense.nearness(rows[others])
    return (
        Column(LEXICAL, _scattered(lexical, rows), weights.get(LEXICAL, 0.0), lexical.ceiling),
        Column(DENSE, cosines, weights.get(DENSE, 0.0)),
    )


def _scattered(ranking: Ranking, rows: Ints) -> Doubles:
    """The scores of a ranking by some rows, which ascend; NaN for a row that it does not have."""
    places = np.searchsorted(rows, ranking.rows)
    is_there = (
        rows.take(places, mode="clip") == ranking.rows if len(rows) else np.zeros(len(ranking.rows), dtype=np.bool_)
    )
    scores = np.full(len(rows), np.nan)
    scores[places[is_there]] = ranking.scores[is_there]
    return scores


def leg_weights(question: Question, turns: float) -> Mapping[str, float]:
    """The weights of the legs: as planned, or by the share of turns and of words foreign to the model."""
    planned = {leg: weight for leg, weight in (question.plan.weights or {}).items() if leg != GRAPH}
    if planned:
        return planned
    foreign = _foreign_share(question)
    weights = {
        leg: (1 - foreign) * ((1 - turns) * SINGLE_MEMORY_WEIGHTS[leg] + turns * CONVERSATION_WEIGHTS[leg])
        + foreign * FOREIGN_WORD_WEIGHTS[leg]
        for leg in SINGLE_MEMORY_WEIGHTS
    }
    if question.plan.rerank == OFF:
        del weights[LATE]
    total = sum(weights.values())
    return {leg: weight / total for leg, weight in weights.items()}


def _foreign_share(question: Question) -> float:
    """From 0, words that are whole tokens of the model, to 1, words that it splits into pieces or lacks."""
    text = question.query.text
    if question.encoding is None or not any(character.isalpha() for character in text):
        return 0.0
    if not text.isascii():
        letters = [character for character in text if character.isalpha()]
        if sum(character > "\u024f" for character in letters) * 2 > len(letters):
            return 1.0
    words = len(_WORD.findall(text))
    # Punctuation is a separate token without meaning.
    pieces = sum(_WORD.match(text, start) is not None for start in question.encoding.spans[:, 0].tolist())
    return min(max((pieces / words - _FLUENT) / (_FRAGMENTED - _FLUENT), 0.0), 1.0)
