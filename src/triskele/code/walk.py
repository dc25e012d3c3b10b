"""Find a tree's source files, without ignored, large, generated or vendored ones."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from triskele.code.ignore import IgnorePattern, is_ignored, patterns_of
from triskele.code.languages import language_of

MAX_BYTES = 1_000_000
MAX_FILES = 200_000
MAX_DEPTH = 60
_HEAD_BYTES = 4096
_TAIL_BYTES = 512
_LONG_LINE = 1000
IGNORE_FILE = ".gitignore"

VENDORED = frozenset(
    """node_modules vendor third_party thirdparty bower_components site-packages __pycache__ .venv venv .tox .nox
    .mypy_cache .pytest_cache .ruff_cache .git .hg .svn .idea .vscode .gradle .next .nuxt target Pods Carthage
    DerivedData .terraform .eggs""".split()
)
_GENERATED_NAME = re.compile(
    r"(?:\.min\.\w+|\.bundle\.js|_pb2(?:_grpc)?\.pyi?|\.pb\.(?:go|cc|h)|\.g\.(?:cs|dart)|\.lock)$"
)
_GENERATED_HEAD = re.compile(
    rb"@generated\b|DO NOT (?:EDIT|MODIFY)|auto(?:matically)?[- ]?generated (?:by|from|file|code)", re.I
)
# What compilers of other languages write into JavaScript.
_COMPILED = re.compile(rb"__esModule|^//# sourceMappingURL=", re.M)
_SCRIPTS = (".js", ".cjs", ".mjs", ".d.ts", ".d.cts", ".d.mts")

TOO_LARGE, BINARY, GENERATED, UNREADABLE, TOO_MANY = "too large", "binary", "generated", "unreadable", "too many files"


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A source file by path, with values that show changes."""

    path: str
    size: int
    mtime_ns: int


@dataclass(slots=True)
class Walk:
    """One walk: files, times of folders and .gitignore files, and counts of omissions."""

    root: Path
    times: dict[str, int] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)

    def files(self) -> Iterator[FoundFile]:
        """Every source file by folder and name, without linked folders."""
        stack: list[tuple[str, tuple[IgnorePattern, ...], int]] = [("", (), 0)]
        count = 0
        while stack:
            folder, patterns, depth = stack.pop()
            entries = self._entries(folder)
            patterns = self._patterns(folder, patterns, entries)
            below: list[tuple[str, tuple[IgnorePattern, ...], int]] = []
            for entry in entries:
                path = folder + entry.name
                if entry.is_dir(follow_symlinks=False):
                    is_left_out = entry.name in VENDORED or is_ignored(path, patterns, is_folder=True)
                    if depth < MAX_DEPTH and not is_left_out:
                        below.append((path + "/", patterns, depth + 1))
                elif (file := self._file(entry, path, patterns)) is not None:
                    if count >= MAX_FILES:
                        self.skipped[TOO_MANY] += 1
                        continue
                    count += 1
                    yield file
            stack.extend(reversed(below))

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        path = self.root / folder
        try:
            self.times[folder] = path.stat().st_mtime_ns
            with os.scandir(path) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except OSError:
            self.skipped[UNREADABLE] += 1
            return []

    def _patterns(
        self, folder: str, outer: tuple[IgnorePattern, ...], entries: Sequence[os.DirEntry[str]]
    ) -> tuple[IgnorePattern, ...]:
        if not any(entry.name == IGNORE_FILE for entry in entries):
            return outer
        path = self.root / folder / IGNORE_FILE
        try:
            self.times[folder + IGNORE_FILE] = path.stat().st_mtime_ns
            with path.open("rb") as source:
                text = source.read(MAX_BYTES).decode("utf-8", "replace")
        except OSError:
            return outer
        return (*outer, *patterns_of(text, folder))

    def _file(self, entry: os.DirEntry[str], path: str, patterns: Sequence[IgnorePattern]) -> FoundFile | None:
        has_suffix = "." in entry.name
        if has_suffix and language_of(path) is None:
            return None
        if is_ignored(path, patterns, is_folder=False) or _GENERATED_NAME.search(entry.name):
            return None
        try:
            # A link to a file is the file; a pipe or a device is never opened.
            if not entry.is_file():
                return None
            status = entry.stat()
            if entry.is_symlink() and not Path(entry.path).resolve().is_relative_to(self.root):
                return None
        except OSError:
            self.skipped[UNREADABLE] += 1
            return None
        if not has_suffix and not _has_shebang(entry.path):
            return None
        if status.st_size > MAX_BYTES:
            self.skipped[TOO_LARGE] += 1
            return None
        return FoundFile(path, status.st_size, status.st_mtime_ns)


def _has_shebang(path: str) -> bool:
    try:
        with open(path, "rb") as source:
            return source.read(2) == b"#!"
    except OSError:
        return False


def read(root: Path, path: str) -> bytes | None:
    """Bytes of a source file up to MAX_BYTES; None if unreadable."""
    try:
        with open(os.path.join(root, path), "rb") as source:
            return source.read(MAX_BYTES)
    except OSError:
        return None


def unfit(path: str, source: bytes) -> str | None:
    """Why a content is left out; None if it is source."""
    head = source[:_HEAD_BYTES]
    if b"\0" in head:
        return BINARY
    if _GENERATED_HEAD.search(head[:1000]):
        return GENERATED
    if path.endswith(_SCRIPTS) and _COMPILED.search(head + source[-_TAIL_BYTES:]):
        return GENERATED
    lines = source.count(b"\n") + 1
    return GENERATED if len(source) > _LONG_LINE and len(source) / lines > _LONG_LINE / 2 else None
