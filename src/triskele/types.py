"""The values that move between the rooms: frozen, slotted, without behaviour that needs a store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, Self


class Sensitivity(StrEnum):
    """Who may see a memory: everyone with access, only this machine, or only a user who asks for it by name."""

    OPEN = "open"
    PRIVATE = "private"
    SECRET = "secret"


class Origin(StrEnum):
    """Who wrote a memory; set at the boundary, never changed afterwards."""

    USER = "user"
    AGENT = "agent"
    IMPORT = "import"
    TOOL = "tool"
    WEB = "web"


class Role(StrEnum):
    """Whose words a memory holds, as conversations name them; `Origin` sets how far they are trusted."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    OTHER = "other"


# The most trusted first: what is made of several memories is worth as much as the least of them.
TRUST = (Origin.USER, Origin.AGENT, Origin.IMPORT, Origin.TOOL, Origin.WEB)
# The most open first.
CLOSENESS = (Sensitivity.OPEN, Sensitivity.PRIVATE, Sensitivity.SECRET)
# The kind of the document that holds the adopted plan.
PLANS = "plan"


def is_raised(before: Sensitivity, after: Sensitivity) -> bool:
    """Whether the second sensitivity is stricter."""
    return CLOSENESS.index(after) > CLOSENESS.index(before)


def least_trusted(*origins: Origin) -> Origin:
    """The origin of what is made of memories of these origins."""
    return max(origins, key=TRUST.index)


@dataclass(frozen=True, slots=True)
class SpokenTurn:
    """One turn of a conversation; `is_typed` is false for what a program wrote in the place of a person."""

    role: str
    text: str
    at: datetime | None = None
    session: str = ""
    is_typed: bool = True


class LinkKind(StrEnum):
    """How one memory relates to another; read as `source KIND target`."""

    SUPERSEDES = "supersedes"
    RESOLVED_BY = "resolved-by"
    PART_OF = "part-of"
    SEE_ALSO = "see-also"


class Sort(StrEnum):
    """The order of a recall's answer."""

    RELEVANCE = "relevance"
    IMPORTANCE = "importance"
    RECENCY = "recency"


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One version of one memory; `known_to` is None while it is the current version.

    `shared_by` is the user whose memory it is, if that is not the reader.
    """

    id: str
    content: str
    category: str = "facts"
    tags: tuple[str, ...] = ()
    keywords: str = ""
    importance: float = 0.5
    sensitivity: Sensitivity = Sensitivity.OPEN
    owner: str = "me"
    project: str = ""
    origin: Origin = Origin.USER
    session: str | None = None
    position: int | None = None
    speaker: str | None = None
    role: Role | None = None
    created_at: datetime
    updated_at: datetime
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    version: int = 1
    known_from: datetime
    known_to: datetime | None = None
    content_hash: str
    shared_by: str | None = None


# The characters of an id, and how many it has.
ALPHABET, ID_LENGTH = "0123456789abcdefghjkmnpqrstvwxyz", 16
# Who said it, if a conversation names them.
SPOKEN = ("speaker", "role")
# Memories with the same text and the same values of these fields are one memory.
CONTEXT = ("project", "session", "position", *SPOKEN, "valid_from", "valid_to")


def is_secret(memory: Memory) -> bool:
    """Whether its text is in the vault."""
    return memory.sensitivity is Sensitivity.SECRET


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretDraft(Memory):
    """A secret memory on its way into the vault: `content` is its title, `text` is what no row ever holds."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Sealed:
    """A secret's text as the vault gave it; `keys` is the state of the vault's keys that it was sealed with."""

    blob: bytes
    keys: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A typed, directed connection; `known_to` is None while it is open."""

    source: str
    kind: LinkKind
    target: str
    known_from: datetime
    known_to: datetime | None = None


@dataclass(frozen=True, slots=True)
class Add:
    """Store this memory; for a text that is already stored, return the stored one, unless taken over verbatim."""

    memory: Memory
    verbatim: bool = False
    sealed: Sealed | None = None
    beside_private: bool = False
    """whether a private memory of the same text counts as unknown"""


@dataclass(frozen=True, slots=True)
class Revise:
    """Replace the current version, which must still be `base`, or bring a forgotten memory back.

    A secret without a new `sealed` text keeps that of the version that `memory` was made from.
    """

    memory: Memory
    base: int
    sealed: Sealed | None = None


@dataclass(frozen=True, slots=True)
class Forget:
    """Close the current version: no longer recalled, still in the history."""

    id: str


@dataclass(frozen=True, slots=True)
class Connect:
    """Open a link between two memories."""

    link: Link


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close an open link."""

    link: Link


@dataclass(frozen=True, slots=True)
class Reveal:
    """Note that the text of a secret was shown."""

    id: str


@dataclass(frozen=True, slots=True)
class MakePrivate:
    """Let no version of a memory be more open than private."""

    id: str


@dataclass(frozen=True, slots=True)
class MoveFolder:
    """Let a folder, by its number, belong to another project."""

    number: int
    project: str


Change = Add | Revise | Forget | Connect | Disconnect | Reveal | MakePrivate | MoveFolder


def may_hide(change: Change) -> bool:
    """Whether a change may keep from others what they could read before."""
    if isinstance(change, Add | Revise):
        return change.memory.sensitivity is not Sensitivity.OPEN
    return isinstance(change, MakePrivate)


class Action(StrEnum):
    """What a change did to the store."""

    ADDED = "added"
    DUPLICATE = "duplicate"
    EDITED = "edited"
    UNCHANGED = "unchanged"
    RESTORED = "restored"
    FORGOTTEN = "forgotten"
    LINKED = "linked"
    UNLINKED = "unlinked"
    ERASED = "erased"
    REVEALED = "revealed"
    SEALED = "sealed"
    BOUND = "bound"
    SHARED = "shared"
    UNSHARED = "unshared"


# Entries that undo skips: they changed nothing that could be restored.
LASTING = frozenset({Action.REVEALED, Action.SEALED, Action.SHARED, Action.UNSHARED})


# How the journal names a tag that was shared.
OF_A_TAG = "tag "
# Who makes a change, as the journal names it; a client is named by `client_actor`.
USER, IMPORT, CURATION = "user", "import", "curation"
# The project of memories that belong to every project.
EVERYWHERE = ""


_CLIENT = "client:"


def client_actor(name: str | None) -> str:
    """A client as the journal names it."""
    return f"{_CLIENT}{name or 'unknown'}"


def is_client(actor: str) -> bool:
    """Whether an actor is a client, which acts for an agent."""
    return actor.startswith(_CLIENT)


def written_origin(actor: str, origin: Origin) -> Origin:
    """The origin of a text that an actor writes: a client's is at most `agent`."""
    return least_trusted(origin, Origin.AGENT) if is_client(actor) else origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one change; `seq` is None if it wrote nothing, `batch` is the argument of undo.

    `project` and `sensitivity` belong to the memory after the change; `origin` is set if a stored text got a new one.
    """

    action: Action
    id: str
    seq: int | None = None
    version: int | None = None
    batch: str = ""
    project: str = ""
    sensitivity: Sensitivity = Sensitivity.OPEN
    origin: Origin | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One entry of the append-only journal; `seq` identifies it, the versions that it names hold the text.

    Where a place was bound, `id` is `place NUMBER` and `other` the project that it belonged to. Where an owner shared
    or unshared, `other` is `user NAME` or `group NAME`, and of a tag `id` is `tag NAME`. Where an edit changed the
    sensitivity, `other` is the one before.
    """

    seq: int
    at: datetime
    action: Action
    id: str
    version: int | None = None
    previous: int | None = None
    link_kind: LinkKind | None = None
    other: str | None = None
    batch: str
    undoes: int | None = None
    actor: str = USER

    @property
    def ends(self) -> tuple[str, ...]:
        """The id, and of a link also the memory at its other end."""
        return (self.id,) if self.link_kind is None or self.other is None else (self.id, self.other)

    @property
    def memories(self) -> tuple[str, ...]:
        """The ids of the memories that it names: an entry of a share may be about a tag, and names a reader."""
        if self.action in (Action.SHARED, Action.UNSHARED):
            return () if self.id.startswith(OF_A_TAG) else (self.id,)
        return self.ends


@dataclass(frozen=True, slots=True)
class Period:
    """Time from `start` until before `end`, an open side being None, with the words that it came from."""

    start: datetime | None
    end: datetime | None
    words: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a reader may see: every leg applies it before its cut; a set that is None allows everything.

    `since` and `until` bound the time that a memory is about, `base.periods.memory_time`. `trusted` is no filter: the
    confidence of an answer does not rest on what users outside of it share.
    """

    owner: str = "me"
    projects: frozenset[str] | None = None
    sensitivities: frozenset[Sensitivity] | None = None
    origins: frozenset[Origin] | None = None
    category: str | None = None
    tags: frozenset[str] = frozenset()
    as_of: datetime
    known_at: datetime | None = None
    any_time: bool = False
    since: datetime | None = None
    until: datetime | None = None
    trusted: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A question with the scope it is asked in; `depth` is how many candidates a leg returns.

    `near` is the id of a memory: the best hits are ordered by their distance from it, if the plan says so.
    `period` is the time that the question names, `project` the one that the answer names.
    """

    text: str
    scope: Scope
    limit: int = 10
    depth: int = 50
    sort: Sort = Sort.RELEVANCE
    near: str = ""
    is_explained: bool = True
    period: Period | None = None
    project: str | None = None
    show_superseded: bool = False


@dataclass(frozen=True, slots=True)
class Term:
    """A query term found in a memory, with its place in the text (`start` is -1 in tags or keywords)."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Path:
    """How the graph reached a memory: a name that it shares with another hit, and the beginning of that one's text."""

    name: str
    other: str
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LegEvidence:
    """A hit's rank and score in one leg, what that added to its score, the terms that matched and the path to it."""

    rank: int
    score: float
    normalised: float
    contribution: float
    terms: tuple[Term, ...] = ()
    path: Path | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class HitEvidence:
    """Why a memory answers: what each leg contributed, and `reason`, which says so in a sentence.

    `words` are the query's words as the matching memory writes them.
    """

    reason: str = ""
    legs: Mapping[str, LegEvidence] = field(default_factory=dict)
    words: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        """Whether it reads the same, also if one of the two is made when it is first read."""
        if not isinstance(other, HitEvidence):
            return NotImplemented
        return (self.reason, self.legs, self.words) == (other.reason, other.legs, other.words)

    # Not hashable: `legs` is not.
    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A memory that answers, with its evidence.

    `stands_for` is the older memory that matched, where this one is its successor. `decay` is the share of its
    importance that its age leaves.
    """

    memory: Memory
    score: float
    evidence: HitEvidence = field(default_factory=HitEvidence)
    prior: float = 1.0
    superseded: bool = False
    stands_for: str | None = None
    links: tuple[Link, ...] = ()
    decay: float = 1.0

    @property
    def reason(self) -> str:
        """Why it answers, as a sentence."""
        return self.evidence.reason

    @property
    def legs(self) -> Mapping[str, LegEvidence]:
        """What each leg contributed."""
        return self.evidence.legs

    @property
    def words(self) -> tuple[str, ...]:
        """The query's words as the matching memory writes them."""
        return self.evidence.words


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far a cross-encoder sees it as the ranking did."""

    tau: float
    """Kendall's tau over what was scored: 1 the same order, −1 the opposite"""
    kept: float
    """the share of the first five that stayed among them"""


Fit = Literal["good", "weak", "none"]
# The least confidence of a good match, and that of another ticket than the question names; a weak match has more.
GOOD_MATCH, UNLIKELY_MATCH = 0.15, 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The hits of one recall; `resolutions` are attached, not ranked; `waiting` memories have no vectors yet.

    `missing` says what could not be used, `wordings` are other wordings that were searched too. `period` is the
    time that the question names, `within` the one that the scope allows.
    """

    hits: tuple[Hit, ...]
    resolutions: tuple[Memory, ...]
    confidence: float
    project: str | None
    took_ms: float
    waiting: int = 0
    missing: tuple[str, ...] = ()
    agreement: Agreement | None = None
    wordings: tuple[str, ...] = ()
    period: Period | None = None
    within: Period | None = None

    @property
    def fit(self) -> Fit:
        """How well the best hit matches."""
        return "good" if self.confidence >= GOOD_MATCH else "weak" if self.confidence > UNLIKELY_MATCH else "none"


@dataclass(frozen=True, slots=True)
class Stage:
    """One condition on the way to the answer."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True, slots=True)
class SmallestChange:
    """Another way to ask: options of recall with their new values, and words to add to the query."""

    options: Mapping[str, Any] = field(default_factory=dict)
    words: str = ""


@dataclass(frozen=True, slots=True)
class WhyNot:
    """The stages of a memory that was expected; `smallest_change` was tried and brings it into the answer."""

    rank: int | None
    verdict: str
    stages: tuple[Stage, ...]
    smallest_change: SmallestChange | None = None

    @property
    def stopped_by(self) -> Stage:
        """The stage that kept it out; a memory without query terms may still be found by another leg."""
        return next((stage for stage in self.stages if not stage.passed and stage.name != "words"), self.stages[-1])


@dataclass(frozen=True, slots=True)
class UseCount:
    """How often a memory was recalled and injected, and the tokens that the injections took."""

    id: str
    recalled: int
    injected: int
    tokens: int
    last: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """When the text of a memory was first and last sent to a host."""

    host: str
    first: str
    last: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryView(Memory):
    """A memory with its state; of a secret `content` is the title.

    `in_conflict`: it was changed here and on the sync server. `writable`: the reader may change it.
    """

    superseded: bool = False
    forgotten: bool = False
    in_conflict: bool = False
    writable: bool = True

    @classmethod
    def of(cls, memory: Memory, **state: bool) -> Self:
        """The view of a memory; `owner` becomes the user whose memory it is."""
        values: dict[str, Any] = {each.name: getattr(memory, each.name) for each in fields(Memory)}
        values["owner"] = memory.shared_by or memory.owner
        return cls(**(values | state))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryDetails(MemoryView):
    """A memory with its open links, the memories at their other ends, its use and the hosts that received its text."""

    links: tuple[Link, ...] = ()
    linked: Mapping[str, MemoryView] = field(default_factory=dict)
    used: UseCount | None = None
    sent: tuple[Sent, ...] = ()


@dataclass(frozen=True, slots=True)
class Facets:
    """How many memories each name and month has, the most frequent first; months in order."""

    projects: Mapping[str, int]
    categories: Mapping[str, int]
    origins: Mapping[str, int]
    tags: Mapping[str, int]
    months: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Page:
    """A page of memories out of `total`, with the use of each by id; `next_offset` is None after the last one."""

    memories: tuple[MemoryView, ...]
    total: int
    next_offset: int | None = None
    used: Mapping[str, UseCount] = field(default_factory=dict)
    facets: Facets | None = None


@dataclass(frozen=True, slots=True)
class RegisteredFolder:
    """A folder or git remote with its project, by the number that journal entries name."""

    number: int
    key: str
    project: str


@dataclass(frozen=True, slots=True)
class History:
    """Journal entries, the versions that they name, and the folders whose project they changed."""

    entries: tuple[JournalEntry, ...]
    versions: tuple[Memory, ...]
    folders: tuple[RegisteredFolder, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """What an erasure did, and the copies of the texts that remain.

    `out_of_reach` names places that the store cannot reach; `sent` are the hosts that received a text.
    """

    outcomes: tuple[Outcome, ...]
    erased_copies: tuple[str, ...] = ()
    remaining_copies: tuple[str, ...] = ()
    out_of_reach: tuple[str, ...] = ()
    sent: tuple[Sent, ...] = ()


class Verdict(StrEnum):
    """What a new memory is to an older one.

    FORGET comes from a review of the whole store, CONFLICT from a sync: the server's version is the new one.
    """

    ADD = "add"
    UPDATE = "update"
    SUPERSEDE = "supersede"
    NOOP = "noop"
    FORGET = "forget"
    CONFLICT = "conflict"


# From this confidence on a relation of two memories needs no review.
SURE = 0.9
RelationName = Literal["duplicate", "update", "contradiction"]


@dataclass(frozen=True, slots=True)
class Related:
    """An older memory that a newer one repeats, extends or contradicts."""

    memory: MemoryView
    relation: RelationName
    confidence: float

    @property
    def is_sure(self) -> bool:
        """Whether it needs no review."""
        return self.confidence >= SURE


@dataclass(frozen=True, slots=True)
class Injection:
    """The text that an agent is given, the memories in it by id, its tokens; `note` says why the text is empty."""

    text: str = ""
    memories: tuple[str, ...] = ()
    tokens: int = 0
    note: str = ""
