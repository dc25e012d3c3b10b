"""The arguments that tools share, with their bounds and their meaning for an agent."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from triskele.validation import MAX_LIMIT

MAX_QUERY_CHARACTERS = 4096
MAX_CONTENT_CHARACTERS = 100_000
MAX_FORGOTTEN = 50
MAX_OFFSET = 1_000_000
_MAX_LABEL_CHARACTERS = 500
_MAX_TAGS = 50

Id = Annotated[str, Field(min_length=4, max_length=64, description="A memory's id, or its first characters.")]
Ids = Annotated[list[Id], Field(min_length=1, max_length=MAX_FORGOTTEN, description="Ids of memories.")]
Question = Annotated[
    str, Field(min_length=1, max_length=MAX_QUERY_CHARACTERS, description="The question, in a full sentence.")
]
Content = Annotated[
    str,
    Field(
        max_length=MAX_CONTENT_CHARACTERS,
        description="The fact, in one or two self-contained sentences; by default at most 1400 characters.",
    ),
]
Limit = Annotated[int, Field(ge=1, le=MAX_LIMIT, description="At most so many.")]
Offset = Annotated[int, Field(ge=0, le=MAX_OFFSET, description="Leave out so many; `next_offset` of the last page.")]
ReadProject = Annotated[
    str,
    Field(max_length=200, description="Look into this project instead of the one worked in."),
]
WrittenProject = Annotated[
    str, Field(max_length=200, description="The project it belongs to, unless it is the one worked in.")
]
Everywhere = Annotated[bool, Field(description="It holds in every project, such as a preference of the user.")]
AllProjects = Annotated[bool, Field(description="Look into all projects.")]
Category = Annotated[
    str,
    Field(
        max_length=_MAX_LABEL_CHARACTERS,
        description="facts, preferences, projects, people, decisions, lessons or procedures; users can set others.",
    ),
]
Tag = Annotated[str, Field(max_length=_MAX_LABEL_CHARACTERS)]
Tags = Annotated[tuple[Tag, ...], Field(max_length=_MAX_TAGS, description="Labels to filter by, such as `deploy`.")]
Keywords = Annotated[
    str,
    Field(max_length=_MAX_LABEL_CHARACTERS, description="Other words that somebody may search for; not shown."),
]
Importance = Annotated[
    float, Field(ge=0, le=1, description="0.5 is usual; 0.9 for what should be known at the start of any work.")
]
Day = Annotated[str, Field(max_length=40, description="A date such as 2026-03-14.")]
Raised = Annotated[
    Literal["private", "secret"],
    Field(description="private: only for clients that the user trusts; secret: sealed, only a title is shown."),
]
Title = Annotated[str, Field(max_length=_MAX_LABEL_CHARACTERS, description="What a secret is called; no part of it.")]
Source = Annotated[
    Literal["agent", "tool", "web"],
    Field(description="Where the words come from: yours or the user's (agent), a tool's output, or the web."),
]
Batch = Annotated[str, Field(max_length=200, description="The `batch` that a change was answered with.")]
