"""The everyday commands over a Postgres store."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from triskele.edge.cli.main import cli

Run = Callable[..., str]


@pytest.fixture
def run(postgres_url: str, tmp_path: Path) -> Run:
    """Runs a command and gives what it printed."""
    environment = {
        "TRISKELE_HOME": str(tmp_path / "home"),
        "TRISKELE_STORE": postgres_url,
        "TRISKELE_PROJECT": "garden",
        "TRISKELE_PRIVACY_KEY": "file",
        "TRISKELE_RECALL_MODEL": "none",
    }

    def run_one(*arguments: str) -> str:
        result = CliRunner().invoke(cli, arguments, env=environment, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    return run_one


def _json(output: str) -> Any:
    return json.loads(output)


def test_commands_work_on_postgres(run: Run, tmp_path: Path) -> None:
    added = _json(run("add", "The heron fishes at dawn", "--json"))["id"]
    other = _json(run("add", "Releases go out by Argo CD", "--json"))["id"]
    assert "heron" in run("recall", "when does the heron fish?")
    run("edit", added, "The heron fishes at noon")
    assert run("history", added).count("edited") == 1
    run("forget", added)
    assert "heron" not in run("list")
    run("undo")
    assert "noon" in run("list")
    run("export", str(tmp_path / "all.jsonl"))
    erasure = _json(run("forget", "--hard", "--yes", added, "--json"))
    assert any("write-ahead log" in words for words in erasure["out_of_reach"])
    assert "base backups" in run("forget", "--hard", "--yes", other)
    assert "No memories" in run("list") or "heron" not in run("list")
    run("import", str(tmp_path / "all.jsonl"))
    assert "noon" in run("list")
    assert "Database OK" in run("doctor", "--deep")
    assert "memories" in run("stats")


def test_backup_and_restore_work_on_postgres(run: Run, tmp_path: Path) -> None:
    run("add", "The heron fishes at dawn")
    run("backup", str(tmp_path / "one.backup"))
    run("add", "written after the backup")
    run("restore", str(tmp_path / "one.backup"), "--yes")
    assert "after the backup" not in run("list")
    assert "heron" in run("recall", "heron")


def test_commands_hide_the_password(run: Run, postgres_url: str) -> None:
    url = postgres_url.replace("postgres@", "postgres:hidden-word@")
    for command in (("stats",), ("stats", "--json"), ("config", "list"), ("config", "list", "--json"), ("doctor",)):
        assert "hidden-word" not in run(*command, "--store", url)
