"""Words of a text with what lies before them: where sentences open and which words stand close enough for one name."""

from __future__ import annotations

import re
from typing import NamedTuple

from triskele.base.text import MARKS, UNSPACED

# Where words are not set apart by spaces, each character is a word of its own.
_RUN = rf"(?:[^\W{UNSPACED}]++|[{MARKS}]++)++"
# Nothing is ever given back, so that no text takes more than one pass.
_WORD = re.compile(rf"[{UNSPACED}]|{_RUN}(?:['’.&\-]++{_RUN})*+(?:\+\+|#(?!\w))?+")
_ASCII_WORD = re.compile(r"\w++(?:['.&\-]++\w++)*+(?:\+\+|#(?!\w))?+", re.ASCII)
_BREAK = re.compile(r"[.!?\n:;•|]")
_ABBREVIATED = frozenset("dr mr mrs ms st prof jr sr no gen col sgt capt rev hon lt vs mt ft".split())


class Word(NamedTuple):
    """A word in its place; `opens` a sentence or a line, or `joins` the word before it with nothing but a space."""

    text: str
    start: int
    end: int
    opens: bool
    joins: bool


def words(text: str) -> list[Word]:
    """The words of a text in their order."""
    pattern = _ASCII_WORD if text.isascii() else _WORD
    found: list[Word] = []
    before, last = "", 0
    for match in pattern.finditer(text):
        word, (start, end) = match.group(), match.span()
        gap = text[last:start]
        joins = gap == " " or (gap == "" and bool(found)) or (gap == ". " and _is_abbreviated(before))
        opens = not joins and (not found or _BREAK.search(gap) is not None)
        found.append(Word(word, start, end, opens, joins))
        before, last = word, end
    return found


def _is_abbreviated(word: str) -> bool:
    """Whether a full stop after the word belongs to it, as after an initial."""
    return (len(word) == 1 and word.isupper()) or word.lower() in _ABBREVIATED
