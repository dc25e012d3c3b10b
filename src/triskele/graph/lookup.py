"""Query the concept graph: a concept, a shortest path, counts."""

from __future__ import annotations

import numpy as np

from triskele.errors import NotFound
from triskele.graph.view import View
from triskele.index.corpus import Ints
from triskele.index.mentions import MentionIndex
from triskele.replies.rooms import (
    CommonConcept,
    ConceptDetails,
    ConceptEdge,
    ConceptOverview,
    ConceptPath,
    Hop,
    Neighbour,
    OtherName,
)
from triskele.types import Memory

# Of a name that nearly every memory mentions, the newest mentions are enough.
_MOST_LOOKED_AT = 2000
MAX_HOPS = 6
_SHOWN_COMMON = 10


def details(view: View, text: str, *, limit: int = 10, closed: bool = False) -> ConceptDetails:
    """The details of a concept; `closed` includes edges that ended."""
    concept = view.find(text).concept
    name = view.name_of(concept)
    _, holders, is_subject = view.holders(np.array([concept]))
    rows, subjects = np.unique(holders), np.unique(holders[is_subject])
    edges = _edges(view, concept, limit=limit, closed=closed)
    if not len(rows) and not (closed and edges):
        raise _unseen(view, name)
    return ConceptDetails(
        concept=name,
        other_names=_other_names(view, concept),
        memories=len(rows),
        subjects=len(subjects),
        subject_of=_newest(view, subjects, limit),
        mentioned_in=_newest(view, np.setdiff1d(rows, subjects), limit),
        neighbours=_neighbours(view, concept, rows, limit),
        edges=edges,
    )


def _unseen(view: View, name: str) -> NotFound:
    if view.scope.projects is not None:
        projects = ", ".join(sorted(filter(None, view.scope.projects)))
        message = f"nothing in project {projects} mentions “{name}” now: look into all projects, or at what is closed"
        return NotFound(message, remedy="all projects or closed")
    return NotFound(f"nothing that still holds mentions “{name}”: look at what is closed", remedy="closed")


def _other_names(view: View, concept: int) -> tuple[OtherName, ...]:
    names = [name for name in view.store.names.members([concept]) if name.name != concept]
    # The last word counts: a name may have been joined and parted before.
    joined = {merge.name: merge for merge in view.store.names.merges(name.name for name in names)}
    return tuple(
        OtherName(name.text, merge.reason, merge.at) if (merge := joined.get(name.name)) else OtherName(name.text)
        for name in names
    )


def _newest(view: View, rows: Ints, limit: int) -> tuple[Memory, ...]:
    """The memories behind some rows, the most recently changed first."""
    memories = view.store.rows(rows[-_MOST_LOOKED_AT:].tolist()).values()
    return tuple(sorted(memories, key=lambda memory: (memory.updated_at, memory.id), reverse=True)[:limit])


def _neighbours(view: View, concept: int, rows: Ints, limit: int) -> tuple[Neighbour, ...]:
    """Concepts that the same memories mention, most often first."""
    positions, concepts, _ = view.layers.concepts(rows[-_MOST_LOOKED_AT:])
    pairs = np.unique(np.stack([positions, concepts]), axis=1)[1]
    numbers, together = np.unique(pairs[pairs != concept], return_counts=True)
    connecting = view.connects(numbers)
    numbers, together = numbers[connecting], together[connecting]
    frequency = view.layers.frequency(numbers)
    best = np.lexsort((numbers, frequency, -together))[:limit]
    names = view.names(numbers[best].tolist())
    return tuple(
        Neighbour(names[number], count, total)
        for number, count, total in zip(
            numbers[best].tolist(), together[best].tolist(), frequency[best].tolist(), strict=True
        )
    )


def _edges(view: View, concept: int, *, limit: int, closed: bool) -> tuple[ConceptEdge, ...]:
    edges = view.store.names.edges(concept, projects=view.scope.projects, closed=closed, limit=limit)
    names = view.names({end for edge in edges for end in (edge.source, edge.target)})
    return tuple(
        ConceptEdge(**edge._asdict() | {"source": names[edge.source], "target": names[edge.target]}) for edge in edges
    )


def path(view: View, one: str, other: str) -> ConceptPath:
    """The shortest path between two concepts, over memories in scope."""
    start, end = (view.find(text).concept for text in (one, other))
    steps = _shortest(view, start, end)
    names = view.names([start, end, *(concept for _, concept in steps or ())])
    if steps is None:
        return ConceptPath(names[start], names[end], None)
    memories = view.store.rows(row for row, _ in steps)
    return ConceptPath(names[start], names[end], tuple(Hop(memories[row], names[concept]) for row, concept in steps))


def _shortest(view: View, start: int, goal: int) -> list[tuple[int, int]] | None:
    """Rows and concepts of the shortest path; common concepts connect nothing."""
    if start == goal:
        return []
    _, ends, _ = view.holders(np.array([goal]))
    level, by_row, by_concept = np.array([start]), dict[int, int](), {start: 0}
    for _ in range(MAX_HOPS):
        positions, rows, _ = view.holders(level)
        rows, positions = _new(rows, positions, by_row)
        by_row |= dict(zip(rows.tolist(), level[positions].tolist(), strict=True))
        arrived = rows[np.isin(rows, ends)]
        if len(arrived):
            return _back(int(arrived[0]), goal, by_row, by_concept)
        positions, concepts, _ = view.layers.concepts(rows)
        open_ones = view.connects(concepts)
        concepts, positions = _new(concepts[open_ones], positions[open_ones], by_concept)
        by_concept |= dict(zip(concepts.tolist(), rows[positions].tolist(), strict=True))
        # The rarest concept first: it best explains why two memories belong together.
        level = concepts[np.lexsort((concepts, view.layers.frequency(concepts)))]
    return None


def _new(found: Ints, place: Ints, known: dict[int, int]) -> tuple[Ints, Ints]:
    """The newly reached items, each once, in order of discovery."""
    _, first = np.unique(found, return_index=True)
    order = [at for at in np.sort(first).tolist() if int(found[at]) not in known]
    return found[order], place[order]


def _back(row: int, goal: int, by_row: dict[int, int], by_concept: dict[int, int]) -> list[tuple[int, int]]:
    """The steps that led to a row, from the start on."""
    steps = [(row, goal)]
    while before := by_concept[by_row[steps[-1][0]]]:
        steps.append((before, by_row[steps[-1][0]]))
    return steps[::-1]


def overview(view: View, mentions: MentionIndex) -> ConceptOverview:
    """Count a scope, and the graph on disk."""
    positions, concepts, _ = view.layers.concepts(view.rows)
    positions, concepts = np.unique(np.stack([positions, concepts]), axis=1)
    counted = np.bincount(concepts)
    usable = (counted[concepts] >= 2) & view.connects(concepts)
    counts = view.store.names.counts()
    return ConceptOverview(
        names=counts,
        memories=len(view.rows),
        connected=len(np.unique(positions[usable])),
        common=_common(view, counted),
        bytes=counts.bytes + mentions.bytes(),
    )


def _common(view: View, counted: np.typing.NDArray[np.int64]) -> tuple[CommonConcept, ...]:
    biggest = np.argsort(-counted, kind="stable")[:_SHOWN_COMMON]
    biggest = biggest[counted[biggest] >= 2]
    names, connects = view.names(biggest.tolist()), view.connects(biggest)
    return tuple(
        CommonConcept(names[number], int(counted[number]), is_connecting)
        for number, is_connecting in zip(biggest.tolist(), connects.tolist(), strict=True)
    )
