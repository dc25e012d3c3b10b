"""A server on this machine that answers as a hosted model does, and fails in the ways they fail."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from triskele.models.egress import Bill, Departure

KEY = "sk-loopback-Zq81Lm20Xv77"
DIMENSIONS = 8

Answer = tuple[int, Any]
Service = Callable[[str, dict[str, Any]], Answer]
Turn = Callable[["Handler"], None]


class Book:
    """A ledger that is two lists."""

    def __init__(self) -> None:
        self.departures: list[Departure] = []
        self.bills: list[Bill] = []

    def leaving(self, departure: Departure) -> None:
        self.departures.append(departure)

    def billed(self, bill: Bill) -> None:
        self.bills.append(bill)


@dataclass(frozen=True)
class Seen:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Loopback:
    """What a test may read and set."""

    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    turns: deque[Turn] = field(default_factory=deque)
    ended: threading.Event = field(default_factory=threading.Event)
    streams: list[bytearray] = field(default_factory=list)

    @property
    def captured(self) -> bytes:
        """Every byte that arrived, connection by connection: lines of requests, headers and bodies."""
        return b"\n".join(map(bytes, self.streams))

    @property
    def sent(self) -> str:
        """Every byte that arrived in bodies and addresses, as one text."""
        return "\n".join(f"{seen.path} {json.dumps(seen.body, ensure_ascii=False)}" for seen in self.seen)


class _Noted:
    """A stream that keeps what is read from it."""

    def __init__(self, stream: Any, kept: bytearray) -> None:
        self._stream = stream
        self._kept = kept

    def readline(self, limit: int = -1) -> bytes:
        return self._keep(self._stream.readline(limit))

    def read(self, size: int = -1) -> bytes:
        return self._keep(self._stream.read(size))

    def close(self) -> None:
        self._stream.close()

    def _keep(self, content: bytes) -> bytes:
        self._kept += content
        return content


class Handler(BaseHTTPRequestHandler):
    """Takes the next turn that a test has set, or lets the service answer."""

    protocol_version = "HTTP/1.1"
    # Headers and body are written one after the other: without this the second would wait for an acknowledgement.
    disable_nagle_algorithm = True
    state: Loopback
    service: Service

    def setup(self) -> None:
        super().setup()
        kept = bytearray()
        self.state.streams.append(kept)
        self.rfile = _Noted(self.rfile, kept)  # type: ignore[assignment]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.state.seen.append(Seen(self.path, dict(self.headers.items()), body))
        if self.state.turns:
            self.state.turns.popleft()(self)
        elif self.headers.get("Authorization") not in (f"Bearer {KEY}",):
            self.reply(401, {"error": {"code": "invalid_api_key", "message": self.headers.get("Authorization")}})
        else:
            self.reply(*type(self).service(self.path, body))

    def reply(self, status: int, answer: Any, **headers: str) -> None:
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: Any) -> None:
        pass


def refuse(status: int, **headers: str) -> Turn:
    """An error whose words repeat the request, as some servers do."""

    def turn(handler: Handler) -> None:
        said = {"message": str(handler.state.seen[-1]), "code": "server_says_no"}
        handler.reply(status, {"error": said}, **headers)

    return turn


def hang(handler: Handler) -> None:
    """No answer until the test is over."""
    handler.state.ended.wait(30)
    handler.close_connection = True


def trickle(handler: Handler) -> None:
    """An answer that never ends, a few bytes at a time: no single wait is long."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    while not handler.state.ended.wait(0.02):
        try:
            handler.wfile.write(b" ")
        except OSError:
            break
    handler.close_connection = True


def trickle_headers(handler: Handler) -> None:
    """The same before the answer has even begun; it ends after a while, so that the test ends."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    for number in range(150):
        if handler.state.ended.wait(0.02):
            break
        try:
            handler.wfile.write(b"X-%d: slow\r\n" % number)
        except OSError:
            break
    handler.close_connection = True


def half(handler: Handler) -> None:
    """The beginning of an answer, then silence."""
    handler.send_response(200)
    handler.send_header("Content-Length", "5000")
    handler.end_headers()
    handler.wfile.write(b'{"data": [{"index": 0, "embedding": [0.1, 0.2')
    handler.close_connection = True


def say(answer: Any, **headers: str) -> Turn:
    """Exactly this, with a good status."""
    return lambda handler: handler.reply(200, answer, **headers)


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *args: Any) -> None:
        """A client that hangs up early is what some tests are about."""


@contextmanager
def serving(service: Service) -> Iterator[Loopback]:
    """A server with a service, until the block ends."""
    state = Loopback()
    handler = type("Bound", (Handler,), {"state": state, "service": staticmethod(service)})
    server = _Quiet(("127.0.0.1", 0), handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


def vector(text: str, dimensions: int = DIMENSIONS) -> list[float]:
    """Numbers that depend on the text, not of unit length."""
    digest = hashlib.sha512(text.encode()).digest() * (1 + dimensions // 64)
    return [byte / 16 - 7 for byte in digest[:dimensions]]
