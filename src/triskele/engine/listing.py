"""Lists of memories: by a statement where that is enough, by the columns of the catalog otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from triskele import requests, validation
from triskele.engine import views
from triskele.store.owner import OwnerStore
from triskele.types import EVERYWHERE, Facets, Memory, Page, Scope, Sort

if TYPE_CHECKING:
    from triskele.index.catalog import Columns
    from triskele.requests import ListOptions
    from triskele.store.access import StoreAccess

CURRENT, VALID = "current", "valid"
STATES = (CURRENT, VALID, "ended", "superseded", "forgotten")
_FILTERS = requests.Filters.__optional_keys__
SORTS = (Sort.RECENCY, Sort.IMPORTANCE, "about", "oldest")


@dataclass(frozen=True, slots=True)
class ListRequest:
    """The part of a list that is asked for, checked."""

    sort: str
    limit: int
    offset: int
    state: str


def page(access: StoreAccess, columns: Callable[[], Columns], options: ListOptions) -> Page:
    """A page of memories with their use, and the facets if they are asked for."""
    request = ListRequest(
        sort=validation.check_choice(options.get("sort", Sort.RECENCY), SORTS, "sort"),
        limit=validation.check_whole(options.get("limit", 50), "limit", most=validation.MAX_LISTED),
        offset=validation.check_whole(options.get("offset", 0), "offset", most=validation.MAX_OFFSET),
        state=validation.check_choice(options.get("state", CURRENT), STATES, "state"),
    )
    filters: dict[str, Any] = {name: value for name, value in options.items() if name in _FILTERS}
    scope = access.scope(**filters)
    if scope.projects is not None and not options.get("everywhere", True):
        scope = replace(scope, projects=scope.projects - {EVERYWHERE} or scope.projects)
    in_state = replace(scope, any_time=request.state != VALID)
    is_plain = request.state in (CURRENT, VALID) and request.sort in (Sort.RECENCY, Sort.IMPORTANCE)
    counts: Facets | None = None
    if is_plain:
        memories, total = _browsed(access.store, in_state, request)
    if options.get("facets") or not is_plain:
        # It loads numpy.
        from triskele.engine import column_listing

        table = columns()
        if not is_plain:
            memories, total = column_listing.page(access.store, table, in_state, request)
        counts = column_listing.facets(table, scope, request) if options.get("facets") else None
    after = request.offset + len(memories)
    return Page(
        tuple(views.views(access.store, memories).values()),
        total,
        after if after < total else None,
        access.store.usage.counts([memory.id for memory in memories]),
        counts,
    )


def _browsed(store: OwnerStore, scope: Scope, request: ListRequest) -> tuple[list[Memory], int]:
    """The memories of a page by one statement, and how many there are in all."""
    memories = store.browse(scope, sort=Sort(request.sort), limit=request.limit, offset=request.offset)
    is_last = len(memories) < request.limit
    return memories, request.offset + len(memories) if is_last else store.count(scope)
