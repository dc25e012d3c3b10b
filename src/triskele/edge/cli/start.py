"""The start of the command line, before its imports."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress

from triskele import __version__

_NEW_OBJECTS = 100_000


def writes_version() -> bool:
    """Write the version if the command line asks for it alone, without imports that take several times as long."""
    # Imports make many objects that stay: looking for garbage among them only delays a short command.
    gc.set_threshold(_NEW_OBJECTS)
    if sys.argv[1:] != ["--version"]:
        return False
    # The output may be closed.
    with suppress(OSError):
        os.write(1, f"triskele {__version__}\n".encode())
    return True
