"""The `triskele` program and `python -m triskele`: Ctrl-C gives one line and exit code 130 from the first import on.

Where a resident process serves the same store, everyday commands are its to run: it has model and indexes in memory.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sys import UnraisableHookArgs
    from typing import Any, NoReturn

_INTERRUPTED = 130
_OK = 200
_PATIENCE_S = 30.0
_FORWARDED = ("recall", "add", "show")
_OWN_OPTIONS = ("-h", "--help", "--version")
# They change how errors, completion or colours work.
_OWN_VARIABLES = ("TRISKELE_DEBUG", "_TRISKELE_COMPLETE", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
_SETTINGS_FOLDERS = ("HOME", "XDG_DATA_HOME", "LOCALAPPDATA")
_RELATED = b"x-triskele-related"
_TERMINAL = ("TERM", "COLORTERM", "NO_COLOR", "COLUMNS", "LINES")


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
        answer, related = _resident_answer(sys.argv[1:])
        if answer is not None:
            _write_and_exit(answer)
        from triskele.edge.cli.main import main as run

        run(related)
    except KeyboardInterrupt:
        _exit_interrupted()
    finally:
        # While the interpreter ends, a KeyboardInterrupt would be printed with its traceback.
        signal.signal(signal.SIGINT, _exit_interrupted)


def _resident_answer(arguments: list[str]) -> tuple[bytes | None, tuple[str, ...]]:
    """The output of a command that the resident process ran; None if this process has to run it.

    Also the ids of memories to ask the user about. This is the path of every warm `recall`, `add` and
    `show`: it imports next to nothing.
    """
    is_plain = arguments[:1] and arguments[0] in _FORWARDED and "-" not in arguments
    is_special = any(word in _OWN_OPTIONS or word.startswith("--store") for word in arguments)
    if not is_plain or is_special or any(name in os.environ for name in _OWN_VARIABLES):
        return None, ()
    if sys.stdout is None or (sys.stdout.encoding or "").lower().replace("-", "") != "utf8":
        return None, ()
    from triskele.edge.hook import client

    try:
        place = client.address(os.environ)
        if not os.path.exists(place.socket(client.HTTP)) and not place.is_tcp:
            return None, ()
        import json

        body = json.dumps(_request(arguments)).encode()
        headers = ("Content-Type: application/json", f"X-Triskele-Version: {client.VERSION}")
        status, head, text = client.exchange(place, "POST /command", headers, body, _PATIENCE_S)
    except (OSError, ValueError, client.NoAnswer):
        return None, ()
    return (text, ()) if status == _OK else (None, _related(head))


def _related(head: bytes) -> tuple[str, ...]:
    """The memories that an answer names in its head."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == _RELATED:
            return tuple(value.decode("ascii", "replace").strip().split(","))
    return ()


def _request(arguments: list[str]) -> dict[str, Any]:
    is_terminal = os.isatty(1)
    names = [name for name in os.environ if name.startswith("TRISKELE_") or name in _SETTINGS_FOLDERS]
    width, height = _terminal_size(is_terminal)
    return {
        "arguments": arguments,
        "folder": os.getcwd(),
        "environ": {name: os.environ[name] for name in names},
        "is_terminal": is_terminal,
        "width": width,
        "height": height,
        "terminal": {name: os.environ[name] for name in _TERMINAL if name in os.environ},
    }


def _terminal_size(is_terminal: bool) -> tuple[int, int]:
    """The size that rich finds: of the first stream that is a terminal, with COLUMNS and LINES before it."""
    width, height = 80, 25
    if is_terminal and os.environ.get("TERM", "").lower() in ("dumb", "unknown"):
        return width, height
    for descriptor in range(3):
        try:
            width, height = os.get_terminal_size(descriptor)
            break
        except OSError:
            continue
    columns, lines = os.environ.get("COLUMNS", ""), os.environ.get("LINES", "")
    return int(columns) if columns.isdigit() else width or 80, int(lines) if lines.isdigit() else height or 25


def _write_and_exit(text: bytes) -> NoReturn:
    code = 0
    try:
        while text:
            text = text[os.write(1, text) :]
    except BrokenPipeError:
        pass
    except OSError as error:
        os.write(2, f"triskele: {error.strerror}\n".encode())
        code = 3
    os._exit(code)


def _exit_interrupted(*_: Any) -> NoReturn:
    os.write(2, b"triskele: interrupted\n")
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
