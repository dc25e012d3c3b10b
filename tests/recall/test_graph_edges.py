"""Edges that follow from mentions: titles in both directions, shared concepts, and hubs that connect nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from triskele.index.corpus import Bools, Ints, Mentions
from triskele.index.mentions import COMMON_FROM, Bipartite, Layers
from triskele.recall import graph
from triskele.recall.graph import MAX_OWNERS, Around, ConceptGraph

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
    ) -> None:
        written = np.zeros(max(spread, default=-1) + 1 if spread else 0, dtype=np.int64)
        for concept, number in (spread or {}).items():
            written[concept] = number
        self._layers = Layers(_side(triples), _side(fresh), written)
        self.size = size
        self.asked: list[list[int]] = []

    def mentions(self, rows: Ints, most: int | None = None) -> Mentions:
        self.asked.append(rows.tolist())
        return self._layers.mentions(rows, most)

    def holders(self, concepts: Ints, most: int | None = None) -> tuple[Ints, Ints, Bools]:
        return self._layers.holders(concepts, most)


def concept_graph(*triples: Triple, **details: Any) -> ConceptGraph:
    corpus: Any = Corpus(*triples, **details)
    return ConceptGraph(corpus)


def _side(triples: tuple[Triple, ...]) -> Bipartite:
    array = np.array(triples, dtype=np.int64).reshape(-1, 3)
    return Bipartite.build(array[:, 0], array[:, 1], array[:, 2] > 0)


def around(edges: Around, *rows: int) -> dict[tuple[int, int], float]:
    places, others, weights = edges(np.array(rows, dtype=np.int64))
    return {
        (rows[place], other): round(weight, 4)
        for place, other, weight in zip(places.tolist(), others.tolist(), weights.tolist(), strict=True)
    }


def test_a_title_connects_both_ways() -> None:
    edges = concept_graph((1, 7, True), (2, 7, False), (3, 8, False)).titles
    assert around(edges, 1) == {(1, 2): 1.0}
    assert around(edges, 2) == {(2, 1): 1.0}
    assert around(edges, 3) == {}
    assert around(edges, 1, 2) == {(1, 2): 1.0, (2, 1): 1.0}


def test_old_and_new_mentions_are_one_graph() -> None:
    edges = concept_graph((1, 7, True), fresh=((2, 7, False), (1, 9, False), (4, 9, True))).titles
    assert around(edges, 1) == {(1, 2): 1.0, (1, 4): 1.0}


def test_who_shares_a_subject_shares_its_weight() -> None:
    edges = concept_graph((1, 7, True), (2, 7, True), (3, 7, False)).titles
    assert around(edges, 3) == {(3, 1): 0.5, (3, 2): 0.5}


def test_a_subject_of_many_is_no_title() -> None:
    owners = tuple((row, 7, True) for row in range(MAX_OWNERS + 1))
    assert around(concept_graph(*owners).titles, 0) == {}
    assert len(around(concept_graph(*owners[1:]).titles, 1)) == MAX_OWNERS - 1


@pytest.mark.parametrize(("spread", "connects"), [(COMMON_FROM, True), (COMMON_FROM + 1, False)])
def test_a_name_written_alike_in_many_texts_is_no_title(spread: int, connects: bool) -> None:
    edges = concept_graph((1, 7, True), (2, 7, False), spread={7: spread}).titles
    assert bool(around(edges, 1)) is connects


def test_what_few_share_connects_more() -> None:
    edges = concept_graph((1, 7, False), (2, 7, False), (1, 8, False), (2, 8, False), (3, 8, False)).shared
    assert around(edges, 1) == {(1, 2): 1.5, (1, 3): 0.5}


def test_what_very_many_share_connects_nothing() -> None:
    crowd = tuple((row, 7, False) for row in range(COMMON_FROM + 1))
    assert around(concept_graph(*crowd).shared, 0) == {}
    assert around(concept_graph(*crowd, size=100 * MEMORIES).shared, 0) != {}


def test_a_memory_keeps_its_heaviest_shared_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "_BEST_SHARED", 2)
    mentions = [(1, concept, False) for concept in range(4)] + [
        (10 + n, concept, False) for concept in range(4) for n in range(concept + 1)
    ]
    kept = around(concept_graph(*mentions).shared, 1)
    assert len(kept) == 2
    assert max(kept, key=lambda pair: kept[pair]) == (1, 10)


def test_equal_sums_are_equal_whatever_the_order_of_their_terms() -> None:
    terms = (1 / np.arange(1, 41)).astype(np.float32)
    chance = np.random.default_rng(7)
    others, weights = np.repeat(np.arange(30), 40), np.concatenate([chance.permutation(terms) for _ in range(30)])
    _, found, sums = graph._summed(np.zeros(len(others), np.int64), others, weights, np.add)
    assert found.tolist() == list(range(30))
    assert len(set(sums.tolist())) == 1


def test_mixed_edges_add_a_part_of_the_shared_ones_to_titles() -> None:
    edges = concept_graph((1, 7, True), (2, 7, False), (1, 8, False), (3, 8, False)).mixed
    assert around(edges, 1) == {(1, 2): 1.3, (1, 3): 0.3}


def test_the_edges_of_a_node_are_computed_once() -> None:
    mentions = ((1, 7, False), (2, 7, False), (1, 8, False), (3, 8, False), (5, 9, False))
    corpus: Any = Corpus(*mentions)
    edges = ConceptGraph(corpus).shared
    for rows in ((1, 2), (3, 5, 1), (2, 2, 5), ()):
        assert around(edges, *rows) == around(concept_graph(*mentions).shared, *rows)
    assert corpus.asked == [[1, 2], [3, 5]]


def test_a_row_that_mentions_nothing_has_no_edges() -> None:
    assert around(concept_graph().titles, 5) == {}
    assert around(concept_graph().mixed, 5) == {}
