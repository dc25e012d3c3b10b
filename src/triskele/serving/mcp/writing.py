"""Tools that change what is remembered: store, update, forget, link, undo."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from triskele.curation import echo
from triskele.errors import BadInput
from triskele.serving.mcp import answers
from triskele.serving.mcp.arguments import (
    Batch,
    Category,
    Content,
    Day,
    Everywhere,
    Id,
    Ids,
    Importance,
    Keywords,
    Raised,
    Source,
    Tags,
    Title,
    WrittenProject,
)
from triskele.serving.mcp.caller import Caller, Request, caller
from triskele.types import Action, LinkKind, Memory, Origin, Outcome, Sensitivity, is_raised

_REMOVES = "none"
_SUCCESSOR = "The user's own words were kept: this text is their successor."
_KNOWN = "It was known already; nothing was written."
_KNOWN_SUCCESSOR = "It was known already and stands in the place of the older memory now."


def memory_store(
    request: Request,
    content: Content,
    category: Category = "",
    tags: Tags = (),
    keywords: Keywords = "",
    importance: Importance = 0.5,
    supersedes: Annotated[str, Field(max_length=64, description="The id of the memory that this one replaces.")] = "",
    project: WrittenProject = "",
    everywhere: Everywhere = False,
    sensitivity: Raised | None = None,
    title: Title = "",
    valid_from: Day = "",
    valid_to: Day = "",
    origin: Source = "agent",
) -> answers.Stored:
    """Remember one fact."""
    who = caller(request)
    _refuse_long(who, content)
    place = who.written_to(project, everywhere)
    echo.refuse(who.engine.store, content, project=place)
    older = who.get(supersedes) if supersedes else None
    return _kept(
        who,
        content,
        older,
        category=category or None,
        tags=tags,
        keywords=keywords,
        importance=importance,
        project=place,
        sensitivity=Sensitivity(sensitivity) if sensitivity else None,
        title=title or None,
        valid_from=valid_from or None,
        valid_to=valid_to or None,
        origin=Origin(origin),
    )


def memory_update(
    request: Request,
    id: Id,
    content: Content = "",
    category: Category = "",
    tags: Tags | None = None,
    keywords: Keywords | None = None,
    importance: Importance | None = None,
    project: WrittenProject = "",
    everywhere: Everywhere = False,
    sensitivity: Raised | None = None,
    valid_from: Annotated[Day, Field(description="True from this day on; `none` removes it.")] = "",
    valid_to: Annotated[Day, Field(description="No longer true from this day on; `none` removes it.")] = "",
) -> answers.Stored:
    """Correct a memory."""
    who = caller(request)
    memory = who.get(id)
    given = {
        "content": content or None,
        "category": category or None,
        "tags": tags,
        "keywords": keywords,
        "importance": importance,
        "project": who.written_to(project, everywhere) if project or everywhere else None,
        "sensitivity": _raised(memory, sensitivity),
    }
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    for name, said in (("valid_from", valid_from), ("valid_to", valid_to)):
        if said:
            changes[name] = None if said == _REMOVES else said
    if not changes:
        raise BadInput("nothing to change: give a new content or another detail")
    _refuse_long(who, content)
    if content and memory.origin is Origin.USER and content.strip() != memory.content:
        return _succeeded(who, memory, changes)
    return _stored(who, who.engine.edit(memory.id, **changes))


def memory_forget(request: Request, ids: Ids) -> answers.Changes:
    """Stop recalling memories."""
    who = caller(request)
    outcomes = who.engine.forget(*dict.fromkeys(who.get(id).id for id in ids))
    return _changes(outcomes)


def memory_link(
    request: Request,
    source: Id,
    kind: Literal["supersedes", "resolved-by", "part-of", "see-also"],
    target: Id,
) -> answers.Changes:
    """Connect two memories."""
    who = caller(request)
    return _changes([who.engine.link(who.get(source).id, LinkKind(kind), who.get(target).id)])


def memory_undo(request: Request, batch: Batch = "") -> answers.Changes:
    """Take back a change."""
    who = caller(request)
    return _changes(who.engine.undo(batch or None))


def _refuse_long(who: Caller, content: str) -> None:
    """What is too long is refused with what an agent can do about it."""
    most = who.engine.settings.memory.max_characters
    if len(content.strip()) > most:
        raise BadInput(
            f"the text has {len(content.strip()):,} characters, the limit is {most:,}: keep what a later conversation"
            " needs and store it as several memories, one fact each"
        )


def _raised(memory: Memory, wanted: str | None) -> Sensitivity | None:
    """The class that a memory is to have; nobody opens one from here."""
    if wanted is None:
        return None
    after = Sensitivity(wanted)
    if after is not memory.sensitivity and not is_raised(memory.sensitivity, after):
        raise BadInput(f"{memory.id} is {memory.sensitivity}: only the user can make it more open (`triskele edit`)")
    return after


def _kept(who: Caller, content: str, older: Memory | None, *, note: str = "", **details: Any) -> answers.Stored:
    """Keep a text, in the place of an older one if there is one; known already, it is only linked."""
    before = who.engine.store.position()
    outcome = who.engine.remember(content, supersedes=older.id if older else None, **details)
    if outcome.action is Action.DUPLICATE:
        note = f"{note} {_KNOWN_SUCCESSOR if older else _KNOWN}".strip()
    stored = _stored(who, outcome, note=note)
    if older is not None and not stored.batch:
        new = who.engine.store.changes_since(before).entries
        stored.batch = next((each.batch for each in new if (each.id, each.other) == (outcome.id, older.id)), "")
    return stored


def _succeeded(who: Caller, memory: Memory, changes: dict[str, Any]) -> answers.Stored:
    """A text of the agent's in the place of the user's, which stays as it was written."""
    kept = {
        name: getattr(memory, name)
        for name in ("category", "tags", "keywords", "importance", "project", "valid_from", "valid_to")
    }
    if memory.sensitivity is not Sensitivity.OPEN:
        kept["sensitivity"] = memory.sensitivity
    return _kept(who, older=memory, note=_SUCCESSOR, origin=Origin.AGENT, **{**kept, **changes})


def _stored(who: Caller, outcome: Outcome, *, note: str = "") -> answers.Stored:
    memory = who.engine.get(outcome.id)
    notes = (note, answers.secret_note(memory))
    return answers.Stored(
        id=outcome.id,
        action=str(outcome.action),
        project=memory.project,
        sensitivity=str(memory.sensitivity),
        batch=answers.batch_of([outcome]),
        note=" ".join(each for each in notes if each),
    )


def _changes(outcomes: list[Outcome]) -> answers.Changes:
    return answers.Changes(changes=[answers.changed(each) for each in outcomes], batch=answers.batch_of(outcomes))
