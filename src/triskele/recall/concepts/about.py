"""All that is known of one concept: its names, its memories, its neighbours, its edges."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import numpy as np

from triskele.errors import NotFound
from triskele.graph.bipartite import Ints
from triskele.recall.concepts.view import Concept, View
from triskele.stores.protocol import Edge
from triskele.types import Memory

# The newest mentions of a name that stands nearly everywhere say enough about it.
_MOST_LOOKED_AT = 2000


@dataclass(frozen=True, slots=True)
class OtherName:
    """A name that stands for the same, and why and since when it does."""

    name: str
    reason: str | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A concept that some memories mention together with this one, and how many mention it at all."""

    concept: Concept
    together: int
    memories: int


@dataclass(frozen=True, slots=True)
class Tie:
    """An edge between two concepts by name, with the memory that says so."""

    source: Concept
    target: Concept
    edge: Edge


@dataclass(frozen=True, slots=True)
class About:
    """What is known of a concept: of `memories` that mention it, it is the subject of `subjects`.

    Lists are cut, counts are not; `mentioned_in` leaves out what it is the subject of.
    """

    concept: Concept
    other_names: tuple[OtherName, ...]
    memories: int
    subjects: int
    subject_of: tuple[Memory, ...]
    mentioned_in: tuple[Memory, ...]
    neighbours: tuple[Neighbour, ...]
    ties: tuple[Tie, ...]


def about(view: View, text: str, *, limit: int = 10, closed: bool = False) -> About:
    """Everything about the concept of a name; `closed` shows edges that hold no more as well."""
    name = view.find(text)
    concept = view.concept(name)
    rows, subjects = _rows(view, concept)
    ties = _ties(view, concept, limit=limit, closed=closed)
    if not len(rows) and not (closed and ties):
        raise NotFound(_unseen(view, concept))
    return About(
        concept=concept,
        other_names=_other_names(view, concept),
        memories=len(rows),
        subjects=len(subjects),
        subject_of=_newest(view, subjects, limit),
        mentioned_in=_newest(view, np.setdiff1d(rows, subjects), limit),
        neighbours=_neighbours(view, concept, rows, limit),
        ties=ties,
    )


def _unseen(view: View, concept: Concept) -> str:
    if view.scope.projects is not None:
        place = ", ".join(sorted(filter(None, view.scope.projects)))
        return f"nothing in project {place} mentions “{concept.name}” now: look into --all-projects, or add --closed"
    return f"nothing that still holds mentions “{concept.name}”: add --closed to see what did"


def _other_names(view: View, concept: Concept) -> tuple[OtherName, ...]:
    names = [name for name in view.store.names.members([concept.number]) if name.name != concept.number]
    # The last word counts: a name may have been joined and parted before.
    joined = {merge.name: merge for merge in view.store.names.merges(name.name for name in names)}
    return tuple(
        OtherName(name.text, merge.reason, merge.at) if (merge := joined.get(name.name)) else OtherName(name.text)
        for name in names
    )


def _rows(view: View, concept: Concept) -> tuple[Ints, Ints]:
    """The rows that mention a concept, and those that it is the subject of."""
    _, rows, is_subject = view.holders(np.array([concept.number]))
    return np.unique(rows), np.unique(rows[is_subject])


def _newest(view: View, rows: Ints, limit: int) -> tuple[Memory, ...]:
    """The memories behind some rows, the most recently changed first."""
    found = view.store.rows(rows[-_MOST_LOOKED_AT:].tolist()).values()
    return tuple(sorted(found, key=lambda memory: (memory.updated_at, memory.id), reverse=True)[:limit])


def _neighbours(view: View, concept: Concept, rows: Ints, limit: int) -> tuple[Neighbour, ...]:
    """Concepts that the same memories mention, most often together first, then the rarer one."""
    place, others, _ = view.layers.concepts(rows[-_MOST_LOOKED_AT:])
    pairs = np.unique(np.stack([place, others]), axis=1)[1]
    numbers, together = np.unique(pairs[pairs != concept.number], return_counts=True)
    telling = view.connects(numbers)
    numbers, together = numbers[telling], together[telling]
    frequency = view.layers.frequency(numbers)
    best = np.lexsort((numbers, frequency, -together))[:limit]
    named = view.concepts(numbers[best].tolist())
    return tuple(
        Neighbour(named[number], count, total)
        for number, count, total in zip(
            numbers[best].tolist(), together[best].tolist(), frequency[best].tolist(), strict=True
        )
    )


def _ties(view: View, concept: Concept, *, limit: int, closed: bool) -> tuple[Tie, ...]:
    edges = view.store.names.edges(concept.number, projects=view.scope.projects, closed=closed, limit=limit)
    named = view.concepts({end for edge in edges for end in (edge.source, edge.target)})
    return tuple(Tie(named[edge.source], named[edge.target], edge) for edge in edges)
