"""The vault: contents sealed with AES-256-GCM, under a random key that is itself wrapped by a key source.

A sealed content is bound to its vault, memory and version: moved to another row it does not open. The wrapped keys are
a small JSON document that the caller stores. Every change of keys happens in two steps, `begin…` and `confirm`; between
them the document holds the old wrap and the new one, so that an interruption leaves one that works.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NoReturn, Self

from triskele.errors import BadInput, Conflict
from triskele.privacy import wraps
from triskele.privacy.failures import VaultDamaged, lost
from triskele.privacy.keys import KEY_BYTES, KeySource, wipe
from triskele.privacy.wraps import Document, Ring, Wrap

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_MARK = b"TRSK\x01"
_HEAD = struct.Struct(f">{len(_MARK)}sI")
_NONCE_BYTES = 12
_TAG_BYTES = 16
_LENGTH = struct.Struct(">I")
# Lengths are hidden in steps of this many bytes: a PIN and a password look alike.
_STEP = 64

Row = tuple[str, int, bytes]


class Vault:
    """An open vault: it holds keys, so close it."""

    __slots__ = ("_keys", "_name", "generation")

    def __init__(self, name: str, keys: Ring, generation: int) -> None:
        self._name = name
        self._keys = keys
        self.generation = generation

    def seal(self, id: str, version: int, text: str) -> bytes:
        """The text as bytes that only this vault opens, and only for this memory and version."""
        head = _HEAD.pack(_MARK, self.generation)
        nonce = secrets.token_bytes(_NONCE_BYTES)
        raw = text.encode()
        padded = _LENGTH.pack(len(raw)) + raw
        padded += bytes(-len(padded) % _STEP)
        return head + nonce + self._cipher(self.generation).encrypt(nonce, padded, self._bound(head, id, version))

    def open(self, id: str, version: int, blob: bytes) -> str:
        """The text of a sealed content, unless a single bit of it or its place was changed."""
        from cryptography.exceptions import InvalidTag

        generation = generation_of(blob)
        head, nonce, sealed = blob[: _HEAD.size], blob[_HEAD.size :][:_NONCE_BYTES], blob[_HEAD.size + _NONCE_BYTES :]
        try:
            padded = self._cipher(generation).decrypt(nonce, sealed, self._bound(head, id, version))
        except InvalidTag:
            raise VaultDamaged(
                f"the secret of {id} was altered or belongs to another memory: restore a backup"
            ) from None
        (length,) = _LENGTH.unpack_from(padded)
        return padded[_LENGTH.size : _LENGTH.size + length].decode()

    def reseal(self, id: str, version: int, blob: bytes) -> bytes:
        """The same text under the newest key."""
        return self.seal(id, version, self.open(id, version, blob))

    def close(self) -> None:
        """Overwrite the keys; nothing can be sealed or opened afterwards."""
        for key in self._keys.values():
            wipe(key)
        self._keys.clear()

    def _cipher(self, generation: int) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key = self._keys.get(generation)
        if key is None:
            known = "it is closed" if not self._keys else f"it holds {_listed(self._keys)}"
            raise lost(f"the vault has no key of generation {generation} ({known})", "restore the store from a backup")
        return AESGCM(key)

    def _bound(self, head: bytes, id: str, version: int) -> bytes:
        """What a sealed content is tied to, without doubt where one part ends and the next begins."""
        name, memory = self._name.encode(), id.encode()
        return b"".join(
            (head, _LENGTH.pack(len(name)), name, _LENGTH.pack(len(memory)), memory, struct.pack(">q", version))
        )

    def copy_of_keys(self) -> Ring:
        """The keys in memory of their own, for the document; the caller wipes them."""
        return {generation: bytearray(key) for generation, key in self._keys.items()}

    def __repr__(self) -> str:
        return f"<Vault {self._name}, {'open' if self._keys else 'closed'}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a vault holds keys: it is never pickled")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def create(source: KeySource) -> tuple[str, Vault]:
    """A new vault: the document to store, and the vault open."""
    keys = {1: bytearray(secrets.token_bytes(KEY_BYTES))}
    name = secrets.token_hex(8)
    document = Document(name, generation=1, current=wraps.wrap(name, keys, source))
    return document.to_json(), Vault(name, keys, 1)


def unlock(stored: str, source: KeySource) -> Vault:
    """The vault of this document, opened by whichever of its wraps the source fits."""
    document = Document.from_json(stored)
    keys = wraps.unwrap(document.name, document.wraps(), source)
    return Vault(document.name, keys, document.generation)


def sources_of(stored: str) -> list[str]:
    """The kinds of key source that open this vault now, the confirmed one first."""
    return list(dict.fromkeys(wrap.source for wrap in Document.from_json(stored).wraps()))


def begin_rotation(stored: str, vault: Vault, source: KeySource, *, renew: bool = False) -> str:
    """A document that the new source opens too; `renew` adds a new data key, for when the old may be known."""
    keys = vault.copy_of_keys()
    if renew:
        keys[max(keys) + 1] = bytearray(secrets.token_bytes(KEY_BYTES))
    begun = _with_pending(stored, keys, source)
    document = Document.from_json(begun)
    if not renew and document.pending is not None and document.pending.details == document.current.details:
        raise BadInput(f"this {source.kind} locks the vault already: rotate to another one")
    return begun


def begin_retirement(stored: str, vault: Vault, source: KeySource, rows: Iterable[Row]) -> str:
    """A document without old data keys, refused while a row still needs one; `source` must open it now."""
    if needed := list(stale(vault, rows)):
        raise Conflict(f"{len(needed)} secrets are sealed with an old key: seal them anew first")
    keys = vault.copy_of_keys()
    for generation in [number for number in keys if number != vault.generation]:
        wipe(keys.pop(generation))
    return _with_pending(stored, keys, source)


def confirm(stored: str, source: KeySource) -> tuple[str, Vault]:
    """Prove that the source opens the new wrap, then drop the old one."""
    document = Document.from_json(stored)
    if document.pending is None:
        return stored, unlock(stored, source)
    keys = wraps.unwrap(document.name, [document.pending], source)
    settled = Document(document.name, max(keys), document.pending)
    return settled.to_json(), Vault(settled.name, keys, settled.generation)


def abandon(stored: str) -> str:
    """The document without a change that was begun and not confirmed."""
    document = Document.from_json(stored)
    return Document(document.name, document.generation, document.current).to_json()


def stale(vault: Vault, rows: Iterable[Row]) -> Iterator[tuple[str, int]]:
    """The memories and versions whose contents are sealed with an older key than the newest."""
    return ((id, version) for id, version, blob in rows if generation_of(blob) != vault.generation)


def generation_of(blob: bytes) -> int:
    """Which data key sealed this content."""
    if len(blob) < _HEAD.size + _NONCE_BYTES + _TAG_BYTES + _STEP or not blob.startswith(_MARK):
        raise VaultDamaged("a sealed content is cut off or no sealed content at all: restore the store from a backup")
    _, generation = _HEAD.unpack_from(blob)
    return int(generation)


def _with_pending(stored: str, keys: Ring, source: KeySource) -> str:
    document = Document.from_json(stored)
    if document.pending is not None:
        raise Conflict("a change of the vault's key was begun before: confirm or abandon it first")
    try:
        pending: Wrap = wraps.wrap(document.name, keys, source)
    finally:
        for key in keys.values():
            wipe(key)
    return Document(document.name, document.generation, document.current, pending).to_json()


def _listed(keys: Mapping[int, object]) -> str:
    return ", ".join(map(str, sorted(keys)))
