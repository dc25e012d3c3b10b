"""What an export tells: one consistent state of the store, without what must not leave it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from triskele.stores.protocols import OwnerStore
from triskele.types import Link, Memory, Sensitivity


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Memories with their versions oldest first, the links among them, and how many stayed behind.

    Secrets come as titles; where they are told, as `Unsealed`.
    """

    histories: tuple[tuple[Memory, ...], ...]
    links: tuple[Link, ...]
    left_out_private: int
    left_out_secret: int


def take(store: OwnerStore, *, include_private: bool, current_only: bool, with_secrets: bool = False) -> Snapshot:
    """The memories of a store; a memory is left out whole when any version to be told must stay."""
    memories, links = _consistent(store)
    grouped: dict[str, list[Memory]] = defaultdict(list)
    for memory in memories:
        if not (current_only and memory.known_to is not None):
            grouped[memory.id].append(memory)
    secret = set() if with_secrets else _with(Sensitivity.SECRET, grouped)
    private = set() if include_private else _with(Sensitivity.PRIVATE, grouped) - secret
    told = grouped.keys() - private - secret
    return Snapshot(
        histories=tuple(
            tuple(sorted(history, key=lambda memory: memory.version)) for id, history in grouped.items() if id in told
        ),
        links=tuple(
            link
            for link in links
            if link.source in told and link.target in told and not (current_only and link.known_to is not None)
        ),
        left_out_private=len(private),
        left_out_secret=len(secret),
    )


def _with(kind: Sensitivity, grouped: Mapping[str, Iterable[Memory]]) -> set[str]:
    return {id for id, history in grouped.items() if any(memory.sensitivity is kind for memory in history)}


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
