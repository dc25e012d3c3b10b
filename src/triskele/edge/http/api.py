"""The application of the API: operations behind errors, metrics, audit and request log."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence

from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from triskele.edge.http import openapi, operations, problems
from triskele.edge.http.access import PRINCIPAL, Access, Principal
from triskele.edge.http.app import error_place
from triskele.edge.http.dispatch import JSON, TARGET, serve
from triskele.edge.http.keys import READ, WRITE
from triskele.edge.http.metrics import MEDIA_TYPE
from triskele.edge.http.mount import ApiContext
from triskele.edge.http.operations import Operation
from triskele.errors import AccessDenied
from triskele.server import operations as server_operations
from triskele.text import timestamps

Endpoint = Callable[[Request], Awaitable[Response]]


OPERATIONS: Sequence[Operation] = (*operations.OPERATIONS, *server_operations.OPERATIONS)


def build(context: ApiContext) -> Starlette:
    """The application."""
    by_path: dict[str, dict[str, Operation]] = {}
    for each in OPERATIONS:
        by_path.setdefault(each.path, {})[each.verb] = each
    served = _Served(context)
    routes = [Route(path, served.endpoint(methods), methods=[*methods]) for path, methods in by_path.items()]
    app = Starlette(
        routes=[*routes, *_document_routes(OPERATIONS, context)], exception_handlers={HTTPException: _refusal}
    )
    app.router.redirect_slashes = False
    return app


class _Served:
    """Serves operations, counts them, and reports their errors."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context

    def endpoint(self, methods: dict[str, Operation]) -> Endpoint:
        """What serves one path."""

        async def respond(request: Request) -> Response:
            # A route for GET takes HEAD too.
            operation = methods["GET" if request.method == "HEAD" else request.method]
            started = time.perf_counter()
            try:
                response = await serve(operation, request, self._context)
            except Exception as error:
                response = problems.response_of(error)
                self._context.metrics.count("triskele_errors_total", kind=type(error).__name__)
                if response.status_code >= 500:
                    self._context.log(f"{operation.name} failed: {error_place(error)}")
            await self._note(operation, request, response, time.perf_counter() - started)
            return response

        return respond

    async def _note(self, operation: Operation, request: Request, response: Response, took_s: float) -> None:
        metrics, status = self._context.metrics, response.status_code
        metrics.count("triskele_requests_total", operation=operation.name, status=str(status))
        metrics.observe("triskele_request_seconds", took_s, operation=operation.name)
        if operation.scope == WRITE and status == 200:
            metrics.observe("triskele_store_seconds", took_s)
        principal: Principal = request.scope[PRINCIPAL]
        address = request.client.host if request.client else ""
        target = request.scope.get(TARGET, "")
        if operation.scope != READ or status in (403, 429):
            try:
                access = Access(principal, operation.name, target, status, address)
                await to_thread.run_sync(self._context.policy.audit, access)
            except Exception as error:
                self._context.log(f"the audit log cannot be written: {error_place(error)}")
        if self._context.log_request is not None:
            self._context.log_request(
                {
                    "at": timestamps.to_text(timestamps.now()),
                    "request": secrets.token_hex(6),
                    "operation": operation.name,
                    "status": status,
                    "ms": round(took_s * 1000, 1),
                    "user": principal.user,
                    "key": principal.key,
                    "id": target,
                    "from": address,
                    "bytes": int(response.headers.get("content-length", 0)),
                }
            )


def _document_routes(operations: Sequence[Operation], context: ApiContext) -> list[Route]:
    found = openapi.document(operations)
    text, page = json.dumps(found), openapi.page(found)

    async def as_json(_: Request) -> Response:
        return Response(text, media_type=JSON)

    async def as_page(_: Request) -> Response:
        return HTMLResponse(page, headers=openapi.PAGE_HEADERS)

    async def style(_: Request) -> Response:
        return Response(openapi.STYLE, media_type="text/css")

    async def metrics(request: Request) -> Response:
        principal: Principal = request.scope[PRINCIPAL]
        try:
            principal.require(READ)
        except AccessDenied as error:
            return problems.response_of(error)
        gauges = await to_thread.run_sync(_gauges, context)
        return PlainTextResponse(context.metrics.render(gauges), media_type=MEDIA_TYPE)

    return [
        Route("/openapi.json", as_json),
        Route("/docs", as_page),
        Route("/docs/style.css", style),
        Route("/metrics", metrics),
    ]


def _gauges(context: ApiContext) -> dict[str, float]:
    return {"triskele_embed_waiting": context.waiting(), "triskele_engines_open": context.open_engines()}


async def _refusal(_: Request, error: Exception) -> Response:
    return problems.response_of(error)
