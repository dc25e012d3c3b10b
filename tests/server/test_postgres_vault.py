"""The vault on a server: a data key for each owner, all of them wrapped by a key that is not in the database."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from triskele import config
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput, VaultLocked
from triskele.store.vault import KEY_VARIABLE

SECRET = "the door code of the archive is 4711-4712"


@pytest.fixture
def key() -> str:
    return base64.b64encode(os.urandom(32)).decode()


def _by_variable(key: str, monkeypatch: pytest.MonkeyPatch, _: Path) -> str:
    monkeypatch.setenv(KEY_VARIABLE, key)
    return 'key = "environment"'


def _by_command(key: str, _: pytest.MonkeyPatch, folder: Path) -> str:
    (folder / "kms").write_text(key)
    command = [sys.executable, "-c", f"print(open({str(folder / 'kms')!r}).read())"]
    return f'key = "command"\nkey_command = {json.dumps(command)}'


def _by_file(_: str, __: pytest.MonkeyPatch, ___: Path) -> str:
    return 'key = "file"'


Source = Callable[[str, pytest.MonkeyPatch, Path], str]


def _engine(url: str, folder: Path, owner: str) -> LocalEngine:
    environment = {"TRISKELE_HOME": str(folder), "TRISKELE_MEMORY_OWNER": owner, "TRISKELE_PROJECT": "garden"}
    return LocalEngine(config.load(environment, store_url=url), folder)


@pytest.mark.parametrize("source", [_by_variable, _by_command, _by_file], ids=["environment", "command", "file"])
def test_owners_have_keys_outside_the_database(
    source: Source, key: str, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.toml").write_text(f"[privacy]\n{source(key, monkeypatch, tmp_path)}\n")
    wraps = {}
    for owner in ("alice", "bob"):
        with _engine(postgres_url, tmp_path, owner) as engine:
            outcome = engine.remember(SECRET, sensitivity="secret")
        with _engine(postgres_url, tmp_path, owner) as engine:
            assert engine.reveal(outcome.id).text == SECRET
            wraps[owner] = engine.store.documents.get("vault", "keys")
    assert wraps["alice"] != wraps["bob"]
    assert key not in "".join(wraps.values())
    with psycopg.connect(postgres_url) as connection:
        rows = connection.execute("SELECT owner, sealed FROM triskele.secrets").fetchall()
        texts = connection.execute("SELECT content, tags, keywords FROM triskele.versions").fetchall()
    assert len({sealed for _, sealed in rows}) == 2
    assert "4711" not in str(texts) and b"4711" not in b"".join(sealed for _, sealed in rows)


def test_missing_key_closes_only_secrets(
    key: str, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.toml").write_text(f"[privacy]\n{_by_variable(key, monkeypatch, tmp_path)}\n")
    with _engine(postgres_url, tmp_path, "alice") as engine:
        secret, plain = engine.remember(SECRET, sensitivity="secret"), engine.remember("The heron fishes at dawn")
    for wrong in ("", base64.b64encode(os.urandom(32)).decode(), "no key"):
        monkeypatch.setenv(KEY_VARIABLE, wrong)
        with _engine(postgres_url, tmp_path, "alice") as engine:
            with pytest.raises(VaultLocked):
                engine.reveal(secret.id)
            assert engine.get(plain.id).content == "The heron fishes at dawn"


def test_rotate_key_changes_the_key_source(
    key: str, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.toml").write_text(f"[privacy]\n{_by_file(key, monkeypatch, tmp_path)}\n")
    monkeypatch.setenv(KEY_VARIABLE, key)
    with _engine(postgres_url, tmp_path, "alice") as engine:
        outcome = engine.remember(SECRET, sensitivity="secret")
        assert engine.vault.rotate("environment", renew=True).source == "environment"
    (tmp_path / "vault.key").unlink()
    with _engine(postgres_url, tmp_path, "alice") as engine:
        assert engine.reveal(outcome.id).text == SECRET


def test_key_command_comes_only_from_the_settings_file(tmp_path: Path) -> None:
    environment = {"TRISKELE_HOME": str(tmp_path), "TRISKELE_PRIVACY_KEY_COMMAND": "rm"}
    assert config.load(environment).privacy.key_command == ()
    (tmp_path / "config.toml").write_text('[privacy]\nkey_command = ["kms", "decrypt"]\n')
    assert config.load(environment).privacy.key_command == ("kms", "decrypt")
    (tmp_path / "config.toml").write_text('[privacy]\nkey = "nowhere"\n')
    with pytest.raises(BadInput, match="one of auto, keyring"):
        config.load(environment)
