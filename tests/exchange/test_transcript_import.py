"""Transcripts of Claude Code: what user and assistant said, with session, position, time and role."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triskele.engine.local import LocalEngine
from triskele.exchange.transfer import choose, import_memories
from triskele.types import Role, is_secret

OpenEngine = Callable[..., LocalEngine]
SESSION = "5f0c9a4e-session"


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    at = {"timestamp": "2026-03-04T05:06:07.890Z", "sessionId": SESSION, "cwd": "/home/ada/wombat", "uuid": "u"}
    return {"type": role, "message": {"role": role, "content": content}, **at, **more}


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


TALK = [
    {"type": "summary", "summary": "A talk about kettles", "leafUuid": "u"},
    said("user", "Which kettle do we use?"),
    said("assistant", [{"type": "thinking", "thinking": "hm"}, text("The red one."), text("It whistles.")]),
    said("assistant", [{"type": "tool_use", "name": "Bash", "input": {"command": "ls"}}]),
    said("user", [{"type": "tool_result", "content": "a file"}]),
    said("user", "<command-name>/clear</command-name>"),
    said("user", "Caveat: generated", isMeta=True),
    said("assistant", [text("I am a subagent")], isSidechain=True),
    {"type": "file-history-snapshot", "sessionId": SESSION},
    said("user", [text("Then buy another.")]),
]


@pytest.fixture
def transcript(tmp_path: Path) -> Path:
    path = tmp_path / f"{SESSION}.jsonl"
    path.write_text("\n".join(map(json.dumps, TALK)) + "\n")
    return path


def test_turns_are_imported_with_their_role(open_engine: OpenEngine, transcript: Path) -> None:
    engine = open_engine()
    report = import_memories(engine, transcript)
    assert (report.format, report.added, report.problems) == ("transcript", 3, ())
    memories = sorted(engine.browse().memories, key=lambda memory: memory.position or 0)
    assert [(memory.content, memory.role) for memory in memories] == [
        ("Which kettle do we use?", Role.USER),
        ("The red one.\n\nIt whistles.", Role.ASSISTANT),
        ("Then buy another.", Role.USER),
    ]
    assert [(memory.session, memory.position) for memory in memories] == [(SESSION, 0), (SESSION, 1), (SESSION, 2)]
    assert {(memory.created_at.year, memory.origin.value) for memory in memories} == {(2026, "import")}
    assert import_memories(engine, transcript).duplicates == 3


def test_long_answers_are_cut_and_secrets_are_sealed(open_engine: OpenEngine, tmp_path: Path) -> None:
    long = " ".join(f"Sentence {number} tells of the harbour." for number in range(100))
    path = tmp_path / "talk.jsonl"
    lines = [said("assistant", [text(long)]), said("user", "the wifi password is Tq8vzLm2!x")]
    path.write_text("\n".join(map(json.dumps, lines)))
    engine = open_engine()
    import_memories(engine, path)
    memories = sorted(engine.browse().memories, key=lambda memory: memory.position or 0)
    assert [memory.position for memory in memories] == list(range(len(memories))) and len(memories) > 3
    assert " ".join(memory.content for memory in memories[:-1]) == long
    assert [is_secret(memory) for memory in memories] == [False] * (len(memories) - 1) + [True]


def test_other_lines_are_skipped_or_reported(open_engine: OpenEngine, tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    odd = [{"type": "user", "message": 7}, said("user", None), said("user", {"text": 1}), said("assistant", [7])]
    path.write_text("\n".join(map(json.dumps, [TALK[1], *odd])) + "\nnot json\n")
    report = import_memories(open_engine(), path, dry_run=True)
    assert (report.read, [problem.place for problem in report.problems]) == (1, ["line 6"])


def test_other_files_of_json_are_not_taken_for_transcripts(tmp_path: Path) -> None:
    path = tmp_path / "plain.jsonl"
    path.write_text('{"role": "user", "content": "hello"}\n')
    assert choose(path, None) == "jsonl"
    path.write_text('{"type": "entity", "name": "x", "entityType": "y", "observations": []}\n')
    assert choose(path, None) == "mcp-memory"
