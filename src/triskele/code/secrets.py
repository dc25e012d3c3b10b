"""Find secrets in source once, at indexing; mask them wherever shown.

What was found for a content holds only for these bytes and this version of detection; else the text is searched again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import blake2b
from pathlib import Path

from triskele.privacy import api_keys, detect, encodings, financial, findings, formats, passwords
from triskele.text import words as base_text

MASK = "[secret]"
# No version: what was found with it is never trusted.
UNKNOWN = 0
_DETECTION = (detect, api_keys, encodings, financial, findings, formats, passwords, base_text)

Span = tuple[int, int]


@cache
def detector() -> int:
    """Version of detection from its source; UNKNOWN if unreadable."""
    digest = blake2b(repr(sys.version_info[:2]).encode(), digest_size=7)
    try:
        for module in _DETECTION:
            digest.update(Path(str(module.__file__)).read_bytes())
    except OSError:
        return UNKNOWN
    return int.from_bytes(digest.digest(), "little") or 1


def decoded(source: bytes) -> str:
    """The text of a file, with broken characters replaced."""
    return source.decode("utf-8", "replace")


def secrets_in(text: str) -> tuple[Span, ...]:
    """Spans of secrets in a text, in order and without overlaps."""
    return tuple((found.start, found.end) for found in detect.find(text))


def masked(text: str, start: int, end: int, spans: Iterable[Span]) -> str:
    """Part of a text with its secrets replaced, also partial ones."""
    parts, at = [], start
    for first, last in spans:
        first, last = max(first, start), min(last, end)
        if first < last:
            parts += [text[at:first], MASK]
            at = last
    return "".join([*parts, text[at:end]])


def masked_line(text: str) -> str:
    """A short text with its secrets replaced."""
    return masked(text, 0, len(text), secrets_in(text))


@dataclass(frozen=True)
class SourceText:
    """A source file with the secrets of its index; None without one."""

    text: str
    indexed: Sequence[Span] | None = None

    @cached_property
    def lines(self) -> list[str]:
        """The lines; only line feeds end a line, as for the parser."""
        return self.text.split("\n")

    @cached_property
    def spans(self) -> Sequence[Span]:
        """Where its secrets lie."""
        return secrets_in(self.text) if self.indexed is None else self.indexed

    def shown(self, first: int, last: int) -> str:
        """Some lines with the secrets of the whole file masked."""
        before = sum(map(len, self.lines[: first - 1])) + first - 1
        length = len("\n".join(self.lines[first - 1 : last]))
        return masked(self.text, min(before, len(self.text)), before + length, self.spans)
