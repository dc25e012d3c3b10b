"""Undo batches of the journal by the changes that take them back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from triskele import validation
from triskele.engine import views
from triskele.errors import IN_BATCH, BadInput, Conflict, NotFound, TriskeleError
from triskele.replies import CHANGES_MEMORIES, Undone, own_actors, with_versions
from triskele.store.owner import OwnerStore
from triskele.text import timestamps
from triskele.text.ids import same_words
from triskele.types import (
    EVERYWHERE,
    LASTING,
    USER,
    Action,
    Change,
    Connect,
    Disconnect,
    Forget,
    JournalEntry,
    Link,
    MakePrivate,
    Memory,
    MoveFolder,
    Revise,
    Sensitivity,
    is_raised,
)

if TYPE_CHECKING:
    from triskele.store.access import StoreAccess

_PAGE = 500
_PRIVATE = "{0} stays private: only the user can make it more open (`triskele edit {0} --open`)"
_RESTORE = "triskele edit {} --restore"
_FINAL = (Action.SEALED, Action.ERASED)


@dataclass(frozen=True, slots=True)
class UndoScope:
    """Whose changes, in which projects, an undo may choose as the last one; None is all of them."""

    actors: frozenset[str] | None
    projects: frozenset[str] | None


def changeable(memory: Memory) -> Memory:
    """The memory, unless it is forgotten: an edit would bring it back unasked."""
    if memory.known_to is not None:
        raise Conflict(f"{memory.id} is forgotten: bring it back before you change it (`{_RESTORE.format(memory.id)}`)")
    return memory


def restoration(memory: Memory) -> Revise:
    """The change that brings a forgotten memory back."""
    if memory.known_to is None:
        raise Conflict(f"{memory.id} is not forgotten")
    return Revise(replace(memory, updated_at=timestamps.now()), base=memory.version)


def undo(
    access: StoreAccess, batch: str | None, project: str | None, *, all_projects: bool, anyone: bool, dry_run: bool
) -> Undone:
    """Undo a batch, or the last one of a project; a client reaches only its own changes."""
    store, actor = access.store, access.actor
    name = None if batch is None else validation.check_name(batch, "the batch")
    home = validation.check_name(access.project if project is None else project, "the project")
    # Only the user reaches the changes of others.
    actors = None if anyone and actor == USER else own_actors(actor)
    scope = UndoScope(actors, None if all_projects else frozenset({home, EVERYWHERE}))
    lost: set[str] = set()
    entries = _undoable(store, name, actor, scope, lost)
    changes = inverse(entries, store, actor)
    if not changes:
        raise Conflict(_PRIVATE.format(entries[0].id))
    versions = [memory for _, memory in store.versions(sorted({id for entry in entries for id in entry.ends}))]
    own = tuple(entry for entry in entries if entry.action not in LASTING)
    projects = sorted({memory.project for _, named in with_versions(own, versions) for memory in named})
    undone = Undone(
        own,
        views.shown(versions, private=access.reads_private),
        tuple(projects),
        passed_over={id: _end(store, id) for id in sorted(lost | _lost(store, entries))},
    )
    if dry_run:
        return replace(undone, folders=views.folders(store, own))
    outcomes = access.apply(changes, undoes=own[0].seq)
    # A withdrawal follows a change of the same memory.
    is_withdrawal = [isinstance(change, MakePrivate) for change in changes]
    changed = [outcome for outcome, is_second in zip(outcomes, is_withdrawal, strict=True) if not is_second]
    return replace(undone, outcomes=tuple(changed))


def _undoable(store: OwnerStore, batch: str | None, actor: str, scope: UndoScope, lost: set[str]) -> list[JournalEntry]:
    name = _last_undoable(store, scope, actor, lost) if batch is None else batch
    entries = store.journal(batch=name, limit=2**31) if name else []
    if actor != USER and any(entry.actor != actor for entry in entries):
        raise NotFound(f"batch {batch} is not this client's: a client can undo only its own changes")
    if not entries:
        why = "".join(f"{id} {_end(store, id)}; " for id in sorted(lost)[:1])
        raise NotFound(f"no batch {batch}" if batch is not None else f"{why}there is nothing to undo")
    return entries


def _last_undoable(store: OwnerStore, scope: UndoScope, actor: str, lost: set[str]) -> str | None:
    """The newest batch in the scope that is neither undone nor an undo.

    An erasure and a sealing cannot be undone, nor by a client a closing, and no older batch is undone instead: the
    error names it. What others took away is passed over, and its ids are added to `lost`.
    """
    cancelled: set[int] = set()
    final: Action | None = None
    reason = ""
    for entries in _batches_backwards(store):
        first = entries[0]
        # A long batch may be interleaved with others: its first entry identifies it.
        if store.journal(batch=first.batch, limit=1)[0].seq in cancelled:
            continue
        if first.undoes is not None:
            cancelled.add(first.undoes)
        elif (scope.actors is None or first.actor in scope.actors) and _touches(store, entries, scope.projects):
            # A sealing also erases what was derived.
            final = final or next((each for each in _FINAL if any(entry.action is each for entry in entries)), None)
            reason = reason or (f"the last change {final} a memory, which cannot be undone" if final else "")
            gone = set() if reason else _wholly_lost(store, entries)
            lost |= gone
            if gone or all(entry.action in LASTING for entry in entries):
                continue
            changes = _inverse_of(store, first.batch, actor) if reason or actor != USER else None
            if not (reason or changes == []):
                return first.batch
            if changes:
                earlier = f"{reason}; the change before it is batch {first.batch}"
                raise Conflict(earlier, remedy=f"{IN_BATCH}{first.batch}")
            reason = reason or _PRIVATE.format(first.id)
    if reason:
        raise Conflict(f"{reason}, and there is nothing before it to undo" if final else reason)
    return None


def _lost(store: OwnerStore, entries: Sequence[JournalEntry]) -> set[str]:
    """The changed or linked memories of which nothing is left: erased, or no longer shared."""
    own = {end for entry in entries if entry.action not in (*LASTING, Action.BOUND) for end in entry.ends}
    return own - {memory.id for _, memory in store.versions(sorted(own))}


def _wholly_lost(store: OwnerStore, run: Sequence[JournalEntry]) -> set[str]:
    """The lost memories of a run, if because of such ones no change of its batch can be undone."""
    entries = store.journal(batch=run[0].batch, limit=2**31) if _lost(store, run) else []
    lost = _lost(store, entries)
    return lost if all(entry.action in LASTING or not lost.isdisjoint(entry.ends) for entry in entries) else set()


def _end(store: OwnerStore, id: str) -> str:
    """What became of a lost memory."""
    last = store.journal(id=id, limit=2**31)[-1].action
    return "is no longer shared" if last is Action.UNSHARED else "was erased"


def _inverse_of(store: OwnerStore, batch: str, actor: str) -> list[Change] | None:
    """The changes that undo a batch; None if it cannot be undone."""
    with suppress(TriskeleError):
        return inverse(store.journal(batch=batch, limit=2**31), store, actor)
    return None


def _touches(store: OwnerStore, entries: Sequence[JournalEntry], projects: frozenset[str] | None) -> bool:
    """Whether a batch changed a memory of these projects; nothing is left of an erased one, which may have been."""
    own = [entry for entry in entries if entry.action in CHANGES_MEMORIES or entry.link_kind is not None]
    if projects is None or not own:
        return True
    numbers = {(entry.id, number) for entry in own for number in (entry.version, entry.previous)}
    known = [memory for _, memory in store.versions(sorted({entry.id for entry in own}))]
    if {memory.id for memory in known} != {entry.id for entry in own}:
        return True
    named = [memory for memory in known if (memory.id, memory.version) in numbers]
    return any(memory.project in projects for memory in named or known)


def inverse(entries: Sequence[JournalEntry], store: OwnerStore, actor: str = USER) -> list[Change]:
    """The changes that restore every memory and link of a batch to its earlier state.

    Only the user opens again what was made private; none are left if a client undoes just that.
    """
    of_memories: dict[str, list[JournalEntry]] = {}
    for entry in entries:
        if entry.link_kind is None and entry.action not in LASTING:
            of_memories.setdefault(entry.id, []).append(entry)
    links = [entry for entry in reversed(entries) if entry.link_kind is not None]
    ends = {end for entry in links for end in entry.ends}
    histories = {
        id: _as_written(store, history, actor) for id in {*of_memories, *ends} if (history := store.history(id))
    }
    texts = {(row.id, row.version): row.sealed_as for row in store.sealed(sorted(histories))}
    known = [(own, histories[id]) for id, own in of_memories.items() if id in histories]
    changes = [change for own, history in known for change in _before(store, own, history, texts, actor)]
    changes += [_opposite(entry) for entry in links if entry.id in histories and entry.other in histories]
    changes += [_opposite(entry) for entry in reversed(entries) if entry.action is Action.BOUND]
    if not (changes or known):
        id, last = entries[0].id, entries[-1].action
        done = f"was {last}" if last in LASTING else _end(store, id)
        raise BadInput(f"{id} {done}: this cannot be undone")
    return changes


def _before(
    store: OwnerStore,
    entries: Sequence[JournalEntry],
    history: Sequence[Memory],
    texts: Mapping[tuple[str, int], int],
    actor: str,
) -> list[Change]:
    """The changes from a memory's state after the batch to its state before it."""
    first, last, now = entries[0], entries[-1], history[-1]
    number = last.previous if last.action is Action.FORGOTTEN else last.version
    # Two secrets with equal titles are the same only if their sealed texts are equal.
    is_as_left = any(
        version.version == number
        and same_words(version, now)
        and texts.get((now.id, version.version)) == texts.get((now.id, now.version))
        for version in history
    )
    is_forgotten = now.known_to is not None
    was_absent = first.action in (Action.ADDED, Action.RESTORED)
    if was_absent and is_forgotten:
        return [Forget(now.id)]
    if not is_as_left or is_forgotten != (last.action is Action.FORGOTTEN):
        later = store.journal(id=now.id, limit=2**31)[-1].batch
        raise Conflict(f"memory {now.id} was changed later: undo batch {later} first", remedy=f"{IN_BATCH}{later}")
    if was_absent:
        return [Forget(now.id)]
    [previous] = [version for version in history if version.version == first.previous]
    return _restoring(previous, now, actor)


def _restoring(previous: Memory, now: Memory, actor: str) -> list[Change]:
    """The changes to an earlier version; only the user makes a private memory open again."""
    if actor != USER and now.sensitivity is Sensitivity.PRIVATE:
        if previous.sensitivity is Sensitivity.OPEN:
            previous = replace(previous, sensitivity=Sensitivity.PRIVATE)
        if now.known_to is None and same_words(previous, now):
            return []
    changes: list[Change] = [Revise(previous, base=now.version)]
    if previous.sensitivity is Sensitivity.PRIVATE and is_raised(now.sensitivity, Sensitivity.PRIVATE):
        changes.append(MakePrivate(now.id))
    return changes


def _as_written(store: OwnerStore, history: Sequence[Memory], actor: str) -> Sequence[Memory]:
    """The versions with the classes that they had when written: making a memory private closed the older ones too.

    To a client a private memory has been private always.
    """
    is_closed = history[-1].sensitivity is Sensitivity.PRIVATE
    if (is_closed and actor != USER) or all(each.sensitivity is not Sensitivity.PRIVATE for each in history):
        return history
    entries = store.journal(id=history[-1].id, limit=2**31)
    edits = {entry.version: entry for entry in entries if entry.action in (Action.EDITED, Action.RESTORED)}
    versions = [history[-1]]
    for newer, older in pairwise(reversed(history)):
        former = older.sensitivity
        if newer.version in edits and newer.sensitivity is former is Sensitivity.PRIVATE:
            # An edit that changed the class names the one before.
            before = edits[newer.version].other
            former = versions[-1].sensitivity if before is None else Sensitivity(before)
        versions.append(replace(older, sensitivity=former))
    return versions[::-1]


def _opposite(entry: JournalEntry) -> Change:
    assert entry.other is not None
    if entry.link_kind is None:
        return MoveFolder(int(entry.id.removeprefix("place ")), entry.other)
    link = Link(source=entry.id, kind=entry.link_kind, target=entry.other, known_from=timestamps.now())
    return Disconnect(link) if entry.action is Action.LINKED else Connect(link)


def _batches_backwards(store: OwnerStore) -> Iterator[Sequence[JournalEntry]]:
    """Runs of consecutive entries of one batch, newest run first, each run in journal order."""
    for _, run in groupby(_entries_backwards(store), key=lambda entry: entry.batch):
        yield list(run)[::-1]


def _entries_backwards(store: OwnerStore) -> Iterator[JournalEntry]:
    before: int | None = None
    while page := store.newest_entries(before=before, limit=_PAGE):
        yield from page
        before = page[-1].seq
