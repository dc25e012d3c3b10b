"""What an export tells: one consistent state of the store, without what must not leave it."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from triskele.stores.protocols import OwnerStore
from triskele.types import Link, Memory, Sensitivity


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Memories with their versions oldest first, the links among them, and how many stayed behind.

    `left_out_versions` are private or secret ones of memories that are open now.
    Secrets come as titles; where they are told, as `Unsealed`.
    """

    histories: tuple[tuple[Memory, ...], ...]
    links: tuple[Link, ...]
    left_out_private: int
    left_out_secret: int
    left_out_versions: int


def take(store: OwnerStore, *, include_private: bool, current_only: bool, with_secrets: bool = False) -> Snapshot:
    """The memories of a store; the newest version decides whether a memory leaves, and then each for itself."""
    memories, links = _consistent(store)
    grouped: dict[str, list[Memory]] = defaultdict(list)
    for memory in memories:
        if not (current_only and memory.known_to is not None):
            grouped[memory.id].append(memory)
    whole = {id: sorted(history, key=lambda memory: memory.version) for id, history in grouped.items()}
    staying = _staying(include_private=include_private, with_secrets=with_secrets)
    told = {id: history for id, history in whole.items() if history[-1].sensitivity not in staying}
    histories = tuple(tuple(each for each in history if each.sensitivity not in staying) for history in told.values())
    kept_back = Counter(history[-1].sensitivity for id, history in whole.items() if id not in told)
    return Snapshot(
        histories=histories,
        links=tuple(
            link
            for link in links
            if link.source in told and link.target in told and not (current_only and link.known_to is not None)
        ),
        left_out_private=kept_back[Sensitivity.PRIVATE],
        left_out_secret=kept_back[Sensitivity.SECRET],
        left_out_versions=sum(map(len, told.values())) - sum(map(len, histories)),
    )


def _staying(*, include_private: bool, with_secrets: bool) -> set[Sensitivity]:
    """The classes that do not leave unless they are asked for."""
    asked_for = {Sensitivity.PRIVATE: include_private, Sensitivity.SECRET: with_secrets}
    return {kind for kind, is_asked_for in asked_for.items() if not is_asked_for}


def _consistent(store: OwnerStore) -> tuple[list[Memory], list[Link]]:
    """All versions and links as of one moment, although others may write meanwhile."""
    cursor = store.position()
    rows = dict(store.versions())
    links = list(store.all_links())
    # What changed while we read is read again, until nothing did.
    while (page := store.changes_since(cursor)).entries:
        cursor = page.cursor
        changed = {entry.id for entry in page.entries}
        rows = {row: memory for row, memory in rows.items() if memory.id not in changed}
        rows |= dict(store.versions(sorted(changed)))
        links = list(store.all_links())
    return [rows[row] for row in sorted(rows)], links
