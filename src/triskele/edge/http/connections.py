"""How requests reach a memory elsewhere: over HTTP on a server, over a socket in the background process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from triskele.edge.hook import client as hook_client
from triskele.errors import BadInput, StoreClosed, Unavailable

if TYPE_CHECKING:
    import httpx

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
# Headers of a program on another machine, percent-encoded: the agent that it acts for, and its project.
CLIENT_HEADER, PROJECT_HEADER = "X-Triskele-Client", "X-Triskele-Project"
# Whether the agent of a request may see private memories, by the settings of its machine.
PRIVATE_HEADER = "X-Triskele-Private"
# How far the store has come with what a client wrote; sent back, reads of another instance are as new.
POSITION_HEADER = "X-Triskele-Position"
# What an export left out, as JSON; the version of the server.
REPORT_HEADER, VERSION_HEADER = "X-Triskele-Report", "X-Triskele-Version"
# Requests to the background process may wait for it to rewrite its files.
_SERVER_S, _RESIDENT_S = 60.0, 600.0
OK = 200

Headers = Mapping[str, str]
Body = bytes | Iterator[bytes]


class Reply(NamedTuple):
    """The response to one request; names of headers are in lower case."""

    status: int
    reason: str
    headers: Headers
    content: bytes


class ServerConnection:
    """HTTP to a server, with a key."""

    def __init__(self, url: str, key: str, *, transport: httpx.BaseTransport | None = None) -> None:
        import httpx

        self.url = checked_address(url)
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise BadInput("the key is empty or holds an invalid character: copy it again")
        headers = {"Authorization": f"Bearer {key}"}
        # The environment is not read: a variable set in a project's folder could redirect requests.
        self._http = httpx.Client(base_url=self.url, headers=headers, trust_env=False, transport=transport)

    def request(
        self, verb: str, path: str, headers: Headers, body: Body = b"", wait_s: float = 0, target: Path | None = None
    ) -> Reply:
        """Send a request; the content of a successful response goes to the target, a new file."""
        import httpx

        timeout = httpx.Timeout(wait_s or _SERVER_S, connect=min(wait_s or _SERVER_S, _SERVER_S))
        self.refuse_closed()
        try:
            with self._http.stream(verb, path, headers=dict(headers), content=body, timeout=timeout) as response:
                if target is not None and response.status_code == OK:
                    with target.open("xb") as file:
                        for piece in response.iter_bytes():
                            file.write(piece)
                    content = b""
                else:
                    content = response.read()
                return Reply(response.status_code, response.reason_phrase, dict(response.headers), content)
        except (httpx.TransportError, httpx.StreamError) as error:
            # Its message may hold the request.
            raise Unavailable(f"the server {self.url} does not answer ({type(error).__name__})") from None

    def refuse_closed(self) -> None:
        """Raise if the connection is closed."""
        if self._http.is_closed:
            raise StoreClosed(f"the memory on {self.url} is closed: connect again")

    def close(self) -> None:
        """Close it."""
        self._http.close()


class ResidentConnection:
    """The socket of the background process; the headers of each request say who asks."""

    def __init__(self, address: hook_client.Address, headers: Headers) -> None:
        self.url = address.socket(hook_client.HTTP)
        self._address = address
        self._headers = headers
        self._is_closed = False

    def request(
        self, verb: str, path: str, headers: Headers, body: Body = b"", wait_s: float = 0, target: Path | None = None
    ) -> Reply:
        """Send a request; the content of a successful response goes to the target, a new file."""
        self.refuse_closed()
        lines = tuple(f"{name}: {value}" for name, value in {**self._headers, **headers}.items())
        content = body if isinstance(body, bytes) else b"".join(body)
        try:
            status, head, text = hook_client.exchange(
                self._address, f"{verb} {path}", lines, content, wait_s or _RESIDENT_S
            )
            first, *rest = head.decode("latin-1").split("\r\n")
            fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
            if len(text) < int(fields.get("content-length", 0)):
                raise ConnectionResetError
        except (FileNotFoundError, ConnectionRefusedError):
            raise Unavailable("the background process has ended, and nothing was sent: run the command again") from None
        except (OSError, ValueError, hook_client.NoAnswer) as error:
            raise Unavailable(
                f"the background process ended before it answered ({type(error).__name__}):"
                " look with `triskele history` before you repeat a change"
            ) from None
        if target is not None and status == OK:
            target.write_bytes(text)
        reason = first.split(None, 2)[2] if first.count(" ") > 1 else ""
        return Reply(status, reason, fields, text)

    def refuse_closed(self) -> None:
        """Raise if the connection is closed."""
        if self._is_closed:
            raise StoreClosed("the memory is closed: open it again")

    def close(self) -> None:
        """Close it; each request has a connection of its own."""
        self._is_closed = True


Connection = ServerConnection | ResidentConnection


def checked_address(url: str) -> str:
    """The address of a server; refuse one that is not valid, holds a key or exposes texts on the network."""
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid or parts.query or parts.fragment or "@" in url or " " in url:
        raise BadInput("not the address of a server: write it like https://memory.example.com")
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise BadInput(f"the address of {parts.hostname} must begin with https:// (http:// is for this machine only)")
    return url.rstrip("/")
