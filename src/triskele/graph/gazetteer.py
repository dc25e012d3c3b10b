"""Known names in a text: the longest match at word borders, in one pass, whatever the number of names.

A new memory is read for all known names by `find`. A new name finds the older memories that hold it the other way
round: the lexical index answers which memories have all words of the name (an AND of its rarest terms), and `holds`
checks each answer, so that the work follows the number of matches. A name whose words match more memories than a hub
may link needs no check: it links nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from triskele.graph.canonical import Part, key, parts, single

MAX_PARTS = 12


class Form(IntEnum):
    """How a name must be written in a text, by how it was met: as it likes, with a capital, in capitals only."""

    ANY = 0
    CAPITAL = 1
    UPPER = 2


class Match(NamedTuple):
    """A known name in a text, by its key and place."""

    key: str
    start: int
    end: int


class Gazetteer:
    """Names that may be added and removed at any time."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        # The keys that begin with a word, by their number of words, longest first: few, so that a list does.
        self._lengths: dict[str, list[int]] = {}
        self._counts: dict[tuple[str, int], int] = {}
        self._forms: dict[str, Form] = {}
        for name in names:
            self.add(name)

    def __len__(self) -> int:
        """How many names are known."""
        return len(self._forms)

    def add(self, name: str) -> bool:
        """Know a name; says whether texts may hold it that were not found before."""
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
        """Forget a name."""
        known = key(name)
        if self._forms.pop(known, None) is None:
            return
        first, size = known.split(" ", 1)[0], known.count(" ") + 1
        self._counts[first, size] -= 1
        if not self._counts[first, size]:
            self._lengths[first].remove(size)

    def find(self, text: str) -> list[Match]:
        """The names in a text from left to right, each place read once, the longest name first."""
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
        """Whether a text has a name where no longer known name covers it."""
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
    """Whether a run of words is written as the name was met, in a script that has capitals."""
    if form is Form.ANY:
        return True
    if form is Form.UPPER:
        return not any(map(str.islower, _written(text, run[0])))
    return any(not text[part.start].islower() for part in run)


def runs(text: str) -> set[str]:
    """Every run of words of a text that could be a name."""
    texts = [part.text for part in parts(text)]
    return {" ".join(texts[at : at + size]) for at in range(len(texts)) for size in range(1, MAX_PARTS + 1)}
