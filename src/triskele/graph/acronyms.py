"""Acronyms with what they stand for, where a text says so itself."""

from __future__ import annotations

import re
from collections.abc import Sequence

from triskele.graph.canonical import parts

_EXPLAINED = re.compile(r"\(([A-Z][A-Za-z0-9&/\-]{1,9})\)")
_SPELT_OUT = re.compile(r"(?<![\w])([A-Z][A-Za-z0-9&/\-]{1,9}) ?\(([^()\n]{4,100})\)")
_LINKING = frozenset("of the and for in on to a an de la".split())


def expansions(text: str) -> list[tuple[str, str]]:
    """Acronyms with what they stand for, where the text says so: "Continuous Integration (CI)" or the other way."""
    found = [
        (match.group(1), expansion)
        for match in _EXPLAINED.finditer(text)
        if (expansion := _expansion_before(text, match.start(), match.group(1))) is not None
    ]
    for match in _SPELT_OUT.finditer(text):
        if _initials_fit(match.group(1), [part.text for part in parts(match.group(2))]):
            found.append((match.group(1), match.group(2).strip()))
    return list(dict.fromkeys(found))


def _expansion_before(text: str, end: int, acronym: str) -> str | None:
    """The shortest run of words before a place whose initials are the acronym."""
    listed = parts(text[max(0, end - 120) : end])
    offset = max(0, end - 120)
    for count in range(1, min(len(listed), 2 * len(acronym)) + 1):
        run = listed[-count:]
        if run[0].text not in _LINKING and _initials_fit(acronym, [part.text for part in run]):
            return text[offset + run[0].start : offset + run[-1].end]
    return None


def _initials_fit(acronym: str, texts: Sequence[str]) -> bool:
    """Whether the words begin with the acronym's letters, small words at will."""
    letters = [letter.lower() for letter in acronym.rstrip("s") if letter.isalnum()]
    telling = [text[0] for text in texts if text not in _LINKING]
    return len(texts) > 1 and len(letters) > 1 and letters in ([text[0] for text in texts], telling)
