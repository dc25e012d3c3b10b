"""What a store can say about the use of its memories: how often each was handed out, and what to which conversation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol


class Use(NamedTuple):
    """A memory that was handed out with this content; `prints` are fingerprints by which the text is known again."""

    id: str
    tokens: int
    content_hash: str = ""
    prints: tuple[str, ...] = ()


class UseCount(NamedTuple):
    """How often a memory was asked for, how often it was given unasked, and about what that took of a context."""

    id: str
    recalled: int
    injected: int
    tokens: int
    last: datetime


class DayCount(NamedTuple):
    """The same for all memories on one day, in UTC."""

    day: str
    recalled: int
    injected: int
    tokens: int


class Given(NamedTuple):
    """A content that a conversation was given; `lost` where a compaction took it out of the context since."""

    id: str
    content_hash: str
    at: datetime
    lost: bool = False


class UsageStore(Protocol):
    """The ledger of uses; whoever writes into it waits for nobody, and what cannot be written now is written later."""

    def recalled(self, uses: Sequence[Use]) -> None:
        """Count memories that somebody asked for."""
        ...

    def injected(self, conversation: str | None, uses: Sequence[Use]) -> None:
        """Count memories that a conversation was given unasked; whatever it had lost counts as never given."""
        ...

    def given(self, conversation: str) -> list[Given]:
        """What a conversation was given, the newest first."""
        ...

    def lose(self, conversation: str) -> None:
        """A conversation was compacted: what it was given is no longer in its context."""
        ...

    def forget(self, conversation: str) -> None:
        """A conversation begins anew: it was given nothing."""
        ...

    def end(self, conversation: str) -> None:
        """A conversation is over; what it was given is kept for a while."""
        ...

    def counts(self, ids: Iterable[str]) -> dict[str, UseCount]:
        """How often some memories were used; those that never were are left out."""
        ...

    def most_used(self, limit: int = 10) -> list[UseCount]:
        """The memories that were handed out most often."""
        ...

    def days(self, limit: int = 14) -> list[DayCount]:
        """The newest days on which anything was used, the newest first."""
        ...

    def echoed(self, prints: Iterable[str]) -> dict[str, list[str]]:
        """The ids of memories whose injected text left these fingerprints, by fingerprint."""
        ...

    def flush(self) -> None:
        """Write what had to wait."""
        ...
