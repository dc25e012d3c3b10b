"""The start of the command line, before its imports."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress

from triskele import __version__

_NEW_OBJECTS = 100_000


def run() -> None:
    """Run the command line; `--version` does without imports, which take several times as long."""
    if sys.argv[1:] == ["--version"]:
        # Nobody may read it.
        with suppress(OSError):
            os.write(1, f"triskele {__version__}\n".encode())
        return
    # Imports make many objects that stay: looking for garbage among them only delays a short command.
    gc.set_threshold(_NEW_OBJECTS)
    from triskele.edge.cli.main import main

    main()
