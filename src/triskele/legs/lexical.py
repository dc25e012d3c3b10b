"""The lexical leg: memories that share the question's words."""

from __future__ import annotations

from collections.abc import Sequence

from triskele.index.analysis import Analyzer
from triskele.index.lexical import LexicalIndex
from triskele.types import Memory, Query, Ranking, Sort, Term

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


def matched_terms(query_text: str, memory: Memory, analyzer: Analyzer) -> tuple[Term, ...]:
    """Where the question's words stand in a memory, once each; labels have no place in the text."""
    wanted = set(analyzer.query_terms(query_text))
    found: dict[str, Term] = {}
    for token in analyzer.tokens(memory.content):
        if token.text in wanted and token.text not in found:
            found[token.text] = Term(memory.content[token.start : token.end], token.start, token.end)
    for token in analyzer.tokens(" ".join((memory.keywords, *memory.tags, memory.category))):
        if token.text in wanted and token.text not in found:
            found[token.text] = Term(token.text, -1, -1)
    return tuple(found.values())
