"""The graph around a concept or a memory, at any time."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.responses import JSONResponse, Response

from triskele import validation
from triskele.edge.web.rendering import PageRequest, PageRoute, page
from triskele.edge.web.sessions import HEADERS
from triskele.engine.concepts import MAX_NODES
from triskele.errors import NotFound, TriskeleError
from triskele.replies.rooms import Neighbourhood
from triskele.text import timestamps

USUAL_NODES = 80
EDGE_GROUPS = (
    ("subject", "is about"),
    ("mentions", "mentions"),
    ("tie", "ties"),
    ("link", "links"),
    ("closed", "ended"),
)
_HUBS = 4
_STEPS = 60
_NODE_PX = 46.0
_WIDER = 1.4
_LEAST_DISTANCE = 0.05

Floats = NDArray[np.float64]
SIZES = (40, USUAL_NODES, 150, MAX_NODES)


def show(request: PageRequest) -> Response:
    """The page; without a focus it draws the most used concepts."""
    name, memory = request.text("focus", most=200).strip(), request.text("memory", most=40)
    size = request.number("size", USUAL_NODES, most=MAX_NODES)
    neighbourhood, problem = None, ""
    if name or memory:
        try:
            neighbourhood = _neighbourhood(request, size)
        except TriskeleError as error:
            problem = str(error)
    overview = request.engine.concepts.overview()
    return page(
        request,
        "graph.html",
        "Graph",
        status=404 if problem else 200,
        focus=name,
        memory=memory,
        size=size,
        sizes=SIZES,
        edge_groups=EDGE_GROUPS,
        at=request.text("at", most=40),
        months=_months(overview.first),
        overview=overview,
        neighbourhood=neighbourhood,
        problem=problem,
    )


def data(request: PageRequest) -> Response:
    """The drawing as JSON."""
    draw = _neighbourhood if request.text("focus").strip() or request.text("memory") else _most_used
    neighbourhood = draw(request, request.number("size", USUAL_NODES, most=MAX_NODES))
    return JSONResponse({**drawing(neighbourhood), "left_out": neighbourhood.left_out}, headers=HEADERS)


def _neighbourhood(request: PageRequest, size: int, concept: str = "") -> Neighbourhood:
    return request.engine.concepts.neighbourhood(
        concept=concept or request.text("focus", most=200).strip(),
        memory=request.text("memory", most=40),
        at=validation.check_when(request.text("at", most=40) or None),
        most=size,
    )


def _most_used(request: PageRequest, size: int) -> Neighbourhood:
    """The surroundings of the most used concepts in one drawing, without a focus."""
    common = sorted(request.engine.concepts.overview().common, key=lambda hub: not hub.connects)
    hubs = [hub.concept for hub in common[:_HUBS]]
    parts: list[Neighbourhood] = []
    for hub in hubs:
        # A concept may be younger than the moment of the drawing.
        with suppress(NotFound):
            parts.append(_neighbourhood(request, max(size // len(hubs), 1), hub))
    if not parts:
        raise NotFound("nothing connects memories at that time")
    nodes = {node.key: replace(node, is_focus=False) for part in parts for node in part.nodes}
    edges = {(edge.source, edge.kind, edge.target): edge for part in parts for edge in part.edges}
    return Neighbourhood(tuple(nodes.values()), tuple(edges.values()), (), (), sum(part.left_out for part in parts))


def _months(first: datetime | None) -> list[str]:
    """The first day of every month since the oldest memory."""
    if first is None:
        return []
    now = timestamps.now()
    months = range(first.year * 12 + first.month - 1, now.year * 12 + now.month)
    return [f"{month // 12}-{month % 12 + 1:02d}-01" for month in months[-600:]]


def drawing(neighbourhood: Neighbourhood) -> dict[str, list[dict[str, Any]]]:
    """Nodes with their places, and edges, as values for the script."""
    focus = next((node.key for node in neighbourhood.nodes if node.is_focus), "")
    ends = [(edge.source, edge.target) for edge in neighbourhood.edges]
    places = arranged([node.key for node in neighbourhood.nodes], ends, focus)
    nodes = [
        {"id": node.key, "label": node.label, "kind": node.kind, "weight": node.weight, "focus": node.is_focus,
         "x": round(float(x), 1), "y": round(float(y), 1)}
        for node, (x, y) in zip(neighbourhood.nodes, places, strict=True)
    ]  # fmt: skip
    edges = [
        {"source": edge.source, "target": edge.target, "kind": edge.kind, "group": edge.group,
         "open": edge.is_open, "since": edge.since, "until": edge.until}
        for edge in neighbourhood.edges
    ]  # fmt: skip
    return {"nodes": nodes, "edges": edges}


def arranged(keys: Sequence[str], pairs: Sequence[tuple[str, str]], focus: str) -> Floats:
    """Arrange nodes around the focus; equal graphs give equal drawings."""
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


ROUTES: tuple[PageRoute, ...] = (
    PageRoute("GET", "/graph", show, title="Graph"),
    PageRoute("GET", "/graph/data", data),
)
