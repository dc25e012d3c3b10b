"""The graph around a concept or a memory, at any time."""

from __future__ import annotations

from datetime import datetime

from starlette.responses import JSONResponse, Response

from triskele import validation
from triskele.edge.web import graph_layout
from triskele.edge.web.rendering import PageRequest, PageRoute, fragment, page
from triskele.edge.web.sessions import HEADERS
from triskele.engine.concepts import MAX_NODES
from triskele.errors import TriskeleError
from triskele.replies import Neighbourhood
from triskele.text import timestamps

USUAL_NODES = 80
EDGE_GROUPS = (
    ("subject", "is about"),
    ("mentions", "mentions"),
    ("tie", "ties"),
    ("link", "links"),
    ("closed", "ended"),
)
SIZES = (40, USUAL_NODES, 150, MAX_NODES)


def show(request: PageRequest) -> Response:
    """The page; without a focus it offers the most mentioned concepts."""
    name, memory = request.text("focus", most=200).strip(), request.text("memory", most=40)
    size = request.number("size", USUAL_NODES, most=MAX_NODES)
    neighbourhood, problem = None, ""
    if name or memory:
        try:
            neighbourhood = _neighbourhood(request, size)
        except TriskeleError as error:
            problem = str(error)
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
        months=_months(request.engine.concepts.overview().first),
        neighbourhood=neighbourhood,
        problem=problem,
    )


def start(request: PageRequest) -> Response:
    """The most mentioned concepts, to begin with."""
    return fragment("_hubs.html", stats=request.engine.concepts.overview())


def data(request: PageRequest) -> Response:
    """The drawing as JSON."""
    neighbourhood = _neighbourhood(request, request.number("size", USUAL_NODES, most=MAX_NODES))
    return JSONResponse({**graph_layout.drawing(neighbourhood), "left_out": neighbourhood.left_out}, headers=HEADERS)


def _neighbourhood(request: PageRequest, size: int) -> Neighbourhood:
    return request.engine.concepts.neighbourhood(
        concept=request.text("focus", most=200).strip(),
        memory=request.text("memory", most=40),
        at=validation.check_when(request.text("at", most=40) or None),
        most=size,
    )


def _months(first: datetime | None) -> list[str]:
    """The first day of every month since the oldest memory."""
    if first is None:
        return []
    now = timestamps.now()
    months = range(first.year * 12 + first.month - 1, now.year * 12 + now.month)
    return [f"{month // 12}-{month % 12 + 1:02d}-01" for month in months[-600:]]


ROUTES: tuple[PageRoute, ...] = (
    PageRoute("GET", "/graph", show, title="Graph"),
    PageRoute("GET", "/graph/start", start),
    PageRoute("GET", "/graph/data", data),
)
