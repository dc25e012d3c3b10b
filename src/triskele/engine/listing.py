"""Lists of memories: by a statement where that is enough, by the columns of the catalog otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from triskele import validation
from triskele.store.protocols import OwnerStore
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
) -> tuple[list[Memory], int]:
    """The memories of a page, and how many there are in all."""
    scope = replace(scope, any_time=request.state != VALID)
    if request.state in (CURRENT, VALID) and request.sort in (Sort.RECENCY, Sort.IMPORTANCE):
        memories = store.browse(scope, sort=Sort(request.sort), limit=request.limit, offset=request.offset)
        is_last = len(memories) < request.limit
        return memories, request.offset + len(memories) if is_last else store.count(scope)
    from triskele.engine import column_listing

    return column_listing.page(store, columns(), scope, request)


def facets(columns: Columns, scope: Scope, request: ListRequest) -> Facets:
    """How many memories each name has, and each month of the list."""
    from triskele.engine import column_listing

    return column_listing.facets(columns, scope, request)
