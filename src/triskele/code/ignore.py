"""Apply .gitignore files as git does: nested, negated, anchored, with `**`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

MAX_PATTERNS = 10_000
_MAX_STARS = 8


@dataclass(frozen=True, slots=True)
class IgnorePattern:
    """One line of a .gitignore in the folder `base`."""

    base: str
    matches: re.Pattern[str]
    is_negated: bool
    folders_only: bool


def patterns_of(text: str, base: str = "") -> list[IgnorePattern]:
    """The valid patterns of a .gitignore in a folder."""
    patterns = (_pattern(line, base) for line in text.splitlines()[:MAX_PATTERNS])
    return [pattern for pattern in patterns if pattern is not None]


def is_ignored(path: str, patterns: Sequence[IgnorePattern], *, is_folder: bool) -> bool:
    """Whether the last pattern that matches a path leaves it out."""
    for pattern in reversed(patterns):
        applies = (is_folder or not pattern.folders_only) and path.startswith(pattern.base)
        if applies and pattern.matches.match(path, len(pattern.base)):
            return not pattern.is_negated
    return False


def _pattern(line: str, base: str) -> IgnorePattern | None:
    line = line.rstrip("\r")
    # A trailing space counts only behind a backslash.
    stripped = line.rstrip(" ")
    line = stripped + " " if stripped.endswith("\\") and stripped != line else stripped
    if not line or line.startswith("#"):
        return None
    is_negated = line.startswith("!")
    line = line.removeprefix("!").removeprefix("\\") if is_negated or line.startswith(("\\#", "\\!")) else line
    folders_only = line.endswith("/")
    line = line.rstrip("/")
    # Many stars in one line would backtrack without end.
    if not line or line.count("*") > _MAX_STARS * 2:
        return None
    is_anchored = "/" in line
    try:
        expression = re.compile(("" if is_anchored else r"(?:.*/)?") + _regex(line.lstrip("/")) + r"\Z", re.DOTALL)
    except re.error:
        return None
    return IgnorePattern(base, expression, is_negated, folders_only)


def _regex(glob: str) -> str:
    parts: list[str] = []
    at = 0
    while at < len(glob):
        at, part = _next(glob, at)
        parts.append(part)
    return "".join(parts)


def _next(glob: str, at: int) -> tuple[int, str]:
    """The regular expression of the glob at a position, and its end."""
    if glob.startswith("**/", at) and (at == 0 or glob[at - 1] == "/"):
        return at + 3, r"(?:.*/)?"
    if glob.startswith("/**", at) and at + 3 == len(glob):
        return at + 3, r"/.+"
    character = glob[at]
    if character == "*":
        end = at
        while end < len(glob) and glob[end] == "*":
            end += 1
        return end, r"[^/]*"
    if character == "?":
        return at + 1, r"[^/]"
    if character == "[" and (end := glob.find("]", at + 2)) > 0:
        inner = glob[at + 1 : end].replace("\\", "\\\\")
        return end + 1, f"[{'^' + inner[1:] if inner[0] in '!^' else inner}]"
    if character == "\\" and at + 1 < len(glob):
        return at + 2, re.escape(glob[at + 1])
    return at + 1, re.escape(character)
