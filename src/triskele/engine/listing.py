"""Lists of memories: by a statement where that is enough, by the columns of the catalog otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from triskele import validation
from triskele.store.owner import OwnerStore
from triskele.types import Memory, Scope, Sort

if TYPE_CHECKING:
    from triskele.index.catalog import Columns
    from triskele.requests import ListOptions
    from triskele.types import Facets

CURRENT, VALID = "current", "valid"
STATES = (CURRENT, VALID, "ended", "superseded", "forgotten")
SORTS = (Sort.RECENCY, Sort.IMPORTANCE, "about", "oldest")


@dataclass(frozen=True, slots=True)
class ListRequest:
    """A checked request for a page."""

    sort: str
    limit: int
    offset: int
    state: str
    everywhere: bool
    facets: bool


def checked(options: ListOptions) -> ListRequest:
    """Check the order, state and bounds of a page."""
    return ListRequest(
        sort=validation.check_choice(options.get("sort", Sort.RECENCY), SORTS, "sort"),
        limit=validation.check_whole(options.get("limit", 50), "limit", most=validation.MAX_LISTED),
        offset=validation.check_whole(options.get("offset", 0), "offset", most=validation.MAX_OFFSET),
        state=validation.check_choice(options.get("state", CURRENT), STATES, "state"),
        everywhere=bool(options.get("everywhere", True)),
        facets=bool(options.get("facets", False)),
    )


def page(
    store: OwnerStore, columns: Callable[[], Columns], scope: Scope, request: ListRequest
) -> tuple[list[Memory], int, Facets | None]:
    """The memories of a page, how many there are in all, and the facets if they are asked for."""
    in_state = replace(scope, any_time=request.state != VALID)
    memories: list[Memory] | None = None
    if request.state in (CURRENT, VALID) and request.sort in (Sort.RECENCY, Sort.IMPORTANCE):
        memories = store.browse(in_state, sort=Sort(request.sort), limit=request.limit, offset=request.offset)
        total = request.offset + len(memories) if len(memories) < request.limit else store.count(in_state)
        if not request.facets:
            return memories, total, None
    # It loads numpy.
    from triskele.engine import column_listing

    if memories is None:
        memories, total = column_listing.page(store, columns(), in_state, request)
    return memories, total, column_listing.facets(columns(), scope, request) if request.facets else None
