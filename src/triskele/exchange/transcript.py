"""A transcript of Claude Code: one JSON object a line; only messages of the user and the assistant are read.

Tool calls, thoughts, summaries, commands and messages of subagents are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from triskele import validation
from triskele.config import MemorySettings
from triskele.errors import BadInput
from triskele.exchange import sources
from triskele.exchange.json_text import parse, parse_object
from triskele.exchange.records import Item, Note
from triskele.privacy.detect import is_cut
from triskele.replies import Problem
from triskele.types import Sensitivity

_SPOKEN = frozenset({"user", "assistant"})
# Lines that a program wrote in the place of a speaker.
_NOT_SPOKEN = ("isMeta", "isSidechain", "isCompactSummary", "isApiErrorMessage")


def recognises(path: Path, head: str) -> bool:
    """A file whose first object belongs to a session."""
    if not path.is_file() or not head.lstrip().startswith("{"):
        return False
    try:
        first = parse(head.lstrip().split("\n", 1)[0])
    except BadInput:
        return False
    return isinstance(first, dict) and "type" in first and bool(first.keys() & {"sessionId", "leafUuid"})


def read(path: Path, settings: MemorySettings) -> Iterator[Item]:
    """What was said, in order; a longer text is cut at sentences."""
    positions: dict[str, int] = {}
    for line, raw in sources.lines(path):
        place = f"line {line}"
        if raw is None:
            # A tool may have printed more than a line may have.
            continue
        try:
            record = parse_object(raw, sources.decoded(raw)) if raw.strip() else {}
        except BadInput as error:
            yield Problem(place, str(error))
            continue
        for text, details in _pieces(record, settings):
            session = str(record.get("sessionId") or path.stem)
            position = positions[session] = positions.get(session, -1) + 1
            yield Note(place=place, content=text, session=session, position=position, **details)
    if not positions:
        yield Problem("the file", "is empty, or contains no messages")


def _pieces(record: dict[str, Any], settings: MemorySettings) -> Iterator[tuple[str, dict[str, Any]]]:
    message = record.get("message")
    if record.get("type") not in _SPOKEN or not isinstance(message, dict):
        return
    text = _said(message.get("content"))
    # Commands, their output and reminders are in tags.
    if not text or text.startswith("<") or any(record.get(name) for name in _NOT_SPOKEN):
        return
    limit = settings.max_characters
    pieces = [text] if len(text) <= limit else validation.split_sentences(text, limit)
    details: dict[str, Any] = {"role": str(message.get("role") or record["type"])}
    if isinstance(record.get("timestamp"), str):
        details["created"] = record["timestamp"]
    if is_cut(text, pieces):
        details["sensitivity"] = Sensitivity.SECRET.value
    yield from ((piece, details) for piece in pieces)


def _said(content: Any) -> str:
    """The text of a message; empty for the results of tools."""
    if isinstance(content, str):
        return content.strip()
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return "\n\n".join(str(part["text"]).strip() for part in parts if part.get("type") == "text" and part.get("text"))
