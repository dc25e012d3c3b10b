"""The application of the pages: which function answers which address, in which thread, and what an error becomes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from triskele.errors import NotFound, TriskeleError, Unavailable
from triskele.serving.app import error_place
from triskele.serving.web import (
    browse_page,
    code_page,
    graph_page,
    health_page,
    memory_page,
    quality_page,
    review_page,
    search_page,
)
from triskele.serving.web.rendering import Handler, PageRequest, failure, static_file
from triskele.serving.web.sessions import PREFIX, Sessions

if TYPE_CHECKING:
    from triskele.engine import Engine

_MAX_CODE = 100
# Who answers what: method, path below /ui, function.
ROUTES: tuple[tuple[str, str, Handler], ...] = (
    *search_page.ROUTES,
    *browse_page.ROUTES,
    *memory_page.ROUTES,
    *graph_page.ROUTES,
    *code_page.ROUTES,
    *review_page.ROUTES,
    *quality_page.ROUTES,
    *health_page.ROUTES,
)


def pages(
    open_engine: Callable[[], Engine],
    state: Callable[[], dict[str, Any]],
    sessions: Sessions,
    log: Callable[[str], None],
) -> ASGIApp:
    """The pages as an application; the guard has checked host, origin and session."""

    async def exchange(request: Request) -> Response:
        return sessions.exchange(request, (await request.body())[:_MAX_CODE].decode("utf-8", "replace"))

    async def leave(request: Request) -> Response:
        return sessions.end(request)

    async def file(request: Request) -> Response:
        return static_file(request.path_params["name"])

    async def unknown(request: Request, _: Exception) -> Response:
        return failure(_is_script(request), NotFound("there is no such page"))

    made = Starlette(
        routes=[
            Route(f"{PREFIX}/session", exchange, methods=["POST"]),
            Route(f"{PREFIX}/sign-out", leave, methods=["POST"]),
            Route(f"{PREFIX}/static/{{name}}", file, methods=["GET"]),
            *(
                Route(f"{PREFIX}{path}", _answered(handler, open_engine, log), methods=[method])
                for method, path, handler in ROUTES
            ),
        ],
        exception_handlers={HTTPException: unknown},
    )
    made.router.redirect_slashes = False
    made.state.process = state
    return made


def _answered(
    handler: Handler, open_engine: Callable[[], Engine], log: Callable[[str], None]
) -> Callable[[Request], Awaitable[Response]]:
    """A handler that runs in a thread; an error becomes a page that says so."""

    def run(request: Request, body: bytes) -> Response:
        try:
            return handler(PageRequest(open_engine(), request, body))
        except TriskeleError as error:
            return failure(_is_script(request), error)
        except Exception as error:
            log(f"page {handler.__name__} failed: {error_place(error)}")
            return failure(_is_script(request), Unavailable("a fault inside triskele: its log says where"))

    async def answer(request: Request) -> Response:
        body = await request.body() if request.method == "POST" else b""
        return await to_thread.run_sync(run, request, body)

    return answer


def _is_script(request: Request) -> bool:
    return request.headers.get("hx-request") == "true"
