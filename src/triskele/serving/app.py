"""The application that the resident serves: health, the hooks of agents' clients, and MCP over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib import import_module
from math import isfinite
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import anyio
from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from triskele import __version__
from triskele.serving.guard import Guard, Rules, refused
from triskele.serving.versions import release

if TYPE_CHECKING:
    from triskele.engine import Engine

# More at once would only take the processor from each other.
_AT_ONCE = 4
MOST_LEFT = 32
_LONGEST_S = 30.0


@dataclass(frozen=True, slots=True)
class House:
    """What the application needs of the process that it runs in."""

    open_engine: Callable[[], Engine]
    state: Callable[[], dict[str, Any]]
    log: Callable[[str], None]
    noticed: Callable[[], None]


class Application:
    """The routes, for any number of listeners with rules of their own."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._limiter = CapacityLimiter(_AT_ONCE)
        self._left = threading.BoundedSemaphore(MOST_LEFT)
        self.mcp = McpMount(house.open_engine)
        self._routes = Starlette(
            routes=[
                Route("/health", self._health, methods=["GET"]),
                Route("/hook/{event}", self._hook, methods=["POST"]),
            ],
            exception_handlers={HTTPException: _refusal},
        )
        self._routes.router.redirect_slashes = False

    def for_listener(self, rules: Rules) -> ASGIApp:
        """The application behind the guard of one listener."""
        return Guard(self._routed, rules, self._house.noticed)

    async def _routed(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Mounted by hand: clients write /mcp, and a redirect to /mcp/ would cost each request another.
        if scope["path"] in ("/mcp", "/mcp/"):
            await self.mcp({**scope, "path": "/mcp/", "root_path": "/mcp"}, receive, send)
        else:
            await self._routes(scope, receive, send)

    async def _health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok", "version": __version__, "pid": os.getpid(), **self._house.state()})

    async def _hook(self, request: Request) -> Response:
        headers = {"X-Triskele-Version": __version__}
        if release(request.headers.get("x-triskele-version", "")) > release(__version__):
            headers["X-Triskele-Outdated"] = "a newer client asks for a newer resident"
        payload = _object(await request.body())
        if payload is None:
            return refused(400, "the event must be one JSON object")
        # Whatever the event says about these two itself: the installed command and the environment know them.
        payload["client"] = request.headers.get("x-triskele-client", "")
        payload["project"] = unquote(request.headers.get("x-triskele-project", ""), errors="replace")
        left_s = _seconds(request.headers.get("x-triskele-deadline-ms"))
        # After that nobody listens, and nothing may count as given.
        payload["answer_by"] = time.monotonic() + left_s
        text = ""
        with anyio.move_on_after(left_s):
            text = await to_thread.run_sync(
                self._respond, request.path_params["event"], payload, abandon_on_cancel=True, limiter=self._limiter
            )
        return Response(text.encode("utf-8", "replace"), 200 if text else 204, headers, "text/plain; charset=utf-8")

    def _respond(self, event: str, payload: dict[str, Any]) -> str:
        """The text for one event; whatever goes wrong is silence and a line in the log."""
        # Those whose time was up go on in their threads: a store that hangs must not gather them without end.
        if not self._left.acquire(blocking=False):
            return ""
        try:
            from triskele.serving.hook import events

            return events.respond(self._house.open_engine(), event, payload)
        except Exception as error:
            self._house.log(f"{event[:40]!r} failed: {where(error)}")
            return ""
        finally:
            self._left.release()


class McpMount:
    """MCP over HTTP, imported when it is first asked for: it costs more than everything else together."""

    def __init__(self, open_engine: Callable[[], Engine]) -> None:
        self._open_engine = open_engine
        self._app: asyncio.Future[ASGIApp] | None = None
        self._leaving = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if self._app is None:
            self._app = asyncio.get_running_loop().create_future()
            self._keeper = asyncio.create_task(self._keep(self._app))
        app = await asyncio.shield(self._app)
        await app(scope, receive, send)

    async def close(self) -> None:
        """End what the requests left running."""
        self._leaving.set()
        if self._keeper is not None:
            await self._keeper

    async def _keep(self, ready: asyncio.Future[ASGIApp]) -> None:
        # One task enters and leaves: what lives inside is bound to the task that began it.
        try:
            async with AsyncExitStack() as stack:
                made = await to_thread.run_sync(import_module, "triskele.serving.mcp.http")
                app, lifespan = made.mounted(self._open_engine)
                await stack.enter_async_context(lifespan())
                ready.set_result(app)
                await self._leaving.wait()
        except Exception as error:
            if ready.done():
                raise
            self._app = None
            ready.set_exception(error)


async def _refusal(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return refused(error.status_code, error.detail)


def where(error: BaseException) -> str:
    """The kind of an error and the line that raised it; never its words, which may quote a prompt."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    return f"{type(error).__name__} in {os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _seconds(milliseconds: str | None) -> float:
    try:
        asked = float(milliseconds or "nan") / 1000
    except ValueError:
        return _LONGEST_S
    return min(max(asked, 0.0), _LONGEST_S) if isfinite(asked) else _LONGEST_S
