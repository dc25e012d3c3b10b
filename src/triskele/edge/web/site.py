"""The application of the pages: routes, errors and logs."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from triskele.edge.http.access import PRINCIPAL, READ
from triskele.edge.http.app import error_place
from triskele.edge.web import (
    admin_page,
    browse_page,
    code_page,
    graph_page,
    health_page,
    memory_page,
    quality_page,
    review_page,
    search_page,
)
from triskele.edge.web.rendering import PageRequest, PageRoute, environment, failure, static_file
from triskele.edge.web.sessions import PREFIX, SESSIONS
from triskele.errors import NotFound, TriskeleError, Unavailable

if TYPE_CHECKING:
    from triskele.edge.http.app import AppContext

_MAX_PROOF = 200
ROUTES: tuple[PageRoute, ...] = (
    *search_page.ROUTES,
    *browse_page.ROUTES,
    *memory_page.ROUTES,
    *graph_page.ROUTES,
    *code_page.ROUTES,
    *review_page.ROUTES,
    *quality_page.ROUTES,
    *health_page.ROUTES,
    *admin_page.ROUTES,
)


def http_app(context: AppContext) -> Starlette:
    """The application of the pages; the guard has checked host, origin and session."""

    async def exchange(request: Request) -> Response:
        proof = (await request.body())[:_MAX_PROOF].decode("utf-8", "replace")
        response: Response = await request.scope[SESSIONS].exchange(request, proof)
        return response

    async def leave(request: Request) -> Response:
        response: Response = await request.scope[SESSIONS].end(request)
        return response

    async def file(request: Request) -> Response:
        return static_file(request.path_params["name"])

    async def unknown(request: Request, _: Exception) -> Response:
        return failure(request, NotFound("there is no such page"))

    app = Starlette(
        routes=[
            Route(f"{PREFIX}/session", exchange, methods=["POST"]),
            Route(f"{PREFIX}/sign-out", leave, methods=["POST"]),
            Route(f"{PREFIX}/static/{{name}}", file, methods=["GET"]),
            *(Route(f"{PREFIX}{each.path}", _endpoint(each, context), methods=[each.method]) for each in ROUTES),
        ],
        exception_handlers={HTTPException: unknown},
    )
    app.router.redirect_slashes = False
    environment().globals["navigation"] = [route for route in ROUTES if route.title]
    app.state.process = context.state
    return app


def _endpoint(route: PageRoute, context: AppContext) -> Callable[[Request], Awaitable[Response]]:
    """A route with its checks and its log entries."""
    policy = context.policy

    async def endpoint(request: Request) -> Response:
        body, started = await request.body() if route.method == "POST" else b"", time.perf_counter()
        response = await to_thread.run_sync(answer, PageRequest(policy, request.scope[PRINCIPAL], request, body))
        operation, target = f"page {route.path or '/'}", str(request.path_params.get("id", ""))[:64]
        is_change, took_s = route.method == "POST" and route.scope != READ, time.perf_counter() - started
        await context.note(request, response, operation, target, took_s, is_change=is_change)
        return response

    def answer(request: PageRequest) -> Response:
        try:
            if route.is_local and request.principal.user is not None:
                raise NotFound("there is no such page")
            request.principal.require(route.scope)
            policy.admit(request.principal)
            return route.handler(request)
        except TriskeleError as error:
            return failure(request.http, error)
        except Exception as error:
            context.log(f"page {route.handler.__name__} failed: {error_place(error)}")
            return failure(request.http, Unavailable("a fault inside triskele: its log says where"))

    return endpoint
