"""Import transcripts of agents, and read the turns that learning needs.

Claude Code and Codex write JSON lines, Gemini one document. A transcript grows while it is read: learning continues
at an offset and leaves a line that is still being written for the next time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from triskele import validation
from triskele.config import MemorySettings
from triskele.errors import BadInput
from triskele.exchange import sources
from triskele.exchange.json_text import first_object, parse, parse_object
from triskele.exchange.records import Item, Note
from triskele.privacy.detect import is_cut
from triskele.replies.rooms import Problem
from triskele.text import timestamps
from triskele.types import Sensitivity, SpokenTurn

_MOST_BYTES = 2**28
# Lines that a program wrote, and no person.
_CLAUDE_NOTES = ("isMeta", "isSidechain", "isCompactSummary", "isApiErrorMessage")
_CLAUDE_PROGRAMS = (*_CLAUDE_NOTES, "toolUseResult")
_CODEX_PROGRAMS = ("<environment_context>", "<user_instructions>", "# AGENTS.md", "<turn_aborted>")
_NO_TRANSCRIPT = "this is not a transcript of Claude Code, Codex or Gemini: `triskele import` reads notes and exports"
_ROLES = {"user": "user", "human": "user", "assistant": "assistant", "gemini": "assistant", "model": "assistant"}
_TEXT_PARTS = frozenset({"text", "input_text", "output_text", None})


def read_turns(path: Path, offset: int = 0) -> tuple[list[SpokenTurn], int]:
    """The turns after an offset, and the next offset."""
    source = sources.resolved(path)
    data = sources.content(source, _MOST_BYTES)
    start = offset if offset <= len(data) else 0
    head = data[:1024].lstrip()
    if head.startswith(b"[") or (head.startswith(b"{") and not _is_lines(data)):
        return _document_turns(data, start)
    end = data.rfind(b"\n") + 1
    records = [record for line in data[start:end].splitlines() if (record := _record(line))]
    if start == 0 and end and not any(isinstance(record.get("type"), str) for record in records):
        raise BadInput(_NO_TRANSCRIPT)
    return list(_line_turns(records, source.stem, data[:start])), max(end, start)


def _is_lines(data: bytes) -> bool:
    """Whether the first line is a whole object."""
    return _record(data.split(b"\n", 1)[0]) is not None and data.count(b"\n") > 0


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        value = parse(sources.decoded(line)) if line.strip() else None
    except BadInput:
        return None
    return value if isinstance(value, dict) else None


def _line_turns(records: Iterable[dict[str, Any]], stem: str, before: bytes) -> Iterator[SpokenTurn]:
    first = _record(before.split(b"\n", 1)[0]) or {}
    is_codex = first.get("type") == "session_meta"
    session, is_subagent = _meta(first, "") if is_codex else (stem, False)
    for record in records:
        if record.get("type") == "session_meta":
            session, is_subagent = _meta(record, stem)
        turn = _codex_turn(record, session, is_subagent) if "payload" in record else _claude_turn(record, stem)
        if turn is not None:
            yield turn


def _meta(record: dict[str, Any], stem: str) -> tuple[str, bool]:
    payload = record.get("payload")
    details = payload if isinstance(payload, dict) else {}
    return str(details.get("id") or stem), isinstance(details.get("source"), dict)


def _claude_turn(record: dict[str, Any], stem: str) -> SpokenTurn | None:
    message = record.get("message")
    if record.get("type") not in ("user", "assistant") or not isinstance(message, dict):
        return None
    text = _text(message.get("content"))
    # Commands, their output and reminders are in tags.
    is_program = any(record.get(name) for name in _CLAUDE_PROGRAMS) or text.startswith("<")
    session = str(record.get("sessionId") or stem)
    return _turn(str(record["type"]), text, record.get("timestamp"), session, is_typed=not is_program)


def _codex_turn(record: dict[str, Any], session: str, is_subagent: bool) -> SpokenTurn | None:
    payload = record["payload"]
    if record.get("type") != "response_item" or not isinstance(payload, dict) or payload.get("type") != "message":
        return None
    text = _text(payload.get("content"))
    is_program = is_subagent or text.startswith(_CODEX_PROGRAMS)
    return _turn(str(payload.get("role")), text, record.get("timestamp"), session, is_typed=not is_program)


def _document_turns(data: bytes, start: int) -> tuple[list[SpokenTurn], int]:
    """Gemini's session or log; the offset counts messages."""
    document = parse(sources.decoded(data))
    messages = document.get("messages") if isinstance(document, dict) else document
    named = str(document.get("sessionId") or "") if isinstance(document, dict) else ""
    if not isinstance(messages, list):
        raise BadInput(_NO_TRANSCRIPT)
    turns = []
    for message in messages[start:]:
        if isinstance(message, dict):
            text = _text(message.get("content", message.get("message")))
            session = named or str(message.get("sessionId") or "")
            turn = _turn(str(message.get("type")), text, message.get("timestamp"), session, is_typed=True)
            turns += [turn] if turn is not None else []
    return turns, len(messages)


def _turn(role: str, text: str, at: object, session: str, *, is_typed: bool) -> SpokenTurn | None:
    known_role = _ROLES.get(role)
    return SpokenTurn(known_role, text, _moment(at), session, is_typed) if known_role and text else None


def _text(content: object, kinds: frozenset[str | None] = _TEXT_PARTS) -> str:
    """The text of a message; empty for the results of tools."""
    if isinstance(content, str):
        return content.strip()
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if part.get("type") in kinds]
    return "\n\n".join(text.strip() for text in texts if isinstance(text, str) and text)


def _moment(at: object) -> datetime | None:
    try:
        return timestamps.parse(at) if isinstance(at, str) else None
    except BadInput:
        return None


def recognises(_path: Path, head: str) -> bool:
    """Whether a file is a session of Claude Code."""
    first = first_object(head)
    return "type" in first and bool(first.keys() & {"sessionId", "leafUuid"})


def read(path: Path, settings: MemorySettings) -> Iterator[Item]:
    """The messages of user and assistant, cut at sentences."""
    positions: dict[str, int] = {}
    for line, raw in sources.lines(path):
        location = f"line {line}"
        if raw is None:
            # A tool may have printed more than a line may have.
            continue
        try:
            record = parse_object(raw, sources.decoded(raw)) if raw.strip() else {}
        except BadInput as error:
            yield Problem(location, str(error))
            continue
        for text, details in _pieces(record, settings):
            session = str(record.get("sessionId") or path.stem)
            position = positions[session] = positions.get(session, -1) + 1
            yield Note(location=location, content=text, details=details | {"session": session, "position": position})
    if not positions:
        yield Problem("the file", "is empty, or contains no messages")


def _pieces(record: dict[str, Any], settings: MemorySettings) -> Iterator[tuple[str, dict[str, Any]]]:
    message = record.get("message")
    if record.get("type") not in ("user", "assistant") or not isinstance(message, dict):
        return
    text = _text(message.get("content"), frozenset({"text"}))
    # Commands, their output and reminders are in tags.
    if not text or text.startswith("<") or any(record.get(name) for name in _CLAUDE_NOTES):
        return
    pieces = validation.fitting_pieces(text, settings.max_characters)
    details: dict[str, Any] = {"role": str(message.get("role") or record["type"])}
    if isinstance(record.get("timestamp"), str):
        details["created_at"] = record["timestamp"]
    if is_cut(text, pieces):
        details["sensitivity"] = Sensitivity.SECRET
    yield from ((piece, details) for piece in pieces)
