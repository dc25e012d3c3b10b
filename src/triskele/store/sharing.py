"""Shares: a memory or a tag of one user, readable or writable for another user or a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from triskele.replies.rooms import Access, GranteeKind, ReceivedMemory, Share, Subject, UserGroup
from triskele.types import USER, Memory


class ShareStore(Protocol):
    """The shares that one user gives and receives."""

    def share(
        self,
        subject: Subject,
        target: str,
        grantee_kind: GranteeKind,
        grantee: str,
        *,
        access: Access = "read",
        actor: str = USER,
    ) -> Share:
        """Share a memory, by its whole id, or a tag; a share that exists gets this access."""

    def unshare(
        self, subject: Subject, target: str, grantee_kind: GranteeKind, grantee: str, *, actor: str = USER
    ) -> Share:
        """End a share; memories that only it shared leave the reader at once."""

    def given(self) -> list[Share]:
        """What this user shares, oldest first."""

    def received(self) -> list[ReceivedMemory]:
        """The memories that others share with this user, by owner and id."""

    def groups(self) -> list[UserGroup]:
        """All groups with their members, by name."""

    def trust(self, owner: str) -> None:
        """Let agents be given unasked what this user shares."""

    def distrust(self, owner: str) -> None:
        """Take the trust back: agents find what this user shares only when they search."""

    def trusted(self) -> list[str]:
        """The users whose memories agents are given unasked, by name."""


class OwnerShares(ShareStore, Protocol):
    """The same where the store is, with what decides which memories agents are given unasked."""

    def writers(self, memories: Sequence[Memory]) -> dict[str, str]:
        """The other users who wrote the texts of some memories, by the id of the memory; own texts have none."""
