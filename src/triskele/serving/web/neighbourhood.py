"""The part of the graph around a concept or a memory, capped, with a place for every node."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from triskele.base import timestamps
from triskele.errors import NotFound
from triskele.recall.concepts import lookup
from triskele.recall.concepts.view import Concept, View
from triskele.recall.graph_leg import hub
from triskele.types import Link, Memory, Scope

if TYPE_CHECKING:
    from triskele.engine import Engine

MAX_NODES = 300
USUAL_NODES = 80
_MOST_TIES = 30
_TIED = 25
_STEPS = 60
_LABEL = 48
_ROUNDS = 3
_NODE_PX = 46.0
_WIDER = 1.4
_LEAST_DISTANCE = 0.05

# One request counts for a memory, those that come meanwhile wait for it: they would only take the processor from it.
_counted: WeakKeyDictionary[Engine, _Counted] = WeakKeyDictionary()
_listing = threading.Lock()

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(slots=True)
class _Counted:
    """What was counted of one memory, and at which position of its store."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    at: object = None
    stats: lookup.Stats | None = None


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A concept or a memory in the drawing; `weight` is how many memories mention a concept."""

    key: str
    label: str
    kind: str
    weight: int = 1
    is_focus: bool = False


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """A connection of two nodes; a closed one no longer holds at the moment of the drawing."""

    source: str
    target: str
    kind: str
    group: str
    is_open: bool = True
    since: str = ""
    until: str = ""


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """Nodes and edges around a focus; `left_out` nodes were cut."""

    nodes: Sequence[GraphNode]
    edges: Sequence[GraphEdge]
    memories: Sequence[Memory]
    concepts: Sequence[Concept]
    left_out: int

    def drawing(self) -> dict[str, list[dict[str, Any]]]:
        """Nodes with their places, and edges, as values for the script."""
        focus = next((node.key for node in self.nodes if node.is_focus), "")
        ends = [(edge.source, edge.target) for edge in self.edges]
        places = arranged([node.key for node in self.nodes], ends, focus)
        nodes = [
            {"id": node.key, "label": node.label, "kind": node.kind, "weight": node.weight, "focus": node.is_focus,
             "x": round(float(x), 1), "y": round(float(y), 1)}
            for node, (x, y) in zip(self.nodes, places, strict=True)
        ]  # fmt: skip
        edges = [
            {"source": edge.source, "target": edge.target, "kind": edge.kind, "group": edge.group,
             "open": edge.is_open, "since": edge.since, "until": edge.until}
            for edge in self.edges
        ]  # fmt: skip
        return {"nodes": nodes, "edges": edges}


def open_view(engine: Engine, at: datetime | None) -> View:
    """The graph of all projects: what was stored until a moment and true then."""
    indexes = engine.runtime.indexes(engine.semantic())
    columns = indexes.catalog.view()
    scope: Scope = engine.scope(all_projects=True)
    scope = replace(scope, as_of=at, until=at) if at is not None else replace(scope, any_time=True)
    seen = columns.rows[columns.scoped(scope).is_visible]
    return View(engine.store, indexes.mentions.view(), scope, seen, hub(len(columns.rows)))


def starting_points(engine: Engine) -> lookup.Stats:
    """Counts of the graph and the concepts that most memories mention; kept until something is written or read."""
    with _listing:
        counted = _counted.setdefault(engine, _Counted())
    with counted.lock:
        now = (engine.store.position(), engine.store.jobs.counts().names)
        if counted.stats is None or counted.at != now:
            mentions = engine.runtime.indexes(engine.semantic()).mentions
            counted.at, counted.stats = now, lookup.stats(open_view(engine, None), mentions)
        return counted.stats


def first_moment(engine: Engine) -> datetime | None:
    """The time of the oldest memory."""
    happened = engine.runtime.indexes(engine.semantic()).catalog.view().happened
    return timestamps.from_micros(int(happened.min())) if len(happened) else None


def around(
    engine: Engine, *, name: str = "", memory: str = "", at: datetime | None = None, most: int = USUAL_NODES
) -> Neighbourhood:
    """What is connected with a concept, by any of its names, or with a memory."""
    view = open_view(engine, at)
    if memory:
        rows, concepts = _row_of(view, engine.resolve(memory)), np.empty(0, np.int64)
    else:
        concepts = np.array([view.find(name).concept])
        rows = np.empty(0, np.int64)
        if not len(view.holders(concepts)[1]):
            raise NotFound(f"nothing mentions “{view.concepts(concepts.tolist())[int(concepts[0])].name}” at that time")
    rows, concepts, left_out = _grown(view, rows, concepts, min(most, MAX_NODES))
    return _drawn(view, rows, concepts, left_out, is_memory=bool(memory))


def _row_of(view: View, id: str) -> Ints:
    rows = [row for row, version in view.store.versions([id]) if version.known_to is None][-1:]
    if not rows or not bool(view.sees(np.array(rows))[0]):
        raise NotFound(f"memory {id[:8]} is forgotten, or was not there at that time")
    return np.array(rows, dtype=np.int64)


def _grown(view: View, rows: Ints, concepts: Ints, most: int) -> tuple[Ints, Ints, int]:
    """Memories and concepts in turn, until there are enough; how many more the last turn could have added."""
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
    """Further memories that mention the concepts: those that share most of them, then the newest."""
    _, rows, is_subject = view.holders(concepts)
    found, at, counts = np.unique(rows, return_inverse=True, return_counts=True)
    subjects = np.bincount(at, weights=is_subject, minlength=len(found))
    is_new = ~np.isin(found, known)
    found, counts, subjects = found[is_new], counts[is_new], subjects[is_new]
    best = np.lexsort((-found, -subjects, -counts))[: max(most, 0)]
    return found[best], len(found) - len(best)


def _concepts_of(view: View, rows: Ints, known: Ints, most: int) -> tuple[Ints, int]:
    """Further concepts that the memories mention, the most shared ones first.

    Too common ones connect nothing.
    """
    _, numbers, _ = view.layers.concepts(rows)
    found, counts = np.unique(numbers, return_counts=True)
    kept = view.connects(found) & ~np.isin(found, known)
    found, counts = found[kept], counts[kept]
    best = np.lexsort((found, view.layers.frequency(found), -counts))[: max(most, 0)]
    return found[best], len(found) - len(best)


def _drawn(view: View, rows: Ints, concepts: Ints, left_out: int, *, is_memory: bool) -> Neighbourhood:
    known, names = view.store.rows(rows.tolist()), view.concepts(concepts.tolist())
    # In the order of their discovery: the focus is the first.
    memories = {row: known[row] for row in rows.tolist() if row in known}
    named = {number: names[number] for number in concepts.tolist() if number in names}
    focus = f"m{memories[int(rows[0])].id}" if is_memory else f"c{int(concepts[0])}"
    frequency = dict(zip(concepts.tolist(), view.layers.frequency(concepts).tolist(), strict=True))
    nodes = [
        *(
            GraphNode(f"c{number}", each.name, "concept", frequency[number], f"c{number}" == focus)
            for number, each in named.items()
        ),
        *(GraphNode(f"m{each.id}", _label(each), "memory", 1, f"m{each.id}" == focus) for each in memories.values()),
    ]
    edges = [
        *_mentions(view, rows, memories, named),
        *_ties(view, named),
        *_links(view.store.links([each.id for each in memories.values()]), {node.key for node in nodes}),
    ]
    return Neighbourhood(nodes, edges, list(memories.values()), list(named.values()), left_out)


def _label(memory: Memory) -> str:
    line = " ".join(memory.content.split())
    return line if len(line) <= _LABEL else f"{line[: _LABEL - 1]}…"


def _mentions(
    view: View, rows: Ints, memories: Mapping[int, Memory], named: Mapping[int, Concept]
) -> Iterable[GraphEdge]:
    place, numbers, is_subject = view.layers.concepts(rows)
    seen = set()
    for at, number, subject in zip(place.tolist(), numbers.tolist(), is_subject.tolist(), strict=True):
        row = int(rows[at])
        if number in named and row in memories and (row, number) not in seen:
            seen.add((row, number))
            kind = "subject" if subject else "mentions"
            yield GraphEdge(f"m{memories[row].id}", f"c{number}", kind, kind)


def _ties(view: View, named: Mapping[int, Concept]) -> Iterable[GraphEdge]:
    """Edges between concepts, with the time that they held."""
    moment, seen = view.scope.as_of, set()
    for number in list(named)[:_TIED]:
        for edge in view.store.entities.edges(number, closed=True, limit=_MOST_TIES):
            pair = (edge.source, edge.kind, edge.target)
            if edge.source not in named or edge.target not in named or pair in seen:
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


def arranged(keys: Sequence[str], pairs: Sequence[tuple[str, str]], focus: str) -> Floats:
    """A place for every node: edges pull, nodes push, the focus is in the middle; the same graph looks the same."""
    count = len(keys)
    at = {key: place for place, key in enumerate(keys)}
    ends = np.array([(at[a], at[b]) for a, b in pairs], dtype=np.int64).reshape(-1, 2)
    # A spiral by the golden angle: spread evenly, and no two at one place.
    turn = np.arange(count) * 2.399963
    places = np.stack([np.cos(turn), np.sin(turn)], axis=1) * np.sqrt(np.arange(count) + 0.5)[:, None]
    middle = at.get(focus, 0)
    places -= places[middle]
    ideal = 1.8
    for step in range(_STEPS):
        across, down = (places[:, [axis]] - places[:, axis] for axis in (0, 1))
        push = ideal**2 / np.maximum(across**2 + down**2, _LEAST_DISTANCE**2)
        force = np.stack([(across * push).sum(axis=1), (down * push).sum(axis=1)], axis=1)
        if len(ends):
            pull = places[ends[:, 0]] - places[ends[:, 1]]
            pull *= (np.sqrt((pull**2).sum(axis=1)) / ideal)[:, None]
            for axis in (0, 1):
                force[:, axis] -= np.bincount(ends[:, 0], pull[:, axis], count)
                force[:, axis] += np.bincount(ends[:, 1], pull[:, axis], count)
        # Weak gravity keeps parts without an edge near the others.
        force -= 0.08 * places
        length = np.maximum(np.sqrt((force**2).sum(axis=1)), 1e-9)
        places = places + force * (np.minimum(length, 1.2 * (1 - step / _STEPS) + 0.02) / length)[:, None]
        places -= places[middle]
    # The more nodes, the larger the drawing, so that names stay readable.
    extent = float(np.percentile(np.abs(places), 95)) or 1.0
    spread: Floats = places * np.array([_WIDER, 1.0]) * (_NODE_PX * count**0.5 / extent)
    return spread
