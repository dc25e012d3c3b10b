"""Users, keys and the audit log in a Postgres database; transactions of an owner see none of these rows."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta
from typing import Any

from psycopg import errors

from triskele.edge.http.access import SCOPES, USUAL_QUOTAS, Quotas
from triskele.errors import BadInput, Conflict, NotFound, StoreUnavailable
from triskele.server.keys import (
    AccessKey,
    AuditEntry,
    User,
    VerifiedKey,
    check_scopes,
    check_user,
    is_proven,
    key_id,
    new_key,
)
from triskele.server.postgres.connections import LOCK_OWNER, Connections, explain
from triskele.server.postgres.migrations import DERIVED, OWNED
from triskele.server.shares import Groups, end_leftovers
from triskele.text import timestamps
from triskele.validation import check_name

_USER = "users.name, users.is_admin, users.created_at, users.memories, users.requests, users.model_tokens"
_KEY = "keys.id, keys.user_name, keys.label, keys.scopes, keys.created_at, keys.expires_at, keys.revoked_at"
_AUDIT = "entry, at, user_name, key, operation, target, status, address"
# Verifying a key, and noting a request, must not wait for one another.
_MOST_CONNECTIONS = 8
_MOST_SESSIONS = 20
_MOST_TRIES = 10
_LEFT = """
SELECT 1 FROM shares WHERE owner = %(name)s OR (grantee_kind = 'user' AND grantee = %(name)s)
UNION ALL SELECT 1 FROM shared_memories WHERE owner = %(name)s OR reader = %(name)s
UNION ALL SELECT 1 FROM group_members WHERE user_name = %(name)s
"""


class Accounts:
    """The accounts of one database."""

    def __init__(self, url: str) -> None:
        self._connections = Connections(url, most=_MOST_CONNECTIONS)
        self.groups = Groups(self._connections)

    def close(self) -> None:
        """Close every connection."""
        self._connections.close()

    def create_user(self, name: str, *, is_admin: bool = False, quotas: Quotas = USUAL_QUOTAS) -> User:
        """Add a user."""
        user = User(check_user(name), is_admin, timestamps.now(), quotas)
        row = (quotas.memories, quotas.requests_per_minute, quotas.model_tokens_per_day)
        with self._connections.accounts() as connection:
            try:
                connection.execute(
                    "INSERT INTO users (name, is_admin, created_at, memories, requests, model_tokens)"
                    " VALUES (%s, %s, %s, %s, %s, %s)",
                    [name, is_admin, _number(user.created_at), *row],
                )
            except errors.UniqueViolation:
                raise Conflict(f"there is a user {name} already") from None
            end_leftovers(connection, "user", name)
        return user

    def users(self) -> list[User]:
        """All users, by name."""
        return [_user(row) for row in self._connections.account_rows(f"SELECT {_USER} FROM users ORDER BY name")]

    def user(self, name: str) -> User:
        """One user."""
        rows = self._connections.account_rows(f"SELECT {_USER} FROM users WHERE name = %s", [name])
        if not rows:
            raise NotFound(f"there is no user {name[:64]}")
        return _user(rows[0])

    def erase_user(self, name: str) -> None:
        """Remove a user, its shares, its keys and every row of its memories; the audit log stays."""
        self.user(name)
        for _ in range(_MOST_TRIES):
            self.groups.end_shares_of(name)
            if self._erased(name):
                return
        raise StoreUnavailable(f"new shares with {name} are being made: try again")

    def _erased(self, name: str) -> bool:
        """Delete a user that has no shares; False if one was made meanwhile."""
        with explain(self._connections.address), self._connections.direct() as connection, connection.transaction():
            # As the owner of the tables: the journal of a user that goes is deleted too.
            connection.execute("SELECT set_config('search_path', 'triskele, public', true)")
            connection.execute(
                "SELECT set_config('triskele.owner', %s, true), set_config('triskele.accounts', 'on', true)", [name]
            )
            # Who shares with the user holds its row, and who it shares with waits for its lock.
            connection.execute(LOCK_OWNER, [name])
            connection.execute("SELECT 1 FROM users WHERE name = %s FOR UPDATE", [name])
            if connection.execute(_LEFT, {"name": name}).fetchone() is not None:
                return False
            connection.execute("ALTER TABLE journal DISABLE TRIGGER journal_keeps_lines")
            for table in (*DERIVED, *reversed(OWNED)):
                connection.execute(f"DELETE FROM {table} WHERE owner = %s", [name])
            connection.execute("ALTER TABLE journal ENABLE TRIGGER journal_keeps_lines")
            connection.execute("DELETE FROM owners WHERE owner = %s", [name])
            connection.execute("DELETE FROM users WHERE name = %s", [name])
        return True

    def create_key(
        self, user: str, *, label: str = "", scopes: tuple[str, ...] = SCOPES[:2], expires_at: datetime | None = None
    ) -> tuple[str, AccessKey]:
        """A new key, returned only here, and its stored part."""
        if expires_at is not None and expires_at <= timestamps.now():
            raise BadInput("the key would have expired already: name a later time")
        owner = self.user(user)
        chosen = check_scopes(scopes)
        if "admin" in chosen and not owner.is_admin:
            raise BadInput(f"{user} is not an admin: their keys cannot have the scope admin")
        text, id, hashed = new_key()
        key = AccessKey(
            id=id,
            user=user,
            label=check_name(label, "the label", 100),
            scopes=chosen,
            created_at=timestamps.now(),
            expires_at=expires_at,
        )
        with self._connections.accounts() as connection:
            connection.execute(
                "INSERT INTO keys (id, user_name, label, hash, scopes, created_at, expires_at)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s)",
                [id, user, key.label, hashed, " ".join(chosen), _number(key.created_at), _number(expires_at)],
            )
        return text, key

    def keys(self, user: str | None = None) -> list[AccessKey]:
        """The keys of a user, or of all, oldest first."""
        condition, bindings = ("WHERE user_name = %s", [user]) if user is not None else ("", [])
        sql = f"SELECT {_KEY} FROM keys {condition} ORDER BY created_at, id"
        return [_key(row) for row in self._connections.account_rows(sql, bindings)]

    def revoke_key(self, id: str) -> AccessKey:
        """End a key at once."""
        with self._connections.accounts() as connection:
            sql = f"UPDATE keys SET revoked_at = coalesce(revoked_at, %s) WHERE id = %s RETURNING {_KEY}"
            row = connection.execute(sql, [_number(timestamps.now()), id]).fetchone()
        if row is None:
            raise NotFound(f"there is no key {id[:20]}")
        return _key(row)

    def verify(self, key: str) -> VerifiedKey | None:
        """The key and its user; None if it is unknown, wrong, expired or revoked."""
        id = key_id(key)
        if id is None:
            return None
        sql = f"SELECT hash, {_KEY}, {_USER} FROM keys JOIN users ON users.name = keys.user_name WHERE keys.id = %s"
        rows = self._connections.account_rows(sql, [id])
        row = rows[0] if rows else None
        if not is_proven(key, None if row is None else bytes(row[0])) or row is None:
            return None
        return _standing(row[1:])

    def open_session(self, key: AccessKey, lasts: timedelta) -> tuple[str, datetime]:
        """A new session of a key, returned only here, and its end; beyond a limit the oldest sessions of a key end."""
        now, text = timestamps.now(), secrets.token_urlsafe(32)
        ends = min(now + lasts, key.expires_at or now + lasts)
        with self._connections.accounts() as connection:
            connection.execute("DELETE FROM sessions WHERE expires_at <= %s", [_number(now)])
            connection.execute(
                "DELETE FROM sessions WHERE hash IN"
                " (SELECT hash FROM sessions WHERE key = %s ORDER BY created_at DESC OFFSET %s)",
                [key.id, _MOST_SESSIONS - 1],
            )
            connection.execute(
                "INSERT INTO sessions (hash, key, created_at, expires_at) VALUES (%s, %s, %s, %s)",
                [_session(text), key.id, _number(now), _number(ends)],
            )
        return text, ends

    def session(self, text: str) -> VerifiedKey | None:
        """The key and the user of a session; None if it has ended, or its key has."""
        sql = (
            f"SELECT {_KEY}, {_USER} FROM sessions JOIN keys ON keys.id = sessions.key"
            " JOIN users ON users.name = keys.user_name WHERE sessions.hash = %s AND sessions.expires_at > %s"
        )
        rows = self._connections.account_rows(sql, [_session(text), _number(timestamps.now())])
        return _standing(rows[0]) if rows else None

    def end_session(self, text: str) -> None:
        """End a session at once."""
        with self._connections.accounts() as connection:
            connection.execute("DELETE FROM sessions WHERE hash = %s", [_session(text)])

    def note(self, *, user: str, key: str, operation: str, target: str, status: int, address: str) -> None:
        """Add a line to the audit log."""
        with self._connections.accounts() as connection:
            connection.execute(
                "INSERT INTO audit (at, user_name, key, operation, target, status, address)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s)",
                [_number(timestamps.now()), user, key, operation, target, status, address],
            )

    def audit(self, *, user: str | None = None, before: int = 2**62, limit: int = 100) -> list[AuditEntry]:
        """The newest lines of the audit log, newest first."""
        own, bindings = ("AND user_name = %s", [user]) if user is not None else ("", [])
        sql = f"SELECT {_AUDIT} FROM audit WHERE entry < %s {own} ORDER BY entry DESC LIMIT %s"
        rows = self._connections.account_rows(sql, [before, *bindings, limit])
        return [AuditEntry(number, timestamps.from_micros(at), *rest) for number, at, *rest in rows]


def _standing(row: Any) -> VerifiedKey | None:
    """A key with its user; None if it has expired or was revoked."""
    key = _key(row[:7])
    is_over = key.expires_at is not None and key.expires_at <= timestamps.now()
    return None if is_over or key.revoked_at is not None else VerifiedKey(key, _user(row[7:]))


def _session(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()


def _number(at: datetime | None) -> int | None:
    return None if at is None else timestamps.to_micros(at)


def _user(row: Any) -> User:
    name, is_admin, created_at, memories, requests, tokens = row
    return User(name, is_admin, timestamps.from_micros(created_at), Quotas(memories, requests, tokens))


def _key(row: Any) -> AccessKey:
    id, user, label, scopes, created_at, expires_at, revoked_at = row
    return AccessKey(
        id=id,
        user=user,
        label=label,
        scopes=tuple(scopes.split()),
        created_at=timestamps.from_micros(created_at),
        expires_at=None if expires_at is None else timestamps.from_micros(expires_at),
        revoked_at=None if revoked_at is None else timestamps.from_micros(revoked_at),
    )
