"""Turning journal entries into the changes that undo them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from triskele.base import timestamps
from triskele.base.ids import same_words
from triskele.errors import BadInput, Conflict, NotFound
from triskele.stores.protocols import OwnerStore
from triskele.types import (
    LASTING,
    USER,
    Action,
    Change,
    Connect,
    Disconnect,
    Forget,
    JournalEntry,
    Link,
    Memory,
    Revise,
)

_PAGE = 500
_FINAL = (Action.SEALED, Action.ERASED)


def undoable(store: OwnerStore, batch: str | None, actor: str) -> list[JournalEntry]:
    """The entries of a batch, or of the last one that can be undone; a client reaches only its own changes."""
    own = None if actor == USER else actor
    name = _last_undoable(store, own) if batch is None else batch
    entries = store.journal(batch=name, limit=2**31) if name else []
    if own is not None and any(entry.actor != own for entry in entries):
        raise NotFound(f"batch {batch} is not this client's: a client can undo only its own changes")
    if not entries:
        raise NotFound(f"no batch {batch}" if batch is not None else "there is nothing to undo")
    return entries


def _last_undoable(store: OwnerStore, actor: str | None) -> str | None:
    """The newest batch of an actor, or of any, that is neither undone nor an undo.

    An erasure and a sealing cannot be undone, and nothing older is undone in their place.
    """
    cancelled: set[int] = set()
    for entries in _batches_backwards(store):
        first = entries[0]
        if _start(first, store) in cancelled:
            continue
        if first.undoes is not None:
            cancelled.add(first.undoes)
        elif actor is None or first.actor == actor:
            # A sealing also erases what was derived.
            final = next((action for action in _FINAL if any(entry.action is action for entry in entries)), None)
            if final is not None:
                raise Conflict(f"the last change {final} a memory, which cannot be undone: name an earlier batch")
            if not all(entry.action in LASTING for entry in entries):
                return first.batch
    return None


def inverse(entries: Sequence[JournalEntry], store: OwnerStore) -> list[Change]:
    """The changes that restore every memory and link of a batch to its earlier state."""
    of_memories: dict[str, list[JournalEntry]] = {}
    for entry in entries:
        if entry.link_kind is None and entry.action not in LASTING:
            of_memories.setdefault(entry.id, []).append(entry)
    links = [entry for entry in reversed(entries) if entry.link_kind is not None]
    ends = {end for entry in links for end in (entry.id, entry.other) if end is not None}
    histories = {id: history for id in {*of_memories, *ends} if (history := store.history(id))}
    texts = {(row.id, row.version): row.sealed_as for row in store.sealed(sorted(histories))}
    changes = [_before(own, histories[id], texts) for id, own in of_memories.items() if id in histories]
    changes += [_opposite(entry) for entry in links if entry.id in histories and entry.other in histories]
    if not changes:
        done = entries[-1].action if entries[-1].action in LASTING else "erased"
        raise BadInput(f"{entries[0].id} was {done}: this cannot be undone")
    return changes


def _before(entries: Sequence[JournalEntry], history: Sequence[Memory], texts: Mapping[tuple[str, int], int]) -> Change:
    """The change from a memory's state after the batch to its state before it."""
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
        return Forget(now.id)
    if not is_as_left or is_forgotten != (last.action is Action.FORGOTTEN):
        raise Conflict(f"memory {now.id} was changed later: undo that change first")
    if was_absent:
        return Forget(now.id)
    [previous] = [version for version in history if version.version == first.previous]
    return Revise(previous, base=now.version)


def _opposite(entry: JournalEntry) -> Change:
    assert entry.link_kind is not None and entry.other is not None
    link = Link(source=entry.id, kind=entry.link_kind, target=entry.other, known_from=timestamps.now())
    return Disconnect(link) if entry.action is Action.LINKED else Connect(link)


def _start(entry: JournalEntry, store: OwnerStore) -> int:
    """The first sequence number of the entry's batch: a long batch may be interleaved with others."""
    return store.journal(batch=entry.batch, limit=1)[0].seq


def _batches_backwards(store: OwnerStore) -> Iterator[Sequence[JournalEntry]]:
    """Runs of consecutive entries of one batch, newest run first, each run in journal order."""
    run: deque[JournalEntry] = deque()
    before: int | None = None
    while page := store.newest_entries(before=before, limit=_PAGE):
        for entry in page:
            if run and run[0].batch != entry.batch:
                yield run
                run = deque()
            run.appendleft(entry)
        before = page[-1].seq
    if run:
        yield run
