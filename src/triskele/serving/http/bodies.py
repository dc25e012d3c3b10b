"""What requests may hold: bodies and query strings, validated here and described by the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from triskele.exchange.reconcile import Push
from triskele.exchange.sync_states import MOST_KEYS
from triskele.types import LinkKind, Origin, Role, Sensitivity, Sort
from triskele.validation import MAX_BUDGET, MAX_LIMIT, MAX_POSITION

MAX_QUERY_BYTES = 4096
MAX_BATCH = 100
_MAX_TAGS = 64

Text = Annotated[str, Field(min_length=1, description="One fact in one or a few sentences.")]
Label = Annotated[str, Field(max_length=500)]
Name = Annotated[str, Field(max_length=200)]
# The engine knows the categories of the store, and refuses every other text, however long.
Category = Annotated[str, Field(description="One of the categories of the store.")]
Reference = Annotated[str, Field(min_length=4, max_length=64, description="An id, or its first characters.")]
Tags = Annotated[list[Label], Field(max_length=_MAX_TAGS)]
Importance = Annotated[float, Field(ge=0, le=1)]
When = Annotated[str, Field(max_length=100, description="A date, a month, a time, or words such as `last week`.")]
Project = Annotated[str, Field(max_length=200, description="The project; empty is what belongs to every project.")]
Question = Annotated[str, Field(max_length=MAX_QUERY_BYTES, description="At most 4 KB of text.")]
Limit = Annotated[int, Field(ge=1, le=MAX_LIMIT)]
Offset = Annotated[int, Field(ge=0, le=2**31 - 1)]
Sensitivities = Annotated[
    list[Sensitivity] | None, Field(max_length=3, description="Only memories of these; null is all.")
]
Origins = Annotated[list[Origin] | None, Field(max_length=5, description="Only memories of these; null is all.")]
AllProjects = Annotated[bool, Field(description="Look into all projects.")]


Id = Annotated[str, Field(pattern="^[0-9a-hjkmnp-tv-z]{16}$")]
Key = Annotated[str, Field(pattern="^(git|name):", max_length=600)]
Ties = Annotated[list[tuple[LinkKind, Id]], Field(max_length=1000)]


class Strict(BaseModel):
    """A request part: unknown fields and values of another type are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class RememberBody(Strict):
    """A memory to store; a text that is already stored returns its memory."""

    content: Text
    category: Category | None = None
    tags: Tags = []
    keywords: Label = ""
    importance: Importance = 0.5
    project: Project | None = None
    sensitivity: Sensitivity | None = None
    title: Annotated[Label | None, Field(description="Shown instead of a secret's text.")] = None
    origin: Origin = Origin.USER
    session: Name | None = None
    position: Annotated[int, Field(ge=0, le=MAX_POSITION)] | None = None
    speaker: Name | None = None
    role: Role | None = None
    created_at: When | None = None
    valid_from: When | None = None
    valid_to: When | None = None


class StoreBody(RememberBody):
    """A memory to store, and the older one that it replaces."""

    supersedes: Reference | None = None


class BatchBody(Strict):
    """Memories to store in one transaction."""

    memories: Annotated[list[RememberBody], Field(min_length=1, max_length=MAX_BATCH)]


class EditBody(Strict):
    """What to change of a memory; fields that are left out stay."""

    content: Text | None = None
    category: Category | None = None
    tags: Tags | None = None
    keywords: Label | None = None
    importance: Importance | None = None
    project: Project | None = None
    sensitivity: Sensitivity | None = None
    title: Label | None = None
    speaker: Name | None = None
    role: Role | None = None
    valid_from: Annotated[When | None, Field(description="null removes it.")] = None
    valid_to: Annotated[When | None, Field(description="null removes it.")] = None


class RelatedBody(Strict):
    """A memory, or a text that is not stored yet."""

    id: Reference | None = None
    content: Text | None = None
    project: Project | None = None


class IdsBody(Strict):
    """Some memories."""

    ids: Annotated[list[Reference], Field(min_length=1, max_length=MAX_BATCH)]


class AskOptions(Strict):
    """The options of a recall."""

    limit: Limit = 10
    project: Project | None = None
    all_projects: AllProjects = False
    category: Category | None = None
    tags: Tags = []
    as_of: When | None = None
    known_at: When | None = None
    since: When | None = None
    until: When | None = None
    sensitivities: Sensitivities = None
    origins: Origins = None
    show_superseded: bool = False
    legs: Annotated[list[Literal["lexical", "dense", "graph"]], Field(min_length=1, max_length=3)] | None = None
    fusion: Literal["default", "rrf", "cc", "rsf", "dbsf", "sum", "zscore", "share"] = "default"
    rerank: Literal["default", "off", "late", "cross", "gated"] = "default"
    order: Literal["ranked", "diverse", "mentioned"] = "ranked"
    near: Annotated[Reference | None, Field(description="Order the best hits by what they share with it.")] = None


class RecallBody(AskOptions):
    """A question, and how to answer it."""

    query: Question
    sort: Sort = Sort.RELEVANCE
    budget: Annotated[int, Field(ge=1, le=MAX_BUDGET)] | None = None
    logged: Annotated[bool, Field(description="Whether the recall log may note the question.")] = True


class WhyNotBody(AskOptions):
    """A memory that was expected, and the question that did not find it."""

    id: Reference
    query: Question


class LinkBody(Strict):
    """A link, read as `source kind target`."""

    source: Reference
    kind: LinkKind
    target: Reference


class UndoBody(Strict):
    """Which change to undo; without a batch the last one of the project."""

    batch: Annotated[Name | None, Field(min_length=1)] = None
    project: Project | None = None
    all_projects: AllProjects = False
    anyone: Annotated[bool, Field(description="The last change of anyone, agents included.")] = False


class ListQuery(Strict):
    """A page of memories."""

    limit: Limit = 50
    offset: Offset = 0
    sort: Literal[Sort.RECENCY, Sort.IMPORTANCE] = Sort.RECENCY
    project: Project | None = None
    all_projects: AllProjects = False
    category: Category | None = None
    tags: Tags = []
    since: When | None = None
    until: When | None = None
    sensitivities: Annotated[list[Sensitivity], Field(max_length=3, description="Only memories of these.")] = []
    origins: Annotated[list[Origin], Field(max_length=5, description="Only memories of these.")] = []
    any_time: Annotated[bool, Field(description="Include memories that are out of date.")] = True


class JournalQuery(Strict):
    """The newest entries of the journal, or those of a batch."""

    limit: Limit = 50
    batch: Annotated[Name | None, Field(min_length=1)] = None


class ForgetQuery(Strict):
    """How to forget a memory."""

    hard: Annotated[bool, Field(description="Erase it for good: no history, no undo.")] = False


class ImportQuery(Strict):
    """How to read an import."""

    format: Literal["jsonl", "markdown", "agents", "mcp-memory", "transcript"] = "jsonl"
    dry_run: bool = False
    project: Project | None = None
    keep_origin: Annotated[bool, Field(description="Keep the origins that the file gives.")] = False


class ExportQuery(Strict):
    """What an export holds; secrets need the scope reveal."""

    private: bool = False
    with_secrets: bool = False
    current_only: bool = False


class StatsQuery(Strict):
    """What to count."""

    more: Annotated[bool, Field(description="Jobs, names, usage and curation too.")] = True


class GraphQuery(Strict):
    """A concept of the graph."""

    concept: Annotated[str, Field(min_length=1, max_length=200)]
    limit: Limit = 10
    project: Project | None = None
    all_projects: AllProjects = False
    closed: Annotated[bool, Field(description="Include edges that no longer hold.")] = False


class SyncRecord(Strict):
    """The state of an open memory; `keys` identify its project, whatever it is called here."""

    content: Text
    category: Name
    tags: Tags = []
    keywords: Label = ""
    importance: Importance = 0.5
    origin: Origin = Origin.USER
    session: Name | None = None
    position: Annotated[int, Field(ge=0, le=MAX_POSITION)] | None = None
    speaker: Name | None = None
    role: Role | None = None
    created_at: AwareDatetime
    updated_at: AwareDatetime
    valid_from: AwareDatetime | None = None
    valid_to: AwareDatetime | None = None
    forgotten: bool = False
    project: Project = ""
    keys: Annotated[list[Key], Field(max_length=MOST_KEYS)] = []


class SyncItem(Strict):
    """What changed of a memory; `base` is the token of the state that the change was made on."""

    id: Id
    push: Literal[Push.RECORD, Push.WITHDRAWAL, Push.ERASURE, Push.NOTHING]
    base: Annotated[str, Field(max_length=100)] = ""
    record: SyncRecord | None = None
    sensitivity: Literal[Sensitivity.PRIVATE, Sensitivity.SECRET] = Sensitivity.PRIVATE
    linked: Ties = []
    unlinked: Ties = []


class SyncBody(Strict):
    """Up to 100 changes of one actor; refused if a user is named and the key is not theirs."""

    items: Annotated[list[SyncItem], Field(min_length=1, max_length=MAX_BATCH)]
    actor: Name = ""
    user: Name = ""


class SyncQuery(Strict):
    """Where the last page ended; empty at the beginning."""

    cursor: Annotated[str, Field(pattern="^([0-9]{1,18}@[0-9]{1,18})?$")] = ""
    limit: Annotated[int, Field(ge=1, le=500)] = 200
    user: Name = ""
