"""The operations of administration: who I am, users, keys and the audit log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from triskele import validation
from triskele.errors import NotFound
from triskele.serving.http.bodies import Limit, Name, Strict, When
from triskele.serving.http.operations import Call, Operation
from triskele.serving.http.tenants import Tenants, quotas_in_force
from triskele.stores.access_keys import ADMIN, SCOPES, AccessKey, AuditEntry, Quotas, User

_Count = Annotated[int, Field(ge=0, le=10**12, description="null: the server's setting; 0: no limit.")]


class UserBody(Strict):
    """A user to create."""

    name: Annotated[str, Field(max_length=64)]
    is_admin: bool = False
    memories: _Count | None = None
    requests_per_minute: _Count | None = None
    model_tokens_per_day: _Count | None = None


class KeyBody(Strict):
    """A key to create; it is shown once."""

    user: Annotated[str, Field(max_length=64)]
    label: Annotated[str, Field(max_length=100)] = ""
    scopes: Annotated[list[Literal["read", "write", "reveal", "admin"]], Field(min_length=1, max_length=4)]
    expires_at: When | None = None


class KeysQuery(Strict):
    """Whose keys."""

    user: Annotated[Name | None, Field(description="Left out: all users.")] = None


class AuditQuery(Strict):
    """Which lines of the audit log."""

    user: Name | None = None
    before: Annotated[int, Field(ge=1, le=2**62, description="Only lines with a lower number.")] = 2**62
    limit: Limit = 100


@dataclass(frozen=True, slots=True)
class NewKeyReply:
    """A new key; it is not shown again."""

    key: str
    details: AccessKey


@dataclass(frozen=True, slots=True)
class MeReply:
    """The user and the key of this request, what the key allows, and the quotas in force (0: no limit)."""

    user: str | None
    key: str
    scopes: tuple[str, ...]
    quotas: dict[str, int]


def me(call: Call) -> MeReply:
    """Who I am."""
    principal, policy = call.principal, call.context.policy
    quotas = quotas_in_force(principal.quotas, policy.limits) if isinstance(policy, Tenants) else {}
    return MeReply(principal.user, principal.key, tuple(each for each in SCOPES if each in principal.scopes), quotas)


def users(call: Call) -> list[User]:
    """All users."""
    return _tenants(call).accounts.users()


def create_user(call: Call) -> User:
    """Add a user."""
    asked = call.body
    quotas = Quotas(asked.memories, asked.requests_per_minute, asked.model_tokens_per_day)
    return _tenants(call).accounts.create_user(asked.name, is_admin=asked.is_admin, quotas=quotas)


def keys(call: Call) -> list[AccessKey]:
    """The keys of a user, or of all."""
    return _tenants(call).accounts.keys(call.query.user)


def create_key(call: Call) -> NewKeyReply:
    """Make a key."""
    asked = call.body
    text, made = _tenants(call).accounts.create_key(
        asked.user,
        label=asked.label,
        scopes=tuple(asked.scopes),
        expires_at=validation.check_when(asked.expires_at),
    )
    return NewKeyReply(text, made)


def revoke_key(call: Call) -> AccessKey:
    """End a key at once."""
    return _tenants(call).accounts.revoke_key(call.path["id"])


def audit(call: Call) -> list[AuditEntry]:
    """The newest lines of the audit log."""
    asked = call.query
    return _tenants(call).accounts.audit(user=asked.user, before=asked.before, limit=asked.limit)


def _tenants(call: Call) -> Tenants:
    if not isinstance(call.context.policy, Tenants):
        raise NotFound("this memory has one owner and no users: users need a Postgres store")
    return call.context.policy


_ABOUT, _KEYS = "users and keys", "/v1/keys"

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        name="me", method="GET", path="/v1/me", summary="Who I am, and what my key allows", run=me, reply=MeReply,
        tag=_ABOUT,
    ),
    Operation(
        name="users", method="GET", path="/v1/users", summary="All users", run=users, reply=list[User], tag=_ABOUT,
        scope=ADMIN, errors=(404,),
    ),
    Operation(
        name="create_user", method="POST", path="/v1/users", summary="Add a user", run=create_user, reply=User,
        tag=_ABOUT, scope=ADMIN, body=UserBody, errors=(404, 409),
    ),
    Operation(
        name="keys", method="GET", path=_KEYS, summary="List the keys of one user, or of all users", run=keys,
        reply=list[AccessKey], tag=_ABOUT, scope=ADMIN, query=KeysQuery, errors=(404,),
    ),
    Operation(
        name="create_key", method="POST", path=_KEYS, summary="Create a key; it is shown only once", run=create_key,
        reply=NewKeyReply, tag=_ABOUT, scope=ADMIN, body=KeyBody, errors=(404,),
    ),
    Operation(
        name="revoke_key", method="DELETE", path=f"{_KEYS}/{{id}}", summary="Revoke a key at once", run=revoke_key,
        reply=AccessKey, tag=_ABOUT, scope=ADMIN, errors=(404,),
    ),
    Operation(
        name="audit", method="GET", path="/v1/audit", summary="The newest lines of the audit log, newest first",
        run=audit, reply=list[AuditEntry], tag=_ABOUT, scope=ADMIN, query=AuditQuery, errors=(404,),
    ),
)  # fmt: skip
