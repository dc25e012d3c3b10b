"""Transcripts of agents: who said what, what a program wrote, and where reading goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from triskele.errors import BadInput
from triskele.exchange.transcripts import read_turns


def lines(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def claude(role: str, content: Any, **details: Any) -> dict[str, Any]:
    return {"type": role, "sessionId": "s1", "message": {"role": role, "content": content}, **details}


def codex(role: str, text: str) -> dict[str, Any]:
    content = [{"type": "input_text", "text": text}]
    return {"type": "response_item", "payload": {"type": "message", "role": role, "content": content}}


def test_claude_code_keeps_tools_loops_and_subagents_apart(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "talk.jsonl",
        claude("user", "hello", timestamp="2026-03-01T10:00:00Z"),
        claude("assistant", [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "hi"}]),
        claude("user", [{"type": "tool_result", "content": "remember that"}]),
        claude("user", "explore the code", isSidechain=True),
        claude("user", "<command-name>/clear</command-name>"),
        {"type": "summary", "summary": "x", "leafUuid": "1"},
    )
    turns, _ = read_turns(path)
    assert [(turn.role, turn.text, turn.is_typed) for turn in turns] == [
        ("user", "hello", True),
        ("assistant", "hi", True),
        ("user", "explore the code", False),
        ("user", "<command-name>/clear</command-name>", False),
    ]
    assert turns[0].at is not None and turns[0].session == "s1"


def test_reading_goes_on_after_the_last_whole_line(tmp_path: Path) -> None:
    path = lines(tmp_path / "talk.jsonl", claude("user", "one"))
    _, offset = read_turns(path)
    with path.open("a") as file:
        file.write(json.dumps(claude("user", "two")) + "\n" + json.dumps(claude("user", "three"))[:20])
    turns, after = read_turns(path, offset)
    assert [turn.text for turn in turns] == ["two"]
    with path.open("a") as file:
        file.write(json.dumps(claude("user", "three"))[20:] + "\n")
    assert [turn.text for turn in read_turns(path, after)[0]] == ["three"]
    assert [turn.text for turn in read_turns(path, 10**9)[0]] == ["one", "two", "three"]


def test_codex_knows_its_session_its_instructions_and_its_subagents(tmp_path: Path) -> None:
    meta = {"type": "session_meta", "payload": {"id": "c1", "source": "cli"}}
    path = lines(
        tmp_path / "rollout.jsonl",
        meta,
        codex("user", "<environment_context>cwd</environment_context>"),
        codex("user", "fix it"),
        {"type": "response_item", "payload": {"type": "function_call_output", "output": "remember"}},
        {"type": "event_msg", "payload": {"type": "user_message", "message": "fix it"}},
    )
    turns, offset = read_turns(path)
    assert [(turn.text, turn.is_typed, turn.session) for turn in turns][1] == ("fix it", True, "c1")
    assert [turn.is_typed for turn in turns] == [False, True]
    with path.open("a") as file:
        file.write(json.dumps(codex("user", "more")) + "\n")
    assert [turn.session for turn in read_turns(path, offset)[0]] == ["c1"]
    child = {"type": "session_meta", "payload": {"id": "c2", "source": {"subagent": "review"}}}
    child_path = lines(tmp_path / "child.jsonl", child, codex("user", "review it"))
    assert [turn.is_typed for turn in read_turns(child_path)[0]] == [False]


def test_gemini_has_sessions_and_logs(tmp_path: Path) -> None:
    session = tmp_path / "session.json"
    messages = [{"type": "user", "content": "hello"}, {"type": "gemini", "content": [{"text": "hi"}]}]
    session.write_text(json.dumps({"sessionId": "g1", "messages": messages}, indent=1))
    turns, offset = read_turns(session)
    assert [(turn.role, turn.text, turn.session) for turn in turns] == [
        ("user", "hello", "g1"),
        ("assistant", "hi", "g1"),
    ]
    assert read_turns(session, offset) == ([], 2)
    log = tmp_path / "logs.json"
    log.write_text(json.dumps([{"sessionId": "g2", "type": "user", "message": "hello"}]))
    assert [turn.session for turn in read_turns(log)[0]] == ["g2"]


@pytest.mark.parametrize("content", ['{"a": 1}', "[", '{"messages": 3}'])
def test_other_documents_are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(BadInput):
        read_turns(path)


def test_damaged_lines_are_passed_over(tmp_path: Path) -> None:
    path = lines(tmp_path / "talk.jsonl", claude("user", "one"))
    path.write_bytes(path.read_bytes() + b"\xff\xfe{\n[1]\n" + json.dumps(claude("user", "two")).encode() + b"\n")
    assert [turn.text for turn in read_turns(path)[0]] == ["one", "two"]
