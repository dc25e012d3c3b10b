"""A lock that the kernel holds: it ends with the process, however that ends."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_RETRY_S = 0.02


@contextmanager
def file_lock(path: Path, *, timeout_s: float) -> Iterator[bool]:
    """Hold an exclusive lock on a file; yields False where it could not be had in time."""
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
