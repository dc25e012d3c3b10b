"""The synced state of a memory: a record, read from a store and turned back into changes.

Laptop and server use the same functions. Projects travel by what identifies them: git remotes, else their name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from enum import StrEnum
from itertools import count

from triskele import validation
from triskele.config import MemorySettings
from triskele.errors import BadInput
from triskele.ingest import checked_details, labels_of, refuse_secret_labels
from triskele.privacy import detect
from triskele.store.owner import OwnerStore
from triskele.store.rows import VERSION_LISTS, without_later
from triskele.store.values import Document
from triskele.sync.merge import ERASED, Links, LocalState, Push, ServerState, Standing
from triskele.text import timestamps
from triskele.text.folders import REMOTE
from triskele.text.ids import content_hash, same_words
from triskele.types import (
    SPOKEN,
    Action,
    Add,
    Change,
    Forget,
    JournalEntry,
    Link,
    LinkKind,
    Memory,
    Origin,
    Revise,
    Role,
    Sensitivity,
)

# The kind of the documents that give a project without a remote its name on this side.
_NAMES = "sync-project"
_NAME = "name:"
# The actor in the journal for a change on the other side.
_ACTOR = "sync:"
# The actor for erasing a memory that became private on another machine.
WITHDRAWAL = "sync-withdrawal"
# How many keys of one project, and how many links of one memory, travel in one item.
MOST_KEYS, MOST_TIES = 20, 400
# The journal of one memory is read to its end.
ALL_ENTRIES = 1_000_000
_STANDINGS = {
    Sensitivity.OPEN: Standing.OPEN,
    Sensitivity.PRIVATE: Standing.PRIVATE,
    Sensitivity.SECRET: Standing.SECRET,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The state of an open memory; `project` is its name on the side that sends it, `keys` identify that."""

    content: str
    category: str
    tags: tuple[str, ...] = ()
    keywords: str = ""
    importance: float = 0.5
    origin: Origin = Origin.USER
    session: str | None = None
    position: int | None = None
    speaker: str | None = None
    role: Role | None = None
    created_at: datetime
    updated_at: datetime
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    forgotten: bool = False
    project: str = ""
    keys: tuple[str, ...] = ()


_COPIED = tuple(each.name for each in fields(Record) if each.name not in ("forgotten", "project", "keys"))
# What a fingerprint covers. Later columns follow as lists of their own: states without them keep their fingerprints.
# The time of an edit is left out: the same edit on two machines is one.
FINGERPRINTED = (
    (
        *("content", "category", "tags", "keywords", "importance", "origin", "session", "position", *SPOKEN),
        *("created_at", "valid_from", "valid_to"),
    ),
    *VERSION_LISTS[2:],
)


@dataclass(frozen=True, slots=True)
class Shown:
    """A memory as the server shows it: its state and token, its links to others, and who changed it last."""

    id: str
    standing: Standing
    token: str
    record: Record | None = None
    links: tuple[tuple[str, str], ...] = ()
    actor: str = ""


class Status(StrEnum):
    """What became of a pushed change."""

    DONE = "done"
    STALE = "stale"
    DUPLICATE = "duplicate"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class PushResult:
    """The server's answer for one memory; `known` is what it has instead, `links` the links from the memory now."""

    id: str
    status: Status
    token: str = ""
    reason: str = ""
    known: Shown | None = None
    links: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PushReply:
    """The server's answers, and whose memories they are."""

    results: tuple[PushResult, ...]
    user: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PulledPage:
    """What changed since a cursor; `is_reset` if the server no longer has the cursor."""

    items: tuple[Shown, ...]
    cursor: str
    is_end: bool
    user: str
    is_reset: bool = False


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A change on its way to the server."""

    id: str
    push: Push
    base: str = ""
    record: Record | None = None
    sensitivity: Sensitivity = Sensitivity.PRIVATE
    linked: tuple[tuple[str, str], ...] = ()
    unlinked: tuple[tuple[str, str], ...] = ()


def fingerprint(memory: Memory) -> str:
    """A hash of everything that a memory contains on this side, and of its standing."""
    values = [getattr(memory, name) for names in FINGERPRINTED for name in names]
    stated = [standing_of(memory), memory.project, *without_later(values, FINGERPRINTED)]
    return hashlib.sha256(json.dumps(stated, default=_plain).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _plain(value: object) -> object:
    return timestamps.to_text(value) if isinstance(value, datetime) else str(value)


def standing_of(memory: Memory) -> Standing:
    """Whether a last version is open, forgotten, private or secret."""
    if memory.sensitivity is Sensitivity.OPEN and memory.known_to is not None:
        return Standing.FORGOTTEN
    return _STANDINGS[memory.sensitivity]


def token_of(memory: Memory) -> str:
    """The server's token for a state that it has."""
    closed = "" if memory.sensitivity is Sensitivity.OPEN else f"{memory.sensitivity}:"
    return f"{closed}{memory.version}.{fingerprint(memory)}"


def version_in(token: str) -> int:
    """The version that a token was made of; 0 if it names none."""
    number = token.rpartition(":")[2].partition(".")[0]
    return int(number) if number.isdecimal() else 0


def mine_of(memory: Memory | None) -> LocalState:
    """The state of this machine, by the last version."""
    return LocalState(Standing.ABSENT) if memory is None else LocalState(standing_of(memory), fingerprint(memory))


def latest(store: OwnerStore, ids: Sequence[str]) -> dict[str, Memory]:
    """The last versions of some memories of the owner, forgotten ones too."""
    memories: dict[str, Memory] = {}
    for _, memory in store.versions(ids):
        # What others share is theirs to sync.
        is_own = memory.shared_by is None
        if is_own and (memory.id not in memories or memories[memory.id].version < memory.version):
            memories[memory.id] = memory
    return memories


def touched(store: OwnerStore, entries: Iterable[JournalEntry]) -> dict[str, str]:
    """The memories that journal entries concern, with who changed each last; also those that are linked to them."""
    actors = {entry.id: entry.actor.removeprefix(_ACTOR) for entry in entries if entry.action is not Action.BOUND}
    linked = {link.source: "" for link in store.links(sorted(actors))}
    return linked | actors


def links_of(store: OwnerStore, ids: Sequence[str]) -> dict[str, Links]:
    """The links that lead from each of some memories to others."""
    linked: dict[str, set[tuple[str, str]]] = {id: set() for id in ids}
    for link in store.links(ids):
        if link.source in linked:
            linked[link.source].add((link.kind.value, link.target))
    return {id: frozenset(links) for id, links in linked.items()}


def link_of(source: str, tie: tuple[str, str], at: datetime) -> Link:
    """The link that leads from a memory by a kind to another."""
    return Link(source=source, kind=LinkKind(tie[0]), target=tie[1], known_from=at)


def sync_actor(actor: str) -> str:
    """The actor in the journal of a change on the other side; `undo` does not count it as the user's own."""
    return f"{_ACTOR}{actor or 'user'}"


class ProjectNames:
    """The names of projects on this side, and what identifies them on the other."""

    def __init__(self, store: OwnerStore) -> None:
        self._store = store
        self._places = {place.key: place.project for place in store.folders()}
        self._names: dict[str, str] = store.documents.all(_NAMES)

    def keys(self, name: str) -> tuple[str, ...]:
        """What identifies a project: its remotes, and the name that it had before it had one."""
        if not name:
            return ()
        remotes = sorted(key for key, each in self._places.items() if each == name and key.startswith(REMOTE))
        names = sorted(key for key, each in self._names.items() if each == name)
        # As many as a server takes; a name that the project had before is among them.
        return (*remotes[: MOST_KEYS - len(names[:1])], *names)[:MOST_KEYS] or (f"{_NAME}{name}",)

    def note(self, name: str) -> None:
        """Record that a project without a remote is matched by its name."""
        own = f"{_NAME}{name}"
        if own in self.keys(name) and own not in self._names:
            self._keep([own], name)

    def local(self, keys: Sequence[str], name: str) -> str:
        """The project on this side; one that is new here gets a name that no other project has."""
        if not keys:
            return ""
        names = ((self._places if key.startswith(REMOTE) else self._names).get(key) for key in keys)
        registered = next((name for name in names if name is not None), None)
        chosen = self._chosen(keys, name) if registered is None else registered
        remotes = [key for key in keys if key.startswith(REMOTE) and key not in self._places]
        if remotes:
            chosen = self._store.register_folder(remotes, lambda _: chosen)
            self._places |= dict.fromkeys(remotes, chosen)
        self._keep([key for key in keys if key.startswith(_NAME) and key not in self._names], chosen)
        return chosen

    def _chosen(self, keys: Sequence[str], name: str) -> str:
        remote = next((key for key in keys if key.startswith(REMOTE)), "")
        with_remote = {each for key, each in self._places.items() if key.startswith(REMOTE)}
        taken = with_remote | {*self._places.values(), *self._store.census().by_project} if remote else with_remote
        base = name if remote else keys[0].removeprefix(_NAME)
        names = (validation.check_name(each, "the project") for each in _names(base, remote))
        return next(each for each in names if each and each not in taken)

    def _keep(self, keys: Sequence[str], name: str) -> None:
        if keys:
            self._store.documents.put(_NAMES, {key: Document(name) for key in keys})
            self._names |= dict.fromkeys(keys, name)


def _names(name: str, remote: str) -> Iterator[str]:
    yield name
    parts = remote.removeprefix(REMOTE).split("/")
    if len(parts) > 2 and not name.startswith(f"{parts[-2]}/"):
        yield f"{parts[-2]}/{name}"
    yield from (f"{name}-{number}" for number in count(2))


def record_of(memory: Memory, projects: ProjectNames) -> Record:
    """An open memory as it travels."""
    values = {name: getattr(memory, name) for name in _COPIED}
    is_forgotten = memory.known_to is not None
    return Record(**values, forgotten=is_forgotten, project=memory.project, keys=projects.keys(memory.project))


def memory_of(id: str, record: Record, owner: str, projects: ProjectNames) -> Memory:
    """A record as the memory of this side, not stored yet; `known_to` says that it is forgotten."""
    now = timestamps.now()
    return Memory(
        **{name: getattr(record, name) for name in _COPIED},
        id=id,
        owner=owner,
        project=projects.local(record.keys, record.project),
        known_from=now,
        known_to=now if record.forgotten else None,
        content_hash=content_hash(record.content),
    )


def secret_in(memory: Memory) -> str:
    """Why the text of an open memory is not synced, or nothing: the user may have opened it only for this machine."""
    kinds = [detect.label_of(finding.kind) for finding in detect.find(memory.content)]
    return f"its text looks like a secret ({kinds[0]}): it stays on this machine" if kinds else ""


def checked(memory: Memory, settings: MemorySettings) -> Memory:
    """A memory of another machine, checked as every other write is."""
    if reason := secret_in(memory):
        raise BadInput(reason)
    refuse_secret_labels(labels_of(memory))
    text = validation.check_content(memory.content, settings)
    cleaned = replace(memory, content=text, content_hash=content_hash(text), **checked_details(memory, settings))
    validation.check_consistent(cleaned)
    return cleaned


def theirs_of(shown: Shown, owner: str, projects: ProjectNames) -> tuple[ServerState, Memory | None]:
    """A state of the server, and the memory that it would be here."""
    if shown.record is None:
        return ServerState(shown.standing, shown.token), None
    memory = memory_of(shown.id, shown.record, owner, projects)
    return ServerState(shown.standing, shown.token, fingerprint(memory)), memory


def changes_for(memory: Memory, known: Memory | None, *, verbatim: bool = True) -> list[Change]:
    """The changes that give a memory another state; they fail if it was changed meanwhile."""
    if known is None:
        current = replace(memory, known_to=None)
        return [Add(current, verbatim=verbatim), *([Forget(memory.id)] if memory.known_to else [])]
    revised = replace(memory, version=known.version, known_from=known.known_from, known_to=None)
    if known.known_to is not None and memory.known_to is not None and fingerprint(known) == fingerprint(memory):
        return []
    return [Revise(revised, base=known.version), *([Forget(memory.id)] if memory.known_to else [])]


def taken(memory: Memory, known: Memory) -> Memory:
    """The last version after `changes_for`."""
    aligned = replace(memory, version=known.version, known_to=None)
    is_kept = same_words(aligned, known) and (known.known_to is None or memory.known_to is not None)
    return replace(memory, version=known.version + (0 if is_kept else 1))


def tombstone(store: OwnerStore, id: str, withdrawn: Mapping[str, str]) -> str:
    """The token of a memory that has no versions; empty if there never was one."""
    erasure, is_own = None, True
    for entry in store.journal(id=id, limit=ALL_ENTRIES):
        if entry.id != id:
            continue
        if entry.action is Action.ADDED or (entry.action is Action.SHARED and not entry.other):
            # Another user's memory is in the journal only from the share on; that user's laptop syncs its erasure.
            is_own = entry.action is Action.ADDED
        elif entry.action is Action.ERASED and is_own:
            erasure = entry
    if erasure is None:
        return ""
    # The mark is not enough: its writer may have stopped before erasing, and someone else erased the memory.
    is_withdrawn = erasure.actor == WITHDRAWAL
    return withdrawn[id] if is_withdrawn and id in withdrawn else ERASED


def shared_by_others(store: OwnerStore, ids: Sequence[str]) -> dict[str, str]:
    """Those memories that other users share, with the names of these."""
    return {memory.id: memory.shared_by for _, memory in store.versions(ids) if memory.shared_by is not None}
