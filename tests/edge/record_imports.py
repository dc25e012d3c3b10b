"""Run a program file and write every import with the module that asked for it: OUT PROGRAM ARGUMENT...

It imports nothing that the program might import: what is loaded before would not be recorded.
"""

from __future__ import annotations

import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from typing import Any


class Recorder:
    """Finds modules as the other finders do, and writes a line for each."""

    def __init__(self, path: str) -> None:
        self._lines = posix.open(path, posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        finders = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in finders)
        spec = next((spec for spec in specs if spec is not None), None)
        # Written at once: the program may end without an orderly exit.
        posix.write(self._lines, f"{name} {_importer()} {'found' if spec else 'missing'}\n".encode())
        return spec


def _importer() -> str:
    """The module whose code runs the import."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals["__name__"].startswith(("importlib", "_frozen_importlib")):
        frame = frame.f_back
    return str(frame.f_globals["__name__"])


def main() -> None:
    """Run the program as `python PROGRAM` does."""
    _, out, *sys.argv = sys.argv
    with open(sys.argv[0], encoding="utf-8") as file:
        code = compile(file.read(), sys.argv[0], "exec")
    sys.meta_path.insert(0, Recorder(out))
    exec(code, {"__name__": "__main__", "__file__": sys.argv[0]})


if __name__ == "__main__":
    main()
