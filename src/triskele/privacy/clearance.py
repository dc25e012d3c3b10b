"""Clear texts for egress, which accepts only the type made here.

A text that quotes a private or secret text is not cleared. Quotations are recognised by hashes of pairs of words, of
numbers and of pieces of tokens; of a secret every word of what makes it one counts. A memory that says nearly the same
as a private one is recognised by shingles, and a name that only private texts have counts as a quotation.

What this cannot catch: a paraphrase in other words, a translation, a summary, what follows from several texts together.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NoReturn, final

from triskele.privacy.detect import find
from triskele.privacy.encodings import decodings, readings
from triskele.text.words import DENSE_SCRIPTS, QUOTE_STOP_WORDS
from triskele.types import Memory

_OPEN = "open"
_MADE_HERE = object()


@final
class ClearedText:
    """Text cleared for sending; only the functions of this module create it."""

    __slots__ = ("__made", "__source", "__text")

    def __init__(self, text: str, made: object, source: str = "") -> None:
        if made is not _MADE_HERE:
            raise TypeError("only clear_memory and clear_question create cleared text")
        object.__setattr__(self, "_ClearedText__text", text)
        object.__setattr__(self, "_ClearedText__made", made)
        object.__setattr__(self, "_ClearedText__source", source)

    @property
    def text(self) -> str:
        """The text that may be sent."""
        if getattr(self, "_ClearedText__made", None) is not _MADE_HERE:
            raise TypeError("this text was not cleared")
        return str(getattr(self, "_ClearedText__text"))  # noqa: B009

    @property
    def source(self) -> str:
        """Id of the memory that holds this text; empty for a question."""
        return str(getattr(self, "_ClearedText__source"))  # noqa: B009

    def part(self, start: int, end: int) -> ClearedText:
        """A part of the text, for models with a window."""
        return ClearedText(self.text[start:end], _MADE_HERE, self.source)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError("cleared text never changes")

    def __init_subclass__(cls) -> NoReturn:
        raise TypeError("cleared text has one type")

    def __reduce__(self) -> NoReturn:
        raise TypeError("cleared text cannot be copied or pickled: clear the text again")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClearedText) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"<ClearedText, {len(self.text)} characters>"


def clear_memory(memory: Memory) -> ClearedText | None:
    """The content of an open memory; None for private and secret ones."""
    return ClearedText(memory.content, _MADE_HERE, memory.id) if memory.sensitivity.value == _OPEN else None


def clear_question(text: str, quotes: Quotes) -> ClearedText | None:
    """Clear a question, unless it holds a secret or quotes private text."""
    return None if quotes.shares(text) or any(map(find, readings(text))) else ClearedText(text, _MADE_HERE)


# Scripts without spaces: a run of characters is a sentence, so its pieces are compared.
_DENSE = re.compile(f"[{DENSE_SCRIPTS}]")
_WORD = re.compile(rf"[{DENSE_SCRIPTS}]++|(?:(?![{DENSE_SCRIPTS}])\w)++")
_DIGIT = re.compile(r"\d")
# 84,500 and 84 500 are the number 84500.
_GROUPED = re.compile(r"(?<=\d)[.,'’ \u202f](?=\d{3}(?!\d))")
_LEAST_NUMBER = 4
_LONG = 16
_PIECE = 8
_DENSE_PIECE = 4
# In a secret of this few content words each one counts; in a longer one, ordinary words would be caught too.
_FEW = 6
_LEAST_WORD = 4
_LEAST_NAME = 3
# Characters of a shingle, over the content words without blanks: other endings, typing errors and marks change few.
_SHINGLE, _DENSE_SHINGLE = 5, 3
_LEAST_SHINGLES = 8
# The share of the shorter text that both have.
_ALIKE = 0.6


class Quotes:
    """Rare parts of private texts as keyed hashes."""

    __slots__ = ("_key", "_marks")

    def __init__(self) -> None:
        self._key = secrets.token_bytes(16)
        self._marks: set[bytes] = set()

    @classmethod
    def of(cls, texts: Iterable[str]) -> Quotes:
        """The rare parts of some texts."""
        quotes = cls()
        quotes.add(texts)
        return quotes

    def add(self, texts: Iterable[str]) -> None:
        """Add further texts."""
        for text in texts:
            for read in decodings(text):
                self._marks.update(self._hashes(_kept_parts(read)))

    def add_secrets(self, texts: Iterable[str]) -> None:
        """Add the texts of secrets: every word of the secret part counts."""
        for text in texts:
            self.add([text])
            for read in decodings(text):
                self._marks.update(self._hashes(_secret_parts(read)))

    def shares(self, text: str) -> bool:
        """Whether a text shares a rare part with one of them."""
        return any(mark in self._marks for read in readings(text) for mark in self._hashes(_asked_parts(read)))

    def add_names(self, names: Iterable[str]) -> None:
        """Add names: every word of one counts."""
        for name in names:
            self._marks.update(self._hashes(f"1 {word}" for word in _words(name) if len(word) >= _LEAST_NAME))

    def shared_words(self, text: str) -> list[str]:
        """The words of a text that are words of names."""
        words = dict.fromkeys(word for read in readings(text) for word in _words(read))
        return [word for word in words if next(self._hashes([f"1 {word}"])) in self._marks]

    def __len__(self) -> int:
        return len(self._marks)

    def __repr__(self) -> str:
        return f"<Quotes, {len(self)} marks>"

    def _hashes(self, parts: Iterable[str]) -> Iterator[bytes]:
        return (_hash(part, self._key) for part in parts)


class Shingles:
    """Overlapping pieces of private texts as keyed hashes, to find near copies."""

    __slots__ = ("_holders", "_key", "_sizes")

    def __init__(self) -> None:
        self._key = secrets.token_bytes(16)
        self._holders: dict[bytes, list[int]] = {}
        self._sizes: list[int] = []

    def add(self, texts: Iterable[str]) -> None:
        """Add texts, except those too short to be distinctive."""
        for text in texts:
            marks = self._marks(text)
            if len(marks) >= _LEAST_SHINGLES:
                for mark in marks:
                    self._holders.setdefault(mark, []).append(len(self._sizes))
                self._sizes.append(len(marks))

    def resembles(self, text: str) -> bool:
        """Whether most of a text is in one, or vice versa."""
        marks = self._marks(text)
        if len(marks) < _LEAST_SHINGLES:
            return False
        shared = Counter(holder for mark in marks for holder in self._holders.get(mark, ()))
        return any(count >= _ALIKE * min(len(marks), self._sizes[holder]) for holder, count in shared.items())

    def __repr__(self) -> str:
        return f"<Shingles of {len(self._sizes)} texts>"

    def _marks(self, text: str) -> set[bytes]:
        joined = "".join(_words(text))
        size = _DENSE_SHINGLE if _DENSE.search(joined) else _SHINGLE
        return {_hash(joined[at : at + size], self._key) for at in range(len(joined) - size + 1)}


def _hash(part: str, key: bytes) -> bytes:
    return hashlib.blake2b(part.encode("utf-8", "surrogatepass"), digest_size=8, key=key).digest()


def _kept_parts(text: str) -> Iterator[str]:
    words = _words(text)
    yield from _pairs(words)
    # A text of one content word has no pairs, so the word itself counts; short ones come from wrong decodings.
    if len(set(words)) == 1 and (len(words[0]) >= _LEAST_WORD or _DENSE.search(words[0])):
        yield f"1 {words[0]}"
    for word in words:
        if _is_token(word) or (_DIGIT.search(word) and len(word) >= _LEAST_NUMBER):
            yield f"1 {word}"
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


def holds_word(text: str, word: str) -> bool:
    """Whether a text has a word, as quotations compare words."""
    return word in unicodedata.normalize("NFKC", text).casefold() and word in _words(text)


def _words(text: str) -> list[str]:
    return [word for word in _all_words(text) if word not in QUOTE_STOP_WORDS]


def _all_words(text: str) -> list[str]:
    folded = _GROUPED.sub("", unicodedata.normalize("NFKC", text).casefold())
    return _WORD.findall(folded)


def _joined(text: str) -> tuple[str, str]:
    """The words joined: first of scripts without spaces, then all others."""
    words = _all_words(text)
    dense = {word for word in words if _DENSE.match(word)}
    return "".join(word for word in words if word in dense), "".join(word for word in words if word not in dense)


def _pairs(words: list[str]) -> Iterator[str]:
    """Neighbouring content words, in either order."""
    return (f"2 {min(pair)} {max(pair)}" for pair in pairwise(words) if pair[0] != pair[1])


def _is_token(word: str) -> bool:
    """Whether a word is a key, a number or an identifier."""
    return len(word) >= _LONG or (len(word) >= _PIECE and _DIGIT.search(word) is not None)


def _pieces(word: str) -> Iterator[str]:
    size = _DENSE_PIECE if _DENSE.search(word) else _PIECE
    return (f"0 {word[at : at + size]}" for at in range(len(word) - size + 1))
