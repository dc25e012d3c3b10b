"""The pump between a client and servers that may end at any time."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from test_mcp_stream import INITIALIZE, META, raw

from triskele.edge.mcp import descriptions, messages
from triskele.edge.mcp.bridge import RESTARTED, Bridge
from triskele.edge.mcp.messages import TOO_LONG

Reply = Callable[[dict[str, Any]], Any]
# What a scripted server does instead of answering.
DIE = object()


class Server:
    """A server of which a test says how it answers each message; it notes what it was told."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.told: list[dict[str, Any]] = []
        self._ours, self._theirs = socket.socketpair()
        self.lines = self._ours.makefile("rb")

    def send(self, data: bytes) -> None:
        for line in data.splitlines():
            message = json.loads(line)
            self.told.append(message)
            answer = self.reply(message)
            if answer is DIE:
                self._theirs.close()
                raise BrokenPipeError
            if answer is not None:
                self._theirs.sendall(json.dumps(answer).encode() + b"\n")

    def ends_after(self, count: int) -> None:
        """End when so many messages have come."""
        while len(self.told) < count:
            time.sleep(0.001)
        self._theirs.close()

    def end(self) -> None:
        self._theirs.close()

    def close(self) -> None:
        self._theirs.close()

    def bury(self) -> None:
        self._theirs.close()
        self.lines.close()
        self._ours.close()


class Setting:
    """A client's side of a bridge over servers that follow each other."""

    def __init__(self, *servers: Server) -> None:
        self.servers = servers
        left = iter(servers)
        self._ours, theirs = socket.socketpair()
        self._ours.settimeout(20)
        self._heard = self._ours.makefile("rb")
        self._files = (theirs.makefile("rb"), theirs.makefile("wb"))
        theirs.close()
        made = Bridge(lambda: next(left), self._files[1])  # type: ignore[arg-type,return-value]
        self._thread = threading.Thread(target=made.run, args=(self._files[0],), daemon=True)
        self._thread.start()

    def say(self, message: dict[str, Any] | bytes) -> None:
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        self._ours.sendall(line + b"\n")

    def heard(self) -> dict[str, Any]:
        found = json.loads(self._heard.readline())
        assert isinstance(found, dict)
        return found

    def ask(self, id: Any, method: str, **params: Any) -> dict[str, Any]:
        self.say({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        answer = self.heard()
        assert answer["id"] == id
        return answer

    def end(self) -> None:
        self._ours.shutdown(socket.SHUT_WR)
        self._thread.join(20)
        assert not self._thread.is_alive()
        for each in (*self._files, self._heard, self._ours):
            each.close()
        for server in self.servers:
            server.bury()


def echo(message: dict[str, Any]) -> Any:
    """Answers every request with its method."""
    if "id" in message and "method" in message:
        return {"jsonrpc": "2.0", "id": message["id"], "result": {"method": message["method"]}}
    return None


def mute(message: dict[str, Any]) -> None:
    """Answers nothing."""


def dying(*, on: str) -> Reply:
    return lambda message: DIE if message.get("method") == on else echo(message)


@pytest.fixture
def begin() -> Iterator[Callable[..., Setting]]:
    made: list[Setting] = []

    def start(*servers: Server) -> Setting:
        made.append(Setting(*servers))
        return made[-1]

    yield start
    for setting in made:
        setting.end()


def call(tool: str, **more: Any) -> dict[str, Any]:
    return {"name": tool, "arguments": {}, **more}


def test_bridge_passes_messages_unchanged(begin: Callable[..., Setting]) -> None:
    server = Server(echo)
    setting = begin(server)
    assert setting.ask(1, "tools/list", cursor="ü…")["result"] == {"method": "tools/list"}
    assert setting.ask("one", "tools/call", **call("memory_store"))["result"] == {"method": "tools/call"}
    assert server.told[0] == {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"cursor": "ü…"}}


@pytest.mark.parametrize("tool", ["memory_store", "memory_reveal", "memory_recall", "x"])
def test_bridge_answers_lost_calls_with_an_error(begin: Callable[..., Setting], tool: str) -> None:
    first, second = Server(mute), Server(echo)
    setting = begin(first, second)
    setting.say({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call(tool)})
    first.ends_after(1)
    assert setting.heard()["result"] == {"content": [{"type": "text", "text": RESTARTED}], "isError": True}
    assert "unknown whether" in RESTARTED and "memory_list" in RESTARTED
    assert setting.ask(2, "tools/list")["result"] == {"method": "tools/list"}
    assert [message["method"] for message in second.told] == ["tools/list"]


def test_bridge_resends_undelivered_messages(begin: Callable[..., Setting]) -> None:
    first, second = Server(dying(on="tools/call")), Server(echo)
    setting = begin(first, second)
    assert setting.ask(7, "tools/call", **call("memory_store"))["result"] == {"method": "tools/call"}
    assert [message["id"] for message in second.told] == [7]


def test_bridge_completes_error_answers_of_the_newer_protocol(begin: Callable[..., Setting]) -> None:
    server = Server(mute)
    setting = begin(server)
    setting.say({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call("memory_store", _meta=META)})
    server.ends_after(1)
    assert setting.heard()["result"]["resultType"] == "complete"


def test_bridge_does_not_repeat_answered_requests(begin: Callable[..., Setting]) -> None:
    def answers_then_dies(message: dict[str, Any]) -> Any:
        return DIE if message["id"] == 2 else echo(message)

    second = Server(echo)
    setting = begin(Server(answers_then_dies), second)
    setting.ask(1, "tools/list")
    setting.ask(2, "ping")
    assert [message["id"] for message in second.told] == [2]


def test_bridge_repeats_the_handshake_for_the_next_server(begin: Callable[..., Setting]) -> None:
    first, second = Server(dying(on="tools/list")), Server(echo)
    setting = begin(first, second)
    setting.ask(0, "initialize", **INITIALIZE)
    setting.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert setting.ask(1, "tools/list")["result"] == {"method": "tools/list"}
    for server in (first, second):
        assert [message["method"] for message in server.told] == [
            "initialize",
            "notifications/initialized",
            "tools/list",
        ]
        assert server.told[0]["params"] == INITIALIZE
    assert first.told[0]["id"] != second.told[0]["id"] != 0


def test_bridge_leaves_unknown_handshakes_to_the_server(begin: Callable[..., Setting]) -> None:
    first, second = Server(dying(on="initialize")), Server(echo)
    setting = begin(first, second)
    answer = setting.ask(0, "initialize", **{**INITIALIZE, "protocolVersion": "2024-11-05"})
    assert answer["result"] == {"method": "initialize"}
    assert [message["id"] for message in second.told] == [0]


def test_bridge_answers_the_handshake_before_a_server_runs() -> None:
    asked = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}).encode()
    output = io.BytesIO()

    def dial() -> Server:
        assert json.loads(output.getvalue())["result"]["serverInfo"]["name"] == "triskele"
        raise TimeoutError

    with pytest.raises(TimeoutError):
        Bridge(dial, output).run(io.BytesIO(asked))


@pytest.mark.parametrize("version", descriptions.HANDSHAKES)
def test_bridge_answers_the_handshake_as_the_server_does(version: str) -> None:
    async def asked() -> tuple[Any, Any]:
        async with raw(lambda: pytest.fail("the engine was opened")) as older:
            await older.heard()
            first = await older.ask(1, "initialize", **{**INITIALIZE, "protocolVersion": version})
        async with raw(lambda: pytest.fail("the engine was opened")) as newer:
            await newer.heard()
            return first, await newer.ask(1, "server/discover", _meta=META)

    initialized, discovered = asyncio.run(asked())
    params = {**INITIALIZE, "protocolVersion": version}
    assert descriptions.handshake_answer({"id": 1, "method": "initialize", "params": params}) == initialized
    assert (
        descriptions.handshake_answer({"id": 1, "method": "server/discover", "params": {"_meta": META}}) == discovered
    )


@pytest.mark.parametrize(
    "message",
    [
        {"id": 1, "method": "initialize", "params": {}},
        {"id": 1, "method": "initialize", "params": {**INITIALIZE, "clientInfo": {"name": 7, "version": "1"}}},
        {"id": 1, "method": "initialize", "params": {**INITIALIZE, "capabilities": None}},
        {"id": 1, "method": "initialize", "params": []},
        {"method": "initialize", "params": INITIALIZE},
        {"id": 1, "method": "server/discover", "params": {"_meta": {**META, descriptions.MODERN_KEY: "2030-01-01"}}},
        {"id": 1, "method": "server/discover", "params": {"_meta": {descriptions.MODERN_KEY: "2026-07-28"}}},
        {"id": 1, "method": "tools/list", "params": {"_meta": META}},
    ],
    ids=str,
)
def test_bridge_leaves_other_messages_to_the_server(message: dict[str, Any]) -> None:
    assert descriptions.handshake_answer(message) is None


def question(message: dict[str, Any]) -> Any:
    """A server that asks the user before it answers a call."""
    if message.get("method") == "tools/call":
        return {"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": {}}
    return echo(message)


def test_bridge_passes_consent_only_to_the_asking_server(begin: Callable[..., Setting]) -> None:
    def asks_and_dies(message: dict[str, Any]) -> Any:
        return DIE if message.get("method") == "ping" else question(message)

    first, second = Server(asks_and_dies), Server(question)
    setting = begin(first, second)
    setting.say({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": call("memory_reveal")})
    old = setting.heard()
    setting.say({"jsonrpc": "2.0", "id": 6, "method": "ping"})
    assert setting.heard()["result"]["isError"]
    assert setting.heard()["result"] == {"method": "ping"}
    setting.say({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call("memory_reveal")})
    new = setting.heard()
    assert old["method"] == new["method"] == "elicitation/create" and old["id"] != new["id"]
    setting.say({"jsonrpc": "2.0", "id": old["id"], "result": {"action": "accept", "for": "the first"}})
    setting.say({"jsonrpc": "2.0", "id": new["id"], "result": {"action": "decline"}})
    for name in ("7:x:y", "2:x:y", "2:"):
        setting.say({"jsonrpc": "2.0", "id": name, "result": {"action": "accept"}})
    setting.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}})
    setting.ask(8, "ping")
    answers = [message for message in second.told if "result" in message]
    assert answers == [{"jsonrpc": "2.0", "id": 1, "result": {"action": "decline"}}]


def test_bridge_drops_cancelled_requests(begin: Callable[..., Setting]) -> None:
    def silent(message: dict[str, Any]) -> Any:
        return DIE if message.get("method") == "tools/list" else None

    second = Server(echo)
    setting = begin(Server(silent), second)
    setting.say({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call("memory_recall")})
    setting.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    assert setting.ask(2, "tools/list")["result"] == {"method": "tools/list"}
    assert [message["id"] for message in second.told] == [2]


def test_bridge_refuses_oversized_messages(monkeypatch: pytest.MonkeyPatch, begin: Callable[..., Setting]) -> None:
    monkeypatch.setattr(messages, "MAX_LINE", 1000)
    server = Server(echo)
    setting = begin(server)
    assert setting.ask(1, "tools/list", cursor="x" * 2000)["error"]["message"] == TOO_LONG
    assert server.told == []


NESTED = b'{"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": ' + b'{"a": ' * 300 + b"1" + b"}" * 301


@pytest.mark.parametrize(
    ("line", "id", "code"),
    [
        (b"no json", None, -32700),
        (b"\xff\xfe", None, -32700),
        (b"[" * 100_000, None, -32700),
        (b"[1]", None, -32600),
        (b'"x"', None, -32600),
        (NESTED, 7, -32600),
        (rb'{"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {"cursor": "\ud800"}}', 7, -32600),
        (rb'{"jsonrpc": "2.0", "id": "\udfff", "method": "tools/list"}', None, -32600),
    ],
)
def test_bridge_answers_invalid_lines_at_once(
    begin: Callable[..., Setting], line: bytes, id: int | None, code: int
) -> None:
    server = Server(echo)
    setting = begin(server)
    setting.say(line)
    answer = setting.heard()
    assert (answer["id"], answer["error"]["code"]) == (id, code), answer
    assert server.told == []
    assert setting.ask(1, "tools/list")["result"] == {"method": "tools/list"}


def test_bridge_accepts_surrogate_pairs(begin: Callable[..., Setting]) -> None:
    setting = begin(Server(echo))
    setting.say(rb'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"cursor": "\ud83d\ude00"}}')
    assert setting.heard()["result"] == {"method": "tools/list"}


def test_bridge_answers_and_discards_endless_lines(
    monkeypatch: pytest.MonkeyPatch, begin: Callable[..., Setting]
) -> None:
    monkeypatch.setattr(messages, "MAX_LINE", 1000)
    monkeypatch.setattr(messages, "_MAX_PARSED_LINE", 4000)
    setting = begin(Server(echo))
    setting.say(b'{"jsonrpc": "2.0", "id": 7, "method": "tools/list", "x": "' + b"x" * 1_000_000 + b'"}')
    assert setting.heard()["error"]["message"] == TOO_LONG
    assert setting.ask(1, "tools/list")["result"] == {"method": "tools/list"}


def test_bridge_passes_on_malformed_fields(begin: Callable[..., Setting]) -> None:
    line = b'{"method": 7, "params": 3}'
    server = Server(lambda message: echo(message) if message.get("id") == 1 else None)
    setting = begin(server)
    setting.say(line)
    assert setting.ask(1, "tools/list")["result"] == {"method": "tools/list"}
    assert server.told[0] == json.loads(line)


def test_bridge_answers_pending_requests_at_end_of_input() -> None:
    server = Server(echo)
    asked = b"".join(
        json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/list"}).encode() + b"\n" for number in range(50)
    )
    output = io.BytesIO()
    Bridge(lambda: server, output).run(io.BytesIO(asked.rstrip()))
    server.bury()
    assert [json.loads(line)["id"] for line in output.getvalue().splitlines()] == list(range(50))


def test_bridge_starts_no_server_without_messages() -> None:
    Bridge(lambda: pytest.fail("dialed"), io.BytesIO()).run(io.BytesIO(b"\n\n"))
