"""The concept graph as one reader sees it, within a scope."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np

from triskele.errors import BadInput, NotFound
from triskele.index.catalog import Columns
from triskele.index.corpus import Bools, Ints
from triskele.index.mentions import Layers, MentionIndex
from triskele.recall.graph import max_concept_frequency
from triskele.store.owner import OwnerStore
from triskele.store.values import NAMES, START, Name
from triskele.text.spellings import block, key, same
from triskele.types import Scope

_SUGGESTED = 3
_CONSIDERED = 30
_NEAR = 0.75
_MOST_TYPOS = 3


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """The mentions inside a scope; `rows` are its versions, in order."""

    store: OwnerStore
    layers: Layers
    scope: Scope
    rows: Ints
    hub: int

    @staticmethod
    def open(store: OwnerStore, mentions: MentionIndex, columns: Columns, scope: Scope) -> View:
        """The graph as of now."""
        return View(
            store,
            mentions.view(),
            scope,
            columns.rows[columns.scoped(scope).is_visible],
            max_concept_frequency(len(columns.rows)),
        )

    def holders(self, concepts: Ints) -> tuple[Ints, Ints, Bools]:
        """Positions in the list, rows of mentioning memories, and subject marks."""
        positions, rows, marks = self.layers.holders(concepts)
        seen = self.sees(rows)
        return positions[seen], rows[seen], marks[seen]

    def sees(self, rows: Ints) -> Bools:
        """Which rows are in the scope."""
        if not len(self.rows):
            return np.zeros(len(rows), dtype=np.bool_)
        at = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        return np.equal(self.rows[at], rows)

    def connects(self, concepts: Ints) -> Bools:
        """Which concepts are rare enough to connect the memories that mention them."""
        return self.layers.reach(concepts) <= self.hub

    def names(self, numbers: Iterable[int]) -> dict[int, str]:
        """The names under which concepts were first found, by their numbers."""
        return {number: name.text for number, name in self.store.names.numbered(numbers).items()}

    def name_of(self, concept: int) -> str:
        """The name under which a concept was first found."""
        return self.names([concept])[concept]

    def find(self, text: str) -> Name:
        """The name in any spelling; refuse unknown names with similar ones."""
        own = key(text)
        if not own:
            raise BadInput(f"not the name of anything: {text[:40]!r} (give a word or more)")
        names = self.store.names
        if (name := names.find([own]).get(own)) is not None:
            return name
        for name in names.akin([block(text)]):
            if same(text, name.text) is not None:
                return name
        raise NotFound(f"no concept is called “{text[:80]}”{self._hint(own)}")

    def _hint(self, own: str) -> str:
        near = ", ".join(f"“{name}”" for name in self._near(own))
        if near:
            return f": did you mean {near}?"
        if self.store.position() == START:
            return ': nothing has been remembered yet (triskele add "…")'
        waiting = self.store.jobs.count(NAMES)
        return f": {waiting:,} still to be read (triskele reindex reads everything)" if waiting else ""

    def _near(self, own: str) -> list[str]:
        """Names in scope with the same words or similar spelling."""
        by_key = {name.key: name for name in self.store.names.known()}
        words = own.split()
        wider = [name for key, name in by_key.items() if all(f" {word}" in f" {key}" for word in words)]
        wider = sorted(wider, key=lambda name: (len(name.key), name.key))[:_CONSIDERED]
        alike = [key for key in by_key if abs(len(key) - len(own)) <= _MOST_TYPOS]
        near = [by_key[key] for key in get_close_matches(own, alike, n=_SUGGESTED, cutoff=_NEAR)]
        suggested: Sequence[Name] = [
            *self._most_mentioned(wider)[: _SUGGESTED - 1],
            *self._most_mentioned(near, ordered=True),
        ]
        return list({name.concept: name.text for name in suggested}.values())[:_SUGGESTED]

    def _most_mentioned(self, names: Sequence[Name], *, ordered: bool = False) -> list[Name]:
        positions, _, _ = self.holders(np.array([name.concept for name in names], dtype=np.int64))
        counts = np.bincount(positions, minlength=len(names)).tolist()
        seen = [(count, name) for count, name in zip(counts, names, strict=True) if count]
        return [name for _, name in (seen if ordered else sorted(seen, key=lambda each: -each[0]))]
