"""Tools that only look: recall, get, list, stats, why-not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from triskele.curation import usage
from triskele.serving.change_spelling import spelled
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
from triskele.types import Hit, Sort

ALL_PROJECTS = "*"
MAX_PROJECTS = 50


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
    found = who.engine.recall(query, limit=limit, show_superseded=superseded, **asked)
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
    lines = [answers.line(each, superseded=each.id in replaced) for each in page]
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
        smallest_change=spelled(found.smallest_change, option=str) or "",
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
        "sensitivities": who.sensitivities,
    }


def _hit(hit: Hit) -> answers.Hit:
    shown = answers.line(hit.memory, superseded=hit.superseded)
    return answers.Hit(**shown.model_dump(), reason=hit.reason, replaces=hit.stands_for or "")
