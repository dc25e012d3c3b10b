"""Replies of the rooms of an engine: proposals, shares, files, agents and concepts; everyday commands read none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

from triskele.replies import NameCounts
from triskele.types import Memory, Verdict


class Rationale(NamedTuple):
    """Why: the name of a rule, and what it read in the older and in the newer text."""

    rule: str
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One entry of the queue: a verdict on stored memories or, as ADD, a captured text that is not stored yet.

    `new` is the newer memory, `old` the one that it repeats, extends or replaces; ADD and FORGET have none.
    """

    id: str
    kind: Verdict
    new: Memory
    old: Memory | None
    reasons: tuple[Rationale, ...]
    confidence: float
    created: datetime

    @property
    def is_stored(self) -> bool:
        """Whether its newer memory is in the store already."""
        return self.kind is not Verdict.ADD


Subject = Literal["memory", "tag"]
GranteeKind = Literal["user", "group"]
Access = Literal["read", "write"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What an owner shares, the id of a memory or a tag, with whom, and whether they may write."""

    owner: str
    subject: Subject
    target: str
    grantee_kind: GranteeKind
    grantee: str
    access: Access
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMemory:
    """A memory that another user shares with this one."""

    id: str
    owner: str
    access: Access


@dataclass(frozen=True, slots=True)
class UserGroup:
    """Users that a memory or a tag can be shared with at once."""

    name: str
    members: Sequence[str]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that cannot be imported, with its line or file."""

    place: str
    reason: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that an import leaves out on purpose, and the reason."""

    place: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """A memory that an import would write, or that is stored already; of a secret, which is sealed, only the title.

    A text that the import holds twice has an id only once.
    """

    action: str
    id: str
    content: str
    category: str
    tags: tuple[str, ...]
    project: str
    place: str = ""
    secret: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What an import did, or would do; it counts memories, not versions. only a dry run fills `memories`."""

    format: str
    read: int
    added: int
    duplicates: int
    secrets: int
    links: int
    batch: str
    problems: tuple[Problem, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    memories: tuple[Preview, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """How many memories were written, how many forgotten ones and secrets among them, and how many were left out.

    `left_out_versions` counts private or secret versions of memories that were written because they are open now.
    """

    written: int
    left_out_private: int
    left_out_secret: int
    left_out_versions: int = 0
    revealed: int = 0
    forgotten: int = 0


@dataclass(frozen=True, slots=True)
class InjectedMemory:
    """A content that a conversation was given; `lost` if a compaction has removed it from the context since."""

    id: str
    content_hash: str
    at: datetime
    lost: bool = False
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class ConversationUse:
    """A conversation that was given memories: when it last was, by which client in which project, and what it cost.

    `memories` are those that its context may still hold; `tokens` is the sum of all that it was ever given; `given` is
    listed only for one conversation.
    """

    conversation: str
    at: datetime
    client: str
    project: str
    memories: int
    tokens: int
    given: tuple[InjectedMemory, ...] = ()


@dataclass(frozen=True, slots=True)
class Reviewed:
    """The proposals that a review accepted and rejected, and those it left; `batch` undoes what was accepted."""

    accepted: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    batch: str = ""


@dataclass(frozen=True, slots=True)
class Shares:
    """What a user shares and receives, and the users whose memories agents are given unasked."""

    given: tuple[Share, ...]
    received: tuple[ReceivedMemory, ...]
    trusted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NewShare:
    """A share, the memories that it gives now, and the private or secret ones that it leaves out."""

    share: Share
    memories: int = 1
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class RemainingShare:
    """A share through which readers of an ended one still read all or part of it."""

    share: Share
    readers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EndedShare:
    """A share that has ended, and the shares that still give some of its readers access."""

    share: Share
    remaining: tuple[RemainingShare, ...] = ()


@dataclass(frozen=True, slots=True)
class OtherName:
    """Another name of a concept, why it was merged, and since when."""

    name: str
    reason: str | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A concept that memories mention together with another one, and how many mention it at all."""

    concept: str
    together: int
    memories: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConceptEdge:
    """An edge between two concepts, with the id of the memory that states it."""

    source: str
    kind: str
    target: str
    weight: float
    evidence: str
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    known_from: datetime
    known_to: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConceptDetails:
    """A concept: `memories` mention it, and it is the subject of `subjects` of them.

    Lists are cut, counts are not; `mentioned_in` leaves out what the concept is the subject of.
    """

    concept: str
    other_names: tuple[OtherName, ...]
    memories: int
    subjects: int
    subject_of: tuple[Memory, ...]
    mentioned_in: tuple[Memory, ...]
    neighbours: tuple[Neighbour, ...]
    edges: tuple[ConceptEdge, ...]


@dataclass(frozen=True, slots=True)
class Hop:
    """A memory of a path, and the concept that it leads to."""

    memory: Memory
    concept: str


@dataclass(frozen=True, slots=True)
class ConceptPath:
    """The shortest path between two concepts; `hops` is None without a path, and empty if both are the same."""

    start: str
    end: str
    hops: tuple[Hop, ...] | None


@dataclass(frozen=True, slots=True)
class CommonConcept:
    """A concept that many memories mention; one of too many memories connects none of them."""

    concept: str
    memories: int
    connects: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConceptOverview:
    """Counts of the concept graph; `connected` memories share a rare enough name with another one."""

    names: NameCounts
    memories: int
    connected: int
    common: tuple[CommonConcept, ...]
    bytes: int
    first: datetime | None = None
    """the time of the oldest memory"""

    @property
    def connected_share(self) -> float:
        """The share of the memories that are connected with another one."""
        return self.connected / self.memories if self.memories else 0.0


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A concept or a memory in a drawing; `weight` is how many memories mention a concept."""

    key: str
    label: str
    kind: str
    weight: int = 1
    is_focus: bool = False


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """A connection of two nodes; a closed one no longer holds at the moment of the drawing."""

    source: str
    target: str
    kind: str
    group: str
    is_open: bool = True
    since: str = ""
    until: str = ""


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """Nodes and edges around a concept or a memory; `left_out` nodes were cut."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    memories: tuple[Memory, ...]
    concepts: tuple[str, ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class Regrouped:
    """The names that were merged into a concept, or split from one; empty if nothing changed."""

    names: tuple[str, ...]
    concept: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCall:
    """An event of an agent's client; `deadline_s` is how long the client will wait for the answer.

    `transcript` and `folder` are paths on the client's machine, which a server never receives.
    """

    event: str
    prompt: str = ""
    session: str = ""
    source: str = ""
    reason: str = ""
    agent: str = ""
    transcript: str = ""
    client: str = ""
    project: str = ""
    folder: str = ""
    sees_private: bool = False
    deadline_s: float | None = None

    @classmethod
    def of_payload(cls, event: str, payload: Mapping[str, Any]) -> HookCall:
        """Read a client's JSON; who calls, for which project and how long the client waits is not in it."""
        texts: dict[str, Any] = {name: payload[key] for name, key in _PAYLOAD if isinstance(payload.get(key), str)}
        return cls(event=event, **texts)


# The fields of an event and their names in a client's JSON.
_PAYLOAD = (
    *((name, name) for name in ("prompt", "source", "reason")),
    *(("session", "session_id"), ("agent", "agent_id"), ("transcript", "transcript_path"), ("folder", "cwd")),
)
