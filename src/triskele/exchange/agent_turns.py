"""The turns of a conversation as agents write them down: Claude Code and Codex (JSON lines), Gemini (one document).

A transcript grows while it is read: what was read before is left out, and a line that is still being written waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from triskele.errors import BadInput
from triskele.exchange import sources
from triskele.exchange.json_text import parse
from triskele.text import timestamps
from triskele.types import SpokenTurn

_MOST_BYTES = 2**28
# Lines that a program wrote in the place of a speaker.
_CLAUDE_PROGRAMS = ("isMeta", "isSidechain", "isCompactSummary", "isApiErrorMessage", "toolUseResult")
_CODEX_PROGRAMS = ("<environment_context>", "<user_instructions>", "# AGENTS.md", "<turn_aborted>")
_NO_TRANSCRIPT = "this is not a transcript of Claude Code, Codex or Gemini: `triskele import` reads notes and exports"
_ROLES = {"user": "user", "human": "user", "assistant": "assistant", "gemini": "assistant", "model": "assistant"}


def read_turns(path: Path, offset: int = 0) -> tuple[list[SpokenTurn], int]:
    """The turns after an offset, and the offset to continue from; a shorter file is read from its start."""
    source = sources.resolved(path)
    data = sources.content(source, _MOST_BYTES)
    start = offset if offset <= len(data) else 0
    head = data[:1024].lstrip()
    if head.startswith(b"[") or (head.startswith(b"{") and not _is_lines(data)):
        return _document_turns(data, start)
    end = data.rfind(b"\n") + 1
    records = [each for line in data[start:end].splitlines() if (each := _record(line))]
    if start == 0 and end and not any(isinstance(each.get("type"), str) for each in records):
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
    session, is_subagent = _codex_session(before) or (stem, False)
    for record in records:
        if record.get("type") == "session_meta":
            session, is_subagent = _meta(record, stem)
        turn = _codex_turn(record, session, is_subagent) if "payload" in record else _claude_turn(record, stem)
        if turn is not None:
            yield turn


def _codex_session(before: bytes) -> tuple[str, bool] | None:
    first = _record(before.split(b"\n", 1)[0]) if before else None
    return _meta(first, "") if first and first.get("type") == "session_meta" else None


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
    """Gemini's session or log: the offset is that of a document that is rewritten each time."""
    document = parse(sources.decoded(data))
    messages = document.get("messages") if isinstance(document, dict) else document
    named = str(document.get("sessionId") or "") if isinstance(document, dict) else ""
    if not isinstance(messages, list):
        raise BadInput(_NO_TRANSCRIPT)
    turns = []
    for each in messages[start:]:
        if isinstance(each, dict):
            text = _text(each.get("content", each.get("message")))
            session = named or str(each.get("sessionId") or "")
            turn = _turn(str(each.get("type")), text, each.get("timestamp"), session, is_typed=True)
            turns += [turn] if turn is not None else []
    return turns, len(messages)


def _turn(role: str, text: str, at: object, session: str, *, is_typed: bool) -> SpokenTurn | None:
    speaker = _ROLES.get(role)
    return SpokenTurn(speaker, text, _moment(at), session, is_typed) if speaker and text else None


def _text(content: object) -> str:
    """The text of a message; results of tools have none."""
    if isinstance(content, str):
        return content.strip()
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if part.get("type") in _SPOKEN_PARTS]
    return "\n\n".join(text.strip() for text in texts if isinstance(text, str))


_SPOKEN_PARTS = frozenset({"text", "input_text", "output_text", None})


def _moment(at: object) -> datetime | None:
    try:
        return timestamps.parse(at) if isinstance(at, str) else None
    except BadInput:
        return None
