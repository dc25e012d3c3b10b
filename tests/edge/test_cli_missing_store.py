"""A database that is missing or empty: a lost store is told, and commands that read create nothing."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

Run = Callable[..., Any]
Add = Callable[..., str]

TRACES = ["vault.key", "memories.db.index", "memories.db-wal"]
READS: dict[tuple[str, ...], Callable[[Any], bool]] = {
    ("recall", "heron"): lambda said: said["hits"] == [],
    ("list",): lambda said: said["memories"] == [],
    ("history",): lambda said: said["entries"] == [],
    ("stats",): lambda said: said["memories"] == 0,
    ("export",): lambda said: said["written"] == 0,
    ("doctor",): lambda said: said["healthy"] is True,
    ("graph", "stats"): lambda said: said["memories"] == 0,
    ("secrets", "list"): lambda said: said["memories"] == [],
    ("models", "list"): lambda said: "project" in said,
    ("reindex",): lambda said: said["indexed"] == 0,
}
NEEDS_A_MEMORY = [
    ("show", "1kpn46"),
    ("why-not", "1kpn46", "heron"),
    ("history", "1kpn46"),
    ("edit", "1kpn46", "new"),
    ("forget", "1kpn46"),
    ("link", "1kpn46", "see-also", "1kpn47"),
    ("secrets", "reveal", "1kpn46"),
    ("secrets", "seal", "1kpn46"),
    ("undo",),
    ("graph", "show", "heron"),
]


def _files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture(params=["missing", "emptied"])
def lost(request: pytest.FixtureRequest, run: Run, add: Add, home: Path, tmp_path: Path) -> Path:
    """A store with a secret whose database is gone; a backup of it lies beside."""
    add("The heron fishes at dawn")
    add("The password of the build box is correct-horse-battery", "--secret")
    run("reindex")
    run("backup", str(tmp_path / "backup.db"))
    (home / "memories.db-wal").write_bytes(os.urandom(5000))
    if request.param == "missing":
        (home / "memories.db").unlink()
    else:
        (home / "memories.db").write_bytes(b"")
    return home


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize("command", [("add", "new"), ("recall", "heron"), ("show", "1kpn46"), ("backup", "copy.db")])
def test_lost_database_is_reported_and_not_recreated(
    run: Run, lost: Path, tmp_path: Path, trace: str, command: tuple[str, ...]
) -> None:
    for other in [*TRACES, "memories.db.lock"]:
        if other != trace:
            shutil.rmtree(lost / other) if (lost / other).is_dir() else (lost / other).unlink(missing_ok=True)
    before = _files(lost)
    assert run(*command).is_refused(3, "memories.db", trace, "triskele restore FILE")
    after = _files(lost)
    after.pop("memories.db.lock", None)
    assert after == before
    assert run("restore", str(tmp_path / "backup.db"), "--yes", "--json").json["memories"] == 2
    assert len(run("list", "--json").json["memories"]) == 2


def test_key_file_of_the_settings_is_no_sign_of_a_lost_store(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir()
    (home / "vault.key").write_text("A" * 43 + "=")
    (home / "vault.key").chmod(0o600)
    monkeypatch.setenv("TRISKELE_PRIVACY_KEY", str(home / "vault.key"))
    assert run("add", "A first memory", "--json").json["action"] == "added"


def test_key_of_another_folder_is_no_sign_of_a_lost_store(run: Run, add: Add, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'other' / 'notes.db'}"
    add("The password of the build box is correct-horse-battery", "--secret")
    assert run("add", "A first memory", "--json", "--store", url).json["action"] == "added"


@pytest.mark.parametrize("is_empty_file", [False, True], ids=["no file", "empty file"])
@pytest.mark.parametrize("command", READS, ids=" ".join)
def test_reading_without_a_store_creates_nothing(
    run: Run, home: Path, command: tuple[str, ...], is_empty_file: bool
) -> None:
    if is_empty_file:
        home.mkdir()
        (home / "memories.db").touch()
    ran = run(*command, "--json")
    assert ran.code == 0, ran.err
    assert READS[command](json.loads(ran.out))
    state = "is an empty file" if is_empty_file else "does not exist yet"
    assert f"the store {home / 'memories.db'} {state}" in ran.err
    assert ran.err.count("\n") == 1
    assert (_files(home) if is_empty_file else home.exists()) == ({"memories.db": b""} if is_empty_file else False)


@pytest.mark.parametrize("command", NEEDS_A_MEMORY, ids=" ".join)
def test_show_without_a_store_exits_with_1(run: Run, add: Add, home: Path, command: tuple[str, ...]) -> None:
    ran = run(*command)
    assert ran.is_refused(ran.code, "does not exist yet")
    assert not home.exists()
    add("A first memory")
    if command != ("undo",):
        assert run(*command).code == ran.code


def test_backup_without_a_store_is_refused(run: Run, home: Path, tmp_path: Path) -> None:
    assert run("backup", str(tmp_path / "copy.db")).is_refused(3, "does not exist yet")
    assert not home.exists() and not (tmp_path / "copy.db").exists()


def test_import_dry_run_creates_no_store(run: Run, home: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("# Birds\n\n- The heron fishes at dawn\n")
    assert run("import", str(tmp_path / "notes.md"), "--dry-run", "--json").json["added"] == 1
    assert not home.exists()
    assert run("import", str(tmp_path / "notes.md"), "--json").json["added"] == 1
    assert (home / "memories.db").exists()


def test_stats_name_a_missing_store(run: Run, home: Path) -> None:
    assert run("stats", "--json").json["store"].endswith("home/memories.db")


def test_completing_an_id_creates_no_store(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TRISKELE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "triskele show 1kpn")
    monkeypatch.setenv("COMP_CWORD", "2")
    ran = run()
    assert (ran.out.strip(), ran.err) == ("", "")
    assert not home.exists()
