"""The `triskele` program and `python -m triskele`: Ctrl-C gives one line and exit code 130 from the first import on."""

from __future__ import annotations

import gc
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sys import UnraisableHookArgs
    from typing import Any, NoReturn

_INTERRUPTED = 130
_NEW_OBJECTS = 100_000


def main() -> None:
    """Run the command line."""
    default_hook = sys.unraisablehook

    def unraisable(args: UnraisableHookArgs) -> None:
        # Python would print the interrupt of a destructor or callback, and continue.
        if issubclass(args.exc_type, KeyboardInterrupt):
            _exit_interrupted()
        default_hook(args)

    sys.unraisablehook = unraisable
    # Imports make many objects that stay: looking for garbage among them only delays a short command.
    gc.set_threshold(_NEW_OBJECTS)
    try:
        if sys.argv[1:] == ["--version"]:
            return _write_version()
        from triskele.edge.cli.main import main as run

        run()
    except KeyboardInterrupt:
        _exit_interrupted()
    finally:
        # While the interpreter ends, a KeyboardInterrupt would be printed with its traceback.
        signal.signal(signal.SIGINT, _exit_interrupted)


def _write_version() -> None:
    """Write the version without the imports of the commands, which take several times as long."""
    from triskele import __version__

    try:
        os.write(1, f"triskele {__version__}\n".encode())
    except OSError:
        # Nobody reads it.
        return


def _exit_interrupted(*_: Any) -> NoReturn:
    os.write(2, b"triskele: interrupted\n")
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
