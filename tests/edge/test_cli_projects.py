"""Projects on the command line: folders of the same name stay apart, and projects can be listed, renamed and merged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
WorkIn = Callable[[str, str], None]


@pytest.fixture
def work_in(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> WorkIn:
    """Makes a repository with a remote and works there."""

    def work(name: str, remote: str) -> None:
        folder = tmp_path / name
        (folder / ".git").mkdir(parents=True, exist_ok=True)
        (folder / ".git" / "config").write_text(f'[remote "origin"]\nurl = {remote}\n')
        monkeypatch.chdir(folder)

    return work


def test_projects_with_folders_of_the_same_name_are_renamed_and_merged(run: Run, work_in: WorkIn) -> None:
    work_in("one/api", "https://github.com/acme/api")
    assert run("add", "The port is 8080", "--json").json["project"] == "api"
    work_in("two/api", "https://ada:s3cret@github.com/globex/api")
    assert run("recall", "which port", "--json").json["hits"] == []
    assert run("add", "The port is 9090", "--json").json["project"] == "globex/api"
    listed = run("projects", "list", "--json").json
    assert [(each["name"], each["memories"]) for each in listed["projects"]] == [("api", 1), ("globex/api", 1)]
    assert listed["project"] == "globex/api"
    shown = run("projects", "list").out
    assert "github.com/globex/api" in shown and "s3cret" not in shown
    renamed = run("projects", "rename", "globex/api", "billing", "--json").json
    assert (renamed["from"], renamed["to"], renamed["memories"]) == ("globex/api", "billing", 1)
    assert len(run("recall", "which port", "--json").json["hits"]) == 1
    merged = run("projects", "merge", "billing", "api")
    assert "1 memory of billing now belongs to api. Undo with" in merged.out
    assert len(run("recall", "which port", "--json").json["hits"]) == 2
    run("undo", "--batch", run("history", "--json").json["entries"][-1]["batch"])
    assert len(run("recall", "which port", "--json").json["hits"]) == 1
    assert run("projects", "rename", "api", "billing").is_refused(2, "projects merge")
    assert run("projects", "merge", "nothing", "api").is_refused(1, "no project nothing")


def test_rename_moves_a_folder_without_memories(run: Run, work_in: WorkIn) -> None:
    work_in("api", "https://github.com/acme/api")
    run("add", "The port is 8080", "--project", "api")
    run("projects", "rename", "api", "billing")
    assert run("recall", "which port", "--json").json["project"] == "billing"


def test_doctor_names_older_memories_of_the_same_folder_name(run: Run, work_in: WorkIn) -> None:
    work_in("elsewhere", "https://github.com/acme/elsewhere")
    run("add", "From the old days", "--project", "api", "--json")
    work_in("one/api", "https://github.com/acme/api")
    run("add", "Since then")
    work_in("two/api", "https://github.com/globex/api")
    run("add", "Of the other")
    assert run("doctor", "--json").json["mixed"] == {"api": ["globex/api"]}
    assert "Older memories of api may belong to globex/api" in run("doctor").out


def test_history_and_undo_name_a_moved_folder(run: Run, work_in: WorkIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    work_in("one/api", "https://github.com/acme/api")
    folder = Path.cwd()
    run("add", "The port is 8080")
    batch = run("projects", "rename", "api", "billing", "--json").json["batch"]
    output = run("history").out
    assert f"moved · by you · batch {batch}" in output and f"the folder {folder} (before: project api)" in output
    undone = run("undo", "--batch", batch).out
    assert undone.startswith("Undoing 3 changes by you")
    assert f"moved the folder {folder} (before: project api)" in undone
    assert f"Moved the folder {folder} back to project api." in undone
    assert "Moved the repository github.com/acme/api back to project api." in undone
    assert not any(word in output + undone + run("history").out for word in ("bound", "place ", "(erased)"))


def test_projects_without_a_command_shows_help(run: Run) -> None:
    ran = run("projects")
    assert ran.code == 0 and "merge" in ran.out
