"""Import the notes of Claude Code about a project: `MEMORY.md` and the files that it lists."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from triskele import validation
from triskele.config import MemorySettings
from triskele.errors import BadInput
from triskele.exchange import agents_file, frontmatter, markdown, sources
from triskele.exchange.records import Item, NamedLink, Note
from triskele.replies.rooms import Problem, Skipped

CLIENT = "claude-code"
_INDEX = "MEMORY.md"
# What the client calls the kinds of its notes.
_CATEGORIES = {"user": "people", "feedback": "preferences", "project": "projects", "reference": "facts"}
_LISTED = re.compile(r"\[[^\]]*\]\(([^()\s]+\.md)\)")
_TAG = "claude code notes"


def named_source(source: Path, folder: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """The path of a source; `claude-code` names this project's notes."""
    if str(source) != CLIENT or source.exists():
        return source
    home = Path(environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
    for root in (folder.resolve(), *folder.resolve().parents):
        notes = home / "projects" / re.sub(r"[^A-Za-z0-9]", "-", str(root)) / "memory"
        if (notes / _INDEX).is_file():
            return notes
    raise BadInput(f"Claude Code has no notes about {folder}: it keeps them in {home / 'projects'}/…/memory/{_INDEX}")


def recognises(path: Path, _head: str) -> bool:
    """A file called MEMORY.md, or a folder with one."""
    return path.name == _INDEX if path.is_file() else (path / _INDEX).is_file()


def read(path: Path, settings: MemorySettings) -> Iterator[Item]:
    """The lines of MEMORY.md and the notes next to it."""
    root = path if path.is_dir() else path.parent
    files, skipped = sources.files(root, markdown.SUFFIXES) if path.is_dir() else ([path], [])
    yield from skipped
    names = {file.name for file in files}
    for file in files:
        location = sources.location(file, root)
        try:
            text = sources.text(file)
            items = (
                _index(text, location, names, settings)
                if file.name == _INDEX
                else _topic(text, location, file, settings)
            )
            yield from items
        except BadInput as error:
            yield Problem(location, str(error))


def _index(text: str, location: str, names: set[str], settings: MemorySettings) -> Iterator[Item]:
    """Facts of the index, without lines that only list a note."""
    for item in agents_file.parse(text, settings):
        where = f"{location} {item.place if isinstance(item, Skipped) else item.location}"
        listed = _LISTED.search(item.content) if isinstance(item, Note) else None
        if isinstance(item, Skipped):
            yield replace(item, place=where)
        elif listed and listed[1] in names:
            yield Skipped(where, f"lists {listed[1]}, which is imported itself")
        else:
            tags = markdown.fitting((*item.tags, _TAG))
            yield replace(item.with_details(tags=tags), location=where)


def _topic(text: str, location: str, file: Path, settings: MemorySettings) -> Iterator[Item]:
    head, _, _ = frontmatter.parse(text)
    kind = str(head.get("type", "")).strip().lower()
    category = _CATEGORIES.get(kind, "")
    described = " ".join(str(head.get(name, "")) for name in ("name", "description")).strip()
    for item in markdown.parse(text, location, file.stem, settings):
        if isinstance(item, NamedLink):
            yield item
            continue
        if isinstance(item, Note):
            category = category if category in settings.categories else item.details["category"]
            tags = markdown.fitting((*item.tags, _TAG))
            keywords = described[: validation.MAX_LABEL_CHARACTERS]
            item = item.with_details(category=category, tags=tags, keywords=keywords)
        yield item
