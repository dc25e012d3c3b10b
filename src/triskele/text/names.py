"""Find the words of a text, the capitalised spans that are names, and the subject of the text.

The subject is a heading or title, the key of "key: value", or X in "X is …". The X of "Obesity is …" may be a name or
not, because every sentence begins with a capital: it is a weak subject.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from triskele.text.words import COMMON_WORDS, MARKS, UNSPACED

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


MAX_TITLE_WORDS = 12
MAX_KEY_WORDS = 5
MAX_TITLE_CHARACTERS = 80
_MARKUP = re.compile(r"[ \t]*+(?:#{1,6}[ \t]++|[-*+>][ \t]++)?+[*_\"“«]{0,3}")
_PARENTHESIS = re.compile(r" ?\([^()]{1,60}\)$")
_SENTENCE_END = (".", "!", "?", "。", "！", "？", ",", ";")

# Words between a subject and what is said about it.
COPULAS = frozenset(
    """
    is was are were isn't wasn't aren't has had have belongs means runs lives needs uses handles owns maintains keeps
    stores requires supports became becomes refers wants moved serves sends reads writes listens looks will must should
    can cannot may does doesn't expects returns speaks replaced replaces ist war sind waren hat gehört est était sont
    """.split()
)

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
    listed: list[Word] = []
    before, last = "", 0
    for match in pattern.finditer(text):
        word, (start, end) = match.group(), match.span()
        gap = text[last:start]
        joins = gap == " " or (gap == "" and bool(listed)) or (gap == ". " and _is_abbreviated(before))
        opens = not joins and (not listed or _BREAK.search(gap) is not None)
        listed.append(Word(word, start, end, opens, joins))
        before, last = word, end
    return listed


def spans(listed: Sequence[Word], taken: Sequence[Span] = ()) -> Iterator[Span]:
    """The spans of names; the `taken` spans belong to something else."""
    free = _Free(taken)
    inside = {word.text for word in listed if not word.opens and is_capital(word.text)}
    position = 0
    while position < len(listed):
        word = listed[position]
        if not _can_begin(word) or not free.holds(word):
            position += 1
            continue
        run = _run(listed, position, free)
        if len(run) > 1 or not word.opens or stands_out(word.text) or word.text in inside:
            yield from _with_parts(listed, run)
        position = run[-1] + 1


def is_capital(text: str) -> bool:
    """Whether a word is written like a name: its first letter is a capital, or its second as in iPhone."""
    return text[0].istitle() or text[1:2].isupper()


def stands_out(text: str) -> bool:
    """Whether a word looks like a name even at the start of a sentence."""
    return len(text) > 1 and (any(map(str.isupper, text[1:])) or any(map(str.isdigit, text)))


def _can_begin(word: Word) -> bool:
    if len(word.text) == 1:
        return word.text.isupper() and word.text != "I" and not word.opens
    return is_capital(word.text) and word.text.lower() not in COMMON_WORDS


def _run(listed: Sequence[Word], first: int, free: _Free) -> list[int]:
    """The positions of the words of one name; small words are included only before a capital."""
    run = [first]
    position = first + 1
    while position < len(listed) and len(run) < MAX_WORDS and listed[position].joins and free.holds(listed[position]):
        text = listed[position].text
        if is_capital(text) or (text.isdigit() and len(text) <= 4):
            run.append(position)
            position += 1
            continue
        after = position + _bridge(listed, position)
        if after == position or after >= len(listed):
            break
        following = listed[after]
        if not (following.joins and is_capital(following.text) and free.holds(following)):
            break
        run += range(position, after + 1)
        position = after + 1
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


def _with_parts(listed: Sequence[Word], run: Sequence[int]) -> Iterator[Span]:
    """The whole name, and the names inside it between small words or numbers, alone and in pairs."""
    pieces: list[list[int]] = [[]]
    for position in run:
        if is_capital(listed[position].text):
            pieces[-1].append(position)
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
        position = bisect_right(self._starts, word.start) - 1
        return position < 0 or self._ends[position] <= word.start


class Subject(NamedTuple):
    """The span of a subject, and whether it may not be a name."""

    start: int
    end: int
    is_weak: bool = False


def subjects(text: str, listed: Sequence[Word]) -> list[Subject]:
    """The forms of the subject, the longest first; empty if a text has no clear subject."""
    begin = len(text) - len(text.lstrip())
    stop = text.find("\n", begin)
    has_more = stop >= 0 and bool(text[stop : stop + 1000].strip())
    line_end = stop if stop >= 0 else len(text)
    markup = _MARKUP.match(text, begin, line_end)
    start = markup.end() if markup else begin
    if has_more and (titled := _title(text, start, line_end)):
        return [Subject(*span) for span in _forms(text, *titled)]
    if keyed := _key(text, start, line_end):
        return [Subject(*keyed)]
    led = _lead(listed)
    if not led:
        return []
    return [Subject(*led, is_weak=not _is_name([word for word in listed if led[0] <= word.start < led[1]]))]


def _is_name(lead: Sequence[Word]) -> bool:
    """Whether a lead looks like a name apart from the capital at the start of the sentence."""
    first = lead[0].text
    is_plain_name = len(lead) == 1 and first.islower()
    return is_plain_name or stands_out(first) or any(is_capital(word.text) for word in lead[1:])


def _title(text: str, start: int, end: int) -> Span | None:
    """A first line that is not a sentence."""
    if end - start > 2 * MAX_TITLE_CHARACTERS:
        return None
    title = text[start:end].rstrip().rstrip('#*_ "”»:')
    if not title or len(title) > MAX_TITLE_CHARACTERS or len(title.split()) > MAX_TITLE_WORDS:
        return None
    is_sentence = title.endswith(_SENTENCE_END) and not title.endswith(("!", "?"))
    return None if is_sentence else (start, start + len(title))


def _forms(text: str, start: int, end: int) -> Iterator[Span]:
    """A title as it is, and without a trailing parenthesis."""
    yield start, end
    stripped = _PARENTHESIS.sub("", text[start:end])
    if stripped and len(stripped) < end - start:
        yield start, start + len(stripped)


def _key(text: str, start: int, end: int) -> Span | None:
    """The key of `key: value`, a few words long."""
    colon = text.find(":", start, min(end, start + MAX_TITLE_CHARACTERS))
    if colon < 0 or text[colon + 1 : colon + 2] not in (" ", "\t", "*", "\n", ""):
        return None
    key = text[start:colon].rstrip("*_ ")
    listed = key.lower().split()
    is_short = 0 < len(listed) <= MAX_KEY_WORDS
    # "This means: …" has no subject before the colon.
    return (start, start + len(key)) if is_short and (listed[0] == "the" or listed[0] not in COMMON_WORDS) else None


def _lead(listed: Sequence[Word]) -> Span | None:
    """The words before the first verb of the first sentence: a few, and no pronoun."""
    if repeated := _repeated(listed):
        return repeated
    first = 1 if listed and listed[0].text.lower() in ARTICLES else 0
    for position in range(first, min(first + MAX_KEY_WORDS + 1, len(listed))):
        word = listed[position]
        if position > first and word.text.lower() in COPULAS and word.joins:
            lead = listed[first:position]
            # "The film is …" refers to something that was named before.
            is_named = not first or len(lead) > 1 or is_capital(lead[0].text)
            return (lead[0].start, lead[-1].end) if is_named else None
        if (position > first and not word.joins) or (
            word.text.lower() in COMMON_WORDS and word.text.lower() not in PARTICLES
        ):
            break
    return _leading_name(listed, first)


def _repeated(listed: Sequence[Word]) -> Span | None:
    """A title that its text repeats at once, when the line break between them was lost."""
    texts = [word.text for word in listed[: 2 * MAX_KEY_WORDS]]
    for size in range(len(texts) // 2, 0, -1):
        if texts[:size] == texts[size : 2 * size] and is_capital(texts[0]):
            return listed[0].start, listed[size - 1].end
    return None


def _leading_name(listed: Sequence[Word], first: int) -> Span | None:
    """A name of two or more words at the start of a text."""
    end = first
    while end < len(listed) and end - first < MAX_KEY_WORDS and is_capital(listed[end].text):
        if (end > first and not listed[end].joins) or listed[end].text.lower() in COMMON_WORDS:
            break
        end += 1
    return (listed[first].start, listed[end - 1].end) if end - first >= 2 else None
