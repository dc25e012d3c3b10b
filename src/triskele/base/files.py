"""Making sure that a name is on the disk."""

from __future__ import annotations

import os
from pathlib import Path

from triskele.errors import BadInput


def settle_folder(folder: Path) -> None:
    """Make a new name or a rename survive a power cut, where the system knows how."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def expanded(path: str | Path) -> Path:
    """An absolute path with `~` and `~user` replaced; BadInput where there is no such user."""
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError as error:
        raise BadInput(f"{str(path)!a} names the home folder of a user that does not exist") from error


def check_utf8(path: Path) -> Path:
    """The path, if it is valid UTF-8 and holds no NUL: databases and indexes take no other."""
    try:
        if b"\0" not in str(path).encode():
            return path
    except UnicodeEncodeError:
        pass
    raise BadInput(f"{str(path)!a} is not a usable path: it must be UTF-8 without NUL")
