"""A parsed question about code: a symbol or a sentence, its words, and the names that it asks for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from triskele.code.paths import ASKED_BY
from triskele.code.words import parts, stem, telling, whole, words

MAX_QUESTION_CHARACTERS = 2000
MAX_TERMS = 64
_NAME = r"[^\W\d][\w$]*"
_SYMBOL = re.compile(rf"^{_NAME}(?:(?:::|->|\.|#|\\){_NAME})*(?:\(\))?$")
_SEPARATORS = re.compile(r"::|->|[.#\\]")
_EMBEDDED = re.compile(
    rf"`([^`\s]+)`|\b({_NAME}(?:(?:::|\.){_NAME})+|_*[a-z]+(?:_[a-z0-9]+)+|[a-z]+[A-Z]\w*|[A-Z][a-z0-9]+[A-Z]\w*)\b"
)


@dataclass(frozen=True)
class CodeQuestion:
    """One question; everything else follows from its text."""

    text: str

    @cached_property
    def is_symbol(self) -> bool:
        """Whether the question is a bare name: with a capital, an underscore, a separator or parentheses."""
        text = self.text.strip()
        has_form = any(character.isupper() or character in "_.:#()\\" for character in text)
        return bool(_SYMBOL.match(text)) and has_form

    @cached_property
    def symbols(self) -> tuple[tuple[str, str], ...]:
        """The names asked for, each with its container, which may be empty."""
        text = self.text.strip()
        names = [text] if self.is_symbol else [a or b for a, b in _EMBEDDED.findall(text)]
        return tuple(dict.fromkeys(split_symbol(name) for name in names if len(name) > 1))

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The distinct words in lower case without stop words, identifiers split."""
        terms = telling(part for word in words(self.text[:MAX_QUESTION_CHARACTERS]) for part in parts(word))
        return tuple(dict.fromkeys(terms))[:MAX_TERMS]

    @cached_property
    def terms(self) -> tuple[str, ...]:
        """The terms to search for: stems, and whole identifiers."""
        wholes = [whole(word) for word in words(self.text[:MAX_QUESTION_CHARACTERS]) if len(parts(word)) > 1]
        return tuple(dict.fromkeys([*(stem(word) for word in self.words), *wholes]))[:MAX_TERMS]

    @cached_property
    def asked_for(self) -> frozenset[str]:
        """The classes of paths that the question names: tests, benchmarks, examples, …"""
        present = {stem(word) for word in self.words}
        return frozenset(kind for kind, names in ASKED_BY.items() if present & names)


def split_symbol(name: str) -> tuple[str, str]:
    """A name and its container, which may be empty."""
    *container, last = _SEPARATORS.split(name.removesuffix("()"))
    return last, container[-1] if container else ""
