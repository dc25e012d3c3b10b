"""The server that agents talk to: tools, resources and prompts over one memory."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp.server import CacheHint
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, GetPromptResult, InputRequiredResult

from triskele import __version__
from triskele.engine import Engine
from triskele.serving import failures
from triskele.serving.mcp import resources, wording
from triskele.serving.mcp.caller import Place
from triskele.serving.mcp.greeting import LISTED_MS
from triskele.serving.mcp.toolbox import tools

# Descriptions are static as long as the version is.
_STATIC = CacheHint(ttl_ms=LISTED_MS, scope="public")


class MemoryServer(MCPServer[Place]):
    """The SDK's server, but for a prompt that cannot be given: that is the client's mistake, and told as one."""

    async def get_prompt(
        self, name: str, arguments: dict[str, Any] | None = None, context: Context[Place, Any] | None = None
    ) -> GetPromptResult | InputRequiredResult:
        """A prompt by its name."""
        try:
            return await super().get_prompt(name, arguments, context)
        except ValueError as error:
            raise MCPError(INVALID_PARAMS, failures.line(failures.said(error))) from None


def build(open_engine: Callable[[], Engine], *, folder: Path | None = None, project: str | None = None) -> MemoryServer:
    """A server for requests from one place; the engine is opened when a request needs it."""
    place = Place(open_engine, folder, project)

    @asynccontextmanager
    async def lifespan(_: MCPServer[Place]) -> AsyncIterator[Place]:
        yield place

    _hush()
    server = MemoryServer(
        wording.NAME,
        title=wording.TITLE,
        description=wording.DESCRIPTION,
        instructions=wording.INSTRUCTIONS,
        version=__version__,
        tools=list(tools()),
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
    resources.add_to(server, place)
    return server


def _hush() -> None:
    """Keep the SDK from deciding where a program logs, and from logging what tools were asked and answered."""
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(logging.NullHandler())
    logging.getLogger("mcp").setLevel(logging.WARNING)
