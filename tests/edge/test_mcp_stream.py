"""One stream of messages between a reader and a writer: its first line, its end, and what does not belong there."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from triskele import __version__
from triskele.edge.mcp import messages, server
from triskele.engine.local import LocalEngine

pytestmark = pytest.mark.anyio
Open = Callable[..., LocalEngine]

HEADER = {"version": __version__, "folder": "/"}
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "1"},
}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Raw:
    """The client's end of a stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, served: asyncio.Task[None]) -> None:
        self.reader, self.writer, self.served = reader, writer, served

    def say(self, message: Any) -> None:
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.writer.write(line + b"\n")

    async def heard(self) -> Any:
        return json.loads(await asyncio.wait_for(self.reader.readline(), 20))

    async def ask(self, id: int, method: str, **params: Any) -> Any:
        self.say({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        answer = await self.heard()
        assert answer["id"] == id, answer
        return answer

    async def call(self, id: int, tool: str, **arguments: Any) -> Any:
        return (await self.ask(id, "tools/call", name=tool, arguments=arguments, _meta=META))["result"]


@asynccontextmanager
async def raw(open_engine: Callable[[], LocalEngine], header: Any = HEADER) -> AsyncIterator[Raw]:
    ours, theirs = socket.socketpair()

    async def serve() -> None:
        await server.serve_stream(open_engine, *await asyncio.open_connection(sock=theirs))

    served = asyncio.create_task(serve())
    reader, writer = await asyncio.open_connection(sock=ours, limit=2**23)
    client = Raw(reader, writer, served)
    client.say(header)
    try:
        yield client
    finally:
        writer.close()
        await asyncio.wait_for(served, 20)


async def test_stream_serves_the_older_protocol(open_engine: Open) -> None:
    async with raw(open_engine) as client:
        assert await client.heard() == {"version": __version__}
        answer = await client.ask(1, "initialize", **INITIALIZE)
        assert answer["result"]["serverInfo"]["name"] == "triskele"
        assert answer["result"]["protocolVersion"] == "2025-11-25"
        client.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        done = await client.ask(2, "tools/call", name="memory_stats", arguments={})
        assert done["result"]["structuredContent"]["memories"] == 0


async def test_stream_serves_the_newer_protocol_without_handshake(open_engine: Open) -> None:
    async with raw(open_engine) as client:
        await client.heard()
        answer = await client.ask(1, "server/discover", _meta=META)
        assert "2026-07-28" in answer["result"]["supportedVersions"]
        assert (await client.call(2, "memory_stats"))["structuredContent"]["memories"] == 0


async def test_stream_header_chooses_the_project(
    open_engine: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine()
    monkeypatch.setattr(type(engine.settings), "project", None)
    (tmp_path / "shop" / ".git").mkdir(parents=True)

    async def project(**header: Any) -> Any:
        async with raw(lambda: engine, {"version": __version__, **header}) as client:
            await client.heard()
            return (await client.call(1, "memory_stats"))["structuredContent"]["project"]

    assert await project(folder=str(tmp_path / "shop")) == "shop"
    assert await project(folder=str(tmp_path / "shop"), project="given") == "given"
    assert await project(folder="relative") == ""
    assert await project(folder=7, project=["x"]) == ""
    assert await project() == ""


@pytest.mark.parametrize("header", [b"", b"GET / HTTP/1.1", b"[]", b'"x"', b"\xff\xfe", b"[" * 100_000])
async def test_stream_closes_without_a_header(open_engine: Open, header: bytes) -> None:
    async with raw(open_engine, header) as client:
        client.writer.write_eof()
        assert await asyncio.wait_for(client.reader.read(), 20) == b""


NESTED = '{"jsonrpc": "2.0", "id": 7, "method": "ping", "params": ' + '{"a": ' * 300 + "1" + "}" * 301
SURROGATE = r'{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "\ud800"}}'
ODD_IDS = (b"null", b"true", b"false", b"[]", b"[1]", b"{}", b'{"a": 1}', b"1.5", b"2.0", b"1e300", b"NaN")
REFUSED = [
    (b"not json", -32700, None),
    (b"\x00\xff", -32700, None),
    (b"[" * 100_000, -32700, None),
    (b"[1, 2]", -32600, None),
    (b'{"jsonrpc": "1.0"}', -32600, None),
    (NESTED.encode(), -32600, 7),
    (SURROGATE.encode(), -32600, 7),
    *((b'{"jsonrpc": "2.0", "id": %b, "method": "ping"}' % id, -32600, None) for id in ODD_IDS),
    *((b'{"jsonrpc": "2.0", "id": %b}' % id, -32600, None) for id in (*ODD_IDS, b"1")),
]


@pytest.mark.parametrize(("line", "code", "id"), REFUSED)
async def test_stream_answers_invalid_lines_at_once(open_engine: Open, line: bytes, code: int, id: int | None) -> None:
    async with raw(open_engine) as client:
        await client.heard()
        client.say(b"   ")
        client.say(line)
        answer = await client.heard()
        assert (answer["error"]["code"], answer["id"]) == (code, id), answer
        assert (await client.call(1, "memory_stats"))["structuredContent"]["memories"] == 0


async def test_stream_survives_a_cancelled_id_of_any_type(open_engine: Open) -> None:
    async with raw(open_engine) as client:
        await client.heard()
        for id in ([], {}, None, True, 1.5):
            client.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
        assert (await client.call(1, "memory_stats"))["structuredContent"]["memories"] == 0


async def test_stream_refuses_oversized_messages(open_engine: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_LINE", 200_000)
    monkeypatch.setattr(messages, "MAX_LINE", 200_000)
    engine = open_engine()
    async with raw(lambda: engine) as client:
        await client.heard()
        store = {"name": "memory_store", "arguments": {"content": "The end of a long line"}, "_meta": META}
        message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": store}
        client.say(b" " * 1_000_000 + json.dumps(message).encode())
        assert (await client.heard())["error"]["message"] == messages.TOO_LONG
        await client.call(1, "memory_store", content="A short line")
    assert [memory.content for memory in engine.browse().memories] == ["A short line"]


async def test_stream_answers_pending_requests_at_its_end(open_engine: Open) -> None:
    engine = open_engine()
    async with raw(lambda: engine) as client:
        await client.heard()
        for number in range(5):
            params = {"name": "memory_store", "arguments": {"content": f"Fact {number}"}, "_meta": META}
            client.say({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
        client.writer.write_eof()
        answers = [await client.heard() for _ in range(5)]
        assert await client.reader.read() == b""
    assert {answer["id"] for answer in answers} == set(range(5))
    assert engine.store.census().memories == 5


async def test_stream_ends_if_the_client_vanishes(open_engine: Open) -> None:
    async with raw(open_engine) as client:
        await client.heard()
        client.say({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": META}})
        client.writer.transport.abort()
        await asyncio.wait_for(client.served, 20)


async def test_stream_reports_a_store_that_cannot_open() -> None:
    def refuse() -> LocalEngine:
        raise OSError(28, "No space left on device")

    async with raw(refuse) as client:
        await client.heard()
        done = await client.call(1, "memory_stats")
    assert done["isError"] and done["content"][0]["text"] == "No space left on device"
