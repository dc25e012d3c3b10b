"""The words of a text, and the capitalised spans among them that are names of one word or several."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from triskele.base.text import COMMON_WORDS, MARKS, UNSPACED

MAX_WORDS = 8
_SHORTEST_LED = 2

# Small words inside a name, between two capitalised ones.
PARTICLES = frozenset(
    "of de la las los le les du des da das do dos di del della van von der den ten ter zu zum zur af av"
    " the al el bin ibn ben y e und et for".split()
)
# "Beauty and the Beast" is one name, "Alice and Bob" are two.
LEADS_ARTICLE = frozenset({"and"})
ARTICLES = frozenset({"the", "a", "an", "our", "my", "your", "their", "this", "these", "his", "her"})
# In scripts without spaces each character is a word.
_RUN = rf"(?:[^\W{UNSPACED}]++|[{MARKS}]++)++"
# All quantifiers are possessive, so that no text takes more than one pass.
_WORD = re.compile(rf"[{UNSPACED}]|{_RUN}(?:['’.&\-]++{_RUN})*+(?:\+\+|#(?!\w))?+")
_ASCII_WORD = re.compile(r"\w++(?:['.&\-]++\w++)*+(?:\+\+|#(?!\w))?+", re.ASCII)
_BREAK = re.compile(r"[.!?\n:;•|]")
_ABBREVIATED = frozenset("dr mr mrs ms st prof jr sr no gen col sgt capt rev hon lt vs mt ft".split())


Span = tuple[int, int]


class Word(NamedTuple):
    """A word and its span; it `opens` a sentence or a line, or `joins` the word before it by a single space."""

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


def spans(listed: Sequence[Word], taken: Sequence[Span] = ()) -> Iterator[Span]:
    """The spans of names; the `taken` spans belong to something else."""
    free = _Free(taken)
    inside = {word.text for word in listed if not word.opens and is_capital(word.text)}
    place = 0
    while place < len(listed):
        word = listed[place]
        if not _can_begin(word) or not free.holds(word):
            place += 1
            continue
        run = _run(listed, place, free)
        if len(run) > 1 or not word.opens or stands_out(word.text) or word.text in inside:
            yield from _with_parts(listed, run)
        place = run[-1] + 1


def is_capital(text: str) -> bool:
    """Whether a word is written like a name: its first letter is a capital, or its second as in iPhone."""
    return text[0].istitle() or text[1:2].isupper()


def stands_out(text: str) -> bool:
    """Whether a word looks like a name even at the start of a sentence."""
    return len(text) > 1 and (any(map(str.isupper, text[1:])) or any(map(str.isdigit, text)))


def _can_begin(word: Word) -> bool:
    return (is_capital(word.text) and word.text.lower() not in COMMON_WORDS and len(word.text) > 1) or _is_initial(word)


def _is_initial(word: Word) -> bool:
    return len(word.text) == 1 and word.text.isupper() and word.text != "I" and not word.opens


def _run(listed: Sequence[Word], first: int, free: _Free) -> list[int]:
    """The positions of the words of one name; small words are included only before a capital."""
    run = [first]
    place = first + 1
    while place < len(listed) and len(run) < MAX_WORDS and listed[place].joins and free.holds(listed[place]):
        text = listed[place].text
        if is_capital(text) or (text.isdigit() and len(text) <= 4):
            run.append(place)
            place += 1
            continue
        bridge = _bridge(listed, place)
        after = place + bridge
        if not bridge or after >= len(listed) or not _continues(listed[after]) or not free.holds(listed[after]):
            break
        run += range(place, after + 1)
        place = after + 1
    return run


def _bridge(listed: Sequence[Word], place: int) -> int:
    """The number of small words that continue the name: one or two particles, or "and the"."""
    text = listed[place].text
    follower = listed[place + 1] if place + 1 < len(listed) else None
    leads_on = follower is not None and follower.joins
    if text in LEADS_ARTICLE:
        return 2 if leads_on and follower is not None and follower.text in ARTICLES else 0
    if text not in PARTICLES:
        return 0
    return 2 if leads_on and follower is not None and follower.text in PARTICLES else 1


def _continues(word: Word) -> bool:
    return word.joins and is_capital(word.text)


def _with_parts(listed: Sequence[Word], run: Sequence[int]) -> Iterator[Span]:
    """The whole name, and the names inside it between small words or numbers, alone and in pairs."""
    pieces: list[list[int]] = [[]]
    for place in run:
        if is_capital(listed[place].text):
            pieces[-1].append(place)
        elif pieces[-1]:
            pieces.append([])
    pieces = [piece for piece in pieces if piece]
    yield listed[run[0]].start, listed[run[-1]].end
    for first, last in [*zip(pieces, pieces, strict=True), *pairwise(pieces)]:
        if last[-1] - first[0] + 1 < len(run) and listed[first[0]].text.lower() not in COMMON_WORDS:
            yield listed[first[0]].start, listed[last[-1]].end
    if listed[run[0]].opens and len(pieces[0]) > _SHORTEST_LED:
        # The first word of a sentence may not belong to the name that follows it.
        yield listed[run[1]].start, listed[pieces[0][-1]].end


def _is_abbreviated(word: str) -> bool:
    """Whether a full stop after the word belongs to it: after an initial or an abbreviation."""
    return (len(word) == 1 and word.isupper()) or word.lower() in _ABBREVIATED


class _Free:
    """Which words are outside some spans."""

    def __init__(self, taken: Sequence[Span]) -> None:
        self._spans = sorted(taken)
        self._starts = [start for start, _ in self._spans]
        # Spans may nest: the largest end so far counts.
        self._ends: list[int] = []
        for _, end in self._spans:
            self._ends.append(max(end, self._ends[-1] if self._ends else 0))

    def holds(self, word: Word) -> bool:
        """Whether a word is free."""
        place = bisect_right(self._starts, word.start) - 1
        return place < 0 or self._ends[place] <= word.start
