"""A text as it reads when somebody undoes a writing of it: percent signs, escapes, hexadecimal, base64, backwards."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from urllib.parse import unquote

_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")
_HEX = re.compile(r"(?:(?:0x|\\x)?[0-9a-fA-F]{2}[\s:,;-]{0,2}){6,}+")
_NO_DIGIT = re.compile(r"0x|[^0-9a-fA-F]")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{11,}+")
# Bytes that were no text give hardly ever so many signs in a row.
_LEGIBLE = re.compile(r"[^\x00-\x08\x0e-\x1f\x7f-\x9f\ufffd]{6,}+")
_STANDARD = str.maketrans("-_", "+/")


def unwritten(text: str) -> list[str]:
    """The text, and what it says in each writing that it may be in; one writing at a time, none inside another."""
    plain = [text, unquote(text), unquote(text.replace("+", " ")), _ESCAPED.sub(_character, text)]
    return list(dict.fromkeys([*plain, *filter(None, _decoded(text))]))


def readings(text: str) -> list[str]:
    """The same, and the text backwards."""
    return [*unwritten(text), text[::-1]]


def _character(found: re.Match[str]) -> str:
    return chr(int(found[1], 16))


def _decoded(text: str) -> Iterator[str]:
    for run in _HEX.findall(text):
        digits = _NO_DIGIT.sub("", run)
        # A piece of a longer run may begin in the middle of a character.
        for start in range(2):
            yield _read(bytes.fromhex(digits[start : start + (len(digits) - start) // 2 * 2]))
    for run in _BASE64.findall(text):
        for start in range(4):
            digits = run[start : start + (len(run) - start) // 4 * 4].translate(_STANDARD)
            rest = run[start + len(digits) :].translate(_STANDARD)
            yield _read(base64.b64decode(digits + (rest.ljust(4, "=") if len(rest) > 1 else "")))


def _read(content: bytes) -> str:
    """What of the bytes is text; without NUL, so that UTF-16 reads as UTF-8 does."""
    return " ".join(_LEGIBLE.findall(content.replace(b"\0", b"").decode("utf-8", "replace")))
