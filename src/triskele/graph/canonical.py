"""Which names are one: case, punctuation, possessives, plurals, parentheses, acronyms that a text explains, aliases."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from triskele.base.text import MARKS, UNSPACED, fold
from triskele.graph.vocabulary import COMMON

_LETTER = rf"[^\W\d_{UNSPACED}{MARKS}]"
# A possessive ending is read over; numbers keep what is between their digits: 3.1 is not 31.
_PART = re.compile(
    rf"([{UNSPACED}]|#?+\d++(?:[.\-/:]\d++)*+|(?:{_LETTER}|[{MARKS}])(?:[^\W_{UNSPACED}]|[{MARKS}])*+(?:\+\+|#(?!\w))?+"
    r"|(?<= )&(?= ))(?:['’`][sS](?![^\W_]))?+"
)
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


class Reason(StrEnum):
    """Why two names are held to be one."""

    SPELLING = "spelling"
    SPACING = "spacing"
    PLURAL = "plural"
    PARENTHESIS = "parenthesis"
    TITLE = "title"
    ACRONYM = "acronym"
    ALIAS = "alias"


class Part(NamedTuple):
    """A word of a name in the form that is compared, and its place."""

    text: str
    start: int
    end: int


def parts(text: str) -> list[Part]:
    """The words of a text as names are compared: one case, no accents on Latin letters, no possessive."""
    pattern = _ASCII_PART if text.isascii() else _PART
    return [Part(_folded(match.group(1)), *match.span(1)) for match in pattern.finditer(text)]


def key(name: str) -> str:
    """The form under which a name is known: two names with the same key are the same."""
    listed = parts(name)
    if len(listed) == 1:
        return single(name[listed[0].start : listed[0].end])
    texts = [part.text for part in listed]
    return " ".join(texts[1:] if texts and texts[0] in _ARTICLES else texts)


def single(word: str) -> str:
    """The key of one word: IT and WHO are not the small words of the same letters."""
    return word if len(word) > 1 and word.isupper() and word.lower() in COMMON else _folded(word)


def block(name: str) -> str:
    """A coarse form: names without a common alias can only be the same if their blocks are equal."""
    return _singular("".join(_bare(key(_PARENTHESIS.sub("", name)))).lower())


def same(one: str, other: str) -> Reason | None:
    """Why two names are one by their form alone; None where they are not."""
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
        # "Mercury (planet)" and "Mercury (element)" both say which one they are.
        is_one_bare = stripped[0] == one or stripped[1] == other
        return Reason.PARENTHESIS if is_one_bare and same(*stripped) is not None else None
    bare = [" ".join(_bare(text)) for text in keys]
    if bare[0] == bare[1]:
        return Reason.TITLE
    return Reason.PLURAL if _is_common_noun(one, other) else None


def _may_join(one: str, other: str, first: str, second: str) -> bool:
    """Whether two spellings that differ in spaces are one: not where a short form or a number would change."""
    if len(first.replace(" ", "")) >= _SHORTEST_JOINED:
        return not any(text.isdigit() for text in (*first.split(), *second.split()))
    # "U.S." and "US", not "IT" and "i t".
    return one.isupper() and other.isupper()


def _is_common_noun(one: str, other: str) -> bool:
    """Whether a plural is one of things: names of people and products keep their s."""
    last = [name.split()[-1] for name in (one, other)]
    if " " in one.strip() and " " in other.strip():
        return any(word[0].islower() for word in last)
    are_acronyms = all(len(word) > 1 and word.rstrip("s").isupper() and word.rstrip("s") for word in last)
    return all(word[0].islower() for word in last) or (are_acronyms and any(word[-1] == "s" for word in last))


def _bare(text: str) -> list[str]:
    """Words without a title before a person's name or the legal form after a company's."""
    listed = text.split()
    if len(listed) > 2 and listed[0] in _HONORIFICS:
        listed = listed[1:]
    while len(listed) > 1 and listed[-1] in _COMPANY_FORMS:
        listed = listed[:-1]
    return listed


def _singular(word: str) -> str:
    """A word or joined words in the singular, by the common endings."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("ches", "shes", "xes", "sses", "zes")):
        return word[:-2]
    is_plural = len(word) > 2 and word.endswith("s") and not word.endswith(_UNCHANGED_ENDINGS)
    return word[:-1] if is_plural else word


@lru_cache(maxsize=65_536)
def _folded(word: str) -> str:
    """A word in the form that is compared."""
    return "and" if word == "&" else fold(word)


class Names:
    """Known names and the concept of each; a concept is named by the key it was first met under."""

    def __init__(self, concepts: Mapping[str, str] | None = None) -> None:
        self._concepts: dict[str, str] = {}
        self._blocks: dict[str, dict[str, str]] = {}
        for name, concept in (concepts or {}).items():
            self.add(name, concept)

    def add(self, name: str, concept: str) -> None:
        """Let a name stand for a concept, as an alias does."""
        self._concepts[key(name)] = concept
        self._blocks.setdefault(block(name), {})[name] = concept

    def resolve(self, name: str) -> tuple[str, Reason | None]:
        """The concept of a name and why; a name that is new is a concept of its own, without a reason."""
        own = key(name)
        if (known := self._concepts.get(own)) is not None:
            return known, Reason.SPELLING if known == own else Reason.ALIAS
        for other, concept in self._blocks.get(block(name), {}).items():
            if (reason := same(name, other)) is not None:
                return concept, reason
        return own, None

    def remove(self, name: str) -> None:
        """Forget a name."""
        self._concepts.pop(key(name), None)
        self._blocks.get(block(name), {}).pop(name, None)
