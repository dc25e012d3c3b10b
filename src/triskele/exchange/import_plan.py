"""Plan an import: check everything against itself and the store before anything is written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any

from triskele import validation
from triskele.errors import BadInput
from triskele.exchange.json_text import shown
from triskele.exchange.records import NamedLink, Note, StoredLink, StoredVersion
from triskele.replies.rooms import Preview, Problem
from triskele.store.access import StoreAccess
from triskele.store.owner import OwnerStore
from triskele.store.vault import StoreVault, row_of
from triskele.text import timestamps
from triskele.text.ids import content_hash, same_words
from triskele.types import (
    CONTEXT,
    Action,
    Add,
    Change,
    Link,
    LinkKind,
    Memory,
    Origin,
    Revise,
    SecretDraft,
    Sensitivity,
    is_secret,
)

Identity = tuple[str | int | datetime | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """The changes of an import: first the memories, then the links."""

    read: int
    duplicates: int
    groups: tuple[tuple[Change, ...], ...]
    links: tuple[Link, ...]
    problems: tuple[Problem, ...] = ()
    previews: tuple[Preview, ...] = ()


def _preview(memory: Memory, action: Action, id: str, location: str = "") -> Preview:
    return Preview(
        action=action.value,
        id=id,
        content=memory.content,
        category=memory.category,
        tags=memory.tags,
        project=memory.project,
        place=location,
        secret=is_secret(memory),
    )


def for_notes(access: StoreAccess, notes: Sequence[Note], ties: Iterable[NamedLink], project: str | None) -> ImportPlan:
    """Plan notes of other programs; known texts are duplicates."""
    problems: list[Problem] = []
    stored = {_identity(memory): memory.id for memory in _standing(access.store)} if notes else {}
    sealed: dict[Identity, str] | None = None
    names: dict[str, str] = {}
    groups: list[tuple[Change, ...]] = []
    previews: list[Preview] = []
    new: set[str] = set()
    for note in notes:
        try:
            memory = _drafted(access, note, project)
        except BadInput as error:
            problems.append(Problem(note.location, str(error)))
            continue
        if isinstance(memory, SecretDraft):
            # Secrets with equal titles may differ: their texts are compared.
            sealed = _secrets(access.store, access.vault) if sealed is None else sealed
            id = sealed.setdefault(_identity(memory, content_hash(memory.text)), memory.id)
        else:
            id = stored.setdefault(_identity(memory), memory.id)
        if is_new := id == memory.id:
            groups.append((Add(memory),))
        known_as = "" if id in new else id
        new |= {id} if is_new else set()
        previews.append(_preview(memory, Action.ADDED if is_new else Action.DUPLICATE, known_as, note.location))
        if note.name is not None:
            names[note.name] = id
    return ImportPlan(
        read=len(notes),
        duplicates=len(notes) - len(groups) - len(problems),
        groups=tuple(groups),
        links=() if problems else tuple(_tied_links(access.store, names, ties)),
        problems=tuple(problems),
        previews=tuple(previews),
    )


def for_export(store: OwnerStore, versions: Sequence[StoredVersion], links: Sequence[StoredLink]) -> ImportPlan:
    """Plan an export of triskele: new versions and links, and conflicts."""
    problems: list[Problem] = []
    histories: dict[str, list[StoredVersion]] = defaultdict(list)
    for version in versions:
        histories[version.memory.id].append(version)
    ends = {end for tie in links for end in (tie.link.source, tie.link.target)}
    here: dict[str, list[Memory]] = defaultdict(list)
    for _, memory in store.versions(sorted(histories.keys() | ends)):
        here[memory.id].append(memory)
    groups: list[tuple[Change, ...]] = []
    for id, history in histories.items():
        try:
            groups.append(tuple(_new_versions(id, history, here.get(id, []))))
        except BadInput as error:
            problems.append(Problem(history[0].location, str(error)))
    ids = histories.keys() | here.keys()
    problems += [
        Problem(tie.location, f"links to {end}, which is neither in the file nor in the store")
        for tie in links
        for end in (tie.link.source, tie.link.target)
        if end not in ids
    ]
    problems += _circles(store, [tie.link for tie in links])
    return ImportPlan(
        read=len(histories),
        duplicates=groups.count(()),
        groups=tuple(group for group in groups if group),
        links=tuple(_missing_links(store, [tie.link for tie in links])),
        problems=tuple(problems),
        previews=tuple(
            _preview(change.memory, Action.ADDED, change.memory.id)
            for group in groups
            for change in group[-1:]
            if isinstance(change, Add | Revise)
        ),
    )


def _drafted(access: StoreAccess, note: Note, project: str | None) -> Memory:
    limit = access.settings.memory.max_characters
    if len(note.content) > limit and len(note.content.strip()) > limit:
        raise BadInput(
            f"the memory has {len(note.content):,} characters, the limit is {limit:,}: split it into single facts"
        )
    details: dict[str, Any] = {"category": "facts", **note.details}
    sensitivity, role = details.get("sensitivity"), details.get("role")
    if sensitivity not in (None, *Sensitivity):
        raise BadInput(f"unknown sensitivity {shown(str(sensitivity))}: one of {', '.join(Sensitivity)}")
    if role is not None:
        details["role"] = validation.role_called(role)
    if project is not None:
        details["project"] = project
    updated = details.pop("updated_at", None)
    memory = access.draft(note.content, **details, origin=Origin.IMPORT)
    return memory if updated is None else replace(memory, updated_at=timestamps.parse(updated))


def _standing(store: OwnerStore) -> Iterator[Memory]:
    everything = (memory for _, memory in store.versions() if memory.known_to is None)
    versions = (memory for memory in everything if memory.owner == store.owner and memory.shared_by is None)
    return (memory for memory in versions if not is_secret(memory))


def _secrets(store: OwnerStore, vault: StoreVault) -> dict[Identity, str]:
    """The current secrets by the hashes of their texts."""
    rows = {(row.id, row.version): row for row in store.sealed()}
    memories = store.memories(sorted({id for id, _ in rows}))
    secrets = ((memory, rows.get((memory.id, memory.version))) for memory in memories.values())
    return {_identity(memory, content_hash(vault.open(row))): memory.id for memory, row in secrets if row is not None}


def _identity(memory: Memory, digest: str | None = None) -> Identity:
    """The values by which the store detects a duplicate."""
    return (digest or memory.content_hash, *(getattr(memory, name) for name in CONTEXT))


def _tied_links(store: OwnerStore, names: dict[str, str], ties: Iterable[NamedLink]) -> Iterator[Link]:
    pairs = {(names[tie.one], names[tie.other]): None for tie in ties if tie.one in names and tie.other in names}
    there = {(link.source, link.target) for link in store.links(sorted(set(names.values())), kind=LinkKind.SEE_ALSO)}
    now = timestamps.now()
    for source, target in pairs:
        if source != target and (source, target) not in there and (target, source) not in there:
            there.add((source, target))
            yield Link(source=source, kind=LinkKind.SEE_ALSO, target=target, known_from=now)


def _new_versions(id: str, read: Sequence[StoredVersion], here: Sequence[Memory]) -> Iterator[Change]:
    history = sorted((version.memory for version in read), key=lambda memory: memory.version)
    _check_history(id, history)
    stored = {memory.version: memory for memory in here}
    for memory in history:
        there = stored.get(memory.version)
        if there is not None and replace(there, known_to=memory.known_to, origin=memory.origin) != row_of(memory):
            raise BadInput(f"memory {id} has a different version {memory.version} in this store")
    new = [memory for memory in history if memory.version not in stored]
    if not new:
        yield from _brought_back(history[-1], max(here, key=lambda memory: memory.version))
        return
    _check_succession(id, new, here)
    yield from (Add(memory, verbatim=True) for memory in new)


def _brought_back(memory: Memory, here: Memory) -> Iterator[Change]:
    """A memory that is current in the export and was forgotten here, unchanged, is restored."""
    row = replace(row_of(memory), origin=here.origin)
    if memory.known_to is None and here.known_to is not None and same_words(here, row):
        yield Revise(row, base=here.version)


def _check_history(id: str, history: Sequence[Memory]) -> None:
    for older, newer in pairwise(history):
        if older.version == newer.version:
            raise BadInput(f"memory {id} has version {older.version} twice")
        if older.known_to is None:
            raise BadInput(f"memory {id} has version {newer.version} although version {older.version} is still current")


def _check_succession(id: str, new: Sequence[Memory], here: Sequence[Memory]) -> None:
    current = next((memory for memory in here if memory.known_to is None), None)
    latest = max((memory.version for memory in here), default=0)
    for memory in new:
        if current is not None and memory.version > current.version:
            raise BadInput(
                f"memory {id} is at version {current.version} in this store and at {memory.version} in the file:"
                " forget it here first, or import into another store"
            )
        if memory.known_to is None and memory.version < latest:
            raise BadInput(f"memory {id} is at version {latest} in this store and at {memory.version} in the file")


def _missing_links(store: OwnerStore, links: Sequence[Link]) -> Iterator[Link]:
    here = list(store.all_links())
    open_links = {_ends(link) for link in here if link.known_to is None}
    begun = {(*_ends(link), link.known_from) for link in here}
    now = timestamps.now()
    for link in links:
        key = (*_ends(link), link.known_from)
        if link.known_to is None and _ends(link) not in open_links:
            open_links.add(_ends(link))
            # A link that was removed here gets a new start, because it did not exist all the time.
            yield replace(link, known_from=now) if key in begun else link
        elif link.known_to is not None and key not in begun:
            yield link


def _ends(link: Link) -> tuple[str, LinkKind, str]:
    return link.source, link.kind, link.target


def _circles(store: OwnerStore, links: Sequence[Link]) -> Iterator[Problem]:
    new = [link for link in links if link.kind is LinkKind.SUPERSEDES and link.known_to is None]
    ids = sorted({end for link in new for end in (link.source, link.target)})
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for link in [*new, *store.links(ids, kind=LinkKind.SUPERSEDES)]:
        sorter.add(link.source, link.target)
    try:
        sorter.prepare()
    except CycleError as error:
        yield Problem("the links", f"memories supersede each other in a cycle: {', '.join(error.args[1][:5])}")
