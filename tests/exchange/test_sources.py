"""Files are recognised by what they are, and those that cannot be read are told in one line."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from triskele.engine.local import LocalEngine
from triskele.errors import BadInput
from triskele.exchange import sources, transfer
from triskele.exchange.transfer import import_memories

OpenEngine = Callable[..., LocalEngine]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("notes.md", "text", "markdown"),
        ("Notes.MARKDOWN", "text", "markdown"),
        ("AGENTS.md", "text", "agents"),
        ("claude.md", "text", "agents"),
        ("x.jsonl", '{"triskele":1}\n', "jsonl"),
        ("x", '\n {"text":"a"}\n', "jsonl"),
        ("memory.json", '{"type":"entity","name":"a"}\n', "mcp-memory"),
        ("x.json", '{"name":"a","type":"relation"}\n{"t":', "mcp-memory"),
        ("x.json", '{\n  "entities": [', "mcp-memory"),
        ("x.jsonl", '{"type":"user","sessionId":"a"}', "transcript"),
        ("x.json", '{"type": "entity", "observations": ["' + "x" * 70_000 + '"]}', "mcp-memory"),
        ("x.json", '{"entities": ["' + "x" * 70_000 + '"]}', "mcp-memory"),
        ("x.jsonl", '\ufeff{"text":"a", "type": "thing"}', "jsonl"),
    ],
)
def test_formats_are_recognised(name: str, text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert transfer.choose(tmp_path / name, None) == expected


def test_a_folder_is_taken_for_notes(tmp_path: Path) -> None:
    assert transfer.choose(tmp_path, None) == "markdown"


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        (
            "picture.png",
            b"\x89PNG\r\n",
            "the format of picture.png is unknown: name one of claude-notes, agents",
        ),
        ("list.json", b"[1]", "is unknown: name one of"),
        ("empty.jsonl", b"", "empty.jsonl is empty"),
        ("blank.md", b" \n\n", "blank.md is empty"),
        ("bytes.jsonl", b'{"text": "caf\xe9"}\n', r"line 1: is not UTF-8 text \(byte 14\)"),
        ("late.jsonl", b'{"text": "a"}\n\xff\xfe\n', "line 2: is not UTF-8 text"),
        ("wide.jsonl", '{"text": "a"}'.encode("utf-16"), "is unknown: name one of"),
    ],
)
def test_files_that_cannot_be_read(
    name: str, data: bytes, message: str, open_engine: OpenEngine, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(BadInput, match=message) as caught:
        import_memories(open_engine(), tmp_path / name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("format", ["jsonl", "agents", "markdown", "mcp-memory", "transcript"])
def test_an_empty_file_in_any_format(format: str, open_engine: OpenEngine, tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(BadInput, match="empty"):
        import_memories(open_engine(), tmp_path / "empty", format=format)


@pytest.mark.parametrize("format", ["jsonl", "agents", "mcp-memory", "transcript"])
def test_a_folder_where_a_file_belongs(format: str, open_engine: OpenEngine, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is a folder: this format is a single file"):
        import_memories(open_engine(), tmp_path, format=format)


def test_paths_that_lead_nowhere(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine()
    with pytest.raises(BadInput, match="no such file or folder"):
        import_memories(engine, tmp_path / "nothing")
    (tmp_path / "bare").mkdir()
    with pytest.raises(BadInput, match="no Markdown or text files in"):
        import_memories(engine, tmp_path / "bare")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(BadInput):
        import_memories(engine, tmp_path / "loop")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match="neither a file nor a folder"):
        import_memories(engine, tmp_path / "pipe")


def test_windows_lines(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine()
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "One"}\r\n\r\n{"text": "Two"}')
    assert import_memories(engine, tmp_path / "a.jsonl").added == 2


def test_a_file_that_is_too_large(open_engine: OpenEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_FILE_BYTES", 10)
    (tmp_path / "a.jsonl").write_text('{"text": "One"}\n')
    with pytest.raises(BadInput, match=r"a\.jsonl is larger than 10 bytes"):
        import_memories(open_engine(), tmp_path / "a.jsonl")


def test_an_endless_line_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"a" * 3_000_000 + b"\nb\n" + b"c" * sources.MAX_LINE_BYTES + b"\nd")
    assert list(sources.lines(path)) == [(1, None), (2, b"b\n"), (3, None), (4, b"d")]


def test_a_file_may_be_named_by_a_link(open_engine: OpenEngine, tmp_path: Path) -> None:
    (tmp_path / "real.jsonl").write_text('{"text": "One"}\n')
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "real.jsonl")
    assert import_memories(open_engine(), tmp_path / "link.jsonl").added == 1
