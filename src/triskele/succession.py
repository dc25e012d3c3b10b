"""Which memory of a chain of successors speaks for the chain at a given moment."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from triskele.stores.protocol import Store
from triskele.types import Link, LinkKind, Memory, Scope

MAX_DEPTH = 10


class Succession:
    """The supersedes links around some memories, as they stood in the scope's knowledge."""

    def __init__(self, ids: Iterable[str], store: Store, scope: Scope) -> None:
        self._as_of = scope.as_of
        self._known_at = scope.known_at
        self._newer: dict[str, list[str]] = {}
        self._older: dict[str, list[str]] = {}
        self.memories: dict[str, Memory] = {}
        self._load(set(ids), store)

    def head(self, id: str) -> str:
        """The memory to serve for this one: its newest successor in force, or the one that it will replace."""
        served = id
        for _ in range(MAX_DEPTH):
            if (newer := self._in_force(self._newer.get(served, ()))) is None:
                break
            served = newer
        return served if served != id else self._predecessor(id)

    def is_superseded(self, id: str) -> bool:
        """Whether something in force replaces this memory."""
        return self._in_force(self._newer.get(id, ())) is not None

    def _predecessor(self, id: str) -> str:
        for _ in range(MAX_DEPTH):
            older = [other for other in self._older.get(id, ()) if other in self.memories]
            if not older or self._begins(id) <= self._as_of:
                break
            id = max(older, key=self._begins)
        return id

    def _in_force(self, candidates: Iterable[str]) -> str | None:
        begun = [id for id in candidates if id in self.memories and self._begins(id) <= self._as_of]
        return max(begun, key=self._begins) if begun else None

    def _begins(self, id: str) -> datetime:
        memory = self.memories[id]
        return memory.valid_from or memory.created_at

    def _load(self, fringe: set[str], store: Store) -> None:
        seen: set[str] = set()
        for _ in range(MAX_DEPTH):
            links = store.links(sorted(fringe), kind=LinkKind.SUPERSEDES, known_at=self._known_at)
            seen |= fringe
            self._note(links)
            fringe = {end for link in links for end in (link.source, link.target)} - seen
            if not fringe:
                break
        chained = {*self._newer, *self._older}
        self.memories = store.memories(sorted(chained), known_at=self._known_at)

    def _note(self, links: Iterable[Link]) -> None:
        for link in links:
            self._newer.setdefault(link.target, []).append(link.source)
            self._older.setdefault(link.source, []).append(link.target)
