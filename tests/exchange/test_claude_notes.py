"""The notes that Claude Code keeps about a project are a source; they are read and stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from triskele.engine.local import LocalEngine
from triskele.errors import BadInput
from triskele.exchange import claude_notes
from triskele.exchange.transfer import import_memories
from triskele.types import Origin

INDEX = """# Memory

- [Tests](testing.md) — how to run them
- Deploys go through Argo CD
- [Gone](gone.md) was never written
"""
TOPIC = """---
name: testing
description: how the tests run
type: feedback
---
Run one file at a time, see [[deploys]].
"""


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / ".claude" / "projects" / "-srv-garden" / "memory"
    folder.mkdir(parents=True)
    (folder / "MEMORY.md").write_text(INDEX)
    (folder / "testing.md").write_text(TOPIC)
    (folder / "deploys.md").write_text("---\ntype: project\n---\n# Deploys\n\nOn Tuesdays, never on Fridays.\n")
    return folder


def test_the_folder_comes_in_with_categories_links_and_reasons(
    notes: Path, open_engine: Callable[..., LocalEngine]
) -> None:
    engine = open_engine()
    before = {path.name: path.read_text() for path in notes.iterdir()}
    report = import_memories(engine, notes)
    assert (report.format, report.added, report.links) == ("claude-notes", 4, 1)
    assert [each.reason for each in report.skipped] == ["lists testing.md, which is imported itself"]
    memories = {memory.content: memory for memory in engine.browse().memories}
    tests = memories["Run one file at a time, see deploys."]
    assert (tests.category, tests.keywords, tests.origin) == ("preferences", "testing how the tests run", Origin.IMPORT)
    assert memories["Deploys\n\nOn Tuesdays, never on Fridays."].category == "projects"
    assert "claude code notes" in memories["Deploys go through Argo CD"].tags
    assert {path.name: path.read_text() for path in notes.iterdir()} == before


def test_one_file_alone(notes: Path, open_engine: Callable[..., LocalEngine]) -> None:
    report = import_memories(open_engine(), notes / "MEMORY.md", dry_run=True)
    assert (report.format, report.added) == ("claude-notes", 3)


def test_the_name_of_the_client_stands_for_the_notes_about_this_project(notes: Path, tmp_path: Path) -> None:
    environ = {"CLAUDE_CONFIG_DIR": str(tmp_path / ".claude")}
    named = claude_notes.named_source(Path("claude-code"), Path("/srv/garden/deep/inside"), environ)
    assert named == notes
    assert claude_notes.named_source(Path("notes.md"), Path("/srv/garden"), environ) == Path("notes.md")
    with pytest.raises(BadInput, match="no notes about"):
        claude_notes.named_source(Path("claude-code"), Path("/srv/other"), environ)
