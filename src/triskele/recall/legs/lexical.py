"""The lexical leg: memories that share the question's words."""

from __future__ import annotations

from collections.abc import Sequence

from triskele.index.lexical import LexicalIndex
from triskele.types import Query, Ranking, Sort

NAME = "lexical"
_RELEVANCE_SHARE = 0.4


def rank(query: Query, index: LexicalIndex) -> Ranking:
    """The candidates that hold any telling word of the question, in the order asked for."""
    terms = index.analyzer.query_terms(query.text)
    if query.sort is Sort.IMPORTANCE:
        return _blended(terms, query, index)
    found = index.search(terms, query.scope, limit=query.depth, sort=query.sort)
    ceiling = sum(index.rarity(terms).values())
    return Ranking(NAME, tuple(hit.row for hit in found), tuple(hit.score for hit in found), ceiling=ceiling)


def _blended(terms: Sequence[str], query: Query, index: LexicalIndex) -> Ranking:
    """0.4 relevance and 0.6 importance, over the best of either."""
    hits = {
        hit.row: hit
        for sort in (Sort.RELEVANCE, Sort.IMPORTANCE)
        for hit in index.search(terms, query.scope, limit=query.depth, sort=sort)
    }
    best = max((hit.score for hit in hits.values()), default=1.0)
    blend = {
        row: _RELEVANCE_SHARE * hit.score / best + (1 - _RELEVANCE_SHARE) * hit.importance for row, hit in hits.items()
    }
    ordered = sorted(blend, key=lambda row: (-blend[row], row))[: query.depth]
    return Ranking(NAME, tuple(ordered), tuple(blend[row] for row in ordered))
