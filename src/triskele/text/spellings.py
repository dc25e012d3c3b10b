"""Recognise spellings of one name (case, plurals, acronyms, …), and find known names in texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum, StrEnum
from functools import cache, lru_cache
from typing import NamedTuple

from triskele.text.words import COMMON_WORDS, MARKS, UNSPACED, fold

MAX_PARTS = 12
_LETTER = rf"[^\W\d_{UNSPACED}{MARKS}]"
# A possessive ending is skipped; numbers keep the characters between their digits: 3.1 is not 31.
_ASCII_PART = re.compile(
    r"(#?+\d++(?:[.\-/:]\d++)*+|[A-Za-z][A-Za-z0-9]*+(?:\+\+|#(?!\w))?+|(?<= )&(?= ))(?:['`][sS](?![A-Za-z0-9]))?+",
    re.ASCII,
)
_PARENTHESIS = re.compile(r"\s*[(（][^()（）]{1,60}[)）]\s*$")
_ARTICLES = frozenset({"the", "a", "an"})
_HONORIFICS = frozenset("dr mr mrs ms miss prof professor sir dame rev".split())
_COMPANY_FORMS = frozenset("inc ltd llc corp gmbh co ag plc sa bv oy kg".split())
_SHORTEST_JOINED = 4
_UNCHANGED_ENDINGS = ("ss", "us", "is", "as", "os")
_EXPLAINED = re.compile(r"\(([A-Z][A-Za-z0-9&/\-]{1,9})\)")
_SPELT_OUT = re.compile(r"(?<![\w])([A-Z][A-Za-z0-9&/\-]{1,9}) ?\(([^()\n]{4,100})\)")
_LINKING = frozenset("of the and for in on to a an de la".split())


class Reason(StrEnum):
    """Why two names count as the same."""

    SPELLING = "spelling"
    SPACING = "spacing"
    PLURAL = "plural"
    PARENTHESIS = "parenthesis"
    TITLE = "title"
    ACRONYM = "acronym"
    ALIAS = "alias"


class Part(NamedTuple):
    """A word of a name in its folded form, and its span."""

    text: str
    start: int
    end: int


def parts(text: str) -> list[Part]:
    """The words of a text in the form in which names are compared: folded, without possessives."""
    pattern = _ASCII_PART if text.isascii() else _part()
    return [Part(_folded(match.group(1)), *match.span(1)) for match in pattern.finditer(text)]


@cache
def _part() -> re.Pattern[str]:
    # Compiled when a text needs it: its large classes take long.
    return re.compile(
        rf"([{UNSPACED}]|#?+\d++(?:[.\-/:]\d++)*+"
        rf"|(?:{_LETTER}|[{MARKS}])(?:[^\W_{UNSPACED}]|[{MARKS}])*+(?:\+\+|#(?!\w))?+"
        r"|(?<= )&(?= ))(?:['’`][sS](?![^\W_]))?+"
    )


def key(name: str) -> str:
    """The canonical form of a name: two names with the same key are the same."""
    listed = parts(name)
    if len(listed) == 1:
        return single(name[listed[0].start : listed[0].end])
    texts = [part.text for part in listed]
    return " ".join(texts[1:] if texts and texts[0] in _ARTICLES else texts)


def single(word: str) -> str:
    """The key of one word: IT and WHO are not the common words with the same letters."""
    return word if len(word) > 1 and word.isupper() and word.lower() in COMMON_WORDS else _folded(word)


def block(name: str) -> str:
    """A coarse key: names without a shared alias can only be the same if their blocks are equal."""
    return _singular("".join(_bare(key(_PARENTHESIS.sub("", name)))).lower())


def same(one: str, other: str) -> Reason | None:
    """Why two names are the same by their form; None if they are not."""
    keys = key(one), key(other)
    if keys[0] == keys[1]:
        return Reason.SPELLING if keys[0] else None
    if not all(keys) or block(one) != block(other):
        return None
    joined = [text.replace(" ", "").lower() for text in keys]
    if joined[0] == joined[1]:
        return Reason.SPACING if _may_join(one, other, *keys) else None
    stripped = [_PARENTHESIS.sub("", name) for name in (one, other)]
    if stripped != [one, other]:
        # "Mercury (planet)" and "Mercury (element)" are different.
        is_one_bare = stripped[0] == one or stripped[1] == other
        return Reason.PARENTHESIS if is_one_bare and same(*stripped) is not None else None
    bare = [" ".join(_bare(text)) for text in keys]
    if bare[0] == bare[1]:
        return Reason.TITLE
    return Reason.PLURAL if _is_common_noun(one, other) else None


def _may_join(one: str, other: str, first: str, second: str) -> bool:
    """Whether spellings that differ in spaces are the same: not for short forms and numbers."""
    if len(first.replace(" ", "")) >= _SHORTEST_JOINED:
        return not any(text.isdigit() for text in (*first.split(), *second.split()))
    # "U.S." and "US", not "IT" and "i t".
    return one.isupper() and other.isupper()


def _is_common_noun(one: str, other: str) -> bool:
    """Whether the names are common nouns, which have plurals: names of people and products keep their s."""
    last = [name.split()[-1] for name in (one, other)]
    if " " in one.strip() and " " in other.strip():
        return any(word[0].islower() for word in last)
    are_acronyms = all(len(word) > 1 and word.rstrip("s").isupper() and word.rstrip("s") for word in last)
    return all(word[0].islower() for word in last) or (are_acronyms and any(word[-1] == "s" for word in last))


def _bare(text: str) -> list[str]:
    """The words without the title before a person's name or the legal form after a company's."""
    listed = text.split()
    if len(listed) > 2 and listed[0] in _HONORIFICS:
        listed = listed[1:]
    while len(listed) > 1 and listed[-1] in _COMPANY_FORMS:
        listed = listed[:-1]
    return listed


def _singular(word: str) -> str:
    """A word or joined words in the singular, by common endings."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("ches", "shes", "xes", "sses", "zes")):
        return word[:-2]
    is_plural = len(word) > 2 and word.endswith("s") and not word.endswith(_UNCHANGED_ENDINGS)
    return word[:-1] if is_plural else word


@lru_cache(maxsize=65_536)
def _folded(word: str) -> str:
    """A word in the form in which names are compared."""
    return "and" if word == "&" else fold(word)


def expansions(text: str) -> list[tuple[str, str]]:
    """Acronyms and their expansions as the text states them: "Continuous Integration (CI)" or "CI (Continuous …)"."""
    pairs = [
        (match.group(1), expansion)
        for match in _EXPLAINED.finditer(text)
        if (expansion := _expansion_before(text, match.start(), match.group(1))) is not None
    ]
    for match in _SPELT_OUT.finditer(text):
        if _initials_fit(match.group(1), [part.text for part in parts(match.group(2))]):
            pairs.append((match.group(1), match.group(2).strip()))
    return list(dict.fromkeys(pairs))


def _expansion_before(text: str, end: int, acronym: str) -> str | None:
    """The shortest run of words before a position whose initials are the acronym."""
    listed = parts(text[max(0, end - 120) : end])
    offset = max(0, end - 120)
    for count in range(1, min(len(listed), 2 * len(acronym)) + 1):
        run = listed[-count:]
        if run[0].text not in _LINKING and _initials_fit(acronym, [part.text for part in run]):
            return text[offset + run[0].start : offset + run[-1].end]
    return None


def is_acronym(short: str, name: str) -> bool:
    """Whether a word in capitals has the initials of a name: "AWS" of "Amazon Web Services"."""
    words = [part.text for part in parts(name)]
    return len(words) > 1 and len(short) > 1 and short.isupper() and _initials_fit(short, words)


def _initials_fit(acronym: str, texts: Sequence[str]) -> bool:
    """Whether the initials of the words are the acronym's letters, with or without linking words."""
    letters = [letter.lower() for letter in acronym.rstrip("s") if letter.isalnum()]
    main = [text[0] for text in texts if text not in _LINKING]
    return len(texts) > 1 and len(letters) > 1 and letters in ([text[0] for text in texts], main)


class Names:
    """Known names and the concept of each; a concept is identified by the key of its first name."""

    def __init__(self, concepts: Mapping[str, str] | None = None) -> None:
        self._concepts: dict[str, str] = {}
        self._blocks: dict[str, dict[str, str]] = {}
        for name, concept in (concepts or {}).items():
            self.add(name, concept)

    def add(self, name: str, concept: str) -> None:
        """Map a name to a concept."""
        self._concepts[key(name)] = concept
        self._blocks.setdefault(block(name), {})[name] = concept

    def resolve(self, name: str) -> tuple[str, Reason | None]:
        """The concept of a name and the reason; a new name is its own concept, without a reason."""
        own = key(name)
        if (concept := self._concepts.get(own)) is not None:
            return concept, Reason.SPELLING if concept == own else Reason.ALIAS
        for other, concept in self._blocks.get(block(name), {}).items():
            if (reason := same(name, other)) is not None:
                return concept, reason
        return own, None


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
    """A set of names to find in texts: the longest match at word boundaries, in one pass, for any number of names.

    `find` reads a new memory for all known names. For a new name the lexical index returns the memories that hold its
    words, and `keys` reads each of them once, so that the work grows with the number of matches. A name whose words
    match more memories than a hub may link is not checked: it links nothing.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        # For each first word the lengths of the keys that begin with it, longest first.
        self._lengths: dict[str, list[int]] = {}
        self._forms: dict[str, Form] = {}
        for name in names:
            self.add(name)

    def add(self, name: str) -> bool:
        """Add a name; returns whether it may now match texts that it did not match before."""
        own = key(name)
        size = own.count(" ") + 1
        if not own or size > MAX_PARTS:
            return False
        form = _form(name)
        if own in self._forms:
            is_wider = form < self._forms[own]
            self._forms[own] = min(form, self._forms[own])
            return is_wider
        self._forms[own] = form
        sizes = self._lengths.setdefault(own.split(" ", 1)[0], [])
        if size not in sizes:
            sizes.append(size)
            sizes.sort(reverse=True)
        return True

    def find(self, text: str) -> list[Match]:
        """The names in a text from left to right, the longest match at each position."""
        listed = parts(text)
        texts = [part.text for part in listed]
        matches: list[Match] = []
        position = 0
        while position < len(texts):
            lengths = self._lengths.get(texts[position]) or self._lengths.get(single(_written(text, listed[position])))
            match = self._longest(text, listed, texts, position, lengths) if lengths else None
            if match:
                matches.append(match[0])
            position += match[1] if match else 1
        return matches

    def keys(self, text: str) -> set[str]:
        """The keys of the names that a text holds, each unless a longer known name covers it."""
        return {match.key for match in self.find(text)}

    def _longest(
        self, text: str, listed: list[Part], texts: list[str], position: int, lengths: Iterable[int]
    ) -> tuple[Match, int] | None:
        for size in lengths:
            if position + size <= len(texts):
                run = listed[position : position + size]
                name = " ".join(texts[position : position + size]) if size > 1 else single(_written(text, run[0]))
                form = self._forms.get(name)
                if form is not None and _fits(form, text, run):
                    return Match(name, run[0].start, run[-1].end), size
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
