"""Tools that read: recall, get, list, stats, why-not, reveal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

import anyio
from mcp.server.mcpserver import AcceptedElicitation, Elicit, ElicitationResult, Resolve
from pydantic import BaseModel, Field

from triskele.edge.hook import client
from triskele.edge.http.access import REVEAL
from triskele.edge.mcp import schemas
from triskele.edge.mcp.caller import Caller, Request, caller, client_name
from triskele.edge.wording import query_change
from triskele.errors import BadInput, TriskeleError
from triskele.replies.rooms import HookCall
from triskele.text import periods
from triskele.types import Hit, is_secret

ALL_PROJECTS = "*"
# Recall options as memory_recall names them.
_ARGUMENTS = {name: name for name in ("project", "category", "tags", "as_of", "since", "until", "limit")} | {
    "show_superseded": "superseded"
}


def memory_recall(
    request: Request,
    query: schemas.Question,
    limit: schemas.Limit = 10,
    project: schemas.Project = "",
    all_projects: bool = False,
    category: schemas.Label = "",
    tags: schemas.Tags = (),
    as_of: schemas.Day = "",
    since: schemas.Since = "",
    until: schemas.Until = "",
    superseded: Annotated[bool, Field(description="Also return superseded memories.")] = False,
) -> schemas.Recalled:
    """Find memories that answer a question."""
    who = caller(request)
    who.admit_models()
    filters = _filters(who, project, all_projects, category, tags)
    filters |= {"as_of": as_of or None, "since": since or None, "until": until or None}
    answer = who.engine.recall(query, limit=limit, show_superseded=superseded, **filters)
    hits = schemas.fitting([_hit(hit) for hit in answer.hits])
    return schemas.Recalled(
        hits=hits,
        resolutions=[schemas.line(memory) for memory in answer.resolutions],
        confidence=round(answer.confidence, 3),
        fit=answer.fit,
        project=ALL_PROJECTS if answer.project is None else answer.project,
        omitted=len(answer.hits) - len(hits),
        period=periods.label(answer.period) if answer.period else "",
    )


def memory_get(request: Request, id: schemas.Id) -> schemas.MemoryDetails:
    """Read one memory."""
    return schemas.memory_details(caller(request).get(id))


def memory_list(
    request: Request,
    limit: schemas.Limit = 20,
    offset: schemas.Offset = 0,
    sort: Literal["recency", "importance"] = "recency",
    project: schemas.Name = "",
    all_projects: bool = False,
    category: schemas.Label = "",
    tags: schemas.Tags = (),
) -> schemas.Listed:
    """Browse memories."""
    who = caller(request)
    filters = _filters(who, project, all_projects, category, tags)
    page = who.engine.browse(sort=sort, limit=limit, offset=offset, **filters)
    memories = schemas.fitting([schemas.line(memory, superseded=memory.superseded) for memory in page.memories])
    return schemas.Listed(
        memories=memories,
        next_offset=offset + len(memories) if len(memories) < len(page.memories) else page.next_offset,
        project=ALL_PROJECTS if all_projects else filters["project"],
    )


def memory_stats(request: Request) -> schemas.Stats:
    """Count memories."""
    who = caller(request)
    return schemas.stats(who.engine.stats(), who.project)


def memory_why_not(
    request: Request,
    id: schemas.Id,
    query: schemas.Question,
    limit: schemas.Limit = 10,
    project: schemas.Name = "",
    all_projects: bool = False,
    category: schemas.Label = "",
    tags: schemas.Tags = (),
) -> schemas.WhyNot:
    """Explain why a memory was not found."""
    who = caller(request)
    who.admit_models()
    memory = who.get(id)
    filters = _filters(who, project, all_projects, category, tags)
    explained = who.engine.why_not(memory.id, query, limit=limit, **filters)
    change = explained.smallest_change
    return schemas.WhyNot(
        verdict=explained.verdict,
        stages=[schemas.Stage.model_validate(stage) for stage in explained.stages],
        smallest_change="" if change is None else query_change(change, _ARGUMENTS),
    )


def _filters(who: Caller, project: str, all_projects: bool, category: str, tags: Sequence[str]) -> dict[str, Any]:
    return {
        "project": project or who.project,
        "all_projects": all_projects,
        "category": category or None,
        "tags": tags,
        "sensitivities": who.sensitivities,
    }


def _hit(hit: Hit) -> schemas.Hit:
    shown = schemas.line(hit.memory, superseded=hit.superseded)
    return schemas.Hit(**shown.model_dump(), reason=hit.reason, replaces=hit.stands_for or "")


async def memory_hook(
    request: Request,
    event: Literal["user-prompt-submit", "pre-compact"],
    prompt: str = "",
    session_id: str = "",
    cwd: str = "",
    source: str = "",
    agent_id: str = "",
) -> str:
    """Answer a hook event over MCP; failures and late answers are empty."""
    wait_s = client.deadline_s(os.environ)
    call = HookCall(
        event=event, prompt=prompt, session=session_id, folder=cwd, source=source, agent=agent_id, deadline_s=wait_s
    )
    with anyio.move_on_after(wait_s):
        return await anyio.to_thread.run_sync(partial(_hook_answer, request, call), abandon_on_cancel=True)
    return ""


def _hook_answer(request: Request, call: HookCall) -> str:
    try:
        who = caller(request)
        # The name of a client opens private memories, so it counts only with the token of its entry.
        name = (client_name(request) or "") if who.reads_private else ""
        # A folder of the client's machine is not one of a server.
        folder = call.folder if who.principal.user is None else ""
        project = request.request_context.lifespan_context.project or ""
        injection = who.engine.agents.respond(replace(call, client=name, project=project, folder=folder))
        if injection.note and who.principal.user is None:
            address = client.Address({"TRISKELE_HOME": str(who.engine.settings.home)})
            client.log(address, f"{call.event} gave nothing: {injection.note}")
        return injection.text
    except (TriskeleError, OSError):
        return ""


class Consent(BaseModel):
    """The question to the user."""

    reveal: bool = Field(description="Show the text of this secret to the agent and its model.")


def ask_user(request: Request, id: schemas.Id) -> Elicit[Consent]:
    """Ask the user for consent; refused if the client cannot ask."""
    memory = caller(request, REVEAL).get(id)
    if not is_secret(memory):
        raise BadInput(f"{memory.id} is not a secret: read it with memory_get")
    capabilities = request.client_capabilities
    if capabilities is None or capabilities.elicitation is None:
        raise BadInput(
            "this client cannot ask the user for consent:"
            f" the user can read the text with `triskele secrets reveal {memory.id}`"
        )
    who = client_name(request) or "An agent"
    return Elicit(f"{who} asks for the text of the secret “{memory.content}” ({memory.id}).", Consent)


def memory_reveal(
    request: Request, id: schemas.Id, consent: Annotated[ElicitationResult[Consent], Resolve(ask_user)]
) -> schemas.Revealed:
    """Show the text of a secret."""
    if not (isinstance(consent, AcceptedElicitation) and consent.data.reveal):
        raise BadInput("the user did not consent: the secret was not shown")
    return schemas.Revealed.model_validate(caller(request, REVEAL).engine.reveal(id))
