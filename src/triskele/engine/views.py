"""Memories as clients see them: their state, their journal, the folders that it names, and what may replace them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace

from triskele import validation
from triskele.errors import AccessDenied, AmbiguousId, BadInput, NotFound
from triskele.store.owner import OwnerStore
from triskele.sync import CONFLICTS
from triskele.types import (
    Action,
    History,
    JournalEntry,
    LinkKind,
    Memory,
    MemoryDetails,
    MemoryView,
    Origin,
    RegisteredFolder,
    Scope,
    Sensitivity,
    Sent,
)

NOT_NAMED = "the user can add the client to private_to in the [agents] section of the settings"

_UNTRUSTED = (Origin.TOOL, Origin.WEB)


def superseded_in(store: OwnerStore, ids: Sequence[str]) -> set[str]:
    """The ids of those memories that another one replaces."""
    links = [link for link in store.links(ids, kind=LinkKind.SUPERSEDES) if link.target in ids]
    successors = store.memories({link.source for link in links})
    return {link.target for link in links if link.source in successors}


def views(store: OwnerStore, memories: Iterable[Memory]) -> dict[str, MemoryView]:
    """Memories with their state, by id."""
    by_id = {memory.id: memory for memory in memories}
    superseded = superseded_in(store, list(by_id))
    disputed = store.documents.some(CONFLICTS, by_id)
    shared = {id for id, memory in by_id.items() if memory.shared_by}
    received = store.shares.received() if shared and store.shares is not None else []
    read_only = shared & {each.id for each in received if each.access == "read"}
    return {
        id: MemoryView.of(
            memory,
            superseded=id in superseded,
            forgotten=memory.known_to is not None,
            in_conflict=id in disputed,
            writable=id not in read_only,
        )
        for id, memory in by_id.items()
    }


def details(store: OwnerStore, memory: Memory, *, private: bool = True) -> MemoryDetails:
    """A memory with its links, the memories at their other ends, its use and the hosts that received its text."""
    links = tuple(store.links([memory.id]))
    ends = {end for link in links for end in (link.source, link.target)} - {memory.id}
    view = views(store, [memory])[memory.id]
    return MemoryDetails(
        **{each.name: getattr(view, each.name) for each in fields(view)},
        links=links,
        linked=views(store, shown(store.memories(ends).values(), private=private)),
        used=store.usage.counts([memory.id]).get(memory.id),
        sent=tuple(sent(store, [memory.id])),
    )


def sent(store: OwnerStore, ids: Iterable[str]) -> list[Sent]:
    """The hosted services that received the texts of some memories; none unless the settings name one."""
    # Imported here: it brings an HTTP client, which an add does not need.
    from triskele.recall.hosted import egress_log

    return [each for id in ids for each in egress_log.sent(store, id)]


def history(store: OwnerStore, entries: Sequence[JournalEntry], *, private: bool = True) -> History:
    """Journal entries with the versions and folders that they name."""
    ids = sorted({end for entry in entries for end in entry.memories})
    versions = shown((memory for _, memory in store.versions(ids)), private=private) if ids else ()
    return History(tuple(entries), versions, folders(store, entries))


def shown(memories: Iterable[Memory], *, private: bool) -> tuple[Memory, ...]:
    """The memories, without private ones unless these are shown."""
    return tuple(memory for memory in memories if private or memory.sensitivity is not Sensitivity.PRIVATE)


def without_private(scope: Scope) -> Scope:
    """A scope without its private memories; refuse one that has no others."""
    allowed = (scope.sensitivities or frozenset(Sensitivity)) - {Sensitivity.PRIVATE}
    if not allowed:
        raise AccessDenied(f"this client may not see private memories: {NOT_NAMED}")
    return replace(scope, sensitivities=allowed)


def resolved(store: OwnerStore, reference: str, *, private: bool) -> str:
    """The id that starts with a prefix; refuse a private memory unless these are shown."""
    prefix = validation.check_prefix(reference)
    ids = store.find(prefix)
    if not ids:
        raise NotFound(f"no memory starts with {prefix}")
    if len(ids) > 1 and prefix not in ids:
        raise AmbiguousId(f"{prefix} fits several memories: {', '.join(ids)}")
    id = prefix if prefix in ids else ids[0]
    if not private and store.history(id)[-1].sensitivity is Sensitivity.PRIVATE:
        reason = f"{id} is private and this client may not see it: {NOT_NAMED}"
        raise AccessDenied(f"{reason}, or read it with `triskele show {id}`")
    return id


def folders(store: OwnerStore, entries: Iterable[JournalEntry]) -> tuple[RegisteredFolder, ...]:
    """The folders that entries bound to another project."""
    bound = {entry.id for entry in entries if entry.action is Action.BOUND}
    registered = store.folders() if bound else []
    return tuple(
        RegisteredFolder(each.number, each.key, each.project) for each in registered if f"place {each.number}" in bound
    )


def refuse_to_replace_the_user(store: OwnerStore, id: str, origin: Origin) -> None:
    """Refuse that a text of a tool or a web page supersedes the words of the user, or their successor."""
    if origin not in _UNTRUSTED:
        return
    if any(memory.origin is Origin.USER for memory in store.memories(_succeeded_by(store, id)).values()):
        raise BadInput(
            f"{id} holds what the user said, and a text of origin {origin} cannot supersede it: store the text"
            " without `supersedes` and propose the change to the user, who can make it with `triskele link`"
        )


def _succeeded_by(store: OwnerStore, id: str) -> list[str]:
    """A memory, and those that it supersedes, one after the other."""
    chain, seen = [id], {id}
    for newer in chain:
        links = store.links([newer], kind=LinkKind.SUPERSEDES)
        older = {link.target for link in links if link.source == newer} - seen
        seen |= older
        chain += sorted(older)
    return chain
