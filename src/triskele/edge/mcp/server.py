"""The MCP server, over a stream of JSON-RPC lines and over HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server import CacheHint
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp.types import (
    INVALID_PARAMS,
    GetPromptResult,
    InputRequiredResult,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)
from mcp.types import Tool as MCPTool
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from triskele import __version__
from triskele.edge import error_messages
from triskele.edge.hook.client import NO_CHOICE, OTHER_STORE
from triskele.edge.http.access import OWNER, AccessPolicy, Principal
from triskele.edge.http.app import MAX_BODY, SENDER, AppContext
from triskele.edge.install.table import HOOK_TOOL
from triskele.edge.mcp import descriptions, registry
from triskele.edge.mcp.caller import CallerContext
from triskele.edge.mcp.descriptions import LISTED_MS
from triskele.edge.mcp.messages import MAX_LINE, not_a_message, parsed, refusal
from triskele.edge.mcp.registry import tools
from triskele.engine.protocol import Engine

Inbound = SessionMessage | Exception
# Descriptions are static as long as the version is.
_STATIC = CacheHint(ttl_ms=LISTED_MS, scope="public")


class MemoryServer(MCPServer[CallerContext]):
    """The SDK's server, without the hook tool in its list."""

    async def converse(
        self, inbound: MemoryObjectReceiveStream[Inbound], outbound: MemoryObjectSendStream[SessionMessage]
    ) -> None:
        """Serve one stream of messages until it ends."""
        await self._lowlevel_server.run(inbound, outbound, self._lowlevel_server.create_initialization_options())

    async def list_tools(self) -> list[MCPTool]:
        """The tools for models, which need not pay for the hook tool."""
        return [tool for tool in await super().list_tools() if tool.name != HOOK_TOOL]

    async def get_prompt(
        self, name: str, arguments: dict[str, Any] | None = None, context: Context[CallerContext, Any] | None = None
    ) -> GetPromptResult | InputRequiredResult:
        """A prompt by its name."""
        try:
            return await super().get_prompt(name, arguments, context)
        except ValueError as error:
            raise MCPError(INVALID_PARAMS, error_messages.error_line(error)) from None


def build(
    open_engine: Callable[[], Engine],
    *,
    folder: Path | None = None,
    project: str | None = None,
    token: str = "",
    policy: AccessPolicy | None = None,
    sender: Callable[[], Principal] = lambda: OWNER,
) -> MemoryServer:
    """Build a server; the first request opens the engine."""
    source = CallerContext(policy or AccessPolicy(open_engine), folder, project, token, sender)

    @asynccontextmanager
    async def lifespan(_: MCPServer[CallerContext]) -> AsyncIterator[CallerContext]:
        yield source

    _quiet_logging()
    server = MemoryServer(
        descriptions.NAME,
        title=descriptions.TITLE,
        description=descriptions.DESCRIPTION,
        instructions=descriptions.INSTRUCTIONS,
        version=__version__,
        tools=list(tools(shares=source.policy.has_users)),
        log_level="WARNING",
        lifespan=lifespan,
        cache_hints={
            "tools/list": _STATIC,
            "prompts/list": _STATIC,
            "resources/templates/list": _STATIC,
            "server/discover": _STATIC,
        },
        subscriptions=False,
    )
    registry.add_resources(server, source)
    return server


def _quiet_logging() -> None:
    """Keep the SDK from configuring logging and logging texts of memories."""
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(logging.NullHandler())
    logging.getLogger("mcp").setLevel(logging.WARNING)


_HEADER_S = 10.0
_DRAIN_S = 4.0
_PIECE = 65536


async def serve_stream(
    open_engine: Callable[[], Engine],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    serves: Callable[[Sequence[str]], bool] = lambda _: True,
) -> None:
    """Serve one connection, after a line of each side about itself.

    A client whose environment chooses another store is refused there.
    """
    stream, header = _Stream(reader, writer), None
    try:
        with anyio.move_on_after(_HEADER_S):
            header = parsed(await anext(stream.lines, b""))
        if header is None:
            return
        choice = header.get("choice", NO_CHOICE)
        is_choice = isinstance(choice, list | tuple) and [type(part) for part in choice] == [str] * len(NO_CHOICE)
        if not is_choice or not serves(choice):
            await stream.write(json.dumps({"version": __version__, "refused": OTHER_STORE}))
            return
        await stream.write(json.dumps({"version": __version__}))
        folder, project, token = header.get("folder"), header.get("project"), header.get("token")
        server = build(
            open_engine,
            folder=Path(folder) if isinstance(folder, str) and folder else None,
            project=project if isinstance(project, str) else None,
            token=token if isinstance(token, str) else "",
        )
        inbound, to_serve = anyio.create_memory_object_stream[Inbound](0)
        answered, to_answer = anyio.create_memory_object_stream[SessionMessage](0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream.receive, inbound)
            tasks.start_soon(stream.send, to_answer)
            await server.converse(to_serve, answered)
            tasks.cancel_scope.cancel()
    finally:
        await stream.lines.aclose()
        writer.close()


class _Stream:
    """Messages in both directions as lines, and the ids of requests without an answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.lines = _lines(reader)
        self._open: set[RequestId] = set()
        self._answered = anyio.Event()

    async def write(self, line: str) -> None:
        """Write a line, unless the client has closed the connection."""
        with suppress(ConnectionError):
            self._writer.write(f"{line}\n".encode())
            await self._writer.drain()

    async def receive(self, inbound: MemoryObjectSendStream[Inbound]) -> None:
        """Pass messages on until the client closes its side and its requests are answered."""
        async with inbound:
            async for line in self.lines:
                try:
                    refused = refusal(line)
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False) if refused is None else None
                except ValueError:
                    refused, message = not_a_message(line), None
                if message is None:
                    await self.write(json.dumps(refused))
                    continue
                if isinstance(message, JSONRPCRequest):
                    self._open.add(message.id)
                elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
                    self._close((message.params or {}).get("requestId"))
                await inbound.send(SessionMessage(message))
            # The SDK would drop the requests that are open.
            with anyio.move_on_after(_DRAIN_S):
                while self._open:
                    self._answered = anyio.Event()
                    await self._answered.wait()

    async def send(self, to_answer: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Write the server's messages."""
        async with to_answer:
            async for reply in to_answer:
                await self.write(reply.message.model_dump_json(by_alias=True, exclude_unset=True))
                if isinstance(reply.message, JSONRPCResponse | JSONRPCError):
                    self._close(reply.message.id)

    def _close(self, id: Any) -> None:
        # The id that a client cancels may be of any type.
        with suppress(TypeError):
            self._open.discard(id)
        self._answered.set()


async def _lines(reader: asyncio.StreamReader) -> AsyncGenerator[bytes]:
    """Lines up to a length; of a longer one only the beginning."""
    buffer, is_dropped = bytearray(), False
    with suppress(ConnectionError):
        while piece := await reader.read(_PIECE):
            *ends, rest = piece.split(b"\n")
            for end in ends:
                line, buffer = bytes(buffer + end), bytearray()
                if not is_dropped and line.strip():
                    yield line
                is_dropped = False
            buffer += rest
            if len(buffer) > MAX_LINE:
                if not is_dropped:
                    yield bytes(buffer)
                buffer, is_dropped = bytearray(), True


def http_app(context: AppContext) -> Starlette:
    """The application for /mcp; the guard has checked host, origin and key."""
    app = build(context.open_engine, policy=context.policy, sender=SENDER.get).streamable_http_app(
        json_response=True,
        stateless_http=True,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        max_request_body_size=MAX_BODY,
    )
    app.add_middleware(_OnlyMessages)
    return app


class _OnlyMessages:
    """Answers bodies that the SDK would drop without an answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a body, or pass it on."""
        if scope["type"] == "http" and scope["method"] == "POST":
            body = await Request(scope, receive).body()
            if (refused := refusal(body)) is not None:
                return await JSONResponse(refused, 400)(scope, receive, send)
            first: list[Message] = [{"type": "http.request", "body": body}]
            return await self._app(scope, lambda: _next(first, receive), send)
        return await self._app(scope, receive, send)


async def _next(first: list[Message], receive: Receive) -> Message:
    return first.pop() if first else await receive()
