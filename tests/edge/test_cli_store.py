"""backup, restore, reindex, doctor, config, completion."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

from triskele import config
from triskele.edge.cli.stores import ignored_variables
from triskele.engine.upkeep import Upkeep
from triskele.index.dense import DenseIndex

Run = Callable[..., Any]
Add = Callable[..., str]


def test_backup_and_restore(run: Run, add: Add, tmp_path: Path) -> None:
    earlier = add("A fact worth keeping")
    target = tmp_path / "monday.db"
    document = run("backup", str(target), "--json").json
    assert document["path"] == str(target)
    assert document["bytes"] == target.stat().st_size > 0
    later = add("A later fact")
    restored = run("restore", str(target), "--yes", "--json").json
    assert restored["memories"] == 1
    assert Path(restored["kept"]).is_file()
    assert [memory["id"] for memory in run("list", "--json").json["memories"]] == [earlier]
    assert [hit["id"] for hit in run("recall", "fact", "--json").json["hits"]] == [earlier]
    run("restore", restored["kept"], "--yes")
    assert {memory["id"] for memory in run("list", "--json").json["memories"]} == {earlier, later}


def test_backup_never_overwrites(run: Run, add: Add, tmp_path: Path) -> None:
    add("A fact worth keeping")
    target = tmp_path / "there.db"
    target.write_text("precious")
    assert run("backup", str(target)).is_refused(2, "exists already")
    assert target.read_text() == "precious"


def test_restore_refuses_other_files(run: Run, add: Add, tmp_path: Path) -> None:
    id = add("A fact worth keeping")
    assert run("restore", str(tmp_path / "missing.db")).is_refused(2, "no backup at")
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"no database " * 1000)
    assert run("restore", str(broken), "--yes").is_refused(
        3, str(broken), "not a triskele backup", "nothing was changed"
    )
    assert [memory["id"] for memory in run("list", "--json").json["memories"]] == [id]


def test_reindex_counts_versions(run: Run, add: Add) -> None:
    run("edit", add("Deploys happen on Tuesday"), "Deploys happen daily")
    document = run("reindex", "--json").json
    assert document["indexed"] == 2
    assert "Indexed 2 versions" in run("reindex").out


def test_doctor_on_a_healthy_store(run: Run, add: Add) -> None:
    add("A fact worth keeping")
    document = run("doctor", "--deep", "--json").json
    assert (document["healthy"], document["findings"]) == (True, [])
    assert "all checksums match" in run("doctor", "--deep").out


def test_doctor_repairs_a_lost_index(run: Run, add: Add, home: Path) -> None:
    id = add("A fact worth keeping")
    run("reindex")
    shutil.rmtree(home / "memories.db.index")
    assert run("doctor", "--no-repair", "--json").json["repaired"] == []
    assert "The index is not up to date" in run("doctor", "--no-repair").out
    assert len(run("doctor", "--json").json["repaired"]) == 1
    assert run("doctor", "--json").json["repaired"] == []
    assert [hit["id"] for hit in run("recall", "fact", "--json").json["hits"]] == [id]


def test_doctor_no_repair_counts_damage(run: Run, add: Add, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DenseIndex, "tail_cap", 1)
    add("A fact worth keeping")
    add("Another fact worth keeping")
    run("reindex")
    run("recall", "fact")
    [values] = (home / "memories.db.index").rglob("dense-*/values")
    content = bytearray(values.read_bytes())
    content[len(content) // 2] ^= 0x40
    values.write_bytes(content)
    json_run = run("doctor", "--deep", "--no-repair", "--json")
    document = json.loads(json_run.out)
    assert (json_run.code, document["healthy"], document["vectors_damaged"]) == (1, False, 1)
    ran = run("doctor", "--deep", "--no-repair")
    assert ran.code == 1 and "✗ Not repaired: 1 damaged vector" in ran.out and "up to date" not in ran.out
    assert run("doctor", "--deep").code == 0
    ran = run("doctor", "--deep", "--no-repair")
    assert ran.code == 0 and "Not repaired" not in ran.out


def test_doctor_exits_with_1_for_a_changed_row(run: Run, add: Add, home: Path) -> None:
    add("A fact worth keeping")
    connection = apsw.Connection(str(home / "memories.db"))
    connection.execute("UPDATE versions SET content = 'A lie'")
    connection.close()
    assert run("doctor").code == 0
    ran = run("doctor", "--deep")
    assert ran.code == 1
    assert "hash differs" in ran.out and "triskele restore" in ran.out


@pytest.mark.parametrize(
    "problem",
    [
        {"model_problem": "a reason"},
        {"vault_problem": "a reason"},
        {"repair_problem": "a reason", "index_faults": 1},
        {"repair_problem": "a reason", "vectors_damaged": 1},
    ],
)
def test_doctor_exits_with_1_if_it_shows_a_cross(
    run: Run, add: Add, monkeypatch: pytest.MonkeyPatch, problem: dict[str, Any]
) -> None:
    add("A fact worth keeping")
    inspect = Upkeep.inspect
    monkeypatch.setattr(Upkeep, "inspect", lambda *own, **asked: replace(inspect(*own, **asked), **problem))
    ran = run("doctor")
    assert ran.code == 1 and "✗" in ran.out and "a reason" in ran.out
    assert json.loads(run("doctor", "--json").out)["healthy"] is False


def test_config_shows_the_origin_of_values(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    output = run("config").out
    assert "recall.limit" in output and "environment TRISKELE_MEMORY_OWNER" in output


def test_config_creates_no_store(run: Run, home: Path) -> None:
    assert run("config").code == 0
    assert not home.exists()


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(run: Run, shell: str) -> None:
    script = run("completion", shell).out
    assert "_TRISKELE_COMPLETE" in script
    assert run("completion", shell, "--json").json == {"shell": shell, "script": script.rstrip("\n") + "\n"}


@pytest.mark.parametrize(
    ("typed", "expected"),
    [(["triskele", "rei"], "reindex"), (["triskele", "add", "x", "--category", "dec"], "decisions")],
)
def test_completion_of_command_names(
    run: Run, monkeypatch: pytest.MonkeyPatch, typed: list[str], expected: str
) -> None:
    assert completed(run, monkeypatch, typed) == [f"plain,{expected}"]


def test_completion_of_ids(run: Run, add: Add, monkeypatch: pytest.MonkeyPatch) -> None:
    id = add("A fact worth keeping")
    assert completed(run, monkeypatch, ["triskele", "show", id[:4]]) == [f"plain,{id}"]


def test_completion_is_silent_about_a_broken_store(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_restore_over_a_sound_store_needs_consent(run: Run, add: Add, tmp_path: Path) -> None:
    id = add("A fact worth keeping")
    run("backup", str(tmp_path / "saved.db"))
    later = add("A later fact")
    assert run("restore", str(tmp_path / "saved.db")).is_refused(2, "the store holds 2 memories", "--yes")
    assert run("restore", str(tmp_path / "saved.db"), "--json").code == 2
    assert {memory["id"] for memory in run("list", "--json").json["memories"]} == {id, later}


def test_backup_of_a_damaged_store_names_the_store(run: Run, add: Add, home: Path, tmp_path: Path) -> None:
    add("A fact worth keeping")
    store = home / "memories.db"
    store.write_bytes(store.read_bytes().replace(b"A fact worth", b"A fact w\xc3\xc3th"))
    refused = run("backup", str(tmp_path / "new.db"))
    assert refused.is_refused(3, f"the store {store} is damaged", "no backup was written", "triskele restore FILE")
    assert "new.db" not in refused.err and not (tmp_path / "new.db").exists()


def test_damage_names_the_command_to_run(run: Run, add: Add, home: Path) -> None:
    add("A fact worth keeping")
    (home / "memories.db").write_bytes(b"no database " * 1000)
    assert run("list").is_refused(3, "triskele restore FILE")


def test_mistyped_store_creates_no_folders(run: Run, tmp_path: Path) -> None:
    wrong = tmp_path / "tpyo" / "deep" / "notes.db"
    assert run("add", "lost in space", "--store", f"sqlite:///{wrong}").is_refused(2, f"mkdir -p {wrong.parent}")
    assert not (tmp_path / "tpyo").exists()
    assert run("add", "found", "--store", f"sqlite:///{tmp_path / 'one' / 'notes.db'}").code == 0


def test_add_reports_that_an_empty_file_becomes_a_store(run: Run, home: Path) -> None:
    home.mkdir()
    (home / "memories.db").write_bytes(b"")
    assert "is an empty file" in run("list").err
    ran = run("add", "The first fact")
    assert ran.code == 0 and "was an empty file" in ran.err
    assert run("add", "The second fact").err == ""


def test_backup_creates_no_folders(run: Run, add: Add, tmp_path: Path) -> None:
    add("A fact worth keeping")
    assert run("backup", str(tmp_path / "stick" / "copy.db")).is_refused(2, "stick does not exist")
    assert not (tmp_path / "stick").exists()


def test_config_set_keeps_the_file_and_refuses_wrong_values(run: Run, home: Path) -> None:
    home.mkdir(parents=True)
    file = home / "config.toml"
    file.write_text("# mine\n[recall]\nlimit = 7 # seven\nlog = true\n")
    changed = run("config", "set", "recall.limit", "5", "--json").json
    assert (changed["value"], changed["origin"], changed["file"]) == (5, str(file), str(file))
    run("config", "set", "project", "shop")
    run("config", "set", "agents.private_to", "codex, cursor")
    run("config", "set", "recall.log", "no")
    before = file.read_text()
    assert "# mine" in before and run("config", "get", "recall.log").out == "false\n"
    assert run("config", "get", "agents.private_to", "--json").json["value"] == ["codex", "cursor"]
    assert run("config", "get", "project").out == "shop\n"
    for key, value, words in (
        ("recall.limit", "0", "between 1 and 200"),
        ("recall.limit", "-5", "between 1 and 200, not -5"),
        ("agents.least_confidence", "-.5", "between 0"),
        ("recall.limit", "many", "a whole number"),
        ("recall.log", "maybe", "true or false"),
        ("recall.limt", "5", "did you mean recall.limit?"),
        ("privacy.key", "nowhere", "one of"),
        ("home", "elsewhere", "TRISKELE_HOME"),
        ("sync.url", "ftp://memory.example.com", "must begin with https://"),
        ("sync.url", "memory.example.com", "must begin with https://"),
        ("server.url", "https://", "must begin with https://"),
        ("llm.command", "prog 'open", "a quote is open"),
    ):
        assert run("config", "set", key, value).is_refused(2, words)
    assert file.read_text() == before
    assert run("config", "set", "recall.limit", "--jsn").is_refused(2, "--jsn")
    assert run("config", "set", "recall.limit", "6").out == f"recall.limit is 6 ({file}).\n"
    assert run("config", "unset", "recall.limit").out == "recall.limit is 10 (default).\n"
    assert run("config", "get", "recall.limit").out == "10\n"


def test_config_set_corrects_a_wrong_file(run: Run, home: Path) -> None:
    home.mkdir(parents=True)
    file = home / "config.toml"
    file.write_text("[server]\nurl = 'memory.example.com'\n[recall]\nlimit = 0\n")
    assert run("config").is_refused(2, "setting recall.limit must be between 1 and 200")
    assert run("config", "set", "recall.limit", "900").is_refused(2, "between 1 and 200")
    assert run("config", "set", "recall.limit", "5").is_refused(
        2, f"recall.limit is changed in {file}, but a setting is wrong: setting server.url must begin"
    )
    assert run("config", "unset", "server.url").out.startswith("server.url is empty")
    assert run("config", "get", "recall.limit").out == "5\n"
    file.write_text("[recall\n")
    assert run("config", "set", "recall.limit", "5").is_refused(2, f"cannot read the settings in {file}")
    assert file.read_text() == "[recall\n"


@pytest.mark.parametrize(
    "wrong",
    ["recall = 5\n", "recall = 'x'\n", "[[recall]]\nlimit = 1\n[[recall]]\nlimit = 2\n", "recall = [1]\n"],
)
def test_config_set_corrects_a_value_that_should_be_a_section(run: Run, home: Path, wrong: str) -> None:
    home.mkdir(parents=True)
    file = home / "config.toml"
    text = f"project = 'shop' # mine\n{wrong}[memory]\nowner = 'ada'\n"
    file.write_text(text)
    assert run("config").is_refused(2, f"recall in {file} must be a section [recall]")
    changed = run("config", "set", "recall.limit", "5")
    assert changed.code == 0 and f"recall was not a section in {file}" in changed.err
    rest = "project = 'shop' # mine\n[memory]\nowner = 'ada'\n"
    assert file.read_text() == rest + "\n[recall]\nlimit = 5\n"
    for key in ("recall", "recall.limit"):
        file.write_text(text)
        assert run("config", "unset", key).code == 0
        assert file.read_text() == rest
    assert run("config", "unset", "recall").is_refused(2, "unknown setting 'recall'")
    file.write_text("[memory]\nowner = 'ada'\n[memory.categories]\nx = 1\n[project]\nx = 1\n")
    assert run("config", "set", "project", "shop").is_refused(2, "setting memory.categories must be a list")
    assert run("config", "set", "memory.categories", "a,b").code == 0
    assert run("config", "get", "project").out == "shop\n"


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ("[recal]\nlimit = 5\n", "recal.limit"),
        ("[recal]\nlimit = 5\n", "recal"),
        ("[hosted]\nfoo = 1\n", "hosted.foo"),
        ("[hosted.foo]\nbar = 1\n", "hosted.foo"),
        ("[hosted]\n'foo.bar' = 1\n", "hosted.foo.bar"),
        ("home = '/x'\n", "home"),
        ("recal.limit = 5\n", "recal.limit"),
    ],
)
def test_config_unset_removes_misspelt_settings(run: Run, home: Path, wrong: str, key: str) -> None:
    home.mkdir(parents=True)
    file = home / "config.toml"
    file.write_text(f"{wrong}[memory]\nowner = 'ada' # me\n")
    assert run("list").is_refused(2, f"in {file}: correct it or run `triskele config unset ")
    assert run("config", "unset", key).code == 0
    assert run("config", "get", "memory.owner").out == "ada\n" and "# me" in file.read_text()
    assert run("config", "unset", "memory").is_refused(2, "unknown setting 'memory'")
    assert run("config", "unset", "recal.limit").is_refused(2, "did you mean recall.limit?")
    file.write_text("[hosted]\nfoo = 1\n")
    assert run("config", "unset", "hosted.foo", "--json").json["value"] is None
    file.write_text("[hosted]\nfoo = 1\n")
    assert run("config", "unset", "hosted.foo").out == f"hosted.foo is removed from {file}.\n"


def test_config_set_refuses_unknown_models_and_services(run: Run, home: Path, tmp_path: Path) -> None:
    for key, value, words in (
        ("recall.model", "", "unknown model ''"),
        ("recall.model", "/nowhere/at/all", "there is no such folder"),
        ("recall.model", "bundeld", "unknown model 'bundeld': write bundled"),
        ("recall.model", str(tmp_path), "no model in"),
        ("hosted.service", "opnai", "hosted.service must be one of openai"),
        ("rerank.service", "opnai", "rerank.service must be one of"),
        ("llm.service", "opnai", "llm.service must be one of"),
    ):
        assert run("config", "set", key, value).is_refused(2, words)
    assert not (home / "config.toml").exists()
    for key, value in (
        ("recall.model", "none"),
        ("recall.model", "bundled"),
        ("hosted.service", "openai"),
        ("llm.service", "command"),
        ("llm.service", ""),
    ):
        assert run("config", "set", key, value).code == 0


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        *((f"{section}.url", "notaurl", "not valid") for section in ("hosted", "rerank", "llm")),
        ("hosted.url", "http://", "setting hosted.url: the address of an endpoint is not valid"),
        ("llm.url", "ftp://x", "must begin with https://"),
        ("rerank.url", "https://x:99999", "not valid"),
        ("llm.url", "https://exa mple", "not valid"),
        ("hosted.url", "http://example.com", "http:// is for this machine only"),
        ("sync.url", "http://exa mple", "setting sync.url: not the address of a server"),
        ("sync.url", "https://x:99999", "not the address of a server"),
        ("sync.url", "https://[x", "not the address of a server"),
        ("sync.url", "http://example.com", "http:// is for this machine only"),
        ("server.url", "http://example.com", "http:// is for this machine only"),
        ("server.url", "https://user:pw@example.com", "not the address of a server"),
        ("store.url", "postgresql://", "not a store address"),
        ("store.url", "sqlite:///", "not a store address"),
        ("store.read_url", "x", "not a store address: 'x' (write postgresql://user@host/database)"),
        ("rerank.model", "foo", "unknown cross-encoder 'foo'"),
        ("rerank.model", "EMPTY", "no cross-encoder in"),
    ],
)
def test_config_set_refuses_unusable_addresses_and_cross_encoders(
    run: Run, home: Path, tmp_path: Path, key: str, value: str, words: str
) -> None:
    home.mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    (home / "config.toml").write_text("[store]\nurl = 'postgresql://localhost/notes'\n")
    ran = run("config", "set", key, str(tmp_path / "empty") if value == "EMPTY" else value)
    assert ran.is_refused(2, words) and "pw" not in ran.err
    assert (home / "config.toml").read_text() == "[store]\nurl = 'postgresql://localhost/notes'\n"


def test_config_set_accepts_addresses_and_cross_encoders(run: Run) -> None:
    for key, value in (
        ("hosted.url", "https://api.example.com/v1"),
        ("llm.url", "http://localhost:11434/v1"),
        ("sync.url", "http://127.0.0.1:8080"),
        ("server.url", "https://memory.example.com:8443"),
        ("server.url", ""),
        ("store.url", "postgresql://user@host/notes"),
        ("store.read_url", "postgresql://user@replica/notes"),
        ("rerank.model", "bundled"),
        ("rerank.service", "voyage"),
        ("rerank.model", "rerank-2.5"),
    ):
        assert run("config", "set", key, value).code == 0, key


def test_config_set_splits_a_command_like_a_shell(run: Run, home: Path) -> None:
    ran = run("config", "set", "llm.command", "prog --a,b 'c d'")
    assert ran.out.startswith("llm.command is prog --a,b 'c d' (")
    assert run("config", "get", "llm.command", "--json").json["value"] == ["prog", "--a,b", "c d"]
    assert run("config", "get", "llm.command").out == "prog --a,b 'c d'\n"
    assert "prog --a,b 'c d'" in run("config").out
    (home / "config.toml").write_text('[llm]\ncommand = "prog --a,b"\n')
    assert run("config", "get", "llm.command", "--json").json["value"] == ["prog", "--a,b"]


def test_doctor_names_a_missing_language_model(run: Run, add: Add) -> None:
    add("The kettle is red")
    assert "has no effect" not in run("doctor").out + run("curate").err
    run("config", "set", "curation.llm_calls", "50")
    words = "curation.llm_calls has no effect: no language model is named (llm.service"
    doctor = run("doctor")
    assert words in " ".join(doctor.out.split()) and doctor.code == 0 and "✗" not in doctor.out
    assert words in run("curate").err and words in run("curate", "--json").err
    run("config", "set", "llm.service", "command")
    assert words not in run("curate").err and "no command is set" in run("curate").err


def test_config_set_reports_a_variable_that_overrides_it(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRISKELE_RECALL_LIMIT", "3")
    ran = run("config", "set", "recall.limit", "5")
    assert ran.out == f"recall.limit is changed in {home / 'config.toml'}.\n"
    assert ran.err == "The environment variable TRISKELE_RECALL_LIMIT overrides the file: recall.limit is 3.\n"
    monkeypatch.setenv("TRISKELE_RECALL_LIMIT", "abc")
    assert run("config", "set", "recall.limit", "4").is_refused(
        2, "but a setting is wrong", "not 'abc' (from the environment variable TRISKELE_RECALL_LIMIT)"
    )


def test_error_of_a_setting_names_its_origin(run: Run, add: Add, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add("The kettle is red")
    for variable, value, key in (
        ("TRISKELE_RECALL_MODEL", "zzz", "model"),
        ("TRISKELE_INDEX_LANGUAGE", "klingon", "language"),
    ):
        monkeypatch.setenv(variable, value)
        assert run("recall", "kettle").is_refused(2, value, f"(from the environment variable {variable})")
        monkeypatch.delenv(variable)
        section = "recall" if key == "model" else "index"
        (home / "config.toml").write_text(f"[{section}]\n{key} = '{value}'\n")
        assert run("recall", "kettle").is_refused(2, value, f"(in {home / 'config.toml'})")


def test_doctor_reports_lost_writes_until_their_folder_is_deleted(
    run: Run, add: Add, home: Path, tmp_path: Path
) -> None:
    add("A fact worth keeping")
    run("backup", str(tmp_path / "older.db"))
    lost = add("A later fact")
    (home / "memories.db").write_bytes((tmp_path / "older.db").read_bytes())
    ran = run("doctor")
    assert ran.code == 1
    assert "1 acknowledged write lost" in ran.out and lost in ran.out
    document = json.loads(run("doctor", "--deep", "--json").out)
    assert document["healthy"] is False
    assert [entry["id"] for entry in document["lost"][0]["entries"]] == [lost]
    assert run("recall", "fact", "--json").json["hits"]
    [folder] = home.glob("memories.db.lost-*")
    assert document["lost"][0]["kept"] == str(folder)
    shutil.rmtree(folder)
    assert run("doctor", "--json").json["healthy"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("TRISKELE_LIMIT", "is not a setting and has no effect: did you mean TRISKELE_RECALL_LIMIT?"),
        ("TRISKELE_STORE_URL", "did you mean TRISKELE_STORE?"),
        ("TRISKELE_FROB", "is not a setting and has no effect: `triskele config` lists the settings"),
        (
            "TRISKELE_AGENTS_BUDGET_TOKENS",
            "only the settings file sets it (`triskele config set agents.budget_tokens VALUE`)",
        ),
    ],
)
def test_variable_without_effect_is_named_on_standard_error(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    monkeypatch.setenv("TRISKELE_RECALL_LIMIT", "7")
    assert run("list", "--json").err.count("\n") == 1  # that there is no store yet
    monkeypatch.setenv(name, "5")
    ran = run("config", "--json")
    assert ran.err.startswith(f"triskele: {name} ") and ran.err.endswith(said + "\n") and ran.err.count("\n") == 1
    assert ran.json["settings"]["recall.limit"]["value"] == 7
    view = '{"command": "view", "path": "/memories"}'
    assert name not in run("memory-tool", stdin=view).err


def test_variables_that_are_read_have_no_warning() -> None:
    source = Path(config.__file__).parent
    named = {
        name for path in source.rglob("*.py") for name in re.findall(r'"(TRISKELE_[A-Z_]+[A-Z])"', path.read_text())
    }
    environ = {name: str(Path.cwd()) if name == "TRISKELE_HOME" else "file" for name in named}
    environ |= {
        "TRISKELE_STORE": "sqlite:///x.db",
        "TRISKELE_SERVER": "https://example.com",
        "TRISKELE_CONFIG": os.devnull,
    }
    del environ["TRISKELE_READ_STORE"]
    assert ignored_variables(environ, config.load(environ)) == []
