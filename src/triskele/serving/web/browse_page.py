"""The pages over many memories: table and timeline with filters, and changes of many at once."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from starlette.responses import Response

from triskele.base import periods
from triskele.curation import secrecy
from triskele.curation.undo import restoration
from triskele.errors import BadInput
from triskele.ingest import Drafter
from triskele.serving.web import listing
from triskele.serving.web.listing import ANY, CURRENT, SORTS, STATES, Filters
from triskele.serving.web.rendering import PageRequest, PageRoute, gone_to, page
from triskele.stores.access_keys import WRITE
from triskele.types import Change, Forget, Memory

PAGE = 50
MOST_AT_ONCE = 10_000
MOST_MONTHS = 72
_LABELS = ("category", "project")


def filters_of(asked: PageRequest) -> Filters:
    """The filters that an address or a form names."""
    return Filters(
        project=asked.text("project", ANY, most=200),
        category=asked.text("category", most=200),
        tag=asked.text("tag", most=200).strip(),
        origin=asked.text("origin", most=20),
        state=asked.text("state", CURRENT, most=20) or CURRENT,
        since=asked.text("since", most=40),
        until=asked.text("until", most=40),
        sort=asked.text("sort", "changed", most=20) or "changed",
    )


def show(asked: PageRequest) -> Response:
    """One page of the table, or of the timeline."""
    engine, filters = asked.engine, filters_of(asked)
    is_timeline = asked.text("view", most=20) == "timeline"
    if is_timeline and filters.sort not in ("about", "oldest"):
        filters = Filters(**{**filters.values(), "sort": "about"})
    number = asked.number("page", 1, most=1_000_000)
    found = listing.find(engine, filters, limit=PAGE, offset=(number - 1) * PAGE)
    ids = [each.id for each in found.memories]
    values: dict[str, Any] = {
        "filters": filters,
        "found": found,
        "number": number,
        "last": max(1, -(-found.total // PAGE)),
        "first_shown": (number - 1) * PAGE + 1,
        "facets": listing.facets(engine),
        "states_of": STATES,
        "sorts": SORTS,
        "uses": engine.store.usage.counts(ids),
        "superseded": engine.superseded(ids),
        "short": asked.short(ids),
        "read_only": listing.read_only(engine, found.memories),
        "categories": engine.settings.memory.categories,
        "is_timeline": is_timeline,
    }
    if is_timeline:
        values |= {"groups": _by_month(found.memories), "months": _bars(listing.months(engine, filters))}
    return page(asked, "browse.html", "browse", **values)


def _by_month(memories: Any) -> list[tuple[str, list[tuple[str, Memory]]]]:
    dated = [(f"{periods.memory_time(memory):%Y-%m-%d}", memory) for memory in memories]
    return [(month, list(group)) for month, group in groupby(dated, key=lambda pair: pair[0][:7])]


def _bars(months: list[tuple[str, int]]) -> list[dict[str, Any]]:
    """Bars for a chart over the months, each at its time; only the newest years if there are many."""
    if not months:
        return []
    last = _number_of(months[-1][0])
    shown = [(month, count) for month, count in months if last - _number_of(month) < MOST_MONTHS]
    first, most = _number_of(shown[0][0]), max(count for _, count in shown)
    width = 100 / (last - first + 1)
    return [
        {"month": month, "count": count, "x": round((_number_of(month) - first) * width, 3),
         "width": round(width * 0.8, 3), "height": round(100 * count / most, 2), "until": _next_month(month)}
        for month, count in shown
    ]  # fmt: skip


def _number_of(month: str) -> int:
    year, number = map(int, month.split("-"))
    return 12 * year + number


def _next_month(month: str) -> str:
    year, number = map(int, month.split("-"))
    return f"{year + number // 12}-{number % 12 + 1:02d}-01"


def change_many(asked: PageRequest) -> Response:
    """Change the chosen memories, or all that the filters leave, in one batch that can be undone."""
    filters, action = filters_of(asked), asked.text("action", most=20)
    chosen = _chosen(asked, filters)
    if not chosen:
        raise BadInput("no memory is chosen: tick some first")
    changes = [change for memory in chosen for change in _changes(asked, action, memory)]
    if not changes:
        return gone_to("/browse", said="unchanged", **filters.values())
    [first, *_] = asked.engine.apply(changes)
    return gone_to("/browse", first.batch, **filters.values())


def _chosen(asked: PageRequest, filters: Filters) -> list[Memory]:
    if not asked.text("matching", most=8):
        ids = asked.many("id")[:MOST_AT_ONCE]
        return [asked.engine.get(each) for each in ids]
    found = listing.find(asked.engine, filters, limit=MOST_AT_ONCE)
    if found.total > MOST_AT_ONCE:
        raise BadInput(
            f"{found.total:,} memories match, and at most {MOST_AT_ONCE:,} are changed at once: add a filter"
        )
    fixed = listing.read_only(asked.engine, found.memories)
    return [memory for memory in found.memories if memory.id not in fixed]


def _changes(asked: PageRequest, action: str, memory: Memory) -> list[Change]:
    is_forgotten = memory.known_to is not None
    if action == "forget":
        return [] if is_forgotten else [Forget(memory.id)]
    if action == "restore":
        return [restoration(memory)] if is_forgotten else []
    if action != "label":
        raise BadInput("choose what to do with the memories")
    return [] if is_forgotten else _relabelled(asked, memory)


def _relabelled(asked: PageRequest, memory: Memory) -> list[Change]:
    """The memory with another category or project, or with a tag more or less."""
    given: dict[str, Any] = {name: asked.text(f"new_{name}", most=200) for name in _LABELS}
    given = {name: value for name, value in given.items() if value}
    added, removed = asked.text("add_tag", most=200).strip(), asked.text("remove_tag", most=200).strip()
    tags = [*dict.fromkeys([*(tag for tag in memory.tags if tag != removed), *([added] if added else [])])]
    if tags != list(memory.tags):
        given["tags"] = tags
    if all(getattr(memory, name) == value for name, value in given.items()):
        return []
    engine = asked.engine
    drafter = Drafter(engine.settings.memory, engine.project)
    revised = drafter.revised(memory, given, lambda: secrecy.text_of(engine.store, engine.vault, memory))
    return secrecy.revision(memory, revised)


ROUTES: tuple[PageRoute, ...] = (
    PageRoute("GET", "/browse", show),
    PageRoute("POST", "/bulk", change_many, WRITE),
)
