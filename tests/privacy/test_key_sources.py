from __future__ import annotations

import errno
import os
import signal
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import keyring
import pytest
from drawer import Drawer

from triskele.errors import BadInput, Unavailable, VaultLocked
from triskele.privacy import key_sources
from triskele.privacy.key_sources import Cost, KeyFile, Passphrase, SystemKeyring, VaultDamaged

QUICK = Cost(memory_kib=64, rounds=1, lanes=1)


class Broken(Drawer):
    def get_password(self, service: str, username: str) -> str | None:
        raise RuntimeError(f"no such {service} {username}")


class Forgetful(Drawer):
    def set_password(self, service: str, username: str, password: str) -> None:
        pass


def test_a_passphrase_gives_one_key_per_salt() -> None:
    source = Passphrase("correct horse", QUICK)
    one, other = source.fresh(), source.fresh()
    assert source.key(one) == source.key(one) != source.key(other)
    assert len(source.key(one)) == key_sources.KEY_BYTES


def test_a_composed_accent_is_the_same_passphrase() -> None:
    details = Passphrase("gr\u00fcne Wiese", QUICK).fresh()
    assert Passphrase("gr\u00fcne Wiese", QUICK).key(details) == Passphrase("gru\u0308ne Wiese", QUICK).key(details)


def test_a_short_passphrase_is_refused_for_a_new_key() -> None:
    with pytest.raises(BadInput, match="at least 8"):
        Passphrase("seven77", QUICK).fresh()


@pytest.mark.parametrize(
    "change",
    [{"memory_kib": 1 << 30}, {"rounds": 10_000}, {"lanes": 0}, {"salt": "AA=="}, {"salt": "?"}, {"rounds": None}],
)
def test_an_altered_cost_is_refused_before_it_is_paid(change: dict[str, object]) -> None:
    source = Passphrase("correct horse", QUICK)
    with pytest.raises(VaultDamaged):
        source.key(source.fresh() | change)


def test_the_default_cost_is_that_of_the_rfc() -> None:
    assert Cost() == Cost(memory_kib=65536, rounds=3, lanes=4)


def test_no_source_shows_its_secret(tmp_path: Path) -> None:
    assert "horse" not in repr(Passphrase("correct horse", QUICK))
    drawer = Drawer()
    SystemKeyring(drawer).fresh()
    assert not any(kept in repr(SystemKeyring(drawer)) for kept in drawer.kept.values())


def test_a_key_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    source = KeyFile(tmp_path / "vault.key")
    details = source.fresh()
    assert stat.S_IMODE(source.path.stat().st_mode) == 0o600
    key = source.key(details)
    assert len(key) == key_sources.KEY_BYTES
    source.fresh()
    assert source.key(details) == key, "an existing key file must never be overwritten"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601])
def test_key_file_of_open_permissions_is_refused(tmp_path: Path, mode: int) -> None:
    source = KeyFile(tmp_path / "vault.key")
    source.fresh()
    os.chmod(source.path, mode)
    with pytest.raises(VaultLocked, match="chmod 600"):
        source.key({})


@pytest.mark.parametrize("written", [b"", b"short", b"A" * 44, b"\xff" * 44])
def test_a_file_without_a_key_is_refused(tmp_path: Path, written: bytes) -> None:
    path = tmp_path / "vault.key"
    path.write_bytes(written)
    path.chmod(0o600)
    with pytest.raises(VaultLocked, match="holds no key"):
        KeyFile(path).key({})


@pytest.mark.parametrize("written", [b"", b"QUJD", b"A" * 43])
def test_an_unfinished_key_file_is_replaced_only_where_no_text_needs_it(tmp_path: Path, written: bytes) -> None:
    path = tmp_path / "vault.key"
    path.write_bytes(written)
    path.chmod(0o600)
    with pytest.raises(VaultLocked, match=r"holds no key.*backup"):
        KeyFile(path).fresh()
    assert path.read_bytes() == written
    source = KeyFile(path, replaces_unfinished=True)
    assert len(source.key(source.fresh())) == key_sources.KEY_BYTES
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("written", [b"A" * 44, b"\xff" * 44, b"a note of mine"])
def test_a_file_that_is_no_unfinished_key_is_left_alone(tmp_path: Path, written: bytes) -> None:
    path = tmp_path / "vault.key"
    path.write_bytes(written)
    path.chmod(0o600)
    with pytest.raises(VaultLocked, match="holds no key"):
        KeyFile(path, replaces_unfinished=True).fresh()
    assert path.read_bytes() == written


@pytest.mark.slow
@pytest.mark.parametrize("written", [None, b"", b"QUJD"], ids=["no file", "empty", "partial"])
def test_killed_at_any_step_a_key_file_is_whole_or_as_before(tmp_path: Path, written: bytes | None) -> None:
    for step in range(100):
        folder = tmp_path / str(step)
        folder.mkdir()
        path = folder / "vault.key"
        if written is not None:
            path.write_bytes(written)
            path.chmod(0o600)
        is_over = _killed_while_it_is_made(path, step)
        content = path.read_bytes() if path.exists() else None
        assert content in (None, written) or len(KeyFile(path).key({})) == key_sources.KEY_BYTES
        source = KeyFile(path, replaces_unfinished=True)
        assert len(source.key(source.fresh())) == key_sources.KEY_BYTES
        if is_over:
            break
    assert is_over and step > 3


def _killed_while_it_is_made(path: Path, step: int) -> bool:
    child = os.fork()
    if child == 0:
        left = [step]

        def counted(real: Callable[..., object]) -> Callable[..., object]:
            def call(*arguments: object, **options: object) -> object:
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1
                return real(*arguments, **options)

            return call

        for name in ("open", "write", "fsync", "link", "rename", "replace", "unlink"):
            setattr(os, name, counted(getattr(os, name)))
        try:
            KeyFile(path, replaces_unfinished=True).fresh()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_two_makers_of_a_key_file_get_one_key(tmp_path: Path) -> None:
    path = tmp_path / "vault.key"
    sources = [KeyFile(path, replaces_unfinished=True) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda source: source.fresh(), sources))
    assert len({bytes(source.key({})) for source in sources}) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_half_a_key_is_never_put_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: real(handle, data[:20]))
    with pytest.raises(Unavailable, match="no space left for the key file"):
        KeyFile(tmp_path / "vault.key").fresh()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["write", "fsync"])
def test_full_disk_is_reported_and_leaves_no_key_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, name, refuse)
    with pytest.raises(Unavailable, match="no space left for the key file"):
        KeyFile(tmp_path / "vault.key").fresh()
    assert list(tmp_path.iterdir()) == []


def test_lost_key_file_names_the_lost_texts(tmp_path: Path) -> None:
    with pytest.raises(VaultLocked, match=r"secret memories cannot be read.*every other memory stay readable"):
        KeyFile(tmp_path / "gone").key({})
    with pytest.raises(BadInput, match="cannot be written"):
        KeyFile(tmp_path / "no" / "folder").fresh()


def test_a_keyring_keeps_every_key_under_a_name_of_its_own() -> None:
    source = SystemKeyring(Drawer())
    one, other = source.fresh(), source.fresh()
    assert source.key(one) != source.key(other)


def test_failing_keyring_is_reported_in_one_line() -> None:
    with pytest.raises(VaultLocked, match="no key for this vault"):
        SystemKeyring(Drawer()).key({"entry": "gone"})
    with pytest.raises(VaultLocked, match="RuntimeError") as caught:
        SystemKeyring(Broken()).key({"entry": "x"})
    assert "no such" not in str(caught.value)
    with pytest.raises(VaultLocked, match="did not keep"):
        SystemKeyring(Forgetful()).fresh()


@pytest.mark.parametrize("name", ["fail", "null"])
def test_a_keyring_without_a_real_backend_is_none(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    backend = __import__(f"keyring.backends.{name}", fromlist=["Keyring"]).Keyring()
    monkeypatch.setattr(keyring, "get_keyring", lambda: backend)
    assert key_sources.system_keyring() is None


def test_a_real_backend_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    drawer = Drawer()
    drawer.priority = 5  # type: ignore[attr-defined]
    monkeypatch.setattr(keyring, "get_keyring", lambda: drawer)
    source = key_sources.system_keyring()
    assert source is not None and len(source.key(source.fresh())) == key_sources.KEY_BYTES


def test_wiping_leaves_zeros() -> None:
    key = bytearray(b"secret")
    key_sources.wipe(key)
    assert key == bytes(6)
