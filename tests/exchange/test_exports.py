"""An export tells what may be told, of one moment, completely or not at all."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from triskele.engine.local import LocalEngine
from triskele.errors import BadInput, Unavailable
from triskele.exchange import sources
from triskele.exchange.jsonl import FORMAT
from triskele.exchange.transfer import export_memories, import_memories
from triskele.types import LinkKind, Memory, Sensitivity

OpenEngine = Callable[..., LocalEngine]
CANARY = "canary-7f3a"


@pytest.fixture
def engine(open_engine: OpenEngine) -> LocalEngine:
    """Open and private memories, and some that were one and became the other."""
    engine = open_engine()
    id = engine.remember("The lamp is green").id
    private = engine.remember(f"The doctor said {CANARY}", sensitivity=Sensitivity.PRIVATE).id
    engine.link(private, LinkKind.SEE_ALSO, id)
    closed = engine.remember(f"Harmless so far {CANARY}").id
    engine.edit(closed, content="Now confidential", sensitivity=Sensitivity.PRIVATE)
    opened = engine.remember(f"Confidential {CANARY}", sensitivity=Sensitivity.PRIVATE).id
    engine.edit(opened, content="The party is on Friday", sensitivity=Sensitivity.OPEN)
    engine.forget(engine.remember(f"Forgotten {CANARY}", sensitivity=Sensitivity.PRIVATE).id)
    return engine


def test_private_memories_stay(engine: LocalEngine, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    report = export_memories(engine, target)
    assert (report.written, report.left_out_private, report.left_out_versions) == (2, 3, 1)
    text = target.read_text()
    assert CANARY not in text and "confidential" not in text and "The party is on Friday" in text
    assert json.loads(text.split("\n")[0]) == {"triskele": FORMAT, "versions": 2, "links": 0}


def test_private_memories_leave_on_request(engine: LocalEngine, tmp_path: Path) -> None:
    report = export_memories(engine, tmp_path / "out.jsonl", include_private=True)
    assert (report.written, report.left_out_private) == (5, 0)
    assert (tmp_path / "out.jsonl").read_text().count(CANARY) == 4


def test_export_of_an_opened_memory_has_only_its_open_versions(engine: LocalEngine, tmp_path: Path) -> None:
    report = export_memories(engine, tmp_path / "out.jsonl", current_only=True)
    assert (report.written, report.left_out_private) == (2, 2)
    text = (tmp_path / "out.jsonl").read_text()
    assert "The party is on Friday" in text and CANARY not in text


def test_markdown_keeps_private_ones_back_too(engine: LocalEngine, tmp_path: Path) -> None:
    report = export_memories(engine, tmp_path / "notes", format="markdown")
    assert (report.written, report.left_out_private) == (2, 2)
    assert all(CANARY not in file.read_text() for file in (tmp_path / "notes").rglob("*.md"))


def test_the_file_is_for_its_owner_alone(engine: LocalEngine, tmp_path: Path) -> None:
    export_memories(engine, tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").stat().st_mode & 0o077 == 0


def test_a_failed_export_leaves_the_old_file(
    engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out.jsonl"
    target.write_text("older")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Unavailable, match=r"cannot write .*: No space left on device"):
        export_memories(engine, target)
    with pytest.raises(Unavailable):
        export_memories(engine, tmp_path / "notes", format="markdown")
    assert target.read_text() == "older"
    assert [path.name for path in tmp_path.iterdir() if path.name != "home"] == ["out.jsonl"]


def test_an_older_export_is_replaced(engine: LocalEngine, tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_text("older")
    export_memories(engine, tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_text().startswith(f'{{"triskele":{FORMAT},')


def test_targets_that_cannot_be(engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("there")
    with pytest.raises(BadInput, match="is not a file"):
        export_memories(engine, tmp_path / "folder")
    with pytest.raises(BadInput, match="no such folder"):
        export_memories(engine, tmp_path / "nowhere" / "out.jsonl")
    with pytest.raises(BadInput, match="already exists"):
        export_memories(engine, tmp_path / "folder", format="markdown")
    with pytest.raises(BadInput, match="is a folder"):
        export_memories(engine, io.StringIO(), format="markdown")
    monkeypatch.setattr(sources, "MAX_FILES", 1)
    with pytest.raises(BadInput, match="export as jsonl"):
        export_memories(engine, tmp_path / "notes", format="markdown")


def test_export_is_one_snapshot_beside_writers(
    open_engine: OpenEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine()
    first = engine.remember("The lamp is green").id
    gone = engine.remember("The lamp is old").id
    versions = engine.store.versions

    def disturbed(*ids: list[str]) -> Iterator[tuple[int, Memory]]:
        yield from versions(*ids)
        if not ids:
            engine.edit(first, content="The lamp is red")
            second = engine.remember("The lamp is broken").id
            engine.link(second, LinkKind.SUPERSEDES, first)
            engine.erase(gone)

    monkeypatch.setattr(engine.store, "versions", disturbed)
    export_memories(engine, tmp_path / "out.jsonl")
    other = open_engine(tmp_path / "other.db")
    import_memories(other, tmp_path / "out.jsonl")
    assert {memory.content for _, memory in other.store.versions()} == {
        "The lamp is green",
        "The lamp is red",
        "The lamp is broken",
    }
    assert len(list(other.store.all_links())) == 1


def test_export_leaves_out_other_owners(
    engine: LocalEngine, open_engine: Callable[..., LocalEngine], tmp_path: Path
) -> None:
    open_engine(owner="eve").remember("Eve's own")
    export_memories(engine, tmp_path / "out.jsonl", include_private=True)
    assert "Eve" not in (tmp_path / "out.jsonl").read_text()
