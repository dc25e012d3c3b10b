from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triskele.index.corpus import Ints
from triskele.recall.graph import Edges, hop_decay, pagerank

SIZE = 12
edge = st.tuples(st.integers(0, SIZE - 1), st.integers(0, SIZE - 1), st.floats(0.125, 5, width=32))
edge_lists = st.lists(edge, max_size=40)
seed_lists = st.lists(st.integers(0, SIZE - 1), min_size=1, max_size=4, unique=True)


class Links:
    """Edges by their source; repeated ones add up, nobody is linked with itself."""

    def __init__(self, listed: list[tuple[int, int, float]]) -> None:
        self._edges: dict[int, dict[int, float]] = {}
        for one, other, weight in listed:
            if one != other:
                own = self._edges.setdefault(one, {})
                own[other] = own.get(other, 0.0) + weight

    def __call__(self, nodes: Ints) -> Edges:
        found = [
            (place, other, weight)
            for place, node in enumerate(nodes.tolist())
            for other, weight in self._edges.get(node, {}).items()
        ]
        return (
            np.array([place for place, _, _ in found], dtype=np.int64),
            np.array([other for _, other, _ in found], dtype=np.int64),
            np.array([weight for _, _, weight in found], dtype=np.float32),
        )


def walked(links: Links, seeds: list[int], hops: int = 3) -> dict[int, float]:
    weights = np.array([1 / rank for rank in range(1, len(seeds) + 1)], dtype=np.float32)
    nodes, mass = pagerank(links, np.array(seeds, dtype=np.int64), weights, hops=hops)
    return dict(zip(nodes.tolist(), mass.tolist(), strict=True))


@given(edge_lists, seed_lists, st.integers(0, 4))
def test_mass_is_kept(listed: list[tuple[int, int, float]], seeds: list[int], hops: int) -> None:
    mass = walked(Links(listed), seeds, hops)
    assert sum(mass.values()) == pytest.approx(1, abs=1e-5)
    assert min(mass.values()) >= 0


@given(edge_lists, seed_lists)
def test_the_walk_is_the_power_iteration_of_the_whole_matrix(
    listed: list[tuple[int, int, float]], seeds: list[int]
) -> None:
    matrix = np.zeros((SIZE, SIZE))
    for one, other, weight in listed:
        matrix[one, other] += weight if one != other else 0
    ends = matrix.sum(axis=1) == 0
    matrix[ends, ends] = 1
    matrix /= matrix.sum(axis=1, keepdims=True)
    start = np.zeros(SIZE)
    start[seeds] = 1 / np.arange(1, len(seeds) + 1)
    start /= start.sum()
    expected = start
    for _ in range(3):
        expected = 0.5 * start + 0.5 * matrix.T @ expected
    mass = walked(Links(listed), seeds)
    assert [mass.get(node, 0.0) for node in range(SIZE)] == pytest.approx(expected.tolist(), abs=1e-5)


@given(edge_lists, seed_lists, st.permutations(range(SIZE)))
def test_numbers_of_nodes_do_not_matter(
    listed: list[tuple[int, int, float]], seeds: list[int], names: list[int]
) -> None:
    renamed = [(names[one], names[other], weight) for one, other, weight in reversed(listed)]
    mass = walked(Links(listed), seeds)
    other_mass = walked(Links(renamed), [names[seed] for seed in seeds])
    assert {names[node]: share for node, share in mass.items()} == pytest.approx(other_mass, abs=1e-5)


def test_no_seeds_reach_nothing() -> None:
    links = Links([(0, 1, 1.0)])
    nobody = np.empty(0, dtype=np.int64)
    assert not len(pagerank(links, nobody, np.empty(0, dtype=np.float32), hops=2)[0])
    assert not len(pagerank(links, np.array([0]), np.zeros(1, dtype=np.float32), hops=2)[0])
    assert not len(hop_decay(links, nobody, np.empty(0, dtype=np.float32), hops=2)[0])


def test_a_node_that_no_edge_knows_keeps_its_mass() -> None:
    assert walked(Links([(0, 1, 1.0)]), [7]) == {7: 1.0}


def test_stronger_links_and_better_seeds_carry_more() -> None:
    links = Links([(0, 1, 3.0), (0, 2, 1.0), (5, 6, 1.0)])
    mass = walked(links, [0, 5], hops=1)
    assert mass[1] > mass[2]
    assert mass[1] + mass[2] > mass[6]


def test_decay_takes_the_shortest_way() -> None:
    links = Links([(0, 1, 1.0), (1, 2, 1.0), (0, 2, 0.1), (2, 3, 1.0)])
    nodes, worth = hop_decay(links, np.array([0]), np.ones(1, dtype=np.float32), hops=2)
    assert dict(zip(nodes.tolist(), worth.tolist(), strict=True)) == {0: 1.0, 1: 0.5, 2: 0.5, 3: 0.25}
