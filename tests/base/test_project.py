"""Which project a folder belongs to, also in trees made to mislead or to stop the search."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from triskele.base import project


def _git(*arguments: str, folder: Path) -> None:
    identity = {f"GIT_{who}_{what}": "x@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    command = ["git", "-c", "protocol.file.allow=always", *arguments]
    subprocess.run(command, cwd=folder, env={**os.environ, **identity}, check=True, capture_output=True)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A repository with a worktree that git made."""
    repository = tmp_path / "victim"
    repository.mkdir()
    _git("init", "-q", folder=repository)
    _git("commit", "-q", "--allow-empty", "-m", "first", folder=repository)
    _git("worktree", "add", "-q", str(tmp_path / "branch"), folder=repository)
    return repository


def _pointing(folder: Path, content: bytes) -> Path:
    folder.mkdir()
    (folder / ".git").write_bytes(content)
    return folder


def test_a_worktree_made_by_git_belongs_to_its_repository(victim: Path) -> None:
    (victim.parent / "branch" / "deep").mkdir()
    assert project.resolve(victim.parent / "branch" / "deep") == "victim"


def test_relative_pointers_work_both_ways(victim: Path) -> None:
    (victim.parent / "branch" / ".git").write_text("gitdir: ../victim/.git/worktrees/branch\n")
    (victim / ".git" / "worktrees" / "branch" / "gitdir").write_text("../../../../branch/.git\n")
    assert project.resolve(victim.parent / "branch") == "victim"


def test_a_submodule_made_by_git_keeps_its_own_name(victim: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    _git("init", "-q", folder=outer)
    _git("submodule", "add", "-q", str(victim), "inner", folder=outer)
    assert project.resolve(outer / "inner") == "inner"


def test_a_pointer_into_a_repository_that_does_not_point_back_is_not_followed(victim: Path, tmp_path: Path) -> None:
    target = victim / ".git" / "worktrees" / "branch"
    evil = _pointing(tmp_path / "evil", f"gitdir: {target}".encode())
    assert project.resolve(evil) == "evil"
    invented = _pointing(tmp_path / "invented", f"gitdir: {victim}/.git/worktrees/none".encode())
    assert project.resolve(invented) == "invented"


def test_a_link_to_the_pointer_of_a_worktree_is_not_that_worktree(victim: Path, tmp_path: Path) -> None:
    evil = tmp_path / "evil"
    evil.mkdir()
    (evil / ".git").symlink_to(tmp_path / "branch" / ".git")
    assert project.resolve(evil) == "evil"


def test_a_pointer_back_is_read_as_carefully(victim: Path, tmp_path: Path) -> None:
    back = victim / ".git" / "worktrees" / "branch" / "gitdir"
    for content in (b"", b"\0" * 10, b"\xff\xfe", b"x" * 9000, b"..", b"/"):
        back.write_bytes(content)
        assert project.resolve(tmp_path / "branch") == "branch"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0",
        b"gitdir:",
        b"gitdir: \0/.git/worktrees/x",
        b"\xff\xfe\x00",
        b"gitdir: " + b"../" * 3000,
        b"gitdir: .git",
    ],
    ids=["empty", "NUL", "no path", "NUL in the path", "binary", "long", "itself"],
)
def test_nonsense_leaves_the_folder_its_own_name(tmp_path: Path, content: bytes) -> None:
    assert project.resolve(_pointing(tmp_path / "odd", content)) == "odd"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.binary(max_size=80) | st.binary(max_size=40).map(b"gitdir: ".__add__))
def test_any_content_leaves_the_folder_its_own_name(tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "odd"
    folder.mkdir(exist_ok=True)
    (folder / ".git").write_bytes(content)
    assert project.resolve(folder) == "odd"


def test_only_the_beginning_of_a_huge_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _pointing(tmp_path / "huge", b"gitdir: /x")
    os.truncate(folder / ".git", 1 << 40)
    asked: list[int] = []
    read = os.read
    monkeypatch.setattr(os, "read", lambda descriptor, size: (asked.append(size), read(descriptor, size))[1])
    assert project.resolve(folder) == "huge"
    assert asked and max(asked) < 8192


def test_loops_of_links_end(tmp_path: Path) -> None:
    folder = tmp_path / "loop"
    folder.mkdir()
    (folder / ".git").symlink_to(".git")
    assert project.resolve(folder) == "loop"
    (folder / "round").symlink_to("round")
    assert project.resolve(folder / "round") == "round"
    other = _pointing(tmp_path / "other", b"gitdir: ../loop/round/.git/worktrees/x")
    assert project.resolve(other) == "other"


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "pipe"
    folder.mkdir()
    os.mkfifo(folder / ".git")
    assert project.resolve(folder) == "pipe"
    assert project._head(folder / ".git") == b""


def test_a_folder_that_cannot_be_read_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = tmp_path / "harbour"
    (repository / ".git").mkdir(parents=True)
    (repository / "locked" / "deep").mkdir(parents=True)

    def refuse(path: Path) -> bool:
        if "locked" in path.parts:
            raise PermissionError(13, "no", str(path))
        return os.path.isdir(path)

    monkeypatch.setattr(Path, "is_dir", refuse)
    assert project.resolve(repository / "locked" / "deep") == "harbour"


def test_a_name_that_no_file_system_has_is_answered(tmp_path: Path) -> None:
    assert project.resolve(tmp_path / ("x" * 5000)) == "x" * 5000
    assert project.resolve(Path("/nowhere/a\0b")) == "a\0b"
