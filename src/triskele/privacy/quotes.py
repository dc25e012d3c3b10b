"""Does a text quote what must stay here? Answered from hashes of telling pairs, of numbers and of pieces of tokens.

Of a secret every word of what makes it one counts, and every word of it where it is short. A text that is spread out by
blanks or signs, or that stands in another writing (`disguises`), is recognised as well.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import pairwise

from triskele.privacy.detect import find
from triskele.privacy.disguises import readings, unwritten

# What stands between telling words in English and German, and in nearly every question.
_SMALL = frozenset(
    """a about after again all also am an and any are as at be because been before but by can could did do does don for
    from get go got had has have he her here him his how i if in into is it its just know like make me more most my need
    new no not now of on one only or other our out over please remember said say see she should so some tell than that
    the their them then there these they thing this those time to too up us use want was we well were what when where
    which who why will with would yes you your s t
    aber als am an auch auf aus bei bin bis das dass dem den der des die dies doch du ein eine einem einen einer er es
    für gibt habe haben hat hatte ich ihr im in ist ja kann kein keine man mein meine mich mir mit nach nicht noch nur
    oder sich sie sind so um und uns unser von vor war waren was wann warum wer wie wird wo wurde zu zum zur""".split()
)
# Scripts without spaces: a run of characters is a sentence, so its pieces are compared.
_DENSE_LETTERS = r"\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\u3040-\u30ff"
_DENSE = re.compile(f"[{_DENSE_LETTERS}]")
_WORD = re.compile(rf"[{_DENSE_LETTERS}]++|(?:(?![{_DENSE_LETTERS}])\w)++")
_DIGIT = re.compile(r"\d")
# 84,500 and 84 500 are the number 84500.
_GROUPED = re.compile(r"(?<=\d)[.,'’ \u202f](?=\d{3}(?!\d))")
_LEAST_NUMBER = 4
_LONG = 16
_PIECE = 8
_DENSE_PIECE = 4
# A secret of so few telling words may be any of them; in a longer one, words that stand elsewhere too would be caught.
_FEW = 6
_LEAST_WORD = 4


class Quotes:
    """The rare parts of texts that must stay here, as keyed hashes; the texts cannot be read from it."""

    __slots__ = ("_key", "_marks")

    def __init__(self, key: bytes, marks: set[bytes]) -> None:
        self._key = key
        self._marks = marks

    @classmethod
    def of(cls, texts: Iterable[str], common: Iterable[str] = ()) -> Quotes:
        """Of these texts; what `common` texts, which anyone may see, say too is not rare."""
        quotes = cls(secrets.token_bytes(16), set())
        quotes.add(texts)
        for text in common:
            quotes._marks.difference_update(quotes._hashes(_pairs(_words(text))))
        return quotes

    def add(self, texts: Iterable[str]) -> None:
        """Take further texts into account."""
        for text in texts:
            for read in unwritten(text):
                self._marks.update(self._hashes(_kept_parts(read)))

    def add_secrets(self, texts: Iterable[str]) -> None:
        """Take the texts of secrets into account: of what makes them secret every word counts."""
        for text in texts:
            self.add([text])
            for read in unwritten(text):
                self._marks.update(self._hashes(_secret_parts(read)))

    def shares(self, text: str) -> bool:
        """Whether the text, in any writing, has a rare part in common with one of them."""
        return any(mark in self._marks for read in readings(text) for mark in self._hashes(_asked_parts(read)))

    def __len__(self) -> int:
        return len(self._marks)

    def __repr__(self) -> str:
        return f"<Quotes, {len(self)} marks>"

    def _hashes(self, parts: Iterable[str]) -> Iterator[bytes]:
        return (
            hashlib.blake2b(part.encode("utf-8", "surrogatepass"), digest_size=8, key=self._key).digest()
            for part in parts
        )


def _kept_parts(text: str) -> Iterator[str]:
    words = _words(text)
    yield from _pairs(words)
    yield from _singles(words)
    # A text of a single telling word has no pairs, so the word stands for it; short ones come from wrong readings.
    if len(set(words)) == 1 and (len(words[0]) >= _LEAST_WORD or _DENSE.search(words[0])):
        yield f"1 {words[0]}"
    for word in words:
        if _is_token(word) or _DENSE.search(word):
            yield from _pieces(word)


def _secret_parts(text: str) -> Iterator[str]:
    values = [text[found.start : found.end] for found in find(text)]
    if not values and len(_words(text)) <= _FEW:
        values = [text]
    for value in values:
        yield from (f"1 {word}" for word in _words(value) if len(word) >= _LEAST_WORD)
        yield from (part for joined in _joined(value) for part in _pieces(joined))


def _asked_parts(text: str) -> Iterator[str]:
    words = _words(text)
    yield from _pairs(words)
    for word in words:
        yield f"1 {word}"
        yield from _pieces(word)
    yield from (part for joined in _joined(text) for part in _pieces(joined))


def _words(text: str) -> list[str]:
    return [word for word in _all_words(text) if word not in _SMALL]


def _all_words(text: str) -> list[str]:
    folded = _GROUPED.sub("", unicodedata.normalize("NFKC", text).casefold())
    return _WORD.findall(folded)


def _joined(text: str) -> tuple[str, str]:
    """The words without what stands between them: those of scripts without spaces, and all others."""
    words = _all_words(text)
    dense = {word for word in words if _DENSE.match(word)}
    return "".join(word for word in words if word in dense), "".join(word for word in words if word not in dense)


def _pairs(words: list[str]) -> Iterator[str]:
    """Neighbours among the telling words, in either order."""
    return (f"2 {min(pair)} {max(pair)}" for pair in pairwise(words) if pair[0] != pair[1])


def _singles(words: list[str]) -> Iterator[str]:
    return (f"1 {word}" for word in words if _is_token(word) or (_DIGIT.search(word) and len(word) >= _LEAST_NUMBER))


def _is_token(word: str) -> bool:
    """Longer than words are, or long and with digits: a key, a number, a name in a system."""
    return len(word) >= _LONG or (len(word) >= _PIECE and _DIGIT.search(word) is not None)


def _pieces(word: str) -> Iterator[str]:
    size = _DENSE_PIECE if _DENSE.search(word) else _PIECE
    return (f"0 {word[at : at + size]}" for at in range(len(word) - size + 1))
