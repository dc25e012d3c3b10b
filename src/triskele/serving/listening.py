"""Where the resident listens: sockets that only their owner can reach, on the disk or on loopback."""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from triskele.errors import BadInput, Conflict, Unavailable
from triskele.serving import hook_client
from triskele.serving.hook_client import HTTP, LOOPBACK, STREAM, Address

Socket = socket.socket

_BACKLOG = 256
_OWNER_ONLY = 0o600


@dataclass(frozen=True, slots=True)
class Ears:
    """Open sockets for requests and for streams, the token that they ask for, and the files that lead there."""

    http: Socket
    stream: Socket
    token: str | None
    doors: tuple[tuple[Path, int], ...]

    def are_found(self) -> bool:
        """Whether clients still come here: nobody removed the way, and no successor took it."""
        return all(_inode(path) == inode for path, inode in self.doors)

    def close_doors(self) -> None:
        """Remove the way that leads here; only while no successor can be taking it."""
        if self.are_found():
            for path, _ in self.doors:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Stop listening."""
        self.http.close()
        self.stream.close()


@dataclass(frozen=True, slots=True)
class Extra:
    """A socket that the user asked for: on loopback, or at a path of theirs."""

    socket: Socket
    path: Path | None = None
    inode: int = -1

    @property
    def address(self) -> str:
        """Where it is reached, as people write it."""
        if self.path is not None:
            return str(self.path)
        host, port = self.socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def close(self) -> None:
        """Stop listening, and leave nothing where it was."""
        self.socket.close()
        if self.path is not None and _inode(self.path) == self.inode:
            self.path.unlink(missing_ok=True)


def make_folders(place: Address) -> None:
    """Make the folders that only their owner may enter."""
    try:
        hook_client.own_folder(place.run)
        hook_client.own_folder(place.sockets)
    except hook_client.Silence as refused:
        raise Unavailable(str(refused)) from refused


def listen(place: Address) -> Ears:
    """Open the sockets of a resident, in the place of any that were there before."""
    return _on_loopback(place) if place.is_tcp else _on_disk(place)


def unix_socket(path: Path) -> tuple[Socket, int]:
    """An owner-only socket at a path, where at most a dead one may lie; with its inode."""
    starting = path.with_name(f"{os.getpid()}.new")
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    earlier = os.umask(0o177)
    try:
        starting.unlink(missing_ok=True)
        made.bind(os.fspath(starting))
        made.listen(_BACKLOG)
        inode = _inode(starting)
        # Renamed when it listens: whoever finds the path is served, by us or by whom we replace.
        starting.replace(path)
    except OSError as error:
        made.close()
        raise Unavailable(f"cannot listen at {path}: {error.strerror or error}") from error
    finally:
        os.umask(earlier)
    return made, inode


def chosen_socket(path: Path) -> Extra:
    """A socket where the user wants one: nothing but a dead socket is replaced."""
    if path.is_symlink() or (path.exists() and not path.is_socket()):
        raise BadInput(f"{path} exists and is not a socket: choose another path")
    if path.exists() and _answers(path):
        raise Conflict(f"somebody listens at {path} already")
    if not path.parent.is_dir():
        raise BadInput(f"there is no folder {path.parent} for the socket: make it first")
    made, inode = unix_socket(path)
    return Extra(made, path, inode)


def loopback_socket(host: str, port: int) -> Socket:
    """A listening socket that only this machine can reach."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(_BACKLOG)
    except OSError as error:
        made.close()
        raise Unavailable(f"cannot listen at {host}:{port}: {error.strerror or error}") from error
    return made


def loopback_address(text: str) -> tuple[str, int]:
    """HOST:PORT as given on the command line; anything that others could reach is refused."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise BadInput(f"not an address: {text!r} (write HOST:PORT, like 127.0.0.1:8377)")
    host = host.strip("[]")
    if host == "localhost":
        return LOOPBACK, int(port)
    with suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return host, int(port)
    raise BadInput(
        f"{host or 'every address'} can be reached from outside: serve on 127.0.0.1, [::1] or localhost only"
    )


def is_on_disk(sock: Socket) -> bool:
    """Whether a socket is a file rather than a port."""
    return sock.family == getattr(socket, "AF_UNIX", None)


def is_owner(connection: Socket) -> bool:
    """Whether the other end is a process of this user, as far as the system tells."""
    if not hasattr(socket, "SO_PEERCRED") or not is_on_disk(connection):
        return True
    _, user, _ = struct.unpack(
        "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    )
    return bool(user == os.geteuid())


def standing_token(path: Path) -> str:
    """The token in an owner-only file, made when it is first needed; it stays when the resident changes."""
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


def _on_disk(place: Address) -> Ears:
    paths = [Path(place.socket(kind)) for kind in (HTTP, STREAM)]
    (http, first), (stream, second) = (unix_socket(path) for path in paths)
    return Ears(http, stream, None, ((paths[0], first), (paths[1], second)))


def _on_loopback(place: Address) -> Ears:
    http, stream, token = loopback_socket(LOOPBACK, 0), loopback_socket(LOOPBACK, 0), secrets.token_urlsafe(32)
    ports = Path(place.file("ports"))
    _write_owned(ports, f"{http.getsockname()[1]} {stream.getsockname()[1]} {token}\n")
    return Ears(http, stream, token, ((ports, _inode(ports)),))


def _write_owned(path: Path, text: str) -> None:
    starting = path.with_name(f"{path.name}.{os.getpid()}")
    starting.unlink(missing_ok=True)
    handle = os.open(starting, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)
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
        try:
            probe.connect(os.fspath(path))
        except OSError:
            return False
        return True
