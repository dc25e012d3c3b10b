"""The hook client: asks the resident process, writes the answer to standard output, and never fails a prompt.

start.py runs it once per prompt without site packages: it imports nothing of triskele, few standard modules, and
rarely needed ones only on use. `os` is one of these: its import takes longer than all else that a prompt needs.
"""

from __future__ import annotations

import _socket
import sys
import time

if sys.platform == "win32":
    import nt as _system
else:
    import posix as _system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

VERSION = "0.1.0"
DEADLINE_MS = 300.0
# The first hook after a boot starts the process, which answers by words in half a second, or later on a busy machine.
COLD_DEADLINE_MS = 1500.0
MAX_INPUT = 1_000_000
MAX_LOG = 200_000
# Every platform allows socket paths of 103 bytes.
LONGEST_PATH = 100
HTTP, STREAM = "http", "mcp"
LOOPBACK = "127.0.0.1"

_PAUSE_S = 0.01
# A process that has listened for less may still be importing; one that died is waited for again after a minute.
_STARTING_S, _RETRY_S = 2.0, 60.0
_VARIABLES = {
    "--home": "TRISKELE_HOME",
    "--store": "TRISKELE_STORE",
    "--config": "TRISKELE_CONFIG",
}
# Arguments are shown to every user of the machine: they name the file of the token.
_TOKEN_FILE, _TOKEN = "--token-file", "TRISKELE_CLIENT_TOKEN"
# The resident process takes these from its settings file.
_CHOSEN = ("TRISKELE_STORE", "TRISKELE_MEMORY_OWNER", "TRISKELE_SERVER")
NO_CHOICE = ("", "", "", "")
OTHER_STORE = "the background process serves another store, owner or server than the environment names"
_REFUSALS = {400: "standard input is not one JSON object (400)", 409: OTHER_STORE}
_NAME_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


class NoAnswer(Exception):
    """Why the hook writes nothing."""


class Address:
    """Where the resident process of one data folder listens, and where its lock, token and log are.

    `choice` is what the environment chooses instead of the settings file of the folder: store, owner, server,
    settings file.
    """

    __slots__ = ("choice", "home", "is_tcp", "key", "run", "sockets")

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.home = _plain(_absolute(environ.get("TRISKELE_HOME") or _default_home(environ)))
        self.choice = tuple(environ.get(name) or "" for name in (*_CHOSEN, "TRISKELE_CONFIG"))
        self.choice = (_absolute_store(self.choice[0]), *self.choice[1:])
        self.run = _joined(self.home, "run")
        self.key = _hashed(self.home)
        self.is_tcp = bool(environ.get("TRISKELE_LOOPBACK")) or not hasattr(_socket, "AF_UNIX")
        self.sockets = self.run
        if not self.is_tcp and len(_encoded(self.socket(HTTP))) > LONGEST_PATH:
            self.sockets = f"/tmp/triskele-{_system.geteuid()}"

    def socket(self, kind: str) -> str:
        """The path of a socket."""
        return _joined(self.sockets, f"{self.key}.{kind}")

    def file(self, kind: str) -> str:
        """The path of a file next to the sockets: lock, starting, ports, token."""
        return _joined(self.run, f"{self.key}.{kind}")


def release(version: str) -> tuple[int, ...]:
    """A version as four numbers; letters after the digits of a part are ignored."""
    parts = []
    for part in version.split(".")[:4]:
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        parts.append(int(digits) if digits and len(digits) < 10 else 0)
    return (*parts, *(0,) * (4 - len(parts)))


def own_folder(path: str) -> None:
    """Make a folder that only its owner can enter; refuse one of another user."""
    import os

    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        check_folder(path)


def check_folder(path: str) -> None:
    """Refuse a folder that another user can write to."""
    if sys.platform == "win32":
        return
    status = _system.lstat(path)
    if status.st_mode & 0o170000 != 0o040000 or status.st_uid != _system.geteuid():
        raise NoAnswer(f"{path} is not a folder of this user")
    if status.st_mode & 0o077:
        _system.chmod(path, 0o700)


def connect(address: Address, kind: str, timeout_s: float) -> _socket.socket:
    """A connection to the resident process; FileNotFoundError or ConnectionRefusedError if none listens."""
    if address.is_tcp:
        http, stream, token = _ports(address)
        connection = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    else:
        check_folder(address.sockets)
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        if not address.is_tcp:
            connection.connect(address.socket(kind))
        elif kind == HTTP:
            connection.connect((LOOPBACK, http))
        else:
            connection.connect((LOOPBACK, stream))
            # Ports have no owner, so a stream begins with the token.
            connection.sendall(f"{token}\n".encode())
    except BaseException:
        connection.close()
        raise
    return connection


def start(address: Address, environ: Mapping[str, str]) -> bool:
    """Start a resident process that outlives this one; False if another one is starting.

    It inherits the start lock, but no pipes and nothing of the prompt.
    """
    import os

    own_folder(address.run)
    start_lock = os.open(address.file("starting"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if _is_held(start_lock):
            return False
        import subprocess

        # Each request brings its project and token; a folder's environment must not decide what Python imports.
        inherited = {
            name: value
            for name, value in environ.items()
            if name not in (*_CHOSEN, "TRISKELE_KEY", "TRISKELE_PROJECT", "TRISKELE_CLIENT_TOKEN")
            and not name.upper().startswith("PYTHON")
        }
        inherited["TRISKELE_HOME"] = address.home
        command = [sys.executable, "-P", "-m", "triskele.edge.process.resident"]
        detached: dict[str, Any] = {"start_new_session": True, "pass_fds": (start_lock,)}
        if sys.platform == "win32":
            # No single handle can be inherited there: the new process takes the lock itself.
            detached = {"creationflags": subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP}
        else:
            command.append(str(start_lock))
        nothing = subprocess.DEVNULL
        with open(os.open(address.file("err"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as errors:
            child: _Child = subprocess.Popen(
                command, stdin=nothing, stdout=nothing, stderr=errors, cwd=address.home, env=inherited, **detached
            )
        _started[:] = [*(each for each in _started if each.poll() is None), child]
        return True
    finally:
        os.close(start_lock)


def is_running(address: Address) -> bool:
    """Whether a resident process serves; checks its lock and opens no connection."""
    try:
        with open(address.file("lock"), "rb+") as lock:
            return _is_held(lock.fileno())
    except OSError:
        return False


# Kept so that a long-lived process reaps children that ended.
_started: list[_Child] = []


def log(address: Address, line: str) -> None:
    """Append one line to the log, if possible; it must not quote a prompt or a memory."""
    import os

    path = _joined(address.run, "hook.log")
    try:
        own_folder(address.run)
        try:
            if os.stat(path).st_size > MAX_LOG:
                os.replace(path, path + ".old")
        except FileNotFoundError:
            pass
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            os.write(handle, f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {line}\n".encode())
        finally:
            os.close(handle)
    except (OSError, NoAnswer):
        return


def _headers(address: Address, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The project that the environment names, and the token of the client's installed entry, as HTTP headers."""
    project = _percent_encoded(environ.get("TRISKELE_PROJECT") or "")
    token = _token(environ.get("TRISKELE_CLIENT_TOKEN") or "")
    return (
        "Content-Type: application/json",
        f"X-Triskele-Version: {VERSION}",
        *((f"X-Triskele-Project: {project}",) if project else ()),
        *((f"X-Triskele-Client-Token: {token}",) if token else ()),
        *choice_headers(address),
    )


def choice_headers(address: Address) -> tuple[str, ...]:
    """What the environment chooses, as an HTTP header; none if it chooses nothing."""
    if not any(address.choice):
        return ()
    return (f"X-Triskele-Choice: {','.join(_percent_encoded(value) for value in address.choice)}",)


def _percent_encoded(text: str) -> str:
    return "".join(f"%{byte:02x}" for byte in _encoded(text))


def ask(address: Address, event: str, body: bytes, ends: float, environ: Mapping[str, str]) -> tuple[bytes, bool]:
    """The answer of the resident process and whether it is outdated; starts a process if none listens."""
    is_started, is_starting, headers = False, _is_starting(address), _headers(address, environ)
    extra_s = 0.0 if environ.get("TRISKELE_HOOK_DEADLINE_MS") else (COLD_DEADLINE_MS - DEADLINE_MS) / 1000
    while True:
        left_s = ends + extra_s * is_starting - time.monotonic()
        if left_s <= 0:
            raise NoAnswer(
                "the background process is still starting: the next prompt is answered"
                if is_started
                else "the background process did not answer in time"
            )
        try:
            deadline = f"X-Triskele-Deadline-Ms: {left_s * 1000:.0f}"
            status, head, text = exchange(address, f"POST /hook/{event}", (*headers, deadline), body, left_s)
        except (FileNotFoundError, ConnectionRefusedError):
            if not is_started:
                is_starting = not _has_died(address)
                is_started = start(address, environ)
        except TimeoutError:
            continue
        except (ConnectionError, BlockingIOError):
            # The connection was closed, or the backlog is full: try again.
            pass
        else:
            if status in (200, 204):
                return text, b"\r\nx-triskele-outdated:" in head.lower()
            if status != 503:
                raise NoAnswer(_REFUSALS.get(status) or f"the resident process refused the request ({status})")
        time.sleep(min(_PAUSE_S, left_s))


def _is_starting(address: Address) -> bool:
    """Whether the process began to listen a moment ago."""
    try:
        listens_since = _system.stat(address.file("ports") if address.is_tcp else address.socket(HTTP)).st_mtime
    except OSError:
        return False
    return 0 <= time.time() - listens_since < _STARTING_S


def _has_died(address: Address) -> bool:
    """Whether a process that was started a short time ago is neither starting nor serving: it will not soon."""
    try:
        with open(address.file("starting"), "rb+") as lock:
            age_s = time.time() - _system.stat(address.file("err")).st_mtime
            return 0 <= age_s < _RETRY_S and not _is_held(lock.fileno())
    except OSError:
        return False


def run(arguments: list[str]) -> None:
    """Answer one event: EVENT [--client NAME] [--token-file FILE] [--home PATH] [--store URL] [--config FILE].

    All but the name override the environment, which the agent's folder may set.
    """
    began = time.monotonic()
    options = dict(zip(arguments[1::2], arguments[2::2], strict=False))
    is_sound = len(arguments) % 2 == 1 and options.keys() <= {"--client", _TOKEN_FILE, *_VARIABLES}
    environ = {**_environ(), **{_VARIABLES[name]: value for name, value in options.items() if name in _VARIABLES}}
    if _TOKEN_FILE in options:
        environ[_TOKEN] = _content(options[_TOKEN_FILE])
    answer(arguments[0] if is_sound else "", environ, began)
    # An orderly exit would only cost time.
    _system._exit(0)


def answer(event: str, environ: Mapping[str, str], began: float) -> None:
    """Write the answer to one event to standard output; an error writes nothing there and a line to the log."""
    address = None
    try:
        address = Address(environ)
        if not 0 < len(event) <= 40 or not _NAME_LETTERS.issuperset(event):
            event = "?"
            raise NoAnswer("unknown event name")
        ends = began + deadline_s(environ)
        text, is_outdated = ask(address, event, _read(ends), ends, environ)
        while text:
            text = text[_system.write(1, text) :]
        if is_outdated:
            start(address, environ)
    except Exception as error:
        # Of other errors only the type is logged: their messages may quote the prompt.
        fault = f"{type(error).__name__} {getattr(error, 'strerror', None) or ''}".strip()
        if address is not None:
            log(address, f"{event} gave nothing: {error if isinstance(error, NoAnswer) else fault}")


def _token(text: str) -> str:
    """A token that is valid in a header; empty if it is not."""
    return text if len(text) <= 100 and text.isascii() and text.replace("-", "").replace("_", "").isalnum() else ""


def _content(path: str) -> str:
    """The text of a token file; empty without one: then the answer has no private memories."""
    try:
        with open(path, encoding="latin-1") as file:
            return file.read()
    except OSError:
        return ""


def deadline_s(environ: Mapping[str, str]) -> float:
    """How long a prompt may wait for its memories."""
    try:
        wanted = float(environ.get("TRISKELE_HOOK_DEADLINE_MS") or DEADLINE_MS)
    except ValueError:
        wanted = DEADLINE_MS
    return min(max(wanted, 1.0), 600_000.0) / 1000 if wanted == wanted else DEADLINE_MS / 1000


def _read(ends: float) -> bytes:
    """Standard input up to its end or the deadline."""
    import select

    taken, size = [b""], 0
    while True:
        if sys.platform != "win32" and not select.select([0], [], [], max(0.0, ends - time.monotonic()))[0]:
            raise NoAnswer("standard input did not end in time")
        piece = _system.read(0, 65536)
        if not piece:
            return b"".join(taken)
        taken.append(piece)
        size += len(piece)
        if size > MAX_INPUT:
            raise NoAnswer("the event is larger than 1 MB")


def exchange(
    address: Address, line: str, headers: tuple[str, ...], body: bytes, timeout_s: float
) -> tuple[int, bytes, bytes]:
    """Send one request to the resident process; status, head and body of its answer."""
    lines = [f"{line} HTTP/1.0", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    if address.is_tcp:
        lines.append(f"Authorization: Bearer {_ports(address)[2]}")
    connection = connect(address, HTTP, timeout_s)
    try:
        connection.sendall("\r\n".join((*lines, "", "")).encode() + body)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    finally:
        connection.close()
    head, separator, text = answer.partition(b"\r\n\r\n")
    words = head.split(None, 2)
    if not separator or len(words) < 2 or not words[1].isdigit():
        raise ConnectionResetError
    return int(words[1]), head, text


def _ports(address: Address) -> tuple[int, int, str]:
    """Ports and token of the resident process; refused if its lock is free: the ports may be another program's."""
    with open(address.file("lock"), "rb+") as lock, open(address.file("ports"), encoding="ascii") as ports:
        if not _is_held(lock.fileno()):
            raise ConnectionRefusedError
        http, stream, token = ports.read().split()
        return int(http), int(stream), token


def _is_held(handle: int) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def _environ() -> Mapping[str, str]:
    """The environment of the process, as `os` has it."""
    if sys.platform != "win32" and "os" not in sys.modules:
        return {_decoded(name): _decoded(value) for name, value in _system.environ.items()}
    import os

    return os.environ


def _absolute(path: str) -> str:
    path = _expanded(path)
    if sys.platform != "win32" and path.startswith("/"):
        return path
    import os

    # Asked only where needed: the working folder may be deleted.
    return path if os.path.isabs(path) else os.path.join(os.getcwd(), path)


def _plain(path: str) -> str:
    """An absolute path without empty parts, `.` and `..`, as in config: the folder has the same key by all of them."""
    if sys.platform != "win32" and not any(part in f"{path}/" for part in ("//", "/./", "/../")):
        return path
    import os

    plain, real = os.path.normpath(path.replace("//", "/")), os.path.realpath(path)
    # What is above a link is above its target.
    return plain if os.path.realpath(plain) == real else real


def _expanded(path: str) -> str:
    """A path with the user's folder instead of `~`."""
    if not path.startswith("~"):
        return path
    if sys.platform != "win32" and path.startswith("~/") and (user := _environ().get("HOME")):
        return user.rstrip("/") + path[1:]
    import os

    return os.path.expanduser(path)


def _joined(folder: str, name: str) -> str:
    """The path of what has this name in a folder."""
    if sys.platform != "win32":
        return f"{folder}{name}" if folder.endswith("/") else f"{folder}/{name}"
    import os

    return os.path.join(folder, name)


def _encoded(text: str) -> bytes:
    return text.encode(sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())


def _decoded(raw: bytes) -> str:
    return raw.decode(sys.getfilesystemencoding(), "surrogateescape")


def _absolute_store(url: str) -> str:
    prefix = "sqlite:///"
    return prefix + _absolute(url[len(prefix) :]) if url.startswith(prefix) and len(url) > len(prefix) else url


def _default_home(environ: Mapping[str, str]) -> str:
    """The data folder by the platform's convention, as in config."""
    chosen = environ.get("XDG_DATA_HOME", "").strip()
    if sys.platform == "win32":
        base = environ.get("LOCALAPPDATA") or _expanded("~\\AppData\\Local")
    elif sys.platform == "darwin":
        base = chosen or _expanded("~/Library/Application Support")
    else:
        base = chosen or _expanded("~/.local/share")
    return _joined(base, "triskele")


def _hashed(text: str) -> str:
    """A short hash of a text (FNV-1a): importing `hashlib` costs more than all the rest."""
    value = 0xCBF29CE484222325
    for byte in _encoded(text):
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


if TYPE_CHECKING:
    import subprocess

    _Child = subprocess.Popen[bytes]

if __name__ == "__main__":
    run(sys.argv[1:])
