"""Confidence: how likely the best hit answers, by a logistic model of a few signs.

The weights are fitted by `benchmarks/confidence.py` (docs/decisions/0034); no sign is learned from a store.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from triskele.recall.evidence import REVIEW, SPEAKER, TIME
from triskele.recall.fusion import Candidate, expanded
from triskele.recall.graph_leg import GRAPH
from triskele.recall.legs import DENSE, QueryTerms

# How many candidates the best one is compared with.
COMPARED = 4
CERTAIN = 0.97
_BIAS = -8.3
_WEIGHTS: Mapping[str, float] = {"share": 6.18, "margin": 9.81, "length": 1.22}
# What a memory says by itself counts, not what it is connected with or who said it.
_NOT_OWN = frozenset({GRAPH, SPEAKER, TIME, REVIEW})
_IDENTIFIER = re.compile(r"(?=.*[\d_])(?=.*[^\d.,]).{4,}|\w+[/:]\S+")
_RARE = 3


def signs(ranked: Sequence[Candidate], query: QueryTerms) -> dict[str, float]:
    """What speaks for the best candidate: its own share, its lead over the next, and how much the query says."""
    best, *others = expanded(ranked[: COMPARED + 1])
    shares = [_share(each) for each in others]
    return {
        "share": _share(best),
        "margin": _share(best) - (sum(shares) / len(shares) if shares else 0.0),
        "length": math.log1p(len(query.terms)),
    }


def likelihood(given: Mapping[str, float]) -> float:
    """The signs as a probability."""
    return 1 / (1 + math.exp(-(_BIAS + sum(_WEIGHTS[name] * value for name, value in given.items()))))


def names_exactly(query: QueryTerms, covered: frozenset[str], memories: int) -> bool:
    """Whether a memory holds the identifiers of a query, a rare one among them, and at least half of what it asks."""
    identifiers = [term for term in query.terms if _IDENTIFIER.fullmatch(term)]
    if not identifiers or not covered.issuperset(identifiers) or query.ceiling <= 0:
        return False
    rare = math.log(1 + (memories - _RARE + 0.5) / (_RARE + 0.5)) if memories > _RARE else 0.0
    is_rare = any(query.rarity[term] >= rare for term in identifiers)
    return is_rare and 2 * sum(query.rarity[term] for term in query.terms if term in covered) >= query.ceiling


def has_signs(best: Candidate) -> bool:
    """Whether the legs scored it by shares of what was possible."""
    return DENSE in best.parts


def _share(candidate: Candidate) -> float:
    return sum(part.contribution for leg, part in candidate.parts.items() if leg not in _NOT_OWN)
