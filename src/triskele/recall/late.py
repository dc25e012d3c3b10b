"""Step 5, late interaction (MaxSim): every token takes its best match in a candidate and in the turns around it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from triskele.index.corpus import Bools, Corpus, Facts, Floats, Ints
from triskele.index.token_vectors import best_cosines, distinct
from triskele.recall import evidence
from triskele.recall.plan import OFF
from triskele.recall.question import Question
from triskele.recall.scores import DENSE, LATE, LEXICAL, SPEAKER, Column, Doubles, Ranking, Scores, step

# Neighbours in the same conversation, one before, one after, two before, two after: how much of their match counts.
_DECAY = np.array([0.9, 0.85, 0.75, 0.7], dtype=np.float32)
SESSION_SHARE = 0.4
# The share of a turn's own match, which sets it apart from its neighbours.
OWN_SHARE = 0.2
# A request matches the words of rules too; together they count this share.
RULE_SHARE = 0.4
# A match of few tokens is weak evidence: below this many tokens it counts less.
FEW_TOKENS, BREVITY_POWER = 14, 0.1


class LateScores(NamedTuple):
    """Scores of rows, NaN for a row without token vectors, and the best match of each row and query token."""

    scores: Floats
    matches: Floats

    def ranking(self, rows: Ints) -> Ranking:
        """The rows that have token vectors, best first."""
        scored = np.flatnonzero(~np.isnan(self.scores))
        order = scored[np.lexsort((rows[scored], -self.scores[scored]))]
        return Ranking(LATE, rows[order], self.scores[order].astype(np.float64))


@step
def late(question: Question, corpus: Corpus, scores: Scores) -> Scores:
    """Step 5: score the pool token by token, in a conversation without the names of its speakers."""
    if question.plan.rerank == OFF or scores.facts is None:
        return scores
    weights = _without_names(question, corpus, scores)
    interaction = interact(question, weights, scores.rows, corpus, scores.facts)
    cosines = scores.columns[1].raw
    column = Column(LATE, _completed(interaction.scores.astype(np.float64), cosines), scores.weights.get(LATE, 0.0))
    columns = (*scores.columns, column)
    return replace(scores, columns=columns, matches=interaction.matches, late_weights=weights)


def _without_names(question: Question, corpus: Corpus, scores: Scores) -> Floats:
    """The token weights for late interaction: in conversations the names of those who speak weigh nothing."""
    share = scores.in_conversation
    speakers = scores.facts.speakers if scores.facts is not None else np.empty(0, dtype=np.int64)
    if SPEAKER not in question.plan.evidence or not share or speakers.max(initial=-1) < 0:
        return question.token_weights
    spans = evidence.name_spans(question.query.text, corpus.speakers(distinct(speakers).tolist()))
    return question.reweighted(spans, 1 - share) if spans else question.token_weights


def with_rows(question: Question, corpus: Corpus, scores: Scores, rows: Collection[int]) -> Scores:
    """More rows, scored by the dense leg and by late interaction."""
    fresh_rows = set(rows).difference(scores.rows.tolist()) if rows else ()
    if not fresh_rows or scores.late_weights is None:
        return scores
    more = np.array(sorted(fresh_rows), dtype=np.int64)
    interaction = interact(question, scores.late_weights, more, corpus)
    unscored, nearness = np.full(len(more), np.nan), scores.rankings[1].nearness
    fresh = {LEXICAL: unscored, DENSE: unscored if nearness is None else nearness(more), LATE: interaction.scores}
    order = np.argsort(everyone := np.concatenate([scores.rows, more]))
    raw = {column.name: np.concatenate([column.raw, fresh[column.name]])[order] for column in scores.columns}
    raw[LATE] = _completed(raw[LATE], raw[DENSE])
    return replace(
        scores,
        rows=everyone[order],
        columns=tuple(replace(column, raw=raw[column.name]) for column in scores.columns),
        matches=np.concatenate([scores.matches, interaction.matches])[order],
    )


def _completed(late: Doubles, cosines: Doubles) -> Doubles:
    """The scores of late interaction; for a memory whose token vectors are lost, those that its cosine predicts.

    Otherwise those that have theirs again would stand above all others (after a restore, until all are encoded).
    """
    is_lost = np.isnan(late) & ~np.isnan(cosines)
    if not is_lost.any():
        return late
    difference = (late - cosines)[~np.isnan(late) & ~np.isnan(cosines)]
    late[is_lost] = cosines[is_lost] + (float(np.median(difference)) if len(difference) else 0.0)
    return late


def interact(question: Question, weights: Floats, rows: Ints, corpus: Corpus, facts: Facts | None = None) -> LateScores:
    """Score rows by the weighted mean, over the tokens, of their best match; facts that are not passed are read."""
    assert question.encoding is not None
    tokens, rules = question.encoding.tokens, question.rule_tokens
    if len(rules):
        tokens = np.concatenate([tokens, rules])
        weights = np.concatenate([(1 - RULE_SHARE) * weights, np.full(len(rules), RULE_SHARE / len(rules), np.float32)])
    if facts is None:
        facts = corpus.facts(rows, reach=question.reach)
    is_next = facts.neighbours >= 0
    if is_next.any():
        own, best, counts = _with_turns(tokens, rows, facts.neighbours, is_next, corpus)
    else:
        own, counts = best_matches(tokens, rows, corpus)
        best = own
    # The matrix library may raise flags for numbers that it only pads with.
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        scores = ((1 - OWN_SHARE) * best + OWN_SHARE * own) @ weights
    scores *= np.minimum(counts / np.float32(FEW_TOKENS), 1) ** np.float32(BREVITY_POWER)
    if question.reach:
        scores = _with_session(scores, facts.sessions)
    scores[counts == 0] = np.nan
    return LateScores(scores, own[:, : len(question.token_weights)])


def _with_turns(
    tokens: Floats, rows: Ints, neighbours: Ints, is_next: Bools, corpus: Corpus
) -> tuple[Floats, Floats, Ints]:
    """The matches of some rows, the best of these and of the turns around, and how many token vectors each row has."""
    everyone = distinct(np.concatenate([rows, neighbours[is_next]]))
    matches, counts = best_matches(tokens, everyone, corpus)
    places = np.searchsorted(everyone, rows)
    own, best = matches[places], matches[places]
    for column, has in enumerate(is_next.T):
        other = matches[np.searchsorted(everyone, neighbours[has, column])]
        best[has] = np.maximum(best[has], _DECAY[column] * other)
    return own, best, counts[places]


def best_matches(tokens: Floats, rows: Ints, corpus: Corpus) -> tuple[Floats, Ints]:
    """Per row and query token the best cosine, and how many token vectors the row has."""
    vectors, counts = corpus.tokens(rows)
    has_tokens = counts > 0
    if len(rows) and has_tokens.all():
        return best_cosines(vectors, counts, tokens), counts
    matches = np.zeros((len(rows), len(tokens)), dtype=np.float32)
    if len(vectors):
        matches[has_tokens] = best_cosines(vectors, counts[has_tokens], tokens)
    return matches, counts


def _with_session(scores: Floats, sessions: Ints) -> Floats:
    """Move turns towards the best turn of their conversation, which shows what the conversation is about."""
    turns = np.flatnonzero(sessions >= 0)
    if not len(turns):
        return scores
    names, places = np.unique(sessions[turns], return_inverse=True)
    best = np.zeros(len(names), dtype=np.float32)
    np.maximum.at(best, places, scores[turns])
    moved = scores.copy()
    moved[turns] = (scores[turns] + SESSION_SHARE * best[places]) / (1 + SESSION_SHARE)
    return moved
