"""backup, restore, reindex, doctor, config, completion."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

Run = Callable[..., Any]
Add = Callable[..., str]


def test_backup_and_restore(run: Run, add: Add, tmp_path: Path) -> None:
    kept = add("A fact worth keeping")
    target = tmp_path / "monday.db"
    document = run("backup", str(target), "--json").json
    assert document["path"] == str(target)
    assert document["bytes"] == target.stat().st_size > 0
    later = add("A later fact")
    restored = run("restore", str(target), "--json").json
    assert restored["memories"] == 1
    assert Path(restored["kept"]).is_file()
    assert [memory["id"] for memory in run("list", "--json").json["memories"]] == [kept]
    assert [hit["id"] for hit in run("recall", "fact", "--json").json["hits"]] == [kept]
    run("restore", restored["kept"])
    assert {memory["id"] for memory in run("list", "--json").json["memories"]} == {kept, later}


def test_backup_never_overwrites(run: Run, add: Add, tmp_path: Path) -> None:
    add("A fact worth keeping")
    target = tmp_path / "there.db"
    target.write_text("precious")
    assert run("backup", str(target)).is_refused(2, "exists already")
    assert target.read_text() == "precious"


def test_restore_refuses_what_is_no_backup(run: Run, add: Add, tmp_path: Path) -> None:
    id = add("A fact worth keeping")
    assert run("restore", str(tmp_path / "missing.db")).is_refused(2, "no backup at")
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"no database " * 1000)
    assert run("restore", str(broken)).is_refused(3, str(broken))
    assert [memory["id"] for memory in run("list", "--json").json["memories"]] == [id]


def test_reindex_counts_versions(run: Run, add: Add) -> None:
    run("edit", add("Deploys happen on Tuesday"), "Deploys happen daily")
    document = run("reindex", "--json").json
    assert document["indexed"] == 2
    assert "Indexed 2 versions" in run("reindex").out


def test_doctor_finds_a_healthy_store_well(run: Run, add: Add) -> None:
    add("A fact worth keeping")
    document = run("doctor", "--deep", "--json").json
    assert (document["healthy"], document["findings"]) == (True, [])
    assert "every hash holds" in run("doctor", "--deep").out


def test_doctor_mends_a_lost_index(run: Run, add: Add, home: Path) -> None:
    id = add("A fact worth keeping")
    run("reindex")
    shutil.rmtree(home / "memories.db.index")
    assert run("doctor", "--no-repair", "--json").json["repaired"] == []
    assert len(run("doctor", "--json").json["repaired"]) == 1
    assert run("doctor", "--json").json["repaired"] == []
    assert [hit["id"] for hit in run("recall", "fact", "--json").json["hits"]] == [id]


def test_doctor_says_no_when_a_row_was_tampered_with(run: Run, add: Add, home: Path) -> None:
    add("A fact worth keeping")
    connection = apsw.Connection(str(home / "memories.db"))
    connection.execute("UPDATE versions SET content = 'A lie'")
    connection.close()
    assert run("doctor").code == 0
    found = run("doctor", "--deep")
    assert found.code == 1
    assert "hash differs" in found.out and "triskele restore" in found.out


def test_config_tells_where_values_come_from(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir()
    file = home / "config.toml"
    file.write_text("[recall]\nlimit = 3\n")
    monkeypatch.setenv("TRISKELE_MEMORY_OWNER", "ada")
    document = run("config", "--json").json
    settings = document["settings"]
    assert document["file"] == str(file)
    assert settings["recall.limit"] == {"value": 3, "origin": str(file)}
    assert settings["memory.owner"] == {"value": "ada", "origin": "environment TRISKELE_MEMORY_OWNER"}
    assert settings["home"] == {"value": str(home), "origin": "environment TRISKELE_HOME"}
    assert settings["index.language"] == {"value": "english", "origin": "default"}
    said = run("config").out
    assert "recall.limit" in said and "environment TRISKELE_MEMORY_OWNER" in said


def test_config_leaves_no_store_behind(run: Run, home: Path) -> None:
    assert run("config").code == 0
    assert not home.exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(run: Run, shell: str) -> None:
    script = run("completion", shell).out
    assert "_TRISKELE_COMPLETE" in script
    assert run("completion", shell, "--json").json == {"shell": shell, "script": script.rstrip("\n") + "\n"}


@pytest.mark.parametrize(
    ("typed", "expected"),
    [(["triskele", "rei"], "reindex"), (["triskele", "add", "x", "--category", "dec"], "decisions")],
)
def test_the_shell_completes_names(run: Run, monkeypatch: pytest.MonkeyPatch, typed: list[str], expected: str) -> None:
    assert completed(run, monkeypatch, typed) == [f"plain,{expected}"]


def test_the_shell_completes_ids(run: Run, add: Add, monkeypatch: pytest.MonkeyPatch) -> None:
    id = add("A fact worth keeping")
    assert completed(run, monkeypatch, ["triskele", "show", id[:4]]) == [f"plain,{id}"]


def test_completion_keeps_quiet_about_a_broken_store(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir()
    (home / "memories.db").write_bytes(b"no database " * 1000)
    assert completed(run, monkeypatch, ["triskele", "show", "1kpn"]) == []


def completed(run: Run, monkeypatch: pytest.MonkeyPatch, typed: list[str]) -> list[str]:
    monkeypatch.setenv("_TRISKELE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", " ".join(typed))
    monkeypatch.setenv("COMP_CWORD", str(len(typed) - 1))
    ran = run()
    assert ran.err == ""
    return [line for line in ran.out.splitlines() if line]
