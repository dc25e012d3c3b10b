"""Users of a server, their keys and the audit log: the values, and how a key is made and compared."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import datetime

from triskele.edge.http.access import SCOPES, USUAL_QUOTAS, Quotas
from triskele.errors import BadInput

_PREFIX = "tsk"
_SECRET_BYTES = 32
_ID_CHARACTERS = 12
_NAME = re.compile(r"[a-z0-9][a-z0-9._@-]{0,63}")
# Compared if there is no such key, so that the time reveals nothing.
_NO_HASH = hashlib.sha256(b"").digest()


@dataclass(frozen=True, slots=True)
class User:
    """A user with separate memories; an admin manages users, keys and the audit log."""

    name: str
    is_admin: bool
    created_at: datetime
    quotas: Quotas = USUAL_QUOTAS


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessKey:
    """A key without its secret part, which is not stored."""

    id: str
    user: str
    label: str
    scopes: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class VerifiedKey:
    """A key that was proven, with its user."""

    key: AccessKey
    user: User


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Who did what to which id, when, from where, and the status of the answer; no text."""

    number: int
    at: datetime
    user: str
    key: str
    operation: str
    target: str
    status: int
    address: str


def new_key() -> tuple[str, str, bytes]:
    """A new key, its id and the hash to keep; 256 random bits need no slow hash."""
    id, secret = secrets.token_hex(_ID_CHARACTERS // 2), secrets.token_urlsafe(_SECRET_BYTES)
    return f"{_PREFIX}_{id}_{secret}", id, _hash(secret)


def key_id(key: str) -> str | None:
    """The id in a key; None if it cannot be one."""
    parts = key.split("_", 2)
    is_key = len(parts) == 3 and parts[0] == _PREFIX and re.fullmatch("[0-9a-f]{12}", parts[1])
    return parts[1] if is_key else None


def is_proven(key: str, kept: bytes | None) -> bool:
    """Whether the secret part of a key has this hash, compared in constant time."""
    secret = key.split("_", 2)[2]
    return hmac.compare_digest(_hash(secret), _NO_HASH if kept is None else kept) and kept is not None


def check_user(name: str) -> str:
    """The name of a user: lower case, because it names an owner, a folder and a row."""
    if not _NAME.fullmatch(name):
        raise BadInput(f"not a user name: {name[:40]!r} (lower-case letters, digits, and . _ @ - inside)")
    return name


def check_scopes(scopes: tuple[str, ...]) -> tuple[str, ...]:
    """Known scopes, in the usual order."""
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        raise BadInput(f"scopes are {', '.join(SCOPES)}, not {', '.join(unknown)[:80] or 'none'}")
    return tuple(scope for scope in SCOPES if scope in scopes)


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
