"""A store in memory that keeps truth alone and differs from SQLite wherever the contract allows it.

Entry numbers do not become visible in order (as those of concurrent transactions do not), and cursors are tokens that
nothing can be computed from.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

from triskele.errors import BadInput, Conflict, NotFound, QuotaExceeded
from triskele.replies import Census
from triskele.store.values import START, VAULT, ChangePage, Cursor, Document, FolderRow, SealedRow
from triskele.store.writer import MemoryLimits
from triskele.text import timestamps
from triskele.text.ids import content_hash, same_words
from triskele.types import (
    USER,
    Action,
    Add,
    Change,
    Connect,
    Disconnect,
    Forget,
    JournalEntry,
    Link,
    LinkKind,
    MakePrivate,
    Memory,
    MoveFolder,
    Origin,
    Outcome,
    Reveal,
    Revise,
    Scope,
    Sealed,
    Sensitivity,
    Sort,
)


class MemoryStores:
    """Opens the store of a folder; the same folder twice is the same store."""

    def __init__(self) -> None:
        self._files: dict[Path, File] = {}

    def __call__(self, folder: Path, limits: MemoryLimits | None = None) -> MemoryStore:
        return MemoryStore(self._files.setdefault(folder, File()), limits)


class MemoryStore:
    """A store without files; every owner has a state of its own."""

    maintenance = None

    def __init__(self, file: File, limits: MemoryLimits | None) -> None:
        self._file, self._limits = file, limits

    def for_owner(self, owner: str) -> Any:
        """What one owner sees."""
        return MemoryOwnerStore(owner, self._file, self._file.owners.setdefault(owner, Owned()), self._limits)

    def close(self) -> None:
        """Nothing is open."""


@dataclass
class State:
    """All that one owner has; `journal` is in the order in which entries became visible."""

    versions: dict[int, Memory] = field(default_factory=dict)
    links: dict[int, Link] = field(default_factory=dict)
    journal: list[JournalEntry] = field(default_factory=list)
    sealed: dict[tuple[str, int], SealedRow] = field(default_factory=dict)
    documents: dict[tuple[str, str], Any] = field(default_factory=dict)
    places: dict[int, FolderRow] = field(default_factory=dict)

    def copied(self) -> State:
        return State(*(copy(getattr(self, name)) for name in self.__dataclass_fields__))

    def current(self) -> int:
        return sum(each.known_to is None for each in self.versions.values())

    def history(self, id: str) -> list[Memory]:
        return sorted((each for each in self.versions.values() if each.id == id), key=lambda each: each.version)


@dataclass
class Owned:
    """The state of one owner, and a cursor after every entry of its journal."""

    state: State = field(default_factory=State)
    cursors: list[Cursor] = field(default_factory=lambda: [START])


@dataclass
class File:
    """What all openings of a store share."""

    owners: dict[str, Owned] = field(default_factory=dict)
    epoch: str = field(default_factory=lambda: secrets.token_hex(4))
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    entries: Iterator[int] = field(default_factory=lambda: count(2))
    lock: threading.RLock = field(default_factory=threading.RLock)


class MemoryOwnerStore:
    """The truth of one owner, with the documents that sealing needs."""

    def __init__(self, owner: str, file: File, owned: Owned, limits: MemoryLimits | None) -> None:
        self.owner = owner
        self.documents = self
        self._most = limits and limits.usual
        self._file, self._owned, self._pinned = file, owned, threading.local()

    @property
    def _now(self) -> State:
        return getattr(self._pinned, "state", None) or self._owned.state

    def apply(
        self, changes: Sequence[Change], *, batch: str, actor: str = USER, undoes: int | None = None
    ) -> list[Outcome]:
        return self._write(batch, actor, lambda writer: [writer.apply(change) for change in changes], undoes)

    def erase(self, ids: Sequence[str], *, batch: str, actor: str = USER) -> list[Outcome]:
        return self._write(batch, actor, lambda writer: [writer.erase(id) for id in dict.fromkeys(ids)])

    def seal(self, versions: Sequence[tuple[Memory, Sealed]], *, batch: str, actor: str = USER) -> Outcome:
        return self._write(batch, actor, lambda writer: writer.seal(versions))

    def _write(self, batch: str, actor: str, act: Callable[[Writer], Any], undoes: int | None = None) -> Any:
        with self._file.lock:
            state, known = self._owned.state.copied(), len(self._owned.state.journal)
            outcome = act(Writer(state, self.owner, self._file, timestamps.now(), batch, actor, undoes))
            if self._most and state.current() > max(self._most, self._owned.state.current()):
                raise QuotaExceeded(f"the quota is {self._most}")
            self._owned.state = state
            self._owned.cursors += [Cursor(secrets.token_hex(6)) for _ in state.journal[known:]]
            return outcome

    def sealed(self, ids: Sequence[str] | None = None) -> list[SealedRow]:
        return sorted(row for row in self._now.sealed.values() if ids is None or row.id in ids)

    def reseal(self, blobs: Mapping[tuple[str, int], bytes]) -> None:
        sealed = self._owned.state.sealed
        for place in blobs.keys() & sealed.keys():
            sealed[place] = sealed[place]._replace(blob=blobs[place])

    def folders(self) -> list[FolderRow]:
        return list(self._now.places.values())

    def register_folder(self, keys: Sequence[str], choose: Callable[[Sequence[FolderRow]], str]) -> str:
        with self._file.lock:
            known = self.folders()
            project = choose(known)
            for key in dict.fromkeys(keys):
                if key not in {each.key for each in known}:
                    number = next(self._file.numbers)
                    self._owned.state.places[number] = FolderRow(number, key, project, timestamps.now())
            return project

    def find(self, prefix: str, limit: int = 5) -> list[str]:
        return sorted({each.id for each in self._now.versions.values() if each.id.startswith(prefix)})[:limit]

    def shorten(self, ids: Iterable[str], shortest: int = 8) -> dict[str, str]:
        def length(id: str) -> int:
            return next((size for size in range(shortest, len(id)) if len(self.find(id[:size])) < 2), len(id))

        return {id: id[: length(id)] for id in ids}

    def memories(self, ids: Iterable[str], *, known_at: datetime | None = None) -> dict[str, Memory]:
        wanted = set(ids)
        return {each.id: each for each in self._now.versions.values() if each.id in wanted and _stands(each, known_at)}

    def history(self, id: str) -> list[Memory]:
        return self._now.history(id)

    def rows(self, rows: Iterable[int]) -> dict[int, Memory]:
        return {row: self._now.versions[row] for row in rows if row in self._now.versions}

    def superseding_ids(self, rows: Iterable[int]) -> dict[int, str]:
        chains = [link for link in self.all_links() if link.kind is LinkKind.SUPERSEDES]
        ends = {end for link in chains for end in (link.source, link.target)}
        return {row: each.id for row, each in self.rows(rows).items() if each.id in ends}

    def versions(self, ids: Sequence[str] | None = None) -> Iterator[tuple[int, Memory]]:
        wanted = None if ids is None else set(ids)
        found = self._now.versions.items()
        yield from sorted((row, each) for row, each in found if wanted is None or each.id in wanted)

    def links(
        self, ids: Sequence[str], *, kind: LinkKind | None = None, known_at: datetime | None = None
    ) -> list[Link]:
        wanted = set(ids)
        touching = [each for each in self.all_links() if {each.source, each.target} & wanted]
        return [each for each in touching if _stands(each, known_at) and kind in (None, each.kind)]

    def succession(self, ids: Iterable[str], depth: int, *, known_at: datetime | None = None) -> list[Link]:
        links: list[Link] = []
        fringe, seen = set(ids), set[str]()
        for _ in range(depth + 1):
            near = self.links(sorted(fringe), kind=LinkKind.SUPERSEDES, known_at=known_at)
            links += [link for link in near if link not in links]
            seen |= fringe
            fringe = {end for link in near for end in (link.source, link.target)} - seen
        return links

    def all_links(self) -> Iterator[Link]:
        yield from self._now.links.values()

    def browse(self, scope: Scope, *, sort: Sort = Sort.RECENCY, limit: int = 50, offset: int = 0) -> list[Memory]:
        if sort is Sort.RELEVANCE:
            raise BadInput("memories cannot be listed by relevance")
        memories = [each for each in self._now.versions.values() if _is_in(each, scope)]
        memories.sort(key=lambda each: (each.importance * (sort is Sort.IMPORTANCE), each.updated_at, each.id))
        return memories[::-1][offset : offset + limit]

    def count(self, scope: Scope) -> int:
        return sum(_is_in(version, scope) for version in self._now.versions.values())

    def journal(self, *, id: str | None = None, batch: str | None = None, limit: int = 1000) -> list[JournalEntry]:
        entries = [each for each in self._now.journal if id in (None, each.id, each.other)]
        return [each for each in entries if batch in (None, each.batch)][:limit]

    def newest_entries(self, *, before: int | None = None, limit: int = 1) -> list[JournalEntry]:
        entries = self._now.journal[::-1]
        past = [place for place, each in enumerate(entries, 1) if each.seq == before]
        return entries[past[0] if past else 0 :][:limit]

    def changes_since(self, cursor: Cursor, limit: int = 1000) -> ChangePage:
        start = self._owned.cursors.index(cursor)
        entries = self._now.journal[start : start + limit]
        return ChangePage(entries, self._owned.cursors[start + len(entries)])

    def position(self) -> Cursor:
        return self._owned.cursors[len(self._now.journal)]

    def holds(self, cursor: Cursor) -> bool:
        return cursor in self._owned.cursors

    def epoch(self) -> str:
        return self._file.epoch

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        outer = getattr(self._pinned, "state", None)
        self._pinned.state = outer or self._owned.state
        try:
            yield
        finally:
            self._pinned.state = outer

    def census(self) -> Census:
        current = [each for each in self._now.versions.values() if each.known_to is None]
        ids = {each.id for each in current}
        links = [each for each in self._now.links.values() if each.known_to is None]
        superseding = [each for each in links if each.kind is LinkKind.SUPERSEDES and {each.source, each.target} <= ids]
        categories, projects = ([getattr(each, name) for each in current] for name in ("category", "project"))
        return Census(
            memories=len(current),
            forgotten=len({each.id for each in self._now.versions.values()} - ids),
            superseded=len({each.target for each in superseding}),
            versions=len(self._now.versions),
            links=len(links),
            journal=len(self._now.journal),
            bytes=len(self._now.versions),
            by_category={each: categories.count(each) for each in categories},
            by_project={each: projects.count(each) for each in projects},
        )

    def put(self, kind: str, documents: Mapping[str, Document]) -> None:
        self._owned.state.documents |= {(kind, key): each.value for key, each in documents.items()}


@dataclass
class Writer:
    """Carries out changes on a copy of the state, which takes the place of the state when all of them succeed."""

    state: State
    owner: str
    file: File
    at: datetime
    batch: str
    actor: str
    undoes: int | None = None

    def apply(self, change: Change) -> Outcome:
        match change:
            case Add():
                return self._add(change)
            case Revise(memory, base, sealed):
                return self._revise(memory, base, sealed)
            case Forget(id):
                return self._forget(self._latest(id))
            case Connect(link):
                return self._connect(link)
            case Disconnect(link):
                return self._disconnect(link)
            case Reveal(id):
                return self._note(Action.REVEALED, self._latest(id), version=self._latest(id).version)
            case MoveFolder(number, project):
                return self._bind(number, project)
            case MakePrivate(id):
                return self._make_private(id)

    def _forget(self, latest: Memory) -> Outcome:
        if latest.known_to is not None:
            return self._outcome(Action.UNCHANGED, latest, version=latest.version)
        self._put(replace(latest, known_to=max(self.at, latest.known_from)))
        return self._note(Action.FORGOTTEN, latest, previous=latest.version)

    def _make_private(self, id: str) -> Outcome:
        for version in self.state.history(id):
            if version.sensitivity is Sensitivity.OPEN:
                self._put(replace(version, sensitivity=Sensitivity.PRIVATE))
        return self._outcome(Action.UNCHANGED, self._latest(id), version=self._latest(id).version)

    def _add(self, change: Add) -> Outcome:
        memory, verbatim, sealed = change.memory, change.verbatim, change.sealed
        self._refuse_foreign(memory)
        twins = [each for each in self.state.versions.values() if each.known_to is None and _identity(each, memory)]
        twins = [each for each in twins if not (change.beside_private and each.sensitivity is Sensitivity.PRIVATE)]
        if twins and not verbatim and sealed is None:
            if memory.origin is not Origin.USER or twins[0].origin is Origin.USER:
                return self._outcome(Action.DUPLICATE, twins[0])
            raised = replace(twins[0], origin=Origin.USER, updated_at=memory.updated_at)
            outcome = self._revise(raised, twins[0].version, None)
            return replace(outcome, action=Action.DUPLICATE, origin=Origin.USER)
        history = self.state.history(memory.id)
        is_standing = bool(history) and history[-1].known_to is None and memory.known_to is None
        if is_standing or memory.version in {each.version for each in history}:
            raise Conflict(f"memory {memory.id} is there already")
        self._put(memory if verbatim else replace(memory, known_from=self.at), sealed)
        return self._note(Action.ADDED, memory, version=memory.version)

    def _revise(self, memory: Memory, base: int, sealed: Sealed | None) -> Outcome:
        self._refuse_foreign(memory)
        latest = self._latest(memory.id)
        if latest.version != base:
            raise Conflict(f"memory {memory.id} was changed meanwhile")
        texts = {self._sealed_as(each) for each in (latest, memory)}
        if latest.known_to is None and sealed is None and same_words(latest, memory) and len(texts) == 1:
            return self._outcome(Action.UNCHANGED, latest, version=latest.version)
        moment = max(self.at, latest.known_to or latest.known_from)
        if latest.known_to is None:
            self._put(replace(latest, known_to=moment))
        revised = replace(memory, version=base + 1, known_from=moment, known_to=None)
        kept = self.state.sealed.get((memory.id, memory.version)) if sealed is None else None
        if kept is not None and revised.sensitivity is Sensitivity.SECRET:
            self.state.sealed[revised.id, revised.version] = kept._replace(version=revised.version)
        self._put(revised, sealed)
        action = Action.EDITED if latest.known_to is None else Action.RESTORED
        changed = None if latest.sensitivity is revised.sensitivity else latest.sensitivity.value
        return self._note(action, revised, former=changed, version=revised.version, previous=base)

    def _connect(self, link: Link) -> Outcome:
        source, _ = self._latest(link.source), self._latest(link.target)
        standing = [each for each in self.state.links.values() if each.known_to is None]
        if link.source == link.target:
            raise Conflict("a memory cannot be linked to itself")
        if link.known_to is None and _ends(link) in map(_ends, standing):
            return self._outcome(Action.UNCHANGED, source)
        successors, fringe = set[str](), {link.source}
        while fringe and link.kind is LinkKind.SUPERSEDES and link.known_to is None:
            successors |= fringe
            above = {each.source for each in standing if each.kind is link.kind and each.target in fringe}
            fringe = above - successors
        if link.target in successors:
            raise Conflict("that would be a circle")
        self.state.links[next(self.file.numbers)] = link
        return self._note(Action.LINKED, source, link=link)

    def _disconnect(self, link: Link) -> Outcome:
        for number, each in self.state.links.items():
            if _ends(each) == _ends(link) and each.known_to is None:
                self.state.links[number] = replace(each, known_to=max(self.at, each.known_from))
                return self._note(Action.UNLINKED, self._latest(link.source), link=link)
        return Outcome(action=Action.UNCHANGED, id=link.source)

    def _bind(self, number: int, project: str) -> Outcome:
        if number not in self.state.places:
            raise NotFound(f"no place {number}")
        place, id = self.state.places[number], f"place {number}"
        if place.project == project:
            return Outcome(action=Action.UNCHANGED, id=id, project=project)
        self.state.places[number] = place._replace(project=project)
        seq = self._write_entry(Action.BOUND, id, other=place.project)
        return Outcome(action=Action.BOUND, id=id, seq=seq, batch=self.batch, project=project)

    def erase(self, id: str) -> Outcome:
        latest = self._latest(id)
        self.state.links = {row: each for row, each in self.state.links.items() if id not in _ends(each)}
        self._drop(id)
        return self._note(Action.ERASED, latest)

    def seal(self, versions: Sequence[tuple[Memory, Sealed]]) -> Outcome:
        last = versions[-1][0]
        self._refuse_foreign(last)
        self._latest(last.id)
        if [each.version for each in self.state.history(last.id)] != [each.version for each, _ in versions]:
            raise Conflict(f"memory {last.id} was changed meanwhile")
        self._drop(last.id)
        self._note(Action.ERASED, last)
        for memory, sealed in versions:
            self._put(memory, sealed)
        return self._note(Action.SEALED, last, version=last.version)

    def _drop(self, id: str) -> None:
        self.state.versions = {row: each for row, each in self.state.versions.items() if each.id != id}
        self.state.sealed = {place: row for place, row in self.state.sealed.items() if row.id != id}

    def _put(self, memory: Memory, sealed: Sealed | None = None) -> None:
        """Write a version; one that is there already is changed in its row."""
        versions = self.state.versions.items()
        row = next((row for row, each in versions if (each.id, each.version) == (memory.id, memory.version)), None)
        if sealed is not None:
            if content_hash(self.state.documents.get((VAULT, "keys"), "")) != sealed.keys:
                raise Conflict("the keys of the vault were changed meanwhile: try again")
            place = (memory.id, memory.version)
            self.state.sealed[place] = SealedRow(*place, memory.version, sealed.blob)
        has_text = (memory.id, memory.version) in self.state.sealed
        if has_text != (memory.sensitivity is Sensitivity.SECRET):
            raise BadInput("exactly the secret ones have a sealed text")
        self.state.versions[next(self.file.numbers) if row is None else row] = memory

    def _sealed_as(self, memory: Memory) -> int | None:
        row = self.state.sealed.get((memory.id, memory.version))
        return row and row.sealed_as

    def _latest(self, id: str) -> Memory:
        history = self.state.history(id)
        return history[-1] if history else _unknown(id)

    def _refuse_foreign(self, memory: Memory) -> None:
        if memory.owner != self.owner:
            _unknown(memory.id)

    def _note(
        self,
        action: Action,
        memory: Memory,
        *,
        link: Link | None = None,
        former: str | None = None,
        **details: int | None,
    ) -> Outcome:
        kind, other = (link.kind, link.target) if link else (None, former)
        seq = self._write_entry(action, memory.id, link_kind=kind, other=other, **details)
        return self._outcome(action, memory, seq=seq, version=details.get("version"))

    def _write_entry(self, action: Action, id: str, **details: Any) -> int:
        # Neighbours change places: the higher number of two becomes visible first.
        seq = next(self.file.entries) ^ 1
        details_of_entry = {"batch": self.batch, "undoes": self.undoes, "actor": self.actor, **details}
        self.state.journal.append(JournalEntry(seq=seq, at=self.at, action=action, id=id, **details_of_entry))
        return seq

    def _outcome(self, action: Action, memory: Memory, **details: int | None) -> Outcome:
        place = {"project": memory.project, "sensitivity": memory.sensitivity}
        batch = self.batch if details.get("seq") is not None else ""
        return Outcome(action=action, id=memory.id, batch=batch, **place, **details)  # type: ignore[arg-type]


def _unknown(id: str) -> NoReturn:
    raise NotFound(f"no memory {id}")


def _stands(each: Memory | Link, known_at: datetime | None) -> bool:
    if known_at is None:
        return each.known_to is None
    return each.known_from <= known_at and (each.known_to is None or known_at < each.known_to)


def _is_in(each: Memory, scope: Scope) -> bool:
    begun, ended = each.valid_from or scope.as_of, each.valid_to
    return (
        _stands(each, scope.known_at)
        and each.owner == scope.owner
        and (scope.projects is None or each.project in scope.projects)
        and (scope.sensitivities is None or each.sensitivity in scope.sensitivities)
        and (scope.origins is None or each.origin in scope.origins)
        and scope.category in (None, each.category)
        and scope.tags <= set(each.tags)
        and (scope.since is None or scope.since <= (each.valid_from or each.created_at))
        and (scope.until is None or (each.valid_from or each.created_at) < scope.until)
        and (scope.any_time or (begun <= scope.as_of and (ended is None or scope.as_of < ended)))
    )


def _identity(one: Memory, other: Memory) -> bool:
    names = ("content", "project", "session", "position", "speaker", "role", "valid_from", "valid_to")
    same = all(getattr(one, name) == getattr(other, name) for name in names)
    return same and one.sensitivity is not Sensitivity.SECRET


def _ends(link: Link) -> tuple[str, LinkKind, str]:
    return link.source, link.kind, link.target
