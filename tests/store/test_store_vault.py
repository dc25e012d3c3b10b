"""The vault of a store: made once, locked by what the settings say, and never lost by a change of keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from drawer import Drawer

from triskele.config import PrivacySettings
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput, Conflict, TriskeleError, Unavailable, VaultLocked
from triskele.privacy.key_sources import SystemKeyring
from triskele.store import vault as safes
from triskele.store.vault import StoreVault, row_of
from triskele.types import Add, Sensitivity

OpenEngine = Callable[..., LocalEngine]
TEXT = "the wifi password is Tq8/+xPv2#kd"


@pytest.fixture
def engine(open_engine: OpenEngine) -> LocalEngine:
    return open_engine()


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return tmp_path / "home" / "vault.key"


def again(engine: LocalEngine, **settings: str) -> StoreVault:
    """The safe as another process would open it."""
    return StoreVault(engine.store, PrivacySettings(**settings), engine.settings.home)


def test_vault_creates_nothing_before_the_first_secret(engine: LocalEngine, key_file: Path) -> None:
    engine.remember("the kettle is red")
    assert not engine.vault.exists() and not key_file.exists()
    engine.remember(TEXT)
    assert engine.vault.exists() and key_file.stat().st_mode & 0o077 == 0


def test_another_process_reads_sealed_texts(engine: LocalEngine, open_engine: OpenEngine) -> None:
    id = engine.remember(TEXT).id
    assert open_engine().reveal(id).text == TEXT


def test_two_processes_make_one_vault(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    other = again(engine, key="file")
    monkeypatch.setattr(StoreVault, "exists", lambda self: False)
    engine.remember(TEXT)
    with pytest.raises(Conflict, match="try again"):
        other.seal("a", 1, "too late")


@pytest.mark.parametrize("damage", ["gone", "open to others", "another one"])
def test_without_the_key_everything_but_secrets_works(engine: LocalEngine, key_file: Path, damage: str) -> None:
    id = engine.remember(TEXT, tags=["wifi"]).id
    engine.vault.close()
    if damage == "open to others":
        key_file.chmod(0o644)
    else:
        key_file.rename(key_file.with_suffix(".old"))
    if damage == "another one":
        key_file.write_text("QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=\n")
        key_file.chmod(0o600)
    for act in (lambda: engine.reveal(id), lambda: engine.remember(TEXT + "x")):
        with pytest.raises(Unavailable):
            act()
    assert engine.recall("wifi").hits[0].memory.content == "Password, wifi"
    engine.edit(id, importance=0.9)
    engine.remember("the kettle is red")
    health = engine.upkeep.inspect(deep=True)
    assert health.findings == () and health.vault_problem


def test_passphrase_comes_from_the_environment_or_a_prompt(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRISKELE_PASSPHRASE", "correct horse battery")
    vault = again(engine, key="passphrase")
    vault.seal("a", 1, TEXT)
    monkeypatch.delenv("TRISKELE_PASSPHRASE")
    with pytest.raises(Unavailable, match="TRISKELE_PASSPHRASE"):
        again(engine).seal("a", 1, TEXT)
    asked = StoreVault(
        engine.store, PrivacySettings(), engine.settings.home, lambda prompt, is_new: "correct horse battery"
    )
    assert asked.seal("a", 1, TEXT).blob


def test_auto_takes_the_keyring_where_there_is_one(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    wallet = Drawer()
    monkeypatch.setattr(safes, "system_keyring", lambda: SystemKeyring(wallet))
    again(engine, key="auto").seal("a", 1, TEXT)
    assert len(wallet.kept) == 1
    monkeypatch.setattr(safes, "system_keyring", lambda: None)
    with pytest.raises(Unavailable, match="keyring"):
        again(engine).seal("a", 1, TEXT)


def test_a_key_file_of_ones_own(engine: LocalEngine, tmp_path: Path) -> None:
    key_path = tmp_path / "stick" / "my.key"
    again(engine, key=str(key_path)).seal("a", 1, TEXT)
    assert key_path.exists()
    # The document knows where it is.
    assert again(engine).seal("a", 1, TEXT).blob


@pytest.mark.parametrize("written", [b"", b"QUJD"], ids=["empty", "partial"])
def test_an_unfinished_key_without_sealed_text_is_replaced(engine: LocalEngine, key_file: Path, written: bytes) -> None:
    _write_key(key_file, written)
    assert engine.reveal(engine.remember(TEXT).id).text == TEXT


@pytest.mark.parametrize("written", [b"", b"QUJD", None], ids=["empty", "partial", "gone"])
def test_key_lost_after_the_last_secret_is_replaced(
    open_engine: OpenEngine, key_file: Path, written: bytes | None
) -> None:
    first = open_engine()
    first.erase(first.remember(TEXT).id)
    first.close()
    _write_key(key_file, written)
    engine = open_engine()
    assert engine.reveal(engine.remember(TEXT).id).text == TEXT


@pytest.mark.parametrize("written", [b"", b"QUJD"], ids=["empty", "partial"])
def test_unfinished_key_with_sealed_text_is_reported(open_engine: OpenEngine, key_file: Path, written: bytes) -> None:
    first = open_engine()
    id = first.remember(TEXT).id
    first.close()
    whole = key_file.read_bytes()
    _write_key(key_file, written)
    engine = open_engine()
    for act in (lambda: engine.remember("the garage password is Kp4#wq9z!Lm2"), lambda: engine.reveal(id)):
        with pytest.raises(VaultLocked, match="holds no key: restore it from a backup"):
            act()
    assert key_file.read_bytes() == written
    _write_key(key_file, whole)
    assert engine.reveal(id).text == TEXT


def _write_key(path: Path, written: bytes | None) -> None:
    path.unlink(missing_ok=True)
    if written is not None:
        path.write_bytes(written)
        path.chmod(0o600)


def test_rotating_needs_another_source_or_a_new_key(engine: LocalEngine) -> None:
    with pytest.raises(BadInput, match="first secret"):
        engine.vault.rotate("file")
    engine.remember(TEXT)
    with pytest.raises(BadInput, match="already"):
        engine.vault.rotate("file")


class Killed(BaseException):
    """The process is gone."""


def steps_of(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch, dies_at: int | None) -> list[int]:
    """Lets the process die before or after the given write of a change of keys; counts the moments."""
    moments: list[int] = []
    for where, name in ((engine.store.documents, "swap"), (engine.store, "reseal")):
        write = getattr(where, name)

        def watched(*given: object, write: Callable[..., object] = write) -> object:
            _moment(moments, dies_at)
            done = write(*given)
            _moment(moments, dies_at)
            return done

        monkeypatch.setattr(where, name, watched)
    return moments


def _moment(moments: list[int], dies_at: int | None) -> None:
    moments.append(len(moments))
    if len(moments) - 1 == dies_at:
        raise Killed


def _rotated(open_engine: OpenEngine, path: Path, dies_at: int | None, monkeypatch: pytest.MonkeyPatch) -> int:
    engine = open_engine(path)
    ids = [engine.remember(f"{TEXT}{number}").id for number in range(3)]
    engine.edit(ids[0], importance=0.9)
    wallet = Drawer()
    monkeypatch.setattr(safes, "system_keyring", lambda: SystemKeyring(wallet))
    with monkeypatch.context() as patched:
        moments = steps_of(engine, patched, dies_at)
        if dies_at is None:
            engine.vault.rotate("keyring", renew=True)
        else:
            with pytest.raises(Killed):
                engine.vault.rotate("keyring", renew=True)
    survivor = open_engine(path)
    assert [survivor.reveal(id).text for id in ids] == [f"{TEXT}{number}" for number in range(3)]
    written = survivor.remember(f"{TEXT} later").id
    survivor.vault.rotate("file" if dies_at is None else None, renew=True)
    last = open_engine(path)
    assert [last.reveal(id).text for id in [*ids, written]][-1] == f"{TEXT} later"
    assert last.upkeep.inspect(deep=True).findings == ()
    return len(moments)


def test_a_change_of_keys_killed_at_any_step_loses_nothing(
    open_engine: OpenEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = _rotated(open_engine, tmp_path / "whole.db", None, monkeypatch)
    assert count == 10
    for moment in range(count):
        _rotated(open_engine, tmp_path / f"{moment}.db", moment, monkeypatch)


def test_writer_with_old_keys_must_retry(engine: LocalEngine, open_engine: OpenEngine) -> None:
    engine.remember(TEXT)
    draft = engine.draft(TEXT + "y")
    old = engine.vault.seal(draft.id, 1, TEXT + "y")
    open_engine().vault.rotate(renew=True)
    with pytest.raises(TriskeleError, match="try again"):
        engine.store.apply([Add(row_of(draft), sealed=old)], batch="b")
    assert engine.reveal(engine.apply([Add(draft)])[0].id).text == TEXT + "y"
    assert engine.get(draft.id).sensitivity is Sensitivity.SECRET
