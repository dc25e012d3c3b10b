"""Links that follow from mentions: titles in both directions, shared concepts, and hubs that connect nothing."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from triskele.index.corpus import Bools, Ints, Mentions
from triskele.index.mentions import COMMON_FROM, Bipartite, Layers
from triskele.recall import graph
from triskele.recall.graph import Links, SeedNeighbours, concept_links, passed_on
from triskele.recall.question import MAX_OWNERS

MEMORIES = 100
Triple = tuple[int, int, bool]


class Corpus:
    """Mentions as (row, concept, is subject), settled and fresh, and in how many texts a concept's words stand."""

    def __init__(
        self,
        *triples: Triple,
        fresh: tuple[Triple, ...] = (),
        spread: dict[int, int] | None = None,
        size: int = MEMORIES,
        hidden: tuple[int, ...] = (),
    ) -> None:
        written = np.zeros(max(spread, default=-1) + 1 if spread else 0, dtype=np.int64)
        for concept, number in (spread or {}).items():
            written[concept] = number
        self._layers = Layers(_side(triples), _side(fresh), written)
        self.size = size
        self._hidden = hidden

    def facts(self, rows: Ints) -> SimpleNamespace:
        return SimpleNamespace(is_visible=~np.isin(rows, self._hidden))

    def mentions(self, rows: Ints, most: int | None = None) -> Mentions:
        return self._layers.mentions(rows, most)

    def holders(self, concepts: Ints, most: int | None = None) -> tuple[Ints, Ints, Bools]:
        return self._layers.holders(concepts, most)


def _side(triples: tuple[Triple, ...]) -> Bipartite:
    array = np.array(triples, dtype=np.int64).reshape(-1, 3)
    return Bipartite.build(array[:, 0], array[:, 1], array[:, 2] > 0)


def links(kind: str, rows: Sequence[int], *triples: Triple, **details: Any) -> dict[tuple[int, int], float]:
    """The links of some rows by title, or those by any shared concept."""
    corpus: Any = Corpus(*triples, **details)
    found = concept_links(corpus, np.array(rows, dtype=np.int64))[("titles", "shared").index(kind)]
    return by_pair(rows, found)


def by_pair(rows: Sequence[int], found: Links) -> dict[tuple[int, int], float]:
    return {
        (rows[place], other): round(weight, 4)
        for place, other, weight in zip(*(column.tolist() for column in found), strict=True)
    }


def test_a_title_connects_both_ways() -> None:
    triples = (1, 7, True), (2, 7, False), (3, 8, False)
    assert links("titles", [1], *triples) == {(1, 2): 1.0}
    assert links("titles", [2], *triples) == {(2, 1): 1.0}
    assert links("titles", [3], *triples) == {}
    assert links("titles", [1, 2], *triples) == {(1, 2): 1.0, (2, 1): 1.0}


def test_old_and_new_mentions_are_one_graph() -> None:
    fresh = ((2, 7, False), (1, 9, False), (4, 9, True))
    assert links("titles", [1], (1, 7, True), fresh=fresh) == {(1, 2): 1.0, (1, 4): 1.0}


def test_who_shares_a_subject_shares_its_weight() -> None:
    assert links("titles", [3], (1, 7, True), (2, 7, True), (3, 7, False)) == {(3, 1): 0.5, (3, 2): 0.5}


def test_a_subject_of_many_is_no_title() -> None:
    owners = tuple((row, 7, True) for row in range(MAX_OWNERS + 1))
    assert links("titles", [0], *owners) == {}
    assert len(links("titles", [1], *owners[1:])) == MAX_OWNERS - 1


@pytest.mark.parametrize(("spread", "connects"), [(COMMON_FROM, True), (COMMON_FROM + 1, False)])
def test_a_name_written_alike_in_many_texts_is_no_title(spread: int, connects: bool) -> None:
    assert bool(links("titles", [1], (1, 7, True), (2, 7, False), spread={7: spread})) is connects


def test_what_few_share_connects_more() -> None:
    triples = (1, 7, False), (2, 7, False), (1, 8, False), (2, 8, False), (3, 8, False)
    assert links("shared", [1], *triples) == {(1, 2): 1.5, (1, 3): 0.5}


def test_what_very_many_share_connects_nothing() -> None:
    crowd = tuple((row, 7, False) for row in range(COMMON_FROM + 1))
    assert links("shared", [0], *crowd) == {}
    assert links("shared", [0], *crowd, size=100 * MEMORIES) != {}


def test_equal_sums_are_equal_whatever_the_order_of_their_terms() -> None:
    terms = (1 / np.arange(1, 41)).astype(np.float32)
    chance = np.random.default_rng(7)
    others, weights = np.repeat(np.arange(30), 40), np.concatenate([chance.permutation(terms) for _ in range(30)])
    _, ends, sums = graph._summed(np.zeros(len(others), np.int64), others, weights, np.add)
    assert ends.tolist() == list(range(30))
    assert len(set(sums.tolist())) == 1


def test_the_links_of_a_seed_are_those_by_title_and_those_by_any_concept_together() -> None:
    corpus: Any = Corpus((1, 7, True), (2, 7, False), (1, 8, False), (3, 8, False))
    neighbours = SeedNeighbours.of(np.array([1]), corpus)
    assert by_pair([1], neighbours.by_title) == {(1, 2): 1.0}
    assert by_pair([1], neighbours.links) == {(1, 2): 2.0, (1, 3): 1.0}


def test_a_row_outside_the_scope_takes_no_part_of_what_a_seed_passes_on() -> None:
    triples = (1, 7, True), (2, 7, False), (3, 7, False)
    for hidden, expected in (((), [0.5, 0.5]), ((3,), [1.0])):
        corpus: Any = Corpus(*triples, hidden=hidden)
        _, mass = passed_on(SeedNeighbours.of(np.array([1]), corpus).by_title, np.ones(1, dtype=np.float32))
        assert mass.tolist() == expected


def test_a_row_that_mentions_nothing_has_no_links() -> None:
    assert links("titles", [5]) == links("shared", [5]) == {}


def test_a_seed_passes_on_its_mass_by_weight() -> None:
    found = (np.array([0, 0, 1]), np.array([4, 9, 4]), np.array([3, 1, 2], dtype=np.float32))
    rows, mass = passed_on(found, np.array([0.5, 0.25], dtype=np.float32))
    assert (rows.tolist(), mass.tolist()) == ([4, 9], [0.625, 0.125])


def test_nothing_is_passed_on_without_links() -> None:
    nothing = np.empty(0, dtype=np.int64)
    rows, mass = passed_on((nothing, nothing, np.empty(0, dtype=np.float32)), np.ones(2, dtype=np.float32))
    assert (len(rows), len(mass)) == (0, 0)
