"""Memories by filters, paged, with true counts: what the table, the timeline and actions by filter work on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from triskele.base import periods, timestamps
from triskele.errors import BadInput
from triskele.types import LinkKind, Memory, Origin, Scope, Sensitivity

if TYPE_CHECKING:
    from triskele.engine import Engine
    from triskele.index.catalog import Columns

ANY = "*"
CURRENT, SUPERSEDED, ENDED, FORGOTTEN = "current", "superseded", "ended", "forgotten"
STATES = {
    CURRENT: "current",
    SUPERSEDED: "superseded",
    ENDED: "no longer valid",
    FORGOTTEN: "forgotten",
    "private": "private",
    "secret": "secret",
}
SORTS = {"changed": "changed last", "about": "newest", "oldest": "oldest", "importance": "most important"}
_MOST_TAGS = 200
_EVER = np.iinfo(np.int64).max

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Filters:
    """What a list is narrowed to; an empty text narrows nothing, a project of `*` means all of them."""

    project: str = ANY
    category: str = ""
    tag: str = ""
    origin: str = ""
    state: str = CURRENT
    since: str = ""
    until: str = ""
    sort: str = "changed"

    def __post_init__(self) -> None:
        """Refuse names that nothing has."""
        for given, known in ((self.state, STATES), (self.sort, SORTS), (self.origin or Origin.USER, list(Origin))):
            if given not in known:
                raise BadInput(f"unknown filter {given!r}: choose one of {', '.join(known)}")

    def values(self) -> dict[str, str]:
        """The filters that differ from the default."""
        names = ("project", "category", "tag", "origin", "state", "since", "until", "sort")
        return {name: getattr(self, name) for name in names if getattr(self, name) != getattr(Filters(), name)}

    @property
    def is_narrowed(self) -> bool:
        """Whether anything is left out; an order leaves nothing out."""
        return bool(self.values().keys() - {"sort"})

    def scope(self, engine: Engine) -> Scope:
        """The filters as a scope; every moment counts."""
        wanted: dict[str, Any] = {}
        if self.origin:
            wanted["origins"] = [Origin(self.origin)]
        if self.state in (Sensitivity.PRIVATE, Sensitivity.SECRET):
            wanted["sensitivities"] = [Sensitivity(self.state)]
        scope = engine.scope(
            all_projects=True,
            category=self.category or None,
            tags=[self.tag] if self.tag else (),
            since=self.since or None,
            until=self.until or None,
            **wanted,
        )
        projects = None if self.project == ANY else frozenset({self.project})
        return replace(scope, projects=projects, any_time=True)


@dataclass(frozen=True, slots=True)
class ListedPage:
    """One page of memories, and how many there are in all."""

    memories: Sequence[Memory]
    total: int


@dataclass(frozen=True, slots=True)
class Counts:
    """How many current memories there are, and each project and category has."""

    memories: int
    projects: Mapping[str, int]
    categories: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Facets:
    """How many current memories each name has; tags are cut."""

    projects: Mapping[str, int]
    categories: Mapping[str, int]
    origins: Mapping[str, int]
    tags: Sequence[str]


def read_only(engine: Engine, memories: Iterable[Memory]) -> set[str]:
    """Those of some memories that others share for reading alone."""
    shared = {memory.id for memory in memories if memory.shared_by}
    if not shared or engine.store.shares is None:
        return set()
    return shared & {each.id for each in engine.store.shares.received() if each.access == "read"}


def find(engine: Engine, filters: Filters, *, limit: int | None, offset: int = 0) -> ListedPage:
    """A page of the memories that the filters leave; without a limit all of them."""
    end = None if limit is None else offset + limit
    if filters.state in (SUPERSEDED, FORGOTTEN):
        candidates = superseded(engine) if filters.state == SUPERSEDED else forgotten(engine)
        kept = [each for each in candidates if _is_in(each, filters.scope(engine))]
        return ListedPage(
            sorted(kept, key=_sort_key(filters.sort), reverse=filters.sort != "oldest")[offset:end], len(kept)
        )
    rows = _rows(engine, filters)
    wanted = rows[offset:end].tolist()
    known = engine.store.rows(wanted)
    return ListedPage([known[row] for row in wanted if row in known], len(rows))


def months(engine: Engine, filters: Filters) -> list[tuple[str, int]]:
    """How many of the memories are about each month, oldest first; months without any are left out."""
    columns = _columns(engine)
    times = columns.happened[_mask(columns, filters, engine)]
    counted = np.unique(times.astype("datetime64[us]").astype("datetime64[M]"), return_counts=True)
    return [(str(month), int(count)) for month, count in zip(*counted, strict=True)]


def counts(engine: Engine) -> Counts:
    """What is current, counted in the columns: a store would read every row for it."""
    columns = _columns(engine)
    current = columns.known_to == _EVER
    return Counts(
        int(current.sum()),
        _counted(columns.places[current], [project for _, project in columns.codes.places.copy()]),
        _counted(columns.categories[current], list(columns.codes.categories.copy())),
    )


def facets(engine: Engine) -> Facets:
    """What the filters can choose from."""
    columns = _columns(engine)
    current = columns.known_to == _EVER
    codes, counted = columns.codes, counts(engine)
    access = _counted(columns.access[current], [origin for _, origin in codes.access.copy()])
    of_tag = {tag: int(np.isin(columns.rows[current], rows).sum()) for tag, rows in codes.tagged.copy().items()}
    tagged = sorted((tag for tag, count in of_tag.items() if count), key=lambda tag: (-of_tag[tag], tag))
    return Facets(
        projects=counted.projects,
        categories=counted.categories,
        origins=access,
        tags=tagged[:_MOST_TAGS],
    )


def superseded(engine: Engine) -> list[Memory]:
    """The memories that another one replaces."""
    standing = [link for link in engine.store.all_links() if link.kind is LinkKind.SUPERSEDES and link.known_to is None]
    known = engine.store.memories({end for link in standing for end in (link.source, link.target)})
    return [known[id] for id in {link.target for link in standing if link.source in known} if id in known]


def forgotten(engine: Engine) -> list[Memory]:
    """The last versions of the memories that no longer have a current one."""
    columns = _columns(engine)
    closed = engine.store.rows(columns.rows[columns.known_to != _EVER].tolist()).values()
    last = {each.id: each for each in sorted(closed, key=lambda memory: memory.version)}
    standing = engine.store.memories(last)
    return [memory for id, memory in last.items() if id not in standing]


def _rows(engine: Engine, filters: Filters) -> Ints:
    """The rows that the filters leave, in their order; of equals the newest first."""
    columns = _columns(engine)
    at = np.flatnonzero(_mask(columns, filters, engine))
    keys: dict[str, NDArray[Any]] = {
        "changed": -columns.known_from,
        "about": -columns.happened,
        "oldest": columns.happened,
        "importance": -columns.importance,
    }
    ordered: Ints = columns.rows[at[np.lexsort((-columns.rows[at], keys[filters.sort][at]))]]
    return ordered


def _mask(columns: Columns, filters: Filters, engine: Engine) -> NDArray[np.bool_]:
    seen = columns.scoped(filters.scope(engine)).is_visible
    if filters.state == ENDED:
        seen = seen & (columns.valid_to <= timestamps.to_micros(timestamps.now()))
    return seen


def _columns(engine: Engine) -> Columns:
    return engine.runtime.indexes(engine.semantic()).catalog.view()


def _is_in(memory: Memory, scope: Scope) -> bool:
    return (
        (scope.projects is None or memory.project in scope.projects)
        and scope.category in (None, memory.category)
        and scope.tags <= set(memory.tags)
        and (scope.origins is None or memory.origin in scope.origins)
        and (scope.since is None or periods.memory_time(memory) >= scope.since)
        and (scope.until is None or periods.memory_time(memory) < scope.until)
    )


def _sort_key(sort: str) -> Callable[[Memory], Any]:
    if sort == "importance":
        return lambda memory: (memory.importance, memory.id)
    if sort == "changed":
        return lambda memory: (memory.known_to or memory.known_from, memory.id)
    return lambda memory: (periods.memory_time(memory), memory.id)


def _counted(values: Ints, names: Iterable[str]) -> dict[str, int]:
    """How often each name occurs, the most frequent first; names of several codes are added up."""
    counts: dict[str, int] = {}
    for name, count in zip(names, np.bincount(values[values >= 0]).tolist(), strict=False):
        counts[name] = counts.get(name, 0) + count
    return dict(
        sorted(((name, count) for name, count in counts.items() if count), key=lambda pair: (-pair[1], pair[0]))
    )
