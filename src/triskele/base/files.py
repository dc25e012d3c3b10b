"""Making sure that a name is on the disk."""

from __future__ import annotations

import os
from pathlib import Path


def settle_folder(folder: Path) -> None:
    """Make a new name or a rename survive a power cut, where the system knows how."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
