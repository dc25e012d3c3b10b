"""Arguments and answers of tools, as clients see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from triskele import types
from triskele.edge.mcp import descriptions
from triskele.edge.wording import share_line, shown_content
from triskele.replies import Statistics
from triskele.replies.rooms import EndedShare, NewShare, Share
from triskele.text import timestamps
from triskele.types import Memory, Outcome
from triskele.types import MemoryDetails as StoredMemory
from triskele.validation import MAX_LIMIT

# About 8,000 tokens: clients pass that on uncut.
ANSWER_CHARACTERS = 24_000
MAX_LINKS = 50
MAX_PROJECTS = 50
_SEALED_NOTE = "It holds a secret: the text is sealed, and only its title is shown."


class Shape(BaseModel):
    """A part of an answer, readable from a value of equal fields."""

    model_config = ConfigDict(from_attributes=True)


class MemoryLine(Shape):
    """One memory in a list."""

    id: str
    content: str
    category: str
    tags: list[str]
    project: str
    """where it belongs; empty is everywhere"""
    origin: str
    """who wrote it: user, agent, import, tool or web"""
    speaker: str
    """who said it, or empty"""
    role: str
    """whose words they are; empty if unknown"""
    owner: str
    """whose memory it is, if another user shares it; else empty"""
    date: str
    """when it was last changed"""
    sensitivity: str
    """open, private, or secret: then content is a title"""
    superseded: bool
    """whether another memory replaces it"""


class Hit(MemoryLine):
    """A memory in an answer."""

    reason: str
    """why it was found"""
    replaces: str
    """the older memory that matched and that this one replaces, or empty"""


class Recalled(Shape):
    """The answer of a recall."""

    hits: list[Hit]
    resolutions: list[MemoryLine]
    confidence: float
    """how likely the first hit answers, 0 to 1"""
    fit: types.Fit
    """how well the first hit matches"""
    project: str
    """the project searched; `*` is all, empty is everywhere"""
    omitted: int
    """hits left out to keep the answer short"""
    period: str
    """the time that the question names, with its days; or empty"""
    note: str = descriptions.DATA_NOTE


class LinkLine(Shape):
    """A link, read as source kind target."""

    source: str
    kind: str
    target: str


class MemoryDetails(MemoryLine):
    """One memory with all details."""

    keywords: str
    importance: float
    created: str
    valid_from: str
    valid_to: str
    version: int
    forgotten: bool
    links: list[LinkLine]
    note: str = descriptions.DATA_NOTE


class Listed(Shape):
    """A page of memories."""

    memories: list[MemoryLine]
    next_offset: int | None
    """None after the last page"""
    project: str
    """the project searched; `*` is all, empty is everywhere"""
    note: str = descriptions.DATA_NOTE


class Changed(Shape):
    """The result of a change."""

    id: str
    action: str
    """added, duplicate, edited, unchanged, forgotten, linked, restored, …"""


class SimilarMemory(Shape):
    """A memory that a stored text seems to repeat, extend or contradict."""

    id: str
    relation: Literal["duplicate", "update", "contradiction"]
    """what the new text is to it"""
    content: str
    confidence: float
    """how sure the rules are, 0 to 1"""


class Stored(Changed):
    """The result of storing a text."""

    project: str
    sensitivity: str
    batch: str
    """for memory_undo; empty if nothing was written"""
    note: str = ""
    similar: list[SimilarMemory] = []
    """likely duplicates and contradictions, surest first"""


class Changes(Shape):
    """The results of several changes."""

    changes: list[Changed]
    batch: str
    """for memory_undo; empty if nothing was written"""


class UndoneChanges(Changes):
    """The results of an undo."""

    note: str = ""


class ShareLine(Shape):
    """What is shared with whom."""

    subject: str
    """memory or tag"""
    target: str
    """the id of the memory, or the tag"""
    grantee: str
    """the user or group, such as `user bob`"""
    access: str


class Shared(ShareLine):
    """A share and how far it reaches."""

    memories: int
    """how many it shares now, counted up to 2,000"""


class Unshared(ShareLine):
    """The end of a share."""

    still_shared: list[str]
    """who still reads it, through which other share"""


class Stats(Shape):
    """Counts of memories."""

    memories: int
    forgotten: int
    superseded: int
    links: int
    by_category: dict[str, int]
    by_project: dict[str, int]
    project: str


class Stage(Shape):
    """One stage of a recall."""

    name: str
    passed: bool
    detail: str


class WhyNot(Shape):
    """Why a memory was not found."""

    verdict: str
    stages: list[Stage]
    smallest_change: str
    """a change that was tried and finds it; empty if none does"""


class Revealed(Shape):
    """The text of a secret."""

    id: str
    title: str
    text: str


Line = TypeVar("Line", bound=BaseModel)


def line(memory: Memory, *, superseded: bool = False) -> MemoryLine:
    """A memory as a line of an answer."""
    return MemoryLine(
        id=memory.id,
        content=shown_content(memory, superseded),
        category=memory.category,
        tags=list(memory.tags),
        project=memory.project,
        origin=str(memory.origin),
        speaker=memory.speaker or "",
        role=memory.role or "",
        owner=memory.shared_by or "",
        date=f"{memory.updated_at:%Y-%m-%d}",
        sensitivity=str(memory.sensitivity),
        superseded=superseded,
    )


def memory_details(memory: StoredMemory) -> MemoryDetails:
    """A memory with all its details."""
    return MemoryDetails(
        **line(memory, superseded=memory.superseded).model_dump(),
        keywords=memory.keywords,
        importance=memory.importance,
        created=timestamps.to_text(memory.created_at),
        valid_from=timestamps.to_text(memory.valid_from) if memory.valid_from else "",
        valid_to=timestamps.to_text(memory.valid_to) if memory.valid_to else "",
        version=memory.version,
        forgotten=memory.forgotten,
        links=[LinkLine.model_validate(link) for link in memory.links[:MAX_LINKS]],
    )


def stored(outcome: Outcome, note: str = "", similar: Sequence[SimilarMemory] = ()) -> Stored:
    """The result of storing a text, with what there is to note."""
    notes = (note, _SEALED_NOTE if outcome.sensitivity is types.Sensitivity.SECRET else "")
    more = {"note": " ".join(filter(None, notes)), "similar": list(similar)}
    return Stored.model_validate(outcome).model_copy(update=more)


def changes(outcomes: Sequence[Outcome]) -> Changes:
    """The results of several changes."""
    batch = next((each.batch for each in outcomes if each.batch), "")
    return Changes(changes=[Changed.model_validate(outcome) for outcome in outcomes], batch=batch)


def shared(new: NewShare) -> Shared:
    """A share without its count of private memories."""
    return Shared(**_share_fields(new.share), memories=new.memories)


def unshared(ended: EndedShare) -> Unshared:
    """The end of a share in an answer."""
    left = [f"{', '.join(each.readers)} through {share_line(each.share)}" for each in ended.remaining]
    return Unshared(**_share_fields(ended.share), still_shared=left)


def stats(counts: Statistics, project: str) -> Stats:
    """The counts that an agent sees, with the largest projects."""
    most = sorted(counts.by_project.items(), key=lambda pair: (-pair[1], pair[0]))[:MAX_PROJECTS]
    return Stats(
        memories=counts.memories,
        forgotten=counts.forgotten,
        superseded=counts.superseded,
        links=counts.links,
        by_category=dict(counts.by_category),
        by_project=dict(most),
        project=project,
    )


def _share_fields(share: Share) -> dict[str, str]:
    grantee = f"{share.grantee_kind} {share.grantee}"
    return {"subject": share.subject, "target": share.target, "grantee": grantee, "access": share.access}


def fitting(lines: Sequence[Line], budget: int = ANSWER_CHARACTERS) -> list[Line]:
    """The first lines that fit a budget of characters; at least one."""
    fitted: list[Line] = []
    for line in lines:
        budget -= len(line.model_dump_json())
        if fitted and budget < 0:
            break
        fitted.append(line)
    return fitted


MAX_QUERY_CHARACTERS = 4096
MAX_CONTENT_CHARACTERS = 100_000
MAX_FORGOTTEN = 50
MAX_OFFSET = 1_000_000
_MAX_LABEL_CHARACTERS = 500
_MAX_TAGS = 50

# Arguments have bounds; they have a description only if their name says too little.
Id = Annotated[str, Field(min_length=4, max_length=64)]
Ids = Annotated[list[Id], Field(min_length=1, max_length=MAX_FORGOTTEN)]
Question = Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARACTERS, description="A full sentence.")]
Text = Annotated[str, Field(max_length=MAX_CONTENT_CHARACTERS)]
Label = Annotated[str, Field(max_length=_MAX_LABEL_CHARACTERS)]
Name = Annotated[str, Field(max_length=200)]
Weight = Annotated[float, Field(ge=0, le=1)]
Limit = Annotated[int, Field(ge=1, le=MAX_LIMIT)]
Offset = Annotated[int, Field(ge=0, le=MAX_OFFSET)]
Tags = Annotated[tuple[Label, ...], Field(max_length=_MAX_TAGS)]
Day = Annotated[str, Field(max_length=40)]
Raised = Literal["private", "secret"]
Role = Literal["user", "assistant", "tool", "other"]

Content = Annotated[Text, Field(description="The fact; by default at most 1400 characters.")]
Category = Annotated[
    Label,
    Field(description="facts, preferences, projects, people, decisions, lessons or procedures; else by its words."),
]
Keywords = Annotated[Label, Field(description="Other words to find it by.")]
Importance = Annotated[Weight, Field(description="0.9 for what every conversation should know.")]
Older = Annotated[str, Field(max_length=64, description="The id of the memory that it replaces.")]
Project = Annotated[Name, Field(description="If not the current one.")]
Everywhere = Annotated[bool, Field(description="It applies to every project.")]
Sensitivity = Annotated[Raised, Field(description="private: only for clients that the user allows.")]
Title = Annotated[Label, Field(description="Of a secret, without the secret.")]
ValidFrom = Annotated[Day, Field(description="A date such as 2026-03-14.")]
Removable = Annotated[Day, Field(description="`none` removes it.")]
Source = Annotated[Literal["agent", "tool", "web"], Field(description="Where it is from; agent: you or the user.")]
Speaker = Annotated[Name, Field(description="Who said it, such as `Marta`.")]
Since = Annotated[str, Field(max_length=80, description="About that time or later: 2026-06, last week.")]
Until = Annotated[str, Field(max_length=80)]
SharedId = Annotated[str, Field(max_length=64)]
SharedTag = Annotated[str, Field(max_length=_MAX_LABEL_CHARACTERS, description="All open memories with this tag.")]
ToUser = Annotated[str, Field(max_length=64, description="The name of a user of the server.")]
ToGroup = Annotated[str, Field(max_length=64, description="The name of a group of the server.")]
Access = Annotated[Literal["read", "write"], Field(description="Whether they may change it, too.")]
Batch = Annotated[str, Field(max_length=200, description="The `batch` that a change returned.")]
