"""`triskele mcp`: carries messages between a client's standard streams and the background process.

That process may end at any time. Requests that it leaves unanswered get an error, and the next message starts another.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from triskele.edge.hook import client
from triskele.edge.hook.client import STREAM, VERSION, release
from triskele.edge.mcp.descriptions import MODERN_KEY, Message, handshake_answer
from triskele.edge.mcp.messages import client_lines, failure, line_of, parsed, refusal

if TYPE_CHECKING:
    from triskele.engine.protocol import Engine

RESTARTED = (
    "the memory process restarted before it answered; if this was a change, it is unknown whether it was made:"
    " look with memory_list (newest first) before you repeat it"
)
START_S = 10.0
DRAIN_S = 20.0
_PAUSE_S = 0.02
_MAX_HEADER = 1000
_AGAIN = "triskele-again-"


class ResidentUnavailable(Exception):
    """No resident process answers, and none could be started."""


class Connection:
    """A stream to a server."""

    def __init__(self, wire: socket.socket) -> None:
        self._wire = wire
        self.lines = wire.makefile("rb")
        self.send = wire.sendall

    def end(self) -> None:
        """Send nothing more; the server answers what is left and closes the stream."""
        with suppress(OSError):
            self._wire.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the stream."""
        self.lines.close()
        self._wire.close()


class PendingRequest(NamedTuple):
    """A request that waits for its answer, and the server that has it."""

    id: Any
    method: str
    is_modern: bool

    def unanswered(self) -> Message:
        """What the client gets if the server ends."""
        if self.method != "tools/call":
            return failure(self.id, RESTARTED)
        result: Message = {"content": [{"type": "text", "text": RESTARTED}], "isError": True}
        if self.is_modern:
            result["resultType"] = "complete"
        return {"jsonrpc": "2.0", "id": self.id, "result": result}


class Bridge:
    """Carries messages both ways: this thread reads the client, another one each server."""

    def __init__(self, connect: Callable[[], Connection], output: BinaryIO) -> None:
        self._connect = connect
        self._output = output
        self._mutex, self._writing = threading.Lock(), threading.Lock()
        self._server: Connection | None = None
        self._number = 0
        self._reader = threading.Thread()
        self._pending: dict[str, PendingRequest] = {}
        self._sending = ""
        self._handshake: list[Message] = []
        self._is_initialized = False

    def run(self, source: BinaryIO) -> None:
        """Carry messages until the client closes its side and its requests are answered."""
        for line in client_lines(source):
            if line.strip():
                self._from_client(line if line.endswith(b"\n") else line + b"\n")
        if (server := self._server) is not None:
            server.end()
            self._reader.join(DRAIN_S)

    def _from_client(self, line: bytes) -> None:
        if (refused := refusal(line)) is not None:
            return self._write(line_of(refused))
        message: Message = json.loads(line)
        if "method" not in message:
            return self._answer_server(message)
        self._keep_handshake(message)
        if self._server is None and (greeting := handshake_answer(message)) is not None:
            self._is_initialized |= message["method"] == "initialize"
            self._write(line_of(greeting))
            self._open()
            return None
        return self._deliver(line, self._request(message))

    def _keep_handshake(self, message: Message) -> None:
        """Keep the handshake for the next server."""
        if message["method"] == "initialize":
            self._handshake = [message]
        elif message["method"] == "notifications/initialized":
            self._handshake = [*self._handshake[:1], message]

    def _request(self, message: Message) -> PendingRequest | None:
        """The request of a message, if it is one; a cancelled request waits for nothing."""
        method, params = str(message["method"]), message.get("params")
        details = params if isinstance(params, dict) else {}
        if method == "notifications/cancelled":
            self._answered(details.get("requestId"))
        if not isinstance(message.get("id"), str | int):
            return None
        meta = details.get("_meta")
        return PendingRequest(message["id"], method, isinstance(meta, dict) and MODERN_KEY in meta)

    def _deliver(self, line: bytes, request: PendingRequest | None) -> None:
        """Send a line to the server, or to a new one if that has ended."""
        while True:
            server = self._server or self._open()
            if request is not None:
                with self._mutex:
                    self._sending = _key(request.id)
                    self._pending[self._sending] = request
            try:
                server.send(line)
            except OSError:
                self._end(server)
                if request is None:
                    return
                # A server acts on whole lines alone, so this one can be sent again.
                continue
            with self._mutex:
                key, self._sending = self._sending, ""
            if self._server is not server:
                self._give_up([key])
            return

    def _answer_server(self, message: Message) -> None:
        """Give the client's answer to the server that asked, under its own id; a consent answers no other request."""
        number, _, id = str(message.get("id")).partition(":")
        if (server := self._server) is not None and number == str(self._number):
            with suppress(ValueError, OSError):
                server.send(line_of({**message, "id": json.loads(id)}))

    def _open(self) -> Connection:
        """Connect to a server, and repeat the handshake that the client knows as done."""
        server = self._connect()
        self._number += 1
        self._server = server
        self._reader = threading.Thread(target=self._read, args=(server, self._number), daemon=True)
        self._reader.start()
        for message in self._handshake if self._is_initialized else ():
            again = {"id": f"{_AGAIN}{self._number}"} if "id" in message else {}
            with suppress(OSError):
                server.send(line_of(message | again))
        return server

    def _read(self, server: Connection, number: int) -> None:
        """Carry the lines of one server until it ends."""
        # A file that is closed while it is read raises ValueError.
        with suppress(OSError, ValueError):
            for line in server.lines:
                self._from_server(line, number)
        self._end(server)

    def _from_server(self, line: bytes, number: int) -> None:
        message = parsed(line)
        if message is not None and "method" in message:
            self._write(line_of(_numbered(message, number)))
        elif message is not None and not str(message.get("id")).startswith(_AGAIN):
            request = self._answered(message.get("id"))
            self._is_initialized |= request is not None and request.method == "initialize"
            self._write(line)

    def _answered(self, id: Any) -> PendingRequest | None:
        """Take a request out of those that wait for an answer."""
        with self._mutex:
            return self._pending.pop(_key(id), None)

    def _end(self, server: Connection) -> None:
        """Close a server, and tell the client of the requests that it left."""
        with self._mutex:
            if self._server is not server:
                return
            self._server = None
            left = [key for key in self._pending if key != self._sending]
        server.close()
        self._give_up(left)

    def _give_up(self, keys: Iterable[str]) -> None:
        for key in keys:
            with self._mutex:
                request = self._pending.pop(key, None)
            if request is not None:
                self._write(line_of(request.unanswered()))

    def _write(self, line: bytes) -> None:
        with self._writing:
            self._output.write(line)
            self._output.flush()


def _numbered(message: Message, number: int) -> Message:
    """A server's request under an id that no later server uses."""
    params = message.get("params")
    if "id" in message:
        return {**message, "id": f"{number}:{_key(message['id'])}"}
    if message["method"] == "notifications/cancelled" and isinstance(params, dict):
        return {**message, "params": {**params, "requestId": f"{number}:{_key(params.get('requestId'))}"}}
    return message


def _key(id: Any) -> str:
    return json.dumps(id)


# Connections


def header(environ: Mapping[str, str]) -> bytes:
    """The first line of a stream: the version, the client's working folder, and its token."""
    fields: dict[str, Any] = {"version": VERSION, "folder": os.getcwd()}
    if any(choice := client.Address(environ).choice):
        fields["choice"] = choice
    for name, variable in (("project", "TRISKELE_PROJECT"), ("token", "TRISKELE_CLIENT_TOKEN")):
        if environ.get(variable):
            fields[name] = environ[variable]
    return line_of(fields)


def connect_resident(environ: Mapping[str, str]) -> Connection:
    """Connect to a background process of this version or newer, and start one if none runs."""
    address = client.Address(environ)
    ends = time.monotonic() + START_S
    is_started = False
    while (left_s := ends - time.monotonic()) > 0:
        try:
            wire = client.connect(address, STREAM, left_s)
        except (FileNotFoundError, ConnectionRefusedError):
            wire = None
        except (TimeoutError, ConnectionError, BlockingIOError):
            time.sleep(_PAUSE_S)
            continue
        if wire is not None and (server := _current(wire.detach(), header(environ), left_s)) is not None:
            return server
        if not is_started:
            client.start(address, environ)
            is_started = True
        time.sleep(_PAUSE_S)
    raise ResidentUnavailable(f"no answer within {START_S:.0f} seconds (see {address.file('err')})")


def _current(handle: int, first: bytes, timeout_s: float) -> Connection | None:
    """The connection, if the server answers and is not older than this version; else it is closed."""
    wire = socket.socket(fileno=handle)
    wire.settimeout(timeout_s)
    server = Connection(wire)
    with suppress(OSError, ValueError, TypeError, AttributeError, KeyError):
        server.send(first)
        answer = json.loads(server.lines.readline(_MAX_HEADER))
        if "refused" in answer:
            server.close()
            raise ResidentUnavailable(str(answer["refused"]))
        if release(answer["version"]) >= release(VERSION):
            wire.settimeout(None)
            return server
    server.close()
    return None


def serve_in_process(environ: Mapping[str, str], open_engine: Callable[[], Engine]) -> Connection:
    """Connect to a server in a thread of this process."""
    import asyncio

    from triskele.edge.mcp.server import serve_stream

    async def serve() -> None:
        await serve_stream(open_engine, *await asyncio.open_connection(sock=theirs))

    ours, theirs = socket.socketpair()
    threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
    server = Connection(ours)
    server.send(header(environ))
    server.lines.readline()
    return server
