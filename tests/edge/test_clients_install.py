"""`triskele install` and `uninstall` for every client: exact diffs, backups, and files given back as they were."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_clients_json_editor import documents

from triskele.edge.cli import agents as commands
from triskele.edge.cli.main import cli
from triskele.edge.install import installer, table
from triskele.edge.install.config_files import TOKEN_FILE_NAME, TokenFile
from triskele.edge.install.installer import InstallTarget
from triskele.edge.install.table import CLIENTS, HOOK
from triskele.errors import TriskeleError

Run = Callable[..., Any]
FILES = {
    "claude-code": [".claude.json", ".claude/settings.json"],
    "codex": [".codex/config.toml", ".codex/hooks.json"],
    "cursor": [".cursor/mcp.json"],
    "vscode": [".config/Code/User/mcp.json"],
    "gemini": [".gemini/settings.json"],
    "antigravity": [".gemini/antigravity-cli/mcp_config.json"],
}
JSON = '{\n    "theme": "dark",\n    "mcpServers": {"other": {"command": "x"}},\n    "hooks": {}\n}'
TOML = '# mine\nmodel = "o3"\n\n[mcp_servers.other]\ncommand = "x"\n'
OURS = ("mcpServers", "servers", "hooks", "disabledMcpjsonServers")
every_client = pytest.mark.parametrize("client", list(CLIENTS))
EVERY_FILE = [(client, name) for client, names in FILES.items() for name in names]
every_file = pytest.mark.parametrize(("client", "name"), EVERY_FILE)


@pytest.fixture
def user(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder of a user."""
    folder = tmp_path / "user"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "TRISKELE_BENCH_CACHE"):
        monkeypatch.delenv(name, raising=False)
    return folder


def token_in(path: Path) -> str:
    """The only token that a file holds."""
    [token] = set(re.findall(r"tkc_[\w-]{32}", path.read_text()))
    return token


def theirs(name: str) -> str:
    return TOML if name.endswith(".toml") else JSON


def fill(user: Path, client: str) -> dict[str, bytes]:
    """Give the client's files content of their own."""
    for name in FILES[client]:
        (user / name).parent.mkdir(parents=True, exist_ok=True)
        (user / name).write_text(theirs(name))
    return contents(user)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def value(path: Path) -> Any:
    return tomllib.loads(path.read_text()) if path.suffix == ".toml" else json.loads(path.read_text())


def patched(before: str, diff: str) -> str:
    """What a unified diff makes of a text."""
    old, new, at = before.split("\n"), list[str](), 0
    for hunk in re.split(r"^@@ -", diff, flags=re.MULTILINE)[1:]:
        head, *lines = hunk.split("\n")[:-1]
        start = int(re.split("[, ]", head)[0])
        from_line = max(start - 1, 0)
        new += old[at:from_line]
        at = from_line
        for number, line in enumerate(lines):
            if line.startswith("\\"):
                continue
            is_open = lines[number + 1 : number + 2] == ["\\ No newline at end of file"]
            if line[0] in " -":
                assert old[at] == line[1:]
                at += 1
            if line[0] in " +":
                new.append(line[1:])
                ends_open = is_open
    rest = old[at:]
    if rest == [""] or not rest:
        return "\n".join(new) + ("" if ends_open else "\n")
    return "\n".join(new + rest)


@every_client
def test_install_writes_owner_only_files_and_uninstall_removes_them(run: Run, user: Path, client: str) -> None:
    done = run("install", client, "--yes", "--json").json
    assert [file["change"] for file in done["files"]] == ["created"] * len(FILES[client])
    assert sorted(contents(user)) == sorted(FILES[client])
    assert all(stat.S_IMODE((user / name).stat().st_mode) == 0o600 for name in FILES[client])
    gone = run("uninstall", client, "--json").json
    assert [file["change"] for file in gone["files"]] == ["removed"] * len(FILES[client])
    assert list(user.iterdir()) == []


@every_client
def test_uninstall_restores_files_byte_for_byte(run: Run, user: Path, client: str) -> None:
    before = fill(user, client)
    run("install", client, "--yes")
    for name in FILES[client]:
        found, was = value(user / name), value_of(before[name], name)
        assert list(found)[: len(was)] == list(was)
        assert "other" in json.dumps(found)
    assert run("uninstall", client).code == 0
    assert contents(user) == before


def value_of(data: bytes, name: str) -> Any:
    return tomllib.loads(data.decode()) if name.endswith(".toml") else json.loads(data)


@every_client
def test_install_starts_the_server_by_its_absolute_path(run: Run, user: Path, client: str) -> None:
    run("install", client, "--yes")
    document = value(user / FILES[client][0])
    entry = document[CLIENTS[client].files[0].keys[0]]["triskele"]
    assert (entry["command"], entry["args"]) == (os.path.abspath(sys.executable), ["-I", "-m", "triskele", "mcp"])
    assert entry.get("type", "stdio") == "stdio"


def test_install_writes_hooks_of_claude_code_as_lists(run: Run, user: Path, home: Path) -> None:
    run("install", "claude-code", "--yes")
    hooks = value(user / ".claude/settings.json")["hooks"]
    assert set(hooks) == {"UserPromptSubmit", "SessionStart", "PreCompact", "SessionEnd"}
    [group] = hooks["UserPromptSubmit"]
    token = token_in(user / ".claude.json")
    file = TokenFile.of(home).file_of(token)
    assert token not in (user / ".claude/settings.json").read_text()
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == (token, 0o600)
    assert group["hooks"] == [
        {
            "type": "command",
            "command": os.path.abspath(sys.executable),
            "args": [
                *("-I", "-S", str(HOOK), "user-prompt-submit", "--client", "claude-code"),
                *("--home", str(home), "--store", "", "--config", "", "--token-file", str(file)),
            ],
            "timeout": 5,
        }
    ]


def test_install_writes_hooks_of_codex_as_quoted_lines(run: Run, user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/opt/my 'py; touch x'/python")
    run("install", "codex", "--yes")
    hooks = value(user / ".codex/hooks.json")["hooks"]
    assert set(hooks) == {"UserPromptSubmit", "SessionStart", "PreCompact"}
    words = shlex.split(hooks["PreCompact"][0]["hooks"][0]["command"])
    client = ["-I", "-S", str(HOOK), "pre-compact", "--client", "codex", "--home"]
    assert words[:8] == ["/opt/my 'py; touch x'/python", *client] and words[9:14] == [
        "--store",
        "",
        "--config",
        "",
        "--token-file",
    ]


@every_client
def test_install_writes_home_store_and_settings_file_only(
    run: Run, user: Path, home: Path, monkeypatch: pytest.MonkeyPatch, client: str
) -> None:
    monkeypatch.setenv("TRISKELE_PASSPHRASE", "correct horse")
    monkeypatch.setenv("TRISKELE_STORE", "sqlite:///mine.db")
    run("install", client, "--yes")
    document = value(user / FILES[client][0])
    store = f"sqlite:///{Path.cwd() / 'mine.db'}"
    expected = {"TRISKELE_HOME": str(home), "TRISKELE_STORE": store, "TRISKELE_CONFIG": ""}
    expected["TRISKELE_CLIENT_TOKEN"] = token_in(user / FILES[client][0])
    assert document[CLIENTS[client].files[0].keys[0]]["triskele"]["env"] == expected
    assert not any(b"correct horse" in data for data in contents(user).values())
    # What was not chosen is written down too: a repository could choose it otherwise.
    monkeypatch.delenv("TRISKELE_STORE")
    monkeypatch.delenv("TRISKELE_HOME")
    run("install", client, "--yes")
    written = value(user / FILES[client][0])[CLIENTS[client].files[0].keys[0]]["triskele"]["env"]
    assert written["TRISKELE_HOME"] and (written["TRISKELE_STORE"], written["TRISKELE_CONFIG"]) == ("", "")


def test_install_refuses_addresses_with_passwords(run: Run, user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRISKELE_STORE", "postgresql://me:open-sesame@db/memories")
    assert run("install", "cursor", "--yes").is_refused(2, "config.toml")
    assert contents(user) == {}


def test_install_turns_learning_on_only_with_consent(run: Run, user: Path) -> None:
    def dial() -> str:
        return str(run("config", "get", "curation.learn", "--json").json["value"])

    run("install", "claude-code", "--yes")
    assert dial() == "off"
    run("install", "claude-code", "--yes", "--learn", "--dry-run")
    assert dial() == "off"
    run("install", "claude-code", "--yes", "--learn")
    assert dial() == "normal"
    run("config", "set", "curation.learn", "strict")
    run("install", "claude-code", "--yes", "--learn")
    assert dial() == "strict"


@every_client
def test_install_twice_changes_nothing(run: Run, user: Path, client: str) -> None:
    fill(user, client)
    run("install", client, "--yes")
    before = contents(user)
    again = run("install", client)
    assert again.code == 0 and "already" in again.out
    assert contents(user) == before
    run("uninstall", client)
    gone = run("uninstall", client)
    assert gone.code == 0 and "not in" in gone.out


@every_client
def test_install_token_is_valid_until_uninstall(run: Run, user: Path, home: Path, client: str) -> None:
    fill(user, client)
    shown = run("install", client, "--yes").out
    token, known = token_in(user / FILES[client][0]), TokenFile.of(home)
    assert known.file_of(token).read_text() == token
    assert known.client_of(token) == client and known.client_of("") is None and known.client_of(token[:-1]) is None
    assert token not in shown and token not in known.path.read_text()
    assert stat.S_IMODE(known.path.stat().st_mode) == 0o600
    run("uninstall", client)
    assert known.client_of(token) is None and not known.file_of(token).exists()
    run("install", client, "--yes")
    assert token_in(user / FILES[client][0]) != token


@every_client
def test_install_for_a_project_writes_no_token(run: Run, user: Path, client: str) -> None:
    run("install", client, "--project", "--yes")
    assert not any(b"tkc_" in data for data in contents(Path.cwd()).values())


def test_doctor_lists_clients_without_a_token(run: Run, user: Path, home: Path) -> None:
    home.mkdir()
    (home / "config.toml").write_text('[agents]\nprivate_to = ["codex", "cursor"]\n')
    run("install", "codex", "--yes")
    assert run("doctor", "--json").json["clients_without_token"] == ["cursor"]
    assert "run `triskele install cursor` again" in " ".join(run("doctor").out.split())


@every_client
def test_install_dry_run_writes_nothing(run: Run, user: Path, home: Path, client: str) -> None:
    before = fill(user, client)
    shown = run("install", client, "--dry-run")
    assert shown.code == 0 and "triskele" in shown.out and shown.out.endswith("Nothing was written.\n")
    assert contents(user) == before and not home.exists()
    run("install", client, "--yes")
    installed = contents(user)
    assert "\n-" in run("uninstall", client, "--dry-run", "--diff").out
    assert "Removes from" in run("uninstall", client, "--dry-run").out
    assert contents(user) == installed


@every_client
def test_install_diff_equals_the_change(run: Run, user: Path, client: str) -> None:
    before = fill(user, client)
    planned = run("install", client, "--dry-run", "--json").json["files"]
    done = run("install", client, "--yes", "--json").json["files"]
    assert [file["diff"] for file in planned] == [file["diff"] for file in done]
    token = token_in(user / FILES[client][0])
    for name, file in zip(FILES[client], done, strict=True):
        assert file["path"] == str(user / name)
        masked = TOKEN_FILE_NAME.sub("(token)", (user / name).read_text().replace(token, "(token)"))
        assert patched(before[name].decode(), file["diff"]) == masked


@every_client
def test_install_without_a_terminal_needs_yes(run: Run, user: Path, home: Path, client: str) -> None:
    before = fill(user, client)
    assert run("install", client).is_refused(2, "--yes")
    assert contents(user) == before and not home.exists()


@pytest.mark.parametrize(("said", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1)])
def test_install_asks_after_a_summary(user: Path, monkeypatch: pytest.MonkeyPatch, said: str, code: int) -> None:
    monkeypatch.setattr(commands, "has_terminal", lambda: True)
    asked = CliRunner().invoke(cli, ["install", "cursor"], input=said, prog_name="triskele")
    assert asked.exit_code == code
    assert asked.stdout.startswith("Adds to ") and "+++" not in asked.stdout
    assert "Write this for Cursor?" in asked.stderr
    assert bool(contents(user)) == (code == 0)
    if code == 0:
        asked = CliRunner().invoke(cli, ["uninstall", "cursor"], input="n\n", prog_name="triskele")
        assert asked.exit_code == 1 and contents(user)


def test_install_shows_the_diff_on_request(user: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "+++ " in run("install", "cursor", "--dry-run", "--diff").out
    monkeypatch.setattr(commands, "has_terminal", lambda: True)
    asked = CliRunner().invoke(cli, ["install", "cursor"], input="d\nn\n", prog_name="triskele")
    assert asked.exit_code == 1 and "--- /dev/null\n+++ " in asked.stdout and not contents(user)


@every_client
def test_install_for_a_project_writes_no_local_paths(run: Run, user: Path, home: Path, client: str) -> None:
    run("install", client, "--yes", "--project")
    for file in CLIENTS[client].files:
        text = (Path.cwd() / file.project).read_text()
        if not file.is_personal:
            assert "triskele" in text and not any(str(each) in text for each in (Path.home(), home, sys.prefix, HOOK))
    assert run("install", client, "--yes", "--project").out.startswith("Nothing to change")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "calls"), [("2.1.325 (Claude Code)", True), ("2.1.117 (Claude Code)", False), ("?", False)]
)
def test_install_uses_tool_hooks_of_new_clients(
    run: Run, user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, calls: bool
) -> None:
    program = tmp_path / f"bin{calls}{len(version)}" / "claude"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{version}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    run("install", "claude-code", "--yes")
    hooks = {event: group[0]["hooks"][0] for event, group in value(user / ".claude/settings.json")["hooks"].items()}
    asking = {event for event, entry in hooks.items() if entry["type"] == "mcp_tool"}
    assert asking == ({"UserPromptSubmit", "PreCompact"} if calls else set())
    if calls:
        assert hooks["UserPromptSubmit"]["input"]["prompt"] == "${prompt}"
    assert run("install", "claude-code", "--yes").out.startswith("Nothing to change")
    run("uninstall", "claude-code")
    assert contents(user) == {}


def test_install_keeps_the_notes_of_clients(run: Run, user: Path) -> None:
    path = user / ".claude/settings.json"
    path.parent.mkdir()
    path.write_text('{"autoMemoryEnabled": true, "env": {"A": "1"}}')
    run("install", "claude-code", "--yes")
    kept = value(path)
    assert (kept["autoMemoryEnabled"], kept["env"]) == (True, {"A": "1"})
    assert set(kept) == {"autoMemoryEnabled", "env", "hooks", "disabledMcpjsonServers"}


@every_client
def test_install_backs_up_files_owner_only(run: Run, user: Path, home: Path, client: str) -> None:
    before = fill(user, client)
    done = run("install", client, "--yes", "--json").json["files"]
    for name, file in zip(FILES[client], done, strict=True):
        backup = Path(file["backup"])
        assert backup.is_relative_to(home / "backups") and backup.read_bytes() == before[name]
        assert stat.S_IMODE(backup.stat().st_mode) == 0o600
        assert {stat.S_IMODE(folder.stat().st_mode) for folder in (home, backup.parent)} == {0o700}


@every_client
def test_uninstall_keeps_later_edits(run: Run, user: Path, client: str) -> None:
    fill(user, client)
    run("install", client, "--yes")
    for name in FILES[client]:
        path = user / name
        text = path.read_text()
        path.write_text(
            text + "\n[later]\nx = 1\n" if name.endswith(".toml") else text.replace("{", '{"later": {"x": 1},', 1)
        )
    assert run("uninstall", client).code == 0
    for name in FILES[client]:
        assert value(user / name) == {**value_of(theirs(name).encode(), name), "later": {"x": 1}}


@every_client
def test_uninstall_after_two_installs_restores_the_original(
    run: Run, user: Path, monkeypatch: pytest.MonkeyPatch, client: str
) -> None:
    before = fill(user, client)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/old/python")
        patch.setattr(table, "HOOK", Path("/old/lib/triskele/edge/hook/start.py"))
        run("install", client, "--yes")
    changed = run("install", client, "--yes").out
    assert "-" in changed and "/old/python" not in "".join(map(str, contents(user).values()))
    run("uninstall", client)
    assert contents(user) == before


@every_client
def test_uninstall_works_without_receipts(run: Run, user: Path, home: Path, client: str) -> None:
    fill(user, client)
    run("install", client, "--yes")
    for note in home.rglob("*.receipt.json"):
        note.write_text("{broken")
    run("uninstall", client)
    for name in FILES[client]:
        was = value_of(theirs(name).encode(), name)
        assert {k: v for k, v in value(user / name).items() if v} == {k: v for k, v in was.items() if v}


def test_uninstall_keeps_foreign_hooks(run: Run, user: Path) -> None:
    run("install", "claude-code", "--yes")
    path = user / ".claude/settings.json"
    document = value(path)
    document["hooks"]["SessionStart"][0]["hooks"].insert(0, {"type": "command", "command": "date"})
    document["hooks"]["Stop"] = [{"hooks": [{"type": "command", "command": "sync"}]}]
    path.write_text(json.dumps(document))
    run("uninstall", "claude-code")
    assert value(path)["hooks"] == {
        "SessionStart": [{"hooks": [{"type": "command", "command": "date"}]}],
        "Stop": [{"hooks": [{"type": "command", "command": "sync"}]}],
    }


@pytest.mark.parametrize("before", ['{"disabledMcpjsonServers": ["x"]}', '{"disabledMcpjsonServers": ["triskele"]}'])
def test_install_reserves_the_name_of_the_server(run: Run, user: Path, before: str) -> None:
    path = user / ".claude/settings.json"
    path.parent.mkdir()
    path.write_text(before)
    assert "and the name triskele in disabledMcpjsonServers" in run("install", "claude-code", "--dry-run").out
    run("install", "claude-code", "--yes")
    assert value(path)["disabledMcpjsonServers"].count("triskele") == 1
    path.write_text(path.read_text().replace("{", '{"later": 1, ', 1))
    run("uninstall", "claude-code")
    assert value(path) == {"later": 1, **json.loads(before)}
    run("install", "claude-code", "--yes", "--project")
    assert "disabledMcpjsonServers" not in value(Path.cwd() / ".claude/settings.local.json")


@pytest.mark.parametrize(
    ("variable", "client", "names"),
    [
        ("CLAUDE_CONFIG_DIR", "claude-code", [".claude.json", "settings.json"]),
        ("CODEX_HOME", "codex", ["config.toml", "hooks.json"]),
    ],
)
def test_install_follows_moved_configuration_folders(
    run: Run, user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, client: str, names: list[str]
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / "moved"))
    run("install", client, "--yes")
    assert sorted(contents(tmp_path / "moved")) == names and contents(user) == {}


@every_client
def test_install_for_a_project_stays_in_its_folder(run: Run, user: Path, client: str) -> None:
    run("install", client, "--yes", "--project")
    assert contents(user) == {}
    written = {str(p.relative_to(Path.cwd())) for p in Path.cwd().rglob("*") if p.is_file()}
    assert written == {file.project for file in CLIENTS[client].files}
    run("uninstall", client, "--project")
    assert [p.name for p in Path.cwd().iterdir()] == [".git"]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(documents(), min_size=2, max_size=2), client=st.sampled_from(["claude-code", "cursor", "vscode"]))
def test_uninstall_restores_any_configuration(user: Path, home: Path, texts: list[str], client: str) -> None:
    row, setting = CLIENTS[client], InstallTarget(home, {}, {"TRISKELE_HOME": str(home)})
    paths = [user / name for name in FILES[client]]
    for path, text in zip(paths, texts, strict=False):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
    before = [path.read_bytes() for path in paths]
    try:
        changes = installer.plan_install(row, setting)
    except TriskeleError:
        assert [path.read_bytes() for path in paths] == before
        return
    for change, path, text in zip(installer.install(changes, setting), paths, texts, strict=False):
        assert patched(text, change.difference) == TOKEN_FILE_NAME.sub(
            "(token)", path.read_bytes().decode().replace(change.token, "(token)")
        )
        old, new = json.loads(text), json.loads(path.read_bytes())
        assert {k: v for k, v in new.items() if k not in OURS} == {k: v for k, v in old.items() if k not in OURS}
    assert not any(change.is_needed for change in installer.plan_install(row, setting))
    installer.uninstall(installer.plan_uninstall(row, setting), setting)
    assert [path.read_bytes() for path in paths] == before


def test_install_warns_of_a_store_outside_the_settings(
    run: Callable[..., Any], home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "hooks will stay silent" not in run("install", "claude-code", "--dry-run").err
    monkeypatch.setenv("TRISKELE_STORE", f"sqlite:///{tmp_path}/other.db")
    assert "hooks will stay silent" in run("install", "claude-code", "--dry-run").err
