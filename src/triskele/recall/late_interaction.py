"""Late interaction: every word of the question looks for its best match in a candidate and in what surrounds it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from triskele.index.analysis import STOP_WORDS, Analyzer
from triskele.index.catalog import Columns, Ints
from triskele.index.tokens import SCALE, TokenIndex
from triskele.models.embed.protocol import Encoding
from triskele.types import Ranking

NAME = "late"
# Neighbours in the same conversation, nearest first, and how much of their match counts.
NEIGHBOURS = (-1, 1, -2, 2)
_DECAY = np.array([0.9, 0.85, 0.75, 0.7], dtype=np.float32)
SESSION_SHARE = 0.4
# What a turn says itself tells it from its neighbours.
OWN_SHARE = 0.2
_STOP_WORD_SHARE = 0.3
_RARITY_POWER = 0.7
_LONGEST_WORD = 50
_LETTERS = re.compile(r"\w*")
_BLOCK = 1024

Floats = NDArray[np.float32]


def late(
    asked: Encoding,
    weights: Floats,
    rows: Ints,
    columns: Columns,
    tokens: TokenIndex,
    *,
    with_context: bool = True,
) -> tuple[Ranking, Floats]:
    """Rank candidates by the weighted mean, over the question's tokens, of their best match; with the matches."""
    at = columns.find(rows)
    around = columns.neighbours(at, NEIGHBOURS) if with_context else np.full((len(at), 0), -1, dtype=np.int64)
    if not (around >= 0).any():
        around = around[:, :0]
    everyone = np.unique(np.concatenate([at, around[around >= 0]]))
    matches, is_known = best_matches(asked.tokens, columns.slots[everyone], tokens)
    own = np.searchsorted(everyone, at)
    best = matches[own]
    for column in range(around.shape[1]):
        has = around[:, column] >= 0
        other = matches[np.searchsorted(everyone, around[has, column])]
        best[has] = np.maximum(best[has], _DECAY[column] * other)
    scores = ((1 - OWN_SHARE) * best + OWN_SHARE * matches[own]) @ weights
    if with_context:
        scores = _with_session(scores, columns.sessions[at])
    kept = is_known[own]
    order = np.lexsort((rows[kept], -scores[kept]))
    ranked = tuple(rows[kept][order].tolist()), tuple(scores[kept][order].tolist())
    return Ranking(NAME, *ranked, ceiling=1.0), matches[own]


def best_matches(asked: Floats, slots: Ints, tokens: TokenIndex) -> tuple[Floats, NDArray[np.bool_]]:
    """Per candidate and question token the best dot product, and whether the candidate has token vectors."""
    vectors, counts = tokens.gather(slots)
    is_known = counts > 0
    found = np.zeros((len(slots), len(asked)), dtype=np.float32)
    if len(vectors):
        found[is_known] = _best_of_each(vectors, counts[is_known], np.ascontiguousarray((asked / SCALE).T))
    return found, is_known


def _best_of_each(vectors: NDArray[np.int8], counts: Ints, asked: Floats) -> Floats:
    """The best products of each candidate, in blocks of candidates that stay in the processor's cache."""
    ends = np.cumsum(counts)
    starts = ends - counts
    borders = np.unique(np.append(np.searchsorted(starts, np.arange(0, ends[-1], _BLOCK)), len(counts)))
    best = np.empty((len(counts), asked.shape[1]), dtype=np.float32)
    for first, last in pairwise(borders.tolist()):
        products = vectors[starts[first] : ends[last - 1]].astype(np.float32) @ asked
        np.maximum.reduceat(products, starts[first:last] - starts[first], axis=0, out=best[first:last])
    return best


def token_weights(text: str, asked: Encoding, analyzer: Analyzer, rarity: Mapping[str, float]) -> Floats:
    """How much each token of the question counts: by the rarity of its word, stop words little, punctuation not."""
    weights = np.array([_weight(word, analyzer, rarity) for word in _words(text, asked.spans)], dtype=np.float32)
    total = float(weights.sum())
    if total <= 0:
        return np.full(len(weights), 1 / max(1, len(weights)), dtype=np.float32)
    return weights / total


def _weight(word: str, analyzer: Analyzer, rarity: Mapping[str, float]) -> float:
    terms = analyzer.terms(word)
    rarest = max((rarity.get(term, 0.0) for term in terms), default=0.0)
    return float(rarest**_RARITY_POWER) * (_STOP_WORD_SHARE if word.lower() in STOP_WORDS else 1.0)


def _words(text: str, spans: NDArray[np.int32]) -> list[str]:
    """The whole word that each token is part of; empty for punctuation."""
    words = []
    for start, stop in spans.tolist():
        if not any(character.isalnum() for character in text[start:stop]):
            words.append("")
            continue
        # Read backwards from the token: a search from the left would try every place.
        before = _run(text[max(0, start - _LONGEST_WORD) : start][::-1])[::-1]
        words.append(before + text[start:stop] + _run(text[stop : stop + _LONGEST_WORD]))
    return words


def _run(text: str) -> str:
    """The letters that a text begins with."""
    found = _LETTERS.match(text)
    return found.group() if found else ""


def _with_session(scores: Floats, sessions: Ints) -> Floats:
    """Turns move towards the best turn of their conversation: where one thing fits, the talk was about it."""
    talking = np.flatnonzero(sessions >= 0)
    if not len(talking):
        return scores
    names, place = np.unique(sessions[talking], return_inverse=True)
    best = np.zeros(len(names), dtype=np.float32)
    np.maximum.at(best, place, scores[talking])
    moved = scores.copy()
    moved[talking] = (scores[talking] + SESSION_SHARE * best[place]) / (1 + SESSION_SHARE)
    return moved
