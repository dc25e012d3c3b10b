"""Shares of a memory on a server: what they give, and what still gives access after their end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from triskele.errors import BadInput, Conflict
from triskele.replies.rooms import (
    Access,
    EndedShare,
    GranteeKind,
    NewShare,
    RemainingShare,
    Share,
    Shares,
    Subject,
    UserGroup,
)
from triskele.store.sharing import ShareStore
from triskele.types import Memory, Sensitivity, is_client
from triskele.validation import clean_tag

if TYPE_CHECKING:
    from triskele.engine.local import LocalEngine

_PAGE = 1000


class LocalSharing:
    """The shares of one user of a store with users."""

    def __init__(self, engine: LocalEngine) -> None:
        self._engine = engine

    def shares(self) -> Shares:
        """List what the user shares and receives."""
        store = self._store()
        return Shares(tuple(store.given()), tuple(store.received()), tuple(store.trusted()))

    def share(
        self, subject: Subject, target: str, grantee_kind: GranteeKind, grantee: str, *, access: Access = "read"
    ) -> NewShare:
        """Share a memory or a tag with a user or a group; a share that exists gets this access."""
        name = self._target(subject, target)
        share = self._store().share(subject, name, grantee_kind, grantee, access=access, actor=self._engine.actor)
        if subject == "memory":
            return NewShare(share)
        memories = self._own_tagged([name])
        open_ones = sum(memory.sensitivity is Sensitivity.OPEN for memory in memories)
        return NewShare(share, open_ones, len(memories) - open_ones)

    def unshare(self, subject: Subject, target: str, grantee_kind: GranteeKind, grantee: str) -> EndedShare:
        """End a share, and list the shares that still give its readers access."""
        name = self._target(subject, target)
        ended = self._store().unshare(subject, name, grantee_kind, grantee, actor=self._engine.actor)
        return EndedShare(ended, tuple(self._remaining(ended)))

    def trust(self, user: str, *, trusted: bool = True) -> tuple[str, ...]:
        """Let agents be given what a user shares, or stop that; an agent may not trust anybody."""
        store = self._store()
        if not trusted:
            store.distrust(user)
        elif is_client(self._engine.actor):
            raise Conflict("only the user trusts another one: `triskele shares trust NAME`")
        else:
            store.trust(user)
        return tuple(store.trusted())

    def groups(self) -> list[UserGroup]:
        """List the groups with their members."""
        return self._store().groups()

    def _store(self) -> ShareStore:
        shares = self._engine.store.shares
        if shares is None:
            raise BadInput("this memory belongs to one person: sharing needs a server with a Postgres store")
        return shares

    def _target(self, subject: Subject, target: str) -> str:
        return self._engine.resolve(target) if subject == "memory" else clean_tag(target)

    def _own_tagged(self, tags: Sequence[str], *, open_only: bool = False) -> list[Memory]:
        """The owner's memories with all these tags; those that others share may come between them."""
        scope = replace(self._engine.scope(all_projects=True, tags=tags), any_time=True)
        if open_only:
            scope = replace(scope, sensitivities=frozenset({Sensitivity.OPEN}))
        memories: list[Memory] = []
        while page := self._engine.store.browse(scope, limit=_PAGE, offset=len(memories)):
            memories += page
        return [memory for memory in memories if not memory.shared_by]

    def _remaining(self, ended: Share) -> Iterable[RemainingShare]:
        """The shares through which readers of an ended one still have access."""
        store = self._store()
        members = {group.name: group.members for group in store.groups()}
        for share in store.given():
            # An owner may be in the group too, and reads anyway.
            common = (_readers(share, members) & _readers(ended, members)) - {ended.owner}
            if common and self._overlap(share, ended):
                yield RemainingShare(share, tuple(sorted(common)))

    def _overlap(self, share: Share, ended: Share) -> bool:
        """Whether some memory belongs to both shares."""
        if (share.subject, share.target) == (ended.subject, ended.target):
            return True
        ids = [each.target for each in (share, ended) if each.subject == "memory"]
        tags = [each.target for each in (share, ended) if each.subject == "tag"]
        if len(ids) == 2:
            return False
        if ids:
            memory = self._engine.store.memories(ids).get(ids[0])
            return memory is not None and set(tags) <= set(memory.tags)
        return bool(self._own_tagged(tags, open_only=True))


def _readers(share: Share, members: Mapping[str, Sequence[str]]) -> set[str]:
    return {share.grantee} if share.grantee_kind == "user" else set(members.get(share.grantee, ()))
