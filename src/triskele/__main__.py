"""The `triskele` program and `python -m triskele`: Ctrl-C gives one line and exit code 130 from the first import on."""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sys import UnraisableHookArgs


def main() -> None:
    """Run the command line."""
    default_hook = sys.unraisablehook

    def unraisable(args: UnraisableHookArgs) -> None:
        # Python would print the interrupt of a destructor or callback, and continue.
        if issubclass(args.exc_type, KeyboardInterrupt):
            _exit_interrupted()
        default_hook(args)

    sys.unraisablehook = unraisable
    try:
        from triskele.edge.cli.start import writes_version

        if not writes_version():
            from triskele.edge.cli.main import main as run

            run()
    except KeyboardInterrupt:
        _exit_interrupted()
    finally:
        # While the interpreter ends, a KeyboardInterrupt would be printed with its traceback.
        signal.signal(signal.SIGINT, _exit_interrupted)


def _exit_interrupted(*_: object) -> None:
    os.write(2, b"triskele: interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    main()
