"""Confidence: how likely the best hit answers, by a logistic model of a few signs.

The weights are fitted by `benchmarks/confidence.py` (docs/decisions/0009); no sign is learned from a store.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from triskele.index.corpus import Floats
from triskele.recall.candidates import CandidateSet
from triskele.recall.evidence import REVIEW, SPEAKER, TIME
from triskele.recall.fusion import Candidate, unranked
from triskele.recall.graph_leg import GRAPH
from triskele.recall.late_interaction import LATE
from triskele.recall.legs import DENSE, LEXICAL, QueryTerms
from triskele.text.words import STOP_WORDS

# How many candidates the best one is compared with.
COMPARED = 4
CERTAIN = 0.97
# If the best hit is about another ticket, code or variable than the one asked for.
UNLIKELY = 0.03
# A few bare words are a search: a memory that holds them all is what was searched for.
SEARCHED = 0.5
_BARE_WORDS = 3
_BIAS = -2.2
_WEIGHTS: Mapping[str, float] = {
    "cosine": 4.59,
    "words": 0.38,
    "margin": 8.36,
    "spread": -33.72,
    "unknown": -4.21,
    "elsewhere": -3.97,
}
# A query counts as if it had so many more terms, with so much deviation between them: one or two terms prove little.
_MORE_TERMS, _MORE_DEVIATION = 5, 0.5
# The cosine of a memory without vectors: what those with such words have on average.
_COSINE, _COSINE_BY_WORDS = 0.25, 0.3
# Only the text of a memory counts, not its connections, its speaker or the turns around it.
_NOT_OWN = frozenset({GRAPH, SPEAKER, TIME, REVIEW})
_IDENTIFIER = re.compile(r"(?=.*[\d_])(?=.*[^\d.,]).{4,}|\w+[/:]\S+")
_RARE = 3
_WORD = re.compile(r"\w+")


def signs(found: CandidateSet, query: QueryTerms) -> dict[str, float]:
    """The signs for and against the best candidate.

    Tokens of which some match well and others hardly indicate a memory about the same thing that does not answer, the
    more so the fewer terms the query has. So does a nearer memory in another project.
    """
    best, *others = unranked(found.fused[: COMPARED + 1])
    if found.said is not None and best.row not in found.said.rows:
        found = replace(found, said=None)
    shares = [_share(found, each) for each in others]
    words = best.parts[LEXICAL].normalised if LEXICAL in best.parts else 0.0
    return {
        "cosine": best.parts[DENSE].raw if DENSE in best.parts else _COSINE + _COSINE_BY_WORDS * min(words, 1.0),
        "words": words,
        "margin": _share(found, best) - (sum(shares) / len(shares) if shares else 0.0),
        "spread": (_deviation(found, best.row) + _MORE_DEVIATION) / (len(query.terms) + _MORE_TERMS),
        "unknown": float(bool(query.unknown)),
        "elsewhere": found.elsewhere,
    }


def likelihood(given: Mapping[str, float]) -> float:
    """The signs as a probability."""
    return 1 / (1 + math.exp(-(_BIAS + sum(_WEIGHTS[name] * value for name, value in given.items()))))


def identifiers(query: QueryTerms) -> list[str]:
    """The terms of a query that name one thing exactly."""
    return [term for term in query.terms if _IDENTIFIER.fullmatch(term)]


def names_exactly(query: QueryTerms, covered: frozenset[str], memories: int) -> bool:
    """Whether a memory contains the identifiers of a query, a rare one among them, and half of its terms by rarity."""
    named = identifiers(query)
    if not named or not covered.issuperset(named) or query.ceiling <= 0:
        return False
    is_rare = any(query.rarity[term] >= _rarity(_RARE, memories) for term in named)
    return is_rare and 2 * sum(query.rarity[term] for term in query.terms if term in covered) >= query.ceiling


def is_held(query: QueryTerms, term: str, memories: int) -> bool:
    """Whether any memory contains a term of a query."""
    return query.rarity.get(term, 0.0) <= _rarity(1, memories)


def _rarity(count: int, memories: int) -> float:
    """The inverse document frequency of a term that so many memories contain."""
    return math.log(1 + (memories - count + 0.5) / (count + 0.5)) if memories > count else 0.0


def is_search(text: str) -> bool:
    """Whether a query is a few words, none of them a stop word."""
    words = _WORD.findall(text.lower())
    return 0 < len(words) <= _BARE_WORDS and STOP_WORDS.isdisjoint(words) and "?" not in text


def has_signs(found: CandidateSet, best: Candidate) -> bool:
    """Whether the legs scored it by shares of what was possible, or others like it."""
    return DENSE in best.parts or found.token_weights is not None


def _deviation(found: CandidateSet, row: int) -> float:
    """The deviation of a candidate's own matches over the query's tokens; 0 if it was not scored by them."""
    matches, weights = _matches(found, row), found.token_weights
    if matches is None or weights is None:
        return 0.0
    return math.sqrt(float(weights @ (matches - weights @ matches) ** 2))


def _matches(found: CandidateSet, row: int) -> Floats | None:
    """A candidate's own matches of the query's tokens; None if it was not scored by them.

    In the words of a speaker whom the query names, the name and “say” match as well as the rest does at least: the
    text need not hold them.
    """
    late = found.late
    if late is None or not (is_row := late.rows == row).any():
        return None
    matches: Floats = late.matches[is_row.argmax()]
    if found.said is None or found.token_weights is None or row not in found.said.rows:
        return matches
    rest = found.said.token_weights
    return matches if found.token_weights @ matches >= rest @ matches else np.where(rest > 0, matches, rest @ matches)


def _share(found: CandidateSet, candidate: Candidate) -> float:
    """What the legs give to a candidate for its own text.

    Turns lend their matches to those around them and to their whole conversation: by its score the best turn would
    never lead the others.
    """
    given = sum(part.contribution for leg, part in candidate.parts.items() if leg not in _NOT_OWN)
    late, weights, matches = candidate.parts.get(LATE), found.token_weights, _matches(found, candidate.row)
    if late is None or late.normalised <= 0 or weights is None or matches is None:
        return float(given)
    return float(given) + late.contribution * (float(weights @ matches) / late.normalised - 1)
