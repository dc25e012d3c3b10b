"""Late interaction (MaxSim): every query token takes its best match in a candidate and in the turns around it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from triskele.index.corpus import Bools, Corpus, Floats, Ints
from triskele.index.token_vectors import best_cosines, distinct
from triskele.models.embedder import Encoding
from triskele.recall.legs import EncodedQuery
from triskele.text.analysis import Analyzer
from triskele.text.words import STOP_WORDS
from triskele.types import Ranking

LATE = "late"
# Neighbours in the same conversation, one before, one after, two before, two after: how much of their match counts.
_DECAY = np.array([0.9, 0.85, 0.75, 0.7], dtype=np.float32)
SESSION_SHARE = 0.4
# The share of a turn's own match, which sets it apart from its neighbours.
OWN_SHARE = 0.2
# A match of few tokens is weak evidence: below this many tokens it counts less.
FEW_TOKENS = 14
BREVITY_POWER = 0.1
_STOP_WORD_SHARE = 0.15
_RARITY_POWER = 0.7
_LONGEST_WORD = 50
_LETTERS = re.compile(r"\w*")
_RUNS = re.compile(r"\w+").finditer
_HAS_LETTER = re.compile(r"[^\W_]").search


@dataclass(frozen=True, slots=True, eq=False)
class LateScores:
    """Scores of late interaction by row, NaN for a row without token vectors; and the row's own best matches.

    `matches` has one number for each row and query token.
    """

    rows: Ints
    scores: Floats
    matches: Floats

    @property
    def ranking(self) -> Ranking:
        """The rows that have token vectors, best first."""
        kept = np.flatnonzero(~np.isnan(self.scores))
        order = kept[np.lexsort((self.rows[kept], -self.scores[kept]))]
        return Ranking(LATE, tuple(self.rows[order].tolist()), tuple(self.scores[order].tolist()), ceiling=1.0)


class Turns(NamedTuple):
    """The conversations of some rows, the turns next to each, and who speaks; as in `Facts`."""

    sessions: Ints
    neighbours: Ints
    speakers: Ints


def late(encoded: EncodedQuery, rows: Ints, corpus: Corpus, turns: Turns | None = None) -> LateScores:
    """Score candidates by the weighted mean, over the query's tokens, of their best match.

    The turns of the rows are read if they are not given.
    """
    if turns is None:
        facts = corpus.facts(rows, reach=encoded.reach)
        turns = Turns(facts.sessions, facts.neighbours, facts.speakers)
    is_next = turns.neighbours >= 0
    if is_next.any():
        own, best, counts = _with_turns(encoded, rows, turns.neighbours, is_next, corpus)
    else:
        own, counts = best_matches(encoded.encoding.tokens, rows, corpus)
        best = own
    # The matrix library may raise flags for numbers that it only pads with.
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        scores = ((1 - OWN_SHARE) * best + OWN_SHARE * own) @ encoded.token_weights
    scores *= np.minimum(counts / np.float32(FEW_TOKENS), 1) ** np.float32(BREVITY_POWER)
    if encoded.plan.context:
        scores = _with_session(scores, turns.sessions)
    scores[counts == 0] = np.nan
    return LateScores(rows, scores, own)


def _with_turns(
    encoded: EncodedQuery, rows: Ints, around: Ints, is_next: Bools, corpus: Corpus
) -> tuple[Floats, Floats, Ints]:
    """The matches of some rows, the best of these and of the turns around, and how many token vectors each row has."""
    everyone = distinct(np.concatenate([rows, around[is_next]]))
    matches, counts = best_matches(encoded.encoding.tokens, everyone, corpus)
    place = np.searchsorted(everyone, rows)
    own, best = matches[place], matches[place]
    for column, has in enumerate(is_next.T):
        other = matches[np.searchsorted(everyone, around[has, column])]
        best[has] = np.maximum(best[has], _DECAY[column] * other)
    return own, best, counts[place]


def best_matches(asked: Floats, rows: Ints, corpus: Corpus) -> tuple[Floats, Ints]:
    """Per candidate and query token the best cosine, and how many token vectors the candidate has."""
    vectors, counts = corpus.tokens(rows)
    is_known = counts > 0
    if len(rows) and is_known.all():
        return best_cosines(vectors, counts, asked), counts
    found = np.zeros((len(rows), len(asked)), dtype=np.float32)
    if len(vectors):
        found[is_known] = best_cosines(vectors, counts[is_known], asked)
    return found, counts


def token_weights(text: str, asked: Encoding, analyzer: Analyzer, rarity: Mapping[str, float]) -> Floats:
    """The weight of each query token: by the rarity of its word, less for stop words, 0 for punctuation."""
    words = _words(text, asked.spans)
    each = zip(words, analyzer.terms_of_each(words), strict=True)
    weights = np.array([_weight(word, terms, rarity) for word, terms in each], dtype=np.float32)
    total = float(weights.sum())
    if total <= 0:
        return np.full(len(weights), 1 / max(1, len(weights)), dtype=np.float32)
    return weights / total


def _weight(word: str, terms: Sequence[str], rarity: Mapping[str, float]) -> float:
    rarest = max((rarity.get(term, 0.0) for term in terms), default=0.0)
    return float(rarest**_RARITY_POWER) * (_STOP_WORD_SHARE if word.lower() in STOP_WORDS else 1.0)


def _words(text: str, spans: NDArray[np.int32]) -> list[str]:
    """The whole word that each token is part of; empty for punctuation."""
    runs = [found.span() for found in _RUNS(text)]
    words, at = [], 0
    for start, stop in spans.tolist():
        while at < len(runs) and runs[at][1] <= start:
            at += 1
        first, last = runs[at] if at < len(runs) else (len(text), 0)
        # Nearly every token is a piece of such a run.
        if first <= start < stop <= last <= first + _LONGEST_WORD and text[start:stop].isalnum():
            words.append(text[first:last])
        else:
            words.append(_word(text, start, stop))
    return words


def _word(text: str, start: int, stop: int) -> str:
    if not _HAS_LETTER(text, start, stop):
        return ""
    # Read backwards from the token: a search from the left would try every place.
    before = _run(text[max(0, start - _LONGEST_WORD) : start][::-1])[::-1]
    return before + text[start:stop] + _run(text[stop : stop + _LONGEST_WORD])


def _run(text: str) -> str:
    """The letters that a text begins with."""
    found = _LETTERS.match(text)
    return found.group() if found else ""


def _with_session(scores: Floats, sessions: Ints) -> Floats:
    """Move turns towards the best turn of their conversation, which shows what the conversation is about."""
    turns = np.flatnonzero(sessions >= 0)
    if not len(turns):
        return scores
    names, place = np.unique(sessions[turns], return_inverse=True)
    best = np.zeros(len(names), dtype=np.float32)
    np.maximum.at(best, place, scores[turns])
    moved = scores.copy()
    moved[turns] = (scores[turns] + SESSION_SHARE * best[place]) / (1 + SESSION_SHARE)
    return moved
