"""The table of formats: how each is recognised, read and written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from triskele.config import MemorySettings
from triskele.errors import BadInput
from triskele.exchange import agents_file, export, jsonl, markdown, mcp_memory, sources
from triskele.exchange.records import Item


@dataclass(frozen=True, slots=True)
class ImportFormat:
    """An import format: whether a path (with the beginning of its text) has it, and how it is read."""

    recognises: Callable[[Path, str], bool]
    read: Callable[[Path, MemorySettings], Iterator[Item]]


# In the order in which they are tried: specific formats before general ones.
IMPORTS: dict[str, ImportFormat] = {
    "agents": ImportFormat(agents_file.recognises, agents_file.read),
    "markdown": ImportFormat(markdown.recognises, markdown.read),
    "mcp-memory": ImportFormat(mcp_memory.recognises, mcp_memory.read),
    "jsonl": ImportFormat(jsonl.recognises, jsonl.read),
}


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """An export format; some formats hold the current state only."""

    write: export.Writer
    is_current_only: bool = False
    tells_secrets: bool = False


EXPORTS: dict[str, ExportFormat] = {
    "jsonl": ExportFormat(export.write_jsonl, tells_secrets=True),
    "markdown": ExportFormat(export.write_markdown, is_current_only=True),
}


def choose(path: Path, name: str | None) -> str:
    """The given format, or the one detected from the path's name and content."""
    if name is not None:
        return checked(name, IMPORTS)
    head = "" if path.is_dir() else sources.head(path)
    if path.is_file() and not head.strip():
        raise BadInput(f"{sources.printable(path.name)} is empty")
    for known, format in IMPORTS.items():
        if format.recognises(path, head):
            return known
    raise BadInput(f"the format of {sources.printable(path.name)} is unknown: name one of {', '.join(IMPORTS)}")


def checked(name: str, known: Collection[str]) -> str:
    """The name, if it is a known format."""
    if name not in known:
        raise BadInput(f"unknown format {name[:40]!r}: choose one of {', '.join(known)}")
    return name
