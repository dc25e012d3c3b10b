"""Connections of `triskele mcp` to a server: the resident process, started if needed, or one in this process."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from triskele.edge.hook import client
from triskele.edge.hook.client import STREAM, VERSION, release
from triskele.edge.mcp.bridge import Wire

if TYPE_CHECKING:
    import _socket

    from triskele.engine.protocol import Engine

START_S = 10.0
_PAUSE_S = 0.02
_CLOSE_S = 5.0
_MAX_HEADER = 1000


class ResidentUnavailable(Exception):
    """No resident process answers, and none could be started."""


class Connector:
    """Opens connections for a bridge, to the resident process first."""

    def __init__(
        self,
        environ: Mapping[str, str],
        open_engine: Callable[[], Engine],
        *,
        in_process: bool = False,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._environ = environ
        self._open_engine = open_engine
        self._in_process = in_process
        self._report = report

    def __call__(self) -> Wire:
        """A connection to a server that has answered the header."""
        if not self._in_process:
            try:
                return resident(self._environ)
            except (ResidentUnavailable, OSError, client.NoAnswer) as error:
                self._report(f"the resident process is not available, this process serves instead: {error}")
        return InProcessConnection(self._open_engine, header(self._environ))


def header(environ: Mapping[str, str]) -> bytes:
    """The first line of a stream: the version, the client's working folder, and its token."""
    said: dict[str, Any] = {"version": VERSION, "folder": os.getcwd()}
    if any(choice := client.address(environ).choice):
        said["choice"] = choice
    for name, variable in (("project", "TRISKELE_PROJECT"), ("token", "TRISKELE_CLIENT_TOKEN")):
        if environ.get(variable):
            said[name] = environ[variable]
    return json.dumps(said).encode() + b"\n"


def resident(environ: Mapping[str, str]) -> Wire:
    """A connection to a resident process of this version or newer; started if there is none."""
    place = client.address(environ)
    ends = time.monotonic() + START_S
    is_started = False
    while (left_s := ends - time.monotonic()) > 0:
        try:
            made = client.connect(place, STREAM, left_s)
        except (FileNotFoundError, ConnectionRefusedError):
            made = None
        except (TimeoutError, ConnectionError, BlockingIOError):
            time.sleep(_PAUSE_S)
            continue
        if made is not None and _is_current(made, header(environ)):
            made.settimeout(None)
            return made
        if not is_started:
            client.start(place, environ)
            is_started = True
        time.sleep(_PAUSE_S)
    raise ResidentUnavailable(f"no answer within {START_S:.0f} seconds (see {place.file('err')})")


def _is_current(wire: _socket.socket, first: bytes) -> bool:
    """Whether the server answers and is not older than this version; else the connection is closed."""
    answer = b""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        wire.sendall(first)
        while not answer.endswith(b"\n") and len(answer) < _MAX_HEADER:
            piece = wire.recv(1)
            if not piece:
                break
            answer += piece
        said = json.loads(answer)
        if "refused" in said:
            wire.close()
            raise ResidentUnavailable(str(said["refused"]))
        if release(said["version"]) >= release(VERSION):
            return True
    wire.close()
    return False


class InProcessConnection:
    """The server in a thread of this process, connected by a pair of sockets."""

    def __init__(self, open_engine: Callable[[], Engine], first: bytes) -> None:
        self._ours, theirs = socket.socketpair()
        self._thread = threading.Thread(target=_serve, args=(open_engine, theirs), daemon=True)
        self._thread.start()
        self._ours.sendall(first)
        while self._ours.recv(1) not in (b"\n", b""):
            continue

    def sendall(self, data: bytes) -> None:
        """Send all of it."""
        self._ours.sendall(data)

    def recv(self, size: int) -> bytes:
        """Bytes from the server."""
        return self._ours.recv(size)

    def close(self) -> None:
        """Close the connection and let the server finish."""
        with suppress(OSError):
            self._ours.shutdown(socket.SHUT_RDWR)
        self._thread.join(_CLOSE_S)
        self._ours.close()


def _serve(open_engine: Callable[[], Engine], theirs: socket.socket) -> None:
    import asyncio

    from triskele.edge.mcp.server import serve_stream

    async def converse() -> None:
        await serve_stream(open_engine, *await asyncio.open_connection(sock=theirs))

    asyncio.run(converse())
