"""What a share reaches: the memories it gives now, and other shares that still give them after its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from triskele.stores.sharing import Share, ShareStore
from triskele.types import Memory, Sensitivity
from triskele.validation import MAX_LIMIT

if TYPE_CHECKING:
    from triskele.engine import Engine

_PAGE = 50
MOST_COUNTED = 10 * MAX_LIMIT


@dataclass(frozen=True, slots=True)
class Extent:
    """How many memories a share gives now, and how many private or secret ones it leaves out.

    Those of a tag are counted up to 2,000 memories, and `is_complete` says whether these are all.
    """

    memories: int = 1
    left_out: int = 0
    is_complete: bool = True


def extent(engine: Engine, share: Share) -> Extent:
    """How far a share reaches now."""
    if share.subject == "memory":
        return Extent()
    tagged: list[Memory] = []
    for offset in range(0, MOST_COUNTED, MAX_LIMIT):
        page = engine.browse(tags=[share.target], all_projects=True, limit=MAX_LIMIT, offset=offset)
        tagged += [memory for memory in page if not memory.shared_by]
        if len(page) < MAX_LIMIT:
            break
    open_ones = sum(memory.sensitivity is Sensitivity.OPEN for memory in tagged)
    return Extent(open_ones, len(tagged) - open_ones, is_complete=len(page) < MAX_LIMIT)


@dataclass(frozen=True, slots=True)
class RemainingShare:
    """A share through which some readers of an ended share still read, all or part of what it gave."""

    share: Share
    readers: tuple[str, ...]

    @property
    def said(self) -> str:
        """Who still reads, and through what."""
        return f"{', '.join(self.readers)} through {described(self.share)}"


def described(share: Share) -> str:
    """A share in one line."""
    return f"{share.subject} {share.target} with {share.grantee_kind} {share.grantee} ({share.access})"


def remaining(engine: Engine, shares: ShareStore, ended: Share) -> list[RemainingShare]:
    """The shares through which readers of an ended one still have access."""
    members = {group.name: group.members for group in shares.groups()}
    found = []
    for share in shares.given():
        # An owner may be in the group too, and reads anyway.
        common = (_readers(share, members) & _readers(ended, members)) - {ended.owner}
        if common and _is_about_the_same(engine, share, ended):
            found.append(RemainingShare(share, tuple(sorted(common))))
    return found


def _readers(share: Share, members: Mapping[str, Iterable[str]]) -> set[str]:
    return {share.grantee} if share.grantee_kind == "user" else set(members.get(share.grantee, ()))


def _is_about_the_same(engine: Engine, share: Share, ended: Share) -> bool:
    """Whether some memory belongs to both shares."""
    if (share.subject, share.target) == (ended.subject, ended.target):
        return True
    ids = [each.target for each in (share, ended) if each.subject == "memory"]
    tags = [each.target for each in (share, ended) if each.subject == "tag"]
    if len(ids) == 2:
        return False
    if ids:
        memory = engine.store.memories(ids).get(ids[0])
        return memory is not None and set(tags) <= set(memory.tags)
    return _has_own(engine, tags)


def _has_own(engine: Engine, tags: Sequence[str]) -> bool:
    """Whether an open memory of the owner has all these tags; those that others share may come before it."""
    for offset in count(0, _PAGE):
        page = engine.browse(tags=tags, sensitivities=[Sensitivity.OPEN], all_projects=True, limit=_PAGE, offset=offset)
        if any(not memory.shared_by for memory in page):
            return True
        if len(page) < _PAGE:
            break
    return False
