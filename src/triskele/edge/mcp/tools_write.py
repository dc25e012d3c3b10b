"""Tools that write: store, update, forget, link, undo, share."""

from __future__ import annotations

from typing import Any, Literal

from triskele.edge.http.access import WRITE
from triskele.edge.mcp import schemas
from triskele.edge.mcp.caller import Caller, Request, caller
from triskele.edge.wording import passed_over_lines, shown_content
from triskele.errors import BadInput
from triskele.replies.rooms import GranteeKind, Subject
from triskele.text import periods
from triskele.types import Action, Memory, Origin, Sensitivity, is_raised
from triskele.validation import check_share

_REMOVES = "none"
_SUCCESSOR = "The user's own text was kept: this text supersedes it."
_HELD = "By its own words it is valid {}; set valid_from or valid_to with memory_update if that is wrong."
_SIMILAR = (
    "Look at `similar`: if this replaces {1}, call memory_link with source {0}, kind supersedes and target {1}; if it"
    " says the same, call memory_undo with batch {2}; if both hold, leave it."
)
_MOST_SIMILAR = 3
_KNOWN = "It was stored already; nothing was written."
_UNTRUSTED = "Its origin is {}, so no prompt is given it, until the user says the same (`triskele add`)."
_KNOWN_SUCCESSOR = "It was stored already and now supersedes the older memory."


def memory_store(
    request: Request,
    content: schemas.Content,
    category: schemas.Category = "",
    tags: schemas.Tags = (),
    keywords: schemas.Keywords = "",
    importance: schemas.Importance = 0.5,
    supersedes: schemas.Older = "",
    project: schemas.Project = "",
    everywhere: schemas.Everywhere = False,
    sensitivity: schemas.Sensitivity | None = None,
    title: schemas.Title = "",
    valid_from: schemas.ValidFrom = "",
    valid_to: schemas.Day = "",
    origin: schemas.Source = "agent",
    speaker: schemas.Speaker = "",
    role: schemas.Role | None = None,
) -> schemas.Stored:
    """Remember one fact."""
    who = caller(request, WRITE)
    _refuse_long(who, content)
    older = who.get(supersedes) if supersedes else None
    return _remember(
        who,
        content,
        older,
        category=category or None,
        tags=tags,
        keywords=keywords,
        importance=importance,
        project=who.write_project(project, everywhere),
        sensitivity=Sensitivity(sensitivity) if sensitivity else None,
        title=title or None,
        valid_from=valid_from or None,
        valid_to=valid_to or None,
        origin=Origin(origin),
        speaker=speaker or None,
        role=role,
    )


def memory_update(
    request: Request,
    id: schemas.Id,
    content: schemas.Text = "",
    category: schemas.Label = "",
    tags: schemas.Tags | None = None,
    keywords: schemas.Label | None = None,
    importance: schemas.Weight | None = None,
    project: schemas.Name = "",
    everywhere: bool = False,
    sensitivity: schemas.Raised | None = None,
    valid_from: schemas.Removable = "",
    valid_to: schemas.Removable = "",
    speaker: schemas.Name = "",
    role: schemas.Role | None = None,
) -> schemas.Stored:
    """Correct a memory."""
    who = caller(request, WRITE)
    memory = who.get(id)
    fields = {
        "content": content or None,
        "category": category or None,
        "tags": tags,
        "keywords": keywords,
        "importance": importance,
        "project": who.write_project(project, everywhere),
        "sensitivity": _raised(memory, sensitivity),
        "speaker": speaker or None,
        "role": role,
    }
    changes: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    for name, day in (("valid_from", valid_from), ("valid_to", valid_to)):
        if day:
            changes[name] = None if day == _REMOVES else day
    if not changes:
        raise BadInput("nothing to change: give a new content or another field")
    _refuse_long(who, content)
    is_rewritten = content and memory.origin is Origin.USER and content.strip() != memory.content
    if is_rewritten and not memory.forgotten:
        return _succeed(who, memory, changes)
    return schemas.stored(who.engine.edit(memory.id, **changes)[0])


def memory_forget(request: Request, ids: schemas.Ids) -> schemas.Changes:
    """Stop recalling memories."""
    who = caller(request, WRITE)
    outcomes = who.engine.forget(*dict.fromkeys(who.get(id).id for id in ids))
    return schemas.changes(outcomes)


def memory_link(
    request: Request,
    source: schemas.Id,
    kind: Literal["supersedes", "resolved-by", "part-of", "see-also"],
    target: schemas.Id,
) -> schemas.Changes:
    """Connect two memories."""
    who = caller(request, WRITE)
    return schemas.changes([who.engine.link(who.get(source).id, kind, who.get(target).id)])


def memory_undo(request: Request, batch: schemas.Batch = "") -> schemas.UndoneChanges:
    """Take back a change."""
    who = caller(request, WRITE)
    # A client without a project names one in each call: its last change may be in any.
    undone = who.engine.undo(batch or None, project=who.project, all_projects=not who.project)
    note = " ".join(passed_over_lines(undone)[:_MOST_SIMILAR])
    return schemas.UndoneChanges(**schemas.changes(undone.outcomes).model_dump(), note=note)


def memory_share(
    request: Request,
    id: schemas.SharedId = "",
    tag: schemas.SharedTag = "",
    user: schemas.ToUser = "",
    group: schemas.ToGroup = "",
    access: schemas.Access = "read",
) -> schemas.Shared:
    """Share a memory or a tag."""
    who = caller(request, WRITE)
    return schemas.shared(who.engine.sharing.share(*_share(who, id, tag, user, group), access=access))


def memory_unshare(
    request: Request,
    id: schemas.SharedId = "",
    tag: schemas.SharedTag = "",
    user: schemas.ToUser = "",
    group: schemas.ToGroup = "",
) -> schemas.Unshared:
    """End a share, and name shares that still give access."""
    who = caller(request, WRITE)
    return schemas.unshared(who.engine.sharing.unshare(*_share(who, id, tag, user, group)))


def _share(who: Caller, id: str, tag: str, user: str, group: str) -> tuple[Subject, str, GranteeKind, str]:
    subject, target, kind, grantee = check_share(id or None, tag or None, user or None, group or None)
    return subject, who.get(target).id if subject == "memory" else target, kind, grantee


def _refuse_long(who: Caller, content: str) -> None:
    """Refuse a text that is too long, and say what to do."""
    most = who.engine.settings.memory.max_characters
    if len(content.strip()) > most:
        raise BadInput(
            f"the text has {len(content.strip()):,} characters, the limit is {most:,}: keep what a later conversation"
            " needs and store it as several memories, one fact each"
        )


def _raised(memory: Memory, wanted: str | None) -> Sensitivity | None:
    """The new sensitivity of a memory, which may only be raised here."""
    if wanted is None:
        return None
    after = Sensitivity(wanted)
    if after is not memory.sensitivity and not is_raised(memory.sensitivity, after):
        raise BadInput(f"{memory.id} is {memory.sensitivity}: only the user can make it more open (`triskele edit`)")
    return after


def _remember(who: Caller, content: str, older: Memory | None, *, note: str = "", **details: Any) -> schemas.Stored:
    """Store a text, as the successor of an older memory if given."""
    outcome = who.engine.remember(content, supersedes=older.id if older else None, **details)
    notes, similar = [note], list[schemas.SimilarMemory]()
    if outcome.action is Action.DUPLICATE:
        notes.append(_KNOWN_SUCCESSOR if older else _KNOWN)
        origin = who.engine.get(outcome.id).origin
        notes += [_UNTRUSTED.format(origin)] if origin in (Origin.TOOL, Origin.WEB) else []
    elif outcome.sensitivity is Sensitivity.PRIVATE and not who.reads_private:
        # The client may not read what it stored.
        return schemas.stored(outcome, note)
    elif not (details.get("valid_from") or details.get("valid_to")):
        held = periods.held(who.engine.get(outcome.id))
        notes += [_HELD.format(periods.describe(held))] if held else []
    if older is None and outcome.action is Action.ADDED:
        similar = [
            schemas.SimilarMemory(
                id=each.memory.id,
                relation=each.relation,
                content=shown_content(each.memory, False),
                confidence=round(each.confidence, 2),
            )
            for each in who.engine.related(id=outcome.id)[:_MOST_SIMILAR]
        ]
    if similar:
        notes.append(_SIMILAR.format(outcome.id, similar[0].id, outcome.batch))
    return schemas.stored(outcome, " ".join(filter(None, notes)), similar)


def _succeed(who: Caller, memory: Memory, changes: dict[str, Any]) -> schemas.Stored:
    """Store an agent's text as the successor of the user's own."""
    details = {
        name: getattr(memory, name)
        for name in ("category", "tags", "keywords", "importance", "project", "valid_from", "valid_to")
    }
    if memory.sensitivity is not Sensitivity.OPEN:
        details["sensitivity"] = memory.sensitivity
    return _remember(who, older=memory, note=_SUCCESSOR, origin=Origin.AGENT, **{**details, **changes})
