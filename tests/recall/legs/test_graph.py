"""Edges that follow from mentions: titles in both directions, what is shared, and hubs that connect nobody."""

from __future__ import annotations

import numpy as np
import pytest

from triskele.graph.bipartite import Bipartite
from triskele.graph.walk import Edged, Edges, Ints
from triskele.index.mentions import COMMON_FROM, Layers
from triskele.recall.legs import graph
from triskele.recall.legs.graph import MAX_OWNERS, Both, Explored, Shared, Titles

MEMORIES = 100
Triple = tuple[int, int, bool]


def layers(*triples: Triple, fresh: tuple[Triple, ...] = (), spread: dict[int, int] | None = None) -> Layers:
    """Mentions as (row, concept, is subject), settled and fresh, and in how many texts a concept's words stand."""
    written = np.zeros(max(spread, default=-1) + 1 if spread else 0, dtype=np.int64)
    for concept, number in (spread or {}).items():
        written[concept] = number
    return Layers(_side(triples), _side(fresh), written)


def _side(triples: tuple[Triple, ...]) -> Bipartite:
    array = np.array(triples, dtype=np.int64).reshape(-1, 3)
    return Bipartite.build(array[:, 0], array[:, 1], array[:, 2] > 0)


def around(edges: Edged, *rows: int) -> dict[tuple[int, int], float]:
    places, others, weights = edges.around(np.array(rows, dtype=np.int64))
    return {
        (rows[place], other): round(weight, 4)
        for place, other, weight in zip(places.tolist(), others.tolist(), weights.tolist(), strict=True)
    }


def test_a_title_connects_both_ways() -> None:
    edges = Titles(layers((1, 7, True), (2, 7, False), (3, 8, False)), MEMORIES)
    assert around(edges, 1) == {(1, 2): 1.0}
    assert around(edges, 2) == {(2, 1): 1.0}
    assert around(edges, 3) == {}
    assert around(edges, 1, 2) == {(1, 2): 1.0, (2, 1): 1.0}


def test_old_and_new_mentions_are_one_graph() -> None:
    edges = Titles(layers((1, 7, True), fresh=((2, 7, False), (1, 9, False), (4, 9, True))), MEMORIES)
    assert around(edges, 1) == {(1, 2): 1.0, (1, 4): 1.0}


def test_who_shares_a_subject_shares_its_weight() -> None:
    edges = Titles(layers((1, 7, True), (2, 7, True), (3, 7, False)), MEMORIES)
    assert around(edges, 3) == {(3, 1): 0.5, (3, 2): 0.5}


def test_a_subject_of_many_is_no_title() -> None:
    owners = tuple((row, 7, True) for row in range(MAX_OWNERS + 1))
    assert around(Titles(layers(*owners), MEMORIES), 0) == {}
    assert len(around(Titles(layers(*owners[1:]), MEMORIES), 1)) == MAX_OWNERS - 1


@pytest.mark.parametrize(("spread", "connects"), [(COMMON_FROM, True), (COMMON_FROM + 1, False)])
def test_a_name_written_alike_in_many_texts_is_no_title(spread: int, connects: bool) -> None:
    edges = Titles(layers((1, 7, True), (2, 7, False), spread={7: spread}), MEMORIES)
    assert bool(around(edges, 1)) is connects


def test_what_few_share_connects_more() -> None:
    said = layers((1, 7, False), (2, 7, False), (1, 8, False), (2, 8, False), (3, 8, False))
    assert around(Shared(said, MEMORIES), 1) == {(1, 2): 1.5, (1, 3): 0.5}


def test_what_very_many_share_connects_nobody() -> None:
    crowd = tuple((row, 7, False) for row in range(COMMON_FROM + 1))
    assert around(Shared(layers(*crowd), MEMORIES), 0) == {}
    assert around(Shared(layers(*crowd), 100 * MEMORIES), 0) != {}


def test_a_memory_keeps_its_heaviest_shared_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "_BEST_SHARED", 2)
    said = [(1, concept, False) for concept in range(4)] + [
        (10 + n, concept, False) for concept in range(4) for n in range(concept + 1)
    ]
    kept = around(Shared(layers(*said), MEMORIES), 1)
    assert len(kept) == 2
    assert max(kept, key=lambda pair: kept[pair]) == (1, 10)


def test_both_add_a_part_of_what_is_shared_to_titles() -> None:
    said = layers((1, 7, True), (2, 7, False), (1, 8, False), (3, 8, False))
    edges = Both(Titles(said, MEMORIES), Shared(said, MEMORIES), 0.3)
    assert around(edges, 1) == {(1, 2): 1.3, (1, 3): 0.3}


def test_what_was_looked_at_once_is_known() -> None:
    asked: list[list[int]] = []

    class Counted(Shared):
        def around(self, nodes: Ints) -> Edges:
            asked.append(nodes.tolist())
            return super().around(nodes)

    said = layers((1, 7, False), (2, 7, False), (1, 8, False), (3, 8, False), (5, 9, False))
    plain, explored = Shared(said, MEMORIES), Explored(Counted(said, MEMORIES))
    for rows in ((1, 2), (3, 5, 1), (2, 2, 5), ()):
        assert around(explored, *rows) == around(plain, *rows)
    assert asked == [[1, 2], [3, 5]]


def test_a_row_that_mentions_nothing_has_no_edges() -> None:
    assert around(Titles(layers(), MEMORIES), 5) == {}
    assert around(Both(Titles(layers(), MEMORIES), Shared(layers(), MEMORIES), 0.3), 5) == {}
