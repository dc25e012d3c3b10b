"""The vault: what is sealed opens for its own row alone, and no interruption of a key change loses it."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triskele.errors import BadInput, Conflict, Unavailable, VaultLocked
from triskele.privacy import envelope as vaults
from triskele.privacy.envelope import Vault
from triskele.privacy.key_sources import Cost, KeyFile, KeySource, Passphrase, VaultDamaged

QUICK = Cost(memory_kib=64, rounds=1, lanes=1)
OLD, NEW, WRONG = (Passphrase(f"{word} passphrase", QUICK) for word in ("old", "new", "wrong"))
DOCUMENT, OPEN = vaults.create(OLD)
TEXT = "the gate opens for 4711"


@given(st.text(max_size=2000), st.text(max_size=30), st.integers(0, 2**40))
def test_sealed_text_opens(text: str, id: str, version: int) -> None:
    assert OPEN.open(id, version, OPEN.seal(id, version, text)) == text


def test_the_document_opens_the_vault_again() -> None:
    blob = OPEN.seal("a", 1, TEXT)
    assert vaults.unlock(json.dumps(json.loads(DOCUMENT)), OLD).open("a", 1, blob) == TEXT


def test_every_flipped_bit_of_a_blob_is_noticed() -> None:
    blob = OPEN.seal("a", 1, TEXT)
    for bit in range(len(blob) * 8):
        flipped = bytearray(blob)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises((VaultDamaged, VaultLocked)):
            OPEN.open("a", 1, bytes(flipped))


def test_every_cut_and_every_tail_is_noticed() -> None:
    blob = OPEN.seal("a", 1, TEXT)
    for piece in (*(blob[:end] for end in range(len(blob))), blob + b"\0", b"\0" + blob):
        with pytest.raises(VaultDamaged):
            OPEN.open("a", 1, piece)


@pytest.mark.parametrize(("id", "version"), [("b", 1), ("a", 2), ("", 1), ("a\0", 1)])
def test_a_row_swapped_with_another_does_not_open(id: str, version: int) -> None:
    with pytest.raises(VaultDamaged):
        OPEN.open(id, version, OPEN.seal("a", 1, TEXT))


def test_a_row_of_another_vault_does_not_open() -> None:
    blob = OPEN.seal("a", 1, TEXT)
    # The same keys under another name: the name alone must make the difference.
    with pytest.raises(VaultDamaged):
        Vault("another", OPEN.copy_of_keys(), 1).open("a", 1, blob)


def test_a_content_does_not_change_its_generation() -> None:
    (key,) = OPEN.copy_of_keys().values()
    twin = Vault("twin", {1: key, 2: bytearray(key)}, 1)
    blob = bytearray(twin.seal("a", 1, TEXT))
    blob[8] = 2
    assert vaults.generation_of(bytes(blob)) == 2
    with pytest.raises(VaultDamaged):
        twin.open("a", 1, bytes(blob))


def test_sealing_twice_gives_different_bytes_and_hides_the_length() -> None:
    assert OPEN.seal("a", 1, TEXT) != OPEN.seal("a", 1, TEXT)
    assert len(OPEN.seal("a", 1, "4711")) == len(OPEN.seal("a", 1, "a long password"))


def test_wrong_passphrase_names_the_lost_texts() -> None:
    with pytest.raises(VaultLocked, match=r"does not open.*cannot be read.*stay readable"):
        vaults.unlock(DOCUMENT, WRONG)


def test_other_kind_of_source_is_reported(tmp_path: Path) -> None:
    with pytest.raises(VaultLocked, match="not locked by a key-file"):
        vaults.unlock(DOCUMENT, KeyFile(tmp_path / "key"))
    assert vaults.sources_of(DOCUMENT) == ["passphrase"]


def test_every_altered_character_of_the_document_is_noticed_or_harmless() -> None:
    blob = OPEN.seal("a", 1, TEXT)
    for position in range(len(DOCUMENT)):
        altered = DOCUMENT[:position] + ("0" if DOCUMENT[position] != "0" else "1") + DOCUMENT[position + 1 :]
        try:
            opened = vaults.unlock(altered, OLD)
        except Unavailable:
            continue
        assert opened.open("a", 1, blob) == TEXT


def test_a_newer_format_asks_for_an_update() -> None:
    with pytest.raises(VaultLocked, match="update triskele"):
        vaults.unlock(json.dumps(json.loads(DOCUMENT) | {"format": 2}), OLD)


def test_a_closed_vault_has_no_keys_left() -> None:
    _, vault = vaults.create(OLD)
    blob = vault.seal("a", 1, TEXT)
    held = list(vault._keys.values())
    with vault:
        pass
    assert all(key == bytes(32) for key in held)
    with pytest.raises(VaultLocked, match="closed"):
        vault.open("a", 1, blob)


def test_nothing_shows_a_key_or_a_text() -> None:
    document, vault = vaults.create(OLD)
    (key,) = vault.copy_of_keys().values()
    with pytest.raises(TypeError):
        pickle.dumps(vault)
    shown = f"{vault!r} {vault} {document}"
    with pytest.raises(VaultDamaged) as caught:
        vault.open("b", 1, vault.seal("a", 1, TEXT))
    shown += f"{caught.value!r} {caught.value.__cause__} {caught.value.__context__!r}"
    assert key.hex() not in shown and repr(bytes(key)) not in shown and "4711" not in shown and "old pass" not in shown


class Killed(Exception):
    """The process ended here."""


class Store:
    """Keeps a document and rows; the process is killed at a chosen step, before it or after it."""

    def __init__(self, killed_at: int) -> None:
        self.document, vault = vaults.create(OLD)
        self.rows = {(name, 1): vault.seal(name, 1, f"{TEXT} {name}") for name in "abc"}
        self.left = killed_at

    def step(self, change: Callable[[], None]) -> None:
        for act in (lambda: None, change):
            if self.left == 0:
                raise Killed
            self.left -= 1
            act()

    def keep(self, document: str) -> None:
        self.step(lambda: setattr(self, "document", document))

    def row(self, place: tuple[str, int], blob: bytes) -> None:
        self.step(lambda: self.rows.__setitem__(place, blob))


def _rotate(store: Store, new: KeySource) -> None:
    """Everything at once: a new source, a new data key, every row anew, the old data key dropped."""
    with vaults.unlock(store.document, OLD) as vault:
        begun = vaults.begin_rotation(store.document, vault, new, renew=True)
    store.keep(begun)
    document, vault = vaults.confirm(store.document, new)
    store.keep(document)
    for id, version in list(vaults.stale(vault, [(*place, blob) for place, blob in store.rows.items()])):
        store.row((id, version), vault.reseal(id, version, store.rows[id, version]))
    rows = [(*place, blob) for place, blob in store.rows.items()]
    store.keep(vaults.begin_retirement(store.document, vault, new, rows))
    store.keep(vaults.confirm(store.document, new)[0])


STEPS = 2 * (2 + 3 + 2)


@pytest.mark.parametrize("killed_at", range(STEPS + 1))
def test_a_rotation_killed_at_any_step_loses_nothing(killed_at: int, tmp_path: Path) -> None:
    for new in (NEW, KeyFile(tmp_path / "vault.key")):
        store = Store(killed_at)
        try:
            _rotate(store, new)
        except Killed:
            assert killed_at < STEPS
        opened = 0
        for source in (OLD, new):
            try:
                vault = vaults.unlock(store.document, source)
            except VaultLocked:
                continue
            opened += 1
            assert {place: vault.open(*place, blob) for place, blob in store.rows.items()} == {
                (name, 1): f"{TEXT} {name}" for name in "abc"
            }
        assert opened >= 1


def test_a_rotation_shuts_the_old_source_out() -> None:
    store = Store(1000)
    _rotate(store, NEW)
    with pytest.raises(VaultLocked):
        vaults.unlock(store.document, OLD)
    with vaults.unlock(store.document, NEW) as vault:
        assert vault.generation == 2 and list(vault.copy_of_keys()) == [2]
        assert {vaults.generation_of(blob) for blob in store.rows.values()} == {2}


def test_until_confirmed_both_sources_open_and_the_old_data_key_seals() -> None:
    document, vault = vaults.create(OLD)
    begun = vaults.begin_rotation(document, vault, NEW, renew=True)
    blob = vaults.unlock(begun, NEW).seal("a", 1, TEXT)
    assert vaults.unlock(vaults.abandon(begun), OLD).open("a", 1, blob) == TEXT
    with pytest.raises(VaultLocked):
        vaults.unlock(vaults.abandon(begun), NEW)


def test_only_the_new_source_confirms() -> None:
    document, vault = vaults.create(OLD)
    begun = vaults.begin_rotation(document, vault, NEW)
    with pytest.raises(VaultLocked):
        vaults.confirm(begun, OLD)
    with pytest.raises(Conflict):
        vaults.begin_rotation(begun, vault, WRONG)


def test_confirming_twice_does_no_harm() -> None:
    document, vault = vaults.create(OLD)
    settled, _ = vaults.confirm(vaults.begin_rotation(document, vault, NEW), NEW)
    assert vaults.confirm(settled, NEW)[0] == settled


def test_rotating_to_the_same_key_file_is_refused(tmp_path: Path) -> None:
    source = KeyFile(tmp_path / "vault.key")
    document, vault = vaults.create(source)
    with pytest.raises(BadInput, match="rotate to another"):
        vaults.begin_rotation(document, vault, source)
    assert vaults.begin_rotation(document, vault, source, renew=True)


def test_an_old_data_key_that_a_row_needs_is_not_dropped() -> None:
    document, vault = vaults.create(OLD)
    rows = [("a", 1, vault.seal("a", 1, TEXT))]
    document, vault = vaults.confirm(vaults.begin_rotation(document, vault, NEW, renew=True), NEW)
    assert list(vaults.stale(vault, rows)) == [("a", 1)]
    with pytest.raises(Conflict, match="1 secrets"):
        vaults.begin_retirement(document, vault, NEW, rows)
