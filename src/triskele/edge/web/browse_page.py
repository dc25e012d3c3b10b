"""Table and timeline of memories, and changes of many at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from starlette.responses import Response

from triskele.edge.http.access import WRITE
from triskele.edge.web.rendering import PageForm, PageRequest, PageRoute, gone_to, page
from triskele.errors import BadInput
from triskele.text import periods
from triskele.types import MemoryView, Outcome, Sensitivity
from triskele.validation import MAX_LISTED

PAGE = 50
MOST_AT_ONCE = 10_000
MOST_MONTHS = 72
ANY = "*"
CURRENT, FORGOTTEN = "current", "forgotten"
STATES = {
    CURRENT: "current",
    "superseded": "superseded",
    "ended": "no longer valid",
    FORGOTTEN: "forgotten",
    "private": "private",
    "secret": "secret",
}
SORTS = {"recency": "changed last", "about": "newest", "oldest": "oldest", "importance": "most important"}
_LABELS = ("category", "project")


@dataclass(frozen=True)
class BrowseForm(PageForm):
    """The fields of the form; `*` stands for all projects."""

    project: str = ANY
    category: str = ""
    tag: str = ""
    origin: str = ""
    state: str = CURRENT
    since: str = ""
    until: str = ""
    sort: str = "recency"

    @property
    def is_narrowed(self) -> bool:
        """Whether anything is left out; an order leaves nothing out."""
        return bool(self.values().keys() - {"sort"})

    def options(self) -> dict[str, Any]:
        """The options of `browse` for the filters."""
        is_class = self.state in (Sensitivity.PRIVATE, Sensitivity.SECRET)
        return {
            **({"all_projects": True} if self.project == ANY else {"project": self.project, "everywhere": False}),
            "category": self.category or None,
            "tags": [self.tag] if self.tag else (),
            "origins": [self.origin] if self.origin else None,
            "sensitivities": [self.state] if is_class else None,
            "state": CURRENT if is_class else self.state,
            "since": self.since or None,
            "until": self.until or None,
            "sort": self.sort,
        }


def show(request: PageRequest) -> Response:
    """One page of the table, or of the timeline."""
    filters = BrowseForm.of(request)
    is_timeline = request.text("view", most=20) == "timeline"
    if is_timeline and filters.sort not in ("about", "oldest"):
        filters = replace(filters, sort="about")
    number = request.number("page", 1, most=1_000_000)
    listed = request.engine.browse(**filters.options(), limit=PAGE, offset=(number - 1) * PAGE, facets=True)
    assert listed.facets is not None
    values: dict[str, Any] = {
        "filters": filters,
        "listed": listed,
        "number": number,
        "last": max(1, -(-listed.total // PAGE)),
        "first_shown": (number - 1) * PAGE + 1,
        "states_of": STATES,
        "sorts": SORTS,
        "short": request.engine.shorten([memory.id for memory in listed.memories]),
        "categories": request.engine.settings.memory.categories,
        "is_timeline": is_timeline,
    }
    if is_timeline:
        dated = [(f"{periods.memory_time(memory):%Y-%m-%d}", memory) for memory in listed.memories]
        by_month = groupby(dated, key=lambda pair: pair[0][:7])
        values["groups"] = [(month, list(group)) for month, group in by_month]
        values["months"] = _bars(list(listed.facets.months.items()))
    return page(request, "browse.html", "Browse", **values)


def _bars(months: list[tuple[str, int]]) -> list[dict[str, Any]]:
    """The bars of a chart over the newest months."""
    if not months:
        return []
    # Months since year 0, so that `until` is the first day of the next one.
    numbers = [12 * int(month[:-3]) + int(month[-2:]) for month, _ in months]
    last = numbers[-1]
    shown = [(number, *pair) for number, pair in zip(numbers, months, strict=True) if last - number < MOST_MONTHS]
    first, most = shown[0][0], max(count for _, _, count in shown)
    width = 100 / (last - first + 1)
    return [
        {"month": month, "count": count, "x": round((number - first) * width, 3),
         "width": round(width * 0.8, 3), "height": round(100 * count / most, 2),
         "until": f"{number // 12}-{number % 12 + 1:02d}-01"}
        for number, month, count in shown
    ]  # fmt: skip


def change_many(request: PageRequest) -> Response:
    """Change the chosen memories, or all that match, in one batch."""
    filters = BrowseForm.of(request)
    chosen = _chosen(request, filters)
    if not chosen:
        raise BadInput("no memory is chosen: tick some first")
    outcomes = _changed(request, request.text("action", most=20), chosen)
    batch = next((outcome.batch for outcome in outcomes if outcome.batch), "")
    return gone_to("/browse", batch, **({} if batch else {"said": "unchanged"}), **filters.values())


def _chosen(request: PageRequest, filters: BrowseForm) -> list[MemoryView]:
    if not request.text("matching", most=8):
        return list(request.engine.lookup(request.many("id")[:MOST_AT_ONCE]).values())
    chosen: list[MemoryView] = []
    while True:
        listed = request.engine.browse(**filters.options(), limit=MAX_LISTED, offset=len(chosen))
        if listed.total > MOST_AT_ONCE:
            raise BadInput(
                f"{listed.total:,} memories match, and at most {MOST_AT_ONCE:,} are changed at once: add a filter"
            )
        chosen += listed.memories
        if listed.next_offset is None:
            return [memory for memory in chosen if memory.writable]


def _changed(request: PageRequest, action: str, memories: Sequence[MemoryView]) -> Sequence[Outcome]:
    engine = request.engine
    current = [memory.id for memory in memories if not memory.forgotten]
    if action == "forget":
        return engine.forget(*current) if current else ()
    if action == "restore":
        forgotten = [memory.id for memory in memories if memory.forgotten]
        return engine.restore(*forgotten) if forgotten else ()
    if action != "label":
        raise BadInput("choose what to do with the memories")
    labels: dict[str, Any] = {name: request.text(f"new_{name}", most=200).strip() for name in _LABELS}
    for field in ("add_tag", "remove_tag"):
        tag = request.text(field, most=200).strip()
        labels[f"{field}s"] = [tag] if tag else None
    changes = {name: value for name, value in labels.items() if value}
    return engine.edit(*current, **changes) if current and changes else ()


ROUTES: tuple[PageRoute, ...] = (
    PageRoute("GET", "/browse", show, title="Browse"),
    PageRoute("POST", "/bulk", change_many, WRITE),
)
