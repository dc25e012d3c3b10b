"""What responses hold: dataclasses over the library's own values, turned back into them by the client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from triskele.curation.compare import Verdict
from triskele.recall.why_not import SmallestChange, Stage, WhyNot
from triskele.serving.statistics import MoreStatistics
from triskele.stores.sharing import ReceivedMemory, Share
from triskele.types import Agreement, Answer, Hit, HitEvidence, JournalEntry, LegEvidence, Link, Memory, Period

if TYPE_CHECKING:
    from triskele.curation.undo import UndoPlan
    from triskele.recall.concepts.lookup import About

_OF_MEMORY = tuple(each.name for each in fields(Memory))
_OF_ANSWER = tuple(each.name for each in fields(Answer) if each.name != "hits")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReply(Memory):
    """A memory; of a secret `content` is the title. `superseded`: another one replaces it.

    `owner` is the user whose memory it is, `shared_by` the same if that is not the reader.
    """

    superseded: bool = False
    forgotten: bool = False
    links: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HitReply(MemoryReply):
    """A memory that answers, with its evidence by leg; a term's `start` is -1 if it is in tags or keywords."""

    score: float
    reason: str
    evidence: dict[str, LegEvidence] = field(default_factory=dict)
    prior: float = 1.0
    words: tuple[str, ...] = ()
    stands_for: str | None = None
    decay: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallReply:
    """The answer of a recall; `project` is null where all projects were searched."""

    hits: tuple[HitReply, ...]
    resolutions: tuple[Memory, ...] = ()
    confidence: float
    project: str | None
    took_ms: float
    waiting: int = 0
    missing: tuple[str, ...] = ()
    agreement: Agreement | None = None
    wordings: tuple[str, ...] = ()
    period: Period | None = None
    within: Period | None = None


@dataclass(frozen=True, slots=True)
class PageReply:
    """A page of memories; `next_offset` is null after the last one."""

    memories: tuple[MemoryReply, ...]
    next_offset: int | None


@dataclass(frozen=True, slots=True)
class HistoryReply:
    """What happened to a memory, and all its versions, oldest first."""

    entries: tuple[JournalEntry, ...]
    versions: tuple[Memory, ...]


@dataclass(frozen=True, slots=True)
class WhyNotReply:
    """Why a memory is not among the hits, and the smallest change of the question that brings it there."""

    rank: int | None
    verdict: str
    stages: tuple[Stage, ...]
    smallest_change: SmallestChange | None = None


@dataclass(frozen=True, slots=True)
class UndoReply:
    """What an undo takes back: the journal entries of one batch, how many memories change, and their versions."""

    batch: str
    size: int
    projects: tuple[str, ...]
    entries: tuple[JournalEntry, ...]
    versions: tuple[Memory, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CensusReply:
    """How much is stored; `waiting` contents have no vectors yet, `more` are further statistics."""

    memories: int
    forgotten: int
    superseded: int
    versions: int
    links: int
    journal: int
    bytes: int
    by_category: Mapping[str, int]
    by_project: Mapping[str, int]
    waiting: int = 0
    more: MoreStatistics | None = None


@dataclass(frozen=True, slots=True)
class RelatedReply:
    """An older memory that a newer one repeats (noop), extends (update) or contradicts (supersede)."""

    memory: MemoryReply
    verdict: Verdict
    confidence: float


@dataclass(frozen=True, slots=True)
class NeighbourReply:
    """A concept that memories mention together with another one."""

    concept: str
    together: int
    memories: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeReply:
    """An edge between two concepts, with the id of the memory that states it."""

    source: str
    kind: str
    target: str
    weight: float
    evidence: str
    valid_from: datetime | None = None
    valid_to: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConceptReply:
    """A concept; lists are cut at the limit, counts are not."""

    concept: str
    other_names: tuple[str, ...]
    memories: int
    subjects: int
    subject_of: tuple[Memory, ...]
    mentioned_in: tuple[Memory, ...]
    neighbours: tuple[NeighbourReply, ...]
    edges: tuple[EdgeReply, ...]


@dataclass(frozen=True, slots=True)
class SecretReply:
    """The text of a secret."""

    id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class ReadyReply:
    """Whether requests can be served now."""

    status: str
    version: str


@dataclass(frozen=True, slots=True)
class SharesReply:
    """What I share, the memories that others share with me, and whose of them agents are given unasked."""

    given: tuple[Share, ...]
    received: tuple[ReceivedMemory, ...]
    trusted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TrustReply:
    """The users whose memories agents are given unasked."""

    trusted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeletedReply:
    """What was deleted."""

    name: str


def memory_reply(memory: Memory, *, superseded: bool = False, links: tuple[Link, ...] = ()) -> MemoryReply:
    """The reply for a memory."""
    return MemoryReply(
        **_values(as_owned(memory)), superseded=superseded, forgotten=memory.known_to is not None, links=links
    )


def as_owned(memory: Memory) -> Memory:
    """The memory with its real owner: another user if it is shared with the reader."""
    return replace(memory, owner=memory.shared_by or memory.owner)


def recall_reply(answer: Answer) -> RecallReply:
    """The answer of a recall."""
    rest = {name: getattr(answer, name) for name in _OF_ANSWER}
    rest["resolutions"] = tuple(map(as_owned, answer.resolutions))
    return RecallReply(hits=tuple(map(_hit_reply, answer.hits)), **rest)


def why_not_reply(found: WhyNot) -> WhyNotReply:
    """The stages of a memory that was expected."""
    return WhyNotReply(found.rank, found.verdict, found.stages, found.smallest_change)


def undo_reply(plan: UndoPlan) -> UndoReply:
    """What an undo would take back."""
    return UndoReply(
        plan.batch, plan.size, tuple(plan.projects), plan.entries, tuple(map(as_owned, plan.versions.values()))
    )


def concept_reply(found: About) -> ConceptReply:
    """The reply for a concept."""
    return ConceptReply(
        concept=found.concept.name,
        other_names=tuple(each.name for each in found.other_names),
        memories=found.memories,
        subjects=found.subjects,
        subject_of=found.subject_of,
        mentioned_in=found.mentioned_in,
        neighbours=tuple(NeighbourReply(each.concept.name, each.together, each.memories) for each in found.neighbours),
        edges=tuple(
            EdgeReply(
                source=tie.source.name,
                kind=tie.edge.kind,
                target=tie.target.name,
                weight=tie.edge.weight,
                evidence=tie.edge.evidence,
                valid_from=tie.edge.valid_from,
                valid_to=tie.edge.valid_to,
            )
            for tie in found.ties
        ),
    )


def to_memory(reply: Memory) -> Memory:
    """The memory of a reply."""
    return Memory(**_values(reply))


def to_answer(reply: RecallReply) -> Answer:
    """The answer in a reply."""
    hits = tuple(
        Hit(
            memory=to_memory(each),
            score=each.score,
            evidence=HitEvidence(reason=each.reason, legs=each.evidence, words=each.words),
            prior=each.prior,
            superseded=each.superseded,
            stands_for=each.stands_for,
            links=each.links,
            decay=each.decay,
        )
        for each in reply.hits
    )
    return Answer(hits=hits, **{name: getattr(reply, name) for name in _OF_ANSWER})


def to_why_not(reply: WhyNotReply) -> WhyNot:
    """The explanation in a reply."""
    return WhyNot(reply.rank, reply.stages, reply.smallest_change)


def _hit_reply(hit: Hit) -> HitReply:
    return HitReply(
        **_values(as_owned(hit.memory)),
        superseded=hit.superseded,
        links=hit.links,
        score=hit.score,
        reason=hit.reason,
        evidence=dict(hit.legs),
        prior=hit.prior,
        words=hit.words,
        stands_for=hit.stands_for,
        decay=hit.decay,
    )


def _values(memory: Memory) -> dict[str, Any]:
    return {name: getattr(memory, name) for name in _OF_MEMORY}


def adapter(kind: Any) -> TypeAdapter[Any]:
    """What reads and writes values of a type as JSON."""
    return _adapter(kind)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
