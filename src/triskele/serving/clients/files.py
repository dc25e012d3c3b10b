"""Configuration files of other programs: found, read, compared, kept aside and written whole."""

from __future__ import annotations

import difflib
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from triskele.base.files import settle_folder
from triskele.errors import BadInput, Unavailable

MAX_BYTES = 32 * 1024 * 1024
_OWNER_ONLY, _OWNER_ONLY_FOLDER = 0o600, 0o700
_CONTEXT_LINES = 3


def settle(path: Path, root: Path, *, follow: bool) -> Path:
    """The real file behind a path below `root`; links out of it are followed only if the user made them, or never."""
    try:
        real, inside = path.resolve(), root.resolve()
    except (OSError, RuntimeError) as error:
        raise BadInput(f"{path} is a link that leads nowhere: repair it") from error
    if real.is_relative_to(inside) or not path.is_relative_to(root):
        return real
    below = [root.joinpath(*path.relative_to(root).parts[:n]) for n in range(1, len(path.relative_to(root).parts) + 1)]
    if follow and all(_is_own(each) for each in below if each.is_symlink()):
        return real
    raise BadInput(f"{path} leads out of {root} to {real}: write the entries by hand if that is meant")


def _is_own(link: Path) -> bool:
    return os.name != "posix" or link.lstat().st_uid == os.getuid()


def read(path: Path) -> bytes | None:
    """The bytes of a file that can be changed; None where there is none."""
    with _told(path, "read"):
        try:
            state = path.stat()
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(state.st_mode):
            raise BadInput(f"{path} is not a file: move it away first")
        if state.st_size > MAX_BYTES:
            raise BadInput(f"{path} is larger than {MAX_BYTES:,} bytes: that is no configuration")
        if not state.st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
            raise BadInput(f"{path} is read-only: make it writable first (chmod u+w)")
        return path.read_bytes()


def write(path: Path, data: bytes) -> list[Path]:
    """Put the bytes in place in one step, with the permissions of what was there; gives the folders it made."""
    made = [folder for folder in path.parents if not folder.exists()]
    with _told(path, "write"):
        for folder in reversed(made):
            folder.mkdir(mode=_OWNER_ONLY_FOLDER, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
        try:
            with open(handle, "wb") as file:
                file.write(data)
                _take_after(path, name)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        settle_folder(path.parent)
    return made


def remove(path: Path) -> None:
    """Remove a file."""
    with _told(path, "remove"):
        path.unlink(missing_ok=True)


def tidy(folders: Iterable[Path]) -> None:
    """Remove those of these folders that are empty."""
    for folder in sorted(folders, key=lambda each: len(each.parts), reverse=True):
        with suppress(OSError):
            folder.rmdir()


def difference(path: Path, before: bytes | None, after: bytes | None) -> str:
    """The exact change as a unified diff."""
    old, new = ("/dev/null" if data is None else str(path) for data in (before, after))
    lines = difflib.unified_diff(_lines(before), _lines(after), old, new, n=_CONTEXT_LINES)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(data: bytes | None) -> list[str]:
    """Lines as every diff counts them: a line feed ends one, and nothing else does."""
    pieces = (data or b"").decode("utf-8", "backslashreplace").split("\n")
    return [f"{piece}\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])


def _take_after(old: Path, new: str) -> None:
    try:
        state = old.stat()
    except FileNotFoundError:
        return os.chmod(new, _OWNER_ONLY)
    os.chmod(new, stat.S_IMODE(state.st_mode))
    if os.name == "posix" and (state.st_uid, state.st_gid) != (os.getuid(), os.getgid()):
        with suppress(PermissionError):
            os.chown(new, state.st_uid, state.st_gid)
    return None


@contextmanager
def _told(path: Path, verb: str) -> Iterator[None]:
    try:
        yield
    except NotADirectoryError as error:
        raise BadInput(f"cannot {verb} {path}: a file stands where a folder should be") from error
    except OSError as error:
        raise Unavailable(f"cannot {verb} {path}: {error.strerror or error}") from error
