"""What a reader may see of the graph, and the concept that a reader means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np

from triskele.errors import BadInput, NotFound
from triskele.graph.bipartite import Bools, Ints
from triskele.graph.canonical import block, key, same
from triskele.index.catalog import Catalog
from triskele.index.mentions import Layers, MentionIndex
from triskele.recall.legs import graph
from triskele.stores.protocol import Name, Store
from triskele.types import Scope

_SUGGESTED = 3
_CONSIDERED = 30
_NEAR = 0.75
_MOST_TYPOS = 3


@dataclass(frozen=True, slots=True)
class Concept:
    """Something that memories mention, by the name it was first met under."""

    number: int
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Who mentions what, as far as a scope allows; `rows` are the versions that may be seen, in order."""

    store: Store
    layers: Layers
    scope: Scope
    rows: Ints
    hub: int

    @staticmethod
    def open(store: Store, mentions: MentionIndex, scope: Scope) -> View:
        """The graph as of now."""
        # Which vectors a model made of them does not matter here.
        columns = Catalog(store, "").columns()
        hub = graph.hub(len(columns.rows))
        return View(store, mentions.layers(), scope, columns.rows[columns.mask(scope)], hub)

    def holders(self, concepts: Ints) -> tuple[Ints, Ints, Bools]:
        """The place in the list, the row of a memory that mentions the concept, and whether it is its subject."""
        place, rows, marks = self.layers.holders(concepts)
        seen = self.sees(rows)
        return place[seen], rows[seen], marks[seen]

    def sees(self, rows: Ints) -> Bools:
        """Which rows may be seen."""
        if not len(self.rows):
            return np.zeros(len(rows), dtype=np.bool_)
        at = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        return np.equal(self.rows[at], rows)

    def connects(self, concepts: Ints) -> Bools:
        """Which concepts are rare enough to connect the memories that mention them."""
        return self.layers.reach(concepts) <= self.hub

    def concepts(self, numbers: Iterable[int]) -> dict[int, Concept]:
        """Concepts of the reader by their numbers."""
        names = self.store.names.numbered(numbers)
        return {number: Concept(number, name.text) for number, name in names.items() if name.owner == self.scope.owner}

    def concept(self, name: Name) -> Concept:
        """What a name stands for."""
        return self.concepts([name.concept])[name.concept]

    def find(self, text: str) -> Name:
        """The name that is meant, in any spelling; where there is none, near ones are named."""
        own = key(text)
        if not own:
            raise BadInput(f"not the name of anything: {text[:40]!r} (give a word or more)")
        names, owner = self.store.names, self.scope.owner
        if (known := names.find(owner, [own]).get(own)) is not None:
            return known
        for name in names.akin(owner, [block(text)]):
            if same(text, name.text) is not None:
                return name
        raise NotFound(f"no concept is called “{text[:80]}”{self._hint(own)}")

    def _hint(self, own: str) -> str:
        near = ", ".join(f"“{name}”" for name in self._near(own))
        if near:
            return f": did you mean {near}?"
        if not self.store.last_seq():
            return ': nothing has been remembered yet (triskele add "…")'
        waiting = self.store.names.count_unread()
        return f": {waiting:,} still to be read (triskele reindex reads everything)" if waiting else ""

    def _near(self, own: str) -> list[str]:
        """Names of what can be seen that hold the same words, most mentioned first, or are written nearly alike."""
        known = {name.key: name for name in self.store.names.known(self.scope.owner)}
        words = own.split()
        wider = [name for key, name in known.items() if all(f" {word}" in f" {key}" for word in words)]
        wider = sorted(wider, key=lambda name: (len(name.key), name.key))[:_CONSIDERED]
        alike = [key for key in known if abs(len(key) - len(own)) <= _MOST_TYPOS]
        near = [known[key] for key in get_close_matches(own, alike, n=_SUGGESTED, cutoff=_NEAR)]
        found: Sequence[Name] = [
            *self._most_mentioned(wider)[: _SUGGESTED - 1],
            *self._most_mentioned(near, ordered=True),
        ]
        return list({name.concept: name.text for name in found}.values())[:_SUGGESTED]

    def _most_mentioned(self, names: Sequence[Name], *, ordered: bool = False) -> list[Name]:
        place, _, _ = self.holders(np.array([name.concept for name in names], dtype=np.int64))
        counts = np.bincount(place, minlength=len(names)).tolist()
        seen = [(count, name) for count, name in zip(counts, names, strict=True) if count]
        return [name for _, name in (seen if ordered else sorted(seen, key=lambda each: -each[0]))]
