"""Tools that only look: recall, get, list, stats, why-not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from triskele.curation import usage
from triskele.serving.mcp import answers
from triskele.serving.mcp.arguments import (
    AllProjects,
    Category,
    Day,
    Id,
    Limit,
    Offset,
    Question,
    ReadProject,
    Tags,
)
from triskele.serving.mcp.caller import Caller, Request, caller
from triskele.types import Answer, Hit, Memory, Sensitivity, Sort
from triskele.validation import MAX_LIMIT

ALL_PROJECTS = "*"
MAX_PROJECTS = 50
# Options as the command line calls them, which reasons may name.
_OPTION = re.compile(r"--([a-z][a-z-]*)")


def memory_recall(
    request: Request,
    query: Question,
    limit: Limit = 10,
    project: ReadProject = "",
    all_projects: AllProjects = False,
    category: Category = "",
    tags: Tags = (),
    as_of: Day = "",
    superseded: Annotated[bool, Field(description="Show replaced memories too, not only their successors.")] = False,
) -> answers.Recalled:
    """Find memories that answer a question."""
    who = caller(request)
    asked = _filters(who, project, all_projects, category, tags) | {"as_of": as_of or None}
    found = _recalled(who, query, limit, {**asked, "show_superseded": superseded})
    hits = [_hit(hit) for hit in found.hits]
    kept = answers.fitting(hits)
    usage.note_recall(who.engine.store, replace(found, hits=found.hits[: len(kept)]), to_agent=True)
    return answers.Recalled(
        hits=kept,
        resolutions=[answers.line(each) for each in found.resolutions],
        confidence=round(found.confidence, 3),
        project=ALL_PROJECTS if found.project is None else found.project,
        omitted=len(hits) - len(kept),
    )


def memory_get(request: Request, id: Id) -> answers.MemoryDetails:
    """Read one memory."""
    return details(caller(request), id)


def memory_list(
    request: Request,
    limit: Limit = 20,
    offset: Offset = 0,
    sort: Literal["recency", "importance"] = "recency",
    project: ReadProject = "",
    all_projects: AllProjects = False,
    category: Category = "",
    tags: Tags = (),
) -> answers.Listed:
    """Browse memories."""
    who = caller(request)
    filters = _filters(who, project, all_projects, category, tags)
    page = who.engine.browse(sort=Sort(sort), limit=limit, offset=offset, **filters)
    replaced = who.engine.superseded([each.id for each in page])
    places = {each.id: offset + place for place, each in enumerate(page)}
    lines = [answers.line(each, superseded=each.id in replaced) for each in page if who.may_read(each)]
    kept = answers.fitting(lines)
    following = offset + limit if len(page) == limit else None
    return answers.Listed(
        memories=kept,
        next_offset=places[lines[len(kept)].id] if len(kept) < len(lines) else following,
        project=ALL_PROJECTS if all_projects else filters["project"],
    )


def memory_stats(request: Request) -> answers.Stats:
    """Counts of what is remembered."""
    who = caller(request)
    census = who.engine.census()
    most = sorted(census.by_project.items(), key=lambda each: (-each[1], each[0]))[:MAX_PROJECTS]
    return answers.Stats(
        memories=census.memories,
        forgotten=census.forgotten,
        superseded=census.superseded,
        links=census.links,
        by_category=dict(census.by_category),
        by_project=dict(most),
        project=who.project,
    )


def memory_why_not(
    request: Request,
    id: Id,
    query: Question,
    limit: Limit = 10,
    project: ReadProject = "",
    all_projects: AllProjects = False,
    category: Category = "",
    tags: Tags = (),
) -> answers.WhyNot:
    """Why a memory was not found."""
    who = caller(request)
    memory = who.get(id)
    found = who.engine.why_not(memory.id, query, limit=limit, **_filters(who, project, all_projects, category, tags))
    return answers.WhyNot(
        verdict=found.verdict,
        stages=[answers.Stage(name=each.name, passed=each.passed, detail=each.detail) for each in found.stages],
        smallest_change=_OPTION.sub(lambda option: option[1].replace("-", "_"), found.smallest_change or ""),
    )


def details(who: Caller, reference: str) -> answers.MemoryDetails:
    """One memory as its reader may see it."""
    memory = who.get(reference)
    superseded = memory.id in who.engine.superseded([memory.id])
    return answers.details(memory, who.engine.links(memory.id), superseded=superseded)


def _filters(who: Caller, project: str, all_projects: bool, category: str, tags: Sequence[str]) -> dict[str, Any]:
    return {
        "project": who.looked_into(project),
        "all_projects": all_projects,
        "category": category or None,
        "tags": tags,
    }


def _recalled(who: Caller, query: str, limit: int, options: dict[str, Any]) -> Answer:
    """The answer without what this client may not read."""
    found = who.engine.recall(query, limit=limit, **options)
    if all(who.may_read(hit.memory) for hit in found.hits):
        return _unquoted(who, found)
    wider = who.engine.recall(query, limit=min(MAX_LIMIT, 4 * limit), logged=False, **options)
    hits = tuple(hit for hit in wider.hits if who.may_read(hit.memory))[:limit]
    # How sure the answer is was told of a hit that is not shown.
    is_known = bool(hits) and hits[0].memory.id == wider.hits[0].memory.id
    return _unquoted(who, replace(wider, hits=hits, confidence=wider.confidence if is_known else 0.0))


def _unquoted(who: Caller, found: Answer) -> Answer:
    """The answer without quotations of private memories in its reasons, and without private resolutions."""
    if who.reads_private:
        return found
    paths = {hit.memory.id: leg.path for hit in found.hits for leg in hit.legs.values() if leg.path}
    quoted = who.engine.store.memories({path.other for path in paths.values()})
    hits = tuple(
        replace(hit, reason=hit.reason.replace(f" with “{path.says}”", ""))
        if (path := paths.get(hit.memory.id)) and not _is_open(quoted.get(path.other))
        else hit
        for hit in found.hits
    )
    return replace(found, hits=hits, resolutions=tuple(each for each in found.resolutions if who.may_read(each)))


def _is_open(memory: Memory | None) -> bool:
    return memory is not None and memory.sensitivity is not Sensitivity.PRIVATE


def _hit(hit: Hit) -> answers.Hit:
    shown = answers.line(hit.memory, superseded=hit.superseded)
    return answers.Hit(**shown.model_dump(), reason=hit.reason, replaces=hit.stands_for or "")
