"""Files that cannot be changed safely: one clear line, and not a byte written."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_clients_install import FILES, contents, every_client, every_file, fill, user, value

from triskele.edge.install import config_files, installer
from triskele.edge.install.installer import InstallTarget
from triskele.edge.install.table import CLIENTS
from triskele.errors import Conflict, Unavailable

__all__ = ["user"]
Run = Callable[..., Any]
COMMENTED = '{\n  // my servers\n  "servers": {},\n}\n'
PARTIAL = [b"{", b'{"a": 1,}', b"[1,]", b"\xff\xfe{}", b'"text"', b"{}{}", COMMENTED.encode(), b'{"a": NaN}']


@every_file
@pytest.mark.parametrize("data", PARTIAL)
def test_install_refuses_malformed_files(run: Run, user: Path, client: str, name: str, data: bytes) -> None:
    before = {**fill(user, client), name: data}
    (user / name).write_bytes(data)
    for options in (["--yes"], ["--dry-run"]):
        ran = run("install", client, *options)
        assert ran.code == 2 and ran.err.count("\n") == 1 and str(user / name) in ran.err and "by hand" in ran.err
        assert "triskele" in ran.out
        assert run("install", client, *options, "--json").is_refused(2, "by hand")
    assert run("uninstall", client).is_refused(2, "by hand")
    assert contents(user) == before


def test_install_shows_what_to_add_by_hand(run: Run, user: Path) -> None:
    [name] = FILES["vscode"]
    (user / name).parent.mkdir(parents=True)
    (user / name).write_text(COMMENTED)
    shown = json.loads(run("install", "vscode", "--yes").out)
    assert shown["servers"]["triskele"]["command"] == os.path.abspath(sys.executable)


@pytest.mark.parametrize("shape", ['{"mcpServers": []}', '{"mcpServers": null}', '{"mcpServers": "x"}'])
def test_install_refuses_files_of_another_shape(run: Run, user: Path, shape: str) -> None:
    (user / ".claude.json").write_text(shape)
    assert "mcpServers is not an object" in run("install", "claude-code", "--yes").err
    assert contents(user) == {".claude.json": shape.encode()}


@pytest.mark.parametrize("shape", ['{"hooks": []}', '{"hooks": {"PreCompact": {}}}', '{"hooks": {"PreCompact": 1}}'])
def test_install_refuses_hooks_of_another_shape(run: Run, user: Path, shape: str) -> None:
    (user / ".claude").mkdir()
    (user / ".claude/settings.json").write_text(shape)
    assert run("install", "claude-code", "--yes").code == 2
    assert contents(user) == {".claude/settings.json": shape.encode()}


@every_client
@pytest.mark.parametrize("data", [b"", b" \n", "\ufeff".encode()])
def test_install_fills_empty_files(run: Run, user: Path, client: str, data: bytes) -> None:
    for name in FILES[client]:
        (user / name).parent.mkdir(parents=True, exist_ok=True)
        # TOML knows no byte order mark.
        (user / name).write_bytes(b"" if name.endswith(".toml") else data)
    assert run("uninstall", client).code == 0
    before = contents(user)
    assert run("install", client, "--yes").code == 0
    assert run("uninstall", client).code == 0
    assert contents(user) == before


@every_file
def test_install_refuses_other_than_files(run: Run, user: Path, client: str, name: str) -> None:
    (user / name).mkdir(parents=True)
    assert run("install", client, "--yes").is_refused(2, "not a regular file")
    (user / name).rmdir()
    os.mkfifo(user / name)
    assert run("install", client, "--yes").is_refused(2, "not a regular file")


def test_install_names_a_file_in_place_of_a_folder(run: Run, user: Path) -> None:
    (user / ".cursor").write_text("")
    assert run("install", "cursor", "--yes").is_refused(2, "is a file, not a folder")


@every_client
def test_install_refuses_read_only_files(run: Run, user: Path, client: str) -> None:
    before = fill(user, client)
    path = user / FILES[client][-1]
    path.chmod(0o444)
    assert run("install", client, "--yes").is_refused(2, "read-only")
    assert contents(user) == before and stat.S_IMODE(path.stat().st_mode) == 0o444


def test_install_refuses_oversized_files(run: Run, user: Path) -> None:
    with (user / ".claude.json").open("wb") as file:
        file.truncate(config_files.MAX_BYTES + 1)
    assert run("install", "claude-code", "--yes").is_refused(2, "larger than")


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o660])
def test_install_keeps_permissions(run: Run, user: Path, mode: int) -> None:
    (user / ".claude.json").write_text("{}")
    (user / ".claude.json").chmod(mode)
    run("install", "claude-code", "--yes")
    assert stat.S_IMODE((user / ".claude.json").stat().st_mode) == mode
    run("uninstall", "claude-code")
    assert stat.S_IMODE((user / ".claude.json").stat().st_mode) == mode


@pytest.mark.parametrize("target", ["user/dotfiles/claude.json", "elsewhere/claude.json"])
def test_install_keeps_own_links(run: Run, user: Path, tmp_path: Path, target: str) -> None:
    real = tmp_path / target
    real.parent.mkdir()
    real.write_text('{"a": 1}')
    (user / ".claude.json").symlink_to(real)
    run("install", "claude-code", "--yes")
    assert (user / ".claude.json").is_symlink() and "mcpServers" in value(real)
    run("uninstall", "claude-code")
    assert real.read_text() == '{"a": 1}'


def test_install_refuses_foreign_links(run: Run, user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "victim.json").write_text("{}")
    (user / ".claude.json").symlink_to(tmp_path / "victim.json")
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    assert run("install", "claude-code", "--yes").is_refused(2, "outside")
    assert (tmp_path / "victim.json").read_text() == "{}"


@pytest.mark.parametrize("link", [".cursor", ".cursor/mcp.json"])
def test_install_for_a_project_follows_no_link_outside(run: Run, user: Path, tmp_path: Path, link: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mcp.json").write_text("{}")
    (Path.cwd() / link).parent.mkdir(exist_ok=True)
    (Path.cwd() / link).symlink_to(outside if link == ".cursor" else outside / "mcp.json")
    assert run("install", "cursor", "--project", "--yes").is_refused(2, "outside")
    assert (outside / "mcp.json").read_text() == "{}"


def test_install_refuses_circular_links(run: Run, user: Path) -> None:
    (user / ".claude.json").symlink_to(user / ".claude.json")
    assert run("install", "claude-code", "--yes").is_refused(2, "broken link")


def test_install_diff_escapes_control_characters(run: Run, user: Path) -> None:
    hostile = '{\n  "name": "\x9b31m\x7f\u202e",\n  "mcpServers": {}\n}'
    (user / ".claude.json").write_text(hostile)
    out = run("install", "claude-code", "--dry-run", "--diff").out
    assert not any(character in out for character in "\x9b\x7f\u202e")
    run("install", "claude-code", "--yes")
    assert hostile.split("\n")[1] in (user / ".claude.json").read_text()


@pytest.mark.parametrize(
    "hostile",
    [
        '{"__proto__": {"mcpServers": 1}, "mcpServers": {"constructor": {}}}',
        '{"mcpServers": {}, "mcpServers": {"x": {"command": "\\"}}], {\\u0000"}}}',
        json.dumps({"mcpServers": {"triskele\u0000": {}, "Triskele": {}, "": {}}}),
    ],
)
def test_install_keeps_hostile_content(run: Run, user: Path, hostile: str) -> None:
    (user / ".claude.json").write_text(hostile)
    run("install", "claude-code", "--yes")
    servers = value(user / ".claude.json")["mcpServers"]
    assert servers.pop("triskele")["args"][-1] == "mcp"
    assert servers == json.loads(hostile)["mcpServers"]
    run("uninstall", "claude-code")
    assert (user / ".claude.json").read_text() == hostile


@pytest.mark.parametrize("folder", ["/opt/${HOME}/bin/python", "/opt/a\nb/python", "/opt/\udcff/python"])
def test_install_refuses_interpreters_that_clients_misread(
    run: Run, user: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.setattr(sys, "executable", folder)
    assert run("install", "cursor", "--yes").is_refused(2, "plain name")


def test_install_refuses_temporary_environments(run: Run, user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/home/me/.cache/uv/archive-v0/x1/bin/python")
    assert run("install", "cursor", "--yes").is_refused(2, "uv tool install")


def test_install_notices_changes_of_other_programs(user: Path, home: Path) -> None:
    row, setting = CLIENTS["claude-code"], InstallTarget(home, {}, {})
    fill(user, "claude-code")
    changes = installer.plan_install(row, setting)
    before = {**contents(user), ".claude/settings.json": b"{}"}
    (user / ".claude/settings.json").write_bytes(b"{}")
    with pytest.raises(Conflict, match="another program"):
        installer.install(changes, setting)
    assert contents(user) == before


def test_install_writes_all_files_or_none(user: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row, setting = CLIENTS["codex"], InstallTarget(home, {}, {})
    changes = installer.plan_install(row, setting)
    whole = config_files.write

    def full(path: Path, data: bytes) -> list[Path]:
        if path.name == "hooks.json":
            raise Unavailable("No space left on device")
        return whole(path, data)

    monkeypatch.setattr(config_files, "write", full)
    with pytest.raises(Unavailable):
        installer.install(changes, setting)
    assert list(user.iterdir()) == []


def test_install_on_a_full_disk_keeps_the_old_file(
    run: Run, user: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fill(user, "cursor")

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    assert run("install", "cursor", "--yes").is_refused(3, "No space left")
    assert contents(user) == before and contents(home) == {}


def test_install_names_unknown_clients(run: Run, user: Path) -> None:
    assert run("install", "emacs").is_refused(2, "claude-code", "gemini")
