"""Known names in a text: the longest match at word boundaries, in one pass, for any number of names.

`find` reads a new memory for all known names. For a new name the lexical index returns the memories that hold all of
its words (an AND of its rarest terms), and `holds` checks each of them, so that the work grows with the number of
matches. A name whose words match more memories than a hub may link is not checked: it links nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from triskele.graph.canonical import Part, key, parts, single

MAX_PARTS = 12


class Form(IntEnum):
    """How a name must be written in a text, by how it was first written: any case, a capital, capitals only."""

    ANY = 0
    CAPITAL = 1
    UPPER = 2


class Match(NamedTuple):
    """A known name in a text, by its key and span."""

    key: str
    start: int
    end: int


class Gazetteer:
    """A set of names to find in texts; names can be added and removed at any time."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        # For each first word the lengths of the keys that begin with it, longest first.
        self._lengths: dict[str, list[int]] = {}
        self._counts: dict[tuple[str, int], int] = {}
        self._forms: dict[str, Form] = {}
        for name in names:
            self.add(name)

    def __len__(self) -> int:
        """The number of names."""
        return len(self._forms)

    def add(self, name: str) -> bool:
        """Add a name; returns whether it may now match texts that it did not match before."""
        known = key(name)
        size = known.count(" ") + 1
        if not known or size > MAX_PARTS:
            return False
        form = _form(name)
        if known in self._forms:
            is_wider = form < self._forms[known]
            self._forms[known] = min(form, self._forms[known])
            return is_wider
        self._forms[known] = form
        first = known.split(" ", 1)[0]
        self._counts[first, size] = self._counts.get((first, size), 0) + 1
        if self._counts[first, size] == 1:
            self._lengths[first] = sorted([*self._lengths.get(first, []), size], reverse=True)
        return True

    def remove(self, name: str) -> None:
        """Remove a name."""
        known = key(name)
        if self._forms.pop(known, None) is None:
            return
        first, size = known.split(" ", 1)[0], known.count(" ") + 1
        self._counts[first, size] -= 1
        if not self._counts[first, size]:
            self._lengths[first].remove(size)

    def find(self, text: str) -> list[Match]:
        """The names in a text from left to right, the longest match at each position."""
        listed = parts(text)
        texts = [part.text for part in listed]
        found: list[Match] = []
        place = 0
        while place < len(texts):
            sizes = self._lengths.get(texts[place]) or self._lengths.get(single(_written(text, listed[place])))
            match = self._longest(text, listed, texts, place, sizes) if sizes else None
            if match:
                found.append(match[0])
            place += match[1] if match else 1
        return found

    def holds(self, text: str, name: str) -> bool:
        """Whether a text holds a name that no longer known name covers."""
        wanted = key(name)
        return any(match.key == wanted for match in self.find(text))

    def _longest(
        self, text: str, listed: list[Part], texts: list[str], place: int, sizes: list[int]
    ) -> tuple[Match, int] | None:
        for size in sizes:
            if place + size <= len(texts):
                run = listed[place : place + size]
                known = " ".join(texts[place : place + size]) if size > 1 else single(_written(text, run[0]))
                form = self._forms.get(known)
                if form is not None and _fits(form, text, run):
                    return Match(known, run[0].start, run[-1].end), size
        return None


def _form(name: str) -> Form:
    if not any(map(str.isupper, name)):
        return Form.ANY
    return Form.UPPER if name.isupper() and " " not in name else Form.CAPITAL


def _written(text: str, part: Part) -> str:
    return text[part.start : part.end]


def _fits(form: Form, text: str, run: list[Part]) -> bool:
    """Whether a run of words has the case that the name requires."""
    if form is Form.ANY:
        return True
    if form is Form.UPPER:
        return not any(map(str.islower, _written(text, run[0])))
    return any(not text[part.start].islower() for part in run)


def runs(text: str) -> set[str]:
    """Every run of words of a text that could be a name."""
    texts = [part.text for part in parts(text)]
    return {" ".join(texts[at : at + size]) for at in range(len(texts)) for size in range(1, MAX_PARTS + 1)}
