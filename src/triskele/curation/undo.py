"""Turning journal entries into the changes that take them back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from triskele.errors import BadInput, Conflict
from triskele.identity import same_words
from triskele.stores.protocol import Store
from triskele.types import (
    Action,
    Change,
    Connect,
    Disconnect,
    Forget,
    JournalEntry,
    Link,
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
    """The changes that take a batch back: links first, then each memory to what it was before."""
    links: list[Change] = [
        Disconnect(_link(entry)) if entry.action is Action.LINKED else Connect(_link(entry))
        for entry in reversed(entries)
        if entry.link_kind is not None
    ]
    touched: dict[str, list[JournalEntry]] = {}
    for entry in entries:
        if entry.link_kind is None:
            touched.setdefault(entry.id, []).append(entry)
    return links + [_taken_back(own, store) for own in touched.values()]


def _taken_back(entries: Sequence[JournalEntry], store: Store) -> Change:
    """The change that returns one memory to its state before its first entry."""
    first, last = entries[0], entries[-1]
    history = {memory.version: memory for memory in store.history(first.id)}
    if last.action is Action.ERASED or not history:
        raise BadInput(f"{first.id} was erased for good: that cannot be undone")
    current = store.memories([first.id]).get(first.id)
    left = None if last.action is Action.FORGOTTEN else history[max(entry.version or 0 for entry in entries)]
    if current is not None and (left is None or not same_words(current, left)):
        raise Conflict(f"memory {first.id} was changed since: undo that first")
    if first.previous is None or first.action is Action.RESTORED:
        return Forget(first.id)
    if current is None and left is not None:
        raise Conflict(f"memory {first.id} was forgotten since: undo that first")
    return Revise(history[first.previous], base=max(history))


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
