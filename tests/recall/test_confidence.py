"""Confidence: more share, more lead and a longer query raise it; an exact rare identifier is certain."""

from __future__ import annotations

import pytest

from triskele.recall import confidence
from triskele.recall.fusion import Candidate, Contribution
from triskele.recall.legs import QueryTerms
from triskele.types import LEAST_CONFIDENCE


def candidate(row: int, late: float, graph: float = 0.0) -> Candidate:
    parts = {"dense": Contribution(1, 0.0, 0.0, 0.0), "late": Contribution(1, late, late, late)}
    return Candidate(row, late + graph, parts | {"graph": Contribution(1, graph, graph, graph)})


def query(*terms: str, rarity: float = 6.0) -> QueryTerms:
    return QueryTerms("", terms, dict.fromkeys(terms, rarity))


def likely(best: float, *others: float, graph: float = 0.0, terms: int = 3) -> float:
    ranked = [candidate(1, best, graph), *(candidate(row, late) for row, late in enumerate(others, start=2))]
    return confidence.likelihood(confidence.signs(ranked, query(*map(str, range(terms)))))


def test_share_lead_and_length_raise_it() -> None:
    assert likely(0.8, 0.3) > likely(0.6, 0.3) > likely(0.6, 0.5)
    assert likely(0.6, 0.5, terms=6) > likely(0.6, 0.5, terms=2)
    assert 0 < likely(0.1, 0.1) < LEAST_CONFIDENCE < likely(0.9, 0.4, terms=6) < 1


def test_connections_do_not_count() -> None:
    assert likely(0.6, 0.5, graph=2.0) == pytest.approx(likely(0.6, 0.5))


@pytest.mark.parametrize(
    ("terms", "covered", "is_exact"),
    [
        (("mb", "1412", "mb-1412"), {"mb", "1412", "mb-1412"}, True),
        (("mb", "1412", "mb-1412"), {"mb", "1399", "mb-1399"}, False),
        (("decoder_workers",), {"decoder_workers"}, True),
        (("src/frame.rs", "pars", "error", "trace", "line"), {"src/frame.rs"}, False),
        (("harbour", "master"), {"harbour", "master"}, False),
    ],
)
def test_an_exact_rare_identifier_is_certain(terms: tuple[str, ...], covered: set[str], is_exact: bool) -> None:
    assert confidence.names_exactly(query(*terms), frozenset(covered), 1000) is is_exact


def test_a_common_identifier_is_not() -> None:
    assert not confidence.names_exactly(query("mb-1412", rarity=1.0), frozenset({"mb-1412"}), 1000)
