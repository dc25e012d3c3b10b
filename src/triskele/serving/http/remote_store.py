"""The store of a memory on a server, as far as commands and tools of another machine read it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

from triskele.serving.http import replies
from triskele.stores.protocols import KnownPlace, UseCount
from triskele.stores.sharing import Access, GranteeKind, ReceivedMemory, Share, Subject, UserGroup
from triskele.types import USER, JournalEntry, Link, LinkKind, Memory
from triskele.validation import MAX_LIMIT

if TYPE_CHECKING:
    from triskele.serving.http.client import RemoteMemory

_SHORTEST = 8


class RemoteStore:
    """The few reads of a store that commands and tools make; the server does the counts and checks."""

    def __init__(self, memory: RemoteMemory) -> None:
        self._memory = memory
        self.usage = self
        self.shares = RemoteShares(memory)
        self.groups = RemoteGroups(memory)

    def __getattr__(self, name: str) -> NoReturn:
        self._memory.__getattr__(name)

    def memories(self, ids: Iterable[str]) -> dict[str, Memory]:
        """The current versions of some memories."""
        return {each.id: replies.to_memory(each) for each in self._memory.lookup(ids) if not each.forgotten}

    def shorten(self, ids: Iterable[str]) -> dict[str, str]:
        """How much of each id is enough to name it; of an erased memory the beginning."""
        wanted = list(ids)
        found = self._memory.in_batches(dict[str, str], "/v1/shorten", wanted)
        return {id: id[:_SHORTEST] for id in wanted} | {id: short for some in found for id, short in some.items()}

    def versions(self, ids: Sequence[str]) -> Iterator[tuple[int, Memory]]:
        """Every version of some memories; rows are the server's own."""
        for some in self._memory.in_batches(list[Memory], "/v1/versions", ids):
            yield from ((0, each) for each in some)

    def history(self, id: str) -> list[Memory]:
        """Every version of a memory, oldest first."""
        return self._memory.versions(id)

    def links(self, ids: Iterable[str], *, kind: LinkKind | None = None) -> list[Link]:
        """The links of some memories, in either direction."""
        found = [link for id in ids for link in self._memory.links(id)]
        return [link for link in found if kind is None or link.kind is kind]

    def journal(self, *, batch: str, limit: int) -> list[JournalEntry]:
        """The entries of a batch, oldest first."""
        return self.newest_entries(limit=min(limit, MAX_LIMIT), batch=batch)[::-1]

    def newest_entries(self, *, limit: int, batch: str | None = None) -> list[JournalEntry]:
        """The newest entries of the journal, newest first."""
        params: dict[str, Any] = {"limit": limit} | ({} if batch is None else {"batch": batch})
        return self._memory.asked(list[JournalEntry], "GET", "/v1/journal", params=params)

    # Folders are of this machine: a project goes by the name of its folder.

    def places(self) -> list[KnownPlace]:
        """No folders."""
        return []

    def claim(self, _: Sequence[str], choose: Callable[[Sequence[KnownPlace]], str]) -> str:
        """The project name of a folder: its own name."""
        return choose([])

    def counts(self, _: Iterable[str]) -> dict[str, UseCount]:
        """No counts of use."""
        return {}

    def echoed(self, _: Iterable[str]) -> dict[str, list[str]]:
        """Nothing: the server refuses what repeats a memory."""
        return {}

    def put(self, _: Callable[[], None]) -> None:
        """Leave nothing to write."""

    def flush(self) -> None:
        """Nothing to write."""


class RemoteShares:
    """The shares of a user of a server; the server takes the actor from the client in the request headers."""

    def __init__(self, memory: RemoteMemory) -> None:
        self._memory = memory

    def share(
        self,
        subject: Subject,
        target: str,
        grantee_kind: GranteeKind,
        grantee: str,
        *,
        access: Access = "read",
        actor: str = USER,  # noqa: ARG002
    ) -> Share:
        """Share a memory or a tag; a share that exists gets this access."""
        body = {subject: target, grantee_kind: grantee, "access": access}
        return self._memory.asked(Share, "POST", "/v1/shares", json=body)

    def unshare(
        self,
        subject: Subject,
        target: str,
        grantee_kind: GranteeKind,
        grantee: str,
        *,
        actor: str = USER,  # noqa: ARG002
    ) -> Share:
        """End a share; memories that only it shared leave the reader at once."""
        params = {subject: target, grantee_kind: grantee}
        return self._memory.asked(Share, "DELETE", "/v1/shares", params=params)

    def given(self) -> list[Share]:
        """What this user shares, oldest first."""
        return list(self._all().given)

    def received(self) -> list[ReceivedMemory]:
        """The memories that others share with this user, by owner and id."""
        return list(self._all().received)

    def groups(self) -> list[UserGroup]:
        """All groups with their members, by name."""
        return self._memory.asked(list[UserGroup], "GET", "/v1/groups")

    def trust(self, owner: str) -> None:
        """Let agents be given unasked what this user shares."""
        self._memory.asked(replies.TrustReply, "PUT", f"/v1/shares/trusted/{quote(owner, safe='')}")

    def distrust(self, owner: str) -> None:
        """Take the trust back: agents find what this user shares only when they search."""
        self._memory.asked(replies.TrustReply, "DELETE", f"/v1/shares/trusted/{quote(owner, safe='')}")

    def trusted(self) -> list[str]:
        """The users whose memories agents are given unasked, by name."""
        return list(self._all().trusted)

    def _all(self) -> replies.SharesReply:
        return self._memory.asked(replies.SharesReply, "GET", "/v1/shares")


class RemoteGroups:
    """The groups of a server, changed by its admins."""

    def __init__(self, memory: RemoteMemory) -> None:
        self._memory = memory

    def create(self, name: str) -> UserGroup:
        """Add a group without members."""
        return self._memory.asked(UserGroup, "POST", "/v1/groups", json={"name": name})

    def delete(self, name: str) -> None:
        """Remove a group, and end all shares with it."""
        self._memory.asked(replies.DeletedReply, "DELETE", f"/v1/groups/{quote(name, safe='')}")

    def add(self, name: str, user: str) -> UserGroup:
        """Add a user to a group; what is shared with the group is shared with the user at once."""
        return self._memory.asked(UserGroup, "PUT", _member(name, user))

    def remove(self, name: str, user: str) -> UserGroup:
        """Remove a user from a group; memories that only the group shared leave the user at once."""
        return self._memory.asked(UserGroup, "DELETE", _member(name, user))


def _member(name: str, user: str) -> str:
    return f"/v1/groups/{quote(name, safe='')}/members/{quote(user, safe='')}"
