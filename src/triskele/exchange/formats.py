"""The formats by name: how each is recognised, read and written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from triskele.config import MemorySettings
from triskele.errors import BadInput
from triskele.exchange import agents_file, jsonl, markdown, mcp_memory, sources, writing
from triskele.exchange.records import Item


@dataclass(frozen=True, slots=True)
class ImportFormat:
    """One way in: whether a path (with the beginning of its text) is of this kind, and what it holds."""

    recognises: Callable[[Path, str], bool]
    read: Callable[[Path, MemorySettings], Iterator[Item]]


# In the order in which they are tried: the narrow ones before the wide ones.
IMPORTS: dict[str, ImportFormat] = {
    "agents": ImportFormat(agents_file.recognises, agents_file.read),
    "markdown": ImportFormat(markdown.recognises, markdown.read),
    "mcp-memory": ImportFormat(mcp_memory.recognises, mcp_memory.read),
    "jsonl": ImportFormat(jsonl.recognises, jsonl.read),
}


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """One way out; some formats can tell the present state alone."""

    write: writing.Writer
    is_current_only: bool = False
    tells_secrets: bool = False


EXPORTS: dict[str, ExportFormat] = {
    "jsonl": ExportFormat(writing.write_jsonl, tells_secrets=True),
    "markdown": ExportFormat(writing.write_markdown, is_current_only=True),
}


def choose(path: Path, name: str | None) -> str:
    """The format given, or the one that the path's name and content speak for."""
    if name is not None:
        return checked(name, IMPORTS)
    head = "" if path.is_dir() else sources.head(path)
    if path.is_file() and not head.strip():
        raise BadInput(f"{sources.printable(path.name)} is empty")
    for known, format in IMPORTS.items():
        if format.recognises(path, head):
            return known
    raise BadInput(f"cannot tell the format of {sources.printable(path.name)}: name one of {', '.join(IMPORTS)}")


def checked(name: str, known: Collection[str]) -> str:
    """A name that is among the known ones."""
    if name not in known:
        raise BadInput(f"unknown format {name[:40]!r}: one of {', '.join(known)}")
    return name
