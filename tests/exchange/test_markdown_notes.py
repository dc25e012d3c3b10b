"""Markdown notes of people and other programs come in, and what we write ourselves comes back as it was."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triskele.config import MemorySettings
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput
from triskele.exchange import frontmatter, markdown, sources
from triskele.exchange.records import Note
from triskele.exchange.transfer import export_memories, import_memories
from triskele.text import timestamps
from triskele.types import Memory, Sensitivity

OpenEngine = Callable[..., LocalEngine]
SAMPLES = Path(__file__).parent / "samples"
SETTINGS = MemorySettings()


def test_a_folder_of_notes(open_engine: OpenEngine) -> None:
    engine = open_engine()
    report = import_memories(engine, SAMPLES / "notes")
    assert (report.format, report.read, report.added) == ("markdown", 3, 3)
    assert [skipped.place for skipped in report.skipped] == ["ideas/blank.md"]
    memories = {memory.content.split()[0]: memory for memory in engine.browse().memories}
    assert set(memories) == {"It", "How", "Bread"}
    deploy = memories["How"]
    assert deploy.content == "How we deploy\n\nWe deploy with Argo CD, not with Helm hooks."
    assert (deploy.category, deploy.tags, deploy.importance) == ("decisions", ("deploy", "argo: cd"), 0.9)
    assert deploy.keywords == "releases rollout" and timestamps.to_text(deploy.created_at) == "2025-11-03T00:00:00Z"
    assert memories["It"].keywords == "Router password place"
    # A category that only the other program knows is kept as a tag.
    assert memories["Bread"].content == "Bread\n\nFeed the starter the evening before."
    assert (memories["Bread"].category, memories["Bread"].tags) == ("facts", ("bread", "sour dough", "recipes"))


def test_a_long_note_is_cut_where_it_reads_well(open_engine: OpenEngine) -> None:
    engine = open_engine()
    report = import_memories(engine, SAMPLES / "long_note.md")
    assert report.added == 17
    memories = engine.browse(limit=100).memories
    assert all(len(memory.content) <= 1400 for memory in memories)
    [hours] = [memory for memory in memories if "opens at eight" in memory.content]
    assert hours.content == (
        "Opening hours\n\nThe office opens at eight and closes at five.\nOn Sundays nobody is there."
    )
    assert hours.tags == ("handbook of the harbour office", "opening hours")
    incidents = [memory for memory in memories if "The report lies" in memory.content]
    assert len(incidents) == 12 and all("The report lies in folder" in memory.content for memory in incidents)
    original = (SAMPLES / "long_note.md").read_text()
    contents = " ".join(memory.content for memory in memories)
    assert set(original.split()) - set(contents.split()) <= set(
        "# ## - Handbook of the harbour office Long story Incidents Opening hours".split()
    )


def as_told(memory: Memory) -> Memory:
    """A memory without what a Markdown export does not carry."""
    now = memory.created_at
    return replace(memory, id="", origin=memory.origin.USER, version=1, known_from=now, known_to=None)


def test_our_own_folder_comes_back(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine, other = open_engine(), open_engine(tmp_path / "other.db")
    engine.remember("Plain")
    engine.remember(
        "---\ntitle: not a head\n---\n# Heading\n\n- item\n\n    code", tags=["#hash", "null", "a]b", '"q"', "x: y"]
    )
    engine.remember("Everywhere", project="", category="decisions", importance=1 / 3, keywords="#one 'two' [three]")
    engine.remember(
        "日本語のメモ",
        session="talk: 1",
        position=4,
        speaker="# Zoë: me",
        role="tool",
        valid_from="2026-01-01",
        valid_to="2026-02-01T10:00:00.5Z",
    )
    engine.edit(engine.remember("Old", created_at="2020-05-05").id, content="New\u2028line", project="a # b")
    engine.remember("Mine alone", sensitivity=Sensitivity.PRIVATE)
    report = export_memories(engine, tmp_path / "notes", format="markdown", include_private=True)
    assert report.written == 6 == len(list((tmp_path / "notes").rglob("*.md")))
    import_memories(other, tmp_path / "notes")
    here, there = ({m.content: as_told(m) for m in e.browse(all_projects=True).memories} for e in (engine, other))
    assert there == here
    assert {memory.origin for memory in other.browse(all_projects=True).memories} == {"import"}
    # Back into the same store, it is all known.
    assert import_memories(engine, tmp_path / "notes").duplicates == 6


labels = st.text(
    st.characters(blacklist_categories=["Cs", "Cc", "Cf"], blacklist_characters=","), min_size=1, max_size=10
)


keys = st.sampled_from(["title", "tags", "valid_from", "x"])
listed = st.lists(labels.map(str.strip).filter(bool), min_size=1, max_size=3)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(keys, labels | listed, min_size=1), labels)
def test_a_head_is_read_as_it_was_written(values: dict[str, str | list[str]], body: str) -> None:
    read, rest, line = frontmatter.parse(frontmatter.write(values) + body)
    assert (read, rest, line) == (values, body, len(values) + 3)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("---\na: 1\nb: 'it''s'\nc: \"x\\ty\"\n---\nbody", {"a": "1", "b": "it's", "c": "x\ty"}),
        ("---\ntags: [a, 'b, c', \"d\"]\n...\nbody", {"tags": ["a", "b, c", "d"]}),
        ("---\ntags:\n- a\n-  b\nnext: ~\n---\nbody", {"tags": ["a", "b"], "next": ""}),
        ("---\nnote: >-\n  one\n  two\nother: |\n  x\n  y\n---\nbody", {"note": "one two", "other": "x\ny"}),
        (
            "---\n# comment\nLast Changed: today # really\nnested:\n  deep: 1\n---\nbody",
            {"last_changed": "today", "nested": ""},
        ),
        ('---\nbroken: "open\nurl: http://x\n---\nbody', {"broken": "open", "url": "http://x"}),
    ],
)
def test_heads_as_people_write_them(text: str, values: dict[str, str | list[str]]) -> None:
    assert frontmatter.parse(text)[:2] == (values, "body")


@pytest.mark.parametrize(
    "text", ["---\nno end", "---\njust a rule\n---\nbody", "body", "", "----\na: 1\n---\n", "---\n---\nbody"]
)
def test_no_head_is_all_body(text: str) -> None:
    assert frontmatter.parse(text) == ({}, text, 1)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("importance.md", b"---\nimportance: high\n---\nx", "importance.md: 'high' is not a number"),
        ("range.md", b"---\nimportance: 7\n---\nx", "range.md: importance must be between 0 and 1"),
        ("position.md", b"---\nposition: 1e9\n---\nx", "position.md: '1e9' is not a whole number"),
        ("date.md", b"---\ncreated: 31.12.2025\n---\nx", "date.md: not a date"),
        ("bytes.md", b"caf\xe9", r"bytes.md: is not UTF-8 text \(byte 4\)"),
        ("utf16.md", "wide".encode("utf-16"), "utf16.md: is not UTF-8 text"),
        ("nul.md", b"a\0b", "nul.md: .*NUL"),
        (
            "period.md",
            b"---\nvalid_from: 2026-02-01\nvalid_to: 2026-01-01\n---\nx",
            "period.md: valid-to must be later",
        ),
    ],
)
def test_notes_that_cannot_be(name: str, data: bytes, message: str, open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine()
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "good.md").write_text("A good note")
    (folder / name).write_bytes(data)
    with pytest.raises(BadInput, match=message):
        import_memories(engine, folder)
    assert engine.store.census().journal == 0


def test_windows_files(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine()
    (tmp_path / "note.md").write_bytes(b"\xef\xbb\xbf---\r\ntags: a\r\n---\r\nOne\r\nTwo\r\n")
    import_memories(engine, tmp_path / "note.md")
    assert (engine.browse().memories[0].content, engine.browse().memories[0].tags) == ("One\nTwo", ("a",))


def test_nothing_outside_the_folder_is_read(open_engine: OpenEngine, tmp_path: Path) -> None:
    folder, outside = tmp_path / "notes", tmp_path / "outside"
    for path in (folder / ".git", outside):
        path.mkdir(parents=True)
        (path / "secret.md").write_text("secret")
    (folder / "good.md").write_text("good")
    (folder / "escape.md").symlink_to(outside / "secret.md")
    (folder / "out").symlink_to(outside)
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe.md")
    (folder / "big.md").write_bytes(b"x" * (sources.MAX_TEXT_BYTES + 1))
    engine = open_engine()
    report = import_memories(engine, folder)
    assert [memory.content for memory in engine.browse().memories] == ["good"]
    assert {s.place: s.reason for s in report.skipped} == {
        "big.md": "is larger than 1,000,000 bytes",
        "escape.md": "is a symbolic link",
        "pipe.md": "is not a plain file",
    }


def test_names_cannot_steer_a_terminal(open_engine: OpenEngine, tmp_path: Path) -> None:
    (tmp_path / "\x1b[31mred.md").write_bytes(b"\xff")
    with pytest.raises(BadInput) as caught:
        import_memories(open_engine(), tmp_path)
    assert "\x1b" not in str(caught.value)


def test_too_many_files(open_engine: OpenEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_FILES", 2)
    for number in range(3):
        (tmp_path / f"{number}.md").write_text(f"note {number}")
    with pytest.raises(BadInput, match="more than 2 files"):
        import_memories(open_engine(), tmp_path)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["# H", "## H2", "- a", "  b", "1. c", "", "```", "text.", "---", "  - d", "\t", "> q", "a: b", "x" * 60]
        ),
        max_size=40,
    )
)
def test_no_text_is_lost_and_no_piece_too_long(lines: list[str]) -> None:
    limits = MemorySettings(max_characters=50)
    notes = [item for item in markdown.parse("\n".join(lines), "n.md", "n", limits) if isinstance(item, Note)]
    assert all(0 < len(note.content) <= 50 for note in notes)
    text = " ".join(note.content for note in notes)
    assert not ("text." in lines and "text." not in text) or lines[0] == "---"


def test_a_hostile_note_takes_no_time() -> None:
    for text in (
        "# " + " #" * 100_000,
        "---\na" + " " * 200_000 + "\n---\n",
        "[(https://" * 20_000,
        "- " * 100_000,
        "<!--" * 50_000,
        "`" * 200_000,
    ):
        list(markdown.parse(text, "n.md", "n", SETTINGS))


def test_an_empty_folder_for_the_export(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine()
    engine.remember("One")
    with TemporaryDirectory(dir=tmp_path) as folder:
        export_memories(engine, Path(folder), format="markdown")
        [file] = Path(folder).rglob("*.md")
        assert file.parent.name == "facts" and file.name.startswith("one-")


def test_sections_get_their_headings_as_titles_and_wikilinks_become_links(
    open_engine: OpenEngine, tmp_path: Path
) -> None:
    (tmp_path / "Office.md").write_text(
        "# Office\n\n## Heating\n\nBroken, see [[Heater|the heater]].\n\n## Keys\n\nAsk [Anna](people/Anna.md).\n"
    )
    (tmp_path / "Heater.md").write_text("Installed in 2019 by [[Ove Berg|the plumber]].")
    (tmp_path / "people").mkdir()
    (tmp_path / "people" / "Anna.md").write_text("Anna sits in room 4, see ![[Office#Keys]].")
    engine = open_engine()
    report = import_memories(engine, tmp_path)
    assert {memory.content for memory in engine.browse().memories} == {
        "Heating\n\nBroken, see the heater.",
        "Keys\n\nAsk Anna.",
        "Installed in 2019 by the plumber (Ove Berg).",
        "Anna sits in room 4, see Office: Keys.",
    }
    assert report.links == 3


def test_plain_text_becomes_its_paragraphs_and_items(open_engine: OpenEngine, tmp_path: Path) -> None:
    (tmp_path / "ideas.txt").write_text("The plant drinks\non Mondays.\n\nThe cat sleeps.\n- one\n- two\n")
    engine = open_engine()
    report = import_memories(engine, tmp_path / "ideas.txt", dry_run=True)
    assert [(each.content, each.place) for each in report.memories] == [
        ("The plant drinks\non Mondays.", "ideas.txt line 1"),
        ("The cat sleeps.", "ideas.txt line 4"),
        ("one", "ideas.txt line 5"),
        ("two", "ideas.txt line 6"),
    ]


PASSWORD = "hunter2-Xy9!Quay"
SECTION = f"""# Staging

## Database

The database runs Postgres 16 on host quay-3.

- Backups run at two in the night.
- The password of the admin user is {PASSWORD}.
- Ask Ines for access.

## Office

The office opens at eight.
Login of the printer:
password: {PASSWORD}-2
Paper is in the cupboard.
"""


@pytest.mark.parametrize("name", ["staging.md", "staging.txt", "CLAUDE.md"])
def test_only_the_line_that_holds_a_password_is_sealed(open_engine: OpenEngine, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(SECTION)
    engine = open_engine()
    planned = import_memories(engine, tmp_path / name, dry_run=True)
    assert [PASSWORD in each.content for each in planned.memories if each.secret] == [False, False]
    assert [each.place.rpartition(" ")[2] for each in planned.memories if each.secret] == ["8", "14"]
    report = import_memories(engine, tmp_path / name)
    assert (report.secrets, report.secrets) == (2, sum(each.secret for each in planned.memories))
    memories = engine.browse(limit=100).memories
    open_texts = "\n".join(memory.content for memory in memories if memory.sensitivity is Sensitivity.OPEN)
    assert PASSWORD not in open_texts
    for phrase in ("Postgres 16", "two in the night", "Ask Ines", "opens at eight", "in the cupboard"):
        assert phrase in open_texts
    sealed = [engine.reveal(memory.id).text for memory in memories if memory.sensitivity is Sensitivity.SECRET]
    assert sorted(PASSWORD in text for text in sealed) == [True, True]
    assert any("Login of the printer" in text for text in sealed)
    assert not any(phrase in text for text in sealed for phrase in ("Postgres", "Ines", "eight", "cupboard"))


def test_secret_shown_only_by_its_context_is_sealed(open_engine: OpenEngine, tmp_path: Path) -> None:
    text = f"# Wifi\n\nThe guest network is slow.\n\n## Password\n\n{PASSWORD}\n\nThe code lies at the desk.\n"
    (tmp_path / "wifi.md").write_text(text)
    engine = open_engine()
    assert import_memories(engine, tmp_path / "wifi.md").secrets == 1
    memories = engine.browse(limit=100).memories
    assert all(PASSWORD not in memory.content for memory in memories)
    texts = "\n".join(memory.content for memory in memories)
    assert "guest network" in texts and "at the desk" in texts


def test_a_wrapped_sentence_with_a_password_stays_whole(open_engine: OpenEngine, tmp_path: Path) -> None:
    (tmp_path / "box.txt").write_text(
        f"The build box stands in the cellar and its\npassword is {PASSWORD}, which\nInes knows.\n"
    )
    engine = open_engine()
    import_memories(engine, tmp_path / "box.txt")
    [memory] = engine.browse().memories
    assert engine.reveal(memory.id).text.startswith("The build box") and engine.reveal(memory.id).text.endswith(
        "Ines knows."
    )


@pytest.mark.parametrize("name", ["cloud.md", "cloud.txt", "CLAUDE.md"])
def test_a_secret_that_only_its_neighbour_tells_is_sealed(open_engine: OpenEngine, tmp_path: Path, name: str) -> None:
    secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzzKEY"
    (tmp_path / name).write_text(f"# Cloud\n\n- AKIAQ7ZK3M5T2PLX4WNB\n- {secret}\n- The region is Frankfurt.\n")
    engine = open_engine()
    assert import_memories(engine, tmp_path / name).secrets == 2
    memories = engine.browse().memories
    assert all(secret not in memory.content for memory in memories)
    assert any("Frankfurt" in memory.content for memory in memories if memory.sensitivity is Sensitivity.OPEN)


def test_a_password_in_a_comment_seals_nothing_else(open_engine: OpenEngine, tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").write_text(f"<!-- the password is {PASSWORD} -->\n\n- Use ruff.\n- Ask Ines.\n")
    engine = open_engine()
    assert import_memories(engine, tmp_path / "CLAUDE.md").secrets == 0


def test_the_facts_of_a_list_are_memories_of_their_own_and_come_once(open_engine: OpenEngine, tmp_path: Path) -> None:
    (tmp_path / "office.md").write_text(
        "# Office\n\nWe moved in May.\n\n- The lab closes at 18:00.\n- Mira has the spare key\n  in room 4.\n"
    )
    engine = open_engine()
    assert import_memories(engine, tmp_path / "office.md").added == 3
    contents = sorted(memory.content for memory in engine.browse().memories)
    assert contents == [
        "Office\n\nMira has the spare key\n  in room 4.",
        "Office\n\nThe lab closes at 18:00.",
        "Office\n\nWe moved in May.",
    ]
    assert import_memories(engine, tmp_path / "office.md").added == 0


@pytest.mark.parametrize(
    "text",
    [
        "1. Stop the old service first.\n2. Start the new service then.",
        "The office is open:\n\n- Monday from nine to five\n- Friday from nine to noon",
        "- oats and milk\n- bread",
        "- [ ] call the landlord about heating\n- [x] pay the rent for May",
        "- The lab closes at 18:00.",
    ],
)
def test_a_list_whose_items_mean_something_together_stays_one_memory(text: str) -> None:
    [note] = [each for each in markdown.parse(text, "n.md", "n", SETTINGS) if isinstance(each, Note)]
    assert all(line.strip("-0123456789. ") in note.content for line in text.splitlines())
