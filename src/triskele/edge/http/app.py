"""The HTTP application of the background process, behind its guard."""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from importlib import import_module
from math import isfinite
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import anyio
import anyio.lowlevel
from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from triskele import __version__
from triskele.edge.error_messages import error_line
from triskele.edge.hook.client import NO_CHOICE, OTHER_STORE, release
from triskele.edge.http.access import (
    IS_OWNER,
    OWNER,
    PRINCIPAL,
    PROBE,
    READ,
    Access,
    AccessPolicy,
    Principal,
)
from triskele.edge.http.connections import PRIVATE_HEADER, VERSION_HEADER
from triskele.edge.http.metrics import Metrics
from triskele.edge.http.problems import refusal, refused, response_of
from triskele.edge.mcp.messages import parsed
from triskele.edge.process import command_line, connect
from triskele.edge.web.sessions import PREFIX, SESSIONS, Sessions, is_page
from triskele.errors import BadInput, StoreNewer, StoreUnavailable, UnknownEvent
from triskele.replies.rooms import HookCall
from triskele.text import timestamps

if TYPE_CHECKING:
    from triskele.engine.local import LocalEngine
    from triskele.engine.protocol import Engine

# More hooks at once only compete for the processor.
_HOOKS_AT_ONCE = 4
MAX_ABANDONED = 32
_MAX_DEADLINE_S = 30.0
_HOOK, _PROMPT = "/hook/", "user-prompt-submit"
# The principal of the request that is served, for resources of MCP, which do not get it.
SENDER: ContextVar[Principal] = ContextVar("triskele.sender")
_API_PATHS = ("/v1/{rest:path}", "/openapi.json", "/docs", "/docs/{rest:path}", "/metrics")


@dataclass(frozen=True, slots=True)
class AppContext:
    """What the application needs of the process that it runs in."""

    open_engine: Callable[[], Engine]
    state: Callable[[], dict[str, Any]]
    log: Callable[[str], None]
    note_use: Callable[[], None]
    client_of: Callable[[str], str | None]
    serves: Callable[[Sequence[str]], bool] = lambda _: True
    page_address: Callable[[], str] = lambda: ""
    """where a browser reaches the pages; the first call opens the listener"""
    leave: Callable[[], object] = lambda: None
    """ends the process"""
    users: AccessPolicy | None = None
    """what admits requests on a server with users"""
    sessions: Sessions | None = None
    """how users sign in to the pages of a server with users"""
    log_request: Callable[[dict[str, Any]], None] | None = None
    open_memories: Callable[[], Sequence[LocalEngine]] = tuple
    """the memories that this process has open"""
    metrics: Metrics = field(default_factory=Metrics)

    @property
    def policy(self) -> AccessPolicy:
        """What admits requests; on a personal machine there is one owner."""
        return self.users or AccessPolicy(self.open_engine)

    async def note(
        self, request: Request, response: Response, operation: str, target: str, took_s: float, *, is_change: bool
    ) -> None:
        """Count and log a request, and audit one that changed something or was refused."""
        principal, status = request.scope[PRINCIPAL], response.status_code
        access = Access(principal, operation, target, status, request.client.host if request.client else "")
        self.metrics.count("triskele_requests_total", operation=operation, status=str(status))
        self.metrics.observe("triskele_request_seconds", took_s, operation=operation)
        if is_change or access.is_refused:
            try:
                await to_thread.run_sync(self.policy.audit, access)
            except Exception as error:
                self.log(f"the audit log cannot be written: {error_place(error)}")
        if self.log_request is not None:
            self.log_request(
                {
                    "at": timestamps.to_text(timestamps.now()),
                    "request": secrets.token_hex(6),
                    "operation": operation,
                    "status": status,
                    "ms": round(took_s * 1000, 1),
                    "user": principal.user,
                    "key": principal.key,
                    "id": target,
                    "from": access.address,
                    "bytes": int(response.headers.get("content-length", 0)),
                }
            )


class Application:
    """The routes, shared by several listeners with their own rules."""

    def __init__(self, context: AppContext) -> None:
        self._context = context
        self._limiter = CapacityLimiter(_HOOKS_AT_ONCE)
        self._abandoned = threading.BoundedSemaphore(MAX_ABANDONED)
        self._mcp = LazyApp("triskele.edge.mcp.server", context)
        self.sessions = Sessions()
        self._api = LazyApp("triskele.edge.http.dispatch", context)
        self._pages = LazyApp("triskele.edge.web.site", context)
        self._routes = Starlette(
            routes=[
                Route("/health", self._health, methods=["GET"]),
                Route(command_line.PATH, self._command_line, methods=["POST"]),
                Route(SIGN_IN, self._sign_in, methods=["POST"]),
                *(Route(path, self._api) for path in _API_PATHS),
            ],
            exception_handlers={HTTPException: refusal},
        )
        self._routes.router.redirect_slashes = False

    def for_listener(self, rules: ListenerRules) -> ASGIApp:
        """The application behind the guard of one listener."""
        sessions = self.sessions if rules.verify is None else self._context.sessions
        return Guard(self._routed, rules, self._context.note_use, sessions)

    async def close(self) -> None:
        """End what requests left running."""
        for app in (self._mcp, self._api, self._pages):
            await app.close()

    async def _routed(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].startswith(_HOOK):
            # Past the routes and their middleware: every prompt waits for this one.
            response = await self._hook(Request(scope, receive))
            await response(scope, receive, send)
        elif scope["path"] in ("/mcp", "/mcp/"):
            await self._mcp({**scope, "path": "/mcp"}, receive, send)
        elif is_page(scope["path"]):
            await self._pages(scope, receive, send)
        else:
            await self._routes(scope, receive, send)

    async def _health(self, request: Request) -> Response:
        is_probe = request.scope[PRINCIPAL] is PROBE
        details = {} if is_probe else {"pid": os.getpid(), **self._context.state()}
        return JSONResponse({"status": "ok", "version": __version__, **details})

    async def _hook(self, request: Request) -> Response:
        event = request.scope["path"].removeprefix(_HOOK)
        if request.method != "POST" or "/" in event or not event:
            return refused(*((404, "Not Found") if request.method == "POST" else (405, "Method Not Allowed")))
        headers = {}
        version = request.headers.get("x-triskele-version", "")
        if version != __version__ and release(version) > release(__version__):
            headers["X-Triskele-Outdated"] = "the client is newer than this process"
        is_owner = bool(request.scope.get(IS_OWNER))
        # The key determines the memory.
        if is_owner and not self._serves(request):
            return refused(409, OTHER_STORE)
        payload = parsed(await request.body())
        if payload is None:
            return refused(400, "the body must be one JSON object")
        left_s = _seconds(request.headers.get("x-triskele-deadline-ms"))
        # The server reads that a client has left, as while the process was starting, only after its request.
        await anyio.lowlevel.checkpoint()
        is_gone = await request.is_disconnected()
        # After that the client has stopped waiting, and nothing counts as given.
        ends = time.monotonic() + (0.0 if is_gone else left_s)
        call = self._call(request, event, payload)
        text = ""
        with anyio.move_on_after(left_s):
            text = await to_thread.run_sync(
                self._respond, call, ends, request.scope, abandon_on_cancel=True, limiter=self._limiter
            )
        return Response(text.encode("utf-8", "replace"), 200 if text else 204, headers, "text/plain; charset=utf-8")

    def _call(self, request: Request, event: str, payload: Mapping[str, Any]) -> HookCall:
        """The call behind a request, whose headers say who calls."""
        is_owner = bool(request.scope.get(IS_OWNER))
        call = HookCall.of_payload(event, payload)
        if not is_owner:
            # Paths name files of another machine.
            call = replace(call, transcript="", folder="")
        return replace(
            call,
            # The holder of a key reads private memories anyway; the settings of its machine name the agents that may.
            sees_private=not is_owner and request.headers.get(PRIVATE_HEADER) == "yes",
            # A client's own word for its name opens nothing: only its token does.
            client=self._context.client_of(request.headers.get("x-triskele-client-token", "")) or "",
            project=unquote(request.headers.get("x-triskele-project", ""), errors="replace"),
        )

    async def _command_line(self, request: Request) -> Response:
        """The project and store of a command; 409 asks the command to open the store itself."""
        if not request.scope.get(IS_OWNER):
            raise HTTPException(404)

        def opened() -> Engine:
            command = command_line.CommandLine.of_headers(request.headers)
            if command is None:
                raise BadInput("the request names no command")
            return command.engine(connect.store_of(self._context.policy.engine_of(OWNER)))

        try:
            engine = await to_thread.run_sync(opened)
        except Exception as error:
            # Its own process meets the same error, and reports it.
            return refused(409, error_line(error))
        return JSONResponse({"project": engine.project, "address": connect.address_of(engine.settings)})

    async def _sign_in(self, request: Request) -> Response:
        """Give this user's own processes an address that opens the pages."""
        if not request.scope.get(IS_OWNER):
            raise HTTPException(404)
        if not self._serves(request):
            return refused(409, OTHER_STORE)
        address = f"{self._context.page_address()}{PREFIX}"
        # Where users have keys, a key opens the pages.
        return JSONResponse({"url": f"{address}#{self.sessions.code()}" if self._context.users is None else address})

    def _serves(self, request: Request) -> bool:
        choice = [unquote(part) for part in request.headers.get("x-triskele-choice", ",,,").split(",")]
        return len(choice) == len(NO_CHOICE) and self._context.serves(choice)

    def _engine_of(self, principal: Principal) -> Engine:
        if principal.user is None:
            return self._context.open_engine()
        principal.require(READ)
        self._context.policy.admit(principal)
        return self._context.policy.engine_of(principal)

    def _respond(self, call: HookCall, ends: float, scope: Scope) -> str:
        """The text for an event; empty after an error, which is logged."""
        # Requests past their deadline still run in their threads: bound them, in case the store hangs.
        if not self._abandoned.acquire(blocking=False):
            return ""
        started = time.perf_counter()
        try:
            agents = self._engine_of(scope[PRINCIPAL]).agents
            injection = agents.respond(replace(call, deadline_s=ends - time.monotonic()))
            if call.event == _PROMPT:
                result = "memories" if injection.text else "nothing"
                self._context.metrics.count("triskele_prompts_total", result=result)
            if injection.note and scope.get(IS_OWNER):
                self._context.log(f"{call.event} gave nothing: {injection.note}")
            return injection.text
        except Exception as error:
            # Neither of them quotes a prompt.
            why = f": {error_line(error)}" if isinstance(error, StoreUnavailable | UnknownEvent) else ""
            self._context.log(f"{call.event[:40]!r} failed: {error_place(error)}{why}")
            if isinstance(error, StoreNewer) and self._context.users is None:
                # A newer program has converted the store: the next hook starts that one.
                self._context.leave()
            return ""
        finally:
            self._abandoned.release()
            self._context.metrics.observe("triskele_inject_seconds", time.perf_counter() - started)


class LazyApp:
    """An application that is imported on the first request, because that is slow; `close` ends its lifespan."""

    def __init__(self, module: str, context: AppContext) -> None:
        self._module = module
        self._context = context
        self._app: asyncio.Future[Starlette] | None = None
        self._stopping = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if self._app is None:
            self._app = asyncio.get_running_loop().create_future()
            self._keeper = asyncio.create_task(self._keep(self._app))
        app = await asyncio.shield(self._app)
        await app(scope, receive, send)

    async def close(self) -> None:
        """End what requests left running."""
        self._stopping.set()
        if self._keeper is not None:
            await self._keeper

    async def _keep(self, ready: asyncio.Future[Starlette]) -> None:
        # The task that enters the lifespan must be the one that leaves it.
        try:
            app: Starlette = await to_thread.run_sync(lambda: import_module(self._module).http_app(self._context))
            async with app.router.lifespan_context(app):
                ready.set_result(app)
                await self._stopping.wait()
        except Exception as error:
            if ready.done():
                raise
            self._app = None
            ready.set_exception(error)


def error_place(error: BaseException) -> str:
    """The type and line of an error, never its message."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    return f"{type(error).__name__} in {os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"


def _seconds(milliseconds: str | None) -> float:
    try:
        seconds = float(milliseconds or "nan") / 1000
    except ValueError:
        return _MAX_DEADLINE_S
    return min(max(seconds, 0.0), _MAX_DEADLINE_S) if isfinite(seconds) else _MAX_DEADLINE_S


# Only an import may be larger than other requests.
MAX_BODY, MAX_IMPORT, _IMPORT = 1_000_000, 32 * 1024 * 1024, "/v1/import"
_NO_TOKEN = "a token is required: send it as Authorization: Bearer TOKEN"
_UNKNOWN_TOKEN = "unknown token: check it, or ask for another one"
_BEARER = "bearer "
_READING = ("GET", "HEAD")
SIGN_IN = "/sign-in"
# The session of a browser opens them too; they hold nothing of a memory.
_DOCUMENTS = ("/openapi.json", "/docs", "/docs/style.css")
_PROBED = ("/health", "/metrics")
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
METADATA_PATH = "/.well-known/oauth-protected-resource"


@dataclass(frozen=True, slots=True)
class ListenerRules:
    """The hosts, origins and keys that a listener accepts."""

    hosts: frozenset[str]
    token: str | None = None
    is_owner: bool = False
    """whether only processes of this user reach the listener: they may run commands"""
    verify: Callable[[str], Principal | None] | None = None
    """who a key belongs to, on a server with users"""
    origins: frozenset[str] = frozenset()
    proxies: frozenset[str] = frozenset()
    """the addresses of proxies whose X-Forwarded-For is trusted"""
    metrics_key: str = ""
    """what opens /health and /metrics to probes of other machines"""
    challenge: str = "Bearer"
    metadata: dict[str, Any] | None = None
    """the metadata of the protected resource, for requests without a key"""

    @classmethod
    def local(cls, token: str | None = None, port: int | None = None) -> ListenerRules:
        """The rules of a listener that only this machine can reach."""
        names = frozenset({"localhost", "127.0.0.1", "[::1]"})
        hosts = names if port is None else names | {f"{name}:{port}" for name in names}
        return cls(hosts, token, origins=frozenset(f"http://{host}" for host in hosts))


class Guard:
    """Passes on requests that keep the rules, and reports them."""

    def __init__(
        self, app: ASGIApp, rules: ListenerRules, note_use: Callable[[], None], sessions: Sessions | None = None
    ) -> None:
        self._app = app
        self._rules = rules
        self._note_use = note_use
        # Without any, no page opens.
        self._sessions = sessions or Sessions()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or refuse a request."""
        if scope["type"] != "http":
            return
        request = Request(scope)
        if (public := self._public(request)) is not None:
            response = self._refusal(request, 0) or public
            await response(scope, receive, send)
            return
        most = MAX_IMPORT if scope["path"] == _IMPORT else MAX_BODY
        principal = PROBE if self._is_probe(request) else None
        refusal = self._refusal(request, most) if principal is None else None
        if refusal is None and principal is None:
            refusal, principal = await self._admitted(request)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        self._note_use()
        if principal is not None:
            SENDER.set(principal)
        checked = {
            IS_OWNER: self._rules.is_owner,
            PRINCIPAL: principal,
            SESSIONS: self._sessions,
            "client": self._client(request),
        }
        try:
            await self._app({**scope, **checked}, _bounded(receive, most), _versioned(send))
        except HTTPException as error:
            await response_of(error)(scope, receive, send)
        finally:
            self._note_use()

    def _public(self, request: Request) -> Response | None:
        """The response to a request that needs no key."""
        if request.method not in _READING:
            return None
        path = request.scope["path"]
        if self._rules.metadata and path.startswith(METADATA_PATH):
            # What a client needs to know before it has a key (RFC 9728).
            return JSONResponse(self._rules.metadata)
        return RedirectResponse(PREFIX, 303) if path == "/" else None

    def _is_probe(self, request: Request) -> bool:
        """Whether a probe asks, with the key of probes or from this machine."""
        if request.scope["path"] not in _PROBED or request.method not in _READING:
            return False
        headers, rules = request.headers.getlist("authorization"), self._rules
        if rules.metrics_key and _holds(headers, rules.metrics_key):
            # Its host is free: a probe names a server by its address, and no page of a browser has the key.
            return True
        # A proxy on this machine passes on requests of others, and names them or the public host.
        is_direct = not headers and {"forwarded", "x-forwarded-for"}.isdisjoint(request.headers)
        hosts = {request.url.hostname, request.client.host if request.client else ""}
        is_near = rules.verify is not None and hosts <= _LOOPBACK
        return is_direct and is_near and self._refusal(request, 0) is None

    def _refusal(self, request: Request, most: int) -> Response | None:
        if request.headers.getlist("host") not in ([host] for host in self._rules.hosts):
            return refused(
                421, "the Host header names another server: the setting server.allowed_hosts lists the names"
            )
        if not set(request.headers.getlist("origin")) <= self._rules.origins:
            return refused(403, "requests from pages of other sites are refused")
        length = request.headers.get("content-length", "0")
        if length.isdigit() and int(length) > most:
            return refused(413, _too_large(most))
        return None

    async def _admitted(self, request: Request) -> tuple[Response | None, Principal | None]:
        """The sender of a request, or a refusal without key or session."""
        path = request.scope["path"]
        if is_page(path):
            return await self._sessions.admitted(request)
        headers, rules, principal = request.headers.getlist("authorization"), self._rules, None
        if rules.verify is None:
            principal = OWNER if rules.token is None or _holds(headers, rules.token) else None
        elif len(headers) == 1 and headers[0].lower().startswith(_BEARER):
            principal = await to_thread.run_sync(rules.verify, headers[0][len(_BEARER) :])
        if not headers and path in _DOCUMENTS and request.method in _READING:
            principal = principal or await self._sessions.principal(request)
        if principal is not None:
            return None, principal
        reason = _UNKNOWN_TOKEN if request.headers.get("authorization") else _NO_TOKEN
        return refused(401, reason, {"WWW-Authenticate": rules.challenge}), None

    def _client(self, request: Request) -> tuple[str, int] | None:
        """The address of the nearest hop that is no trusted proxy."""
        peer = request.scope.get("client")
        hops = [hop.strip() for value in request.headers.getlist("x-forwarded-for") for hop in value.split(",")]
        while peer is not None and peer[0] in self._rules.proxies and hops:
            peer = (hops.pop(), 0)
        return peer


def _versioned(send: Send) -> Send:
    """Add the version of this process to responses."""

    async def next_message(message: Message) -> None:
        if message["type"] == "http.response.start":
            version = (VERSION_HEADER.lower().encode(), __version__.encode())
            message = {**message, "headers": [*message.get("headers", ()), version]}
        await send(message)

    return next_message


def _too_large(most: int) -> str:
    return f"a request may have at most {most:,} bytes"


def _holds(headers: Iterable[str], token: str) -> bool:
    wanted = f"Bearer {token}".encode()
    return [hmac.compare_digest(text.encode("utf-8", "replace"), wanted) for text in headers] == [True]


def _bounded(receive: Receive, most: int) -> Receive:
    taken, is_complete = 0, False

    async def next_message() -> Message:
        nonlocal taken, is_complete
        message = await receive()
        if message["type"] == "http.disconnect" and not is_complete:
            raise HTTPException(408, "the request did not arrive completely")
        is_complete = is_complete or not message.get("more_body", False)
        taken += len(message.get("body", b""))
        if taken > most:
            raise HTTPException(413, _too_large(most))
        return message

    return next_message
