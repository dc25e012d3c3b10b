"""What agents read before they call anything is static, complete and as agreed; a change must be made on purpose."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import frozen
import pytest
from agents import ERAS, connected
from mcp.server.mcpserver import MCPServer

from triskele.edge.http.access import AccessPolicy
from triskele.edge.mcp import descriptions
from triskele.edge.mcp.server import build
from triskele.engine.local import LocalEngine

GOLDEN = frozen.DATA / "mcp_surface.json"
# The tools of a server with users, and the one for hooks.
UNLISTED = frozen.DATA / "mcp_unlisted_tools.json"


class WithUsers(AccessPolicy):
    has_users = True


def surface(engine: LocalEngine, era: str) -> dict[str, Any]:
    """Everything that a client lists, as it goes over the wire."""

    async def listed() -> dict[str, Any]:
        async with connected(engine, era=era) as agent:
            client = agent.client
            return {
                "instructions": client.instructions,
                "tools": _plain((await client.list_tools()).tools),
                "resources": _plain((await client.list_resources()).resources),
                "templates": _plain((await client.list_resource_templates()).resource_templates),
                "prompts": _plain((await client.list_prompts()).prompts),
            }

    return asyncio.run(listed())


def _plain(things: Any) -> list[Any]:
    return [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in things]


@pytest.fixture(scope="module")
def no_engine() -> Any:
    """Nothing that is listed may depend on a store."""
    return None


@pytest.mark.parametrize("era", ERAS)
def test_mcp_surface_is_as_agreed(no_engine: Any, era: str) -> None:
    frozen.check(surface(no_engine, era), GOLDEN)


def test_unlisted_tools_are_as_agreed(no_engine: Any) -> None:
    server: Any = build(lambda: no_engine, policy=WithUsers(lambda: no_engine))
    listed = _plain(asyncio.run(MCPServer.list_tools(server)))
    frozen.check([tool for tool in listed if tool["name"] not in tools()], UNLISTED)


def tools() -> dict[str, Any]:
    return {tool["name"]: tool for tool in json.loads(GOLDEN.read_text())["tools"]}


def test_tools_are_listed_in_order() -> None:
    assert [name.removeprefix("memory_") for name in tools()] == (
        "store recall get list update forget link undo stats why_not reveal code_search code_symbol code_status".split()
    )


def test_tools_list_stays_small() -> None:
    assert len(json.dumps(list(tools().values()), ensure_ascii=False, separators=(",", ":")).encode()) <= 12_000


def test_tools_say_when_to_call_them() -> None:
    for tool in tools().values():
        assert "Call it " in tool["description"], tool["name"]


def test_tools_declare_hints() -> None:
    hints = {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}
    for tool in tools().values():
        assert set(tool["annotations"]) == hints
        assert tool["annotations"]["openWorldHint"] is False
        assert tool["title"] and tool["description"] and "outputSchema" not in tool
        assert tool["inputSchema"]["additionalProperties"] is False


def test_tool_arguments_are_bounded() -> None:
    for tool in tools().values():
        for name, schema in tool["inputSchema"]["properties"].items():
            for kind in schema.get("anyOf", [schema]):
                bounds = {"string": "maxLength", "array": "maxItems", "integer": "maximum", "number": "maximum"}
                needed = bounds.get(kind["type"])
                assert needed is None or needed in kind or "enum" in kind, (tool["name"], name)


def test_tool_descriptions_are_short() -> None:
    assert len(descriptions.INSTRUCTIONS) < 1000
    for tool in tools().values():
        assert len(tool["description"]) < 1000, tool["name"]


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("memory_store", ("Worth storing", "Not worth storing", "One fact per memory", "supersedes", "undo")),
        ("memory_recall", ("before you decide", "confidence", "superseded", "not instructions", "tool", "web")),
        ("memory_update", ("memory_store", "supersedes", "never lowered")),
        ("memory_forget", ("memory_undo",)),
        ("memory_reveal", ("consent", "journal")),
    ],
)
def test_tool_descriptions_name_what_agents_must_know(tool: str, words: tuple[str, ...]) -> None:
    assert all(word in tools()[tool]["description"] for word in words)


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
def test_initialize_answers_in_the_revision_of_the_client(version: str) -> None:
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "codex", "version": "0.165"}}
    answer = descriptions.handshake_answer({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    assert answer is not None and answer["result"]["protocolVersion"] == version


def test_server_discover_names_the_newest_revision() -> None:
    meta = {descriptions.MODERN_KEY: "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    answer = descriptions.handshake_answer({"id": 1, "method": "server/discover", "params": {"_meta": meta}})
    assert answer is not None and answer["result"]["supportedVersions"] == ["2026-07-28"]
