"""The keywords of every request, declared once; Python, HTTP, MCP and the command line take them from here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, Literal, Required, TypedDict

from triskele.types import Origin, Role, Sensitivity, Sort

# The most memories that one request over HTTP may name or store, and the parameter that names them.
MAX_BATCH = 100
IDS = "ids"
# What other programs call a keyword.
_SYNONYMS = {"text": "content", "body": "content", "query": "text", "question": "text"}

Moment = datetime | str
# Callers may give names instead of enums.
OriginName = Literal["user", "agent", "import", "tool", "web"] | Origin
RoleName = Literal["user", "assistant", "tool", "other"] | Role
SensitivityName = Literal["open", "private", "secret"] | Sensitivity
LegName = Literal["lexical", "dense", "graph"]
EvidenceName = Literal["speaker", "time"]
FusionName = Literal["default", "rrf", "cc", "rsf", "dbsf", "sum", "zscore", "share"]
RerankName = Literal["default", "off", "late", "cross", "gated"]
OrderName = Literal["ranked", "diverse", "mentioned"]
SortName = Literal["relevance", "importance", "recency"] | Sort
ListSortName = Literal["recency", "importance", "about", "oldest"] | Sort
StateName = Literal["current", "valid", "ended", "superseded", "forgotten"]


class Place(TypedDict, total=False):
    """Where to look: one project and what belongs everywhere, or all projects."""

    project: str | None
    """The project; empty is what belongs to every project, null the current one."""
    all_projects: bool
    """Search all projects."""


class Filters(Place, total=False):
    """Which memories to consider."""

    category: str | None
    tags: Sequence[str]
    since: Moment | None
    """About this time or later: a date, a month, or words such as `last week`."""
    until: Moment | None
    """About this time or earlier, its end included."""
    sensitivities: Sequence[SensitivityName] | None
    """Only these; null is all."""
    origins: Sequence[OriginName] | None
    """Only these; null is all."""


class AskOptions(Filters, total=False):
    """How to answer a question."""

    as_of: Moment | None
    """What was valid at this time."""
    known_at: Moment | None
    """What was recorded by this time."""
    limit: int | None
    show_superseded: bool
    legs: Sequence[LegName] | None
    """The legs that rank; null is all."""
    fusion: FusionName
    rerank: RerankName
    order: OrderName
    near: str | None
    """Order the best hits by what they share with this memory."""


class RecallOptions(AskOptions, total=False):
    """How to recall."""

    sort: SortName
    budget: int | None
    """At most this many tokens of hits."""
    logged: bool
    """Whether the recall log may keep the question."""
    local_only: bool
    """Ask no hosted model and give no reasons; for a prompt that waits."""


class ListOptions(Filters, total=False):
    """Which memories to list, in which order."""

    sort: ListSortName
    limit: int
    offset: int
    state: StateName
    """`current` is all that is not forgotten; `valid` leaves out what holds no longer, or not yet."""
    everywhere: bool
    """Include what belongs to every project; true unless it is given."""
    facets: bool
    """Count the names that filters can choose from."""


class Labels(TypedDict, total=False):
    """What a draft and an edit both say about a memory; None stands for nothing."""

    tags: Sequence[str]
    keywords: str
    importance: float
    title: str | None
    """Shown instead of a secret's text."""
    speaker: str | None
    role: RoleName | None
    valid_from: Moment | None
    valid_to: Moment | None


class Details(Labels, total=False):
    """What a new memory says besides its content."""

    category: str | None
    project: str | None
    """The project; empty is every project, null the current one."""
    sensitivity: SensitivityName | None
    """Null lets the text decide."""
    origin: OriginName
    session: str | None
    position: int | None
    created_at: Moment | None


class Draft(Details, total=False):
    """A memory to store."""

    content: Required[str]


class Changes(Labels, total=False):
    """What an edit changes; a keyword that is left out stays, None removes."""

    content: str
    category: str
    project: str
    """The project; empty is every project."""
    sensitivity: SensitivityName
    add_tags: Sequence[str]
    remove_tags: Sequence[str]


def refuse_unknown(method: str, names: Iterable[str], request: Any) -> None:
    """Raise if a call of a public method misspells a keyword."""
    keywords = [*request.__required_keys__, *request.__optional_keys__]
    for name in names:
        if name not in keywords:
            raise TypeError(f"{method}() has no keyword {name!r}{nearest(name, keywords)[1]}")


def nearest(name: str, keywords: Collection[str]) -> tuple[str, str]:
    """The keyword that an unknown one probably means, if any, and a hint for a message."""
    from difflib import get_close_matches

    synonym = _SYNONYMS.get(name, "")
    near = synonym if synonym in keywords else "".join(get_close_matches(name, keywords, n=1))
    return near, f"; did you mean {near!r}?" if near else f": choose from {', '.join(sorted(keywords)) or 'none'}"


def is_request(kind: object) -> bool:
    """Whether a type is one of the requests."""
    return isinstance(kind, type) and kind.__module__ == __name__ and hasattr(kind, "__required_keys__")
