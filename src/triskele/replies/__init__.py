"""Replies of everyday commands besides memories, changes and recalls: counts of a store, secrets and undone changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from triskele.types import CURATION, IMPORT, USER, Action, JournalEntry, Memory, Outcome, RegisteredFolder, UseCount

CHANGES_MEMORIES = frozenset(
    {Action.ADDED, Action.EDITED, Action.RESTORED, Action.FORGOTTEN, Action.SEALED, Action.ERASED, Action.REVEALED}
)


class DayCount(NamedTuple):
    """The same for all memories on one day, in UTC."""

    day: str
    recalled: int
    injected: int
    tokens: int


@dataclass(frozen=True, slots=True)
class JobCounts:
    """Pending contents to embed and versions to read names in; `last_error` is the newest failure."""

    embed: int
    names: int
    given_up: int
    last_error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NameCounts:
    """Counts of an owner's names; `bytes` is the owner's share of the tables, estimated by mentions."""

    names: int
    concepts: int
    mentions: int
    merges: int
    by_hand: int
    read: int
    waiting: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Secret:
    """The text of a secret."""

    id: str
    title: str
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Undone:
    """What an undo takes back, of one batch; `outcomes` is empty if it was only planned."""

    entries: tuple[JournalEntry, ...]
    versions: tuple[Memory, ...]
    projects: tuple[str, ...]
    outcomes: tuple[Outcome, ...] = ()
    folders: tuple[RegisteredFolder, ...] = ()
    passed_over: Mapping[str, str] = field(default_factory=dict)
    """lost memories whose changes it leaves out, with what became of them"""

    @property
    def batch(self) -> str:
        """The batch that is undone."""
        return self.entries[0].batch

    @property
    def size(self) -> int:
        """The number of memories that change; of a batch that only links, the number of links."""
        changed = {entry.id for entry in self.entries if entry.action in CHANGES_MEMORIES}
        return len(changed) or len(self.entries)

    def named(self) -> list[tuple[JournalEntry, list[Memory]]]:
        """Each entry with its versions after and before; of a link the newest version of its source."""
        return with_versions(self.entries, self.versions)

    def is_own(self, actor: str) -> bool:
        """Whether this actor made the changes."""
        return self.entries[0].actor in own_actors(actor)


def with_versions(
    entries: Iterable[JournalEntry], versions: Iterable[Memory]
) -> list[tuple[JournalEntry, list[Memory]]]:
    """Each entry with its versions after and before; of a link the newest version of its source."""
    numbered: dict[str, dict[int, Memory]] = {}
    for memory in versions:
        numbered.setdefault(memory.id, {})[memory.version] = memory
    pairs = []
    for entry in entries:
        own = numbered.get(entry.id, {})
        numbers = [number for number in (entry.version, entry.previous) if number is not None]
        pairs.append((entry, [own[number] for number in numbers or [max(own, default=0)] if number in own]))
    return pairs


def own_actors(actor: str) -> frozenset[str]:
    """The names under which an actor writes: the user's commands also import and curate."""
    return frozenset({USER, IMPORT, CURATION} if actor == USER else {actor})


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementStats:
    """How far a cross-encoder agreed: questions asked and answered in time, and means of their `Agreement`."""

    asked: int = 0
    answered: int = 0
    tau: float = 0.0
    kept: float = 0.0


@dataclass(frozen=True, slots=True)
class AdoptedPlan:
    """Ranking options that the user's own questions put in force: what differs from the default, since when."""

    values: Mapping[str, Any]
    since: str
    questions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """How much an owner has; `bytes` is the owner's share of the store, estimated by the number of versions."""

    memories: int
    forgotten: int
    superseded: int
    versions: int
    links: int
    journal: int
    bytes: int
    by_category: Mapping[str, int]
    by_project: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics(Census):
    """Counts of a whole memory.

    `memories` to `by_project` count what is stored; `used` are the memories of `most_used`; `today` is what curation
    did today, of at most `llm_calls` requests to a language model.
    """

    jobs: JobCounts
    names: NameCounts
    adopted: AdoptedPlan | None = None
    agreement: AgreementStats | None = None
    most_used: tuple[UseCount, ...] = ()
    used: tuple[Memory, ...] = ()
    days: tuple[DayCount, ...] = ()
    proposals: int = 0
    today: Mapping[str, int] = field(default_factory=dict)
    llm_calls: int = 0
