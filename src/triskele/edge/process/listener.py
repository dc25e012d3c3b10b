"""The sockets of the resident process: unix sockets or loopback ports that only their owner can use."""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from triskele.edge.hook import client
from triskele.edge.hook.client import HTTP, LOOPBACK, STREAM, Address
from triskele.errors import BadInput, Conflict, Unavailable

Socket = socket.socket

_BACKLOG = 256


@dataclass(frozen=True, slots=True)
class Listener:
    """Open sockets for HTTP and for MCP streams, the token they require, and the files that lead to them."""

    http: Socket
    stream: Socket
    token: str | None
    paths: tuple[tuple[Path, int], ...]

    def is_reachable(self) -> bool:
        """Whether the files still lead here: neither removed nor replaced by a successor."""
        return all(_inode(path) == inode for path, inode in self.paths)

    def remove_paths(self) -> None:
        """Remove the files that lead here; the caller must hold the start lock."""
        if self.is_reachable():
            for path, _ in self.paths:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Stop listening."""
        self.http.close()
        self.stream.close()


@dataclass(frozen=True, slots=True)
class ExtraListener:
    """A socket that the user asked for: on loopback, or at a path."""

    socket: Socket
    path: Path | None = None
    inode: int = -1

    @property
    def address(self) -> str:
        """The address as people write it."""
        if self.path is not None:
            return str(self.path)
        host, port = self.socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def close(self) -> None:
        """Stop listening and remove the socket file."""
        self.socket.close()
        if self.path is not None and _inode(self.path) == self.inode:
            self.path.unlink(missing_ok=True)


def make_folders(address: Address) -> None:
    """Make the folders that only their owner can enter."""
    try:
        client.own_folder(address.run)
        client.own_folder(address.sockets)
    except client.NoAnswer as refused:
        raise Unavailable(str(refused)) from refused


def listen(address: Address) -> Listener:
    """Open the sockets of a resident process; earlier ones are replaced."""
    if address.is_tcp:
        http, stream, token = tcp_socket(LOOPBACK, 0), tcp_socket(LOOPBACK, 0), secrets.token_urlsafe(32)
        ports = Path(address.file("ports"))
        _write_owned(ports, f"{http.getsockname()[1]} {stream.getsockname()[1]} {token}\n")
        return Listener(http, stream, token, ((ports, _inode(ports)),))
    paths = [Path(address.socket(kind)) for kind in (HTTP, STREAM)]
    (http, first), (stream, second) = (unix_socket(path) for path in paths)
    return Listener(http, stream, None, ((paths[0], first), (paths[1], second)))


def unix_socket(path: Path) -> tuple[Socket, int]:
    """An owner-only socket at a path, and its inode; an earlier socket there is replaced."""
    starting = path.with_name(f"{os.getpid()}.new")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    earlier = os.umask(0o177)
    try:
        starting.unlink(missing_ok=True)
        listening.bind(os.fspath(starting))
        listening.listen(_BACKLOG)
        inode = _inode(starting)
        # Renamed after it listens: the path always leads to a listener, the old one or this one.
        starting.replace(path)
    except OSError as error:
        listening.close()
        raise Unavailable(f"cannot listen at {path}: {error.strerror or error}") from error
    finally:
        os.umask(earlier)
    return listening, inode


def chosen_socket(path: Path) -> ExtraListener:
    """A socket at a path of the user's choice; only a dead socket is replaced."""
    if not hasattr(socket, "AF_UNIX"):
        raise BadInput("this system has no unix sockets: use --http 127.0.0.1:8377")
    if path.is_symlink() or (path.exists() and not path.is_socket()):
        raise BadInput(f"{path} exists and is not a socket: choose another path")
    if path.exists() and _answers(path):
        raise Conflict(f"another process listens at {path}: choose another path")
    if not path.parent.is_dir():
        raise BadInput(f"the folder {path.parent} does not exist: create it first")
    listening, inode = unix_socket(path)
    return ExtraListener(listening, path, inode)


def tcp_socket(host: str, port: int) -> Socket:
    """A listening socket at an address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise Unavailable(f"cannot listen at {host}:{port}: {error.strerror or error}") from error
    return listening


def http_address(text: str, *, is_public: bool = False) -> tuple[str, int]:
    """HOST:PORT of the command line; an address that others can reach only where `is_public`, with users and keys."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise BadInput(f"not an address: {text!r} (write HOST:PORT, like 127.0.0.1:8377)")
    host = host.strip("[]")
    if host == "localhost":
        return LOOPBACK, int(port)
    with suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback or is_public:
            return host, int(port)
    if is_public:
        raise BadInput(
            f"not an address to listen at: {host!r} (write 0.0.0.0:8080, [::]:8080 or an address of this machine)"
        )
    raise BadInput(
        f"other machines can reach {host or 'every address'}: serve on 127.0.0.1, [::1] or localhost, or set"
        " TRISKELE_STORE=postgresql://… to serve users with keys"
    )


def is_owner(connection: Socket) -> bool:
    """Whether the peer is a process of this user, if the system can tell."""
    if not hasattr(socket, "SO_PEERCRED") or connection.family != socket.AF_UNIX:
        return True
    _, user, _ = struct.unpack(
        "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    )
    return bool(user == os.geteuid())


def standing_token(path: Path) -> str:
    """The token in an owner-only file; made on first use and kept across restarts."""
    try:
        if path.stat().st_mode & 0o077 and os.name == "posix":
            path.unlink()
        elif token := path.read_text(encoding="ascii").strip():
            return token
    except (FileNotFoundError, UnicodeDecodeError):
        pass
    token = secrets.token_urlsafe(32)
    _write_owned(path, token + "\n")
    return token


def _write_owned(path: Path, text: str) -> None:
    starting = path.with_name(f"{path.name}.{os.getpid()}")
    starting.unlink(missing_ok=True)
    handle = os.open(starting, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(text)
    starting.replace(path)


def _inode(path: Path) -> int:
    try:
        return path.lstat().st_ino
    except OSError:
        return -1


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        with suppress(OSError):
            probe.connect(os.fspath(path))
            return True
        return False
