"""What tools answer: their fields are the schema that clients see."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, TypeVar

from pydantic import BaseModel, Field

from triskele.base import timestamps
from triskele.engine import Engine
from triskele.serving.mcp import wording
from triskele.serving.shapes import shown_content
from triskele.types import Link, Memory, Outcome, is_secret

# About 8,000 tokens: what a client shows its model without cutting it.
ANSWER_CHARACTERS = 24_000
MAX_LINKS = 50

Date = Annotated[str, Field(description="When it was last changed.")]
Origin = Annotated[str, Field(description="Who wrote it: user, agent, import, tool or web; trust the last two least.")]
Sensitivity = Annotated[str, Field(description="open, private, or secret: then content is a title only.")]
Project = Annotated[str, Field(description="The project it belongs to; empty is everywhere.")]
Note = Annotated[str, Field(description="What to keep in mind.")]


class MemoryLine(BaseModel):
    """One memory in a list."""

    id: str
    content: str
    category: str
    tags: list[str]
    project: Project
    origin: Origin
    date: Date
    sensitivity: Sensitivity
    superseded: Annotated[bool, Field(description="No longer true: another memory replaces it.")]


class Hit(MemoryLine):
    """A memory that answers."""

    reason: Annotated[str, Field(description="Why it was found.")]
    replaces: Annotated[str, Field(description="The older memory that matched and that this one replaces, or empty.")]


class Recalled(BaseModel):
    """The answer of a recall."""

    hits: list[Hit]
    resolutions: list[MemoryLine]
    confidence: Annotated[float, Field(description="0 to 1: how likely the first hit answers.")]
    project: Annotated[str, Field(description="The project looked into; `*` is all of them, empty is everywhere.")]
    omitted: Annotated[int, Field(description="Hits left out because the answer would have become too long.")]
    note: Note = wording.DATA_NOTE


class LinkLine(BaseModel):
    """A connection, read as source kind target."""

    source: str
    kind: str
    target: str


class MemoryDetails(MemoryLine):
    """One memory with all that is known of it."""

    keywords: str
    importance: float
    created: str
    valid_from: str
    valid_to: str
    version: int
    forgotten: bool
    links: list[LinkLine]
    note: Note = wording.DATA_NOTE


class Listed(BaseModel):
    """A page of memories."""

    memories: list[MemoryLine]
    next_offset: Annotated[int | None, Field(description="Where the next page begins; null after the last one.")]
    project: Annotated[str, Field(description="The project looked into; `*` is all of them, empty is everywhere.")]
    note: Note = wording.DATA_NOTE


class Changed(BaseModel):
    """What became of a change."""

    id: str
    action: Annotated[str, Field(description="added, duplicate, edited, unchanged, forgotten, linked, restored, …")]


class Stored(Changed):
    """What became of a text that was to be stored."""

    project: Project
    sensitivity: Sensitivity
    batch: Annotated[str, Field(description="For memory_undo; empty where nothing was written.")]
    note: Note = ""


class Changes(BaseModel):
    """What became of several changes."""

    changes: list[Changed]
    batch: Annotated[str, Field(description="For memory_undo; empty where nothing was written.")]


class Stats(BaseModel):
    """How much is remembered."""

    memories: int
    forgotten: int
    superseded: int
    links: int
    by_category: dict[str, int]
    by_project: dict[str, int]
    project: Project


class Stage(BaseModel):
    """One gate on the way to an answer."""

    name: str
    passed: bool
    detail: str


class WhyNot(BaseModel):
    """Why a memory was not found."""

    verdict: str
    stages: list[Stage]
    smallest_change: Annotated[str, Field(description="A change that was tried and brings it up; empty if none does.")]


class Revealed(BaseModel):
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
        date=f"{memory.updated_at:%Y-%m-%d}",
        sensitivity=str(memory.sensitivity),
        superseded=superseded,
    )


def details(memory: Memory, links: Sequence[Link], *, superseded: bool) -> MemoryDetails:
    """A memory with all its details."""
    return MemoryDetails(
        **line(memory, superseded=superseded).model_dump(),
        keywords=memory.keywords,
        importance=memory.importance,
        created=timestamps.to_text(memory.created_at),
        valid_from=timestamps.to_text(memory.valid_from) if memory.valid_from else "",
        valid_to=timestamps.to_text(memory.valid_to) if memory.valid_to else "",
        version=memory.version,
        forgotten=memory.known_to is not None,
        links=[LinkLine(source=each.source, kind=str(each.kind), target=each.target) for each in links[:MAX_LINKS]],
    )


def changed(outcome: Outcome) -> Changed:
    """One change."""
    return Changed(id=outcome.id, action=str(outcome.action))


def batch_of(engine: Engine, outcomes: Iterable[Outcome]) -> str:
    """The name under which changes can be undone; empty where nothing was written."""
    written = [outcome.seq for outcome in outcomes if outcome.seq is not None]
    entries = engine.store.journal(after=min(written) - 1, limit=1) if written else []
    return entries[0].batch if entries else ""


def secret_note(memory: Memory) -> str:
    """What to tell of a text that was sealed."""
    return "It holds a secret: the text is sealed, from now on only its title is shown." if is_secret(memory) else ""


def fitting(lines: Sequence[Line], budget: int = ANSWER_CHARACTERS) -> list[Line]:
    """The first lines that together stay within a budget of characters; at least one."""
    kept: list[Line] = []
    for each in lines:
        budget -= len(each.model_dump_json())
        if kept and budget < 0:
            break
        kept.append(each)
    return kept
