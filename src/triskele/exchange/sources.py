"""Read untrusted files safely: bounded, regular, UTF-8, and inside the given folder."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from triskele.errors import BadInput
from triskele.replies.rooms import Skipped

MAX_FILE_BYTES = 2**30
MAX_LINE_BYTES = 1_000_000
MAX_TEXT_BYTES = 1_000_000
MAX_FILES = 20_000
MAX_ENTRIES = 1_000_000

_BOM = b"\xef\xbb\xbf"
_HEAD_BYTES = 65_536
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def resolved(source: Path) -> Path:
    """The existing file or folder of a path, with symbolic links resolved."""
    try:
        path = source.expanduser().resolve(strict=True)
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise BadInput(f"no such file or folder: {printable(str(source))}") from None
    except (OSError, RuntimeError, ValueError) as error:
        raise BadInput(f"cannot read {printable(str(source))}: {_why(error)}") from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise BadInput(f"{printable(str(source))} is neither a file nor a folder")
    return path


def content(path: Path, limit: int) -> bytes:
    """All bytes of a regular file with at most `limit` bytes."""
    try:
        # A symbolic link that replaced the file after the folder was listed must not be followed.
        with open(os.open(path, os.O_RDONLY | _NO_FOLLOW), "rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise BadInput(f"cannot be read: {_why(error)}") from error
    if len(data) > limit:
        raise BadInput(f"is larger than {limit:,} bytes")
    return data


def text(path: Path, limit: int = MAX_TEXT_BYTES) -> str:
    """The text of a file with `\\n` line ends."""
    return decoded(content(path, limit)).replace("\r\n", "\n").replace("\r", "\n")


@contextmanager
def single_file(path: Path) -> Iterator[None]:
    """Refuse a folder, and name the file in the errors of its reader."""
    _refuse_folder(path)
    try:
        yield
    except BadInput as error:
        raise BadInput(f"{printable(path.name)} {error}") from error


def lines(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """The numbered lines of a file; None for an overlong line."""
    _refuse_folder(path)
    if path.stat().st_size > MAX_FILE_BYTES:
        raise BadInput(f"{printable(path.name)} is larger than {MAX_FILE_BYTES:,} bytes")
    with path.open("rb") as file:
        number = 0
        while raw := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(raw) <= MAX_LINE_BYTES:
                yield number, raw
                continue
            while raw and not raw.endswith(b"\n"):
                raw = file.readline(MAX_LINE_BYTES)
            yield number, None


def head(path: Path) -> str:
    """The beginning of a file, to detect its format."""
    try:
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES).removeprefix(_BOM).decode(errors="replace")
    except OSError as error:
        raise BadInput(f"cannot read {printable(path.name)}: {_why(error)}") from error


def decoded(data: bytes) -> str:
    """UTF-8 bytes as text."""
    try:
        return data.removeprefix(_BOM).decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"is not UTF-8 text (byte {error.start + 1:,})") from error


def files(root: Path, suffixes: Iterable[str]) -> tuple[list[Path], list[Skipped]]:
    """The files of a folder with some endings, and skipped ones."""
    wanted, skipped, seen = tuple(suffixes), list[Skipped](), 0
    accepted: list[Path] = []
    for folder, folders, names in os.walk(root, followlinks=False):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        seen += len(folders) + len(names)
        for name in sorted(names):
            path = Path(folder, name)
            if name.startswith(".") or not name.lower().endswith(wanted):
                continue
            reason = _reason_to_skip(path)
            if reason is None:
                accepted.append(path)
            else:
                skipped.append(Skipped(location(path, root), reason))
        if len(accepted) > MAX_FILES or seen > MAX_ENTRIES:
            raise BadInput(f"{printable(root.name)} holds more than {MAX_FILES:,} files: import its folders one by one")
    return accepted, skipped


def location(path: Path, root: Path) -> str:
    """The name of a file of a folder in messages."""
    return printable(path.relative_to(root).as_posix() if path != root else path.name)


def printable(name: str) -> str:
    """A name without characters that control a terminal."""
    return "".join(character if character.isprintable() else "�" for character in name)


def digest(paths: Iterable[Path], root: Path) -> str:
    """A hash over the names and bytes of all files."""
    total = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            inner = hashlib.file_digest(file, "sha256").hexdigest()
        name = path.relative_to(root).as_posix() if path != root else ""
        total.update(f"{name}\0{inner}\n".encode("utf-8", "surrogateescape"))
    return total.hexdigest()


def _refuse_folder(path: Path) -> None:
    if path.is_dir():
        raise BadInput(f"{printable(path.name)} is a folder: this format is a single file")


def _reason_to_skip(path: Path) -> str | None:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return "is a symbolic link"
    if not stat.S_ISREG(status.st_mode):
        return "is not a plain file"
    if status.st_size > MAX_TEXT_BYTES:
        return f"is larger than {MAX_TEXT_BYTES:,} bytes"
    return None


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
