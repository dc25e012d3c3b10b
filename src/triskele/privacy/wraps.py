"""The document of the vault's keys: data keys by generation, wrapped as one piece by the key of a source."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from triskele.privacy.failures import VaultDamaged, VaultLocked, lost
from triskele.privacy.keys import KEY_BYTES, KeySource, wipe

FORMAT = 1

_NONCE_BYTES = 12
_NUMBER_BYTES = 4
_ENTRY_BYTES = _NUMBER_BYTES + KEY_BYTES

# Data keys by generation.
Ring = dict[int, bytearray]


@dataclass(frozen=True, slots=True)
class Wrap:
    """Data keys under the key of one source; `details` are what the source needs to find its key."""

    source: str
    details: dict[str, Any]
    nonce: str
    sealed: str


@dataclass(frozen=True, slots=True)
class Document:
    """What is stored of a vault; `generation` seals, `pending` is a wrap that is not confirmed yet."""

    name: str
    generation: int
    current: Wrap
    pending: Wrap | None = None

    def wraps(self) -> list[Wrap]:
        """Every wrap that may be opened, the confirmed one first."""
        return [self.current, *([self.pending] if self.pending else [])]

    def to_json(self) -> str:
        """The document as text; it holds no key in clear."""
        wraps = {"current": _as_dict(self.current), "pending": self.pending and _as_dict(self.pending)}
        return json.dumps({"format": FORMAT, "name": self.name, "generation": self.generation, **wraps})

    @classmethod
    def from_json(cls, stored: str) -> Document:
        """Parse the document; refuses unknown formats."""
        try:
            said = json.loads(stored)
            number = said["format"]
            if number == FORMAT:
                pending = Wrap(**said["pending"]) if said["pending"] else None
                return cls(str(said["name"]), int(said["generation"]), Wrap(**said["current"]), pending)
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


def _as_dict(wrap: Wrap) -> dict[str, Any]:
    return {"source": wrap.source, "details": wrap.details, "nonce": wrap.nonce, "sealed": wrap.sealed}
