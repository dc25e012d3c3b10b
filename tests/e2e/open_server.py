"""Our HTTP application for the conformance suite: without a token, with the suite's fixtures; its port comes first."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import fixture_tools
import uvicorn

from triskele.edge.http.app import AppContext, Application, ListenerRules
from triskele.edge.mcp import server
from triskele.edge.mcp.server import MemoryServer, build
from triskele.edge.process.listener import tcp_socket
from triskele.engine.local import LocalEngine
from triskele.engine.opening import open_memory


def build_with_fixtures(open_engine: Callable[[], LocalEngine], **details: Any) -> MemoryServer:
    """Our server and what the suite calls beside it."""
    server = build(open_engine, **details)
    fixture_tools.add_to(server)
    return server


async def main() -> None:
    """Serve until killed."""
    server.build = build_with_fixtures
    listening = tcp_socket("127.0.0.1", 0)
    port = listening.getsockname()[1]
    with open_memory() as engine:
        app = Application(AppContext(lambda: engine, dict, lambda line: None, lambda: None, lambda token: None))
        config = uvicorn.Config(app.for_listener(ListenerRules.local(None, port)), lifespan="off", log_level="warning")
        sys.stdout.write(f"{port}\n")
        sys.stdout.flush()
        await uvicorn.Server(config).serve(sockets=[listening])
        await app.close()


asyncio.run(main())
