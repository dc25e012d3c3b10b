"""import and export."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

Run = Callable[..., Any]
Add = Callable[..., str]


def test_import_dry_run_changes_nothing_and_import_can_be_undone(run: Run, tmp_path: Path) -> None:
    source = tmp_path / "CLAUDE.md"
    source.write_text("# Rules\n\n- Use tabs in every file.\n- Never push on a Friday.\n")
    planned = run("import", str(source), "--dry-run", "--json").json
    assert (planned["added"], planned["dry_run"], planned["problems"]) == (2, True, [])
    assert run("list", "--json").json["memories"] == []
    done = run("import", str(source), "--json").json
    assert (done["read"], done["added"], done["project"]) == (2, 2, "shop")
    assert run("import", str(source), "--json").json["duplicates"] == 2
    run("undo", "--batch", done["batch"], "--yes")
    assert run("list", "--json").json["memories"] == []


def test_import_names_the_files_it_read(run: Run, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    (notes / "sub").mkdir(parents=True)
    for name in ("a.md", "sub/b.txt", ".hidden.md", "c.pdf"):
        (notes / name).write_text(f"A fact about {name} for everyone.\n")
    planned = run("import", str(notes), "--dry-run", "--json").json
    assert (planned["source"], planned["files"]) == (str(notes.resolve()), ["a.md", "sub/b.txt"])
    output = " ".join(run("import", str(notes)).out.split())
    assert output.startswith(f"Read 2 files of {notes.resolve()}: a.md, sub/b.txt. 2 of 2 memories added")
    assert run("import", str(notes / "a.md")).out.replace("\n", " ").startswith(f"Read {(notes / 'a.md').resolve()}. ")


def test_import_of_an_export_gives_the_same_memories(run: Run, add: Add, tmp_path: Path) -> None:
    older = add("SMS go out through Textmarlin", "--tags", "sms")
    add("Messages run over Pingwell", "--supersedes", older)
    target = tmp_path / "all.jsonl"
    document = run("export", str(target), "--json").json
    assert (document["written"], document["left_out_private"], document["target"]) == (2, 0, str(target))
    here = run("list", "--json").json
    elsewhere = f"sqlite:///{tmp_path / 'copy.db'}"
    run("--store", elsewhere, "import", str(target), "--keep-origin")
    assert run("list", "--store", elsewhere, "--json").json == here


def test_archive_moves_everything_to_another_store(run: Run, add: Add, tmp_path: Path) -> None:
    add("SMS go out through Textmarlin", "--tags", "sms")
    add("The meeting is in room 4711", "--private")
    target, elsewhere = str(tmp_path / "all.archive"), ("--store", f"sqlite:///{tmp_path / 'copy.db'}")
    assert "add --private" in run("export", target, "--format", "archive").err
    assert "only an archive" in run("export", "--all-owners").err
    assert "2 memories written to" in run("export", target, "--format", "archive", "--private").out
    assert '"sha256"' in run("export", "--format", "archive", "--private").out.splitlines()[-1]
    assert "add --keep-origin" in run(*elsewhere, "import", target).err
    planned = run(*elsewhere, "import", target, "--keep-origin", "--dry-run")
    assert "2 memories would be imported" in planned.out
    assert run(*elsewhere, "list", "--json").json["memories"] == []
    assert "2 memories imported" in run(*elsewhere, "import", target, "--keep-origin").out
    assert run(*elsewhere, "list", "--json").json == run("list", "--json").json
    assert "has memories of 'me'" in run(*elsewhere, "import", target, "--keep-origin").err


def test_archive_of_another_folder_names_projects_merge(
    run: Run, add: Add, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add("SMS go out through Textmarlin")
    target, elsewhere = str(tmp_path / "all.archive"), ("--store", f"sqlite:///{tmp_path / 'copy.db'}")
    run("export", target, "--format", "archive", "--private")
    assert "projects" not in run("--store", f"sqlite:///{tmp_path / 'same.db'}", "import", target, "--keep-origin").out
    (tmp_path / "market").mkdir()
    monkeypatch.chdir(tmp_path / "market")
    output = " ".join(run(*elsewhere, "import", target, "--keep-origin").out.split())
    assert "`triskele projects merge market shop`" in output
    assert run(*elsewhere, "list", "--json").json["memories"] == []
    run(*elsewhere, "projects", "merge", "market", "shop")
    assert len(run(*elsewhere, "list", "--json").json["memories"]) == 1


def test_export_leaves_out_private_memories(run: Run, add: Add) -> None:
    add("The meeting is in room 4711", "--private")
    add("The office is in Altona")
    plain = run("export")
    assert "4711" not in plain.out and "Altona" in plain.out
    assert "1 private memory left out" in plain.err
    assert all(json.loads(line) for line in plain.out.splitlines())
    assert "4711" in run("export", "--private").out


def test_export_json_is_one_document(run: Run, add: Add) -> None:
    add("The office is in Altona")
    document = run("export", "--json").json
    assert document["written"] == 1
    assert [record["memory"]["content"] for record in document["records"] if "memory" in record] == [
        "The office is in Altona"
    ]


@pytest.mark.parametrize("format", ["jsonl", "markdown", "archive"])
@pytest.mark.parametrize(
    "change", ["versions SET content = 'A lie'", "versions SET importance = 1", "links SET kind = 'see-also'"]
)
def test_export_refuses_a_changed_row(run: Run, add: Add, home: Path, tmp_path: Path, format: str, change: str) -> None:
    add("Messages run over Pingwell", "--supersedes", add("SMS go out through Textmarlin"))
    with closing(apsw.Connection(str(home / "memories.db"))) as connection:
        connection.execute(f"UPDATE {change}")
    refused = run("export", str(tmp_path / "out"), "--format", format, "--private")
    assert refused.is_refused(3, "is not what was written (its hash differs)", "triskele doctor --deep")
    assert not (tmp_path / "out").exists()


def test_export_as_markdown_is_a_folder(run: Run, add: Add, tmp_path: Path) -> None:
    add("The office is in Altona")
    assert run("export", str(tmp_path / "notes"), "--format", "markdown").code == 0
    [note] = (tmp_path / "notes").rglob("*.md")
    assert "Altona" in note.read_text()


def test_export_overwrites_only_on_request(run: Run, add: Add, tmp_path: Path) -> None:
    add("The office is in Altona")
    file, folder = tmp_path / "kept.jsonl", tmp_path / "notes"
    file.write_text("mine")
    folder.mkdir()
    assert run("export", str(folder), "--format", "markdown").code == 0
    mine = folder / "mine.md"
    mine.write_text("mine")
    assert run("export", str(file)).is_refused(2, "kept.jsonl exists", "--force")
    assert run("export", str(folder), "--format", "markdown").is_refused(2, "exists", "--force")
    assert file.read_text() == mine.read_text() == "mine"
    assert run("export", str(file), "--force").code == 0
    assert "Altona" in file.read_text()


def test_import_of_a_broken_file_stores_nothing(run: Run, tmp_path: Path) -> None:
    source = tmp_path / "notes.jsonl"
    source.write_text('{"content": "good"}\n{"content": ""}\n')
    assert run("import", str(source)).is_refused(2, "nothing was imported", "line 2")
    assert run("list", "--json").json["memories"] == []
    planned = run("import", str(source), "--dry-run")
    assert planned.code == 1
    assert "line 2" in planned.out


def test_import_counts_a_repeated_line_apart_from_stored_ones(run: Run, add: Add, tmp_path: Path) -> None:
    stored = add("The mill is old")
    source = tmp_path / "notes.jsonl"
    texts = ("The kettle is red", "The kettle is red", "The mill is old", "The mill is old")
    source.write_text("".join(f'{{"content": "{text}"}}\n' for text in texts))
    output = run("import", str(source), "--dry-run").out
    assert output.count("(twice in this file)") == 1 and output.count(f"(already stored as {stored})") == 2
    assert "2 already stored." in output and "1 twice in this file." in output
    assert [each["id"] != "" for each in run("import", str(source), "--dry-run", "--json").json["memories"]] == [
        True,
        False,
        True,
        True,
    ]
    assert "3 already stored." in run("import", str(source)).out


def test_import_refuses_unknown_sources_and_formats(run: Run, tmp_path: Path) -> None:
    assert run("import", str(tmp_path / "missing")).is_refused(2, "no such file")
    assert run("export", "--format", "parchment").is_refused(2, "unknown format")


def test_export_includes_an_opened_secret(run: Run, add: Add, tmp_path: Path) -> None:
    id = add("the demo password is demo1234demo")
    run("edit", id, "--not-secret")
    document = run("export", str(tmp_path / "out.jsonl"), "--json").json
    assert (document["written"], document["left_out_secret"], document["left_out_versions"]) == (1, 0, 1)
    assert "demo1234demo" in (tmp_path / "out.jsonl").read_text()
    assert "1 earlier version" in run("export", str(tmp_path / "again.jsonl")).out


def test_export_to_a_dash_writes_standard_output(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run("add", "the kettle is red")
    assert "the kettle is red" in run("export", "-").out
    assert not (tmp_path / "-").exists()


def test_export_reports_what_current_only_leaves_out(run: Run, add: Callable[..., str], tmp_path: Path) -> None:
    add("Kept")
    run("forget", add("Forgotten"))
    ran = run("export", str(tmp_path / "all.jsonl"))
    assert "1 forgotten memory among them (left out with --current-only)." in ran.out
    assert "forgotten" not in run("export", str(tmp_path / "now.jsonl"), "--current-only").out
    assert run("export", str(tmp_path / "again.jsonl"), "--json").json["forgotten"] == 1
