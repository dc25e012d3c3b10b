"""Walks over a graph whose edges are computed when needed: personalised PageRank, and the cheaper hop decay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

DAMPING = 0.5
# Each hop continues from the heaviest nodes only.
MAX_FRONTIER = 2_000

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float32]
# The position of a node in the request, its neighbour, and the weight of the edge.
Edges = tuple[Ints, Ints, Floats]


class Edged(Protocol):
    """A graph that returns the edges of its nodes."""

    def around(self, nodes: Ints) -> Edges:
        """The edges of some nodes."""
        ...


def pagerank(links: Edged, seeds: Ints, weights: Floats, *, hops: int, damping: float = DAMPING) -> tuple[Ints, Floats]:
    """The nodes near the seeds, sorted by number, and their share of the mass that starts at the seeds.

    p ← (1 − damping)·seeds + damping·Wᵀp, hops times; the rows of W sum to 1 over the edges that a node may use. A node
    without edges keeps its mass, so that the shares always sum to 1.
    """
    begin, start = _gathered(seeds, weights)
    total = float(start.sum())
    if not len(begin) or total <= 0:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
    start = start / np.float32(total)
    nodes, mass = begin, start
    for _ in range(hops):
        passed = _passed_on(links, nodes, mass)
        nodes, mass = _gathered(
            np.concatenate([begin, passed[0]]), np.concatenate([(1 - damping) * start, damping * passed[1]])
        )
    return nodes, mass


def hop_decay(links: Edged, seeds: Ints, weights: Floats, *, hops: int, decay: float = DAMPING) -> tuple[Ints, Floats]:
    """The nodes within some hops, each with the weight of its best seed times decay per hop."""
    nodes, worth = _best(seeds, weights)
    for _ in range(hops):
        owner, targets, _weights = links.around(nodes)
        nodes, worth = _best(np.concatenate([nodes, targets]), np.concatenate([worth, decay * worth[owner]]))
    return nodes, worth


def _passed_on(links: Edged, nodes: Ints, mass: Floats) -> tuple[Ints, Floats]:
    """Where the mass of some nodes goes in one hop; the lightest nodes of a large frontier keep theirs."""
    order = np.argsort(-mass, kind="stable")
    moving, resting = order[:MAX_FRONTIER], order[MAX_FRONTIER:]
    owner, targets, weights = links.around(nodes[moving])
    sums = np.bincount(owner, weights, len(moving))
    ending = sums <= 0
    share = (mass[moving][owner] * weights / sums[owner]).astype(np.float32)
    stays = np.concatenate([nodes[resting], nodes[moving][ending]])
    kept = np.concatenate([mass[resting], mass[moving][ending]])
    return np.concatenate([targets, stays]), np.concatenate([share, kept])


def _gathered(nodes: Ints, mass: Floats) -> tuple[Ints, Floats]:
    """Each node once, with the sum of its mass."""
    distinct, place = np.unique(nodes, return_inverse=True)
    return distinct, np.bincount(place, mass, len(distinct)).astype(np.float32)


def _best(nodes: Ints, worth: Floats) -> tuple[Ints, Floats]:
    """Each node once, with its largest value."""
    distinct, place = np.unique(nodes, return_inverse=True)
    best = np.zeros(len(distinct), dtype=np.float32)
    np.maximum.at(best, place, worth)
    return distinct, best


Walk = Callable[..., tuple[Ints, Floats]]
WALKS: Mapping[str, Walk] = {"pagerank": pagerank, "hops": hop_decay}
