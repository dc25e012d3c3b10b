"""The page of one memory, its history and its changes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from difflib import SequenceMatcher
from typing import Any

from starlette.responses import Response

from triskele.agents.injection import LEAST_SHARE
from triskele.edge.http.access import REVEAL, WRITE
from triskele.edge.web.rendering import PageRequest, PageRoute, day, facets_of, fragment, gone_to, page
from triskele.edge.wording import passed_over_lines
from triskele.errors import BadInput, NotFound
from triskele.ingest import EDITABLE
from triskele.types import LASTING, Action, JournalEntry, LinkKind, Memory, Outcome, is_secret
from triskele.validation import MAX_LISTED

_WORDS = re.compile(r"\s+|\w+|[^\w\s]")
_MOST_SIMILAR = 6
_REVERSED = {
    Action.ADDED: "forgets",
    Action.EDITED: "takes back the edit of",
    Action.FORGOTTEN: "restores",
    Action.RESTORED: "forgets",
    Action.LINKED: "unlinks",
    Action.UNLINKED: "links again",
    Action.BOUND: "moves back the folder of",
}
_UNCHANGED = {Action.DUPLICATE: "duplicate", Action.UNCHANGED: "unchanged"}

# What a piece of a text became: "same", "added" or "removed".
Piece = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Step:
    """One entry of the journal with what it changed."""

    entry: JournalEntry
    pieces: Sequence[Piece]
    fields: Sequence[tuple[str, str, str]]

    @property
    def can_undo(self) -> bool:
        """Whether it can be undone, unless a later change prevents it."""
        return self.entry.action not in (*LASTING, Action.ERASED)


def difference(before: str, after: str) -> list[Piece]:
    """A text as it was and as it is, word by word."""
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    pieces: list[Piece] = []
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            pieces.append(("same", "".join(new[c:d])))
            continue
        pieces += [("removed", "".join(old[a:b]))] if b > a else []
        pieces += [("added", "".join(new[c:d]))] if d > c else []
    return pieces


def _step(entry: JournalEntry, versions: Mapping[int, Memory]) -> Step:
    new, old = (versions.get(number or 0) for number in (entry.version, entry.previous))
    if new is None or old is None or entry.action is Action.FORGOTTEN:
        return Step(entry, (), ())
    pieces = difference(old.content, new.content) if old.content != new.content else []
    changed = [(name, _shown(old, name), _shown(new, name)) for name in EDITABLE if name != "content"]
    return Step(entry, pieces, [each for each in changed if each[1] != each[2]])


def _shown(memory: Memory, name: str) -> str:
    value = getattr(memory, name)
    if value is None or value == ():
        return "none"
    if isinstance(value, tuple):
        return ", ".join(value)
    return day(value) if isinstance(value, datetime) else str(value)


def show(request: PageRequest) -> Response:
    """The page of one memory."""
    engine = request.engine
    memory = engine.get(request.named("id"))
    journal = engine.journal(id=memory.id, limit=MAX_LISTED)
    versions = {version.version: version for version in journal.versions if version.id == memory.id}
    return page(
        request,
        "memory.html",
        "Browse",
        memory=memory,
        steps=[_step(entry, versions) for entry in journal.entries],
        first=journal.entries[-1] if journal.entries else None,
        is_trusted=memory.shared_by is not None and memory.shared_by in engine.sharing.shares().trusted,
        can_change=request.principal.may(WRITE) and memory.writable,
        kinds=[str(kind) for kind in LinkKind],
        short=request.engine.shorten([memory.id, *memory.linked]),
        is_editing=bool(request.text("edit", most=8)),
        **_choices(request),
    )


def _choices(request: PageRequest) -> dict[str, Any]:
    settings, facets = request.engine.settings.memory, facets_of(request.engine)
    projects = sorted(filter(None, facets.projects))
    return {"categories": settings.categories, "projects": projects, "most": settings.max_characters}


def new(request: PageRequest) -> Response:
    """The form for a new memory."""
    return page(request, "new.html", "Browse", supersedes=request.text("supersedes", most=40), **_choices(request))


def create(request: PageRequest) -> Response:
    """Remember a text, which may replace another memory."""
    older = request.text("supersedes", most=40).strip() or None
    return _done(request.engine.remember(_content(request), supersedes=older, **_details(request)))


def edit(request: PageRequest) -> Response:
    """Change the text or the details of a memory."""
    memory = request.engine.get(request.named("id"))
    changes = _details(request)
    if not is_secret(memory):
        changes["content"] = _content(request)
    # A form without a category keeps it: every memory has one.
    changes["category"] = changes["category"] or memory.category
    edited = {name: value for name, value in changes.items() if value != _kept(memory, name)}
    if not edited:
        return gone_to(f"/memory/{memory.id}", said="unchanged")
    return _done(request.engine.edit(memory.id, **edited)[0])


def _kept(memory: Memory, name: str) -> Any:
    value = getattr(memory, name)
    if name in ("valid_from", "valid_to"):
        return None if value is None else f"{value:%Y-%m-%d}"
    return list(value) if isinstance(value, tuple) else value


def _content(request: PageRequest) -> str:
    # Browsers send line ends as a carriage return and a line feed.
    return request.text("content", most=100_000).replace("\r\n", "\n")


def _details(request: PageRequest) -> dict[str, Any]:
    importance = request.text("importance", "0.5", most=10)
    try:
        number = float(importance)
    except ValueError:
        raise BadInput("the importance must be a number from 0 to 1") from None
    details: dict[str, Any] = {
        "category": request.text("category", most=200) or None,
        "tags": [tag.strip() for tag in request.text("tags").split(",") if tag.strip()],
        "keywords": request.text("keywords"),
        "importance": number,
        "project": request.text("project", most=200).strip(),
        "valid_from": request.text("valid_from", most=40) or None,
        "valid_to": request.text("valid_to", most=40) or None,
    }
    if chosen := request.text("sensitivity", most=20):
        details["sensitivity"] = chosen
    return details


def forget(request: PageRequest) -> Response:
    """Stop recalling a memory."""
    return _done(request.engine.forget(request.named("id"))[0])


def restore(request: PageRequest) -> Response:
    """Bring a forgotten memory back."""
    return _done(request.engine.restore(request.named("id"))[0])


def similar(request: PageRequest) -> Response:
    """What a memory repeats, extends or contradicts, and what is nearest to it."""
    engine, memory = request.engine, request.engine.get(request.named("id"))
    request.policy.admit_models(request.principal)
    related = engine.related(id=memory.id)[:_MOST_SIMILAR]
    hits = engine.recall(memory.content, all_projects=True, logged=False, limit=_MOST_SIMILAR).hits
    least = LEAST_SHARE * max((hit.score for hit in hits), default=0.0)
    listed = {memory.id, *(each.memory.id for each in related)}
    near = [hit.memory for hit in hits if hit.score >= least and hit.memory.id not in listed]
    return fragment("_similar.html", related=related, near=near[: _MOST_SIMILAR - len(related)])


def choices(request: PageRequest) -> Response:
    """The memories that an id or some words name, to link one of them."""
    engine, id, text = request.engine, request.engine.get(request.named("id")).id, request.text("other").strip()
    memories: list[Memory] = []
    if text:
        with suppress(NotFound, BadInput):
            memories.append(engine.get(text))
        request.policy.admit_models(request.principal)
        hits = engine.recall(text, all_projects=True, logged=False, limit=_MOST_SIMILAR).hits
        memories += [hit.memory for hit in hits if hit.memory.id not in [each.id for each in memories]]
    return fragment("_choices.html", id=id, text=text, memories=memories)


def connect(request: PageRequest) -> Response:
    """Link a memory with another one."""
    id = request.engine.get(request.named("id")).id
    outcome = request.engine.link(id, request.text("kind", most=20), request.text("other", most=40).strip())
    return gone_to(f"/memory/{id}", outcome.batch)


def disconnect(request: PageRequest) -> Response:
    """Close a link of a memory."""
    id = request.engine.get(request.named("id")).id
    outcome = request.engine.unlink(
        request.text("source", most=40), request.text("kind", most=20), request.text("target", most=40)
    )
    return gone_to(f"/memory/{id}", outcome.batch)


def reveal(request: PageRequest) -> Response:
    """The text of a secret, which the journal notes."""
    return fragment("_secret.html", text=request.engine.reveal(request.named("id")).text)


def trust(request: PageRequest) -> Response:
    """Let hooks inject what the owner of this memory shares."""
    return _trusting(request, is_trusted=True)


def distrust(request: PageRequest) -> Response:
    """Stop hooks from injecting what the owner shares."""
    return _trusting(request, is_trusted=False)


def _trusting(request: PageRequest, *, is_trusted: bool) -> Response:
    memory = request.engine.get(request.named("id"))
    if memory.shared_by is None:
        raise BadInput("this memory is your own: trust is for what others share")
    request.engine.sharing.trust(memory.shared_by, trusted=is_trusted)
    return gone_to(f"/memory/{memory.id}")


def plan_undo(request: PageRequest) -> Response:
    """Say what an undo would do, before it does it."""
    planned = request.engine.undo(request.text("batch", most=64), all_projects=True, anyone=True, dry_run=True)
    return fragment("_undo.html", planned=planned, difference=difference, passed_over=passed_over_lines(planned))


def undo(request: PageRequest) -> Response:
    """Undo a batch of any actor."""
    batch = request.text("batch", most=64)
    outcomes = request.engine.undo(batch or None, all_projects=True, anyone=True).outcomes
    back = request.http.headers.get("hx-current-url", "")
    path = re.match(r"https?://[^/]+/ui(/memory/\w+|/browse)?", back)
    # The undo of a moved project also changes folders.
    changed = [outcome.id for outcome in outcomes if outcome.action is not Action.BOUND]
    usual = f"/memory/{changed[0]}" if changed else "/browse"
    return gone_to(path.group(1) if path and path.group(1) else usual, outcomes[0].batch)


def _done(outcome: Outcome) -> Response:
    unchanged = "raised" if outcome.origin else _UNCHANGED.get(outcome.action, "")
    more = {"said": unchanged} if unchanged else {}
    return gone_to(f"/memory/{outcome.id}", "" if unchanged else outcome.batch, **more)


ROUTES: tuple[PageRoute, ...] = (
    PageRoute("GET", "/memory/{id}", show),
    PageRoute("GET", "/memory/{id}/similar", similar),
    PageRoute("GET", "/memory/{id}/choices", choices, WRITE),
    PageRoute("GET", "/new", new, WRITE),
    PageRoute("POST", "/memories", create, WRITE),
    PageRoute("POST", "/memory/{id}/edit", edit, WRITE),
    PageRoute("POST", "/memory/{id}/forget", forget, WRITE),
    PageRoute("POST", "/memory/{id}/restore", restore, WRITE),
    PageRoute("POST", "/memory/{id}/link", connect, WRITE),
    PageRoute("POST", "/memory/{id}/unlink", disconnect, WRITE),
    PageRoute("POST", "/memory/{id}/reveal", reveal, REVEAL),
    PageRoute("POST", "/memory/{id}/trust", trust, WRITE),
    PageRoute("POST", "/memory/{id}/distrust", distrust, WRITE),
    PageRoute("GET", "/undo", plan_undo, WRITE),
    PageRoute("POST", "/undo", undo, WRITE),
)
