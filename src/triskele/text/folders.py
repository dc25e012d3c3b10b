"""Which project a folder belongs to: what identifies it, and what it may be called.

A git repository is identified by its remote, whatever folder it is cloned into; any folder by its path.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

REMOTE, ROOT = "git:", "path:"

_GIT_POINTER = b"gitdir:"
# A path has 4,096 bytes at most; a longer file is not a pointer.
_MAX_POINTER_BYTES = 4096 + 16
# A longer configuration is read to here: the first remote is near the beginning.
_MAX_CONFIG_BYTES = 64 * 1024
_MAX_REMOTE_CHARACTERS = 500
_SECTION = re.compile(r'\s*\[\s*remote\s+"((?:[^"\\]|\\.)*)"\s*\]', re.IGNORECASE)
_ANY_SECTION = re.compile(r"\s*\[")
_URL = re.compile(r"\s*url\s*=\s*(\S+)", re.IGNORECASE)
_WITH_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://(?P<host>[^/]*)/*(?P<path>.*)", re.IGNORECASE)
_SCP = re.compile(r"(?P<host>[^/:\\]{2,}):/*(?P<path>[^\\]*)")
# Hosts whose addresses mean the same in any case.
_ANY_CASE = frozenset({"github.com", "gitlab.com", "bitbucket.org", "codeberg.org"})


@dataclass(frozen=True, slots=True)
class FolderIdentity:
    """A folder where work is done; `remote` is empty if no git remote is known."""

    root: Path
    remote: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """What identifies it, the folder first; nothing at the root of the file system."""
        return tuple(filter(None, (self.root_key, self.remote_key)))

    @property
    def root_key(self) -> str:
        """The folder as a key; a path that is not valid text is escaped."""
        path = os.fsencode(self.root.as_posix()).decode("utf-8", "backslashreplace")
        return f"{ROOT}{path}" if self.root.name else ""

    @property
    def remote_key(self) -> str:
        """The remote as a key; empty without a remote."""
        return f"{REMOTE}{self.remote}" if self.remote else ""

    @property
    def name(self) -> str:
        """What it is called as long as no other place is called so; empty at the root of the file system."""
        return self.root.name

    def names(self) -> Iterator[str]:
        """What it may be called, best first: its name, with the owner of the remote or the folder above, numbered."""
        yield self.name
        above = self.remote.split("/")[-2] if self.remote.count("/") > 1 else self.root.parent.name
        if above:
            yield f"{above}/{self.name}"
        yield from (f"{self.name}-{number}" for number in count(2))


def discover(folder: Path) -> FolderIdentity:
    """The place of work that is done in `folder`: its git repository, else the folder itself."""
    folder = _resolved(folder) or folder.absolute()
    for candidate in (folder, *folder.parents):
        marker = candidate / ".git"
        if _is(marker, Path.is_dir):
            return FolderIdentity(candidate, _remote(marker))
        if _is(marker, Path.is_file):
            main = _main_checkout(marker)
            return FolderIdentity(main, "" if main == candidate else _remote(main / ".git"))
    return FolderIdentity(folder)


def is_gone(key: str) -> bool:
    """Whether a key names a folder that is not there any more; unknown, so False, for a path with escapes."""
    return key.startswith(ROOT) and "\\" not in key and not _is(Path(key.removeprefix(ROOT)), Path.is_dir)


def _remote(git: Path) -> str:
    """The address of `origin`, else of the only remote; empty without one, or with several."""
    config = git / "config"
    if not _is(config, Path.is_file):
        return ""
    remotes: dict[str, str] = {}
    name = None
    for line in _head(config, _MAX_CONFIG_BYTES).decode("utf-8", "replace").splitlines():
        if _ANY_SECTION.match(line):
            section = _SECTION.match(line)
            name = section[1] if section else None
        elif name is not None and (url := _URL.match(line)):
            remotes.setdefault(name, url[1].strip('"'))
    chosen = remotes.get("origin") or (next(iter(remotes.values())) if len(remotes) == 1 else "")
    return normalised(chosen)


def normalised(url: str) -> str:
    """A remote as host/path, without scheme, user, password, port and `.git`; a local path is not a remote."""
    remote = _WITH_SCHEME.fullmatch(url) or _SCP.fullmatch(url)
    if remote is None or not remote["host"] or len(url) > _MAX_REMOTE_CHARACTERS or not url.isprintable():
        return ""
    host = re.sub(r":\d*$", "", remote["host"].rpartition("@")[2]).lower()
    path = re.sub("/+", "/", re.split("[?#]", remote["path"])[0]).strip("/").removesuffix(".git").strip("/")
    if not host or not path:
        return ""
    return f"{host}/{path.lower() if host in _ANY_CASE else path}"


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
    """The path written in the file, relative to its folder; nothing if the file holds no path."""
    if not _is(file, Path.is_file):
        return None
    content = _head(file, _MAX_POINTER_BYTES + 1)
    if len(content) > _MAX_POINTER_BYTES or b"\0" in content or not content.startswith(prefix):
        return None
    written = os.fsdecode(content.removeprefix(prefix).strip())
    if not written:
        return None
    # The last part stays as it is written: a link to another checkout's pointer does not count as that checkout.
    path = file.parent / written
    parent = _resolved(path.parent)
    return parent / path.name if parent and path.name not in ("", "..") else _resolved(path)


def _head(file: Path, most: int) -> bytes:
    """The first bytes of a file; does not block if the file has become a pipe."""
    try:
        descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError):
        return b""
    try:
        return os.read(descriptor, most)
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
