"""Matrix products on one thread: those of a recall are small, and threads that wait for the next one spin."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_PREFIXES = ("scipy_openblas_", "openblas_")
_SUFFIXES = ("64_", "")
_lock = threading.Lock()
_inside = 0
_before = 1


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Bound numpy's products to one thread; when the last caller has left, they have as many as before.

    The count is the process's own: who uses triskele as a library keeps its threads between two recalls.
    """
    global _inside, _before
    counts = _counts()
    if counts is None:
        yield
        return
    read, write = counts
    with _lock:
        _inside += 1
        if _inside == 1:
            _before = read()
            write(1)
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                write(_before)


@cache
def _counts() -> tuple[Callable[[], int], Callable[[int], object]] | None:
    """The functions of numpy's OpenBLAS that read and write its number of threads; None where it has another."""
    import numpy as np

    package = Path(np.__file__).parent
    for folder in (package.parent / "numpy.libs", package / ".dylibs"):
        for path in sorted(folder.glob("*openblas*")):
            library = ctypes.CDLL(str(path))
            for prefix in _PREFIXES:
                for suffix in _SUFFIXES:
                    read = getattr(library, f"{prefix}get_num_threads{suffix}", None)
                    write = getattr(library, f"{prefix}set_num_threads{suffix}", None)
                    if read is not None and write is not None:
                        return read, write
    return None
