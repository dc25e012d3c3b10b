"""Reads, backs up and replaces configuration files of other programs."""

from __future__ import annotations

import difflib
import hashlib
import hmac
import json
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from triskele.errors import BadInput, Unavailable
from triskele.text import timestamps
from triskele.text.files import settle_folder

MAX_BYTES = 32 * 1024 * 1024
_OWNER_ONLY, _OWNER_ONLY_FOLDER = 0o600, 0o700
_CONTEXT_LINES = 3
_TOKEN = re.compile(rb"tkc_[A-Za-z0-9_-]{32}")
TOKEN_FILE_NAME = re.compile(r"client_token-[0-9a-f]{16}")
# Of one client, installed into several configuration folders.
_MAX_TOKENS = 50


def resolve_path(path: Path, root: Path, *, follow: bool) -> Path:
    """Resolve a path below `root`; refuse links of others out of `root`."""
    try:
        real, inside = path.resolve(), root.resolve()
    except (OSError, RuntimeError) as error:
        raise BadInput(f"{path} is a broken link: repair it first") from error
    if real.is_relative_to(inside) or not path.is_relative_to(root):
        return real
    links = [each for each in (path, *path.parents) if each.is_relative_to(root) and each != root and each.is_symlink()]
    if follow and (os.name != "posix" or all(link.lstat().st_uid == os.getuid() for link in links)):
        return real
    raise BadInput(f"{path} links to {real}, outside {root}: if that is intended, write the entries by hand")


def read(path: Path) -> bytes | None:
    """Read a writable file; None if it does not exist."""
    with _errors_reported(path, "read"):
        try:
            state = path.stat()
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(state.st_mode):
            raise BadInput(f"{path} is not a regular file: move it away first")
        if state.st_size > MAX_BYTES:
            raise BadInput(f"{path} is larger than {MAX_BYTES:,} bytes, too large for a configuration file")
        if not state.st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
            raise BadInput(f"{path} is read-only: make it writable first (chmod u+w)")
        return path.read_bytes()


def write(path: Path, data: bytes) -> list[Path]:
    """Replace a file in one step, keeping permissions; return new folders."""
    new_folders = [folder for folder in path.parents if not folder.exists()]
    with _errors_reported(path, "write"):
        for folder in reversed(new_folders):
            folder.mkdir(mode=_OWNER_ONLY_FOLDER, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
        try:
            with open(handle, "wb") as file:
                file.write(data)
                _copy_permissions(path, name)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        settle_folder(path.parent)
    return new_folders


def remove(path: Path) -> None:
    """Remove a file."""
    with _errors_reported(path, "remove"):
        path.unlink(missing_ok=True)


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove the empty ones of these folders."""
    for folder in sorted(folders, key=lambda each: len(each.parts), reverse=True):
        with suppress(OSError):
            folder.rmdir()


def difference(path: Path, before: bytes | None, after: bytes | None) -> str:
    """The exact change as a unified diff."""
    old, new = ("/dev/null" if data is None else str(path) for data in (before, after))
    lines = difflib.unified_diff(_lines(before), _lines(after), old, new, n=_CONTEXT_LINES)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(data: bytes | None) -> list[str]:
    """Lines as diff counts them: only a line feed ends one."""
    pieces = (data or b"").decode("utf-8", "backslashreplace").split("\n")
    return [f"{piece}\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])


def _copy_permissions(old: Path, new: str) -> None:
    try:
        state = old.stat()
    except FileNotFoundError:
        os.chmod(new, _OWNER_ONLY)
    else:
        os.chmod(new, stat.S_IMODE(state.st_mode))
        if os.name == "posix" and (state.st_uid, state.st_gid) != (os.getuid(), os.getgid()):
            with suppress(PermissionError):
                os.chown(new, state.st_uid, state.st_gid)


@contextmanager
def _errors_reported(path: Path, verb: str) -> Iterator[None]:
    try:
        yield
    except NotADirectoryError as error:
        raise BadInput(f"cannot {verb} {path}: a part of the path is a file, not a folder") from error
    except OSError as error:
        raise Unavailable(f"cannot {verb} {path}: {error.strerror or error}") from error


@dataclass(frozen=True, slots=True)
class Receipt:
    """What an install wrote into a file, and its original, if any."""

    path: str
    written: str
    original: str | None
    original_hash: str | None
    folders: list[str]


@dataclass(frozen=True, slots=True)
class BackupFolder:
    """The folder with copies of other programs' files."""

    folder: Path

    def keep(self, path: Path, data: bytes, label: str = "") -> Path:
        """Keep a copy that only the owner can read."""
        name = f"{timestamps.now():%Y%m%dT%H%M%S%f}-{_key(path)[:8]}-{path.name.lstrip('.')}{label}"
        write(self.folder / name, data)
        return self.folder / name

    def note(self, path: Path, written: bytes, original: Path | None, folders: Iterable[Path]) -> None:
        """Record what was written and what it replaced."""
        was = None if original is None else original.read_bytes()
        receipt = Receipt(
            str(path),
            _hash(written),
            None if original is None else original.name,
            None if was is None else _hash(was),
            [str(folder) for folder in folders],
        )
        write(self._receipt(path), (json.dumps(asdict(receipt), indent=2) + "\n").encode())

    def receipt(self, path: Path) -> Receipt | None:
        """The receipt of an install, unless missing or unreadable."""
        try:
            receipt = Receipt(**json.loads(self._receipt(path).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None
        return receipt if receipt.path == str(path) else None

    def original(self, receipt: Receipt) -> bytes | None:
        """The file before the install, if it existed and is kept."""
        if receipt.original is None:
            return None
        with suppress(OSError):
            data = (self.folder / Path(receipt.original).name).read_bytes()
            return data if _hash(data) == receipt.original_hash else None
        return None

    def forget(self, path: Path) -> None:
        """Remove the receipt; the copies stay."""
        self._receipt(path).unlink(missing_ok=True)

    def _receipt(self, path: Path) -> Path:
        return self.folder / f"{_key(path)}.receipt.json"


@dataclass(frozen=True, slots=True)
class TokenFile:
    """Hashes of the tokens in clients' entries, by client, and a private file of each token for its hooks."""

    path: Path

    @classmethod
    def of(cls, home: Path) -> TokenFile:
        """The token file of a data folder."""
        return cls(home / "client_tokens.json")

    def file_of(self, token: str) -> Path:
        """The file that holds a token."""
        return self.path.with_name(f"client_token-{_hash(token.encode())[:16]}")

    def client_of(self, token: str) -> str | None:
        """The client of a token; None if it is unknown."""
        if not token:
            return None
        digest = _hash(token.encode("utf-8", "replace"))
        digests = ((client, each) for client, hashes in self._read().items() for each in hashes)
        return next((client for client, each in digests if hmac.compare_digest(each, digest)), None)

    def clients(self) -> set[str]:
        """The clients with a token."""
        return {client for client, hashes in self._read().items() if hashes}

    def known_in(self, data: bytes, client: str) -> str | None:
        """A valid token of this client in the text of a file."""
        tokens = (found.decode() for found in _TOKEN.findall(data))
        return next((token for token in tokens if self.client_of(token) == client), None)

    def add(self, client: str, token: str) -> None:
        """Record a token."""
        tokens = self._read()
        digests = [each for each in tokens.get(client, []) if each != _hash(token.encode())]
        self._write({**tokens, client: [*digests, _hash(token.encode())][-_MAX_TOKENS:]})
        write(self.file_of(token), token.encode())

    def drop(self, token: str) -> None:
        """Forget a token."""
        self.file_of(token).unlink(missing_ok=True)
        dropped = _hash(token.encode())
        self._write({client: [each for each in hashes if each != dropped] for client, hashes in self._read().items()})

    def _read(self) -> dict[str, list[str]]:
        try:
            document = json.loads(self.path.read_bytes())
        except (OSError, ValueError):
            return {}
        tokens = document if isinstance(document, dict) else {}
        return {client: [str(each) for each in hashes] for client, hashes in tokens.items() if isinstance(hashes, list)}

    def _write(self, tokens: Mapping[str, list[str]]) -> None:
        write(self.path, (json.dumps(tokens, indent=2) + "\n").encode())


def new_token() -> str:
    """A random token for the entry of a client."""
    return f"tkc_{secrets.token_urlsafe(24)}"


def is_unchanged(receipt: Receipt, data: bytes | None) -> bool:
    """Whether a file is still as installed."""
    return data is not None and _hash(data) == receipt.written


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _key(path: Path) -> str:
    return hashlib.sha256(str(path).encode("utf-8", "surrogateescape")).hexdigest()[:16]
