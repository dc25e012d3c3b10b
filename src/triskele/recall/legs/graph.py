"""The graph leg: memories that a name connects with others, as edges that are worked out where a walk goes.

Titles: a memory names what another one is about. Shared: two memories mention the same thing, the more telling the
fewer do. A name that very many memories hold connects nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from triskele.graph.walk import Edged, Edges, Floats, Ints
from triskele.index.mentions import COMMON_FROM, Layers

NAME = "graph"
MAX_OWNERS = 10
_HUB = 0.01
_MOST_HOLDERS = 200
_MOST_CONCEPTS = 64
_BEST_SHARED = 15


@dataclass(frozen=True, slots=True)
class Titles:
    """Edges, in both directions, between a memory and those whose subject it names."""

    layers: Layers
    memories: int

    def around(self, nodes: Ints) -> Edges:
        """The edges of some rows: the place of the row in the list, the other row, the weight."""
        place, concepts, is_subject = self.layers.concepts(nodes, _MOST_CONCEPTS)
        owners = self.layers.owners(concepts)
        is_title = (owners > 0) & (owners <= MAX_OWNERS)
        usable = is_title & (self.layers.reach(concepts) <= hub(self.memories))
        place, concepts, is_subject, owners = place[usable], concepts[usable], is_subject[usable], owners[usable]
        at, others, is_theirs = self.layers.holders(concepts, _MOST_HOLDERS)
        linked = (is_subject[at] | is_theirs) & (others != nodes[place[at]])
        weights = (1 / owners[at]).astype(np.float32)
        return _summed(place[at][linked], others[linked], weights[linked], np.maximum)


@dataclass(frozen=True, slots=True)
class Shared:
    """Edges between memories that mention the same, the best of each memory."""

    layers: Layers
    memories: int

    def around(self, nodes: Ints) -> Edges:
        """The edges of some rows: the place of the row in the list, the other row, the weight."""
        place, concepts, _ = self.layers.concepts(nodes, _MOST_CONCEPTS)
        frequency = self.layers.frequency(concepts)
        usable = (frequency >= 2) & (frequency <= hub(self.memories))
        place, concepts, frequency = place[usable], concepts[usable], frequency[usable]
        at, others, _ = self.layers.holders(concepts, _MOST_HOLDERS)
        linked = others != nodes[place[at]]
        weights = (1 / (frequency[at] - 1)).astype(np.float32)
        return _best(*_summed(place[at][linked], others[linked], weights[linked], np.add))


@dataclass(frozen=True, slots=True)
class Both:
    """Titles, and a part of what is shared."""

    titles: Edged
    shared: Edged
    share: float

    def around(self, nodes: Ints) -> Edges:
        """The edges of some rows: the place of the row in the list, the other row, the weight."""
        first, second = self.titles.around(nodes), self.shared.around(nodes)
        place, others = np.concatenate([first[0], second[0]]), np.concatenate([first[1], second[1]])
        weights = np.concatenate([first[2], np.float32(self.share) * second[2]])
        return _summed(place, others, weights, np.add)


def hub(memories: int) -> int:
    """The most memories that a name may connect."""
    return min(_MOST_HOLDERS, max(COMMON_FROM, int(_HUB * memories)))


def _summed(place: Ints, others: Ints, weights: Floats, by: np.ufunc) -> Edges:
    """Every pair once."""
    width = int(others.max(initial=-1)) + 1
    codes, where = np.unique(place * width + others, return_inverse=True)
    joined = np.zeros(len(codes), dtype=np.float32)
    by.at(joined, where, weights)
    first, second = np.divmod(codes, max(width, 1))
    return first, second, joined


def _best(place: Ints, others: Ints, weights: Floats) -> Edges:
    """The heaviest edges of each place; the others of a place come in their order, which a stable sort keeps."""
    order = np.lexsort((-weights, place))
    place, others, weights = place[order], others[order], weights[order]
    begins = np.searchsorted(place, place)
    kept = np.arange(len(place)) - begins < _BEST_SHARED
    return place[kept], others[kept], weights[kept]


class Explored:
    """Edges that are worked out once per node: walks from the same seeds come by the same places again and again."""

    def __init__(self, edges: Edged) -> None:
        self._edges = edges
        self._known: dict[int, tuple[Ints, Floats]] = {}

    def around(self, nodes: Ints) -> Edges:
        """The edges of some rows: the place of the row in the list, the other row, the weight."""
        listed = nodes.tolist()
        unknown = [node for node in dict.fromkeys(listed) if node not in self._known]
        if unknown:
            places, others, weights = self._edges.around(np.array(unknown, dtype=np.int64))
            borders = np.searchsorted(places, np.arange(len(unknown) + 1)).tolist()
            for node, (start, stop) in zip(unknown, pairwise(borders), strict=True):
                self._known[node] = (others[start:stop], weights[start:stop])
        found = [self._known[node] for node in listed]
        counts = [len(others) for others, _ in found]
        if not found:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
        return (
            np.repeat(np.arange(len(found)), counts),
            np.concatenate([others for others, _ in found]),
            np.concatenate([weights for _, weights in found]),
        )
