"""MCP over streamable HTTP: stateless, answers in JSON, for this machine alone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import ASGIApp

from triskele.engine import Engine
from triskele.serving.guard import MAX_BODY
from triskele.serving.mcp.server import build

_HOSTS = ("127.0.0.1", "localhost", "[::1]")
SECURITY = TransportSecuritySettings(
    enable_dns_rebinding_protection=True,
    allowed_hosts=[name for host in _HOSTS for name in (host, f"{host}:*")],
    allowed_origins=[name for host in _HOSTS for name in (f"http://{host}", f"http://{host}:*")],
)


def mounted(open_engine: Callable[[], Engine]) -> tuple[ASGIApp, Callable[[], AbstractAsyncContextManager[None]]]:
    """The application for /mcp and what must be entered, once, before it is asked."""
    manager = StreamableHTTPSessionManager(
        build(open_engine)._lowlevel_server,
        json_response=True,
        stateless=True,
        security_settings=SECURITY,
        max_request_body_size=MAX_BODY,
    )
    return StreamableHTTPASGIApp(manager), manager.run
