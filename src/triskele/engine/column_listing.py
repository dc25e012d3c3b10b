"""Lists and counts of memories by the columns of the catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from triskele.text import periods, timestamps
from triskele.types import Facets, LinkKind, Memory, Scope, Sort

if TYPE_CHECKING:
    from triskele.engine.listing import ListRequest
    from triskele.index.catalog import Columns
    from triskele.store.owner import OwnerStore

_MOST_TAGS = 200
_EVER = np.iinfo(np.int64).max

Ints = NDArray[np.int64]


def page(store: OwnerStore, columns: Columns, scope: Scope, request: ListRequest) -> tuple[list[Memory], int]:
    """The memories of a page, and how many there are in all."""
    end = request.offset + request.limit
    if request.state in ("superseded", "forgotten"):
        candidates = _superseded(store) if request.state == "superseded" else _forgotten(store, columns)
        memories = [memory for memory in candidates if _is_in(memory, scope)]
        memories.sort(key=_sort_key(request.sort), reverse=request.sort != "oldest")
        return memories[request.offset : end], len(memories)
    rows = _ordered(columns, _visible(columns, scope, request.state), request.sort)
    wanted = rows[request.offset : end].tolist()
    versions = store.rows(wanted)
    return [versions[row] for row in wanted if row in versions], len(rows)


def facets(columns: Columns, scope: Scope, request: ListRequest) -> Facets:
    """How many current memories each name has, and how many of the list are about each month."""
    current = columns.known_to == _EVER
    codes = columns.codes
    of_tag = {tag: int(np.isin(columns.rows[current], rows).sum()) for tag, rows in codes.tagged.copy().items()}
    tagged = sorted((tag for tag, count in of_tag.items() if count), key=lambda tag: (-of_tag[tag], tag))
    return Facets(
        projects=_counts(columns.places[current], [project for _, project in codes.places.copy()]),
        categories=_counts(columns.categories[current], list(codes.categories.copy())),
        origins=_counts(columns.access[current], [origin for _, origin in codes.access.copy()]),
        tags={tag: of_tag[tag] for tag in tagged[:_MOST_TAGS]},
        months=_months(columns.happened[_visible(columns, replace(scope, any_time=True), request.state)]),
    )


def _visible(columns: Columns, scope: Scope, state: str) -> NDArray[np.bool_]:
    visible = columns.scoped(scope).is_visible
    if state == "ended":
        visible = visible & (columns.valid_to <= timestamps.to_micros(timestamps.now()))
    return visible


def _ordered(columns: Columns, visible: NDArray[np.bool_], sort: str) -> Ints:
    """The visible rows in their order; of equals the newest first."""
    positions = np.flatnonzero(visible)
    keys: dict[str, NDArray[Any]] = {
        Sort.RECENCY: -columns.known_from,
        "about": -columns.happened,
        "oldest": columns.happened,
        Sort.IMPORTANCE: -columns.importance,
    }
    ordered: Ints = columns.rows[positions[np.lexsort((-columns.rows[positions], keys[sort][positions]))]]
    return ordered


def _months(times: Ints) -> dict[str, int]:
    """The number of memories about each month, oldest first; months without any are left out."""
    months = np.unique(times.astype("datetime64[us]").astype("datetime64[M]"), return_counts=True)
    return {str(month): int(count) for month, count in zip(*months, strict=True)}


def _superseded(store: OwnerStore) -> list[Memory]:
    """The memories that another one replaces."""
    links = [link for link in store.all_links() if link.kind is LinkKind.SUPERSEDES and link.known_to is None]
    current = store.memories({end for link in links for end in (link.source, link.target)})
    ids = {link.target for link in links if link.source in current}
    return [current[id] for id in ids if id in current]


def _forgotten(store: OwnerStore, columns: Columns) -> list[Memory]:
    """The last versions of the memories that no longer have a current one."""
    closed = store.rows(columns.rows[columns.known_to != _EVER].tolist()).values()
    last = {memory.id: memory for memory in sorted(closed, key=lambda memory: memory.version)}
    current = store.memories(last)
    return [memory for id, memory in last.items() if id not in current]


def _is_in(memory: Memory, scope: Scope) -> bool:
    return (
        (scope.projects is None or memory.project in scope.projects)
        and scope.category in (None, memory.category)
        and scope.tags <= set(memory.tags)
        and (scope.origins is None or memory.origin in scope.origins)
        and (scope.sensitivities is None or memory.sensitivity in scope.sensitivities)
        and (scope.since is None or periods.memory_time(memory) >= scope.since)
        and (scope.until is None or periods.memory_time(memory) < scope.until)
    )


def _sort_key(sort: str) -> Callable[[Memory], Any]:
    if sort == Sort.IMPORTANCE:
        return lambda memory: (memory.importance, memory.id)
    if sort == Sort.RECENCY:
        return lambda memory: (memory.known_to or memory.known_from, memory.id)
    return lambda memory: (periods.memory_time(memory), memory.id)


def _counts(values: Ints, names: Iterable[str]) -> dict[str, int]:
    """How often each name occurs, the most frequent first; names of several codes are added up."""
    counts: dict[str, int] = {}
    for name, count in zip(names, np.bincount(values[values >= 0]).tolist(), strict=False):
        counts[name] = counts.get(name, 0) + count
    return dict(
        sorted(((name, count) for name, count in counts.items() if count), key=lambda pair: (-pair[1], pair[0]))
    )
