"""The bounds of the HTTP server: how long a request may take to arrive, and how many connections may be open."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from triskele.edge.process import service
from triskele.edge.process.listener import tcp_socket
from triskele.edge.process.service import HttpServer

pytestmark = pytest.mark.anyio
REQUEST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the body of the request."""
    body = await Request(scope, receive).body()
    await PlainTextResponse(body)(scope, receive, send)


@asynccontextmanager
async def serving(app: ASGIApp = echo) -> AsyncIterator[socket.socket]:
    sock, stopping = tcp_socket("127.0.0.1", 0), asyncio.Event()
    running = asyncio.create_task(HttpServer(app, stopping).serve(sockets=[sock]))
    try:
        yield sock
    finally:
        stopping.set()
        await asyncio.wait_for(running, 20)


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(sock: socket.socket, data: bytes = b"") -> Connection:
    reader, writer = await asyncio.open_connection(*sock.getsockname())
    writer.write(data)
    return reader, writer


async def rest(connection: Connection) -> bytes:
    """Everything until the server closes; nothing if it had to drop what was still being sent."""
    try:
        return await asyncio.wait_for(connection[0].read(), 20)
    except ConnectionResetError:
        return b""
    finally:
        connection[1].close()


@pytest.mark.parametrize("sent", [b"", b"POST / HTTP/1.1\r\nHost: local", REQUEST, REQUEST + b"abc"])
async def test_a_request_that_does_not_arrive_in_time_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(service, "REQUEST_S", 0.2)
    async with serving() as sock:
        assert (await rest(await connect(sock, sent))).startswith(b"HTTP/1.1 408 ")


async def test_a_byte_now_and_then_gains_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "REQUEST_S", 0.5)
    async with serving() as sock:
        reader, writer = await connect(sock, b"POST / HTTP/1.1\r\nX: ")
        answer = asyncio.create_task(rest((reader, writer)))
        while not answer.done():
            writer.write(b"x")
            await asyncio.sleep(0.02)
        assert answer.result()[:13] in (b"HTTP/1.1 408 ", b"")


async def test_a_complete_request_is_answered_and_its_time_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "REQUEST_S", 0.3)
    async with serving() as sock:
        connection = await connect(sock, REQUEST + b"abcd")
        assert (await connection[0].readline()) == b"HTTP/1.1 200 OK\r\n"
        await asyncio.sleep(0.6)
        connection[1].write(REQUEST + b"efgh")
        await connection[0].readuntil(b"abcd")
        assert (await connection[0].readline()) == b"HTTP/1.1 200 OK\r\n"
        connection[1].close()


async def test_more_requests_than_allowed_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_CONNECTIONS", 3)
    answer = asyncio.Event()

    async def wait(scope: Scope, receive: Receive, send: Send) -> None:
        await answer.wait()
        await echo(scope, receive, send)

    async with serving(wait) as sock:
        held = [await connect(sock, REQUEST + b"abcd") for _ in range(3)]
        await asyncio.sleep(0.1)
        assert (await rest(await connect(sock))).startswith(b"HTTP/1.1 503 ")
        answer.set()
        for reader, _ in held:
            assert (await reader.readline()) == b"HTTP/1.1 200 OK\r\n"
        await asyncio.sleep(0.1)
        reader, writer = await connect(sock, REQUEST + b"abcd")
        assert (await reader.readline()) == b"HTTP/1.1 200 OK\r\n"
        for _, each in (*held, (reader, writer)):
            each.close()


@pytest.mark.parametrize("sent", [b"", b"POST / HTTP/1.1\r\nHost: local", REQUEST, REQUEST + b"abc"])
async def test_incomplete_requests_lock_out_no_complete_one(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(service, "MAX_CONNECTIONS", 3)
    monkeypatch.setattr(service, "MAX_WAITING", 5)
    async with serving() as sock:
        held = [await connect(sock, sent) for _ in range(20)]
        await asyncio.sleep(0.1)
        reader, writer = await connect(sock, REQUEST + b"abcd")
        assert (await reader.readline()) == b"HTTP/1.1 200 OK\r\n"
        assert (await rest(held[0])).startswith(b"HTTP/1.1 408 ")
        for _, each in (*held, (reader, writer)):
            each.close()


async def test_curation_does_not_start_before_the_first_answer_could() -> None:
    steps: list[str] = []
    ticked, caught_up = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def settle() -> None:
        steps.append("tick")
        if steps.count("tick") == 3:
            ticked.set()

    def process_new_memories() -> None:
        steps.append("curation")
        loop.call_soon_threadsafe(caught_up.set)

    host = SimpleNamespace(
        idle_s=0.01,
        is_idle=lambda: False,
        is_replaced=lambda: False,
        is_outdated=lambda: False,
        has_notes=lambda: False,
        warm_up=lambda: steps.append("warm"),
        process_new_memories=process_new_memories,
    )
    listener = SimpleNamespace(is_reachable=lambda: True)
    tested = service.Service(cast("Any", None), cast("Any", host), cast("Any", listener), [])
    stopping = asyncio.Event()
    watching = asyncio.create_task(tested._watch(cast("Any", SimpleNamespace(settle=settle)), stopping))
    await asyncio.wait_for(ticked.wait(), 20)
    tested._warm_up()
    await asyncio.wait_for(caught_up.wait(), 20)
    stopping.set()
    await asyncio.wait_for(watching, 20)
    assert steps.index("warm") < steps.index("curation")


async def test_a_fault_in_what_answers_left_does_not_keep_curation() -> None:
    caught_up, loop = asyncio.Event(), asyncio.get_running_loop()
    written: list[str] = []

    def write_notes() -> None:
        written.append("notes")
        raise ValueError("a fault")

    host = SimpleNamespace(
        idle_s=0.01,
        is_idle=lambda: False,
        is_replaced=lambda: False,
        is_outdated=lambda: False,
        has_notes=lambda: True,
        write_notes=write_notes,
        warm_up=lambda: None,
        process_new_memories=lambda: loop.call_soon_threadsafe(caught_up.set),
    )
    listener = SimpleNamespace(is_reachable=lambda: True)
    tested = service.Service(cast("Any", None), cast("Any", host), cast("Any", listener), [])
    tested._warm_up()
    stopping = asyncio.Event()
    watching = asyncio.create_task(tested._watch(cast("Any", SimpleNamespace(settle=lambda: None)), stopping))
    await asyncio.wait_for(caught_up.wait(), 20)
    stopping.set()
    await asyncio.wait_for(watching, 20)
    assert written
