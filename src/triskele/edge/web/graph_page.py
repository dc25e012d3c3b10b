"""The graph page: what is connected with a concept or a memory, at any time; the drawing is fetched when shown."""

from __future__ import annotations

from datetime import datetime

from starlette.responses import JSONResponse, Response

from triskele import validation
from triskele.edge.web import graph_layout
from triskele.edge.web.rendering import PageRequest, PageRoute, fragment, page
from triskele.edge.web.sessions import HEADERS
from triskele.engine.concepts import MAX_NODES
from triskele.errors import TriskeleError
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


def show(asked: PageRequest) -> Response:
    """The page; without a focus it offers the most mentioned concepts."""
    name, memory = asked.text("focus", most=200).strip(), asked.text("memory", most=40)
    size = asked.number("size", USUAL_NODES, most=MAX_NODES)
    found, problem = None, ""
    if name or memory:
        try:
            found = asked.engine.concepts.neighbourhood(concept=name, memory=memory, at=_moment(asked), most=size)
        except TriskeleError as error:
            problem = str(error)
    return page(
        asked,
        "graph.html",
        "graph",
        status=404 if problem else 200,
        focus=name,
        memory=memory,
        size=size,
        sizes=SIZES,
        edge_groups=EDGE_GROUPS,
        at=asked.text("at", most=40),
        months=_months(asked.engine.concepts.overview().first),
        found=found,
        problem=problem,
    )


def start(asked: PageRequest) -> Response:
    """The most mentioned concepts, to begin with."""
    return fragment("_hubs.html", stats=asked.engine.concepts.overview())


def data(asked: PageRequest) -> Response:
    """The drawing as JSON."""
    found = asked.engine.concepts.neighbourhood(
        concept=asked.text("focus", most=200).strip(),
        memory=asked.text("memory", most=40),
        at=_moment(asked),
        most=asked.number("size", USUAL_NODES, most=MAX_NODES),
    )
    return JSONResponse({**graph_layout.drawing(found), "left_out": found.left_out}, headers=HEADERS)


def _moment(asked: PageRequest) -> datetime | None:
    return validation.check_when(asked.text("at", most=40) or None)


def _months(first: datetime | None) -> list[str]:
    """The first day of every month since the oldest memory."""
    if first is None:
        return []
    now = timestamps.now()
    months = range(first.year * 12 + first.month - 1, now.year * 12 + now.month)
    return [f"{month // 12}-{month % 12 + 1:02d}-01" for month in months[-600:]]


ROUTES: tuple[PageRoute, ...] = (
    PageRoute("GET", "/graph", show),
    PageRoute("GET", "/graph/start", start),
    PageRoute("GET", "/graph/data", data),
)
