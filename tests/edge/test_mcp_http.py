"""MCP over HTTP: stateless, in JSON, for this machine alone."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from agents import installed

from triskele.edge.http.app import MAX_BODY, AppContext, Application, ListenerRules
from triskele.engine.local import LocalEngine

pytestmark = pytest.mark.anyio
Open = Callable[..., LocalEngine]

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
USUAL = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def client(engine: LocalEngine, host: str = "127.0.0.1:8377") -> AsyncIterator[httpx.AsyncClient]:
    app = Application(AppContext(lambda: engine, dict, print, lambda: None, lambda _: None))
    guarded = httpx.ASGITransport(app.for_listener(ListenerRules.local(port=8377)))
    async with httpx.AsyncClient(transport=guarded, base_url=f"http://{host}") as made:
        yield made
    await app.close()


def asked(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


async def modern(made: httpx.AsyncClient, tool: str, token: str = "", **arguments: Any) -> httpx.Response:
    proof = {"x-triskele-client-token": token} if token else {}
    headers = {**USUAL, **proof, "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": tool}
    body = asked("tools/call", name=tool, arguments=arguments, _meta=META)
    return await made.post("/mcp", json=body, headers=headers)


async def test_mcp_over_http_answers_both_protocols_in_json(open_engine: Open) -> None:
    engine = open_engine()
    async with client(engine) as made:
        stored = await modern(made, "memory_store", content="The mill turns")
        older = {**USUAL, "mcp-protocol-version": "2025-11-25"}
        body = asked("tools/call", name="memory_recall", arguments={"query": "mill"})
        found = await made.post("/mcp", json=body, headers=older)
    for answer in (stored, found):
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("application/json")
        assert "mcp-session-id" not in answer.headers
    assert stored.json()["result"]["structuredContent"]["action"] == "added"
    (hit,) = found.json()["result"]["structuredContent"]["hits"]
    assert hit["content"] == "The mill turns"


async def test_mcp_over_http_shows_private_memories_only_with_a_token(open_engine: Open) -> None:
    from dataclasses import replace

    from triskele.config import AgentSettings
    from triskele.types import Sensitivity

    engine = open_engine()
    engine.settings = replace(engine.settings, agents=AgentSettings(private_to=("raw",)))
    engine.remember("The mill is sick", sensitivity=Sensitivity.PRIVATE)
    async with client(engine) as made:
        proven = (await modern(made, "memory_recall", installed(engine, "raw"), query="mill")).json()
        named = (await modern(made, "memory_recall", query="mill")).json()
        body = asked("tools/call", name="memory_recall", arguments={"query": "mill"})
        nameless = (await made.post("/mcp", json=body, headers=USUAL)).json()
    assert len(proven["result"]["structuredContent"]["hits"]) == 1
    assert named["result"]["structuredContent"]["hits"] == nameless["result"]["structuredContent"]["hits"] == []


async def test_memory_reveal_is_refused_without_a_way_to_ask(open_engine: Open) -> None:
    engine = open_engine()
    id = engine.remember("my password is hunter2-Zx9!kq").id
    async with client(engine) as made:
        answer = (await modern(made, "memory_reveal", id=id)).json()
    assert answer["result"]["isError"] and "triskele secrets reveal" in answer["result"]["content"][0]["text"]


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example"}, 421),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "http://127.0.0.1.evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"content-type": "text/plain"}, 400),
    ],
    ids=str,
)
async def test_mcp_over_http_refuses_foreign_hosts_and_origins(
    open_engine: Open, version: str, headers: dict[str, str], status: int
) -> None:
    async with client(open_engine()) as made:
        body = json.dumps(asked("tools/list", _meta=META))
        sent = {**USUAL, "mcp-protocol-version": version, "mcp-method": "tools/list", **headers}
        assert (await made.post("/mcp", content=body, headers=sent)).status_code == status


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("id", [None, True, [], [1], {"a": 1}, 1.5, 2.0], ids=str)
async def test_mcp_over_http_refuses_ids_of_other_types(open_engine: Open, version: str, id: Any) -> None:
    async with client(open_engine()) as made:
        headers = {**USUAL, "mcp-protocol-version": version, "mcp-method": "tools/list"}
        answer = await made.post("/mcp", json={**asked("tools/list", _meta=META), "id": id}, headers=headers)
    assert answer.status_code == 400 and answer.json()["error"]["code"] == -32600


@pytest.mark.parametrize("host", ["localhost", "localhost:8377", "[::1]:8377", "127.0.0.1"])
async def test_mcp_over_http_accepts_the_names_of_this_machine(open_engine: Open, host: str) -> None:
    async with client(open_engine(), host) as made:
        origin = {"origin": f"http://{host}"}
        assert (await made.post("/mcp", json=asked("ping"), headers=USUAL | origin)).status_code == 200


async def test_mcp_over_http_refuses_oversized_bodies(open_engine: Open) -> None:
    async with client(open_engine()) as made:
        answer = await made.post("/mcp", content=b"x" * (MAX_BODY + 1), headers=USUAL)
    assert answer.status_code == 413
