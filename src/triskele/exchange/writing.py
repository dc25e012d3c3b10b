"""Exports on disk: complete or not there at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO, TypeVar

from triskele.base.files import settle_folder
from triskele.errors import BadInput, Unavailable
from triskele.exchange import jsonl, markdown, sources
from triskele.exchange.snapshot import Snapshot

Progress = Callable[[int, int | None], None]
Writer = Callable[[Snapshot, Path | TextIO, Progress], None]

_STEP = 500
_Piece = TypeVar("_Piece")


def write_jsonl(snapshot: Snapshot, target: Path | TextIO, progress: Progress) -> None:
    """One file, or a stream."""
    total = 1 + sum(len(history) for history in snapshot.histories) + len(snapshot.links)
    if not isinstance(target, Path):
        is_ascii = (target.encoding or "utf-8").lower().replace("_", "-") not in ("utf-8", "utf8")
        lines = jsonl.lines(snapshot.histories, snapshot.links, ascii_only=is_ascii)
        _write(target, _watched(lines, total, progress))
        return
    if target.exists() and not target.is_file():
        raise BadInput(f"{sources.printable(str(target))} is not a file: give the name of one")
    lines = jsonl.lines(snapshot.histories, snapshot.links)
    with _told(target):
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
        try:
            with open(handle, "w", encoding="utf-8", newline="\n") as file:
                _write(file, _watched(lines, total, progress))
                _settle(file)
            os.replace(name, target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        settle_folder(target.parent)


def write_markdown(snapshot: Snapshot, target: Path | TextIO, progress: Progress) -> None:
    """A new folder with one file per memory that stands now."""
    if not isinstance(target, Path):
        raise BadInput("a Markdown export is a folder: give the name of a new one")
    if len(snapshot.histories) > sources.MAX_FILES:
        raise BadInput(f"more than {sources.MAX_FILES:,} memories are too many for a folder of files: export as jsonl")
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise BadInput(f"{sources.printable(str(target))} is there already: give the name of a new folder")
    files = (markdown.file_of(history[-1]) for history in snapshot.histories)
    with _told(target):
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name[:100]}.", dir=target.parent))
        try:
            for name, text in _watched(files, len(snapshot.histories), progress):
                path = folder / name
                path.parent.mkdir(exist_ok=True)
                with path.open("w", encoding="utf-8", newline="\n") as file:
                    _write(file, [text])
                    _settle(file)
            os.replace(folder, target)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        settle_folder(target.parent)


def _write(file: TextIO, texts: Iterable[str]) -> None:
    for text in texts:
        file.write(text)


def _settle(file: TextIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _watched(pieces: Iterable[_Piece], total: int, progress: Progress) -> Iterator[_Piece]:
    for done, piece in enumerate(pieces, 1):
        yield piece
        if done % _STEP == 0 or done == total:
            progress(done, total)


@contextmanager
def _told(target: Path) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise BadInput(f"no such folder: {sources.printable(str(target.parent))}") from error
    except OSError as error:
        raise Unavailable(f"cannot write {sources.printable(str(target))}: {error.strerror or error}") from error
