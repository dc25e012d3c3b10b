"""Which project a folder belongs to: the name of its git repository, else of the folder itself."""

from __future__ import annotations

from pathlib import Path

_GIT_POINTER = "gitdir:"


def resolve(folder: Path) -> str:
    """The project name for work done in `folder`; empty at the root of the file system."""
    folder = folder.resolve()
    for candidate in (folder, *folder.parents):
        marker = candidate / ".git"
        if marker.is_dir():
            return candidate.name
        if marker.is_file():
            return _main_checkout(marker).name
    return folder.name


def _main_checkout(marker: Path) -> Path:
    """The checkout that a linked worktree or submodule belongs to."""
    try:
        pointer = marker.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return marker.parent
    target = (marker.parent / pointer.removeprefix(_GIT_POINTER).strip()).resolve()
    parts = target.parts
    # A worktree points into `<main>/.git/worktrees/<name>`; a submodule keeps its own name.
    if "worktrees" in parts and ".git" in parts:
        return Path(*parts[: len(parts) - parts[::-1].index(".git") - 1])
    return marker.parent
