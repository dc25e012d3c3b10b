"""The operations of sharing: shares given and received, and groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from triskele.errors import Conflict, NotFound
from triskele.serving.http.bodies import Label, Reference, Strict
from triskele.serving.http.operations import Call, Operation
from triskele.serving.http.replies import DeletedReply, SharesReply, TrustReply
from triskele.serving.http.tenants import Tenants
from triskele.stores.access_keys import ADMIN, WRITE
from triskele.stores.sharing import (
    GranteeKind,
    Share,
    ShareStore,
    Subject,
    UserGroup,
    checked,
    shares_of,
)

if TYPE_CHECKING:
    from triskele.stores.postgres.shares import Groups

_User = Annotated[str, Field(max_length=64, description="The name of a user.")]
_Group = Annotated[str, Field(max_length=64, description="The name of a group.")]


class UnshareQuery(Strict):
    """A share: of a memory or a tag, with a user or a group."""

    memory: Reference | None = None
    tag: Label | None = None
    user: _User | None = None
    group: _Group | None = None


class ShareBody(UnshareQuery):
    """What to share, and with whom; a share that exists gets this access."""

    access: Literal["read", "write"] = "read"


class GroupBody(Strict):
    """A group to create."""

    name: _Group


def shares(call: Call) -> SharesReply:
    """What I share, and what others share with me."""
    found = _shares(call)
    return SharesReply(tuple(found.given()), tuple(found.received()), tuple(found.trusted()))


def share(call: Call) -> Share:
    """Share a memory or a tag."""
    return _shares(call).share(*_asked(call, call.body), access=call.body.access, actor=call.engine.actor)


def unshare(call: Call) -> Share:
    """End a share."""
    return _shares(call).unshare(*_asked(call, call.query), actor=call.engine.actor)


def trust(call: Call) -> TrustReply:
    """Let agents be given unasked what a user shares; an agent may not decide that."""
    if call.client:
        raise Conflict("only the user trusts another one: `triskele shares trust NAME`")
    _shares(call).trust(call.path["user"])
    return TrustReply(tuple(_shares(call).trusted()))


def distrust(call: Call) -> TrustReply:
    """Take the trust back."""
    _shares(call).distrust(call.path["user"])
    return TrustReply(tuple(_shares(call).trusted()))


def groups(call: Call) -> list[UserGroup]:
    """All groups."""
    return _shares(call).groups()


def create_group(call: Call) -> UserGroup:
    """Add a group."""
    return _groups(call).create(call.body.name)


def delete_group(call: Call) -> DeletedReply:
    """Remove a group."""
    _groups(call).delete(call.path["name"])
    return DeletedReply(call.path["name"])


def add_member(call: Call) -> UserGroup:
    """Add a user to a group."""
    return _groups(call).add(call.path["name"], call.path["user"])


def remove_member(call: Call) -> UserGroup:
    """Take a user out of a group."""
    return _groups(call).remove(call.path["name"], call.path["user"])


def _asked(call: Call, asked: UnshareQuery) -> tuple[Subject, str, GranteeKind, str]:
    subject, target, kind, grantee = checked(asked.memory, asked.tag, asked.user, asked.group)
    return subject, call.engine.resolve(target) if subject == "memory" else target, kind, grantee


def _shares(call: Call) -> ShareStore:
    return shares_of(call.engine.store.shares)


def _groups(call: Call) -> Groups:
    if not isinstance(call.context.policy, Tenants):
        raise NotFound("this memory has one owner and no groups: groups need a Postgres store")
    return call.context.policy.accounts.groups


_ABOUT, _SHARES, _GROUPS = "shares", "/v1/shares", "/v1/groups"
_TRUSTED = f"{_SHARES}/trusted/{{user}}"
_MEMBER = f"{_GROUPS}/{{name}}/members/{{user}}"

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        name="shares", method="GET", path=_SHARES, summary="What I share, and what others share with me", run=shares,
        reply=SharesReply, tag=_ABOUT,
    ),
    Operation(
        name="share", method="POST", path=_SHARES, summary="Share a memory or a tag with a user or a group", run=share,
        reply=Share, tag=_ABOUT, scope=WRITE, body=ShareBody, errors=(404, 409),
    ),
    Operation(
        name="unshare", method="DELETE", path=_SHARES, summary="End a share at once", run=unshare, reply=Share,
        tag=_ABOUT, scope=WRITE, query=UnshareQuery, errors=(404, 409),
    ),
    Operation(
        name="trust", method="PUT", path=_TRUSTED, summary="Let agents be given unasked what a user shares", run=trust,
        reply=TrustReply, tag=_ABOUT, scope=WRITE, errors=(404, 409),
    ),
    Operation(
        name="distrust", method="DELETE", path=_TRUSTED, summary="Let agents find what a user shares only by search",
        run=distrust, reply=TrustReply, tag=_ABOUT, scope=WRITE, errors=(404,),
    ),
    Operation(
        name="groups", method="GET", path=_GROUPS, summary="All groups with their members", run=groups,
        reply=list[UserGroup], tag=_ABOUT,
    ),
    Operation(
        name="create_group", method="POST", path=_GROUPS, summary="Add a group", run=create_group, reply=UserGroup,
        tag=_ABOUT, scope=ADMIN, body=GroupBody, errors=(404, 409),
    ),
    Operation(
        name="delete_group", method="DELETE", path=f"{_GROUPS}/{{name}}", summary="Remove a group and its shares",
        run=delete_group, reply=DeletedReply, tag=_ABOUT, scope=ADMIN, errors=(404,),
    ),
    Operation(
        name="add_member", method="PUT", path=_MEMBER, summary="Add a user to a group", run=add_member,
        reply=UserGroup, tag=_ABOUT, scope=ADMIN, errors=(404,),
    ),
    Operation(
        name="remove_member", method="DELETE", path=_MEMBER, summary="Take a user out of a group", run=remove_member,
        reply=UserGroup, tag=_ABOUT, scope=ADMIN, errors=(404,),
    ),
)  # fmt: skip
