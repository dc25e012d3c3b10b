"""Turn source text into hashed terms: identifiers split, stemmed and whole."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b

import Stemmer

from triskele.text.words import STOP_WORDS, fold

# A whole identifier is more specific than its parts.
WHOLE_WEIGHT = 1.75
MAX_WORD_CHARACTERS = 64
_WORD = re.compile(r"[^\W\d_][\w$]*|\d+[\w$]*|_[\w$]+")
_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+|[^\W\d_a-zA-Z]+")
_stemmer = Stemmer.Stemmer("english", 0)


def words(text: str) -> list[str]:
    """The identifiers and words of a text, as they are written."""
    return _WORD.findall(text)


@lru_cache(maxsize=200_000)
def parts(word: str) -> tuple[str, ...]:
    """Parts of an identifier in lower case, as of `getUserById`."""
    return tuple(fold(part) for part in _PARTS.findall(word))


@lru_cache(maxsize=200_000)
def stem(word: str) -> str:
    """The stem of a word in lower case."""
    return str(_stemmer.stemWord(word))


@lru_cache(maxsize=400_000)
def term(text: str) -> int:
    """A term as a number: postings hold no text."""
    return int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "little")


@lru_cache(maxsize=200_000)
def terms_of(word: str) -> tuple[tuple[int, float], ...]:
    """Weighted terms of a word: stems of parts, and the whole."""
    if len(word) > MAX_WORD_CHARACTERS:
        return ()
    split = parts(word)
    terms = [(term(stem(part)), 1.0) for part in split]
    if len(split) > 1:
        terms.append((term(whole(word)), WHOLE_WEIGHT))
    return tuple(terms)


@lru_cache(maxsize=200_000)
def numbers_of(word: str) -> frozenset[int]:
    """The terms of a word without their weights."""
    return frozenset(number for number, _ in terms_of(word))


def whole(word: str) -> str:
    """An identifier in lower case without underscores, as indexed."""
    return "=" + fold(word).replace("_", "").replace("$", "")


def counts(found: Iterable[str]) -> dict[int, float]:
    """The weighted frequencies of the terms of some words."""
    frequencies: dict[int, float] = {}
    for word, times in Counter(found).items():
        for number, weight in terms_of(word):
            frequencies[number] = frequencies.get(number, 0.0) + weight * times
    return frequencies


def telling(found: Iterable[str]) -> list[str]:
    """Words that are not stop words; all if there are only those."""
    all_words = list(found)
    return [word for word in all_words if word.lower() not in STOP_WORDS] or all_words
