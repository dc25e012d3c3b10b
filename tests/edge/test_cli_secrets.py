"""Secrets on the command line: add, show, reveal, seal and rotate."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

Run = Callable[..., Any]
Add = Callable[..., str]
SECRET = "Tq8/+xPv2#kd"
TEXT = f"the wifi password is {SECRET}"
STUB = "[SECRET] Password, wifi"


def test_undo_skips_a_sealing_and_undoes_nothing_else(run: Run, add: Add) -> None:
    first, second = add("alpha is first"), add("beta is second")
    run("secrets", "seal", first)
    assert run("undo").is_refused(1, "sealed", "cannot be undone")
    assert run("show", second, "--json").json["forgotten"] is False


def test_add_reports_a_detected_secret(run: Run) -> None:
    done = run("add", TEXT)
    assert STUB in done.out and "--not-secret" in done.out and SECRET not in done.out
    assert run("add", "the kettle is red", "--json").json["detected"] is False
    document = run("add", TEXT, "--json").json
    assert (document["secret"], document["detected"]) == (True, True)
    marked = run("add", "the kettle is red", "--secret", "--title", "Kettle", "--json").json
    assert (marked["secret"], marked["detected"]) == (True, False)


def test_not_secret_overrules_detection(run: Run, add: Add) -> None:
    assert run("show", add(TEXT, "--not-secret"), "--json").json["content"] == TEXT
    id = add(TEXT)
    run("edit", id, "--not-secret")
    assert run("show", id, "--json").json["content"] == TEXT


@pytest.mark.parametrize("as_json", [True, False])
def test_readers_see_only_the_title_of_a_secret(run: Run, add: Add, as_json: bool) -> None:
    id = add(TEXT, "--tags", "home")
    add("the guest wifi is slow")
    more = ["--json"] if as_json else []
    for command in (
        ["recall", "wifi password"],
        ["show", id],
        ["list"],
        ["history", id],
        ["secrets", "list"],
        ["why-not", id, "kettle"],
    ):
        done = run(*command, *more)
        assert done.code == 0 and SECRET not in done.out + done.err
    assert STUB in run("recall", "wifi password", *more).out
    assert STUB in run("show", id, *more).out
    hit = next(hit for hit in run("recall", "wifi", "--json").json["hits"] if hit["id"] == id)
    [term] = hit["evidence"]["lexical"]["terms"]
    assert hit["content"][term["start"] : term["end"]].lower() == "wifi"


def test_reveal_prints_only_the_text_and_is_journaled(run: Run, add: Add) -> None:
    id = add(TEXT)
    done = run("secrets", "reveal", id[:8])
    assert (done.out, done.err) == (TEXT + "\n", "")
    assert run("secrets", "reveal", id, "--json").json["text"] == TEXT
    entries = run("history", id, "--json").json["entries"]
    assert [entry["action"] for entry in entries] == ["added", "revealed", "revealed"]
    assert run("secrets", "reveal", add("the kettle is red")).is_refused(2, "not a secret")


def test_split_detects_secrets_in_each_piece(run: Run) -> None:
    filler = "The harbour crane was painted in spring. " * 40
    document = run("add", "-", "--split", "--json", stdin=f"{filler}\n{TEXT}\n{filler}").json
    listed = run("list", "--json", "--limit", "100").json["memories"]
    assert len(document["memories"]) == len(listed) > 2
    assert [each["sensitivity"] for each in listed].count("secret") == 1
    assert all(SECRET not in each["content"] for each in listed)


def test_secret_in_a_label_is_refused_without_repeating_it(run: Run) -> None:
    done = run("add", "the kettle is red", "--tags", f"password is {SECRET}")
    assert done.is_refused(2, "Password") and SECRET not in done.err


def test_edit_opens_no_secret_in_an_editor(run: Run, add: Add) -> None:
    assert run("edit", add(TEXT)).is_refused(2, "editor")


def test_seal_a_stored_memory(run: Run, add: Add, home: Path) -> None:
    id = add(TEXT, "--not-secret")
    run("recall", "wifi")
    doctor = run("doctor", "--deep")
    assert f"triskele secrets seal {id}" in doctor.out
    assert "Sealed" in run("secrets", "seal", id, "--title", "Home").out
    assert run("show", id, "--json").json["content"] == "[SECRET] Home"
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())
    assert run("secrets", "reveal", id).out == TEXT + "\n"
    assert run("edit", add("Klingonia met the mayor"), "--secret", "--json").json["action"] == "sealed"


def test_rotate_changes_the_key(run: Run, add: Add, monkeypatch: pytest.MonkeyPatch) -> None:
    id = add(TEXT)
    assert run("secrets", "rotate").is_refused(2, "--renew")
    assert "1 text re-encrypted" in run("secrets", "rotate", "--renew").out
    monkeypatch.setenv("TRISKELE_NEW_PASSPHRASE", "correct horse battery")
    assert run("secrets", "rotate", "--to", "passphrase", "--json").json["source"] == "passphrase"
    assert run("secrets", "reveal", id).is_refused(3, "TRISKELE_PASSPHRASE")
    monkeypatch.setenv("TRISKELE_PASSPHRASE", "wrong horse battery")
    assert run("secrets", "reveal", id).is_refused(3, "passphrase")
    assert run("list", "--json").json["memories"][0]["content"] == STUB
    assert run("add", TEXT).is_refused(3, "passphrase")
    monkeypatch.setenv("TRISKELE_PASSPHRASE", "correct horse battery")
    assert run("secrets", "reveal", id).out == TEXT + "\n"


def test_export_with_secrets(run: Run, add: Add, tmp_path: Path) -> None:
    id = add(TEXT)
    assert "1 secret memory left out" in run("export", "--private").err
    assert run("export", "--with-secrets").is_refused(2, "jsonl")
    target = tmp_path / "all.jsonl"
    done = run("export", str(target), "--with-secrets")
    assert "in clear" in done.out + done.err and SECRET not in done.out + done.err
    [line] = [json.loads(line) for line in target.read_text().splitlines() if id in line]
    assert line["memory"]["secret"] == TEXT


def test_config_checks_settings_of_the_vault(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("config", "--json").json["settings"]["privacy.key"]["value"] == "file"
    monkeypatch.setenv("TRISKELE_PRIVACY_KEY", "drawer")
    assert run("list").is_refused(2, "privacy.key", "keyring")


def test_secrets_list_without_secrets_says_so(run: Run) -> None:
    run("add", "The heron fishes at dawn")
    assert "No secrets;" in run("secrets", "list").out


def test_seal_shows_the_title(run: Run) -> None:
    id = run("add", "The heron guards the gate", "--json").json["id"]
    assert "[SECRET] Gate" in run("secrets", "seal", id, "--title", "Gate").out


def test_add_reports_an_example_key_that_is_stored_open(run: Run) -> None:
    output = run("add", "The manual uses AKIAIOSFODNN7EXAMPLE everywhere").out.replace("\n", " ")
    assert "AKIAIOSFODNN7EXAMPLE looks like the example key of a manual and is stored open" in output
    assert "example key" not in run("add", "The heron fishes at dawn").out


def test_backup_warns_that_it_lacks_the_key(run: Run, tmp_path: Path) -> None:
    run("add", "The heron fishes at dawn")
    assert "key" not in run("backup", str(tmp_path / "one.db")).out.replace(str(tmp_path), "")
    run("add", "The heron guards the gate", "--secret", "--title", "Gate")
    assert "The key of the vault is not in it" in run("backup", str(tmp_path / "two.db")).out
