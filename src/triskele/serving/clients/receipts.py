"""What an install leaves in the data folder: the files as they were, and a note of what was written over them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from triskele.base import timestamps
from triskele.serving.clients import files


@dataclass(frozen=True, slots=True)
class Receipt:
    """What we wrote into one file; without `original` there was no such file before."""

    path: str
    written: str
    original: str | None
    original_hash: str | None
    folders: list[str]


@dataclass(frozen=True, slots=True)
class Drawer:
    """The folder in which files of other programs are kept aside."""

    folder: Path

    def keep(self, path: Path, data: bytes, label: str = "") -> Path:
        """Put a copy aside that only the owner can read."""
        name = f"{timestamps.now():%Y%m%dT%H%M%S%f}-{_key(path)[:8]}-{path.name.lstrip('.')}{label}"
        files.write(self.folder / name, data)
        return self.folder / name

    def note(self, path: Path, written: bytes, original: Path | None, folders: Iterable[Path]) -> None:
        """Remember what was written and what it replaced."""
        was = None if original is None else original.read_bytes()
        receipt = Receipt(
            str(path),
            _hash(written),
            None if original is None else original.name,
            None if was is None else _hash(was),
            [str(folder) for folder in folders],
        )
        files.write(self._receipt(path), (json.dumps(asdict(receipt), indent=2) + "\n").encode())

    def receipt(self, path: Path) -> Receipt | None:
        """What is known of an install into this file; a note that cannot be read is none."""
        try:
            receipt = Receipt(**json.loads(self._receipt(path).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None
        return receipt if receipt.path == str(path) else None

    def original(self, receipt: Receipt) -> bytes | None:
        """The file as it was before; None where there was none, or where the copy is gone."""
        if receipt.original is None:
            return None
        with suppress(OSError):
            data = (self.folder / Path(receipt.original).name).read_bytes()
            return data if _hash(data) == receipt.original_hash else None
        return None

    def forget(self, path: Path) -> None:
        """Drop the note; the copies stay."""
        self._receipt(path).unlink(missing_ok=True)

    def _receipt(self, path: Path) -> Path:
        return self.folder / f"{_key(path)}.receipt.json"


def matches(receipt: Receipt, data: bytes | None) -> bool:
    """Whether a file is still what we wrote."""
    return data is not None and _hash(data) == receipt.written


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _key(path: Path) -> str:
    return hashlib.sha256(str(path).encode("utf-8", "surrogateescape")).hexdigest()[:16]
