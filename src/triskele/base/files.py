"""Making sure that a name is on the disk, and telling when the disk refuses."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from triskele.errors import Unavailable

_FULL = {errno.ENOSPC, errno.EDQUOT}


def is_full(error: OSError) -> bool:
    """Whether the disk, or the user's share of it, has no room left."""
    return error.errno in _FULL


@contextmanager
def told(what: str, kind: type[Unavailable] = Unavailable) -> Iterator[None]:
    """Turn what the disk refuses into one clear line."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise kind(f"no space left for {what}: make room and try again") from error
        raise kind(f"cannot write {what}: {error.strerror or error}") from error


def settle_folder(folder: Path) -> None:
    """Make a new name or a rename survive a power cut, where the system knows how."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
