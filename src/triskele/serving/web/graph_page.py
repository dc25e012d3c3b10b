"""The graph page: what is connected with a concept or a memory, at any time; the drawing is fetched when shown."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from starlette.responses import JSONResponse, Response

from triskele import validation
from triskele.base import timestamps
from triskele.errors import TriskeleError, Unavailable
from triskele.index.entity_linking import read_names
from triskele.serving.web import neighbourhood
from triskele.serving.web.neighbourhood import MAX_NODES, USUAL_NODES
from triskele.serving.web.rendering import PageRequest, PageRoute, fragment, page
from triskele.serving.web.sessions import HEADERS

# New memories are read at once up to this number; more are left to the background.
_READ_FIRST = 500
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
    # A store that cannot be written still shows what was read before.
    with suppress(Unavailable, OSError):
        read_names(asked.engine.store, asked.engine.lexical, limit=_READ_FIRST, wait=False)
    if name or memory:
        try:
            found = neighbourhood.around(asked.engine, name=name, memory=memory, at=_moment(asked), most=size)
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
        months=_months(neighbourhood.first_moment(asked.engine)),
        found=found,
        problem=problem,
    )


def start(asked: PageRequest) -> Response:
    """The most mentioned concepts, to begin with."""
    return fragment("_hubs.html", stats=neighbourhood.starting_points(asked.engine))


def data(asked: PageRequest) -> Response:
    """The drawing as JSON."""
    found = neighbourhood.around(
        asked.engine,
        name=asked.text("focus", most=200).strip(),
        memory=asked.text("memory", most=40),
        at=_moment(asked),
        most=asked.number("size", USUAL_NODES, most=MAX_NODES),
    )
    return JSONResponse({**found.drawing(), "left_out": found.left_out}, headers=HEADERS)


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
