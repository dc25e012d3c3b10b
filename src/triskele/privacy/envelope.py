"""Seal texts with AES-256-GCM under a random key that a source wraps.

A sealed content is bound to its vault, memory and version: moved to another row it does not open. The wrapped keys are
a small JSON document that the caller stores. Every change of keys happens in two steps, `begin…` and `confirm`; between
them the document holds the old wrap and the new one, so that an interruption leaves one that works.
"""

from __future__ import annotations

import base64
import json
import secrets
import struct
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Self

from triskele.errors import BadInput, Conflict, VaultLocked
from triskele.privacy.key_sources import KEY_BYTES, KeySource, VaultDamaged, lost, wipe

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

FORMAT = 1

_NONCE_BYTES = 12
_NUMBER_BYTES = 4
_ENTRY_BYTES = _NUMBER_BYTES + KEY_BYTES
_MARK = b"TRSK\x01"
_HEAD = struct.Struct(f">{len(_MARK)}sI")
_TAG_BYTES = 16
_LENGTH = struct.Struct(">I")
# Lengths are hidden in steps of this many bytes: a PIN and a password look alike.
_STEP = 64

# Data keys by generation.
Ring = dict[int, bytearray]
Row = tuple[str, int, bytes]


@dataclass(frozen=True, slots=True)
class Wrap:
    """Data keys wrapped by one key source, with the source's public details."""

    source: str
    details: dict[str, Any]
    nonce: str
    sealed: str


@dataclass(frozen=True, slots=True)
class KeyDocument:
    """The stored part of a vault: the confirmed and the pending wrap."""

    name: str
    generation: int
    current: Wrap
    pending: Wrap | None = None

    def wraps(self) -> list[Wrap]:
        """Every wrap that may be opened, the confirmed one first."""
        return [self.current, self.pending] if self.pending else [self.current]

    def to_json(self) -> str:
        """The document as text; it holds no key in clear."""
        return json.dumps({"format": FORMAT, **asdict(self)})

    @classmethod
    def from_json(cls, stored: str) -> KeyDocument:
        """Parse the document; refuses unknown formats."""
        try:
            document = json.loads(stored)
            number = document["format"]
            if number == FORMAT:
                pending = Wrap(**document["pending"]) if document["pending"] else None
                return cls(str(document["name"]), int(document["generation"]), Wrap(**document["current"]), pending)
        except (KeyError, TypeError, ValueError, RecursionError):
            raise VaultDamaged("the document of the vault's keys is damaged: restore the store from a backup") from None
        raise VaultLocked(f"the vault has format {number}, this version knows {FORMAT}: update triskele")


def wrap(name: str, keys: Ring, source: KeySource) -> Wrap:
    """The data keys under a new key of the source."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    details = source.fresh()
    nonce = secrets.token_bytes(_NONCE_BYTES)
    ring = _packed(keys)
    key = source.key(details)
    try:
        sealed = AESGCM(key).encrypt(nonce, ring, _bound(name, source.kind, details))
    finally:
        wipe(key)
        wipe(ring)
    return Wrap(source.kind, details, base64.b64encode(nonce).decode(), base64.b64encode(sealed).decode())


def unwrap(name: str, wraps: Iterable[Wrap], source: KeySource) -> Ring:
    """The data keys of the first wrap that the source opens."""
    fitting = [wrap for wrap in wraps if wrap.source == source.kind]
    if not fitting:
        raise VaultLocked(f"the vault is not locked by a {source.kind}: open it by the key source it was locked with")
    failure: VaultLocked | None = None
    for one in fitting:
        try:
            keys = _opened(name, one, source)
        except VaultLocked as error:
            failure = failure or error
            continue
        if keys:
            return keys
    raise failure or lost(f"this {source.kind} does not open the vault", "check it and try again")


def _opened(name: str, wrap: Wrap, source: KeySource) -> Ring | None:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    key = source.key(wrap.details)
    try:
        nonce, sealed = (base64.b64decode(text, validate=True) for text in (wrap.nonce, wrap.sealed))
        return _unpacked(bytearray(AESGCM(key).decrypt(nonce, sealed, _bound(name, wrap.source, wrap.details))))
    except InvalidTag:
        return None
    except (TypeError, ValueError):
        raise VaultDamaged("the document of the vault's keys is damaged: restore the store from a backup") from None
    finally:
        wipe(key)


def _bound(name: str, source: str, details: dict[str, Any]) -> bytes:
    return json.dumps([FORMAT, name, source, details], sort_keys=True).encode()


def _packed(keys: Ring) -> bytearray:
    ring = bytearray()
    for generation, key in sorted(keys.items()):
        ring += generation.to_bytes(_NUMBER_BYTES) + key
    return ring


def _unpacked(ring: bytearray) -> Ring:
    try:
        places = range(0, len(ring), _ENTRY_BYTES)
        return {
            int.from_bytes(ring[place : place + _NUMBER_BYTES]): ring[place + _NUMBER_BYTES : place + _ENTRY_BYTES]
            for place in places
        }
    finally:
        wipe(ring)


class Vault:
    """An open vault: it holds keys, so close it."""

    __slots__ = ("_keys", "_name", "generation")

    def __init__(self, name: str, keys: Ring, generation: int) -> None:
        self._name = name
        self._keys = keys
        self.generation = generation

    def seal(self, id: str, version: int, text: str) -> bytes:
        """Seal a text for this memory and version."""
        head = _HEAD.pack(_MARK, self.generation)
        nonce = secrets.token_bytes(_NONCE_BYTES)
        raw = text.encode()
        padded = _LENGTH.pack(len(raw)) + raw
        padded += bytes(-len(padded) % _STEP)
        return head + nonce + self._cipher(self.generation).encrypt(nonce, padded, self._bound(head, id, version))

    def open(self, id: str, version: int, blob: bytes) -> str:
        """Open a sealed text; an altered or moved one is refused."""
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
            held = "it is closed" if not self._keys else f"it holds {', '.join(map(str, sorted(self._keys)))}"
            raise lost(f"the vault has no key of generation {generation} ({held})", "restore the store from a backup")
        return AESGCM(key)

    def _bound(self, head: bytes, id: str, version: int) -> bytes:
        """Associated data of a sealed text, with unambiguous boundaries."""
        name, memory = self._name.encode(), id.encode()
        return b"".join(
            (head, _LENGTH.pack(len(name)), name, _LENGTH.pack(len(memory)), memory, struct.pack(">q", version))
        )

    def copy_of_keys(self) -> Ring:
        """A copy of the keys for the document; the caller wipes it."""
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
    document = KeyDocument(name, generation=1, current=wrap(name, keys, source))
    return document.to_json(), Vault(name, keys, 1)


def unlock(stored: str, source: KeySource) -> Vault:
    """Open the vault with the wrap that the source fits."""
    document = KeyDocument.from_json(stored)
    keys = unwrap(document.name, document.wraps(), source)
    return Vault(document.name, keys, document.generation)


def sources_of(stored: str) -> list[str]:
    """Kinds of key source that open this vault, the confirmed one first."""
    return list(dict.fromkeys(wrap.source for wrap in KeyDocument.from_json(stored).wraps()))


def begin_rotation(stored: str, vault: Vault, source: KeySource, *, renew: bool = False) -> str:
    """Let a new source open the document; `renew` adds a data key."""
    keys = vault.copy_of_keys()
    if renew:
        keys[max(keys) + 1] = bytearray(secrets.token_bytes(KEY_BYTES))
    begun = _with_pending(stored, keys, source)
    document = KeyDocument.from_json(begun)
    if not renew and document.pending is not None and document.pending.details == document.current.details:
        raise BadInput(f"this {source.kind} locks the vault already: rotate to another one")
    return begun


def begin_retirement(stored: str, vault: Vault, source: KeySource, rows: Iterable[Row]) -> str:
    """Drop old data keys; refused while a row still needs one."""
    if needed := list(stale(vault, rows)):
        raise Conflict(f"{len(needed)} secrets are sealed with an old key: seal them again first")
    keys = vault.copy_of_keys()
    for generation in [number for number in keys if number != vault.generation]:
        wipe(keys.pop(generation))
    return _with_pending(stored, keys, source)


def confirm(stored: str, source: KeySource) -> tuple[str, Vault]:
    """Prove that the source opens the new wrap; drop the old one."""
    document = KeyDocument.from_json(stored)
    if document.pending is None:
        return stored, unlock(stored, source)
    keys = unwrap(document.name, [document.pending], source)
    settled = KeyDocument(document.name, max(keys), document.pending)
    return settled.to_json(), Vault(settled.name, keys, settled.generation)


def abandon(stored: str) -> str:
    """The document without a change that was begun and not confirmed."""
    document = KeyDocument.from_json(stored)
    return KeyDocument(document.name, document.generation, document.current).to_json()


def stale(vault: Vault, rows: Iterable[Row]) -> Iterator[tuple[str, int]]:
    """Memories and versions that an older key sealed."""
    return ((id, version) for id, version, blob in rows if generation_of(blob) != vault.generation)


def generation_of(blob: bytes) -> int:
    """Which data key sealed this content."""
    if len(blob) < _HEAD.size + _NONCE_BYTES + _TAG_BYTES + _STEP or not blob.startswith(_MARK):
        raise VaultDamaged("a sealed content is cut off or no sealed content at all: restore the store from a backup")
    _, generation = _HEAD.unpack_from(blob)
    return int(generation)


def _with_pending(stored: str, keys: Ring, source: KeySource) -> str:
    document = KeyDocument.from_json(stored)
    if document.pending is not None:
        raise Conflict("a change of the vault's key was begun before: confirm or abandon it first")
    try:
        pending: Wrap = wrap(document.name, keys, source)
    finally:
        for key in keys.values():
            wipe(key)
    return KeyDocument(document.name, document.generation, document.current, pending).to_json()
