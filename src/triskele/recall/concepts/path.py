"""The shortest way between two concepts: from one to the next through a memory that mentions both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from triskele.graph.bipartite import Ints
from triskele.recall.concepts.view import Concept, View
from triskele.types import Memory

MAX_HOPS = 6


@dataclass(frozen=True, slots=True)
class Hop:
    """A memory, and the concept that it leads to."""

    memory: Memory
    concept: Concept


@dataclass(frozen=True, slots=True)
class Way:
    """A chain of memories and concepts; `hops` is None where none was found, and empty where both ends are one."""

    start: Concept
    end: Concept
    hops: tuple[Hop, ...] | None


def path(view: View, one: str, other: str) -> Way:
    """The shortest chain between the concepts of two names, over memories that may be seen."""
    start, end = (view.concept(view.find(text)) for text in (one, other))
    steps = _shortest(view, start.number, end.number)
    if steps is None:
        return Way(start, end, None)
    memories = view.store.rows(row for row, _ in steps)
    named = view.concepts(concept for _, concept in steps)
    return Way(start, end, tuple(Hop(memories[row], named[concept]) for row, concept in steps))


def _shortest(view: View, start: int, goal: int) -> list[tuple[int, int]] | None:
    """The rows and the concepts they lead to, breadth first; a hub may begin or end a way, never lie on it."""
    if start == goal:
        return []
    _, ends, _ = view.holders(np.array([goal]))
    level, by_row, by_concept = np.array([start]), dict[int, int](), {start: 0}
    for _ in range(MAX_HOPS):
        place, rows, _ = view.holders(level)
        rows, place = _new(rows, place, by_row)
        by_row |= dict(zip(rows.tolist(), level[place].tolist(), strict=True))
        arrived = rows[np.isin(rows, ends)]
        if len(arrived):
            return _back(int(arrived[0]), goal, by_row, by_concept)
        place, concepts, _ = view.layers.concepts(rows)
        open_ones = view.connects(concepts)
        concepts, place = _new(concepts[open_ones], place[open_ones], by_concept)
        by_concept |= dict(zip(concepts.tolist(), rows[place].tolist(), strict=True))
        # The rarest first: it says most about why two memories belong together.
        level = concepts[np.lexsort((concepts, view.layers.frequency(concepts)))]
    return None


def _new(found: Ints, place: Ints, known: dict[int, int]) -> tuple[Ints, Ints]:
    """What was not reached before, each once and from the first place that leads to it, in that order."""
    _, first = np.unique(found, return_index=True)
    order = [at for at in np.sort(first).tolist() if int(found[at]) not in known]
    return found[order], place[order]


def _back(row: int, goal: int, by_row: dict[int, int], by_concept: dict[int, int]) -> list[tuple[int, int]]:
    """The steps that led to a row, from the start on."""
    steps = [(row, goal)]
    while before := by_concept[by_row[steps[-1][0]]]:
        steps.append((before, by_row[steps[-1][0]]))
    return steps[::-1]
