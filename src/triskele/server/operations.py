"""The operations of a server besides memories: its state, users and keys, groups, and syncing laptops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from triskele import __version__, validation
from triskele.edge.http.access import ADMIN, SCOPES, WRITE, AccessPolicy, Principal, Quotas, check_expiry
from triskele.edge.http.operations import Operation
from triskele.engine.local import LocalEngine
from triskele.replies.rooms import UserGroup
from triskele.requests import Moment
from triskele.server import sync_receiver
from triskele.server.keys import AccessKey, AuditEntry, User
from triskele.server.sync_receiver import SyncItem
from triskele.server.tenants import Tenants, quotas_in_force
from triskele.sync.states import PulledPage, PushReply

if TYPE_CHECKING:
    from triskele.server.accounts import Accounts

ScopeName = Literal["read", "write", "reveal", "admin"]


@dataclass(frozen=True, slots=True)
class Ready:
    """Whether requests can be served now."""

    status: str
    version: str


@dataclass(frozen=True, slots=True)
class NewKey:
    """A new key; it is not shown again."""

    key: str
    details: AccessKey


@dataclass(frozen=True, slots=True)
class Me:
    """The user and the key of a request, what the key allows, and the quotas in force (0: no limit)."""

    user: str | None
    key: str
    scopes: tuple[str, ...]
    quotas: dict[str, int]


@dataclass(frozen=True, slots=True)
class Deleted:
    """What was deleted."""

    name: str


class Process:
    """The process that serves, and what it knows of the sender of a request."""

    def __init__(self, policy: AccessPolicy, principal: Principal, engine: Callable[[], LocalEngine]) -> None:
        self._policy = policy
        self._principal = principal
        self._engine = engine

    def health(self) -> Ready:
        """Say that the process answers."""
        return Ready("ok", __version__)

    def ready(self) -> Ready:
        """Say that the store can be read."""
        self._engine().upkeep.position()
        return Ready("ready", __version__)

    def me(self) -> Me:
        """Show who sends the request, and what the key allows."""
        principal, policy = self._principal, self._policy
        quotas = quotas_in_force(principal.quotas, policy.limits) if isinstance(policy, Tenants) else {}
        return Me(principal.user, principal.key, tuple(each for each in SCOPES if each in principal.scopes), quotas)


class Administration:
    """The users of a server, their keys and groups, and the audit log."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    def users(self) -> list[User]:
        """List all users."""
        return self._accounts.users()

    def create_user(
        self,
        name: str,
        *,
        is_admin: bool = False,
        memories: int | None = None,
        requests_per_minute: int | None = None,
        model_tokens_per_day: int | None = None,
    ) -> User:
        """Add a user; quotas that are null are those of the server, 0 is no limit."""
        quotas = Quotas(memories, requests_per_minute, model_tokens_per_day)
        return self._accounts.create_user(name, is_admin=is_admin, quotas=quotas)

    def keys(self, user: str | None = None) -> list[AccessKey]:
        """List the keys of one user, or of all."""
        return self._accounts.keys(user)

    def create_key(
        self,
        user: str,
        scopes: Sequence[ScopeName],
        *,
        label: str = "",
        days: int | None = None,
        expires_at: Moment | None = None,
    ) -> NewKey:
        """Create a key; it is shown only once."""
        ends = check_expiry(days, expires_at)
        return NewKey(*self._accounts.create_key(user, label=label, scopes=tuple(scopes), expires_at=ends))

    def revoke_key(self, id: str) -> AccessKey:
        """Revoke a key at once."""
        return self._accounts.revoke_key(id)

    def audit(self, *, user: str | None = None, before: int = 2**62, limit: int = 100) -> list[AuditEntry]:
        """List the newest lines of the audit log, newest first; only those with a lower number than `before`."""
        return self._accounts.audit(user=user, before=before, limit=validation.check_limit(limit))

    def create_group(self, name: str) -> UserGroup:
        """Add a group without members."""
        return self._accounts.groups.create(name)

    def delete_group(self, name: str) -> Deleted:
        """Remove a group, and end all shares with it."""
        self._accounts.groups.delete(name)
        return Deleted(name)

    def add_member(self, name: str, user: str) -> UserGroup:
        """Add a user to a group."""
        return self._accounts.groups.add(name, user)

    def remove_member(self, name: str, user: str) -> UserGroup:
        """Remove a user from a group."""
        return self._accounts.groups.remove(name, user)


class SyncRoom:
    """The memory of a server that laptops sync with."""

    def __init__(self, engine: LocalEngine) -> None:
        self._engine = engine

    def push(self, items: Sequence[SyncItem], *, actor: str = "", user: str = "") -> PushReply:
        """Apply changes of a laptop, except those made on a stale base."""
        return sync_receiver.push(self._engine, items, actor=actor, user=user)

    def pull(self, *, cursor: str = "", limit: int = 200, user: str = "") -> PulledPage:
        """List what changed since a cursor: memories as they are now, and ids of erased ones."""
        return sync_receiver.pull(self._engine, cursor, limit=limit, user=user)


_KEYS, _GROUP = "/v1/keys", "/v1/groups/{name}"
_MEMBER = f"{_GROUP}/members/{{user}}"

OPERATIONS: Sequence[Operation] = (
    Operation(Process.health, "GET", "/v1/health"),
    Operation(Process.ready, "GET", "/v1/ready"),
    Operation(Process.me, "GET", "/v1/me"),
    Operation(Administration.users, "GET", "/v1/users", ADMIN, command="users list"),
    Operation(Administration.create_user, "POST", "/v1/users", ADMIN, command="users create"),
    Operation(Administration.keys, "GET", _KEYS, ADMIN, command="keys list"),
    Operation(Administration.create_key, "POST", _KEYS, ADMIN, command="keys create"),
    Operation(Administration.revoke_key, "DELETE", f"{_KEYS}/{{id}}", ADMIN, command="keys revoke"),
    Operation(Administration.audit, "GET", "/v1/audit", ADMIN),
    Operation(Administration.create_group, "POST", "/v1/groups", ADMIN, command="shares groups create"),
    Operation(Administration.delete_group, "DELETE", _GROUP, ADMIN, command="shares groups delete"),
    Operation(Administration.add_member, "PUT", _MEMBER, ADMIN, command="shares groups add"),
    Operation(Administration.remove_member, "DELETE", _MEMBER, ADMIN, command="shares groups remove"),
    Operation(SyncRoom.push, "POST", "/v1/sync", WRITE, command="sync"),
    Operation(SyncRoom.pull, "GET", "/v1/sync", command="sync"),
)
BY_METHOD = {operation.method: operation for operation in OPERATIONS}
