"""Agents' clients on the server under test, without processes or sockets."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import Client
from mcp.types import CallToolResult, ElicitRequestParams, ElicitResult, Implementation

from triskele.edge.install.config_files import TokenFile, new_token
from triskele.edge.mcp.server import build
from triskele.engine.local import LocalEngine

ERAS = ("legacy", "auto")
SPOKEN = {"legacy": "2025-11-25", "auto": "2026-07-28"}
PROJECT = "garden"

Answer = Callable[[str], ElicitResult]


class Agent:
    """Calls tools and expects an answer, or a refusal."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The structured answer, of which the text must be a copy."""
        done = await self.client.call_tool(tool, arguments)
        assert not done.is_error, done.content
        assert json.loads(text_of(done)) == done.structured_content
        assert isinstance(done.structured_content, dict)
        return done.structured_content

    async def refusal(self, tool: str, **arguments: Any) -> str:
        """What a tool error says: one line."""
        done = await self.client.call_tool(tool, arguments)
        assert done.is_error, done.structured_content
        said = text_of(done)
        assert said and "\n" not in said and "Traceback" not in said
        return said

    async def store(self, content: str, **details: Any) -> str:
        """Store a text and give its id."""
        return str((await self.call("memory_store", content=content, **details))["id"])


def installed(engine: LocalEngine, client: str) -> str:
    """The token that an install would have written into the entry of a client."""
    token = new_token()
    TokenFile.of(engine.settings.home).add(client, token)
    return token


def text_of(done: CallToolResult) -> str:
    """The one text block of a tool's answer."""
    (block,) = done.content
    assert block.type == "text"
    return block.text


@asynccontextmanager
async def connected(
    engine: LocalEngine,
    *,
    era: str = "auto",
    name: str = "some-client",
    answer: Answer | None = None,
    folder: Path | None = None,
    token: str = "",
) -> AsyncIterator[Agent]:
    """An agent on a server over this engine; `answer` is what its user says when asked."""

    async def ask_user(_: Any, params: ElicitRequestParams) -> ElicitResult:
        assert answer is not None
        return answer(params.message)

    client = Client(
        build(lambda: engine, folder=folder, token=token),
        mode=era,
        client_info=Implementation(name=name, version="1"),
        elicitation_callback=ask_user if answer else None,
    )
    async with client:
        assert client.protocol_version == SPOKEN[era]
        yield Agent(client)
