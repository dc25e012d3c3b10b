"""Instruction files become memories that make sense one by one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from triskele.config import MemorySettings
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput
from triskele.exchange import agents_file
from triskele.exchange.transfer import import_memories
from triskele.replies.rooms import Skipped

OpenEngine = Callable[..., LocalEngine]
SAMPLES = Path(__file__).parent / "samples"


@pytest.fixture
def claude_file(tmp_path: Path) -> Path:
    """The sample under its real name, which agents at work here should not come upon."""
    return Path(shutil.copy(SAMPLES / "claude_md.txt", tmp_path / "CLAUDE.md"))


def test_bullets_and_paragraphs(claude_file: Path, open_engine: OpenEngine) -> None:
    engine = open_engine()
    report = import_memories(engine, claude_file)
    assert (report.format, report.added, report.problems) == ("agents", 7, ())
    memories = {memory.content: memory for memory in engine.browse(limit=100).memories}
    assert set(memories) == {
        "Build and test with make:\n```bash\nmake build\n# not a heading\nmake test   # <!-- part of the code -->\n```",
        "Run one test: `pytest tests/test_api.py -k name`\n  - add `-x` to stop at the first failure\n\n"
        "  and `--pdb` to look around",
        "Format before every commit.",
        "When writing Python: Always use type annotations.",
        "When writing Python: Prefer dataclasses to dictionaries.",
        "Modules have short names,\nwithout underscores where possible.",
        "See @README.md for an overview of the packages.",
    }
    assert memories["Format before every commit."].tags == ("commands",)
    assert memories["Format before every commit."].category == "procedures"
    assert memories["When writing Python: Always use type annotations."].category == "preferences"
    named = memories["Modules have short names,\nwithout underscores where possible."]
    assert named.tags == ("code style", "naming of modules")
    assert {memory.origin for memory in memories.values()} == {"import"}


def test_the_other_name(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine()
    report = import_memories(engine, Path(shutil.copy(SAMPLES / "agents_md.txt", tmp_path / "AGENTS.md")))
    assert (report.format, report.added) == ("agents", 7)
    categories = {memory.content: memory.category for memory in engine.browse().memories}
    assert categories["Install deps: `pnpm install`"] == "procedures"
    assert categories["Single quotes, no semicolons"] == "preferences"
    assert categories["Release:\n```sh\npnpm release\n```"] == "procedures"


def test_second_import_adds_nothing(claude_file: Path, open_engine: OpenEngine) -> None:
    engine = open_engine()
    import_memories(engine, claude_file)
    with claude_file.open("a") as file:
        file.write("\nA new paragraph at the end.\n")
    report = import_memories(engine, claude_file)
    assert (report.added, report.duplicates) == (1, 7)


def test_a_lead_without_a_list_is_a_memory() -> None:
    notes = agents_file.parse("# A\n\nBefore a release:\n\n# B\n\nRemember:\n", MemorySettings())
    assert [note.content for note in notes] == ["Before a release:", "Remember:"]


def test_code_ends_the_paragraph_before() -> None:
    text = "Run this:\n```\nmake\n\n# all\n```\nThen rest.\n\n- One\n\n~~~\ntwo\n~~~\n- Three"
    notes = agents_file.parse(text, MemorySettings())
    assert [note.content for note in notes] == [
        "Run this:\n```\nmake\n\n# all\n```",
        "Then rest.",
        "One\n~~~\ntwo\n~~~",
        "Three",
    ]


def test_headings_need_no_blank_lines() -> None:
    notes = agents_file.parse("# One\nFirst.\n## Two ##\n- Second.\n# Three\nThird.\n***\nFourth.", MemorySettings())
    assert [(note.content, note.tags) for note in notes] == [
        ("First.", ("One",)),
        ("Second.", ("One", "Two")),
        ("Third.", ("Three",)),
        ("Fourth.", ("Three",)),
    ]


def test_long_instructions_are_cut() -> None:
    notes = list(agents_file.parse("- " + "Never do that again. " * 200, MemorySettings()))
    assert len(notes) == 4 and all(len(note.content) <= 1400 for note in notes)


def test_categories_of_ones_own() -> None:
    notes = list(agents_file.parse("- Always sign commits.", MemorySettings(categories=("rules", "rest"))))
    assert notes[0].details["category"] == "rules"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "CLAUDE.md is empty"),
        (b"# CLAUDE.md\n\n<!-- nothing\n", "CLAUDE.md holds no instructions"),
        (b"caf\xe9", "CLAUDE.md is not UTF-8 text"),
        (b"x" * 1_000_001, "CLAUDE.md is larger than 1,000,000 bytes"),
    ],
)
def test_files_that_cannot_be(data: bytes, message: str, open_engine: OpenEngine, tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").write_bytes(data)
    with pytest.raises(BadInput, match=message):
        import_memories(open_engine(), tmp_path / "CLAUDE.md")


def test_a_folder_is_no_instruction_file(open_engine: OpenEngine, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is a folder"):
        import_memories(open_engine(), tmp_path, format="agents")


@pytest.mark.parametrize(
    ("text", "heading", "category"),
    [
        ("The API lives in src/api", "Architecture", "facts"),
        ("FastAPI on Python 3.12 with Postgres", "Overview", "facts"),
        ("Run `make test` before you push", "", "procedures"),
        ("`pnpm dev` starts the server", "", "procedures"),
        ("pnpm dev", "Commands", "procedures"),
        ("Never mock the database", "Testing", "preferences"),
        ("Two spaces, no tabs", "Code style", "preferences"),
        ("The cache survives a restart", "Gotchas", "lessons"),
        ("Beware: the seed script drops tables", "Setup", "lessons"),
        ("We chose Argo CD for rollbacks", "", "decisions"),
        ("Anna owns billing", "Team", "people"),
    ],
)
def test_lines_get_a_category_by_their_words(text: str, heading: str, category: str) -> None:
    assert agents_file.category_of(text, [heading] if heading else [], MemorySettings()) == category


def test_skipped_lines_are_reported_with_a_reason() -> None:
    text = "This file provides guidance to Claude Code.\n\n@docs/style.md\n\n- Use tabs\n"
    items = list(agents_file.parse(text, MemorySettings()))
    assert [(each.place, each.reason.split(" (")[0]) for each in items if isinstance(each, Skipped)] == [
        ("line 3", "refers to another file"),
        ("line 1", "is the introduction that every such file has"),
    ]
