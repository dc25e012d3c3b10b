"""Files: names that survive a power cut, errors of the disk, and a lock that ends with its process."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from triskele.errors import BadInput, Unavailable

_RETRY_S = 0.02
_LITTLE_BYTES = 65536
_FULL = {errno.ENOSPC, errno.EDQUOT}


def is_full(error: OSError) -> bool:
    """Whether the disk, or the user's share of it, has no room left."""
    return error.errno in _FULL


def has_no_room(folder: Path) -> bool:
    """Whether the disk of a folder is as good as full."""
    import shutil

    try:
        return shutil.disk_usage(folder).free < _LITTLE_BYTES
    except OSError:
        return False


@contextmanager
def disk_errors(what: str, kind: type[Unavailable] = Unavailable) -> Iterator[None]:
    """Turn an error of the disk into one clear message."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise kind(f"no space left for {what}: make room and try again") from error
        raise kind(f"cannot write {what}: {error.strerror or error}") from error


def settle_folder(folder: Path) -> None:
    """Make a new name or a rename survive a power failure, if the system supports it."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def expanded(path: str | Path) -> Path:
    """An absolute path without `..`, with `~` and `~user` replaced; BadInput for an unknown user or a NUL."""
    if "\0" in str(path):
        raise BadInput(f"{str(path)!a} is not a usable path: it holds a NUL character")
    try:
        absolute = Path(path).expanduser().absolute()
    except RuntimeError as error:
        raise BadInput(f"{str(path)!a} names the home folder of a user that does not exist") from error
    if ".." not in absolute.parts and not str(absolute).startswith("//"):
        return absolute
    plain, real = os.path.normpath(str(absolute).replace("//", "/")), os.path.realpath(absolute)
    # What is above a link is above its target.
    return Path(plain if os.path.realpath(plain) == real else real)


def check_utf8(path: Path) -> Path:
    """The path, if it is valid UTF-8 and holds no NUL: databases and indexes take no other."""
    try:
        if b"\0" not in str(path).encode():
            return path
    except UnicodeEncodeError:
        pass
    raise BadInput(f"{str(path)!a} is not a usable path: it must be UTF-8 without NUL")


@contextmanager
def file_lock(path: Path, *, timeout_s: float) -> Iterator[bool]:
    """Hold an exclusive lock on a file; yields False if the time runs out first."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield _acquire(descriptor, timeout_s)
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while True:
        if _try_lock(descriptor):
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(_RETRY_S)


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True
