"""The place of the API in the application: imported on the first request, because hooks must not wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anyio import to_thread
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

if TYPE_CHECKING:
    from triskele.edge.http.access import AccessPolicy
    from triskele.edge.http.metrics import Metrics

# Only an import may be larger than other requests.
IMPORT, MAX_IMPORT = "/v1/import", 32 * 1024 * 1024
_PATHS = ("/v1/{rest:path}", "/openapi.json", "/docs", "/docs/{rest:path}", "/metrics")


@dataclass(frozen=True, slots=True)
class ApiContext:
    """What the API needs of its process: the policy, the metrics, and where errors and requests are logged."""

    policy: AccessPolicy
    metrics: Metrics
    log: Callable[[str], None]
    log_request: Callable[[dict[str, Any]], None] | None = None
    waiting: Callable[[], int] = lambda: 0
    """how many contents of the open memories wait for their vectors"""
    open_engines: Callable[[], int] = lambda: 0


def routes(context: ApiContext) -> list[BaseRoute]:
    """The routes of the API."""
    api = _LazyApi(context)
    return [Route(path, api) for path in _PATHS]


class _LazyApi:
    def __init__(self, context: ApiContext) -> None:
        self._context = context
        self._app: ASGIApp | None = None
        self._opening = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._opening:
            if self._app is None:
                self._app = await to_thread.run_sync(self._built)
            app = self._app
        await app(scope, receive, send)

    def _built(self) -> ASGIApp:
        app: ASGIApp = import_module("triskele.edge.http.api").build(self._context)
        return app
