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

from triskele.edge.http.access import PRINCIPAL, READ, Access, Principal
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
from triskele.edge.web.rendering import PageRequest, PageRoute, environment, failure, static_file, viewer_of
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
        viewer = viewer_of(request.scope[PRINCIPAL])
        return failure(viewer, NotFound("there is no such page"), is_script=_is_script(request))

    app = Starlette(
        routes=[
            Route(f"{PREFIX}/session", exchange, methods=["POST"]),
            Route(f"{PREFIX}/sign-out", leave, methods=["POST"]),
            Route(f"{PREFIX}/static/{{name}}", file, methods=["GET"]),
            *(
                Route(f"{PREFIX}{each.path}", _Served(each, context).endpoint(), methods=[each.method])
                for each in ROUTES
            ),
        ],
        exception_handlers={HTTPException: unknown},
    )
    app.router.redirect_slashes = False
    environment().globals["navigation"] = [route for route in ROUTES if route.title]
    app.state.process = context.state
    return app


class _Served:
    """A route with its checks and its log entries."""

    def __init__(self, route: PageRoute, context: AppContext) -> None:
        self._route = route
        self._context = context

    def endpoint(self) -> Callable[[Request], Awaitable[Response]]:
        """What serves the route, in a thread."""

        async def answer(request: Request) -> Response:
            body = await request.body() if request.method == "POST" else b""
            return await to_thread.run_sync(self._answer, request, body)

        return answer

    def _answer(self, request: Request, body: bytes) -> Response:
        principal: Principal = request.scope[PRINCIPAL]
        policy, started = self._context.policy, time.perf_counter()
        try:
            response = self._allowed(PageRequest(policy, principal, request, body))
        except TriskeleError as error:
            response = failure(viewer_of(principal), error, is_script=_is_script(request))
        except Exception as error:
            self._context.log(f"page {self._route.handler.__name__} failed: {error_place(error)}")
            fault = Unavailable("a fault inside triskele: its log says where")
            response = failure(viewer_of(principal), fault, is_script=_is_script(request))
        target = str(request.path_params.get("id", ""))[:64]
        address = request.client.host if request.client else ""
        access = Access(principal, f"page {self._route.path or '/'}", target, response.status_code, address)
        is_change = self._route.method == "POST" and self._route.scope != READ
        is_audited = is_change or response.status_code in (403, 429)
        self._context.note(access, response, time.perf_counter() - started, policy if is_audited else None)
        return response

    def _allowed(self, request: PageRequest) -> Response:
        if self._route.is_local and request.principal.user is not None:
            raise NotFound("there is no such page")
        request.principal.require(self._route.scope)
        request.policy.admit(request.principal)
        return self._route.handler(request)


def _is_script(request: Request) -> bool:
    return request.headers.get("hx-request") == "true"
