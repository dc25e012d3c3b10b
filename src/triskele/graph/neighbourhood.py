"""The part of the graph around a concept or a memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from triskele.errors import NotFound
from triskele.graph.view import View
from triskele.replies.rooms import GraphEdge, GraphNode, Neighbourhood
from triskele.types import Link, Memory

_MOST_TIES = 30
_TIED = 25
_LABEL = 48
_ROUNDS = 3

Ints = NDArray[np.int64]


def neighbourhood(view: View, *, name: str = "", id: str = "", most: int) -> Neighbourhood:
    """Draw the surroundings of a concept or a memory."""
    if id:
        rows, concepts = _row_of(view, id), np.empty(0, np.int64)
    else:
        concept = view.find(name).concept
        rows, concepts = np.empty(0, np.int64), np.array([concept])
        if not len(view.holders(concepts)[1]):
            raise NotFound(f"nothing mentions “{view.name_of(concept)}” at that time")
    rows, concepts, left_out = _grown(view, rows, concepts, most)
    return _drawn(view, rows, concepts, left_out, is_memory=bool(id))


def _row_of(view: View, id: str) -> Ints:
    rows = [row for row, version in view.store.versions([id]) if version.known_to is None][-1:]
    if not rows or not bool(view.sees(np.array(rows))[0]):
        raise NotFound(f"memory {id[:8]} is forgotten, or was not there at that time")
    return np.array(rows, dtype=np.int64)


def _grown(view: View, rows: Ints, concepts: Ints, most: int) -> tuple[Ints, Ints, int]:
    """Add memories and concepts in turn, up to a number of nodes."""
    left_out = 0
    for turn in range(2 * _ROUNDS):
        room = most - len(rows) - len(concepts)
        # The first turns leave room for the next ones.
        share = room if turn > 1 else room // 2
        if (turn % 2 == 0) == bool(len(concepts)):
            added, left_out = _rows_of(view, concepts, rows, share)
            rows = np.concatenate([rows, added])
        else:
            added, left_out = _concepts_of(view, rows, concepts, share)
            concepts = np.concatenate([concepts, added])
    return rows, concepts, left_out


def _rows_of(view: View, concepts: Ints, known: Ints, most: int) -> tuple[Ints, int]:
    """Further memories that mention the concepts, best connected first."""
    _, rows, is_subject = view.holders(concepts)
    new_rows, positions, counts = np.unique(rows, return_inverse=True, return_counts=True)
    subjects = np.bincount(positions, weights=is_subject, minlength=len(new_rows))
    is_new = ~np.isin(new_rows, known)
    new_rows, counts, subjects = new_rows[is_new], counts[is_new], subjects[is_new]
    best = np.lexsort((-new_rows, -subjects, -counts))[: max(most, 0)]
    return new_rows[best], len(new_rows) - len(best)


def _concepts_of(view: View, rows: Ints, known: Ints, most: int) -> tuple[Ints, int]:
    """Further concepts that the memories mention, the most shared ones first.

    Too common ones connect nothing.
    """
    _, numbers, _ = view.layers.concepts(rows)
    concepts, counts = np.unique(numbers, return_counts=True)
    is_new = view.connects(concepts) & ~np.isin(concepts, known)
    concepts, counts = concepts[is_new], counts[is_new]
    best = np.lexsort((concepts, view.layers.frequency(concepts), -counts))[: max(most, 0)]
    return concepts[best], len(concepts) - len(best)


def _drawn(view: View, rows: Ints, concepts: Ints, left_out: int, *, is_memory: bool) -> Neighbourhood:
    versions, known_names = view.store.rows(rows.tolist()), view.names(concepts.tolist())
    # In the order of their discovery: the focus is the first.
    memories = {row: versions[row] for row in rows.tolist() if row in versions}
    names = {number: known_names[number] for number in concepts.tolist() if number in known_names}
    focus = f"m{memories[int(rows[0])].id}" if is_memory else f"c{int(concepts[0])}"
    frequency = dict(zip(concepts.tolist(), view.layers.frequency(concepts).tolist(), strict=True))
    nodes = [
        *(
            GraphNode(f"c{number}", name, "concept", frequency[number], f"c{number}" == focus)
            for number, name in names.items()
        ),
        *(GraphNode(f"m{each.id}", _label(each), "memory", 1, f"m{each.id}" == focus) for each in memories.values()),
    ]
    edges = [
        *_mentions(view, rows, memories, names),
        *_ties(view, names),
        *_links(view.store.links([each.id for each in memories.values()]), {node.key for node in nodes}),
    ]
    return Neighbourhood(tuple(nodes), tuple(edges), tuple(memories.values()), tuple(names.values()), left_out)


def _label(memory: Memory) -> str:
    line = " ".join(memory.content.split())
    return line if len(line) <= _LABEL else f"{line[: _LABEL - 1]}…"


def _mentions(view: View, rows: Ints, memories: Mapping[int, Memory], names: Mapping[int, str]) -> Iterable[GraphEdge]:
    positions, numbers, is_subject = view.layers.concepts(rows)
    seen = set()
    for position, number, subject in zip(positions.tolist(), numbers.tolist(), is_subject.tolist(), strict=True):
        row = int(rows[position])
        if number in names and row in memories and (row, number) not in seen:
            seen.add((row, number))
            kind = "subject" if subject else "mentions"
            yield GraphEdge(f"m{memories[row].id}", f"c{number}", kind, kind)


def _ties(view: View, names: Mapping[int, str]) -> Iterable[GraphEdge]:
    """Edges between concepts, with the time that they held."""
    moment, seen = view.scope.as_of, set()
    for number in list(names)[:_TIED]:
        for edge in view.store.names.edges(number, closed=True, limit=_MOST_TIES):
            pair = (edge.source, edge.kind, edge.target)
            if edge.source not in names or edge.target not in names or pair in seen:
                continue
            seen.add(pair)
            ended = edge.valid_to is not None and edge.valid_to <= moment
            is_open = edge.known_to is None and not ended
            since, until = (f"{each:%Y-%m-%d}" if each else "" for each in (edge.valid_from, edge.valid_to))
            yield GraphEdge(f"c{edge.source}", f"c{edge.target}", edge.kind, "tie", is_open, since, until)


def _links(links: Iterable[Link], keys: set[str]) -> Iterable[GraphEdge]:
    for link in links:
        source, target = f"m{link.source}", f"m{link.target}"
        if source in keys and target in keys:
            yield GraphEdge(source, target, str(link.kind), "link")
