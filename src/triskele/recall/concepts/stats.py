"""How much of a graph there is: counts, hubs, and how many memories it connects."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from triskele.index.mentions import MentionIndex
from triskele.recall.concepts.view import Concept, View
from triskele.stores.protocol import NameCounts

_SHOWN_HUBS = 10


@dataclass(frozen=True, slots=True)
class Hub:
    """A concept that many memories mention; one that too many do connects nobody."""

    concept: Concept
    memories: int
    connects: bool


@dataclass(frozen=True, slots=True)
class Stats:
    """How much there is; `connected` of the memories share a telling name with another one."""

    counts: NameCounts
    memories: int
    connected: int
    hubs: tuple[Hub, ...]
    bytes: int

    @property
    def share(self) -> float:
        """The share of memories that are connected with at least one other."""
        return self.connected / self.memories if self.memories else 0.0


def stats(view: View, mentions: MentionIndex) -> Stats:
    """Count what a scope may see, and what the whole graph takes on the disk."""
    place, concepts, _ = view.layers.concepts(view.rows)
    place, concepts = np.unique(np.stack([place, concepts]), axis=1)
    counted = np.bincount(concepts)
    usable = (counted[concepts] >= 2) & view.connects(concepts)
    counts = view.store.names.counts()
    return Stats(
        counts=counts,
        memories=len(view.rows),
        connected=len(np.unique(place[usable])),
        hubs=_hubs(view, counted),
        bytes=counts.bytes + mentions.bytes(),
    )


def _hubs(view: View, counted: np.typing.NDArray[np.int64]) -> tuple[Hub, ...]:
    biggest = np.argsort(-counted, kind="stable")[:_SHOWN_HUBS]
    biggest = biggest[counted[biggest] >= 2]
    named, connects = view.concepts(biggest.tolist()), view.connects(biggest)
    return tuple(
        Hub(named[number], int(counted[number]), is_connecting)
        for number, is_connecting in zip(biggest.tolist(), connects.tolist(), strict=True)
    )
