"""Which project a folder belongs to: the name of its git repository, else of the folder itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

_GIT_POINTER = b"gitdir:"
# A path has 4,096 bytes at most; a longer file is no pointer.
_MAX_POINTER_BYTES = 4096 + 16


def resolve(folder: Path) -> str:
    """The project name for work done in `folder`; empty at the root of the file system."""
    folder = _resolved(folder) or folder.absolute()
    for candidate in (folder, *folder.parents):
        marker = candidate / ".git"
        if _is(marker, Path.is_dir):
            return candidate.name
        if _is(marker, Path.is_file):
            return _main_checkout(marker).name
    return folder.name


def _main_checkout(marker: Path) -> Path:
    """The checkout that a linked worktree belongs to; a submodule, or a pointer that nothing confirms, is its own."""
    own = marker.parent
    target = _pointed_at(marker, _GIT_POINTER)
    # A worktree points into `<main>/.git/worktrees/<name>`; a submodule keeps its own name.
    if target is None or "worktrees" not in target.parts or ".git" not in target.parts:
        return own
    back = _pointed_at(target / "gitdir")
    if back is None or (_resolved(back.parent), back.name) != (own, marker.name):
        return own
    return Path(*target.parts[: len(target.parts) - target.parts[::-1].index(".git") - 1])


def _pointed_at(file: Path, prefix: bytes = b"") -> Path | None:
    """The path written in the file, relative to its folder; nothing where the file holds no path."""
    if not _is(file, Path.is_file):
        return None
    content = _head(file)
    if len(content) > _MAX_POINTER_BYTES or b"\0" in content or not content.startswith(prefix):
        return None
    written = os.fsdecode(content.removeprefix(prefix).strip())
    if not written:
        return None
    # The last part stays as it is written: a link to another checkout's pointer does not count as that checkout.
    path = file.parent / written
    parent = _resolved(path.parent)
    return parent / path.name if parent and path.name not in ("", "..") else _resolved(path)


def _head(file: Path) -> bytes:
    """The beginning of a file, one byte more than a pointer may have; without waiting where it became a pipe."""
    try:
        descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError):
        return b""
    try:
        return os.read(descriptor, _MAX_POINTER_BYTES + 1)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _resolved(path: Path) -> Path | None:
    """The path without links; nothing where links form a loop or the path cannot be one."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        return None


def _is(path: Path, kind: Callable[[Path], bool]) -> bool:
    """Whether the path is of this kind; a folder that cannot be read answers no."""
    try:
        return kind(path)
    except (OSError, ValueError):
        return False
