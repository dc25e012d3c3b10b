"""Which project a folder belongs to, also in trees made to mislead or to stop the search."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from triskele.text import folders


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


@pytest.mark.slow
@pytest.mark.needs("git")
def test_worktree_of_git_belongs_to_its_repository(victim: Path) -> None:
    (victim.parent / "branch" / "deep").mkdir()
    assert folders.discover(victim.parent / "branch" / "deep").name == "victim"


@pytest.mark.slow
@pytest.mark.needs("git")
def test_relative_pointers_work_both_ways(victim: Path) -> None:
    (victim.parent / "branch" / ".git").write_text("gitdir: ../victim/.git/worktrees/branch\n")
    (victim / ".git" / "worktrees" / "branch" / "gitdir").write_text("../../../../branch/.git\n")
    assert folders.discover(victim.parent / "branch").name == "victim"


@pytest.mark.slow
@pytest.mark.needs("git")
def test_submodule_of_git_has_its_own_name(victim: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    _git("init", "-q", folder=outer)
    _git("submodule", "add", "-q", str(victim), "inner", folder=outer)
    assert folders.discover(outer / "inner").name == "inner"


@pytest.mark.slow
@pytest.mark.needs("git")
def test_a_pointer_into_a_repository_that_does_not_point_back_is_not_followed(victim: Path, tmp_path: Path) -> None:
    target = victim / ".git" / "worktrees" / "branch"
    evil = _pointing(tmp_path / "evil", f"gitdir: {target}".encode())
    assert folders.discover(evil).name == "evil"
    invented = _pointing(tmp_path / "invented", f"gitdir: {victim}/.git/worktrees/none".encode())
    assert folders.discover(invented).name == "invented"


@pytest.mark.slow
@pytest.mark.needs("git")
def test_a_link_to_the_pointer_of_a_worktree_is_not_that_worktree(victim: Path, tmp_path: Path) -> None:
    evil = tmp_path / "evil"
    evil.mkdir()
    (evil / ".git").symlink_to(tmp_path / "branch" / ".git")
    assert folders.discover(evil).name == "evil"


@pytest.mark.slow
@pytest.mark.needs("git")
def test_a_pointer_back_is_read_as_carefully(victim: Path, tmp_path: Path) -> None:
    back = victim / ".git" / "worktrees" / "branch" / "gitdir"
    for content in (b"", b"\0" * 10, b"\xff\xfe", b"x" * 9000, b"..", b"/"):
        back.write_bytes(content)
        assert folders.discover(tmp_path / "branch").name == "branch"


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
    assert folders.discover(_pointing(tmp_path / "odd", content)).name == "odd"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.binary(max_size=80) | st.binary(max_size=40).map(b"gitdir: ".__add__))
def test_any_content_leaves_the_folder_its_own_name(tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "odd"
    folder.mkdir(exist_ok=True)
    (folder / ".git").write_bytes(content)
    assert folders.discover(folder).name == "odd"


def test_only_the_beginning_of_a_huge_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _pointing(tmp_path / "huge", b"gitdir: /x")
    os.truncate(folder / ".git", 1 << 40)
    calls: list[int] = []
    read = os.read
    monkeypatch.setattr(os, "read", lambda descriptor, size: (calls.append(size), read(descriptor, size))[1])
    assert folders.discover(folder).name == "huge"
    assert calls and max(calls) < 8192


def test_loops_of_links_end(tmp_path: Path) -> None:
    folder = tmp_path / "loop"
    folder.mkdir()
    (folder / ".git").symlink_to(".git")
    assert folders.discover(folder).name == "loop"
    (folder / "round").symlink_to("round")
    assert folders.discover(folder / "round").name == "round"
    other = _pointing(tmp_path / "other", b"gitdir: ../loop/round/.git/worktrees/x")
    assert folders.discover(other).name == "other"


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "pipe"
    folder.mkdir()
    os.mkfifo(folder / ".git")
    assert folders.discover(folder).name == "pipe"
    assert folders._head(folder / ".git", 100) == b""


def test_a_folder_that_cannot_be_read_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = tmp_path / "harbour"
    (repository / ".git").mkdir(parents=True)
    (repository / "locked" / "deep").mkdir(parents=True)

    def refuse(path: Path) -> bool:
        if "locked" in path.parts:
            raise PermissionError(13, "no", str(path))
        return os.path.isdir(path)

    monkeypatch.setattr(Path, "is_dir", refuse)
    assert folders.discover(repository / "locked" / "deep").name == "harbour"


def test_a_name_that_no_file_system_has_is_answered(tmp_path: Path) -> None:
    assert folders.discover(tmp_path / ("x" * 5000)).name == "x" * 5000
    assert folders.discover(Path("/nowhere/a\0b")).name == "a\0b"


# What identifies a place


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://github.com/Acme/API.git", "github.com/acme/api"),
        ("https://ada:s3cret@github.com/acme/api", "github.com/acme/api"),
        ("https://oauth2:glpat-x@y@git.acme.example:8443/Team/api/", "git.acme.example/Team/api"),
        ("git@github.com:acme/api.git", "github.com/acme/api"),
        ("ssh://git@github.com:22/acme/api.git", "github.com/acme/api"),
        ("https://git.acme.example/api.git?token=s3cret#x", "git.acme.example/api"),
        ("host:~ada/api", "host/~ada/api"),
        ("/srv/git/api.git", ""),
        ("../api", ""),
        ("C:\\git\\api", ""),
        ("https://", ""),
        ("https://github.com/", ""),
        ("https://github.com/a\x00b", ""),
        ("https://github.com/" + "a" * 1000, ""),
        ("", ""),
    ],
)
def test_remotes_have_no_user_password_or_port(url: str, said: str) -> None:
    assert folders.normalised(url) == said


def _repository(folder: Path, config: str | bytes) -> Path:
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "config").write_bytes(config.encode() if isinstance(config, str) else config)
    return folder


ORIGIN = '[remote "origin"]\n\turl = git@github.com:acme/api.git\n\tfetch = +refs/heads/*\n'
FORK = '[remote "fork"]\n\turl = https://github.com/ada/api\n'


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (ORIGIN, "github.com/acme/api"),
        (FORK + "[core]\n\turl = https://x.example/y\n" + ORIGIN, "github.com/acme/api"),
        (FORK, "github.com/ada/api"),
        (FORK + FORK.replace("fork", "other"), ""),
        ('[branch "origin"]\n\turl = https://x.example/y\n', ""),
        (b"\xff\xfe\x00" * 10_000 + ORIGIN.encode(), ""),
        (b"#" * 100_000 + b"\n" + ORIGIN.encode(), ""),
        ("", ""),
    ],
)
def test_the_remote_is_read_from_the_beginning_of_the_configuration(
    tmp_path: Path, config: str | bytes, said: str
) -> None:
    assert folders.discover(_repository(tmp_path / "api", config) / "..").remote == ""
    assert folders.discover(tmp_path / "api").remote == said


@pytest.mark.slow
@pytest.mark.needs("git")
def test_a_worktree_has_the_remote_and_the_root_of_its_repository(victim: Path) -> None:
    _git("remote", "add", "origin", "https://ada:s3cret@github.com/acme/victim.git", folder=victim)
    folder = folders.discover(victim.parent / "branch")
    assert folder == folders.discover(victim)
    assert folder.keys == (f"path:{victim}", "git:github.com/acme/victim")


@pytest.mark.slow
@pytest.mark.needs("git")
def test_a_pointer_that_nothing_confirms_has_no_remote(victim: Path, tmp_path: Path) -> None:
    _git("remote", "add", "origin", "https://github.com/acme/victim", folder=victim)
    evil = _pointing(tmp_path / "evil", f"gitdir: {victim / '.git' / 'worktrees' / 'branch'}".encode())
    assert folders.discover(evil).keys == (f"path:{evil}",)


def test_a_configuration_that_is_a_pipe_or_a_folder_is_not_waited_for(tmp_path: Path) -> None:
    for number, make in enumerate((os.mkfifo, os.mkdir)):
        git = tmp_path / f"api{number}" / ".git"
        git.mkdir(parents=True)
        make(git / "config")
        assert folders.discover(git.parent).remote == ""


def test_names_become_longer_until_they_differ(tmp_path: Path) -> None:
    with_remote = folders.FolderIdentity(tmp_path / "api", "github.com/acme/api").names()
    assert [next(with_remote) for _ in range(4)] == ["api", "acme/api", "api-2", "api-3"]
    without = folders.FolderIdentity(Path("/work/clients/api")).names()
    assert [next(without) for _ in range(3)] == ["api", "clients/api", "api-2"]


def test_a_path_that_is_no_text_is_a_key_with_escapes(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    key = folders.discover(folder).root_key
    assert key.endswith(r"/caf\xe9") and not folders.is_gone(key)
    assert not folders.is_gone(f"path:{tmp_path}") and folders.is_gone(f"path:{tmp_path / 'none'}")
    assert not folders.is_gone("git:github.com/acme/api")


def test_the_root_of_the_file_system_has_neither_name_nor_keys() -> None:
    assert (folders.discover(Path("/")).name, folders.discover(Path("/")).keys) == ("", ())
