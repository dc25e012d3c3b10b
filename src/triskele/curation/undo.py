"""Turning journal entries into the changes that take them back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from triskele.errors import BadInput, Conflict
from triskele.stores.protocol import Store
from triskele.types import (
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


def last_undoable(store: Store) -> str | None:
    """The newest batch that is neither undone nor an undoing itself."""
    cancelled: set[int] = set()
    for entries in _batches_backwards(store):
        first = entries[0]
        if first.seq in cancelled:
            continue
        if first.undoes is not None:
            cancelled.add(first.undoes)
        elif first.action is not Action.ERASED:
            return first.batch
    return None


def inverse(entries: Sequence[JournalEntry], store: Store) -> list[Change]:
    """The changes that take a batch back, last entry first."""
    reach: dict[str, int] = {}
    for entry in entries:
        reach[entry.id] = max(reach.get(entry.id, 0), entry.version or 0)
    return [_inverse(entry, store, reach[entry.id]) for entry in reversed(entries)]


def _inverse(entry: JournalEntry, store: Store, reach: int) -> Change:
    match entry.action:
        case Action.ADDED | Action.RESTORED:
            latest = _version(store, entry.id, None)
            if latest.version > reach:
                raise Conflict(f"memory {entry.id} was changed since: undo that first")
            return Forget(entry.id)
        case Action.EDITED:
            return Revise(_version(store, entry.id, entry.previous), base=entry.version or 0)
        case Action.FORGOTTEN:
            return Revise(_version(store, entry.id, entry.previous), base=entry.previous or 0)
        case Action.LINKED:
            return Disconnect(_link(entry))
        case Action.UNLINKED:
            return Connect(_link(entry))
        case _:
            raise BadInput(f"{entry.id} was erased for good: that cannot be undone")


def _version(store: Store, id: str, version: int | None) -> Memory:
    history = store.history(id)
    wanted = [memory for memory in history if version is None or memory.version == version]
    if not wanted:
        raise BadInput(f"{id} was erased for good: that cannot be undone")
    return wanted[-1]


def _link(entry: JournalEntry) -> Link:
    assert entry.link_kind is not None and entry.other is not None
    return Link(source=entry.id, kind=entry.link_kind, target=entry.other, known_from=entry.at)


def _batches_backwards(store: Store) -> Iterator[Sequence[JournalEntry]]:
    """Runs of entries with the same batch, newest run first, each in order."""
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
