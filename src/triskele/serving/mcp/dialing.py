"""How `triskele mcp` reaches a server: the resident, started if need be, or one inside this process."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from triskele.serving import hook_client
from triskele.serving.hook_client import STREAM, VERSION
from triskele.serving.mcp.bridge import Wire
from triskele.serving.versions import release

if TYPE_CHECKING:
    import _socket

    from triskele.engine import Engine

START_S = 10.0
_PAUSE_S = 0.02
_LEAVE_S = 5.0
_MAX_GREETING = 1000


class Absent(Exception):
    """No resident answers, and none could be started."""


class Dialer:
    """Opens connections for a bridge; the resident first, unless told otherwise."""

    def __init__(
        self,
        environ: Mapping[str, str],
        open_engine: Callable[[], Engine],
        *,
        in_process: bool = False,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._environ = environ
        self._open_engine = open_engine
        self._in_process = in_process
        self._tell = tell

    def __call__(self) -> Wire:
        """A connection to a server that has greeted."""
        if not self._in_process:
            try:
                return resident(self._environ)
            except (Absent, OSError, hook_client.Silence) as error:
                self._tell(f"no resident, so this process serves by itself: {error}")
        return Inside(self._open_engine, header(self._environ))


def header(environ: Mapping[str, str]) -> bytes:
    """The first line of a stream: our version, and where the client works."""
    said = {"version": VERSION, "folder": os.getcwd()}
    if environ.get("TRISKELE_PROJECT"):
        said["project"] = environ["TRISKELE_PROJECT"]
    return json.dumps(said).encode() + b"\n"


def resident(environ: Mapping[str, str]) -> Wire:
    """A connection to the resident of this version or a newer one; started if there is none."""
    place = hook_client.address(environ)
    ends = time.monotonic() + START_S
    is_started = False
    while (left_s := ends - time.monotonic()) > 0:
        try:
            made = hook_client.connect(place, STREAM, left_s)
        except (FileNotFoundError, ConnectionRefusedError):
            made = None
        except (TimeoutError, ConnectionError, BlockingIOError):
            time.sleep(_PAUSE_S)
            continue
        if made is not None and _is_current(made, header(environ)):
            made.settimeout(None)
            return made
        if not is_started:
            hook_client.start(place, environ)
            is_started = True
        time.sleep(_PAUSE_S)
    raise Absent(f"none answered within {START_S:.0f} seconds (see {place.file('err')})")


def _is_current(wire: _socket.socket, first: bytes) -> bool:
    """Whether the server greets, and is as new as we are; else the connection is closed."""
    greeting = b""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        wire.sendall(first)
        while not greeting.endswith(b"\n") and len(greeting) < _MAX_GREETING:
            piece = wire.recv(1)
            if not piece:
                break
            greeting += piece
        if release(json.loads(greeting)["version"]) >= release(VERSION):
            return True
    wire.close()
    return False


class Inside:
    """The same server in a thread of this process, behind a pair of sockets."""

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
        """What the server says."""
        return self._ours.recv(size)

    def close(self) -> None:
        """Let the server end what it began."""
        with suppress(OSError):
            self._ours.shutdown(socket.SHUT_RDWR)
        self._thread.join(_LEAVE_S)
        self._ours.close()


def _serve(open_engine: Callable[[], Engine], theirs: socket.socket) -> None:
    import asyncio

    from triskele.serving.mcp.stream import serve

    async def converse() -> None:
        await serve(open_engine, *await asyncio.open_connection(sock=theirs))

    asyncio.run(converse())
